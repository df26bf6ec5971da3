//! The plain way through: everything that is not gated, streamed in both directions as it comes.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::headers::strip_hop_by_hop;
use super::observe::{Observed, Watcher};
use super::respond::{Refusal, ResponseBody};
use super::{Gateway, spread};
use crate::ollama::client::RequestBody;

/// Forwards a request with its body, and hands back the answer as it arrives.
pub async fn relay(
    gateway: &Gateway,
    head: Parts,
    path: &str,
    body: Incoming,
) -> Result<Response<ResponseBody>, Refusal> {
    let body = match spread::answer(gateway, &head, path, body).await? {
        Ok(response) => return Ok(response),
        Err(body) => body,
    };
    let upstream = spread::named(gateway, &head.headers)?.upstream();
    let body = Lingering(Some(body)).map_err(Into::into).boxed_unsync();
    let response = upstream.send(forwarded(head, path, body)).await?;
    let (mut head, body) = response.into_parts();
    strip_hop_by_hop(&mut head.headers);
    let body = Observed::new(body, gateway.config.idle_timeout, Watcher::nobody());
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

/// A client that is still sending must not be hung up on before it has read its answer: Go's, for one, then sees a
/// broken pipe instead of the answer. So what nobody wants is read all the same, for a while.
const LINGER: Duration = Duration::from_secs(10);

/// A body of which the rest is read and dropped when nobody wants it any more.
struct Lingering(Option<Incoming>);

impl Body for Lingering {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if let Some(body) = self.0.take().filter(|body| !body.is_end_stream()) {
            linger(body);
        }
    }
}

/// Reads the rest of a body that nobody wants, within bounds.
pub fn linger(mut body: Incoming) {
    let rest = async move { while let Some(Ok(_dropped)) = body.frame().await {} };
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(tokio::time::timeout(LINGER, rest));
    }
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
    request.headers_mut().remove(spread::HEADER);
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
