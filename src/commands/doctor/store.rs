//! The data directory: whose it is, whether the database is whole, how large it is, and who has tokens.
//!
//! It only looks: nothing is made, locked, mended or written. No token and no message is ever shown.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::finding::Check;
use super::tokens::{file_token, first_token, tokens};
use crate::events::now_ms;
use crate::store::{Address, Checked, Disk, Home, ReadOnly, RecentLimit, StoreError, disk};

const CHECK_TIME: Duration = Duration::from_secs(5);

pub(super) const DAY_MS: i64 = 24 * 3_600_000;

/// Turns that are looked at for the windows that clients ask for.
const RECENT_TURNS: u32 = 2_000;

/// Below this free space is little, and below that there is none to speak of.
const LITTLE_BYTES: u64 = 1 << 30;
const NEARLY_NONE_BYTES: u64 = 64 << 20;

/// A write-ahead log is emptied now and then; one this large is not.
const LARGE_LOG_BYTES: u64 = 512 << 20;

/// What the store tells about the past.
#[derive(Debug, Default)]
pub(super) struct Past {
    pub(super) newest_turn_at: Option<i64>,
    pub(super) limits: Vec<RecentLimit>,
}

/// Everything about the directory. Waits for the disk.
pub(super) fn look(home: &Home, auth_required: bool) -> (Vec<Check>, Past) {
    let dir = home.dir.as_path();
    let metadata = match fs::metadata(dir) {
        Ok(metadata) => metadata,
        Err(error) => return (vec![missing(dir, &error)], Past::default()),
    };
    let us = rustix::process::geteuid().as_raw();
    let writable = rustix::fs::access(
        dir,
        rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK,
    );
    let mut checks = vec![
        directory(dir, metadata.is_dir(), metadata.mode(), metadata.uid() == us, writable.is_ok()),
        files(dir, metadata.mode(), &shared_files(dir)),
    ];
    let room = disk(dir);
    let (database, log) = room.as_ref().map_or((0, 0), |room| (room.database_bytes, room.log_bytes));
    let mut past = Past::default();
    match home.open_read_only() {
        Ok(store) => {
            match &home.server {
                None => checks.extend(opened(&store, database, log).into_iter().chain([identity(dir)])),
                Some(server) => checks.push(reached(server, &store)),
            }
            checks.push(first_token(file_token(dir, &store)));
            checks.push(tokens(&store.tokens().unwrap_or_default(), auth_required));
            past.newest_turn_at = store.newest_turn_at().ok().flatten();
            past.limits = store.recent_limits(now_ms() - DAY_MS, RECENT_TURNS).unwrap_or_default();
        }
        Err(error) => checks.push(unopened(&error)),
    }
    checks.push(free_space(room));
    (checks, past)
}

/// There is no directory, or it cannot be looked at.
fn missing(dir: &Path, error: &io::Error) -> Check {
    const NAME: &str = "directory";
    if error.kind() != io::ErrorKind::NotFound {
        return Check::fail(
            NAME,
            format!("{}: {error}", dir.display()),
            format!("run this as the user who owns it: `ls -ld {}`", dir.display()),
        );
    }
    let above = dir.ancestors().skip(1).find(|above| above.exists()).map_or_else(|| PathBuf::from("."), Path::to_owned);
    let writable = rustix::fs::access(&above, rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK).is_ok();
    if writable {
        return Check::skip(NAME, format!("{} is not there yet: the first `loadline serve` makes it", dir.display()));
    }
    Check::fail(
        NAME,
        format!("{} is not there, and {} may not be written to", dir.display(), above.display()),
        "set store.data_dir (LOADLINE_STORE_DATA_DIR, or --data-dir) to a directory of your own",
    )
}

