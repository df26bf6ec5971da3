//! What leaves: a plan of indexed edits over the messages a client sent.
//!
//! The core says *which* of the dialect's messages stay and what stands in for the rest; the dialect
//! applies that to its own JSON. A plan names every message exactly once, in order, so nothing can get
//! lost between the two.
//!
//! What the rollover keeps is decided here: system prompt, a note that says what happened, the user's
//! last messages (ten with the current one), and the current turn. A tool call stays with its result
//! because cuts are made only where a turn or an exchange begins: what is after a cut stays whole, and
//! of what is before it no call and no result is kept. When a turn of many tool calls is too large
//! itself, its cut is before the exchange that is being answered; the user's message always stays.

use std::ops::Range;

use super::ladder::Tokens;

/// How many of the user's messages survive a rollover, the current one included.
pub const USER_MESSAGES_KEPT: usize = 10;

/// The edits that turn what arrived into what leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub edits: Vec<Edit>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// These messages leave as they came.
    Keep(Range<usize>),
    /// These messages do not leave; the note, if any, stands in their place.
    Replace(Range<usize>, Option<Note>),
}

/// A message of ours in place of what was left out. It is data about the conversation, so it is never
/// given the system role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub text: String,
}

/// What the planner knows of one of the dialect's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    System,
    /// The user's own words.
    User,
    Assistant,
    /// The result of a tool call, in whatever role the dialect writes it.
    ToolResult,
    Other,
}

/// What an earlier rollover left of a conversation. Later turns are built on the same front, so that
/// the upstream's prefix cache holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fold {
    /// How many of the user's messages before the fold still leave verbatim.
    pub users_kept: usize,
    /// The limit that made it necessary; under a larger one there is no need for it.
    pub limit: Tokens,
    pub note: Note,
    pub snapshot: String,
}

impl Plan {
    /// Everything leaves as it came.
    pub fn identity(messages: usize) -> Self {
        Self { edits: vec![Edit::Keep(0..messages)] }
    }

    pub fn is_identity(&self) -> bool {
        self.edits.iter().all(|edit| matches!(edit, Edit::Keep(_)))
    }

    /// The messages before `covered` are folded: of them only system messages and the user's last few
    /// stay, behind the note.
    pub fn folded(kinds: &[Kind], covered: usize, fold: &Fold) -> Self {
        let covered = covered.min(kinds.len());
        let first_kept_user = nth_user_from_end(&kinds[..covered], fold.users_kept);
        let mut edits = Builder::default();
        let mut note = Some(&fold.note);
        for (index, kind) in kinds[..covered].iter().enumerate() {
            match kind {
                Kind::System => edits.keep(index),
                Kind::User if index >= first_kept_user => {
                    edits.insert(note.take(), index);
                    edits.keep(index);
                }
                Kind::User | Kind::Assistant | Kind::ToolResult | Kind::Other => edits.drop(index),
            }
        }
        edits.insert(note, covered);
        for index in covered..kinds.len() {
            edits.keep(index);
        }
        Self { edits: edits.0 }
    }

    /// The indices of the messages that leave as they came.
    pub fn kept(&self) -> impl Iterator<Item = usize> + '_ {
        self.edits.iter().flat_map(|edit| match edit {
            Edit::Keep(range) => range.clone(),
            Edit::Replace(..) => 0..0,
        })
    }
}

/// Where the current turn begins: at the user's last message. Tool calls and results after it belong to it.
pub fn current_turn(kinds: &[Kind]) -> usize {
    kinds
        .iter()
        .rposition(|kind| *kind == Kind::User)
        .unwrap_or_else(|| kinds.iter().position(|kind| *kind != Kind::System).unwrap_or(kinds.len()))
}

