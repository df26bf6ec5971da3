//! `loadline serve`: the proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use super::{Outcome, stop_signal};
use crate::api::first_token;
use crate::config::{Config, Flags};
use crate::proxy::Gateway;
use crate::proxy::server::Server;
use crate::telemetry;
use crate::webhooks::{self, Backoff};

/// Start the proxy.
///
/// Prints `listening on http://ADDR` once it is ready. Everything can be set in a file (see
/// config/loadline.toml for all keys), by LOADLINE_* variables, or here.
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:11435]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// The Ollama to forward to; several with commas between [default: http://127.0.0.1:11434]
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// Where conversations and secrets are kept [default: ~/.local/share/loadline]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "LOADLINE_CONFIG")]
    config: Option<PathBuf>,
    /// Change nothing, only report what would have been done
    #[arg(long)]
    observe: bool,
}

impl Serve {
    pub(super) async fn run(self) -> Result<Outcome> {
        let flags =
            Flags { listen: self.listen, upstream: self.upstream, data_dir: self.data_dir, observe: self.observe };
        let config = Config::load(self.config.as_deref(), variables(), flags)?;
        let traces = telemetry::start_logging(&config.log).map_err(|error| anyhow!(error))?;
        if config.server.is_some() && config.data_dir.join("loadline.db").exists() {
            tracing::warn!(
                data_dir = %config.data_dir.display(),
                "loadline.db in the data directory is not used, because store.url is set: `loadline store copy` brings it along"
            );
        }
        let gateway = Arc::new(Gateway::new(config)?);
        let listen = gateway.config.listen;
        let server = Server::bind(Arc::clone(&gateway)).await.with_context(|| format!("cannot listen on {listen}"))?;
        let addr = server.addr();
        if gateway.fleet.members().iter().any(|member| member.upstream().is_at(addr)) {
            bail!("upstream.url: http://{addr} is Loadline itself; Ollama is usually at http://127.0.0.1:11434");
        }
        gateway.store.announce(&format!("http://{}", reachable(addr)))?;
        let token_file = first_token::ensure(&gateway.store, &gateway.config.data_dir).await?;
        webhooks::start(&gateway, Backoff::default()).await?;
        say!("listening on http://{addr}");
        if let Some(path) = token_file {
            tracing::info!(path = %path.display(), "a token of the user `local`, for the dashboard and the history API, is kept here");
        }
        if !addr.ip().is_loopback() && gateway.config.allowed_hosts.is_empty() {
            tracing::warn!(
                "clients elsewhere are refused until server.allowed_hosts has the name they use for this machine"
            );
        }
        tokio::spawn({
            let upstream = gateway.upstream().clone();
            async move {
                if upstream.call(http::Method::GET, "/api/version", None).await.is_err() {
                    tracing::warn!(upstream = upstream.name(), "nothing answers there yet: is Ollama running?");
                }
            }
        });
        let auth = if gateway.config.auth_required { "required" } else { "on loopback nobody needs a token to chat" };
        tracing::info!(
            upstream = upstream_names(&gateway),
            mode = gateway.config.mode.name(),
            auth,
            dashboard = format!("http://{addr}/loadline/"),
            "ready"
        );
        server.run(stop_signal()).await;
        // Sending the last traces waits for the collector.
        tokio::task::spawn_blocking(move || drop(traces)).await?;
        Ok(Outcome::Fine)
    }
}

/// The address under which commands on this machine reach it.
pub(super) fn reachable(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V4(addr) if addr.ip().is_unspecified() => ([127, 0, 0, 1], addr.port()).into(),
        SocketAddr::V6(addr) if addr.ip().is_unspecified() => (std::net::Ipv6Addr::LOCALHOST, addr.port()).into(),
        other => other,
    }
}

/// All of them, as they are configured.
fn upstream_names(gateway: &Gateway) -> String {
    let names: Vec<&str> = gateway.fleet.members().iter().map(|member| member.name()).collect();
    names.join(", ")
}

/// The environment, as far as it is text; what is not cannot be ours.
pub(super) fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
