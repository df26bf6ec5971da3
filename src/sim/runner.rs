//! What is loaded, with which window, and what a prompt costs: the part of Ollama behind the handler.
//!
//! The cost model is a prefix cache of one prompt a model: tokens shared with the previous prompt from
//! the front are free, the rest is evaluated. Another window means a reload, and an empty cache.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::faults::Faults;
use super::go_json::{self, Object};
use super::instant::Ready;
use super::ledger::Ledger;
use super::refusal::Refusal;
use super::{Flavour, SimConfig, SimModel};
use crate::tokenize::Generation;

/// What a model stays loaded for after a request; Ollama's default.
const KEEP_ALIVE: SignedDuration = SignedDuration::from_mins(5);
/// How many tokens at the front survive a cut; Ollama's default for `num_keep`.
const KEPT_AT_FRONT: usize = 4;
/// 0.33 rounds the runner's window up to a multiple of this.
const WINDOW_STEP: u32 = 256;

/// Everything that requests share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) config: SimConfig,
    pub(super) faults: Faults,
    pub(super) ledger: Arc<Ledger>,
    pub(super) started: Timestamp,
    pub(super) ready: Ready,
    /// One for each model of the config, in its order.
    runners: Vec<Mutex<Option<Runner>>>,
}

#[derive(Debug)]
struct Runner {
    asked: i64,
    window: u32,
    last_prompt: Vec<u32>,
    expires_at: Timestamp,
}

/// The window of one request: what was asked for, and what the runner makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) asked: i64,
    pub(super) loaded: u32,
}

/// A loaded model as `/api/ps` tells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loaded {
    pub(super) window: u32,
    pub(super) expires_at: Timestamp,
}

impl World {
    pub(super) fn new(config: SimConfig) -> Self {
        let runners = config.models.iter().map(|_| Mutex::new(None)).collect();
        Self {
            config,
            faults: Faults::default(),
            ledger: Arc::default(),
            started: Timestamp::now(),
            ready: Ready::default(),
            runners,
        }
    }

    /// A model's place in the config, by any of its names.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.config.models.iter().position(|model| model.answers_to(name))
    }

    pub(super) fn generation(&self) -> Generation {
        match self.config.flavour {
            Flavour::V0_17 => Generation::Earlier,
            Flavour::V0_33 => Generation::Later,
        }
    }

    pub(super) fn loaded(&self, index: usize) -> Option<Loaded> {
        self.runner(index).as_ref().map(|runner| Loaded { window: runner.window, expires_at: runner.expires_at })
    }

    /// Makes sure that the model is loaded with this window.
    pub(super) fn load(&self, index: usize, window: Window) {
        let asked = window.asked.max(4);
        let mut runner = self.runner(index);
        let expires_at = Timestamp::now() + KEEP_ALIVE;
        match runner.as_mut() {
            Some(runner) if runner.asked == asked => runner.expires_at = expires_at,
            other => {
                if other.is_some() {
                    self.ledger.reloads.fetch_add(1, Ordering::Relaxed);
                }
                *runner = Some(Runner { asked, window: window.loaded, last_prompt: Vec::new(), expires_at });
            }
        }
    }

    pub(super) fn unload(&self, index: usize) {
        *self.runner(index) = None;
    }

    /// Takes a prompt in: how many of its tokens have to be evaluated.
    pub(super) fn evaluate(&self, index: usize, prompt: &[u32]) -> usize {
        let mut runner = self.runner(index);
        let Some(runner) = runner.as_mut() else { return prompt.len() };
        let shared = runner.last_prompt.iter().zip(prompt).take_while(|(before, now)| before == now).count();
        runner.last_prompt.clear();
        runner.last_prompt.extend_from_slice(prompt);
        // The last token is evaluated in any case: the answer begins with what comes out of it.
        let evaluated = (prompt.len() - shared).max(1).min(prompt.len());
        self.ledger.prompt_tokens.fetch_add(prompt.len() as u64, Ordering::Relaxed);
        self.ledger.evaluated_tokens.fetch_add(evaluated as u64, Ordering::Relaxed);
        evaluated
    }

    fn runner(&self, index: usize) -> std::sync::MutexGuard<'_, Option<Runner>> {
        self.runners[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    /// The request's `num_ctx`, else the Modelfile's, else the server's.
    pub(super) fn of(model: &SimModel, options: &Object, default_window: u32) -> Result<Self, Refusal> {
        let asked = match whole_option(options, "num_ctx")? {
            Some(asked) => asked,
            None => i64::from(model.num_ctx.unwrap_or(default_window)),
        };
        let loaded = asked.clamp(4, i64::from(model.trained_window.max(4))) as u32;
        Ok(Self { asked, loaded })
    }

    /// Cuts what overflows the runner's window, or refuses it. Says whether something was cut.
    pub(super) fn cut(self, ids: &mut Vec<u32>, flavour: Flavour, refuse: bool) -> Result<bool, Refusal> {
        let refused_beyond = match flavour {
            Flavour::V0_17 => self.loaded,
            Flavour::V0_33 => self.loaded.next_multiple_of(WINDOW_STEP),
        };
        if refuse {
            return if ids.len() > refused_beyond as usize {
                Err(overflow(flavour, ids.len(), refused_beyond))
            } else {
                Ok(false)
            };
        }
        if ids.len() <= self.loaded as usize {
            return Ok(false);
        }
        let left = match flavour {
            Flavour::V0_17 => self.loaded,
            Flavour::V0_33 => self.loaded / 2 + 2,
        } as usize;
        let front = KEPT_AT_FRONT.min(left);
        ids.drain(front..ids.len() - (left - front));
        Ok(true)
    }
}

fn overflow(flavour: Flavour, tokens: usize, window: u32) -> Refusal {
    match flavour {
        Flavour::V0_17 => Refusal::runner("the input length exceeds the context length"),
        Flavour::V0_33 => {
            let message = format!(
                "request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
            );
            let inner = json!({"error": {
                "code": 400, "message": message, "type": "exceed_context_size_error",
                "n_prompt_tokens": tokens, "n_ctx": window,
            }});
            Refusal::runner(inner.to_string())
        }
    }
}

/// A whole-number option: floats are cut, other types are the server's error, oddly.
pub(super) fn whole_option(options: &Object, name: &str) -> Result<Option<i64>, Refusal> {
    match options.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) => Ok(number.as_i64().or_else(|| number.as_f64().map(|float| float as i64))),
        Some(_) => {
            let message = format!("option \"{name}\" must be of type integer");
            Err(Refusal::handler(StatusCode::INTERNAL_SERVER_ERROR, message))
        }
    }
}

/// The options that a dialect sets itself.
pub(super) fn options_of(object: &Object, names: &[(&str, &str)]) -> Object {
    let given = names.iter().filter_map(|(from, to)| Some(((*to).to_owned(), go_json::field(object, from)?.clone())));
    given.collect()
}
