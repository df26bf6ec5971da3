//! The server that is running on this data directory, if one is: what it says about itself.

use super::finding::Check;
use super::place::{Health, Place, Who, who};
use crate::config::Mode;

/// Asks the one that has announced itself in the directory.
pub(super) async fn look(announced: Option<&str>, upstream_url: &str, mode: Mode) -> Vec<Check> {
    let Some(address) = announced else { return vec![not_running()] };
    match who(address).await {
        Who::Loadline(health) => running(address, &health, upstream_url, mode),
        // Whoever has announced itself has the directory for as long as it lives.
        Who::Nobody | Who::Ollama | Who::Other => vec![Check::fail(
            "running",
            format!("a loadline has this directory, and {address} does not answer as one"),
            "restart `loadline serve`; if it hangs, its log says on what",
        )],
    }
}

fn not_running() -> Check {
    Check::skip("running", "no loadline serves from this data directory; `loadline serve` starts one")
}

fn running(address: &str, health: &Health, upstream_url: &str, mode: Mode) -> Vec<Check> {
    vec![
        version(address, health),
        forwards(health, upstream_url),
        in_mode(health, mode),
        stores(health),
        counts(health),
        cut(health),
    ]
}

fn in_mode(health: &Health, mode: Mode) -> Check {
    let seen = format!("it runs in mode {}", health.mode);
    if health.mode == mode.name() {
        return Check::ok("runs in mode", seen);
    }
    Check::warn(
        "runs in mode",
        format!("{seen}, and the configuration looked at here says {}", mode.name()),
        "restart `loadline serve` without --observe, or set context.mode as it is meant to be",
    )
}

fn version(address: &str, health: &Health) -> Check {
    let ours = env!("CARGO_PKG_VERSION");
    let seen = format!("version {} at {address}", health.version);
    if health.version == ours {
        return Check::ok("running", seen);
    }
    Check::warn(
        "running",
        format!("{seen}, and this is {ours}"),
        "restart `loadline serve` with the version you have installed",
    )
}

fn forwards(health: &Health, upstream_url: &str) -> Check {
    let same = match (Place::of_url(&health.upstream), Place::of_url(upstream_url)) {
        (Some(theirs), Some(ours)) => theirs.is_same(&ours),
        _ => false,
    };
    let seen = format!("it forwards to {}", health.upstream);
    if same {
        return Check::ok("forwards", seen);
    }
    Check::warn(
        "forwards",
        format!("{seen}, and another upstream was looked at here"),
        "say --upstream (and --config) here as `loadline serve` was started with, or restart it to take the configuration",
    )
}

fn stores(health: &Health) -> Check {
    if health.store_healthy {
        return Check::ok("stores", "its last commit went well");
    }
    Check::fail(
        "stores",
        "its last commit failed: new turns are not stored",
        "see its log and the disk (`df`, `dmesg`), then restart `loadline serve`",
    )
}

fn counts(health: &Health) -> Check {
    let seen =
        format!("{} of {} counts that it compared with Ollama's differed", health.exact_mismatches, health.compared);
    if health.exact_mismatches == 0 {
        return Check::ok("counts", seen);
    }
    Check::warn(
        "counts",
        seen,
        "its log names the model; it counts with a margin since the second. Updating Ollama or pulling the model again may mend it",
    )
}

fn cut(health: &Health) -> Check {
    let seen = format!("{} prompts were cut by Ollama since it started", health.cut_by_upstream);
    if health.cut_by_upstream == 0 {
        return Check::ok("cut", seen);
    }
    Check::warn(
        "cut",
        seen,
        "set context.mode = \"enforce\"; if it is, update Ollama so that it knows `truncate: false`",
    )
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    #[test]
    fn a_healthy_server_has_nothing_to_mend() {
        let health = Health {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            upstream: "http://127.0.0.1:11434".to_owned(),
            store_healthy: true,
            mode: "enforce".to_owned(),
            ..Health::default()
        };
        let checks = running("http://127.0.0.1:11435", &health, "http://localhost:11434", Mode::Enforce);
        assert!(checks.iter().all(|check| check.status == Status::Ok), "{checks:?}");
    }

    #[test]
    fn what_a_server_suffers_from_is_told() {
        let health = Health {
            version: "0.0.1".to_owned(),
            upstream: "http://elsewhere:1".to_owned(),
            exact_mismatches: 2,
            cut_by_upstream: 1,
            ..Health::default()
        };
        let checks = running("http://127.0.0.1:11435", &health, "http://localhost:11434", Mode::Enforce);
        let statuses: Vec<Status> = checks.iter().map(|check| check.status).collect();
        assert_eq!(statuses, [Status::Warn, Status::Warn, Status::Warn, Status::Fail, Status::Warn, Status::Warn]);
        assert!(checks.iter().all(|check| check.mend.is_some()));
    }
}
