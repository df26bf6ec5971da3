//! The window of one model: is it what it could be, do all agree on it, and do clients make Ollama change it.

use super::finding::Check;
use crate::context::Window;
use crate::context::ladder::Budget;
use crate::ollama::models::{WindowSource, full_name};
use crate::store::RecentLimit;

/// Ollama's default on machines with little video memory.
const SMALL_DEFAULT: Window = 4096;

/// A window that most chats do well with, and most machines can hold.
const COMFORTABLE: Window = 32_768;

/// Limits of one model in recent turns, and how many turns had each.
pub(super) fn limits_of(name: &str, limits: &[RecentLimit]) -> Vec<(u32, u32)> {
    let own = limits.iter().filter(|row| full_name(&row.model) == full_name(name));
    own.map(|row| (row.limit_tokens, row.turns)).collect()
}

/// What is known about one model's window.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) name: String,
    pub(super) window: Window,
    pub(super) from: WindowSource,
    /// The window without what is loaded now.
    pub(super) assumed: Window,
    pub(super) assumed_from: WindowSource,
    pub(super) trained: Option<Window>,
    pub(super) configured: Option<Window>,
    pub(super) loaded: Option<Window>,
    pub(super) limit: u32,
    pub(super) reserve: f64,
    pub(super) limits: Vec<(u32, u32)>,
}

impl Facts {
    pub(super) fn window(&self) -> Check {
        let trained = self.trained.map_or_else(|| "not told".to_owned(), |trained| trained.to_string());
        let seen = format!(
            "{} tokens, from {}; trained for {trained}; prompts may have {}",
            self.window,
            self.from.name(),
            self.limit
        );
        let is_default = matches!(self.from, WindowSource::OllamaDefault | WindowSource::Loaded);
        match self.trained {
            Some(trained) if is_default && self.window == SMALL_DEFAULT && trained > SMALL_DEFAULT => {
                let more = trained.min(COMFORTABLE);
                Check::warn(
                    "window",
                    format!("{seen}: this is Ollama's small default, and the model could take more"),
                    format!(
                        "if memory allows, start Ollama with OLLAMA_CONTEXT_LENGTH={more}, or make a model with `PARAMETER num_ctx {more}` in its Modelfile; \
                         where Ollama has more already and only does not tell, [models.\"{}\"] window = {more} says so",
                        self.name
                    ),
                )
            }
            _ => Check::ok("window", seen),
        }
    }

    /// What an operator has written down.
    pub(super) fn configured(&self) -> Option<Check> {
        let configured = self.configured?;
        let key = format!("[models.\"{}\"] window (or context.default_window)", self.name);
        if let Some(trained) = self.trained.filter(|trained| configured > *trained) {
            return Some(Check::warn(
                "configured",
                format!("{key} is {configured}, more than the {trained} it was trained for; {trained} is used"),
                format!("set it to {trained} or less, or remove it"),
            ));
        }
        let used = if self.from == WindowSource::Configured { "in use" } else { "not needed: the window is known" };
        Some(Check::ok("configured", format!("{key} is {configured}, {used}")))
    }

    /// What is loaded, beside what would be assumed without knowing.
    pub(super) fn loaded(&self) -> Option<Check> {
        let loaded = self.loaded?;
        let seen = format!("loaded with {loaded} tokens");
        let same = loaded == self.assumed || self.assumed_from == WindowSource::OllamaDefault;
        // Anything may be larger than the default: the server's own setting is not told.
        if same {
            return Some(Check::ok("loaded", seen));
        }
        let (says, mend) = match self.assumed_from {
            WindowSource::Modelfile => (
                "its Modelfile",
                "let clients send no num_ctx, or the Modelfile's: requests without one load the model again".to_owned(),
            ),
            _ => (
                "configuration",
                format!(
                    "set [models.\"{}\"] window = {loaded} if Ollama gives that to requests without num_ctx, or remove it",
                    self.name
                ),
            ),
        };
        Some(Check::warn("loaded", format!("{seen}, while {says} says {}", self.assumed), mend))
    }

