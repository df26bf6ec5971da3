//! A real PostgreSQL in a temporary directory, one for each test process, gone when the process is; a schema of its own
//! for each test. Tests that need one say that they are skipped where there is none, and pass, unless
//! `LOADLINE_REQUIRE` names `postgres`, as CI does. Debian's `postgresql` is enough; nothing of the system's is touched.
//!
//! PostgreSQL does not run as root: then it runs as the user `postgres`, whom Debian's package makes.

#![allow(unreachable_pub, reason = "shared by the tests of the crate and those around it")]
#![allow(clippy::expect_used, clippy::print_stderr, reason = "it is for tests")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex};

/// One server. When it is dropped, or the process that has it ends however it ends, it stops and its files go.
#[derive(Debug)]
pub struct Postgres {
    port: u16,
    /// The one who starts and stops it, and what they are told.
    keeper: Mutex<(Child, Option<ChildStdin>, BufReader<std::process::ChildStdout>)>,
}

static SHARED: LazyLock<Result<Postgres, String>> = LazyLock::new(Postgres::start);
static SCHEMAS: AtomicUsize = AtomicUsize::new(1);

/// Reads words from its standard input: `stop`, `start`. At its end everything goes.
const KEEPER: &str = r#"
set -u
bin=$1; port=$2; dir=$(mktemp -d "${TMPDIR:-/tmp}/loadline-postgres-XXXXXX")
as() { "$@"; }
if [ "$(id -u)" = 0 ]; then
  chown postgres "$dir"
  as() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }
fi
cd "$dir"
trap 'as "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1; rm -rf "$dir"' EXIT
trap '' INT TERM HUP
as "$bin/initdb" -D "$dir/data" -U loadline --auth=trust -E UTF8 --locale=C.UTF-8 --no-sync >"$dir/init.log" 2>&1 || { echo "failed initdb: $(tail -n 1 "$dir/init.log")"; exit; }
start() {
  as "$bin/pg_ctl" -D "$dir/data" -l "$dir/log" -w -t 60 start -o "-p $port -k $dir -c listen_addresses=127.0.0.1 -c max_connections=300 -c shared_buffers=64MB $1" >/dev/null 2>&1 &&
    echo started || echo "failed to start: $(tail -n 1 "$dir/log")"
}
start ""
while read -r word rest; do
  case $word in
    freeze) pkill -STOP -P "$(head -n 1 "$dir/data/postmaster.pid")"; kill -STOP "$(head -n 1 "$dir/data/postmaster.pid")"; echo frozen ;;
    thaw) kill -CONT "$(head -n 1 "$dir/data/postmaster.pid")"; pkill -CONT -P "$(head -n 1 "$dir/data/postmaster.pid")"; echo thawed ;;
    stop) as "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1; echo stopped ;;
    start) start "$rest" ;;
  esac
done
"#;

impl Postgres {
    /// A server of one's own, for tests that stop it.
    pub fn start() -> Result<Self, String> {
        let bin = programs().ok_or("PostgreSQL's initdb is not installed (Debian: postgresql)")?;
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).map_err(text)?.port();
        let mut child = Command::new("bash")
            .args(["-c", KEEPER, "keeper"])
            .arg(&bin)
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(text)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("no pipes".to_owned());
        };
        let mut output = BufReader::new(output);
        said(&mut output, "started")?;
        Ok(Self { port, keeper: Mutex::new((child, Some(input), output)) })
    }

    /// Stops it as a crash would: `pg_ctl stop -m immediate`.
    #[allow(dead_code, reason = "for those who have a server of their own")]
    pub fn crash(&self) {
        self.tell("stop", "stopped");
    }

    /// Stops it without a word: it takes what is sent, and answers nothing.
    #[allow(dead_code, reason = "for those who have a server of their own")]
    pub fn freeze(&self) {
        self.tell("freeze", "frozen");
    }

    #[allow(dead_code, reason = "for those who have a server of their own")]
    pub fn thaw(&self) {
        self.tell("thaw", "thawed");
    }

    /// Starts it again, where it was.
    #[allow(dead_code, reason = "for those who have a server of their own")]
    pub fn revive(&self) {
        self.tell("start", "started");
    }

    #[allow(dead_code, reason = "for those who have a server of their own")]
    fn tell(&self, word: &str, answer: &str) {
        let mut keeper = self.keeper.lock().expect("the keeper");
        let (_, input, output) = &mut *keeper;
        writeln!(input.as_mut().expect("the keeper listens"), "{word}").expect("the keeper listens");
        said(output, answer).expect("PostgreSQL does as it is told");
    }

    /// The address of an empty schema that nobody else uses.
    pub fn schema(&self) -> String {
        let name = format!("s{}", SCHEMAS.fetch_add(1, Ordering::Relaxed));
        let address = format!("postgres://loadline@127.0.0.1:{}/postgres", self.port);
        let mut client = postgres_client(&address);
        client(&format!("CREATE SCHEMA {name}"));
        format!("{address}?options=-csearch_path%3D{name}")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Ok((child, input, _)) = self.keeper.get_mut() else { return };
        // The end of its input is the keeper's end; it is waited for, so that nothing is left.
        drop(input.take());
        let _ = child.wait();
    }
}

/// The address of an empty schema on the server that all tests of this process share; none if there is no PostgreSQL
/// here, which is then said.
pub fn schema() -> Option<String> {
    match &*SHARED {
        Ok(server) => Some(server.schema()),
        Err(reason) => {
            skip(reason);
            None
        }
    }
}

/// Says that a test is skipped, or fails where it must not be.
pub fn skip(reason: &str) {
    let required =
        std::env::var("LOADLINE_REQUIRE").is_ok_and(|names| names.split(',').any(|name| name.trim() == "postgres"));
    assert!(!required, "LOADLINE_REQUIRE names postgres, but {reason}");
    eprintln!("skipped: {reason}");
}

fn postgres_client(address: &str) -> impl FnMut(&str) + use<> {
    let address = address.to_owned();
    move |statement: &str| {
        // A blocking client must not be used on a thread that drives others.
        let (address, statement) = (address.clone(), statement.to_owned());
        std::thread::spawn(move || {
            let mut client = postgres::Client::connect(&address, postgres::NoTls).expect("a connection");
            client.batch_execute(&statement).expect("it is done");
        })
        .join()
        .expect("it is done");
    }
}

fn said(output: &mut impl BufRead, wanted: &str) -> Result<(), String> {
    let mut line = String::new();
    output.read_line(&mut line).map_err(text)?;
    if line.trim() == wanted { Ok(()) } else { Err(format!("PostgreSQL: {}", line.trim())) }
}

/// Where the newest PostgreSQL's programs are.
fn programs() -> Option<PathBuf> {
    let has = |dir: &Path| dir.join("initdb").exists() && dir.join("pg_ctl").exists();
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = installed.map(|entry| entry.path().join("bin")).filter(|dir| has(dir)).collect();
    found.sort();
    let on_path = || std::env::split_paths(&std::env::var_os("PATH")?).find(|dir| has(dir));
    found.pop().or_else(on_path)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
