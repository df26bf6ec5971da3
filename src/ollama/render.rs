//! Asking the upstream to show a rendered prompt without answering it.
//!
//! The question is undocumented (`_debug_render_only`), so it is asked where it is answered and done
//! without where not. It needs the model loaded, with the very options the real request will have:
//! other options would make Ollama load the model again. Should the upstream not know the question,
//! it would answer the prompt, so it is told to answer with one token.

use http::Method;

use super::client::Upstream;
use crate::context::Message;
use crate::dialect::{Generate, Prompt, Request};
use crate::json::{self, Fields};

/// What came back for a rendering.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rendering {
    Text(String),
    /// The upstream answered, but showed no rendering.
    NotSupported,
    /// The upstream said no to this very request, or could not be asked; the client will hear the same.
    Refused,
}

/// A text for each message in place of its own; `None` leaves a message as it is.
pub(super) type Texts<'a> = Option<&'a [Option<String>]>;

/// Renders a request, with its own texts or with other ones.
pub(super) async fn render(upstream: &Upstream, request: &Request<'_>, texts: Texts<'_>) -> Rendering {
    let rendering = render_as(upstream, request, texts, true).await;
    if rendering == Rendering::Refused && request.thinks_if_able {
        return render_as(upstream, request, texts, false).await;
    }
    rendering
}

async fn render_as(upstream: &Upstream, request: &Request<'_>, texts: Texts<'_>, thinks: bool) -> Rendering {
    let (path, body) = match &request.prompt {
        Prompt::Chat(messages) => ("/api/chat", chat_body(head(request, thinks), messages, texts)),
        Prompt::Generate(generate) => ("/api/generate", generate_body(head(request, thinks), generate, texts)),
    };
    let Ok((status, body)) = upstream.call(Method::POST, path, Some(body)).await else { return Rendering::Refused };
    if !status.is_success() {
        return Rendering::Refused;
    }
    let Some(fields) = std::str::from_utf8(&body).ok().and_then(|body| Fields::read(body, &[]).ok()) else {
        return Rendering::Refused;
    };
    let text = fields.get("_debug_info").and_then(|info| {
        let info = Fields::read(info.get(), &[]).ok()?;
        info.text("rendered_template").ok()?.map(|text| text.into_owned())
    });
    match text {
        Some(text) => Rendering::Text(text),
        // Only an answer to the prompt itself shows that the question was not understood.
        None if fields.get("prompt_eval_count").is_some() => Rendering::NotSupported,
        None => Rendering::Refused,
    }
}

fn chat_body(mut body: String, messages: &[Message<'_>], texts: Texts<'_>) -> String {
    let messages: Vec<String> = messages
        .iter()
        .enumerate()
        .map(|(index, message)| {
            let other = texts.and_then(|texts| texts[index].as_deref());
            message_json(message, other.unwrap_or(&message.text))
        })
        .collect();
    body.push_str(",\"messages\":[");
    body.push_str(&messages.join(","));
    body.push_str("]}");
    body
}

pub(super) fn message_json(message: &Message<'_>, text: &str) -> String {
    let mut out = format!("{{\"role\":{},\"content\":{}", json::quote(message.role.name()), json::quote(text));
    let mut field = |name: &str, value: &str| {
        out.push_str(&format!(",\"{name}\":{value}"));
    };
    if !message.thinking.is_empty() {
        field("thinking", &json::quote(&message.thinking));
    }
    if message.images > 0 {
        // A rendering only counts images; one byte stands for each.
        field("images", &format!("[{}]", vec!["\"AA==\""; message.images as usize].join(",")));
    }
    if !message.tool_calls.is_empty() {
        let calls: Vec<String> = message
            .tool_calls
            .iter()
            .map(|call| {
                format!(
                    "{{\"id\":{},\"function\":{{\"name\":{},\"arguments\":{}}}}}",
                    json::quote(&call.id),
                    json::quote(&call.name),
                    call.arguments
                )
            })
            .collect();
        field("tool_calls", &format!("[{}]", calls.join(",")));
    }
    if let Some(name) = &message.tool_name {
        field("tool_name", &json::quote(name));
    }
    if let Some(id) = &message.tool_call_id {
        field("tool_call_id", &json::quote(id));
    }
    out.push('}');
    out
}

/// The order of texts is that of the slots: system, prompt, suffix, as far as each is there.
fn generate_body(mut body: String, generate: &Generate<'_>, texts: Texts<'_>) -> String {
    let mut texts = texts.unwrap_or_default().iter();
    let parts = [
        ("system", generate.system.as_deref()),
        ("prompt", Some(generate.prompt.as_ref())),
        ("suffix", generate.suffix.as_deref()),
    ];
    for (name, own) in parts {
        let Some(own) = own else { continue };
        let other = texts.next().and_then(Option::as_deref);
        body.push_str(&format!(",\"{name}\":{}", json::quote(other.unwrap_or(own))));
    }
    if generate.images > 0 {
        body.push_str(&format!(",\"images\":[{}]", vec!["\"AA==\""; generate.images as usize].join(",")));
    }
    body.push('}');
    body
}

/// The fields that all renderings have, without the closing brace.
fn head(request: &Request<'_>, thinks: bool) -> String {
    let mut body = format!(
        "{{\"model\":{},\"stream\":false,\"truncate\":false,\"_debug_render_only\":true",
        json::quote(&request.model)
    );
    let mut options = None;
    for (name, value) in &request.render_with {
        match *name {
            "options" => options = Some(value.as_ref()),
            // The schema of an answer is no part of the prompt; how long the model stays loaded is for
            // the real request to say.
            "format" | "keep_alive" => {}
            "think" if !thinks => {}
            name => body.push_str(&format!(",\"{name}\":{value}")),
        }
    }
    body.push_str(&format!(",\"options\":{}", with_one_token(options)));
    body
}

/// The request's options, but for an answer of one token.
fn with_one_token(options: Option<&str>) -> String {
    let mut options: serde_json::Map<String, serde_json::Value> =
        options.and_then(|options| serde_json::from_str(options).ok()).unwrap_or_default();
    options.insert("num_predict".to_owned(), 1.into());
    serde_json::Value::Object(options).to_string()
}
