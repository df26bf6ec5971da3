//! How many tokens a request's prompt will have.
//!
//! In order of preference: composed from what was learnt of the template and counted with the model's
//! vocabulary (`exact`, and free of calls); rendered by the upstream and counted (`exact`, one short
//! call); the texts counted and an overhead added (`calibrated`); another vocabulary (`estimated`).

use std::borrow::Cow;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::client::Upstream;
use super::models::Model;
use super::render::{Rendering, render};
use crate::context::{Basis, Message, Role, Tokens};
use crate::dialect::{Generate, Prompt, Request};
use crate::tokenize::template::{Counted, Shape, Slot, digest};
use crate::tokenize::{Generation, Tokenizer, fallback};

/// What Ollama reckons an image at.
pub const TOKENS_PER_IMAGE: Tokens = 768;

/// What a template adds for a message, until a reported count says otherwise. Meant to be too high.
pub(super) const DEFAULT_OVERHEAD_PER_MESSAGE: u32 = 8;

/// What a template adds once: a default system prompt, the opening of the answer.
const OVERHEAD_ONCE: u32 = 16;

/// A count, and how it came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub tokens: Tokens,
    pub basis: Basis,
    /// The counts under both generations of llama.cpp, while it is not known which one this is.
    by_generation: Option<ByGeneration>,
    messages: u32,
    composed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ByGeneration {
    earlier: Tokens,
    later: Tokens,
}

impl Count {
    fn new(tokens: Tokens, basis: Basis) -> Self {
        Self { tokens, basis, by_generation: None, messages: 0, composed: false }
    }
}

/// Counts a request's prompt.
pub async fn count(upstream: &Upstream, model: &Model, request: &Request<'_>) -> Count {
    let images = request.prompt.images() * TOKENS_PER_IMAGE;
    let mut count = match &model.tokenizer {
        Err(_) => Count::new(estimate(&request.prompt), Basis::Estimated),
        Ok(tokenizer) => match &request.prompt {
            Prompt::Generate(generate) if generate.raw => text_count(model, tokenizer, &generate.prompt),
            Prompt::Chat(_) | Prompt::Generate(_) => prompt_count(upstream, model, tokenizer, request).await,
        },
    };
    if images > 0 {
        count.tokens += images;
        count.basis = count.basis.max(Basis::Calibrated);
        count.by_generation = None;
    }
    count
}

