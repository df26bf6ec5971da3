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

use super::front::Front;
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
    /// This message leaves with another text.
    Rewrite(usize, String),
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

impl Plan {
    /// Everything leaves as it came.
    pub fn identity(messages: usize) -> Self {
        Self { edits: vec![Edit::Keep(0..messages)] }
    }

    pub fn is_identity(&self) -> bool {
        self.edits.iter().all(|edit| matches!(edit, Edit::Keep(_)))
    }

    /// The messages before `covered` stay behind: of them only system messages and the user's last few
    /// leave, behind the notes. `recalled` goes right before the user's newest message.
    pub fn fronted(kinds: &[Kind], covered: usize, front: &Front, recalled: Option<Note>) -> Self {
        let covered = covered.min(kinds.len());
        let first_kept_user = nth_user_from_end(&kinds[..covered], front.users_kept);
        let newest = current_turn(kinds);
        let mut edits = Builder::default();
        let mut notes = Some(front.notes());
        let mut recalled = recalled;
        for (index, kind) in kinds.iter().enumerate() {
            let leaves = index >= covered || *kind == Kind::System || (*kind == Kind::User && index >= first_kept_user);
            // Notes go where the first message after them is, but behind the system prompt.
            if leaves && (index >= covered || *kind != Kind::System) {
                edits.insert(notes.take().into_iter().flatten(), index);
                edits.insert(recalled.take_if(|_| index >= newest), index);
            }
            if leaves { edits.keep(index) } else { edits.drop(index) }
        }
        edits.insert(notes.into_iter().flatten().chain(recalled), kinds.len());
        Self { edits: edits.0 }
    }

    /// Every message leaves, with something recalled right before the user's newest one.
    pub fn with_recalled(kinds: &[Kind], recalled: Note) -> Self {
        let mut edits = Builder::default();
        let newest = current_turn(kinds);
        (0..newest).for_each(|index| edits.keep(index));
        edits.insert([recalled], newest);
        (newest..kinds.len()).for_each(|index| edits.keep(index));
        Self { edits: edits.0 }
    }

    /// The same, with other texts in place of some messages' own.
    pub fn rewritten(self, texts: &[(usize, String)]) -> Self {
        if texts.is_empty() {
            return self;
        }
        let mut edits = Builder::default();
        for edit in self.edits {
            match edit {
                Edit::Keep(range) => {
                    for index in range {
                        match texts.iter().find(|(rewritten, _)| *rewritten == index) {
                            Some((_, text)) => edits.0.push(Edit::Rewrite(index, text.clone())),
                            None => edits.keep(index),
                        }
                    }
                }
                other @ (Edit::Replace(..) | Edit::Rewrite(..)) => edits.0.push(other),
            }
        }
        Self { edits: edits.0 }
    }

    /// How many messages leave before the one at `cut`, notes among them.
    pub fn leaving_before(&self, cut: usize) -> usize {
        let edits = self.edits.iter().take_while(|edit| match edit {
            Edit::Keep(range) | Edit::Replace(range, _) => range.start < cut,
            Edit::Rewrite(index, _) => *index < cut,
        });
        let leaving = edits.map(|edit| match edit {
            Edit::Keep(range) => range.end.min(cut) - range.start,
            Edit::Replace(_, note) => usize::from(note.is_some()),
            Edit::Rewrite(..) => 1,
        });
        leaving.sum()
    }

    /// The indices of the messages that leave.
    pub fn kept(&self) -> impl Iterator<Item = usize> + '_ {
        self.edits.iter().flat_map(|edit| match edit {
            Edit::Keep(range) => range.clone(),
            Edit::Rewrite(index, _) => *index..index + 1,
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

/// Where the history may be cut after `start`: where a turn begins, or inside the current turn where an
/// exchange begins; never between a call and its result, never behind the exchange being answered.
pub fn cuts(kinds: &[Kind], start: usize) -> Vec<usize> {
    let (turn, exchange) = (current_turn(kinds), current_exchange(kinds));
    let begins = |index: usize| match kinds[index] {
        Kind::User => index <= turn,
        Kind::Assistant => index > turn && kinds[index - 1] == Kind::ToolResult,
        Kind::System | Kind::ToolResult | Kind::Other => false,
    };
    (start + 1..=exchange.min(kinds.len().saturating_sub(1)))
        .filter(|&index| begins(index) && whole_from(kinds, index) == index)
        .collect()
}

/// The first cut after `start` that leaves no more than `target`, or the last one there is. `fixed` is
/// everything that leaves besides the messages from `start` on: system prompt, notes, what the template adds.
pub fn cut_for(kinds: &[Kind], sizes: &[Tokens], start: usize, fixed: Tokens, target: Tokens) -> Option<usize> {
    let left = |cut: usize| {
        let must_stay = if users_that_must_stay(kinds, cut) > 0 { sizes[current_turn(kinds)] } else { 0 };
        let kept =
            (cut..kinds.len()).filter(|&index| kinds[index] != Kind::System).map(|index| u64::from(sizes[index]));
        u64::from(fixed) + u64::from(must_stay) + kept.sum::<u64>()
    };
    let cuts = cuts(kinds, start);
    // What is left only shrinks from cut to cut, but for the message that must stay.
    cuts.iter().copied().find(|&cut| left(cut) <= u64::from(target)).or(cuts.last().copied())
}

/// The lines that begin every rollover's summary, then the gist.
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

    fn insert(&mut self, notes: impl IntoIterator<Item = Note>, at: usize) {
        self.0.extend(notes.into_iter().map(|note| Edit::Replace(at..at, Some(note))));
    }
}
