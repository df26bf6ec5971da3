//! How many tokens a request's prompt will have.
//!
//! In order of preference: composed from what was learnt of the template and counted with the model's
//! vocabulary (`exact`, and free of calls); rendered by the upstream and counted (`exact`, one short
//! call); the texts counted and an overhead added (`calibrated`); another vocabulary (`estimated`).

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, PoisonError};

use aho_corasick::AhoCorasick;

use super::client::Upstream;
use super::models::Model;
use super::render::{Rendering, render};
use crate::context::{Basis, Message, Role, Tokens};
use crate::dialect::{Generate, Prompt, Request};
use crate::tokenize::inner::{Inner, SHORTEST_INNER};
use crate::tokenize::template::{Counted, Facts, Learnt, Shape, Slot, digest, text_hash};
use crate::tokenize::{Generation, Tokenizer, fallback};

/// What Ollama reckons an image at.
pub const TOKENS_PER_IMAGE: Tokens = 768;

/// What a template adds for a message, until a reported count says otherwise. Meant to be too high.
pub(super) const DEFAULT_OVERHEAD_PER_MESSAGE: u32 = 8;

/// What a template adds once: a default system prompt, the opening of the answer.
const OVERHEAD_ONCE: u32 = 16;

/// More text than this is not worked on where other requests wait.
const LARGE_BYTES: usize = 256 << 10;

/// Does work that takes longer than a request should hold up others.
pub fn off_the_worker<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let several_workers = tokio::runtime::Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread);
    if bytes > LARGE_BYTES && several_workers { tokio::task::block_in_place(work) } else { work() }
}

/// A count, and how it came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub tokens: Tokens,
    pub basis: Basis,
    /// The counts under both generations of llama.cpp, while it is not known which one this is.
    by_generation: Option<ByGeneration>,
    messages: u32,
    /// The upstream did not want to render this very request, and will not want to answer it.
    pub objected: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ByGeneration {
    earlier: Tokens,
    later: Tokens,
}

impl Count {
    fn new(tokens: Tokens, basis: Basis) -> Self {
        Self { tokens, basis, by_generation: None, messages: 0, objected: false }
    }
}

/// Counts a request's prompt.
pub async fn count(upstream: &Upstream, model: &Model, request: &Request<'_>) -> Count {
    let mut count = match &model.tokenizer {
        Err(_) => estimated(upstream, model, request).await,
        Ok(tokenizer) => match &request.prompt {
            Prompt::Generate(generate) if generate.raw => {
                text_count(model, tokenizer, &generate.prompt, seen(model, generate.images))
            }
            Prompt::Chat(_) | Prompt::Generate(_) => prompt_count(upstream, model, tokenizer, request).await,
        },
    };
    let images = request.prompt.images();
    if images > 0 {
        count.tokens = count.tokens.saturating_add(seen(model, images).saturating_mul(TOKENS_PER_IMAGE));
        count.basis = count.basis.max(Basis::Calibrated);
        count.by_generation = None;
        // What an image really costs says nothing about the text around it.
        count.messages = 0;
    }
    if request.approximate {
        count.basis = count.basis.max(Basis::Calibrated);
    }
    if count.basis == Basis::Exact && model.exactness_lost.load(Ordering::Relaxed) {
        let permille = model.shortfall_permille.load(Ordering::Relaxed);
        count.basis = Basis::Calibrated;
        count.tokens =
            count.tokens.saturating_add((u64::from(count.tokens) * u64::from(permille)).div_ceil(1000) as u32);
    }
    count
}

/// How many of the images the model will look at: all of them or none.
pub fn seen(model: &Model, images: u32) -> u32 {
    if model.sees_pictures() { images } else { 0 }
}

