//! Answers that are one text: begun only when they are over and stored, so that whatever went wrong can still be said.
//!
//! Long ones, and streams, go as they come.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::CONTENT_LENGTH;
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};

use super::headers::Report;
use super::observe::Unfinished;
use super::respond::{Refusal, ResponseBody};
use crate::framing::Framing;
use crate::ollama::client::BoxError;

/// Longer ones pass as they come.
const MAX_BYTES: usize = 4 << 20;

/// Waits for the end of a short answer that is one text.
pub(super) async fn whole(
    response: Response<ResponseBody>,
    framing: Framing,
    report: Report,
) -> Result<Response<ResponseBody>, Refusal> {
    let length = response.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let long = length.is_some_and(|length| length > MAX_BYTES);
    if framing != Framing::Whole || !response.status().is_success() || long {
        return Ok(response);
    }
    let (head, mut body) = response.into_parts();
    let (mut pieces, mut bytes) = (Vec::<Bytes>::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| failed(&error, report.clone()))?;
        let Ok(piece) = frame.into_data() else { continue };
        bytes += piece.len();
        pieces.push(piece);
        if bytes > MAX_BYTES {
            let before = stream::iter(pieces).map(|piece| Ok::<_, BoxError>(Frame::data(piece)));
            let body = StreamBody::new(before.chain(BodyStream::new(body)));
            return Ok(Response::from_parts(head, body.boxed_unsync()));
        }
    }
    let body = Full::new(Bytes::from(pieces.concat())).map_err(|never| match never {});
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

fn failed(error: &BoxError, report: Report) -> Refusal {
    let status = match error.downcast_ref::<Unfinished>() {
        Some(Unfinished::NotKept(_)) => StatusCode::INTERNAL_SERVER_ERROR,
        Some(Unfinished::Upstream(_)) | None => StatusCode::BAD_GATEWAY,
    };
    // A turn without an answer has no receipt.
    let report = Report { receipt: None, ..report };
    Refusal { report: Some(Box::new(report)), ..Refusal::new(status, error.to_string()) }
}
