//! Asking a model something on our own account: to write notes, to condense a message.
//!
//! Goes to `/api/chat` with the options of the request that gave occasion to it: other options would make
//! Ollama load the model again. Dropping the future closes the connection, and Ollama stops at once.

use http::Method;

use super::client::{Upstream, UpstreamError};
use super::render::message_json;
use crate::context::{Message, Tokens};
use crate::json::{self, Fields};

#[derive(Debug)]
pub struct Question<'a> {
    pub model: &'a str,
    pub messages: &'a [Message<'a>],
    /// The options and the time to stay loaded, as JSON, of the request on whose behalf it is asked.
    pub options: Option<&'a str>,
    pub keep_alive: Option<&'a str>,
    pub answer_tokens: Tokens,
}

#[derive(Debug)]
pub struct Reply {
    pub text: String,
    /// What reading the question took the model.
    pub read_ns: u64,
    pub read_tokens: Tokens,
}

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    #[error("the upstream answers with {0}")]
    Status(http::StatusCode),
    #[error("the upstream's answer could not be read")]
    Unreadable,
    #[error("the model answered nothing")]
    Nothing,
}

pub async fn ask(upstream: &Upstream, question: &Question<'_>) -> Result<Reply, AskError> {
    let (status, answer) = upstream.call(Method::POST, "/api/chat", Some(body(question))).await?;
    if !status.is_success() {
        return Err(AskError::Status(status));
    }
    read(std::str::from_utf8(&answer).map_err(|_| AskError::Unreadable)?)
}

fn body(question: &Question<'_>) -> String {
    let messages: Vec<String> = question.messages.iter().map(|message| message_json(message, &message.text)).collect();
    let mut options: serde_json::Map<String, serde_json::Value> =
        question.options.and_then(|options| serde_json::from_str(options).ok()).unwrap_or_default();
    options.insert("num_predict".to_owned(), question.answer_tokens.into());
    options.insert("temperature".to_owned(), 0.into());
    // A word that the client's own answers must stop at means nothing here.
    options.remove("stop");
    let mut body = format!(
        "{{\"model\":{},\"stream\":false,\"truncate\":false,\"think\":false,\"messages\":[{}],\"options\":{}",
        json::quote(question.model),
        messages.join(","),
        serde_json::Value::Object(options)
    );
    if let Some(keep_alive) = question.keep_alive {
        body.push_str(&format!(",\"keep_alive\":{keep_alive}"));
    }
    body.push('}');
    body
}

fn read(body: &str) -> Result<Reply, AskError> {
    let unreadable = |_| AskError::Unreadable;
    let fields = Fields::read(body, &[]).map_err(unreadable)?;
    let message = Fields::read(fields.get("message").map_or("{}", |raw| raw.get()), &[]).map_err(unreadable)?;
    let text = message.text("content").map_err(unreadable)?.unwrap_or_default();
    let number = |name: &str| fields.number(name).ok().flatten().unwrap_or(0.0);
    let text = without_thinking(&text).trim().to_owned();
    if text.is_empty() {
        return Err(AskError::Nothing);
    }
    Ok(Reply {
        text,
        read_ns: number("prompt_eval_duration") as u64,
        read_tokens: number("prompt_eval_count") as Tokens,
    })
}

/// Some models write down their thinking even when asked not to.
fn without_thinking(text: &str) -> &str {
    match text.split_once("</think>") {
        Some((_, after)) => after,
        None if text.trim_start().starts_with("<think>") => "",
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_is_no_part_of_a_reply() {
        let reply = |content: &str| read(&serde_json::json!({ "message": { "content": content } }).to_string());
        assert_eq!(reply("<think>hm</think>\n the notes ").expect("a reply").text, "the notes");
        assert!(matches!(reply("<think>hm, and no end"), Err(AskError::Nothing)));
        assert!(matches!(reply("  "), Err(AskError::Nothing)));
    }
}