/// Compares a prediction with what the upstream reports, and learns from a difference.
///
/// Only for prompts that were read whole: what the upstream has cut says nothing about counting.
pub fn learn_from_report(model: &Model, predicted: Count, reported: Tokens) {
    if let Some(ByGeneration { earlier, later }) = predicted.by_generation {
        if reported == earlier {
            model.traits.learn_generation(Generation::Earlier);
        } else if reported == later {
            model.traits.learn_generation(Generation::Later);
        }
        return;
    }
    if predicted.tokens == reported {
        return;
    }
    match predicted.basis {
        Basis::Exact => {
            tracing::warn!(
                model = model.name,
                predicted = predicted.tokens,
                reported,
                "count differs: the template is learnt again"
            );
            model.layout.write().unwrap_or_else(PoisonError::into_inner).forget();
            let short = u64::from(reported.saturating_sub(predicted.tokens)) * 1000;
            let permille = short.div_ceil(u64::from(predicted.tokens.max(1))).min(500) as u32;
            model.shortfall_permille.fetch_max(permille, Ordering::Relaxed);
            // Learnt afresh and wrong once more: then it is not the template, and nothing here is exact.
            if model.exact_mismatches.fetch_add(1, Ordering::Relaxed) > 0 {
                model.exactness_lost.store(true, Ordering::Relaxed);
            }
        }
        Basis::Calibrated if predicted.messages > 0 => {
            let overhead = model.overhead_per_message.load(Ordering::Relaxed);
            let difference = i64::from(reported) - i64::from(predicted.tokens);
            let adjusted = if difference > 0 {
                // Too low is the dangerous side: make it up at once, and then some.
                i64::from(overhead) + difference.div_euclid(i64::from(predicted.messages)) + 2
            } else {
                // Too high is only wasteful: come down slowly.
                i64::from(overhead) - i64::from(-difference > 2 * i64::from(predicted.messages))
            };
            model.overhead_per_message.store(adjusted.clamp(2, 4096) as u32, Ordering::Relaxed);
        }
        Basis::Calibrated | Basis::Estimated => {}
    }
}

/// About how many tokens a text is by itself, for choosing what to leave out.
pub fn rough_size(model: &Model, text: &str) -> Tokens {
    match &model.tokenizer {
        Ok(tokenizer) => tokenizer.count(text, Generation::default()).tokens,
        Err(_) => fallback::estimate(text),
    }
}

/// Makes the upstream load the model as this request would, so that its window can be looked up.
pub async fn load(upstream: &Upstream, request: &Request<'_>) {
    let _only_loading_matters = render(upstream, request, None).await;
}

async fn prompt_count(upstream: &Upstream, model: &Model, tokenizer: &Tokenizer, request: &Request<'_>) -> Count {
    let shape = shape(request);
    let unread = unread_bytes(request);
    let composable = !model.knows_as_unlearnable(shape.digest());
    if composable && let Some(count) = composed_count(model, tokenizer, &shape, unread) {
        return count;
    }
    if model.shows_no_renderings.load(Ordering::Relaxed) {
        return calibrated(model, tokenizer, request);
    }
    if composable {
        let _one_at_a_time = model.learning.lock().await;
        // Somebody else may have learnt it meanwhile.
        if let Some(count) = composed_count(model, tokenizer, &shape, unread) {
            return count;
        }
        learn(upstream, model, tokenizer, request, &shape).await;
    }
    // The first prompt of its shape, or one of a shape that cannot be composed: the rendering itself.
    match render(upstream, request, None).await {
        Rendering::Text(text) => {
            if composable {
                verify(model, &shape, &text);
            }
            text_count(model, tokenizer, &text, seen(model, request.prompt.images()))
        }
        Rendering::NotSupported => {
            tracing::warn!(model = model.name, "this upstream shows no renderings: counts will be calibrated");
            model.shows_no_renderings.store(true, Ordering::Relaxed);
            calibrated(model, tokenizer, request)
        }
        Rendering::Refused => Count { objected: true, ..calibrated(model, tokenizer, request) },
    }
}

/// Learns the gaps of a shape from a rendering of markers.
async fn learn(upstream: &Upstream, model: &Model, tokenizer: &Tokenizer, request: &Request<'_>, shape: &Shape<'_>) {
    let Rendering::Text(rendered) = render(upstream, request, Some(&shape.markers())).await else { return };
    let generation = model.traits.generation().unwrap_or_default();
    match Learnt::read(shape, &rendered, tokenizer, generation) {
        Some(learnt) => model.layout.write().unwrap_or_else(PoisonError::into_inner).add(learnt),
        None => model.remember_unlearnable(shape.digest()),
    }
}

