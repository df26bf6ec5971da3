//! The server that is watched: where it is, who we are to it, and one question.

use std::future::Future;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};

use super::super::data::{DataDir, Pass};
use super::sentences::plain;
use crate::api::auth::LOCAL_USER;
use crate::ollama::client::deepest;

/// Our own token is good for this long, in case that we cannot take it back.
const PASS_MS: i64 = 12 * 3_600_000;

/// A server that takes longer for an overview has gone, as far as people are concerned.
const TIMEOUT: Duration = Duration::from_secs(5);

/// An overview of a hundred conversations and events is a tenth of this.
const MOST_BYTES: usize = 4 << 20;

/// The characters of an error that are shown.
const ERROR_CHARS: usize = 200;

pub(super) struct Server {
    client: reqwest::Client,
    way: Way,
}

enum Way {
    /// The one that serves from a data directory of ours; whoever may read it may see everything.
    Local {
        data: Box<DataDir>,
        pass: Option<Pass>,
    },
    Remote {
        url: String,
        token: String,
    },
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub(super) struct NoAnswer {
    reason: String,
    /// The token is not or no longer accepted.
    unknown_token: bool,
}

impl Server {
    pub(super) fn local(data: DataDir) -> Result<Self> {
        Self::new(Way::Local { data: Box::new(data), pass: None })
    }

    pub(super) fn remote(url: &str, token: Option<String>) -> Result<Self> {
        let url = url.trim_end_matches('/').to_owned();
        if !url.starts_with("http://") {
            bail!("--url: {url}: only http:// is spoken here; for another machine, `ssh -L` makes a safe way");
        }
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        let token = token.ok_or_else(|| {
            anyhow!("--url needs a token in the variable LOADLINE_TOKEN; `loadline token create` makes one")
        })?;
        Self::new(Way::Remote { url, token })
    }

    fn new(way: Way) -> Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { client, way })
    }

    /// Where it is now. A server that was started again may be elsewhere.
    pub(super) fn address(&self) -> Result<String> {
        match &self.way {
            Way::Remote { url, .. } => Ok(url.clone()),
            Way::Local { data, .. } => data.serving(),
        }
    }

    /// Asks for the overview. The answer does not borrow the server, so that it can be given up.
    pub(super) fn ask(&mut self, all: bool) -> Result<impl Future<Output = Result<String, NoAnswer>> + use<>> {
        let address = self.address()?;
        let token = match &mut self.way {
            Way::Remote { token, .. } => token.as_str(),
            Way::Local { pass: Some(pass), .. } => pass.reveal(),
            Way::Local { data, pass } => pass.insert(data.pass(LOCAL_USER, "admin", PASS_MS)?).reveal(),
        };
        let all = if all { "&all=true" } else { "" };
        let url = format!("{address}/loadline/overview?limit=100&events=100{all}");
        let request = self.client.get(url).bearer_auth(token);
        Ok(answer(request, address))
    }

    /// Takes notice that there was no answer: a token of ours that ended is made anew with the next question.
    pub(super) fn was_refused(&mut self, no: &NoAnswer) {
        if let (true, Way::Local { pass, .. }) = (no.unknown_token, &mut self.way) {
            *pass = None;
        }
    }
}

async fn answer(request: reqwest::RequestBuilder, address: String) -> Result<String, NoAnswer> {
    let silent = |error: reqwest::Error| NoAnswer {
        reason: format!("{address} does not answer: {}", plain(&deepest(&error))),
        unknown_token: false,
    };
    let mut response = request.send().await.map_err(silent)?;
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(silent)? {
        if body.len() + chunk.len() > MOST_BYTES {
            let reason = format!("{address} answers with more than {MOST_BYTES} bytes");
            return Err(NoAnswer { reason, unknown_token: false });
        }
        body.extend_from_slice(&chunk);
    }
    let text = String::from_utf8_lossy(&body).into_owned();
    if status == 200 {
        return Ok(text);
    }
    let said = said(&text);
    let reason = match status {
        401 => format!("{address} does not accept the token: {said}"),
        403 => format!("{address} wants a token with the scope `read`: {said}"),
        404 => format!("{address} has no overview; is it a loadline of this version?"),
        _ => format!("{address} answers {status}: {said}"),
    };
    Err(NoAnswer { reason, unknown_token: status == 401 })
}

/// The words of an error body.
fn said(body: &str) -> String {
    let error = serde_json::from_str::<serde_json::Value>(body).ok();
    let words = error.as_ref().and_then(|error| error["error"].as_str()).unwrap_or(body);
    plain(words).chars().take(ERROR_CHARS).collect()
}
