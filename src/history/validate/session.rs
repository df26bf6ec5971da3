//! What is remembered from line to line: ids, calls, parents and time.
//!
//! Only 128-bit digests of ids are kept, never the strings, so a long file costs
//! some tens of bytes a message. Ids are scoped by their session. A parent is
//! looked for in the whole file, because a forked session may point into the one
//! it came from.

use std::collections::HashMap;
use std::collections::HashSet;
use std::hash::Hash;

use foldhash::fast::RandomState;
use jiff::{SignedDuration, Timestamp};

use super::code::Code;
use super::findings::{Findings, Shown};

/// Children that wait for their parent to appear.
const MAX_PENDING_PARENTS: usize = 65_536;
const LARGE_GAP: SignedDuration = SignedDuration::from_hours(24);
const FAR_FUTURE: SignedDuration = SignedDuration::from_hours(24);
/// Five years of 365.25 days.
const LONG_AGO: SignedDuration = SignedDuration::from_hours(5 * 8766);
/// Session ids and provider names are kept up to this length.
const KEPT_NAME_BYTES: usize = 1024;
/// What the digest takes in one step, and so the length of a cheap id.
const BLOCK_BYTES: usize = 64;
const SCOPE_BYTES: usize = size_of::<u32>();
/// The scope of ids that are looked for in the whole file.
const WHOLE_FILE: u32 = u32::MAX;

type Digest = [u8; 16];

#[derive(Debug, Default)]
pub(super) struct Session {
    /// The first session id and provider of the file.
    pub(super) session_id: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) earliest: Option<Timestamp>,
    pub(super) latest: Option<Timestamp>,
    previous: Option<Timestamp>,
    sessions: HashMap<Digest, u32, RandomState>,
    /// The session of the present line, and its id.
    scope: u32,
    scope_name: String,
    mixed_sessions: bool,
    mixed_providers: bool,
    /// Every uuid, with the session that had it first.
    uuids: HashMap<Digest, u32, RandomState>,
    /// Uuids that came again in another session.
    uuids_elsewhere: HashSet<Digest, RandomState>,
    /// Every call, and whether it has its result.
    calls: HashMap<Digest, bool, RandomState>,
    pending: HashMap<Digest, Vec<usize>, RandomState>,
    pending_count: usize,
}

impl Session {
    /// Makes this session the scope of what follows. A line without a usable
    /// session id is not passed here, and so counts to the session before it.
    pub(super) fn enter(&mut self, session_id: &str, findings: &mut Findings) {
        if self.scope_name == session_id {
            return;
        }
        let next = u32::try_from(self.sessions.len()).unwrap_or(WHOLE_FILE - 1);
        self.scope = *self.sessions.entry(digest(WHOLE_FILE, session_id)).or_insert(next);
        // An overlong id is looked up again on each line; it is not stored.
        self.scope_name.clear();
        if session_id.len() <= KEPT_NAME_BYTES {
            self.scope_name.push_str(session_id);
        }
        match &self.session_id {
            None => self.session_id = Some(kept_name(session_id).to_owned()),
            Some(first) if !self.mixed_sessions && self.scope != 0 => {
                self.mixed_sessions = true;
                let (first, other) = (Shown(first), Shown(session_id));
                let message = format_args!("file holds more than one session: \"{first}\", then \"{other}\"");
                findings.add_in(Code::MixedSessions, "sessionId", message);
            }
            Some(_) => {}
        }
    }

    pub(super) fn provider(&mut self, provider: &str, findings: &mut Findings) {
        match &self.provider {
            None => self.provider = Some(kept_name(provider).to_owned()),
            Some(first) if !self.mixed_providers && *first != kept_name(provider) => {
                self.mixed_providers = true;
                let (first, other) = (Shown(first), Shown(provider));
                let message = format_args!("file holds more than one provider: \"{first}\", then \"{other}\"");
                findings.add_in(Code::MixedProviders, "provider", message);
            }
            Some(_) => {}
        }
    }

    pub(super) fn time(&mut self, time: Timestamp, now: Timestamp, resumed: bool, findings: &mut Findings) {
        let mut warn = |code, message: &str| findings.add_in(code, "timestamp", message);
        let age = now.duration_since(time);
        if age < -FAR_FUTURE {
            warn(Code::TimestampInFuture, "timestamp is more than 1 day in the future");
        }
        if age > LONG_AGO {
            warn(Code::TimestampTooOld, "timestamp is more than 5 years in the past");
        }
        if let Some(previous) = self.previous {
            let gap = time.duration_since(previous);
            if gap.is_negative() {
                warn(Code::TimestampOutOfOrder, "timestamp is earlier than that of the message before");
            } else if gap > LARGE_GAP && !resumed {
                let hours = gap.as_hours();
                warn(Code::LargeTimeGap, &format!("{hours} hours have passed since the message before"));
            }
        }
        self.previous = Some(time);
        self.earliest = Some(self.earliest.map_or(time, |earliest| earliest.min(time)));
        self.latest = Some(self.latest.map_or(time, |latest| latest.max(time)));
    }

