//! One call: what is sent, and what came of it.
//!
//! Redirects are not followed, because whoever answers one is not the receiver that was asked for. Of an answer
//! only the status counts; a little of its body is read so that the connection can be used again.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::time::Instant;

use super::backoff;
use super::sign::Key;
use crate::events;
use crate::ollama::client::deepest;
use crate::store::EventRow;

const MAX_ANSWER_BYTES: usize = 4 << 10;

/// An event as receivers get it. It is the same at every attempt, so that they can tell a second one.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) id: String,
    body: Bytes,
}

impl Message {
    pub(super) fn of(row: &EventRow) -> Self {
        let data = events::shown(row);
        let body = json!({ "type": row.kind, "timestamp": data["at"], "data": data });
        Self { id: format!("evt_{}", row.id), body: body.to_string().into() }
    }
}

/// What came of a call.
#[derive(Debug)]
pub(super) enum Outcome {
    Delivered,
    /// The receiver wants no more calls.
    Gone,
    Failed {
        why: Failure,
        asked: Option<Duration>,
    },
}

#[derive(Debug)]
pub(super) enum Failure {
    Status(StatusCode),
    TimedOut,
    NoAnswer(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(formatter, "it answered {}", status.as_u16()),
            Self::TimedOut => formatter.write_str("it did not answer in time"),
            Self::NoAnswer(reason) => formatter.write_str(reason),
        }
    }
}

/// Makes calls. Clones share their connections.
#[derive(Debug, Clone)]
pub(super) struct Calls {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    key: Option<Key>,
    timeout: Duration,
}

impl Calls {
    /// Certificates are checked as the operating system says. Where nobody is called by https, they need not be there.
    pub(super) fn new(https: bool, key: Option<Key>, timeout: Duration) -> io::Result<Self> {
        let builder = HttpsConnectorBuilder::new();
        let builder = match https {
            true => builder.with_provider_and_platform_verifier(ring::default_provider())?,
            false => builder.with_tls_config(trusting_nobody()?),
        };
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        // The scheme is the outer connector's business.
        connector.enforce_http(false);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .pool_max_idle_per_host(1)
            .build(builder.https_or_http().enable_http1().wrap_connector(connector));
        Ok(Self { client, key, timeout })
    }

    pub(super) async fn make(&self, to: &Uri, message: &Message) -> Outcome {
        let failed = |why| Outcome::Failed { why, asked: None };
        let request = match self.request(to, message) {
            Ok(request) => request,
            Err(error) => return failed(Failure::NoAnswer(error.to_string())),
        };
        let deadline = Instant::now() + self.timeout;
        match tokio::time::timeout_at(deadline, self.client.request(request)).await {
            Err(_) => failed(Failure::TimedOut),
            Ok(Err(error)) => failed(Failure::NoAnswer(deepest(&error))),
            Ok(Ok(answer)) => judge(answer, deadline).await,
        }
    }

    fn request(&self, to: &Uri, message: &Message) -> http::Result<Request<Full<Bytes>>> {
        let timestamp = Timestamp::now().as_second();
        let mut request = Request::post(to)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("loadline/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", &message.id)
            .header("webhook-timestamp", timestamp);
        if let Some(key) = &self.key {
            request = request.header("webhook-signature", key.sign(&message.id, timestamp, &message.body));
        }
        request.body(Full::new(message.body.clone()))
    }
}

async fn judge(answer: Response<Incoming>, deadline: Instant) -> Outcome {
    let status = answer.status();
    let asked = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let asked = asked.and_then(|text| backoff::asked(text, Timestamp::now()));
    let rest = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect();
    let _whatever_it_says = tokio::time::timeout_at(deadline, rest).await;
    match status {
        StatusCode::GONE => Outcome::Gone,
        status if status.is_success() => Outcome::Delivered,
        status => Outcome::Failed { why: Failure::Status(status), asked },
    }
}

fn trusting_nobody() -> io::Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_the_event_as_the_feed_gives_it() {
        let row = EventRow {
            id: 513,
            at: 1_794_837_832_123,
            kind: "rollover".to_owned(),
            conversation: Some(7),
            user: Some("local".to_owned()),
            body: r#"{"snapshot":"snapshot-1","tokens_before":7200}"#.to_owned(),
        };
        let message = Message::of(&row);
        assert_eq!(message.id, "evt_513");
        let expected = concat!(
            r#"{"type":"rollover","timestamp":"2026-11-16T14:03:52.123Z","data":{"snapshot":"snapshot-1","#,
            r#""tokens_before":7200,"id":513,"at":"2026-11-16T14:03:52.123Z","kind":"rollover","conversation":7,"user":"local"}}"#
        );
        assert_eq!(message.body, expected);
    }
}
