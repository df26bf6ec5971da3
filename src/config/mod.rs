//! What an operator may say, and what follows from it.
//!
//! Four layers, each over the one before: defaults, the file, `LOADLINE_*` variables, flags. [`raw`]
//! is what may be written; [`Config`] is what was checked and is safe to run with. A key or value that
//! means nothing is an error that names it: silence would be read as agreement.

mod raw;
mod webhooks;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::context::Window;
use crate::history::intake::Limits;
use crate::ollama::fleet::Sharing;
use crate::ollama::models::{ConfiguredWindow, full_name};
use crate::store::{Address, Home};

pub use raw::{Durability, LogFormat, Mode, Raw};
pub use webhooks::{Receiver, Webhooks};

/// The configuration file that ships with Loadline: every key with its default and its reason.
pub const EXAMPLE: &str = include_str!("../../config/loadline.toml");

/// Variables that begin with `LOADLINE_` and are no configuration keys.
const OTHER_VARIABLES: &[&str] = &[
    "LOADLINE_CONFIG",
    "LOADLINE_TOKEN",
    // Those of the tests and their scripts.
    "LOADLINE_REQUIRE",
    "LOADLINE_TEST_STORE",
    "LOADLINE_CACHE",
    "LOADLINE_SCREENSHOTS",
    "LOADLINE_WRITE_DOCS",
    "LOADLINE_CLIENTS_JS",
];

#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub allowed_hosts: Vec<String>,
    /// Whether everybody has to say who they are.
    pub auth_required: bool,
    pub max_body_bytes: usize,
    pub header_timeout: Duration,
    pub shutdown_grace: Duration,
    /// The first of those who answer.
    pub upstream_url: String,
    /// All of them.
    pub upstream_urls: Vec<String>,
    /// How requests are shared out among them.
    pub sharing: Sharing,
    pub connect_timeout: Duration,
    pub first_byte_timeout: Duration,
    pub idle_timeout: Duration,
    pub mode: Mode,
    /// Whether lists and descriptions of models tell the window in force.
    pub tell_window: bool,
    pub reserve: f64,
    pub max_conversations: usize,
    pub compaction: Compaction,
    pub checkpoint: Checkpoint,
    pub recall: Recall,
    pub preprocess: Preprocess,
    /// What the presets for handed-over histories allow.
    pub history: Limits,
    /// Who is called when something happens.
    pub webhooks: Webhooks,
    pub data_dir: PathBuf,
    pub durability: Durability,
    /// The server that is shared with other Loadlines; none: everything is in the data directory.
    pub server: Option<Address>,
    pub log: LogConfig,
    pub windows: Windows,
}

/// When a conversation is compacted, and how far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compaction {
    /// The share of the limit that compaction aims at.
    pub target: f64,
    /// The share of the limit that a checkpoint must free to be worth it.
    pub min_gain: f64,
    /// How many messages must be new since the last compaction before a checkpoint is written.
    pub cooldown_messages: usize,
}

/// How checkpoints are written.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    pub enabled: bool,
    /// The model that writes; the conversation's own if there is none.
    pub model: Option<String>,
    /// How long a request waits for its conversation's checkpoint.
    pub wait: Duration,
    /// How long a model may take for one.
    pub timeout: Duration,
}

/// What comes back from the archive.
#[derive(Debug, Clone, PartialEq)]
pub struct Recall {
    pub enabled: bool,
    /// The share of the limit that recalled passages may take.
    pub share: f64,
    pub embed_model: Option<String>,
}

/// What is done to a user's message before it is counted.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocess {
    all: Preprocessing,
    models: BTreeMap<String, Preprocessing>,
    pub intent_model: Option<String>,
    pub intent_timeout: Duration,
}

/// The same for one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preprocessing {
    pub clean: bool,
    /// Messages of more tokens than this are condensed by a model.
    pub condense_over: Option<u32>,
}

impl Preprocess {
    pub fn of(&self, model: &str) -> Preprocessing {
        if self.models.is_empty() {
            return self.all;
        }
        self.models.get(&full_name(model)).copied().unwrap_or(self.all)
    }
}

