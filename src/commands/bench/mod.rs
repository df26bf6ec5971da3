//! `loadline bench`: for whoever doubts it.

mod load;
mod prefill;
mod recall;
mod relay;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use tokio_util::sync::CancellationToken;

use super::Outcome;
use crate::config::{Config, Flags};
use crate::proxy::Gateway;
use crate::proxy::server::Server;

/// Measure what Loadline does, on your own machine and your own data.
#[derive(Debug, Args)]
pub(super) struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Load(load::Load),
    Prefill(prefill::Prefill),
    Recall(recall::Recall),
    Relay(relay::Relay),
}

impl Bench {
    pub(super) async fn run(self) -> Result<Outcome> {
        match self.what {
            What::Load(command) => command.run().await,
            What::Prefill(command) => command.run().await,
            What::Recall(command) => command.run().await,
            What::Relay(command) => command.run().await,
        }
    }
}

/// A Loadline of its own, with a data directory that goes when it ends.
struct Own {
    gateway: Arc<Gateway>,
    url: String,
    data_dir: PathBuf,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl Own {
    /// `variables` are configuration, as the environment would give it.
    async fn start(upstream: &str, variables: &[(&str, String)]) -> Result<Self> {
        let data_dir = std::env::temp_dir().join(format!("loadline-bench-{}", uuid::Uuid::new_v4().simple()));
        let flags = Flags {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            upstream: Some(upstream.to_owned()),
            data_dir: Some(data_dir.clone()),
            observe: false,
        };
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let gateway = Arc::new(Gateway::new(Config::load(None, variables, flags)?)?);
        let server = Server::bind(Arc::clone(&gateway)).await.context("the bench needs a free port")?;
        let url = format!("http://{}", server.addr());
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.run(stop.clone().cancelled_owned()));
        Ok(Self { gateway, url, data_dir, stop, serving })
    }

    async fn end(self) {
        self.stop.cancel();
        let _ended = tokio::time::timeout(Duration::from_secs(5), self.serving).await;
        drop(self.gateway);
        let _best_effort = std::fs::remove_dir_all(self.data_dir);
    }
}