/// Compares what was just learnt with the real rendering of the same request. What does not agree is forgotten.
fn verify(model: &Model, shape: &Shape<'_>, rendered: &str) {
    let composed = model.layout.read().unwrap_or_else(PoisonError::into_inner).compose(shape);
    let generally = model.layout.read().unwrap_or_else(PoisonError::into_inner).compose_generally(shape);
    if generally.is_some_and(|composed| composed.text() != rendered) {
        model.layout.write().unwrap_or_else(PoisonError::into_inner).forget_general(shape);
    }
    if composed.is_some_and(|composed| composed.text() != rendered) {
        tracing::info!(
            model = model.name,
            "a shape of conversation cannot be composed: the upstream renders it each time"
        );
        model.layout.write().unwrap_or_else(PoisonError::into_inner).forget_shape(shape);
        model.remember_unlearnable(shape.digest());
    }
}

/// `unread` are the bytes that may have to be counted; the rest is known.
fn composed_count(model: &Model, tokenizer: &Tokenizer, shape: &Shape<'_>, unread: usize) -> Option<Count> {
    let composed = model.layout.read().unwrap_or_else(PoisonError::into_inner).compose(shape)?;
    let generation = model.traits.generation();
    let Counted { tokens, ambiguous } =
        off_the_worker(unread, || composed.count(tokenizer, generation.unwrap_or_default(), &model.segments));
    if ambiguous && generation.is_none() {
        return Some(text_count(model, tokenizer, &composed.text(), 0));
    }
    Some(Count::new(tokens, Basis::Exact))
}

/// Counts a whole rendered prompt.
fn text_count(model: &Model, tokenizer: &Tokenizer, text: &str, images: u32) -> Count {
    let generation = model.traits.generation();
    let text = without_image_tags(text, images);
    let counted = off_the_worker(text.len(), || tokenizer.count_prompt(&text, generation.unwrap_or_default()));
    let (None, Some(earlier)) = (generation, counted.other_generation) else {
        return Count::new(counted.tokens, Basis::Exact);
    };
    // Until it is known which generation this is, the larger of the two is the safe one.
    let later = counted.tokens;
    let by_generation = Some(ByGeneration { earlier, later });
    Count { by_generation, ..Count::new(earlier.max(later), Basis::Calibrated) }
}