    pub(super) fn uuid(&mut self, uuid: &str, findings: &mut Findings) {
        let key = digest(WHOLE_FILE, uuid);
        let repeated = match self.uuids.get(&key) {
            None => {
                self.uuids.insert(key, self.scope);
                false
            }
            Some(scope) if *scope == self.scope => true,
            Some(_) => !self.uuids_elsewhere.insert(digest(self.scope, uuid)),
        };
        if repeated {
            let message = format_args!("uuid \"{}\" is used by an earlier message", Shown(uuid));
            findings.add_in(Code::DuplicateUuid, "uuid", message);
        }
        let line = findings.line();
        for child in self.pending.remove(&key).unwrap_or_default() {
            self.pending_count -= 1;
            let message = format_args!("parentUuid points to a later message, on line {line}");
            findings.add_on(child, Code::ParentAfterChild, "parentUuid", message);
        }
    }

    /// To be called before `uuid` of the same line.
    pub(super) fn parent(&mut self, parent: &str, uuid: Option<&str>, findings: &mut Findings) {
        if uuid == Some(parent) {
            findings.add_in(Code::OwnParent, "parentUuid", "parentUuid is the uuid of the message itself");
            return;
        }
        let key = digest(WHOLE_FILE, parent);
        if self.uuids.contains_key(&key) {
            return;
        }
        if self.pending_count < MAX_PENDING_PARENTS {
            self.pending.entry(key).or_default().push(findings.line());
            self.pending_count += 1;
        } else {
            findings.add_in(Code::ParentNotFound, "parentUuid", "parentUuid points to no message up to this line");
        }
    }

    pub(super) fn call(&mut self, id: &str, path: impl std::fmt::Display, findings: &mut Findings) {
        if !insert_new(&mut self.calls, digest(self.scope, id)) {
            let message = format_args!("tool_use id \"{}\" is used by an earlier call", Shown(id));
            findings.add_in(Code::DuplicateToolUseId, path, message);
        }
    }

    pub(super) fn result(&mut self, id: &str, path: impl std::fmt::Display, findings: &mut Findings) {
        let shown = Shown(id);
        match self.calls.get_mut(&digest(self.scope, id)) {
            None => {
                let message = format_args!("tool_result references tool_use_id \"{shown}\" which doesn't exist");
                findings.add_in(Code::OrphanToolResult, path, message);
            }
            Some(answered) if *answered => {
                let message = format_args!("tool_use_id \"{shown}\" already has a tool_result");
                findings.add_in(Code::DuplicateToolResult, path, message);
            }
            Some(answered) => *answered = true,
        }
    }

    /// Reports the parents that never came.
    pub(super) fn finish(&mut self, findings: &mut Findings) {
        let mut children: Vec<usize> = std::mem::take(&mut self.pending).into_values().flatten().collect();
        children.sort_unstable();
        for child in children {
            let message = "parentUuid points to no message in this file";
            findings.add_on(child, Code::ParentNotFound, "parentUuid", message);
        }
    }
}

fn insert_new<K: Eq + Hash>(map: &mut HashMap<K, bool, RandomState>, key: K) -> bool {
    let mut is_new = false;
    map.entry(key).or_insert_with(|| {
        is_new = true;
        false
    });
    is_new
}

fn kept_name(name: &str) -> &str {
    name.get(..name.floor_char_boundary(KEPT_NAME_BYTES)).unwrap_or(name)
}

fn digest(scope: u32, id: &str) -> Digest {
    let mut block = [0; BLOCK_BYTES];
    let length_bytes = SCOPE_BYTES + id.len();
    let hash = match block.split_at_mut(SCOPE_BYTES) {
        (front, back) if id.len() <= back.len() => {
            front.copy_from_slice(&scope.to_le_bytes());
            back.iter_mut().zip(id.bytes()).for_each(|(to, from)| *to = from);
            blake3::hash(block.get(..length_bytes).unwrap_or_default())
        }
        _ => blake3::Hasher::new().update(&scope.to_le_bytes()).update(id.as_bytes()).finalize(),
    };
    hash.as_bytes().first_chunk().copied().unwrap_or_default()
}