/// What is logged, how, and who gets traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub format: LogFormat,
    pub filter: String,
    /// A collector's address.
    pub otlp_endpoint: Option<String>,
}

/// Windows that an operator has written down for models.
#[derive(Debug, Clone, Default)]
pub struct Windows {
    default: Option<Window>,
    models: BTreeMap<String, Window>,
}

impl ConfiguredWindow for Windows {
    fn window_of(&self, model: &str) -> Option<Window> {
        self.models.get(&full_name(model)).copied().or(self.default)
    }
}

/// Why there is no configuration. The message names the key and where it was written.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: {reason}")]
    File { path: String, reason: String },
    #[error("{name}: {reason}")]
    Variable { name: String, reason: String },
    #[error("{key}: {reason}")]
    Value { key: &'static str, reason: String },
}

/// Flags that override everything else.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    pub listen: Option<SocketAddr>,
    pub upstream: Option<String>,
    pub data_dir: Option<PathBuf>,
    pub observe: bool,
}

impl Config {
    /// Reads all layers. `variables` is the environment, given so that tests need not change theirs.
    pub fn load(
        file: Option<&Path>,
        variables: impl IntoIterator<Item = (String, String)>,
        flags: Flags,
    ) -> Result<Self, ConfigError> {
        let mut table = match file {
            Some(path) => read_file(path)?,
            None => toml::Table::new(),
        };
        for (name, value) in variables {
            overlay_variable(&mut table, &name, &value)?;
        }
        let mut raw = parse(&table).map_err(|reason| ConfigError::File { path: "configuration".into(), reason })?;
        if let Some(listen) = flags.listen {
            raw.server.listen = listen.to_string();
        }
        if let Some(url) = flags.upstream {
            (raw.upstream.url, raw.upstream.urls) = (url, Vec::new());
        }
        if let Some(dir) = flags.data_dir {
            raw.store.data_dir = dir.to_string_lossy().into_owned();
        }
        if flags.observe {
            raw.context.mode = Mode::Observe;
        }
        Self::check(raw)
    }

    /// Where conversations are kept.
    pub fn home(&self) -> Home {
        Home { dir: self.data_dir.clone(), server: self.server.clone() }
    }

