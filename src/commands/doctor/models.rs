//! Each model: its window and where that comes from, whether clients disagree about it, and how well it is counted.
//!
//! Nothing here makes Ollama load a model unless that was asked for. A loaded one is asked for a rendering only
//! with the window that it has, because any other would load it again.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::finding::{Check, Group};
use super::upstream::{Knows, There};
use super::window::{Facts, limits_of};
use crate::config::Config;
use crate::context::ladder::Budget;
use crate::context::{Basis, Window};
use crate::dialect::Dialect;
use crate::ollama::count::count;
use crate::ollama::models::{ConfiguredWindow, Model, ModelError, WindowSource, full_name};
use crate::ollama::{Models, Upstream};
use crate::store::RecentLimit;

/// Most that are looked at unless they are named.
const MOST: usize = 20;

const CONNECT: Duration = Duration::from_secs(2);

/// Which models to look at, the loaded ones first, and how many are left out.
pub(super) fn chosen(named: &[String], there: &There) -> (Vec<String>, usize) {
    if !named.is_empty() {
        return (named.to_vec(), 0);
    }
    let is_loaded = |name: &str| there.loaded.iter().any(|(loaded, _)| full_name(loaded) == full_name(name));
    let mut names = there.listed.clone();
    names.sort_by_key(|name| !is_loaded(name));
    let left_out = names.len().saturating_sub(MOST);
    names.truncate(MOST);
    (names, left_out)
}

/// What is asked about models, and with what.
#[derive(Debug)]
pub(super) struct Examiner<'a> {
    models: Models,
    config: &'a Config,
    there: &'a There,
    limits: &'a [RecentLimit],
    may_load: bool,
}

impl<'a> Examiner<'a> {
    pub(super) fn new(
        config: &'a Config,
        there: &'a There,
        limits: &'a [RecentLimit],
        load_within: Option<Duration>,
    ) -> Option<Self> {
        let answer = load_within.unwrap_or(Duration::from_secs(10));
        let upstream = Upstream::new(&config.upstream_url, CONNECT, answer).ok()?;
        let models = Models::new(upstream, Arc::new(config.windows.clone()));
        Some(Self { models, config, there, limits, may_load: load_within.is_some() })
    }

    pub(super) async fn look(&self, name: &str) -> Group {
        Group::new(title(name), self.checks(name).await)
    }