    /// Whether clients ask for different windows, so that Ollama loads the model again and again.
    ///
    /// A limit also shrinks with `max_tokens`, down to half of the window; only what that cannot explain is told.
    pub(super) fn reloads(&self) -> Check {
        const NAME: &str = "reloads";
        let loaded = self.loaded.map_or_else(|| "not loaded".to_owned(), |loaded| format!("loaded with {loaded}"));
        let limits = || self.limits.iter().map(|(limit, _)| *limit);
        let (Some(least), Some(most)) = (limits().min(), limits().max()) else {
            return Check::skip(NAME, format!("{loaded}; no turns of it in the last day to compare"));
        };
        let turns: u32 = self.limits.iter().map(|(_, turns)| turns).sum();
        let range = if least == most { format!("of {most}") } else { format!("from {least} to {most}") };
        let seen = format!("{loaded}; its {turns} turns in the last day had limits {range} tokens");
        let smallest_window = f64::from(most) / (1.0 - self.reserve).max(0.5);
        let beyond_loaded = self.loaded.is_some_and(|loaded| most > Budget::new(loaded, self.reserve, None).limit);
        if f64::from(least) + 1.0 >= smallest_window / 2.0 && !beyond_loaded {
            return Check::ok(NAME, seen);
        }
        Check::warn(
            NAME,
            format!("{seen}: clients ask for different windows, and each change makes Ollama load the model again"),
            format!(
                "let all clients send the same num_ctx, or none (Open WebUI: the model's num_ctx; `ollama run`: /set parameter \
                 num_ctx); for those that send none, OLLAMA_CONTEXT_LENGTH={} sets it",
                self.window
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    fn facts() -> Facts {
        Facts {
            name: "a".to_owned(),
            window: 8192,
            from: WindowSource::Modelfile,
            assumed: 8192,
            assumed_from: WindowSource::Modelfile,
            trained: Some(131_072),
            configured: None,
            loaded: None,
            limit: 6963,
            reserve: 0.15,
            limits: Vec::new(),
        }
    }

    #[test]
    fn ollama_s_small_default_is_told_when_the_model_could_take_more() {
        let small = Facts { window: 4096, from: WindowSource::OllamaDefault, ..facts() };
        let check = small.window();
        assert_eq!(check.status, Status::Warn);
        let mend = check.mend.expect("a way");
        for way in ["OLLAMA_CONTEXT_LENGTH=32768", "PARAMETER num_ctx 32768", "[models.\"a\"] window = 32768"] {
            assert!(mend.contains(way), "{mend}");
        }
        assert_eq!(Facts { trained: Some(4096), ..small.clone() }.window().status, Status::Ok);
        assert_eq!(Facts { from: WindowSource::Modelfile, ..small }.window().status, Status::Ok);
        assert_eq!(facts().window().status, Status::Ok);
    }

    #[test]
    fn a_configured_window_beyond_the_trained_one_is_told() {
        let with =
            |configured| Facts { configured, trained: Some(8192), ..facts() }.configured().map(|check| check.status);
        assert_eq!([with(None), with(Some(8192)), with(Some(16384))], [None, Some(Status::Ok), Some(Status::Warn)]);
    }

    #[test]
    fn a_model_loaded_with_another_window_than_it_should_have_is_told() {
        let with = |loaded, assumed_from| Facts { loaded, assumed_from, ..facts() }.loaded().map(|check| check.status);
        assert_eq!(with(None, WindowSource::Modelfile), None);
        assert_eq!(with(Some(8192), WindowSource::Modelfile), Some(Status::Ok));
        assert_eq!(with(Some(2048), WindowSource::Modelfile), Some(Status::Warn));
        assert_eq!(with(Some(2048), WindowSource::Configured), Some(Status::Warn));
        assert_eq!(with(Some(32_768), WindowSource::OllamaDefault), Some(Status::Ok));
    }

    #[test]
    fn only_limits_that_long_answers_cannot_explain_mean_different_windows() {
        let with =
            |limits: &[(u32, u32)], loaded| Facts { limits: limits.to_vec(), loaded, ..facts() }.reloads().status;
        assert_eq!(with(&[], None), Status::Skip);
        assert_eq!(with(&[(6963, 9)], None), Status::Ok);
        // Half of 8192 is the least that max_tokens can leave of it.
        assert_eq!(with(&[(4096, 1), (6963, 9)], None), Status::Ok);
        assert_eq!(with(&[(3481, 1), (6963, 9)], None), Status::Warn);
        assert_eq!(with(&[(6000, 1), (6963, 9)], Some(8192)), Status::Ok);
        assert_eq!(with(&[(6963, 9)], Some(7000)), Status::Warn);
    }
}