    fn check(raw: Raw) -> Result<Self, ConfigError> {
        let value = |key, reason: &str| ConfigError::Value { key, reason: reason.to_owned() };
        let listen: SocketAddr = raw.server.listen.parse().map_err(|_| {
            value("server.listen", &format!("`{}` is not an address like 127.0.0.1:11435", raw.server.listen))
        })?;
        if !listen.ip().is_loopback() && !raw.auth.required {
            return Err(value(
                "server.listen",
                &format!(
                    "{listen} is not a loopback address, so anyone who can reach it could use your models: set auth.required = true"
                ),
            ));
        }
        if !(0.0..=0.5).contains(&raw.context.reserve) {
            return Err(value("context.reserve", "must be between 0 and 0.5"));
        }
        if !(1..=4096).contains(&raw.server.max_body_mb) {
            return Err(value("server.max_body_mb", "must be between 1 and 4096"));
        }
        for (key, share) in [
            ("context.target", raw.context.target),
            ("context.min_gain", raw.context.min_gain),
            ("recall.share", raw.recall.share),
        ] {
            if !(0.0..=0.9).contains(&share) {
                return Err(value(key, "must be between 0 and 0.9"));
            }
        }
        if !(0.0..=3600.0).contains(&raw.checkpoint.wait_s) {
            return Err(value("checkpoint.wait_s", "must be between 0 and 3600"));
        }
        if let Err(error) = tracing_subscriber::EnvFilter::try_new(&raw.log.filter) {
            return Err(value("log.filter", &error.to_string()));
        }
        if !raw.log.otlp_endpoint.is_empty() && !is_plain_url(&raw.log.otlp_endpoint) {
            let reason = "must look like http://127.0.0.1:4318, without a user or password; https is not spoken here";
            return Err(value("log.otlp_endpoint", reason));
        }
        let upstream_urls: Vec<String> = match raw.upstream.urls.is_empty() {
            true => raw.upstream.url.split(',').map(|url| url.trim().to_owned()).collect(),
            false => raw.upstream.urls,
        };
        let mut distinct = upstream_urls.clone();
        distinct.sort();
        distinct.dedup();
        if distinct.len() < upstream_urls.len() {
            return Err(value("upstream.urls", "names an upstream twice"));
        }
        let windows = raw.models.iter().filter_map(|(name, model)| Some((full_name(name), model.window?)));
        let windows = windows.collect();
        Ok(Self {
            listen,
            auth_required: raw.auth.required,
            allowed_hosts: allowed_hosts(&raw.server.allowed_hosts, listen),
            max_body_bytes: raw.server.max_body_mb << 20,
            header_timeout: seconds(raw.server.header_timeout_s),
            shutdown_grace: seconds(raw.server.shutdown_grace_s),
            upstream_url: upstream_urls[0].clone(),
            upstream_urls,
            sharing: Sharing {
                most_each: raw.upstream.max_concurrent,
                queue: raw.upstream.queue,
                queue_timeout: seconds(raw.upstream.queue_timeout_s),
                affinity: raw.upstream.affinity,
                affinity_wait: Duration::from_millis(raw.upstream.affinity_wait_ms),
            },
            connect_timeout: Duration::from_millis(raw.upstream.connect_timeout_ms),
            first_byte_timeout: seconds(raw.upstream.first_byte_timeout_s),
            idle_timeout: seconds(raw.upstream.idle_timeout_s),
            mode: raw.context.mode,
            tell_window: raw.context.tell_window,
            reserve: raw.context.reserve,
            max_conversations: raw.context.max_conversations.max(1),
            compaction: Compaction {
                target: raw.context.target,
                min_gain: raw.context.min_gain,
                cooldown_messages: raw.context.cooldown_messages,
            },
            checkpoint: Checkpoint {
                enabled: raw.checkpoint.enabled,
                model: named(raw.checkpoint.model),
                wait: Duration::from_secs_f64(raw.checkpoint.wait_s),
                timeout: seconds(raw.checkpoint.timeout_s),
            },
            recall: Recall {
                enabled: raw.recall.enabled,
                share: raw.recall.share,
                embed_model: named(raw.recall.embed_model),
            },
            preprocess: preprocess(&raw.preprocess, &raw.models),
            history: raw.history,
            webhooks: Webhooks::check(raw.webhooks)?,
            data_dir: data_dir(&raw.store.data_dir),
            durability: raw.store.durability,
            server: server(&raw.store)?,
            log: LogConfig {
                format: raw.log.format,
                filter: raw.log.filter,
                otlp_endpoint: named(raw.log.otlp_endpoint),
            },
            windows: Windows {
                default: (raw.context.default_window > 0).then_some(raw.context.default_window),
                models: windows,
            },
        })
    }
}

/// The server that conversations are kept on.
fn server(raw: &raw::Store) -> Result<Option<Address>, ConfigError> {
    fn given(path: &str) -> Option<&Path> {
        Some(path).filter(|path| !path.is_empty()).map(Path::new)
    }
    if raw.url.is_empty() {
        return match given(&raw.password_file).or(given(&raw.ca_file)) {
            Some(_) => {
                Err(ConfigError::Value { key: "store.url", reason: "a file is for a server that it names".into() })
            }
            None => Ok(None),
        };
    }
    let unreadable =
        |error: std::io::Error| ConfigError::Value { key: "store.password_file", reason: error.to_string() };
    let password = given(&raw.password_file).map(std::fs::read_to_string).transpose().map_err(unreadable)?;
    let password = password.as_deref().map(|password| password.trim_end_matches(['\r', '\n']));
    let address = Address::new(raw.url.reveal(), password, given(&raw.ca_file));
    address.map(Some).map_err(|error| ConfigError::Value { key: "store.url", reason: error.to_string() })
}

/// The names that were written down, and the address itself if it is a certain one.
fn allowed_hosts(written: &[String], listen: SocketAddr) -> Vec<String> {
    let own = Some(listen).filter(|listen| !listen.ip().is_unspecified() && !listen.ip().is_loopback());
    let own = own.map(|listen| match listen {
        SocketAddr::V4(listen) => listen.ip().to_string(),
        SocketAddr::V6(listen) => format!("[{}]", listen.ip()),
    });
    written.iter().map(|host| host.to_lowercase()).chain(own).collect()
}

