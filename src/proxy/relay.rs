//! The plain way through: everything that is not gated, streamed in both directions as it comes.

use http::request::Parts;
use http::{Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::Gateway;
use super::headers::strip_hop_by_hop;
use super::observe::{Observed, Watcher};
use super::respond::{Refusal, ResponseBody};
use crate::ollama::client::RequestBody;

/// Forwards a request with its body, and hands back the answer as it arrives.
pub async fn relay(
    gateway: &Gateway,
    head: Parts,
    path: &str,
    body: Incoming,
) -> Result<Response<ResponseBody>, Refusal> {
    let body = body.map_err(Into::into).boxed_unsync();
    let response = gateway.upstream().send(forwarded(head, path, body)).await?;
    let (mut head, body) = response.into_parts();
    strip_hop_by_hop(&mut head.headers);
    let body = Observed::new(body, gateway.config.idle_timeout, Watcher::nobody());
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// The request as it goes upstream: same method, clean path, same query, headers of this hop removed.
pub fn forwarded(head: Parts, path: &str, body: RequestBody) -> Request<RequestBody> {
    let query = head.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    // A clean path is a valid URI once what needs escaping is escaped again.
    let escaped = percent_encoding::utf8_percent_encode(path, UNSAFE_IN_PATH);
    if let Ok(uri) = format!("{escaped}{query}").parse() {
        *request.uri_mut() = uri;
    }
    *request.headers_mut() = head.headers;
    strip_hop_by_hop(request.headers_mut());
    request.headers_mut().remove(header::EXPECT);
    request
}

const UNSAFE_IN_PATH: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'%');
