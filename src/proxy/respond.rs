//! The one place where a failure of ours becomes an HTTP answer, in the dialect the client speaks.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

use super::headers::Report;
use crate::dialect::ErrorShape;
use crate::ollama::UpstreamError;
use crate::ollama::client::BoxError;
use crate::ollama::fleet::NoSeat;
use crate::telemetry::metrics::UpstreamTrouble;

/// The body of an answer on its way to a client.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// A request that is answered with an error of ours.
#[derive(Debug)]
pub struct Refusal {
    pub status: StatusCode,
    pub message: String,
    /// What the gate found out, if it got that far.
    pub report: Option<Box<Report>>,
    /// What was wrong with the upstream, if that is why.
    pub trouble: Option<UpstreamTrouble>,
    /// After how many seconds it is worth trying again.
    pub retry_after: Option<u32>,
}

impl Refusal {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), report: None, trouble: None, retry_after: None }
    }

    pub fn response(self, shape: ErrorShape) -> Response<ResponseBody> {
        let mut response = json(self.status, shape.body(self.status, &self.message));
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(report) = self.report {
            report.write(response.headers_mut());
        }
        response
    }
}

impl From<UpstreamError> for Refusal {
    fn from(error: UpstreamError) -> Self {
        let (status, trouble) = match error {
            UpstreamError::Unreachable(..) => (StatusCode::BAD_GATEWAY, UpstreamTrouble::Unreachable),
            UpstreamError::Closed(_) | UpstreamError::Unreadable(..) => {
                (StatusCode::BAD_GATEWAY, UpstreamTrouble::Broken)
            }
            UpstreamError::Timeout { .. } => (StatusCode::GATEWAY_TIMEOUT, UpstreamTrouble::Timeout),
        };
        Self { trouble: Some(trouble), ..Self::new(status, error.to_string()) }
    }
}

/// When those who were told to come back should.
const COME_BACK_AFTER_S: u32 = 2;

impl From<NoSeat> for Refusal {
    fn from(none: NoSeat) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, none.to_string());
        Self { retry_after: Some(COME_BACK_AFTER_S), ..refusal }
    }
}

/// A file of lines to be kept.
pub fn attachment(name: &str, lines: String) -> Response<ResponseBody> {
    let mut response = json(StatusCode::OK, lines);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    response
}

/// A JSON answer of ours.
pub fn json(status: StatusCode, body: String) -> Response<ResponseBody> {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    response
}