fn directory(dir: &Path, is_dir: bool, mode: u32, ours: bool, writable: bool) -> Check {
    const NAME: &str = "directory";
    let dir = dir.display();
    let elsewhere = "set store.data_dir (LOADLINE_STORE_DATA_DIR, or --data-dir) to a directory of your own";
    if !is_dir {
        return Check::fail(NAME, format!("{dir} is not a directory"), elsewhere);
    }
    if !writable {
        return Check::fail(
            NAME,
            format!("{dir} may not be written to by this user"),
            format!("run as the user who owns it, or {elsewhere}"),
        );
    }
    if !ours {
        return Check::warn(
            NAME,
            format!("{dir} belongs to another user"),
            format!("run as that user, `sudo chown -R $USER {dir}`, or {elsewhere}"),
        );
    }
    if mode & 0o077 != 0 {
        return Check::warn(
            NAME,
            format!(
                "{dir} is open to other users (mode {:04o}): conversations are nobody else's business",
                mode & 0o7777
            ),
            format!("`chmod 700 {dir}`"),
        );
    }
    Check::ok(NAME, format!("{dir}, yours only"))
}

/// The names of the files that others may read or write.
fn shared_files(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let shared = entries
        .filter(|entry| entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o077 != 0));
    let mut names: Vec<String> = shared.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn files(dir: &Path, dir_mode: u32, shared: &[String]) -> Check {
    const NAME: &str = "files";
    if shared.is_empty() {
        return Check::ok(NAME, "no file in it can be read by others");
    }
    let seen = format!("readable or writable by others: {}", shared.join(", "));
    let paths: Vec<String> = shared.iter().map(|name| dir.join(name).display().to_string()).collect();
    let mend = format!("`chmod 600 {}`", paths.join(" "));
    // Into a directory that is closed nobody comes to read them.
    let open = dir_mode & 0o011 != 0;
    if open { Check::fail(NAME, seen, mend) } else { Check::warn(NAME, seen, mend) }
}

fn unopened(error: &StoreError) -> Check {
    const NAME: &str = "database";
    let seen = describe(error);
    match error {
        StoreError::File { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Check::skip(NAME, "there is none yet: the first `loadline serve` makes it")
        }
        StoreError::Older { .. } => {
            Check::warn(NAME, seen, "start `loadline serve` once: it brings the database up to date")
        }
        StoreError::Newer { .. } => Check::fail(NAME, seen, "install the loadline that wrote it, or a newer one"),
        StoreError::Corrupt { path, .. } => Check::fail(
            NAME,
            seen,
            format!(
                "restore {0} from a copy; or move it away with its -wal and -shm files to begin anew, and try `sqlite3 {0} .recover` on what was moved",
                path.display()
            ),
        ),
        StoreError::Away { .. } => Check::fail(
            NAME,
            seen,
            "start PostgreSQL, or correct store.url (LOADLINE_STORE_URL); `psql` with the same address says more",
        ),
        StoreError::ServerNotOurs { .. } | StoreError::Server { .. } => {
            Check::fail(NAME, seen, "give Loadline a database and a user of its own (docs/replicas.md)")
        }
        StoreError::NotOurs { .. } => {
            Check::fail(NAME, seen, "set store.data_dir (LOADLINE_STORE_DATA_DIR) to another directory")
        }
        _ => Check::fail(NAME, seen, "run as the user who owns the data directory, and look at the disk (`dmesg`)"),
    }
}

