//! The two presets of the intake and their limits, as they stand in the configuration.
//!
//! The numbers are soft limits in characters and messages. What happens beyond them is the business of the presets'
//! own files; nothing is checked or cut here.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which opinion about a conversation the intake follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Short requests, long answers: what an assistant reasoned is kept.
    ReasoningFirst,
    /// Long requests, short answers: what the user asked for is kept.
    #[default]
    RequirementsFirst,
}

/// A preset was named that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such preset, must be reasoning-first or requirements-first")]
pub struct UnknownPreset;

impl Preset {
    pub const ALL: [Self; 2] = [Self::ReasoningFirst, Self::RequirementsFirst];

    pub fn name(self) -> &'static str {
        match self {
            Self::ReasoningFirst => "reasoning-first",
            Self::RequirementsFirst => "requirements-first",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name)
    }
}

impl FromStr for Preset {
    type Err = UnknownPreset;

    fn from_str(name: &str) -> Result<Self, UnknownPreset> {
        Self::parse(name).ok_or(UnknownPreset)
    }
}

/// Limits of `reasoning-first`. A message of more than twice its limit is refused, not cut.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReasoningLimits {
    pub max_messages: usize,
    pub user_chars: usize,
    pub assistant_chars: usize,
    pub total_chars: usize,
    /// So many of the newest messages stay, however large they are together.
    pub min_keep: usize,
}

impl Default for ReasoningLimits {
    fn default() -> Self {
        Self { max_messages: 50, user_chars: 150, assistant_chars: 8192, total_chars: 15360, min_keep: 5 }
    }
}

/// Limits of `requirements-first`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RequirementsLimits {
    pub max_messages: usize,
    /// A longer message is cut to a hundred characters less, which leaves room for the note about the cut.
    pub user_chars: usize,
    pub assistant_chars: usize,
}

impl Default for RequirementsLimits {
    fn default() -> Self {
        Self { max_messages: 50, user_chars: 8000, assistant_chars: 150 }
    }
}

/// The limits of both presets, as they are configured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub reasoning_first: ReasoningLimits,
    pub requirements_first: RequirementsLimits,
}

/// The limits of one preset side by side; `None` where the preset has no such limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PresetLimits {
    pub max_messages: usize,
    pub user_chars: usize,
    pub assistant_chars: usize,
    pub total_chars: Option<usize>,
    pub min_keep: Option<usize>,
}

impl Limits {
    pub fn of(&self, preset: Preset) -> PresetLimits {
        match preset {
            Preset::ReasoningFirst => {
                let ReasoningLimits { max_messages, user_chars, assistant_chars, total_chars, min_keep } =
                    self.reasoning_first;
                let (total_chars, min_keep) = (Some(total_chars), Some(min_keep));
                PresetLimits { max_messages, user_chars, assistant_chars, total_chars, min_keep }
            }
            Preset::RequirementsFirst => {
                let RequirementsLimits { max_messages, user_chars, assistant_chars } = self.requirements_first;
                PresetLimits { max_messages, user_chars, assistant_chars, total_chars: None, min_keep: None }
            }
        }
    }
}
