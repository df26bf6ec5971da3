//! What a check comes to: a name that stays the same, a status, what was seen, and how to mend it.
//!
//! Whatever was seen may come from elsewhere, so that a terminal must not obey it: it is cleaned here, once.

use serde_json::{Value, json};

use crate::commands::data::shown;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    /// Nothing is wrong yet, but it may bite.
    Warn,
    Fail,
    /// It was not looked at; what was seen says why.
    Skip,
}

impl Status {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Skip => "skip",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) status: Status,
    pub(super) seen: String,
    /// There for each warning and failure, and for nothing else.
    pub(super) mend: Option<String>,
}

impl Check {
    pub(super) fn ok(name: &'static str, seen: impl AsRef<str>) -> Self {
        Self { name, status: Status::Ok, seen: shown(seen.as_ref()), mend: None }
    }

    pub(super) fn skip(name: &'static str, seen: impl AsRef<str>) -> Self {
        Self { status: Status::Skip, ..Self::ok(name, seen) }
    }

    pub(super) fn warn(name: &'static str, seen: impl AsRef<str>, mend: impl AsRef<str>) -> Self {
        Self { status: Status::Warn, mend: Some(shown(mend.as_ref())), ..Self::ok(name, seen) }
    }

    pub(super) fn fail(name: &'static str, seen: impl AsRef<str>, mend: impl AsRef<str>) -> Self {
        Self { status: Status::Fail, ..Self::warn(name, seen, mend) }
    }
}

/// Checks that belong together.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) title: String,
    pub(super) checks: Vec<Check>,
}

impl Group {
    pub(super) fn new(title: impl AsRef<str>, checks: Vec<Check>) -> Self {
        Self { title: shown(title.as_ref()), checks }
    }
}

/// Everything that was looked at.
#[derive(Debug, Default)]
pub(super) struct Report(pub(super) Vec<Group>);

impl Report {
    pub(super) fn count(&self, status: Status) -> usize {
        self.0.iter().flat_map(|group| &group.checks).filter(|check| check.status == status).count()
    }

    pub(super) fn is_well(&self) -> bool {
        self.count(Status::Fail) == 0
    }

    pub(super) fn json(&self) -> Value {
        let of_group = |group: &Group| {
            let one = |check: &Check| {
                json!({
                    "group": group.title, "name": check.name, "status": check.status.name(),
                    "seen": check.seen, "mend": check.mend,
                })
            };
            group.checks.iter().map(one).collect::<Vec<_>>()
        };
        let checks: Vec<Value> = self.0.iter().flat_map(of_group).collect();
        json!({ "ok": self.is_well(), "checks": checks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_does_not_make_a_report_ill_and_a_failure_does() {
        let group = |check| Report(vec![Group::new("a", vec![check])]);
        assert!(group(Check::warn("x", "seen", "mend")).is_well());
        let ill = group(Check::fail("x", "seen", "mend"));
        let check = json!({ "group": "a", "name": "x", "status": "fail", "seen": "seen", "mend": "mend" });
        assert_eq!(ill.json(), json!({ "ok": false, "checks": [check] }));
    }

    #[test]
    fn what_comes_from_elsewhere_cannot_steer_a_terminal() {
        let check = Check::warn("x", "a\u{1b}[2Jb", "c\u{7}");
        assert_eq!((check.seen.as_str(), check.mend.as_deref()), ("a\u{fffd}[2Jb", Some("c\u{fffd}")));
    }
}
