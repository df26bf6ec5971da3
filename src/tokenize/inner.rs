//! Texts within a message that is rendered by itself: the arguments of tool calls, and what is thought and said beside them.
//!
//! A gap of a template is learnt with them cut out of it (`template.rs`). Here is only how one is recognised in what was
//! rendered; where there is any doubt, it is not.

/// A text within a message that is rendered by itself.
#[derive(Debug, Clone)]
pub struct Inner {
    pub as_written: String,
    /// Arguments with their keys in order, if they were not.
    pub sorted: Option<String>,
    /// Whether some templates leave it out, as they do with thinking.
    pub optional: bool,
}

/// Shorter texts are found anywhere: they are part of the class.
pub const SHORTEST_INNER: usize = 6;

/// How an inner text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    AsWritten,
    Sorted,
}

impl Inner {
    /// How it is written in a text; `Some(None)`: it is left out. `None` if it is not certain.
    pub(super) fn spelling_in(&self, text: &str, all: &[&Self]) -> Option<Option<Spelling>> {
        let places = |inner: &str| memchr::memmem::find_iter(text.as_bytes(), inner).count();
        // Two calls may have the same arguments; then they are there twice.
        let alike = all.iter().filter(|other| other.as_written == self.as_written).count();
        match (places(&self.as_written), self.sorted.as_deref().map_or(0, places)) {
            (written, 0) if written == alike => Some(Some(Spelling::AsWritten)),
            (0, sorted) if sorted == alike => Some(Some(Spelling::Sorted)),
            (0, 0) if self.optional && places(self.as_written.trim()) == 0 => Some(None),
            _ => None,
        }
    }

    pub(super) fn spelt(&self, spelling: Spelling) -> &str {
        match spelling {
            Spelling::AsWritten => &self.as_written,
            Spelling::Sorted => self.sorted.as_deref().unwrap_or(&self.as_written),
        }
    }
}
