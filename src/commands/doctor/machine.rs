//! The machine around it: clocks that agree, and enough file descriptors.

use super::finding::Check;
use crate::commands::data::when;

/// 2024-01-01: a clock before that was never set.
const FIRST_SANE_MS: i64 = 1_704_067_200_000;

/// Clocks may differ by this much.
const APART_MS: i64 = 60_000;

/// Each chat takes one descriptor on either side, and the database some.
const FEW_FILES: u64 = 1024;

/// What the clock says, when the newest turn was, and what the upstream's said at a moment of ours.
pub(super) fn clock(now: i64, newest_turn_at: Option<i64>, upstream: Option<(i64, i64)>) -> Vec<Check> {
    vec![own_clock(now, newest_turn_at), upstream_clock(upstream)]
}

fn own_clock(now: i64, newest_turn_at: Option<i64>) -> Check {
    const NAME: &str = "clock";
    let mend = "set the clock: `timedatectl set-ntp true`";
    let seen = format!("{} UTC", when(now));
    if now < FIRST_SANE_MS {
        return Check::fail(NAME, format!("{seen}: it was never set"), mend);
    }
    match newest_turn_at {
        Some(newest) if newest > now + APART_MS => {
            Check::warn(NAME, format!("{seen}, before the newest stored turn ({} UTC)", when(newest)), mend)
        }
        _ => Check::ok(NAME, seen),
    }
}

fn upstream_clock(upstream: Option<(i64, i64)>) -> Check {
    const NAME: &str = "upstream-clock";
    let Some((theirs, ours)) = upstream else { return Check::skip(NAME, "the upstream tells no time") };
    let apart = theirs.abs_diff(ours);
    // A date has whole seconds only.
    if apart <= APART_MS.unsigned_abs() {
        return Check::ok(NAME, "agrees with ours");
    }
    Check::warn(
        NAME,
        format!("{} s {} ours", apart / 1000, if theirs > ours { "ahead of" } else { "behind" }),
        "set both clocks: `timedatectl set-ntp true` on each machine",
    )
}

/// How many files a process may have open, as this one was started.
pub(super) fn open_files() -> Check {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    descriptors(limit.current)
}

fn descriptors(limit: Option<u64>) -> Check {
    const NAME: &str = "open-files";
    match limit {
        None => Check::ok(NAME, "no limit"),
        Some(limit) if limit >= FEW_FILES => Check::ok(NAME, format!("{limit} allowed in this shell")),
        Some(limit) => Check::warn(
            NAME,
            format!("only {limit} allowed in this shell: each chat takes two"),
            "`ulimit -n 4096` before `loadline serve`, or LimitNOFILE=4096 in its systemd unit",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn a_clock_before_the_newest_turn_is_told_and_one_never_set_is_wrong() {
        let now = FIRST_SANE_MS + 1;
        assert_eq!(own_clock(now, None).status, Status::Ok);
        assert_eq!(own_clock(now, Some(now + APART_MS)).status, Status::Ok);
        assert_eq!(own_clock(now, Some(now + APART_MS + 1)).status, Status::Warn);
        assert_eq!(own_clock(0, None).status, Status::Fail);
    }

    #[test]
    fn clocks_more_than_a_minute_apart_are_told_either_way() {
        let judge = |theirs| upstream_clock(Some((theirs, 1_000_000))).status;
        assert_eq!([judge(1_060_000), judge(1_060_001), judge(939_999)], [Status::Ok, Status::Warn, Status::Warn]);
        assert_eq!(upstream_clock(None).status, Status::Skip);
    }

    #[test]
    fn few_file_descriptors_are_told() {
        assert_eq!(
            [None, Some(1024), Some(256)].map(|limit| descriptors(limit).status),
            [Status::Ok, Status::Ok, Status::Warn]
        );
    }
}
