//! A real Ollama of our own, started once for all live tests and ended with them.

use std::io::Read;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use loadline::tokenize::Vocabulary;

use super::gguf;

pub struct Ollama {
    pub url: String,
    host: String,
    binary: PathBuf,
    models: PathBuf,
    /// Ends the server when this process ends: the shell waits on its standard input.
    _keeper: Mutex<Child>,
    creating: Mutex<()>,
}

static SHARED: OnceLock<Result<Ollama, String>> = OnceLock::new();

/// The server, or `None` after saying what is skipped and why.
pub fn ollama(test: &str) -> Option<&'static Ollama> {
    let shared = SHARED.get_or_init(Ollama::start).as_ref();
    let required =
        std::env::var("LOADLINE_REQUIRE").is_ok_and(|names| names.split(',').any(|name| name.trim() == "ollama"));
    match shared {
        Ok(ollama) => Some(ollama),
        Err(reason) if required => panic!("LOADLINE_REQUIRE names ollama, but {reason}"),
        Err(reason) => {
            tell(&format!("skipped {test}: {reason} (scripts/real-ollama prepares one)"));
            None
        }
    }
}

/// Says something although the test passes: the test harness keeps back only what `eprintln!` writes.
pub fn tell(line: &str) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
}

fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/loadline");
    std::env::var_os("LOADLINE_CACHE").map_or_else(home, PathBuf::from)
}

/// SmolLM2, where the script has put it.
pub fn smollm_file() -> PathBuf {
    cache().join("models/SmolLM2-135M-Instruct.Q4_1.gguf")
}

impl Ollama {
    fn start() -> Result<Self, String> {
        // Only the one that the script has built: what the simulator is held against is that version.
        let binary = cache().join("bin/ollama");
        if !binary.is_file() || !smollm_file().is_file() {
            return Err("there is no Ollama of the tests' own".to_owned());
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|error| error.to_string())?
            .port();
        let host = format!("127.0.0.1:{port}");
        let models = cache().join("live-models");
        std::fs::create_dir_all(&models).map_err(|error| error.to_string())?;
        let keeper = Command::new("sh")
            .args(["-c", "\"$0\" serve >/dev/null 2>&1 & server=$!; cat >/dev/null; kill $server; wait $server"])
            .arg(&binary)
            .env("OLLAMA_HOST", &host)
            .env("OLLAMA_MODELS", models.join("store"))
            .env("OLLAMA_MAX_LOADED_MODELS", "3")
            .env("OLLAMA_NUM_PARALLEL", "1")
            .env("OLLAMA_KEEP_ALIVE", "60s")
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let ollama = Self {
            url: format!("http://{host}"),
            host,
            binary,
            models,
            _keeper: Mutex::new(keeper),
            creating: Mutex::new(()),
        };
        ollama.wait_until_up()?;
        Ok(ollama)
    }

    fn wait_until_up(&self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Ok(mut stream) = std::net::TcpStream::connect(&self.host) {
                let mut byte = [0];
                let asked = std::io::Write::write_all(&mut stream, b"GET /api/version HTTP/1.0\r\n\r\n");
                if asked.is_ok() && stream.read_exact(&mut byte).is_ok() {
                    return Ok(());
                }
            }
            std::thread::yield_now();
        }
        Err("the Ollama that was found does not start".to_owned())
    }

    /// A tiny model with this vocabulary and template, made if it is not there yet.
    pub fn tiny(&self, name: &str, vocabulary: &Vocabulary, template: &str, extra: &str) -> String {
        let file = gguf::tiny_model(vocabulary, 131_072);
        let version = fingerprint(&[&file, template.as_bytes(), extra.as_bytes()]);
        let name = format!("ll-{name}-{version:016x}");
        let path = self.models.join(format!("{name}.gguf"));
        self.create(&name, &path, Some(&file), &format!("TEMPLATE \"\"\"{template}\"\"\"\n{extra}"));
        name
    }

    /// The real model of the script, under the name `ll-smollm2`.
    pub fn smollm2(&self) -> &'static str {
        self.create("ll-smollm2", &smollm_file(), None, "");
        "ll-smollm2"
    }

    /// The same model under another name.
    pub fn copy(&self, from: &str, to: &str) {
        let mut command = Command::new(&self.binary);
        let copied = command
            .args(["cp", from, to])
            .env("OLLAMA_HOST", &self.host)
            .stdin(Stdio::null())
            .output()
            .expect("ollama runs");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    }

    fn create(&self, name: &str, path: &Path, file: Option<&[u8]>, more: &str) {
        let _one_at_a_time = self.creating.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let ask = |arguments: &[&str]| {
            let mut command = Command::new(&self.binary);
            command.args(arguments).env("OLLAMA_HOST", &self.host).stdin(Stdio::null());
            command.output().expect("ollama runs")
        };
        if ask(&["show", name]).status.success() {
            return;
        }
        if let Some(file) = file {
            std::fs::write(path, file).expect("the model file is written");
        }
        let modelfile = self.models.join(format!("{name}.Modelfile"));
        std::fs::write(&modelfile, format!("FROM {}\n{more}", path.display())).expect("the Modelfile is written");
        let created = ask(&["create", name, "-f", modelfile.to_str().expect("text")]);
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
        if file.is_some() {
            // Ollama has its own copy now.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A short fingerprint, so that a changed model gets a new name.
fn fingerprint(parts: &[&[u8]]) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    parts.iter().for_each(|part| part.hash(&mut hasher));
    hasher.finish()
}
