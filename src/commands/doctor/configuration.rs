//! The configuration that a server would have: can it be read, is it safe, and is its port to be had.

use std::io::ErrorKind;
use std::net::SocketAddr;

use anyhow::{Context, Result};

use super::finding::Check;
use super::place::{Place, Who, who};
use crate::commands::data::DataDir;
use crate::commands::serve::{reachable, variables};
use crate::config::{Config, ConfigError, Flags, Mode, Webhooks};

/// Reads it. If that fails, the reason is a finding, and the look goes on with what can be had without.
pub(super) fn read(data: &DataDir, upstream: Option<&str>) -> Result<(Config, Check)> {
    let flags = || Flags { upstream: upstream.map(str::to_owned), ..data.flags() };
    let error = match Config::load(data.config_file(), variables(), flags()) {
        Ok(config) => return Ok((config, Check::ok("reads", sources(data)))),
        Err(error) => error,
    };
    let without = Config::load(None, variables(), flags()).or_else(|_| Config::load(None, [], flags()));
    let config = without.context("not even the defaults can be used")?;
    Ok((config, unreadable(&error)))
}

fn sources(data: &DataDir) -> String {
    let file = data.config_file().map_or_else(|| "no file, defaults".to_owned(), |path| path.display().to_string());
    let set: Vec<String> = variables().map(|(name, _)| name).filter(|name| name.starts_with("LOADLINE_")).collect();
    if set.is_empty() { file } else { format!("{file}; set by the environment: {}", set.join(", ")) }
}

fn unreadable(error: &ConfigError) -> Check {
    let mend = match error {
        ConfigError::File { path, .. } => {
            format!("mend {path} (config/loadline.toml has every key with its default), or say --config FILE")
        }
        ConfigError::Variable { name, .. } => {
            format!("`unset {name}`, or give it a value that config/loadline.toml allows")
        }
        ConfigError::Value { key, .. } => {
            format!("change {key} in the configuration file, or set {}", variable_of(key))
        }
    };
    Check::fail("reads", format!("{}; what follows was looked at with defaults", error.to_string().trim()), mend)
}

/// The variable that sets a key.
fn variable_of(key: &str) -> String {
    format!("LOADLINE_{}", key.replace('.', "_").to_uppercase())
}

/// All that the configuration and the machine say, without the upstream.
pub(super) async fn look(config: &Config, announced: Option<&str>) -> Vec<Check> {
    vec![
        listening(config.listen, config.auth_required),
        hosts(config.listen, &config.allowed_hosts),
        mode(config.mode),
        webhooks(&config.webhooks),
        port(config.listen, &holder(config.listen, announced).await),
    ]
}

fn listening(listen: SocketAddr, auth_required: bool) -> Check {
    const NAME: &str = "listen";
    match (listen.ip().is_loopback(), auth_required) {
        (true, false) => {
            Check::ok(NAME, format!("{listen}, reached from this machine only; nobody needs a token to chat"))
        }
        (true, true) => Check::ok(NAME, format!("{listen}, reached from this machine only; everybody needs a token")),
        (false, true) => Check::ok(NAME, format!("{listen}, reached from other machines; everybody needs a token")),
        (false, false) => Check::fail(
            NAME,
            format!("{listen} can be reached from other machines, and nobody needs a token"),
            "set auth.required = true (LOADLINE_AUTH_REQUIRED=true), or server.listen = \"127.0.0.1:11435\"",
        ),
    }
}

fn hosts(listen: SocketAddr, allowed: &[String]) -> Check {
    const NAME: &str = "allowed-hosts";
    if !allowed.is_empty() {
        return Check::ok(NAME, format!("besides localhost: {}", allowed.join(", ")));
    }
    if listen.ip().is_loopback() {
        return Check::ok(NAME, "localhost and loopback addresses");
    }
    Check::warn(
        NAME,
        "clients on other machines are refused (403): no name of this machine is allowed",
        "set server.allowed_hosts = [\"NAME\"] to the names or addresses that clients use for this machine",
    )
}

fn webhooks(config: &Webhooks) -> Check {
    const NAME: &str = "webhooks";
    let receivers = config.receivers.len();
    match crate::webhooks::key(config) {
        _ if receivers == 0 => Check::ok(NAME, "nobody is called"),
        Ok(Some(_)) => Check::ok(NAME, format!("{receivers} receiver(s), calls are signed")),
        Ok(None) => Check::warn(
            NAME,
            format!("{receivers} receiver(s), and calls are not signed"),
            "set webhooks.secret_file or webhooks.secret, so that receivers can tell who calls",
        ),
        Err(error) => Check::fail(NAME, error.to_string(), "name a file that this user can read, with a secret in it"),
    }
}

fn mode(mode: Mode) -> Check {
    match mode {
        Mode::Enforce => Check::ok("mode", "enforce: nothing over the line is forwarded"),
        Mode::Observe => Check::warn(
            "mode",
            "observe: prompts are only watched, and Ollama goes on cutting those that are too long",
            "set context.mode = \"enforce\" (LOADLINE_CONTEXT_MODE=enforce) when you have seen enough",
        ),
    }
}