/// An error with what is behind it.
fn describe(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

fn opened(store: &ReadOnly, database: u64, log: u64) -> Vec<Check> {
    let schema = store.schema().map_or_else(|_| "unknown".to_owned(), |schema| schema.to_string());
    let whole = match store.check(CHECK_TIME) {
        Ok(Checked::Whole) => Check::ok("database", format!("schema {schema}, whole: no damaged page")),
        Ok(Checked::Partly) => {
            let looked = format!("no damaged page as far as {} s of looking went", CHECK_TIME.as_secs());
            Check::ok("database", format!("schema {schema}, {looked}"))
        }
        Err(error) => unopened(&error),
    };
    vec![whole, size(database, log)]
}

/// A server that answers. Its size and its backups are its operator's business.
fn reached(server: &Address, store: &ReadOnly) -> Check {
    match store.schema() {
        Ok(schema) => Check::ok("database", format!("{server}, schema {schema}")),
        Err(error) => unopened(&error),
    }
}

fn size(database: u64, log: u64) -> Check {
    let seen = format!("{}, and {} in its write-ahead log", bytes(database), bytes(log));
    if log < LARGE_LOG_BYTES {
        return Check::ok("size", seen);
    }
    Check::warn(
        "size",
        format!("{seen}: that log is not being emptied"),
        "end whatever else has the database open (`fuser -v` on loadline.db), such as a backup or a shell, and restart `loadline serve`",
    )
}

fn free_space(room: io::Result<Disk>) -> Check {
    match room {
        Ok(room) => space(room.free_bytes, room.database_bytes),
        Err(error) => Check::skip("disk", format!("free space is not told: {error}")),
    }
}

fn space(free: u64, database: u64) -> Check {
    let seen = format!("{} free", bytes(free));
    let mend = "make room, or set store.data_dir (LOADLINE_STORE_DATA_DIR) to a larger disk: what cannot be stored is not forwarded";
    if free < NEARLY_NONE_BYTES {
        Check::fail("disk", seen, mend)
    } else if free < LITTLE_BYTES.max(database.saturating_mul(2)) {
        Check::warn("disk", format!("{seen}, little for a database of {}", bytes(database)), mend)
    } else {
        Check::ok("disk", seen)
    }
}

/// The secret that conversations are recognised by.
fn identity(dir: &Path) -> Check {
    let path = dir.join("identity.key");
    match fs::metadata(&path) {
        Ok(metadata) if metadata.len() == 32 => {
            Check::ok("identity", "the key that conversations are recognised by is there")
        }
        _ => Check::warn(
            "identity",
            format!(
                "{} is missing or cut short: conversations that are stored will not be recognised when they go on",
                path.display()
            ),
            "restore identity.key from the same copy as the database; without it everything stays readable, and chats begin anew",
        ),
    }
}

fn bytes(number: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
    let unit = UNITS.into_iter().find(|(_, size)| number >= *size);
    unit.map_or_else(|| format!("{number} bytes"), |(unit, size)| format!("{:.1} {unit}", number as f64 / size as f64))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn a_directory_that_others_may_enter_is_told_with_the_command_that_closes_it() {
        let judge = |mode, ours, writable| directory(Path::new("/data"), true, mode, ours, writable);
        assert_eq!(judge(0o40700, true, true).status, Status::Ok);
        assert_eq!(judge(0o40755, true, true).mend.as_deref(), Some("`chmod 700 /data`"));
        assert_eq!(judge(0o40700, false, true).status, Status::Warn);
        assert_eq!(judge(0o40700, true, false).status, Status::Fail);
        assert_eq!(directory(Path::new("/data"), false, 0o100_600, true, true).status, Status::Fail);
    }

    #[test]
    fn a_file_that_others_can_reach_is_wrong_and_one_in_a_closed_directory_only_careless() {
        let judge = |mode, names: &[&str]| {
            files(Path::new("/data"), mode, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(judge(0o755, &[]).status, Status::Ok);
        assert_eq!(judge(0o700, &["token"]).status, Status::Warn);
        let check = judge(0o755, &["loadline.db", "token"]);
        assert_eq!(check.status, Status::Fail);
        assert_eq!(check.mend.as_deref(), Some("`chmod 600 /data/loadline.db /data/token`"));
    }

    #[test]
    fn little_space_is_told_before_there_is_none() {
        const GB: u64 = 1 << 30;
        assert_eq!(space(50 * GB, GB).status, Status::Ok);
        assert_eq!(space(GB / 2, 0).status, Status::Warn);
        assert_eq!(space(15 * GB, 8 * GB).status, Status::Warn);
        assert_eq!(space(1 << 20, 0).status, Status::Fail);
        assert_eq!((size(GB, 0).status, size(GB, GB).status), (Status::Ok, Status::Warn));
    }

    #[test]
    fn each_reason_not_to_open_a_database_has_its_own_way_out() {
        let path = || PathBuf::from("/data/loadline.db");
        let older = unopened(&StoreError::Older { path: path(), found: 1, known: 2 });
        assert!(older.status == Status::Warn && older.mend.is_some_and(|mend| mend.contains("loadline serve")));
        for error in [
            StoreError::Newer { path: path(), found: 9, known: 2 },
            StoreError::NotOurs { path: path() },
            StoreError::Corrupt { path: path(), detail: "page 3".to_owned() },
        ] {
            assert_eq!(unopened(&error).status, Status::Fail, "{error}");
        }
    }
}
