//! From a request to the prompt that the runner gets: the Modelfile's additions, and the messages that fit.
//!
//! Ollama drops messages from the front until the rendering fits the asked window; it keeps every system
//! message and the last message, whatever their size. It tries one drop after the other. Dropping more
//! never makes a prompt longer, so a binary search gives the same result without the quadratic time.

use super::SimModel;
use super::chatml::render;
use super::request::{Ask, Generate, Message, Prompt};
use super::tools::Tool;
use crate::tokenize::Generation;

/// What an image costs in the window.
const IMAGE_TOKENS: usize = 768;

/// A rendered prompt, with the images that its `[img-N]` tags stand for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Rendered {
    pub(super) text: String,
    pub(super) images: Vec<u32>,
    /// Tokens given by the client to stand before the text.
    pub(super) context: Vec<u32>,
    pub(super) lost_messages: bool,
}

/// Renders a request. `asked_window` is the window before any clamping: Ollama truncates by that.
pub(super) fn prepare(model: &SimModel, ask: &Ask, asked_window: i64, generation: Generation) -> Rendered {
    let (messages, context) = match &ask.prompt {
        Prompt::Generate(generate) if generate.raw => return raw(generate),
        Prompt::Generate(generate) => {
            (generate_messages(model, generate), generate.context.clone().unwrap_or_default())
        }
        Prompt::Chat(messages) => (chat_messages(model, messages), Vec::new()),
    };
    let drop = if ask.refuse_overflow { 0 } else { first_fit(model, &messages, &ask.tools, asked_window, generation) };
    let mut rendered = render_from(model, &messages, &ask.tools, drop);
    rendered.context = context;
    // System messages are kept even when they are passed over.
    rendered.lost_messages = messages[..drop].iter().any(|message| message.role != "system");
    rendered
}

/// The token ids of a prompt, as the runner sees it: BOS included, images as their tokens.
pub(super) fn tokens(model: &SimModel, rendered: &Rendered, generation: Generation) -> Vec<u32> {
    let encode = |text: &str| model.tokenizer.encode(text, generation);
    let mut ids;
    if model.vision && !rendered.images.is_empty() {
        ids = tokens_with_images(model, rendered, generation);
    } else {
        ids = encode(&rendered.text);
    }
    if !rendered.context.is_empty() {
        ids.splice(0..0, rendered.context.iter().copied());
    }
    ids
}

fn tokens_with_images(model: &SimModel, rendered: &Rendered, generation: Generation) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut rest = rendered.text.as_str();
    for (index, image) in rendered.images.iter().enumerate() {
        let tag = format!("[img-{index}]");
        let Some((before, after)) = rest.split_once(&tag) else { continue };
        append(model, before, generation, &mut ids);
        ids.extend(std::iter::repeat_n(*image, IMAGE_TOKENS));
        rest = after;
    }
    append(model, rest, generation, &mut ids);
    ids
}

/// Encodes a piece of a prompt; only the first piece has a BOS.
fn append(model: &SimModel, text: &str, generation: Generation, ids: &mut Vec<u32>) {
    let piece = model.tokenizer.encode(text, generation);
    let has_bos = model.vocabulary.add_bos && model.vocabulary.bos.is_some();
    let skip = usize::from(has_bos && !ids.is_empty()).min(piece.len());
    ids.extend_from_slice(&piece[skip..]);
}

fn raw(generate: &Generate) -> Rendered {
    Rendered { text: generate.prompt.clone(), images: generate.images.clone(), ..Rendered::default() }
}

/// The Modelfile's `MESSAGE`s come first; its `SYSTEM` before them, unless the request begins with its own.
fn chat_messages(model: &SimModel, asked: &[Message]) -> Vec<Message> {
    let mut messages = Vec::with_capacity(asked.len() + model.messages.len() + 1);
    let begins_with_system = asked.first().is_some_and(|message| message.role == "system");
    if let Some(system) = model.system.as_ref().filter(|system| !system.is_empty() && !begins_with_system) {
        messages.push(Message::new("system", system));
    }
    messages.extend(model.messages.iter().map(|(role, content)| Message::new(role, content)));
    messages.extend_from_slice(asked);
    messages
}

fn generate_messages(model: &SimModel, generate: &Generate) -> Vec<Message> {
    let mut messages = Vec::new();
    let system =
        if generate.system.is_empty() { model.system.as_deref().unwrap_or_default() } else { &generate.system };
    if !system.is_empty() {
        messages.push(Message::new("system", system));
    }
    if generate.context.is_none() {
        messages.extend(model.messages.iter().map(|(role, content)| Message::new(role, content)));
    }
    messages.push(Message { images: generate.images.clone(), ..Message::new("user", &generate.prompt) });
    messages
}

/// How many messages must be passed over from the front until the rest fits; the last one always stays.
fn first_fit(
    model: &SimModel,
    messages: &[Message],
    tools: &[Tool],
    asked_window: i64,
    generation: Generation,
) -> usize {
    let fits = |drop: usize| {
        let rendered = render_from(model, messages, tools, drop);
        let images = if model.vision { rendered.images.len() * IMAGE_TOKENS } else { 0 };
        // Ollama leaves the BOS out of this count, although the runner adds it.
        let tokens = model.tokenizer.count(&rendered.text, generation).tokens as usize + images;
        tokens as i64 <= asked_window
    };
    if messages.is_empty() || fits(0) {
        return 0;
    }
    let (mut too_few, mut enough) = (0, messages.len() - 1);
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if fits(middle) {
            enough = middle;
        } else {
            too_few = middle;
        }
    }
    enough
}

fn render_from(model: &SimModel, messages: &[Message], tools: &[Tool], drop: usize) -> Rendered {
    let kept_systems = messages[..drop].iter().filter(|message| message.role == "system");
    let mut kept: Vec<Message> = kept_systems.chain(&messages[drop..]).cloned().collect();
    let mut images = Vec::new();
    for message in &mut kept {
        tag_images(message, &mut images);
    }
    Rendered { text: render(model, &kept, tools), images, ..Rendered::default() }
}

/// Writes each image's tag where the content says `[img]`, or in front of the content.
fn tag_images(message: &mut Message, images: &mut Vec<u32>) {
    let mut prefix = String::new();
    for image in &message.images {
        let tag = format!("[img-{}]", images.len());
        images.push(*image);
        if message.content.contains("[img]") {
            message.content = message.content.replacen("[img]", &tag, 1);
        } else {
            prefix.push_str(&tag);
        }
    }
    message.content.insert_str(0, &prefix);
}