/// Who has the port that we would listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Holder {
    Nobody,
    /// The server that has this data directory.
    Us,
    Else(Who),
    /// The system does not let us listen there, and says why.
    Refused(String),
}

async fn holder(listen: SocketAddr, announced: Option<&str>) -> Holder {
    match tokio::net::TcpListener::bind(listen).await {
        Ok(_) => Holder::Nobody,
        Err(error) if error.kind() == ErrorKind::AddrInUse => match who(&format!("http://{}", reachable(listen))).await
        {
            Who::Loadline(_) if announced.and_then(Place::of_url).is_some_and(|place| place.is(listen)) => Holder::Us,
            other => Holder::Else(other),
        },
        Err(error) => Holder::Refused(error.to_string()),
    }
}

fn port(listen: SocketAddr, holder: &Holder) -> Check {
    const NAME: &str = "port";
    let elsewhere = "set server.listen (LOADLINE_SERVER_LISTEN) to a free one such as 127.0.0.1:11436";
    let port = listen.port();
    match holder {
        Holder::Nobody if port == 0 => Check::ok(NAME, "any free one"),
        Holder::Nobody => Check::ok(NAME, format!("{port} is free; no loadline is running on it")),
        Holder::Us => Check::ok(NAME, format!("{port} is held by the loadline that serves from this data directory")),
        Holder::Else(Who::Loadline(_)) => Check::warn(
            NAME,
            format!("{port} is held by a loadline with another data directory: a second one cannot start there"),
            format!("say that one's --data-dir or --config here; or, to run two, {elsewhere}"),
        ),
        Holder::Else(Who::Ollama) => Check::fail(
            NAME,
            format!("{port} is held by an Ollama: loadline cannot listen there"),
            format!("start Ollama on its own port (`OLLAMA_HOST=127.0.0.1:11434 ollama serve`), or {elsewhere}"),
        ),
        Holder::Else(Who::Other | Who::Nobody) => Check::fail(
            NAME,
            format!("{port} is held by another program: loadline cannot listen there"),
            format!("find it with `ss -ltnp 'sport = :{port}'` and end it, or {elsewhere}"),
        ),
        Holder::Refused(reason) => {
            Check::fail(NAME, format!("the system does not let us listen on {listen}: {reason}"), elsewhere)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::super::place::Health;
    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().expect("an address")
    }

    #[test]
    fn listening_to_everybody_without_tokens_is_wrong() {
        let check = listening(at("0.0.0.0:11435"), false);
        assert_eq!(check.status, Status::Fail);
        assert!(check.mend.is_some_and(|mend| mend.contains("auth.required = true")));
        for (address, auth) in [("0.0.0.0:1", true), ("127.0.0.1:1", false), ("[::1]:1", true)] {
            assert_eq!(listening(at(address), auth).status, Status::Ok, "{address}");
        }
    }

    #[test]
    fn beyond_loopback_clients_need_an_allowed_host() {
        let check = hosts(at("0.0.0.0:1"), &[]);
        assert_eq!(check.status, Status::Warn);
        assert!(check.mend.is_some_and(|mend| mend.contains("server.allowed_hosts")));
        assert_eq!(hosts(at("0.0.0.0:1"), &["box".to_owned()]).status, Status::Ok);
        assert_eq!(hosts(at("127.0.0.1:1"), &[]).status, Status::Ok);
    }

    #[test]
    fn a_port_that_somebody_else_holds_is_told_with_a_way_out() {
        let status = |holder: Holder| port(at("127.0.0.1:11435"), &holder).status;
        assert_eq!(status(Holder::Nobody), Status::Ok);
        assert_eq!(status(Holder::Us), Status::Ok);
        assert_eq!(status(Holder::Else(Who::Loadline(Health::default()))), Status::Warn);
        assert_eq!(status(Holder::Else(Who::Other)), Status::Fail);
        let check = port(at("127.0.0.1:11435"), &Holder::Else(Who::Ollama));
        assert!(check.mend.is_some_and(|mend| mend.contains("OLLAMA_HOST") && mend.contains("server.listen")));
    }

    #[test]
    fn a_wrong_configuration_is_told_with_the_place_to_mend() {
        let value = ConfigError::Value { key: "context.reserve", reason: "must be between 0 and 0.5".to_owned() };
        let check = unreadable(&value);
        assert!(check.seen.contains("between 0 and 0.5"), "{check:?}");
        assert!(check.mend.as_deref().is_some_and(|mend| mend.contains("LOADLINE_CONTEXT_RESERVE")), "{check:?}");
        let variable = ConfigError::Variable { name: "LOADLINE_X".to_owned(), reason: "no such key".to_owned() };
        assert!(unreadable(&variable).mend.is_some_and(|mend| mend.contains("unset LOADLINE_X")));
    }

    #[test]
    fn only_watching_is_told() {
        assert_eq!((mode(Mode::Enforce).status, mode(Mode::Observe).status), (Status::Ok, Status::Warn));
    }
}