    async fn checks(&self, name: &str) -> Vec<Check> {
        let about = About::ask(self.models.upstream(), name).await;
        if about.is_for_other_work {
            return vec![Check::skip("window", "not a model to chat with: its requests pass as they are")];
        }
        let model = match self.models.get(name).await {
            Ok(model) => model,
            Err(error) => return vec![unknown(name, &error)],
        };
        let (assumed, source) = self.models.window(&model, None);
        let loaded = self.there.loaded.iter().find(|(loaded, _)| full_name(loaded) == full_name(name));
        let mut loaded_window = loaded.and_then(|(_, window)| *window);
        let way = way(self.there.renders, about.runs_elsewhere, loaded.is_some(), loaded_window, model.trained_window);
        let template = self.template(&model, way).await;
        if self.may_load && loaded.is_none() && !about.runs_elsewhere {
            model.look_up_loaded_window(model.no_other_window_asked_for()).await;
            loaded_window = Some(self.models.window(&model, None))
                .filter(|(_, from)| *from == WindowSource::Loaded)
                .map(|(window, _)| window);
        } else if let Some(window) = loaded_window {
            model.learn_window(window);
        }
        let (window, from) = self.models.window(&model, None);
        let facts = Facts {
            name: name.to_owned(),
            window,
            from,
            assumed,
            assumed_from: source,
            trained: model.trained_window,
            configured: self.config.windows.window_of(name),
            loaded: loaded_window,
            limit: Budget::new(window, self.config.reserve, None).limit,
            reserve: self.config.reserve,
            limits: limits_of(name, self.limits),
        };
        let tokenizer = tokenizer(model.tokenizer.as_ref().err().map(String::as_str));
        [
            Some(facts.window()),
            facts.configured(),
            facts.loaded(),
            Some(facts.reloads()),
            Some(tokenizer),
            Some(template),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Counts a tiny chat, if that costs nothing or loading is allowed.
    async fn template(&self, model: &Model, way: Way) -> Check {
        let num_ctx = match way {
            Way::As(window) => Some(window),
            Way::Loading if self.may_load => None,
            Way::Loading => return Check::skip("template", "not loaded, so not tried; --load loads it and tries"),
            Way::Reloading if self.may_load => None,
            Way::Reloading => {
                return Check::skip(
                    "template",
                    "not tried: asking could make Ollama load it again; --load tries all the same",
                );
            }
            Way::None(reason) => return Check::skip("template", reason),
        };
        let mut body = json!({
            "model": model.name,
            "messages": [{ "role": "system", "content": "Be brief." }, { "role": "user", "content": "Good morning" }],
        });
        if let Some(window) = num_ctx {
            body["options"] = json!({ "num_ctx": window });
        }
        let body = body.to_string();
        match Dialect::Chat.parse(&body) {
            Ok(request) => {
                let count = count(self.models.upstream(), model, &request).await;
                template(count.basis, count.tokens, model.tokenizer.is_ok())
            }
            Err(_) => Check::skip("template", "a tiny chat could not be put together"),
        }
    }
}

/// What the title of a model's group begins with.
pub(super) const TITLE: &str = "model ";

pub(super) fn title(name: &str) -> String {
    format!("{TITLE}{name}")
}

/// What `/api/show` says of a model that counting does not need.
#[derive(Debug, Default)]
struct About {
    /// It embeds, or makes images: no chat goes there.
    is_for_other_work: bool,
    runs_elsewhere: bool,
}

impl About {
    async fn ask(upstream: &Upstream, name: &str) -> Self {
        let body = json!({ "model": name }).to_string();
        let Ok((StatusCode::OK, body)) = upstream.call(Method::POST, "/api/show", Some(body)).await else {
            return Self::default();
        };
        let shown: Value = serde_json::from_slice(&body).unwrap_or_default();
        let completes = |list: &Vec<Value>| list.iter().any(|capability| capability == "completion");
        Self {
            // Old versions tell no capabilities.
            is_for_other_work: shown["capabilities"]
                .as_array()
                .is_some_and(|list| !list.is_empty() && !completes(list)),
            runs_elsewhere: shown["remote_host"].as_str().is_some_and(|host| !host.is_empty()),
        }
    }
}

fn unknown(name: &str, error: &ModelError) -> Check {
    match error {
        ModelError::Unknown => Check::fail(
            "window",
            "the upstream has no such model",
            format!("`ollama pull {name}`, or see `ollama list` for its name"),
        ),
        ModelError::Upstream(_) | ModelError::Unreadable => Check::fail(
            "window",
            error.to_string(),
            format!("see whether `ollama show {name}` works; restart Ollama if not"),
        ),
    }
}

/// How a rendering can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// With this window, which is the one that is loaded.
    As(Window),
    Loading,
    /// It is loaded, but nobody tells for sure with which `num_ctx`.
    Reloading,
    None(&'static str),
}

fn way(renders: Knows, elsewhere: bool, loaded: bool, window: Option<Window>, trained: Option<Window>) -> Way {
    if renders == Knows::No {
        return Way::None("the upstream shows no renderings: counts are calibrated");
    }
    if elsewhere {
        return Way::None("it runs elsewhere: nothing is sent there to try");
    }
    match (loaded, window) {
        (false, _) => Way::Loading,
        // More than it was trained for is cut down to that, and asking for less than was asked then loads it again.
        (true, Some(window)) if trained.is_none_or(|trained| window < trained) => Way::As(window),
        (true, _) => Way::Reloading,
    }
}

fn template(basis: Basis, tokens: u32, has_vocabulary: bool) -> Check {
    match (basis, has_vocabulary) {
        (Basis::Exact, _) => {
            Check::ok("template", format!("exact: a tiny chat is {tokens} tokens as its template lays it out"))
        }
        (_, true) => Check::warn(
            "template",
            "its rendering could not be had: counts are calibrated, on the high side until Ollama reports some",
            "look into Ollama's log for why it refuses to render, and update Ollama",
        ),
        (_, false) => Check::ok("template", format!("estimated: a tiny chat is at most {tokens} tokens")),
    }
}

fn tokenizer(missing: Option<&str>) -> Check {
    match missing {
        None => Check::ok("tokenizer", "exact: the model's own vocabulary"),
        Some(reason) => Check::warn(
            "tokenizer",
            format!("estimated with another vocabulary and a margin, because {reason}"),
            "update Ollama and `ollama pull` the model again; if that does not help, expect prompts to be kept shorter than they need be",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn a_rendering_is_asked_for_only_where_nothing_is_loaded_for_it() {
        let ask = |loaded, window, trained| way(Knows::Yes, false, loaded, window, trained);
        assert_eq!(ask(true, Some(4096), Some(8192)), Way::As(4096));
        assert_eq!(ask(true, Some(8192), Some(8192)), Way::Reloading);
        assert_eq!(ask(true, None, Some(8192)), Way::Reloading);
        assert_eq!(ask(false, None, Some(8192)), Way::Loading);
        assert!(matches!(way(Knows::Yes, true, false, None, None), Way::None(_)));
        assert!(matches!(way(Knows::No, false, true, Some(4096), None), Way::None(_)));
    }

    #[test]
    fn a_vocabulary_that_cannot_be_had_is_told_with_the_reason() {
        assert_eq!(tokenizer(None).status, Status::Ok);
        let check = tokenizer(Some("the upstream tells no vocabulary"));
        assert!(check.status == Status::Warn && check.seen.contains("tells no vocabulary"), "{check:?}");
    }

    #[test]
    fn loaded_models_come_first_and_no_more_than_twenty_come() {
        let listed = (0..25).map(|number| format!("m{number}:latest")).collect();
        let there = There { listed, loaded: vec![("m24".to_owned(), None)], clock: None, renders: Knows::Yes };
        let (names, left_out) = chosen(&[], &there);
        assert_eq!((names.len(), left_out, names[0].as_str(), names[1].as_str()), (20, 5, "m24:latest", "m0:latest"));
        assert_eq!(chosen(&["x".to_owned()], &there), (vec!["x".to_owned()], 0));
    }
}
