//! Messages of a stored history, written in a dialect's own words: for going on from a snapshot.
//!
//! The opposite of parsing, and the one place where a message changes its dialect: what was said on one
//! route can be continued on another. Texts, tool calls and results come along; images do not.

use serde_json::{Value, json};

use super::Dialect;
use crate::context::{Message, Role};
use crate::json::{self, Fields, JsonError};

impl Dialect {
    /// A body with a history in front of its own messages. The history's system prompts are used if the
    /// body has none of its own.
    pub fn with_history(self, body: &str, system: &[String], history: &[Message<'_>]) -> Result<String, JsonError> {
        let list = match self {
            Self::Chat | Self::OpenAiChat | Self::Anthropic => "messages",
            Self::Responses => "input",
            Self::Generate | Self::Completions => return Err(JsonError::WrongType),
        };
        let fields = Fields::read(body, &[list, "system", "instructions"])?;
        let raw = fields.get(list).ok_or(JsonError::WrongType)?;
        let own: Vec<String> = if raw.get().starts_with('"') {
            vec![format!("{{\"role\":\"user\",\"content\":{}}}", raw.get())]
        } else {
            json::array(raw)?.into_iter().map(|element| element.get().to_owned()).collect()
        };
        let is_system = |element: &String| {
            let role =
                Fields::read(element, &[]).and_then(|fields| Ok(fields.text("role")?.unwrap_or_default().into_owned()));
            role.is_ok_and(|role| matches!(role.as_str(), "system" | "developer"))
        };
        let leading = own.iter().take_while(|element| is_system(element)).count();
        let has_system = leading > 0 || fields.get("system").is_some() || fields.get("instructions").is_some();
        let mut messages: Vec<String> = own[..leading].to_vec();
        let mut parts = Vec::new();
        if !has_system && !system.is_empty() {
            match self {
                // Anthropic's system prompt is no message.
                Self::Anthropic => parts.push(format!("\"system\":{},", json::quote(&system.join("\n\n")))),
                _ => {
                    messages.extend(system.iter().map(|text| json!({ "role": "system", "content": text }).to_string()))
                }
            }
        }
        messages.extend(history.iter().flat_map(|message| self.written(message)).map(|message| message.to_string()));
        messages.extend(own[leading..].iter().cloned());
        let spliced = json::splice(body, &[(json::range_in(body, raw), format!("[{}]", messages.join(",")))]);
        let body = String::from_utf8(spliced).map_err(|_| JsonError::NotPlain)?;
        Ok(match parts.first() {
            Some(system) => body.replacen('{', &format!("{{{system}"), 1),
            None => body,
        })
    }

    /// One message in this dialect, as one element or several.
    fn written(self, message: &Message<'_>) -> Vec<Value> {
        match self {
            Self::Chat | Self::Generate | Self::Completions => vec![native(message)],
            Self::OpenAiChat => vec![openai(message)],
            Self::Anthropic => vec![anthropic(message)],
            Self::Responses => responses(message),
        }
    }
}

fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!({}))
}

fn native(message: &Message<'_>) -> Value {
    let mut written = json!({ "role": message.role.name(), "content": message.text });
    if !message.thinking.is_empty() {
        written["thinking"] = message.thinking.as_ref().into();
    }
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(
            |call| json!({ "id": call.id, "function": { "name": call.name, "arguments": arguments(&call.arguments) } }),
        );
        written["tool_calls"] = calls.collect();
    }
    for (name, value) in [("tool_name", &message.tool_name), ("tool_call_id", &message.tool_call_id)] {
        if let Some(value) = value {
            written[name] = value.as_ref().into();
        }
    }
    written
}

fn openai(message: &Message<'_>) -> Value {
    let mut written = json!({ "role": message.role.name(), "content": message.text });
    if !message.tool_calls.is_empty() {
        let calls = message.tool_calls.iter().map(|call| {
            json!({ "id": call.id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
        });
        written["tool_calls"] = calls.collect();
    }
    if message.role == Role::Tool {
        written["tool_call_id"] = message.tool_call_id.as_deref().unwrap_or_default().into();
    }
    written
}

fn anthropic(message: &Message<'_>) -> Value {
    if message.role == Role::Tool {
        let id = message.tool_call_id.as_deref().unwrap_or_default();
        let result = json!({ "type": "tool_result", "tool_use_id": id, "content": message.text });
        return json!({ "role": "user", "content": [result] });
    }
    let role = if message.role == Role::Assistant { "assistant" } else { "user" };
    if message.tool_calls.is_empty() {
        return json!({ "role": role, "content": message.text });
    }
    let text = (!message.text.is_empty()).then(|| json!({ "type": "text", "text": message.text }));
    let calls = message.tool_calls.iter().map(
        |call| json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": arguments(&call.arguments) }),
    );
    json!({ "role": role, "content": text.into_iter().chain(calls).collect::<Value>() })
}

fn responses(message: &Message<'_>) -> Vec<Value> {
    if message.role == Role::Tool {
        let id = message.tool_call_id.as_deref().unwrap_or_default();
        return vec![json!({ "type": "function_call_output", "call_id": id, "output": message.text })];
    }
    let text = (!message.text.is_empty()).then(|| json!({ "role": message.role.name(), "content": message.text }));
    let calls = message.tool_calls.iter().map(
        |call| json!({ "type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments }),
    );
    text.into_iter().chain(calls).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::{Prompt, tool_call};

    fn history() -> Vec<Message<'static>> {
        let call = tool_call(Some("c1".into()), Some("look".into()), "{\"at\":\"sea\"}".into());
        vec![
            Message::plain(Role::User, "first", 0),
            Message { tool_calls: vec![call], ..Message::plain(Role::Assistant, "", 1) },
            Message {
                tool_call_id: Some("c1".into()),
                tool_name: Some("look".into()),
                ..Message::plain(Role::Tool, "waves", 2)
            },
            Message::plain(Role::Assistant, "It moves.", 3),
        ]
    }

    #[test]
    fn a_history_reads_back_the_same_in_every_dialect_it_is_written_in() {
        for (dialect, body) in [
            (Dialect::Chat, r#"{"model":"m","messages":[{"role":"user","content":"go on"}],"x":1}"#),
            (Dialect::OpenAiChat, r#"{"model":"m","messages":[{"role":"user","content":"go on"}]}"#),
            (Dialect::Anthropic, r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"go on"}]}"#),
            (Dialect::Responses, r#"{"model":"m","input":"go on"}"#),
        ] {
            let written = dialect.with_history(body, &["Be brief.".to_owned()], &history()).expect("written");
            let request = dialect.parse(&written).expect("understood");
            let Prompt::Chat(messages) = &request.prompt else { panic!("a chat") };
            let read: Vec<_> = messages.iter().map(|message| (message.role.name(), message.text.as_ref())).collect();
            let said = [
                ("system", "Be brief."),
                ("user", "first"),
                ("assistant", ""),
                ("tool", "waves"),
                ("assistant", "It moves."),
                ("user", "go on"),
            ];
            assert_eq!(read, said, "{dialect:?}: {written}");
            assert_eq!(messages[2].tool_calls[0].canonical_arguments, "{\"at\":\"sea\"}", "{dialect:?}");
        }
    }

    #[test]
    fn a_system_prompt_of_the_requests_own_stays_the_only_one() {
        let body = r#"{"model":"m","messages":[{"role":"system","content":"own"},{"role":"user","content":"go on"}]}"#;
        let written = Dialect::Chat.with_history(body, &["old".to_owned()], &history()).expect("written");
        assert!(!written.contains("old") && written.find("own") < written.find("first"), "{written}");
    }
}
