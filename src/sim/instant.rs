//! Answering without reading: the same words for everybody, made once.
//!
//! For measuring what stands in front of the simulator rather than the simulator. A prompt is neither read nor
//! counted, so the answer tells no count of it. Whether a stream is wanted is looked for at both ends of the
//! body only: clients write it before their messages or after them.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use http::Response;

use super::answer::{Length, compose};
use super::dialect::{Route, Totals};
use super::respond::{self, Torn};
use super::runner::World;

/// How much of each end of a body is looked at.
const LOOKED_AT: usize = 512;

/// The answers of all routes, each made when it is asked for first.
#[derive(Debug, Default)]
pub(super) struct Ready {
    routes: [OnceLock<Option<Answers>>; Route::COUNT],
}

#[derive(Debug)]
struct Answers {
    whole: Bytes,
    frames: Arc<[Bytes]>,
}

impl Ready {
    /// The answer to a request, or nothing if it has to be looked at after all.
    pub(super) fn answer(&self, world: &World, route: Route, body: &[u8]) -> Option<Response<Body>> {
        let front = &body[..body.len().min(LOOKED_AT)];
        let back = &body[body.len().saturating_sub(LOOKED_AT)..];
        let says = |text: &[u8]| [front, back].iter().any(|part| memchr::memmem::find(part, text).is_some());
        if says(b"_debug_render_only") {
            return None;
        }
        let answers = self.routes[route as usize].get_or_init(|| make(world, route)).as_ref()?;
        let off = || says(br#""stream":false"#) || says(br#""stream": false"#);
        let on = || says(br#""stream":true"#) || says(br#""stream": true"#);
        if if route.is_native() { !off() } else { on() } {
            let frames = Arc::clone(&answers.frames);
            let all = (0..frames.len()).map(move |number| Ok::<_, Torn>(frames[number].clone()));
            return Some(respond::body(route.content_type(true), Body::from_stream(stream::iter(all))));
        }
        Some(respond::body(route.content_type(false), answers.whole.clone()))
    }
}

/// What this route says, as a whole and in frames.
fn make(world: &World, route: Route) -> Option<Answers> {
    let model = world.config.models.first()?;
    let asked = serde_json::json!({
        "model": model.name, "prompt": "hello", "input": "hello", "max_tokens": 1,
        "messages": [{ "role": "user", "content": "hello" }],
    });
    let (ask, mut wire) = route.read(asked.to_string().as_bytes(), world.config.flavour).ok()?;
    let length = Length { natural: world.config.answer_tokens, limit: None };
    let answer = compose(model, &ask, &[], false, length);
    let totals = Totals { reason: answer.reason, answer_tokens: answer.tokens(), ..Totals::default() };
    let whole = wire.whole(&answer.pieces, &totals).into();
    let (_, mut wire) = route.read(asked.to_string().as_bytes(), world.config.flavour).ok()?;
    let mut frames: Vec<Bytes> = Vec::with_capacity(answer.pieces.len() + 1);
    let mut opening = wire.open();
    for piece in &answer.pieces {
        frames.push((std::mem::take(&mut opening) + &wire.piece(piece)).into());
    }
    frames.push(wire.close(&totals).into());
    Some(Answers { whole, frames: frames.into() })
}