/// Where the exchange begins that is being answered: the tool calls whose results are the last messages.
/// Without such results it is where the current turn begins.
pub fn current_exchange(kinds: &[Kind]) -> usize {
    let turn = current_turn(kinds);
    let results = kinds.iter().rev().take_while(|kind| **kind == Kind::ToolResult).count();
    if results == 0 {
        return turn;
    }
    let before_results = &kinds[..kinds.len() - results];
    let calls = before_results.iter().rev().take_while(|kind| **kind == Kind::Assistant).count();
    (before_results.len() - calls).max(turn)
}

/// The nearest place at or before `cut` from which no result is without its call.
pub fn whole_from(kinds: &[Kind], mut cut: usize) -> usize {
    let begins_with_a_result = |from: usize| {
        let exchange = kinds[from..].iter().find(|kind| matches!(kind, Kind::Assistant | Kind::ToolResult));
        exchange == Some(&Kind::ToolResult)
    };
    while begins_with_a_result(cut) {
        let Some(call) = kinds[..cut].iter().rposition(|kind| *kind == Kind::Assistant) else { break };
        let calls = kinds[..=call].iter().rev().take_while(|kind| **kind == Kind::Assistant).count();
        cut = call + 1 - calls;
    }
    cut
}

/// How many of the user's messages before `covered` have to stay: the current one, if it is before.
pub fn users_that_must_stay(kinds: &[Kind], covered: usize) -> usize {
    usize::from(covered > current_turn(kinds) && kinds[..covered].contains(&Kind::User))
}

/// How many of the user's messages before `covered` fit beside what has to stay.
///
/// `sizes` are the tokens of each message; the note's own are in `fixed`. Newest first, never more
/// than ten with the current one.
pub fn users_that_fit(kinds: &[Kind], sizes: &[Tokens], covered: usize, fixed: Tokens, limit: Tokens) -> usize {
    let must_stay = users_that_must_stay(kinds, covered);
    let pinned = |index: &usize| *index >= covered || kinds[*index] == Kind::System;
    let mut total =
        u64::from(fixed) + (0..kinds.len()).filter(pinned).map(|index| u64::from(sizes[index])).sum::<u64>();
    let most = USER_MESSAGES_KEPT - 1 + must_stay;
    let mut fitting = 0;
    for index in (0..covered).rev().filter(|index| kinds[*index] == Kind::User).take(most) {
        total += u64::from(sizes[index]);
        if total > u64::from(limit) {
            break;
        }
        fitting += 1;
    }
    fitting.max(must_stay)
}

/// The six lines that begin every rollover's summary.
pub fn rollover_note(snapshot: &str, messages: usize, checkpoints: usize, tokens_before: Tokens) -> Note {
    Note {
        text: format!(
            "[EMERGENCY ROLLOVER - Context exceeded limit]\n\
             Snapshot ID: {snapshot}\n\
             Previous conversation: {messages} messages\n\
             Checkpoints: {checkpoints}\n\
             Total tokens before rollover: {tokens_before}\n\
             \n\
             Key context preserved in snapshot. Continuing conversation with fresh context."
        ),
    }
}

fn nth_user_from_end(kinds: &[Kind], count: usize) -> usize {
    let users = kinds.iter().enumerate().rev().filter(|(_, kind)| **kind == Kind::User);
    users.take(count).last().map_or(kinds.len(), |(index, _)| index)
}

/// Collects edits and joins neighbours.
#[derive(Default)]
struct Builder(Vec<Edit>);

impl Builder {
    fn keep(&mut self, index: usize) {
        match self.0.last_mut() {
            Some(Edit::Keep(range)) if range.end == index => range.end = index + 1,
            _ => self.0.push(Edit::Keep(index..index + 1)),
        }
    }

    fn drop(&mut self, index: usize) {
        match self.0.last_mut() {
            Some(Edit::Replace(range, None)) if range.end == index => range.end = index + 1,
            _ => self.0.push(Edit::Replace(index..index + 1, None)),
        }
    }

    fn insert(&mut self, note: Option<&Note>, at: usize) {
        if let Some(note) = note {
            self.0.push(Edit::Replace(at..at, Some(note.clone())));
        }
    }
}