/// The tags that stand for the images of a request are taken out before the text is read. The same tag
/// without an image is text like any other.
fn without_image_tags(text: &str, images: u32) -> Cow<'_, str> {
    if images == 0 || !text.contains("[img-") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("[img-") {
        let after = &rest[at + 5..];
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let stands_for_an_image = after[..digits].parse::<u32>().is_ok_and(|number| number < images);
        out.push_str(&rest[..at]);
        if stands_for_an_image && after[digits..].starts_with(']') {
            rest = &after[digits + 1..];
        } else {
            out.push_str("[img-");
            rest = after;
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn calibrated(model: &Model, tokenizer: &Tokenizer, request: &Request<'_>) -> Count {
    let overhead = model.overhead_per_message.load(Ordering::Relaxed);
    let Texts { texts, messages, tokens_before } = texts(request);
    let tokens = texts
        .iter()
        .fold(tokens_before, |sum, text| sum.saturating_add(tokenizer.count(text, Generation::default()).tokens));
    let fixed = OVERHEAD_ONCE + tokenizer.ends();
    let total = tokens.saturating_add(overhead.saturating_mul(messages)).saturating_add(fixed);
    Count { messages, ..Count::new(total, Basis::Calibrated) }
}

/// Without a vocabulary the rendering can still be had, and estimated as a whole.
async fn estimated(upstream: &Upstream, model: &Model, request: &Request<'_>) -> Count {
    if !model.shows_no_renderings.load(Ordering::Relaxed)
        && let Rendering::Text(text) = render(upstream, request, None).await
    {
        return Count::new(
            off_the_worker(text.len(), || fallback::estimate(&without_image_tags(&text, request.prompt.images()))),
            Basis::Estimated,
        );
    }
    let Texts { texts, messages, tokens_before } = texts(request);
    let bytes = texts.iter().map(|text| text.len()).sum();
    let tokens = off_the_worker(bytes, || {
        texts.iter().fold(tokens_before, |sum, text| sum.saturating_add(fallback::estimate(text)))
    });
    let overhead = DEFAULT_OVERHEAD_PER_MESSAGE.saturating_mul(messages).saturating_add(OVERHEAD_ONCE);
    Count::new(tokens.saturating_add(overhead), Basis::Estimated)
}

/// Bytes of a prompt that nobody has looked at before.
fn unread_bytes(request: &Request<'_>) -> usize {
    match &request.prompt {
        Prompt::Chat(messages) => messages.iter().skip(request.facts.len()).map(|message| message.text.len()).sum(),
        Prompt::Generate(generate) => generate.prompt.len(),
    }
}

struct Texts<'p> {
    texts: Vec<&'p str>,
    messages: u32,
    /// Tokens that are not texts: those of an earlier answer.
    tokens_before: Tokens,
}

/// Every text that a prompt is made of, tools included.
fn texts<'p>(request: &'p Request<'_>) -> Texts<'p> {
    let tools = request.render_with.iter().filter(|(name, _)| *name == "tools").map(|(_, tools)| tools.as_ref());
    let mut texts: Vec<&str> = tools.collect();
    match &request.prompt {
        Prompt::Chat(messages) => {
            for message in messages {
                texts.extend([message.text.as_ref(), message.thinking.as_ref()]);
                for call in &message.tool_calls {
                    texts.extend([call.name.as_ref(), call.arguments.as_ref()]);
                }
            }
            Texts { texts, messages: messages.len() as u32, tokens_before: 0 }
        }
        Prompt::Generate(generate) => {
            let parts = [Some(&generate.prompt), generate.system.as_ref(), generate.suffix.as_ref()];
            texts.extend(parts.into_iter().flatten().map(AsRef::as_ref));
            Texts { texts, messages: 2, tokens_before: generate.context.unwrap_or(0) as Tokens }
        }
    }
}

/// The request as slots for the template to fill.
pub fn shape<'a>(request: &'a Request<'_>) -> Shape<'a> {
    let relevant: Vec<_> = request
        .render_with
        .iter()
        .filter(|(name, _)| matches!(*name, "tools" | "think" | "template" | "context"))
        .collect();
    match &request.prompt {
        Prompt::Chat(messages) => {
            let slots = messages.iter().enumerate().map(|(number, message)| {
                slot(message, request.facts.get(number).copied().unwrap_or_else(|| facts(message)))
            });
            Shape::new(slots.collect(), digest(("chat", relevant)))
        }
        Prompt::Generate(generate) => {
            Shape::new(generate_slots(generate), digest(("generate", relevant, generate.images)))
        }
    }
}

/// Marks in a text that make Ollama, or one of its renderers, treat it differently.
const LOOKED_INTO: [&str; 6] = ["<think>", "</think>", "<tool_response>", "[img]", "/nothink", "/no_think"];

fn is_looked_into(text: &str) -> bool {
    // All at once. None: the marks themselves were wrong, which they are not.
    static MARKS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| AhoCorasick::new(LOOKED_INTO).ok());
    MARKS.as_ref().is_none_or(|marks| marks.is_match(text))
}

/// What counting has to know of a message. It depends on the message alone, so it can be kept.
pub fn facts(message: &Message<'_>) -> Facts {
    let text = message.text.as_ref();
    // A tool call, thinking, or no text at all: what is rendered is not just the text in its place. The
    // same goes for texts that Ollama itself looks into.
    let opaque = !message.tool_calls.is_empty()
        || !message.thinking.is_empty()
        || text.trim().is_empty()
        || is_looked_into(text);
    let mut general = digest((message.role.name(), message.images, &message.tool_name));
    let mut class = message.tool_call_id.as_ref().map_or(general, |id| digest((general, id)));
    if opaque {
        let calls: Vec<_> = message.tool_calls.iter().map(|call| (&call.id, &call.name, &call.arguments)).collect();
        class = digest((class, text, &message.thinking, calls));
        general = within(message).map_or(class, |within| digest((general, within.class)));
    }
    Facts { class, general, opaque, text_hash: text_hash(text) }
}