/// Compares a prediction with what the upstream reports, and learns from a difference.
pub fn observe(model: &Model, predicted: Count, reported: Tokens) {
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
            model.composing_verified.store(false, Ordering::Relaxed);
            // Composed once more and wrong once more: then this template is beyond composing.
            if predicted.composed && reported > predicted.tokens {
                model.composing_fails.store(true, Ordering::Relaxed);
            }
        }
        Basis::Calibrated if predicted.messages > 0 => {
            let overhead = model.overhead_per_message.load(Ordering::Relaxed);
            let difference = i64::from(reported) - i64::from(predicted.tokens);
            let per_message = difference.div_euclid(i64::from(predicted.messages)) + i64::from(difference > 0);
            let adjusted = (i64::from(overhead) + per_message).clamp(0, 4096) as u32;
            model.overhead_per_message.store(adjusted, Ordering::Relaxed);
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

async fn prompt_count(upstream: &Upstream, model: &Model, tokenizer: &Tokenizer, request: &Request<'_>) -> Count {
    let shape = shape(request);
    if !model.composing_fails.load(Ordering::Relaxed)
        && model.composing_verified.load(Ordering::Relaxed)
        && let Some(count) = composed_count(model, tokenizer, &shape)
    {
        return count;
    }
    if model.traits.shows_no_renderings.load(Ordering::Relaxed) {
        return calibrated(model, tokenizer, &request.prompt);
    }
    let _one_at_a_time = model.learning.lock().await;
    if !model.composing_fails.load(Ordering::Relaxed) {
        if !learn(upstream, model, tokenizer, request, &shape).await {
            model.composing_fails.store(true, Ordering::Relaxed);
        } else if model.composing_verified.load(Ordering::Relaxed)
            && let Some(count) = composed_count(model, tokenizer, &shape)
        {
            return count;
        }
    }
    // The first prompt of a model, or one whose template cannot be composed: the rendering itself.
    match render(upstream, request, None).await {
        Rendering::Text(text) => {
            if !model.composing_fails.load(Ordering::Relaxed) {
                verify(model, &shape, &text);
            }
            text_count(model, tokenizer, &text)
        }
        Rendering::NotSupported => {
            model.traits.shows_no_renderings.store(true, Ordering::Relaxed);
            calibrated(model, tokenizer, &request.prompt)
        }
        Rendering::Refused => calibrated(model, tokenizer, &request.prompt),
    }
}

/// Learns the gaps of a shape that are not known yet. `false` only if the template defies learning.
async fn learn(
    upstream: &Upstream,
    model: &Model,
    tokenizer: &Tokenizer,
    request: &Request<'_>,
    shape: &Shape<'_>,
) -> bool {
    if model.layout.read().unwrap_or_else(PoisonError::into_inner).knows(shape) {
        return true;
    }
    let markers = shape.markers();
    match render(upstream, request, Some(&markers)).await {
        Rendering::Text(rendered) => {
            let generation = model.traits.generation().unwrap_or_default();
            model.layout.write().unwrap_or_else(PoisonError::into_inner).learn(shape, &rendered, tokenizer, generation)
        }
        Rendering::NotSupported => {
            model.traits.shows_no_renderings.store(true, Ordering::Relaxed);
            true
        }
        Rendering::Refused => true,
    }
}

/// Compares a composed prompt with the real rendering of the same request.
fn verify(model: &Model, shape: &Shape<'_>, rendered: &str) {
    let layout = model.layout.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(composed) = layout.compose(shape) {
        let same = composed.text() == rendered;
        model.composing_verified.store(same, Ordering::Relaxed);
        model.composing_fails.store(!same, Ordering::Relaxed);
        if !same {
            tracing::info!(model = model.name, "this template cannot be composed: the upstream renders every prompt");
        }
    }
}

fn composed_count(model: &Model, tokenizer: &Tokenizer, shape: &Shape<'_>) -> Option<Count> {
    let layout = model.layout.read().unwrap_or_else(PoisonError::into_inner);
    let composed = layout.compose(shape)?;
    let generation = model.traits.generation();
    let Counted { tokens, ambiguous } = composed.count(tokenizer, generation.unwrap_or_default(), &model.segments);
    if ambiguous && generation.is_none() {
        let mut count = text_count(model, tokenizer, &composed.text());
        count.composed = true;
        return Some(count);
    }
    Some(Count { composed: true, ..Count::new(tokens, Basis::Exact) })
}

/// Counts a whole rendered prompt.
fn text_count(model: &Model, tokenizer: &Tokenizer, text: &str) -> Count {
    let generation = model.traits.generation();
    let text = without_image_tags(text);
    let counted = tokenizer.count_prompt(&text, generation.unwrap_or_default());
    let (None, Some(earlier)) = (generation, counted.other_generation) else {
        return Count::new(counted.tokens, Basis::Exact);
    };
    // Until it is known which generation this is, the larger of the two is the safe one.
    let later = counted.tokens;
    let by_generation = Some(ByGeneration { earlier, later });
    Count { by_generation, ..Count::new(earlier.max(later), Basis::Calibrated) }
}

/// The tags that stand for images are taken out before the text is read.
fn without_image_tags(text: &str) -> Cow<'_, str> {
    if !text.contains("[img-") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("[img-") {
        let after = &rest[at + 5..];
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        out.push_str(&rest[..at]);
        if digits > 0 && after[digits..].starts_with(']') {
            rest = &after[digits + 1..];
        } else {
            out.push_str("[img-");
            rest = after;
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn calibrated(model: &Model, tokenizer: &Tokenizer, prompt: &Prompt<'_>) -> Count {
    let overhead = model.overhead_per_message.load(Ordering::Relaxed);
    let (texts, messages) = texts(prompt);
    let tokens: u32 = texts.iter().map(|text| tokenizer.count(text, Generation::default()).tokens).sum();
    let total = tokens + overhead * messages + OVERHEAD_ONCE + tokenizer.ends();
    Count { messages, ..Count::new(total, Basis::Calibrated) }
}

fn estimate(prompt: &Prompt<'_>) -> Tokens {
    let (texts, messages) = texts(prompt);
    texts.iter().map(|text| fallback::estimate(text)).sum::<u32>()
        + DEFAULT_OVERHEAD_PER_MESSAGE * messages
        + OVERHEAD_ONCE
}

/// Every text of a prompt, and how many messages they make.
fn texts<'p>(prompt: &'p Prompt<'_>) -> (Vec<&'p str>, u32) {
    match prompt {
        Prompt::Chat(messages) => {
            let mut texts = Vec::with_capacity(messages.len());
            for message in messages {
                texts.extend([message.text.as_ref(), message.thinking.as_ref()]);
                for call in &message.tool_calls {
                    texts.extend([call.name.as_ref(), call.arguments.as_ref()]);
                }
            }
            (texts, messages.len() as u32)
        }
        Prompt::Generate(generate) => {
            let parts = [Some(&generate.prompt), generate.system.as_ref(), generate.suffix.as_ref()];
            (parts.into_iter().flatten().map(AsRef::as_ref).collect(), 2)
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
        Prompt::Chat(messages) => Shape::new(messages.iter().map(slot).collect(), digest(("chat", relevant))),
        Prompt::Generate(generate) => {
            Shape::new(generate_slots(generate), digest(("generate", relevant, generate.images)))
        }
    }
}

fn slot<'a>(message: &'a Message<'_>) -> Slot<'a> {
    let text = message.text.as_ref();
    // A tool call, thinking, or no text at all: what is rendered is not just the text in its place.
    let opaque = !message.tool_calls.is_empty()
        || !message.thinking.is_empty()
        || text.is_empty()
        || (message.role == Role::Assistant && text.contains("<think>"))
        || text.contains("[img]");
    let mut class = digest((message.role.name(), message.images, &message.tool_name, &message.tool_call_id));
    if opaque {
        let calls: Vec<_> = message.tool_calls.iter().map(|call| (&call.id, &call.name, &call.arguments)).collect();
        class = digest((class, text, &message.thinking, calls));
    }
    Slot {
        class,
        text: Cow::Borrowed(text),
        system: message.role == Role::System,
        user: message.role == Role::User,
        opaque,
    }
}

fn generate_slots<'a>(generate: &'a Generate<'_>) -> Vec<Slot<'a>> {
    let slot = |name: &str, text: &'a str| Slot {
        class: digest(name),
        text: Cow::Borrowed(text),
        system: name == "system",
        user: name == "prompt",
        opaque: text.is_empty(),
    };
    let parts = [
        ("system", generate.system.as_deref()),
        ("prompt", Some(generate.prompt.as_ref())),
        ("suffix", generate.suffix.as_deref()),
    ];
    parts.into_iter().filter_map(|(name, text)| Some(slot(name, text?))).collect()
}
