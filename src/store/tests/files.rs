use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("there").permissions().mode() & 0o777
}

#[test]
fn every_file_is_readable_by_its_owner_only() {
    let parent = tempfile::tempdir().expect("directory");
    let dir = parent.path().join("data");
    let store = reopen(&dir);
    store.secret().expect("secret");
    say(&store, 1, &["hello", "hi"]);
    let mut names: Vec<_> = fs::read_dir(&dir).expect("directory").map(|entry| entry.expect("entry").path()).collect();
    names.sort();
    let short: Vec<_> = names.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    assert_eq!(short, ["identity.key", "loadline.db", "loadline.db-shm", "loadline.db-wal", "loadline.lock"]);
    assert!(names.iter().all(|path| mode(path) == 0o600));
    assert_eq!(mode(&dir), 0o700);
}

#[test]
fn a_file_that_others_could_read_is_made_private() {
    let (dir, store) = fresh();
    drop(store);
    let path = dir.path().join("loadline.db");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("mode");
    let _store = reopen(dir.path());
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&dir.path().join("loadline.db-wal")), 0o600);
}

#[test]
fn a_second_serving_process_is_refused_and_a_command_is_not() {
    let (dir, store) = fresh();
    say(&store, 1, &["hello", "hi"]);
    let refused = Store::open(dir.path(), Durability::Full).expect_err("refused");
    assert!(matches!(&refused, StoreError::InUse { path } if path.ends_with("loadline.lock")), "{refused}");
    let command = open_read_only(dir.path()).expect("beside it");
    assert_eq!(command.counts().expect("counts").messages, 2);
    drop(store);
    assert_eq!(open_read_only(dir.path()).expect("without it").counts().expect("counts").messages, 2);
    drop(reopen(dir.path()));
}

#[test]
fn a_command_makes_no_database() {
    let dir = tempfile::tempdir().expect("directory");
    let missing = open_read_only(dir.path()).expect_err("nothing there");
    assert!(missing.to_string().ends_with("loadline.db"));
    assert_eq!(fs::read_dir(dir.path()).expect("directory").count(), 0);
}

/// Refused, and not a byte of it is changed.
fn refused_untouched(dir: &Path) -> StoreError {
    let path = dir.join("loadline.db");
    let before = fs::read(&path).expect("readable");
    let refused = Store::open(dir, Durability::Full).expect_err("refused");
    assert!(refused.to_string().contains("loadline.db"), "{refused}");
    assert!(fs::read(&path).expect("readable") == before);
    refused
}

#[test]
fn a_newer_schema_is_refused() {
    let (dir, store) = fresh();
    drop(store);
    let connection = Connection::open(dir.path().join("loadline.db")).expect("database");
    connection.pragma_update(None, "user_version", 99).expect("version");
    drop(connection);
    assert!(matches!(refused_untouched(dir.path()), StoreError::Newer { found: 99, known: 5, .. }));
    assert!(matches!(open_read_only(dir.path()), Err(StoreError::Newer { .. })));
}

#[test]
fn conversations_of_an_earlier_schema_are_found_again() {
    let (dir, store) = fresh();
    let long = ["hello", "hi", "and", "so"];
    say(&store, 1, &["hello", "hi"]);
    say(&store, 1, &long);
    say(&store, 1, &["hello", "hi", "or", "else"]);
    store.submit(Change::Begin(begin("unanswered", 2, &["hello", "hi"]))).wait().expect("stored");
    drop(store);
    // As the third schema had it.
    let connection = Connection::open(dir.path().join("loadline.db")).expect("database");
    connection
        .execute_batch(
            "DROP TABLE anchors; DROP INDEX messages_by_conversation; DROP INDEX branches_by_parent;
             CREATE INDEX messages_by_link ON messages(link, answered, conversation_id);
             CREATE INDEX messages_by_conversation ON messages(conversation_id);
             CREATE INDEX turns_by_branch ON turns(branch_id);
             CREATE INDEX branches_by_parent ON branches(parent_id);
             ALTER TABLE conversations DROP COLUMN upstream;
             PRAGMA user_version = 3;",
        )
        .expect("an earlier schema");
    drop(connection);
    assert!(matches!(open_read_only(dir.path()), Err(StoreError::Older { found: 3, .. })));
    let store = Store::open(dir.path(), Durability::Full).expect("brought up to date");
    for (history, index) in [(&long[..], 3), (&["hello", "hi", "or", "else", "new"][..], 3), (&long[..2], 1)] {
        let found = store.reader().expect("reader").find("local", &links("local", history)).expect("read");
        assert_eq!(found.map(|found| (found.conversation, found.index)), Some((1, index)), "{history:?}");
    }
    assert_eq!(texts(&store, 1, Some(link("local", &long))), long);
}