/// Whether a text is an address of HTTP without a secret in it, which would end up in logs.
fn is_plain_url(text: &str) -> bool {
    let uri = text.parse::<http::Uri>().ok();
    uri.is_some_and(|uri| {
        uri.scheme_str() == Some("http")
            && uri.path() == "/"
            && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
    })
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn named(name: String) -> Option<String> {
    Some(name).filter(|name| !name.is_empty())
}

fn preprocess(all: &raw::Preprocess, models: &BTreeMap<String, raw::Model>) -> Preprocess {
    let with =
        |clean: bool, intent: bool, tokens: u32| Preprocessing { clean, condense_over: intent.then_some(tokens) };
    let differs =
        |model: &&raw::Model| model.clean.is_some() || model.intent.is_some() || model.intent_tokens.is_some();
    let own = |model: &raw::Model| {
        with(
            model.clean.unwrap_or(all.clean),
            model.intent.unwrap_or(all.intent),
            model.intent_tokens.unwrap_or(all.intent_tokens),
        )
    };
    Preprocess {
        all: with(all.clean, all.intent, all.intent_tokens),
        models: models
            .iter()
            .filter(|(_, model)| differs(model))
            .map(|(name, model)| (full_name(name), own(model)))
            .collect(),
        intent_model: named(all.intent_model.clone()),
        intent_timeout: seconds(all.intent_timeout_s),
    }
}

/// Where things are kept: as written, or where data of programs usually is.
pub fn data_dir(written: &str) -> PathBuf {
    if !written.is_empty() {
        return PathBuf::from(written);
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    base.unwrap_or_else(|| PathBuf::from(".")).join("loadline")
}

fn read_file(path: &Path) -> Result<toml::Table, ConfigError> {
    let error = |reason: String| ConfigError::File { path: path.display().to_string(), reason: unsaid(&reason) };
    let text = std::fs::read_to_string(path).map_err(|reason| error(reason.to_string()))?;
    // Read once as what it must be, because that error shows the line.
    toml::from_str::<Raw>(&text).map_err(|reason| error(reason.to_string()))?;
    toml::from_str(&text).map_err(|reason| error(reason.to_string()))
}

/// An error quotes the line that it is about; a line with a secret is not for a log.
fn unsaid(reason: &str) -> String {
    let line = |line: &str| match line.split_once(" | ") {
        Some((number, text)) if ["secret", "url", "password", "://"].iter().any(|mark| text.contains(mark)) => {
            format!("{number} | … (not shown, because there may be a secret in it)")
        }
        _ => line.to_owned(),
    };
    reason.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn parse(table: &toml::Table) -> Result<Raw, String> {
    table.clone().try_into::<Raw>().map_err(|error| error.to_string().trim().to_owned())
}

/// `LOADLINE_UPSTREAM_URL` sets `upstream.url`. The value is TOML, or a text if it is none.
fn overlay_variable(table: &mut toml::Table, name: &str, value: &str) -> Result<(), ConfigError> {
    let Some(key) = name.strip_prefix("LOADLINE_") else { return Ok(()) };
    // Kubernetes sets such variables for every service, and one may be called `loadline`.
    if OTHER_VARIABLES.contains(&name) || key.starts_with("PORT") || key.starts_with("SERVICE_") {
        return Ok(());
    }
    let error = |reason: String| ConfigError::Variable { name: name.to_owned(), reason };
    let lower = key.to_lowercase();
    let (section, key) = raw::SECTIONS
        .iter()
        .find_map(|section| Some((*section, lower.strip_prefix(section)?.strip_prefix('_')?)))
        .ok_or_else(|| error("there is no such configuration key".to_owned()))?;
    let parsed =
        toml::from_str::<toml::Table>(&format!("value = {value}")).ok().and_then(|mut table| table.remove("value"));
    for candidate in parsed.into_iter().chain([toml::Value::String(value.to_owned())]) {
        let mut with = table.clone();
        let section = with.entry(section).or_insert_with(|| toml::Table::new().into());
        if let Some(section) = section.as_table_mut() {
            section.insert(key.to_owned(), candidate);
        }
        match parse(&with) {
            Ok(_) => {
                *table = with;
                return Ok(());
            }
            Err(reason) if reason.contains("unknown field") => return Err(error(reason)),
            Err(_) => {}
        }
    }
    // Addresses of webhooks are secrets, too.
    let shown = if section == "webhooks" { "what it holds" } else { &format!("`{value}`") };
    Err(error(format!("{shown} is not a value for {section}.{key}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("loadline.toml");
        std::fs::write(&path, file).expect("file");
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::load(Some(&path), variables, Flags::default())
    }

    #[test]
    fn the_shipped_file_says_exactly_the_defaults() {
        let shipped: Raw = toml::from_str(EXAMPLE).expect("the shipped file is valid");
        assert_eq!(shipped, Raw::default());
    }

    #[test]
    fn the_shipped_file_names_every_key() {
        let written: toml::Table = toml::from_str(EXAMPLE).expect("valid");
        let all = toml::Table::try_from(Raw::default()).expect("a table");
        fn compare(path: &str, all: &toml::Table, written: &toml::Table) {
            for (key, value) in all {
                let found = written.get(key);
                assert!(found.is_some() || path.is_empty() && key == "models", "{path}{key} is missing in the file");
                if let (Some(all), Some(written)) = (value.as_table(), found.and_then(toml::Value::as_table)) {
                    compare(&format!("{path}{key}."), all, written);
                }
            }
        }
        compare("", &all, &written);
    }

    #[test]
    fn a_wrong_key_is_an_error_that_names_it() {
        let error = load("[server]\nlissten = \"x\"\n", &[]).expect_err("wrong").to_string();
        assert!(error.contains("lissten") && error.contains("loadline.toml"), "{error}");
        let error = load("", &[("LOADLINE_UPSTREAM_ULR", "x")]).expect_err("wrong").to_string();
        assert!(error.contains("LOADLINE_UPSTREAM_ULR") && error.contains("ulr"), "{error}");
        let error = load("", &[("LOADLINE_NONSENSE", "1")]).expect_err("wrong").to_string();
        assert!(error.contains("LOADLINE_NONSENSE"), "{error}");
    }

    #[test]
    fn a_wrong_value_is_an_error_that_names_it() {
        for (file, name) in [
            ("[context]\nreserve = 0.9\n", "context.reserve"),
            ("[server]\nlisten = \"nowhere\"\n", "server.listen"),
            ("[context]\nmode = \"loose\"\n", "loose"),
        ] {
            let error = load(file, &[]).expect_err("wrong").to_string();
            assert!(error.contains(name), "{error}");
        }
        let error = load("", &[("LOADLINE_CONTEXT_RESERVE", "much")]).expect_err("wrong").to_string();
        assert!(error.contains("LOADLINE_CONTEXT_RESERVE") && error.contains("much"), "{error}");
    }

    #[test]
    fn variables_override_the_file_and_flags_override_both() {
        let config = load(
            "[upstream]\nurl = \"http://a:1\"\n",
            &[("LOADLINE_UPSTREAM_URL", "http://b:2"), ("LOADLINE_CONTEXT_RESERVE", "0.2")],
        )
        .expect("valid");
        assert_eq!((config.upstream_url.as_str(), config.reserve), ("http://b:2", 0.2));
        let flags = Flags { upstream: Some("http://c:3".into()), ..Flags::default() };
        let config = Config::load(None, [("LOADLINE_UPSTREAM_URL".into(), "http://b:2".into())], flags).expect("valid");
        assert_eq!(config.upstream_url, "http://c:3");
    }

    #[test]
    fn listening_beyond_loopback_needs_tokens() {
        let open = "[server]\nlisten = \"0.0.0.0:11435\"\n";
        let error = load(open, &[]).expect_err("refused").to_string();
        assert!(error.contains("server.listen") && error.contains("auth.required"), "{error}");
        assert!(load(open, &[("LOADLINE_AUTH_REQUIRED", "true")]).is_ok());
    }
}
