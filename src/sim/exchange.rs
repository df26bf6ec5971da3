//! One request for an answer, from its bytes to its response, in the order of Ollama's own handler.
//!
//! Read, find the model, check what it can do, load it, render, cut, evaluate, answer. The order decides
//! which of two errors a client gets to see, so it is kept even where it looks odd.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};

use super::answer::{Answer, Length, compose};
use super::dialect::{Route, Totals, Wire};
use super::faults::Fault;
use super::ledger::Watch;
use super::prompt::{prepare, tokens};
use super::refusal::Refusal;
use super::request::{Ask, Prompt, Think};
use super::respond::{self, Delivery, Torn};
use super::runner::{Window, World, whole_option};
use super::{Flavour, SimModel};

/// What durations say where time is free: some number has to be there, and it should follow the work.
const NOMINAL_NS_PER_TOKEN: u64 = 1_000;
const NOMINAL_LOAD_NS: u64 = 1_000_000;

/// Serves one request on a route that generates, with the next fault of the script.
pub(super) async fn serve(world: &Arc<World>, route: Route, body: &[u8]) -> Result<Response<Body>, Torn> {
    // A rendering generates nothing, so nothing can go wrong with it.
    let renders_only = memchr::memmem::find(body, br#""_debug_render_only":true"#).is_some();
    let fault = match world.faults.take_unless(renders_only) {
        Some(Fault::Status { code, body }) => return Ok(respond::scripted(code, body)),
        Some(Fault::CloseBeforeHeaders) => return Err(Torn),
        Some(Fault::SilentBeforeHeaders) => {
            // Dropped when the client goes away, and counted then.
            let _watch = world.ledger.watch();
            std::future::pending::<()>().await;
            return Err(Torn);
        }
        Some(Fault::Garbage) => return Ok(respond::garbage(route)),
        other => other,
    };
    let flavour = world.config.flavour;
    let (ask, wire) = match route.read(body, flavour) {
        Ok(read) => read,
        Err(refusal) => return Ok(respond::refused(&refusal, route, false, flavour)),
    };
    let stream = ask.stream;
    let answered = answer(world, route, &ask, wire, fault).await;
    Ok(answered.unwrap_or_else(|refusal| respond::refused(&refusal, route, stream, flavour)))
}

async fn answer(
    world: &Arc<World>,
    route: Route,
    ask: &Ask,
    mut wire: Box<dyn Wire>,
    fault: Option<Fault>,
) -> Result<Response<Body>, Refusal> {
    let index = find(world, ask)?;
    let model = &world.config.models[index];
    if ask.prompt.is_empty() && ask.unload {
        world.unload(index);
        return Ok(without_words(route, wire, ask.stream, "unload"));
    }
    let thinks = check_abilities(model, ask)?;
    let window = Window::of(model, &ask.options, world.config.default_window)?;
    let limit = whole_option(&ask.options, "num_predict")?;
    world.load(index, window);
    if ask.prompt.is_empty() {
        return Ok(without_words(route, wire, ask.stream, "load"));
    }
    let rendered = prepare(model, ask, window.asked, world.generation());
    if ask.render_only {
        return Ok(respond::body(route.content_type(false), wire.rendered(&rendered.text, rendered.images.len())));
    }
    if let Think::Level(level) = &ask.think {
        let message = format!("think value \"{level}\" is not supported for this model");
        return Err(Refusal::handler(StatusCode::BAD_REQUEST, message));
    }
    let mut prompt = tokens(model, &rendered, world.generation());
    // What `/api/generate` gives back as context was never cut.
    let tells_context = matches!(&ask.prompt, Prompt::Generate(generate) if !generate.raw);
    let context = tells_context.then(|| prompt.clone());
    let cut = window.cut(&mut prompt, world.config.flavour, ask.refuse_overflow)?;
    if cut || rendered.lost_messages {
        world.ledger.truncations.fetch_add(1, Ordering::Relaxed);
    }
    let watch = world.ledger.watch();
    let evaluated = world.evaluate(index, &prompt) as u64;
    let room = ask.stop_at_window.then(|| window.loaded.saturating_sub(prompt.len() as u32) + 1);
    let limit = limit.filter(|limit| *limit > 0).map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
    let length = Length { natural: world.config.answer_tokens, limit: limit.into_iter().chain(room).min() };
    let answer = compose(model, ask, &prompt, thinks, length);
    let totals = Totals {
        context: context.map(|before| [&before, answer.ids.as_slice()].concat()),
        ..totals(world, prompt.len(), &answer, evaluated, fault.as_ref())
    };
    if ask.unload {
        world.unload(index);
    }
    Ok(deliver(world, route, ask.stream, wire, answer, totals, evaluated, watch, fault).await)
}

fn find(world: &World, ask: &Ask) -> Result<usize, Refusal> {
    if ask.model.is_empty() && matches!(ask.prompt, Prompt::Chat(_)) {
        return Err(Refusal::handler(StatusCode::BAD_REQUEST, "model is required"));
    }
    world
        .find(&ask.model)
        .ok_or_else(|| Refusal::handler(StatusCode::NOT_FOUND, format!("model '{}' not found", ask.model)))
}

/// Refuses what the model cannot do; tells whether it will think.
fn check_abilities(model: &SimModel, ask: &Ask) -> Result<bool, Refusal> {
    let bad = |message: String| Err(Refusal::handler(StatusCode::BAD_REQUEST, message));
    let full_name = format!("registry.ollama.ai/library/{}", model.tagged_name());
    if let Prompt::Generate(generate) = &ask.prompt {
        if generate.raw && (!generate.system.is_empty() || generate.context.as_ref().is_some_and(|ids| !ids.is_empty()))
        {
            return bad("raw mode does not support template, system, or context".to_owned());
        }
        if !generate.suffix.is_empty() {
            return bad(format!("{full_name} does not support insert"));
        }
    }
    if !ask.tools.is_empty() && !model.tools {
        return bad(format!("{full_name} does not support tools"));
    }
    match ask.think {
        Think::On | Think::Level(_) if !model.thinking => bad(format!("\"{}\" does not support thinking", ask.model)),
        Think::Off => Ok(false),
        Think::Unset | Think::On | Think::OnIfAble | Think::Level(_) => Ok(model.thinking),
    }
}

/// The answer to a request that only loads or unloads. Native routes never stream it.
fn without_words(route: Route, mut wire: Box<dyn Wire>, stream: bool, reason: &'static str) -> Response<Body> {
    let totals = Totals { reason, ..Totals::default() };
    if stream && !route.is_native() {
        let text = wire.open() + &wire.close(&totals);
        return respond::body(route.content_type(true), text);
    }
    respond::body(route.content_type(false), wire.whole(&[], &totals))
}

fn totals(world: &World, prompt_tokens: usize, answer: &Answer, evaluated: u64, fault: Option<&Fault>) -> Totals {
    let ns = |us_per_token: u64| if us_per_token == 0 { NOMINAL_NS_PER_TOKEN } else { us_per_token * 1_000 };
    let off_by = if let Some(Fault::WrongCount(off_by)) = fault { *off_by } else { 0 };
    let answer_tokens = answer.tokens();
    // The first token comes out of the prompt's evaluation, and 0.17 counts no time for it.
    let timed_tokens = match world.config.flavour {
        Flavour::V0_17 => answer_tokens.saturating_sub(1),
        Flavour::V0_33 => answer_tokens,
    };
    Totals {
        reason: answer.reason,
        prompt_tokens: prompt_tokens as i64 + off_by,
        answer_tokens,
        load_ns: NOMINAL_LOAD_NS,
        prompt_ns: evaluated * ns(world.config.prefill_us_per_token),
        answer_ns: timed_tokens * ns(world.config.decode_us_per_token),
        context: None,
    }
}

#[allow(clippy::too_many_arguments)] // Each is one thing that a delivery needs, and it is called once.
async fn deliver(
    world: &World,
    route: Route,
    stream: bool,
    mut wire: Box<dyn Wire>,
    answer: Answer,
    totals: Totals,
    evaluated: u64,
    mut watch: Watch,
    fault: Option<Fault>,
) -> Response<Body> {
    pause(evaluated * world.config.prefill_us_per_token).await;
    if stream {
        let per_piece = Duration::from_micros(world.config.decode_us_per_token);
        let delivery = Delivery::new(wire, answer.pieces, totals, watch, fault, per_piece);
        return respond::stream(route, delivery);
    }
    pause(totals.answer_tokens * world.config.decode_us_per_token).await;
    watch.finish();
    respond::whole(route, wire.whole(&answer.pieces, &totals), fault.as_ref(), world.config.flavour)
}

async fn pause(us: u64) {
    if us > 0 {
        tokio::time::sleep(Duration::from_micros(us)).await;
    }
}