/// What is in a message with calls, apart from how the calls are.
struct Within {
    inner: Vec<Inner>,
    /// The names of the calls, and what is too short to be told apart.
    class: u64,
}

/// Takes a message with calls apart: thinking, content and arguments, in the order in which templates write them.
/// `None` if it makes no calls, or if it is not certain how Go would write their arguments.
fn within(message: &Message<'_>) -> Option<Within> {
    if message.tool_calls.is_empty() || is_looked_into(&message.text) || is_looked_into(&message.thinking) {
        return None;
    }
    let mut inner = Vec::new();
    let mut class = digest("calls");
    for text in [&message.thinking, &message.text] {
        // Words may stand in a template as well, sentences hardly.
        if text.len() < 4 * SHORTEST_INNER {
            class = digest((class, text));
        } else {
            class = digest((class, true));
            inner.push(Inner { as_written: text.to_string(), sorted: None, optional: true });
        }
    }
    for call in &message.tool_calls {
        let value: serde_json::Value = serde_json::from_str(&call.arguments).ok()?;
        if !is_written_alike(&value) {
            return None;
        }
        let as_written = value.to_string();
        let mut in_order = value;
        in_order.sort_all_objects();
        let sorted = Some(in_order.to_string()).filter(|sorted| *sorted != as_written);
        if as_written.len() < SHORTEST_INNER {
            class = digest((class, &call.name, as_written));
        } else {
            class = digest((class, &call.name, sorted.is_some()));
            inner.push(Inner { as_written, sorted, optional: false });
        }
    }
    Some(Within { inner, class })
}

/// Whether Go writes a value as serde_json does: no characters that it escapes for HTML's sake, no fractions.
fn is_written_alike(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    let plain = |text: &str| {
        !text.chars().any(|character| {
            character.is_control() && character != '\n' && character != '\t' && character != '\r'
                || matches!(character, '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\u{fffd}')
        })
    };
    match value {
        Value::Null | Value::Bool(_) => true,
        // Go reads numbers as floats, and writes large ones otherwise.
        Value::Number(number) => number.as_i64().is_some_and(|number| number.unsigned_abs() < 1 << 50),
        Value::String(text) => plain(text),
        Value::Array(items) => items.iter().all(is_written_alike),
        Value::Object(fields) => fields.iter().all(|(name, value)| plain(name) && is_written_alike(value)),
    }
}

fn slot<'a>(message: &'a Message<'_>, facts: Facts) -> Slot<'a> {
    let Facts { class, general, opaque, text_hash } = facts;
    let ids = message.tool_calls.iter().map(|call| call.id.as_ref()).chain(message.tool_call_id.as_deref());
    Slot {
        class,
        general,
        inner: if general == class { Vec::new() } else { within(message).map_or_else(Vec::new, |within| within.inner) },
        ids: ids.filter(|id| !id.is_empty()).collect(),
        text: Cow::Borrowed(message.text.as_ref()),
        text_hash,
        system: message.role == Role::System,
        user: message.role == Role::User,
        role: digest(message.role.name()),
        opaque,
    }
}

fn generate_slots<'a>(generate: &'a Generate<'_>) -> Vec<Slot<'a>> {
    let slot = |name: &str, text: &'a str| Slot {
        class: digest(name),
        general: digest(name),
        inner: Vec::new(),
        ids: Vec::new(),
        text: Cow::Borrowed(text),
        text_hash: text_hash(text),
        system: name == "system",
        user: name == "prompt",
        role: digest(name),
        opaque: text.trim().is_empty(),
    };
    let parts = [
        ("system", generate.system.as_deref()),
        ("prompt", Some(generate.prompt.as_ref())),
        ("suffix", generate.suffix.as_deref()),
    ];
    parts.into_iter().filter_map(|(name, text)| Some(slot(name, text?))).collect()
}