#[test]
fn a_damaged_header_is_refused() {
    let (dir, store) = fresh();
    drop(store);
    let path = dir.path().join("loadline.db");
    let mut bytes = fs::read(&path).expect("readable");
    bytes[..16].copy_from_slice(b"not a database!\n");
    fs::write(&path, bytes).expect("written");
    assert!(matches!(open_read_only(dir.path()), Err(StoreError::Corrupt { .. })));
    assert!(matches!(refused_untouched(dir.path()), StoreError::Corrupt { .. }));
}

#[test]
fn a_damaged_schema_is_refused() {
    let (dir, store) = fresh();
    drop(store);
    let path = dir.path().join("loadline.db");
    let mut bytes = fs::read(&path).expect("readable");
    bytes[100..4096].fill(0xff);
    fs::write(&path, bytes).expect("written");
    assert!(matches!(refused_untouched(dir.path()), StoreError::Corrupt { .. }));
}

#[test]
fn another_programs_database_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let connection = Connection::open(dir.path().join("loadline.db")).expect("database");
    connection.execute_batch("CREATE TABLE theirs (id)").expect("table");
    drop(connection);
    assert!(matches!(refused_untouched(dir.path()), StoreError::NotOurs { .. }));
}

/// A copy of the directory as a crash would leave it: the log is not written back.
fn crash(dir: &Path) -> TempDir {
    let copy = tempfile::tempdir().expect("directory");
    for name in ["loadline.db", "loadline.db-wal"] {
        fs::copy(dir.join(name), copy.path().join(name)).expect("copied");
    }
    copy
}

#[test]
fn what_was_acknowledged_survives_a_crash() {
    let (dir, store) = fresh();
    say(&store, 1, &["hello", "hi"]);
    let after = crash(dir.path());
    assert_eq!(open_read_only(after.path()).expect("command").counts().expect("counts").messages, 2);
    assert_eq!(texts(&reopen(after.path()), 1, None), ["hello", "hi"]);
}

#[test]
fn an_emptied_database_with_a_log_is_refused_and_the_log_stays() {
    let (dir, store) = fresh();
    say(&store, 1, &["hello", "hi"]);
    let after = crash(dir.path());
    fs::write(after.path().join("loadline.db"), b"").expect("emptied");
    let log = fs::read(after.path().join("loadline.db-wal")).expect("log");
    assert!(matches!(refused_untouched(after.path()), StoreError::Corrupt { .. }));
    assert!(fs::read(after.path().join("loadline.db-wal")).expect("log") == log);
}

#[test]
fn a_damaged_page_is_found_after_a_crash() {
    let (dir, store) = fresh();
    drop(store);
    let path = dir.path().join("loadline.db");
    let mut bytes = fs::read(&path).expect("readable");
    // The second page is the root of the first table, and nothing at opening needs it.
    bytes[4096..8192].fill(0xff);
    let store = reopen(dir.path());
    store.submit(Change::Event(event("note"))).wait().expect("stored");
    let after = crash(dir.path());
    fs::write(after.path().join("loadline.db"), bytes).expect("written");
    assert!(matches!(refused_untouched(after.path()), StoreError::Corrupt { .. }));
}

#[test]
fn the_secret_stays_the_same_and_differs_between_installations() {
    let dirs = [tempfile::tempdir().expect("directory"), tempfile::tempdir().expect("directory")];
    let secret = |dir: &TempDir| reopen(dir.path()).secret().expect("secret");
    let secrets = dirs.each_ref().map(secret);
    assert_ne!(secrets[0], secrets[1]);
    assert_eq!(secret(&dirs[0]), secrets[0]);
}
