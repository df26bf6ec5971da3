//! The configuration as it may be written: one struct a section, each with its defaults.
//!
//! `config/loadline.toml` says the same with reasons, and a test holds the two together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::history::intake::Limits;
use crate::webhooks::Secret;

/// The sections that variables can reach.
pub(super) const SECTIONS: &[&str] = &[
    "server",
    "auth",
    "upstream",
    "context",
    "checkpoint",
    "recall",
    "preprocess",
    "history",
    "webhooks",
    "store",
    "log",
];

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Raw {
    pub server: Server,
    pub auth: Auth,
    pub upstream: Upstream,
    pub context: Context,
    pub checkpoint: Checkpoint,
    pub recall: Recall,
    pub preprocess: Preprocess,
    pub history: Limits,
    pub webhooks: Webhooks,
    pub store: Store,
    pub log: Log,
    pub models: BTreeMap<String, Model>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    pub listen: String,
    pub allowed_hosts: Vec<String>,
    pub max_body_mb: usize,
    pub header_timeout_s: u64,
    pub shutdown_grace_s: u64,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:11435".to_owned(),
            allowed_hosts: Vec::new(),
            max_body_mb: 64,
            header_timeout_s: 30,
            shutdown_grace_s: 120,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    pub required: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Upstream {
    pub url: String,
    pub urls: Vec<String>,
    pub connect_timeout_ms: u64,
    pub first_byte_timeout_s: u64,
    pub idle_timeout_s: u64,
    pub max_concurrent: usize,
    pub queue: usize,
    pub queue_timeout_s: u64,
    pub affinity: bool,
    pub affinity_wait_ms: u64,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:11434".to_owned(),
            urls: Vec::new(),
            connect_timeout_ms: 1000,
            first_byte_timeout_s: 1800,
            idle_timeout_s: 300,
            max_concurrent: 0,
            queue: 512,
            queue_timeout_s: 120,
            affinity: true,
            affinity_wait_ms: 2000,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Enforce,
    Observe,
}

impl Mode {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Observe => "observe",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Context {
    pub mode: Mode,
    pub reserve: f64,
    pub default_window: u32,
    pub max_conversations: usize,
    pub target: f64,
    pub min_gain: f64,
    pub cooldown_messages: usize,
    pub tell_window: bool,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            mode: Mode::Enforce,
            reserve: crate::context::ladder::DEFAULT_RESERVE,
            default_window: 0,
            max_conversations: 10_000,
            target: 0.5,
            min_gain: 0.1,
            cooldown_messages: 4,
            tell_window: true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    pub enabled: bool,
    pub model: String,
    pub wait_s: f64,
    pub timeout_s: u64,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self { enabled: true, model: String::new(), wait_s: 20.0, timeout_s: 300 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recall {
    pub enabled: bool,
    pub share: f64,
    pub embed_model: String,
}

impl Default for Recall {
    fn default() -> Self {
        Self { enabled: true, share: 0.25, embed_model: String::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Preprocess {
    pub clean: bool,
    pub intent: bool,
    pub intent_tokens: u32,
    pub intent_model: String,
    pub intent_timeout_s: u64,
}

impl Default for Preprocess {
    fn default() -> Self {
        Self { clean: false, intent: false, intent_tokens: 1500, intent_model: String::new(), intent_timeout_s: 60 }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Webhooks {
    pub urls: Vec<String>,
    pub secret: Secret,
    pub secret_file: String,
    pub kinds: Vec<String>,
    pub timeout_s: u64,
    pub max_attempts: u32,
}

impl Default for Webhooks {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            secret: Secret::default(),
            secret_file: String::new(),
            kinds: Vec::new(),
            timeout_s: 10,
            max_attempts: 12,
        }
    }
}

/// When a finished turn counts as stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    #[default]
    Full,
    Normal,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    pub data_dir: String,
    pub durability: Durability,
    pub url: Secret,
    pub password_file: String,
    pub ca_file: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Human,
    Json,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub format: LogFormat,
    pub filter: String,
    pub otlp_endpoint: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Human, filter: "info".to_owned(), otlp_endpoint: String::new() }
    }
}

/// What is different for one model; what is not said is as everywhere.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    pub window: Option<u32>,
    pub clean: Option<bool>,
    pub intent: Option<bool>,
    pub intent_tokens: Option<u32>,
}
