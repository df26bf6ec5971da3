//! The six APIs: what each becomes as Ollama's own messages, and what an edit leaves untouched.

use loadline::context::plan::Kind;
use loadline::context::{Edit, Message, Note, Plan};
use loadline::dialect::{Dialect, Prompt};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A prompt as a short text: `role:text`, with what else a message has in brackets.
fn understood(dialect: Dialect, body: &Value) -> Vec<String> {
    let body = body.to_string();
    let request = dialect.parse(&body).expect("understood");
    let Prompt::Chat(messages) = &request.prompt else { panic!("not a chat") };
    messages.iter().map(told).collect()
}

fn told(message: &Message<'_>) -> String {
    let mut text = format!("{}:{}", message.role.name(), message.text);
    if message.images > 0 {
        text.push_str(&format!("[images {}]", message.images));
    }
    if !message.thinking.is_empty() {
        text.push_str(&format!("[thinks {}]", message.thinking));
    }
    for call in &message.tool_calls {
        text.push_str(&format!("[calls {} {} {}]", call.id, call.name, call.arguments));
    }
    if let Some(name) = &message.tool_name {
        text.push_str(&format!("[of {name}]"));
    }
    if let Some(id) = &message.tool_call_id {
        text.push_str(&format!("[for {id}]"));
    }
    text
}

#[test]
fn native_chat_is_taken_as_it_is() {
    let body = json!({ "model": "m", "messages": [
        { "role": "SYSTEM", "content": "rules" },
        { "role": "user", "content": "look", "images": ["AA==", "AA=="] },
        { "role": "assistant", "content": "", "thinking": "hm", "tool_calls": [{ "id": "c1", "function": { "name": "f", "arguments": { "b": 1, "a": 2 } } }] },
        { "role": "tool", "content": "done", "tool_name": "f", "tool_call_id": "c1" },
    ] });
    assert_eq!(
        understood(Dialect::Chat, &body),
        [
            "system:rules",
            "user:look[images 2]",
            "assistant:[thinks hm][calls c1 f {\"b\":1,\"a\":2}]",
            "tool:done[of f][for c1]",
        ]
    );
}

#[test]
fn openai_parts_become_messages_and_results_get_their_names() {
    let body = json!({ "model": "m", "messages": [
        { "role": "developer", "content": "rules" },
        { "role": "user", "content": [{ "type": "text", "text": "one" }, { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } }, { "type": "text", "text": "two" }] },
        { "role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [{ "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{\"a\": 1}" } }] },
        { "role": "tool", "tool_call_id": "c1", "content": "42" },
    ] });
    assert_eq!(
        understood(Dialect::OpenAiChat, &body),
        [
            "developer:rules",
            "user:one",
            "user:[images 1]",
            "user:two",
            "assistant:[thinks hm][calls c1 f {\"a\": 1}]",
            "tool:42[of f][for c1]",
        ]
    );
}

#[test]
fn anthropic_results_follow_the_text_of_their_message() {
    let body = json!({ "model": "m", "max_tokens": 5, "system": [{ "type": "text", "text": "be " }, { "type": "text", "text": "kind" }], "messages": [
        { "role": "user", "content": "hi" },
        { "role": "assistant", "content": [{ "type": "thinking", "thinking": "hm" }, { "type": "text", "text": "I look" }, { "type": "tool_use", "id": "t1", "name": "f", "input": { "a": 1 } }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": [{ "type": "text", "text": "42" }] }, { "type": "text", "text": "well?" }] },
    ] });
    assert_eq!(
        understood(Dialect::Anthropic, &body),
        [
            "system:be kind",
            "user:hi",
            "assistant:I look[thinks hm][calls t1 f {\"a\":1}]",
            "user:well?",
            "tool:42[for t1]",
        ]
    );
    let text = body.to_string();
    assert_eq!(
        Dialect::Anthropic.parse(&text).expect("understood").kinds,
        [Kind::User, Kind::Assistant, Kind::ToolResult]
    );
}

#[test]
fn responses_items_become_messages() {
    let body = json!({ "model": "m", "instructions": "rules", "input": [
        { "role": "user", "content": "hi" },
        { "type": "reasoning", "encrypted_content": "hm" },
        { "type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}" },
        { "type": "function_call_output", "call_id": "c1", "output": "42" },
        { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "a" }, { "type": "input_text", "text": "b" }, { "type": "input_image", "image_url": "data:image/png;base64,AA==" }] },
    ] });
    assert_eq!(
        understood(Dialect::Responses, &body),
        [
            "system:rules",
            "user:hi",
            "assistant:[thinks hm][calls c1 f {\"a\":1}]",
            "tool:42[for c1]",
            "user:ab[images 1]",
        ]
    );
    assert_eq!(understood(Dialect::Responses, &json!({ "model": "m", "input": "just this" })), ["user:just this"]);
}

#[test]
fn generate_and_completions_have_one_prompt() {
    let body = json!({ "model": "m", "prompt": "p", "system": "s", "suffix": "x", "context": [1, 2], "raw": true, "options": { "num_ctx": 99.9, "num_predict": 7 } }).to_string();
    let request = Dialect::Generate.parse(&body).expect("understood");
    let Prompt::Generate(generate) = &request.prompt else { panic!("not a generate") };
    assert_eq!(
        (generate.prompt.as_ref(), generate.system.as_deref(), generate.suffix.as_deref()),
        ("p", Some("s"), Some("x"))
    );
    assert_eq!((generate.context, generate.raw), (Some(2), true));
    assert_eq!((request.num_ctx, request.answer_tokens, request.stream), (Some(99.9), Some(7), true));
    let body = json!({ "model": "m", "prompt": "p", "max_tokens": 3, "stream": true }).to_string();
    let request = Dialect::Completions.parse(&body).expect("understood");
    assert_eq!((request.answer_tokens, request.stream), (Some(3), true));
}

#[test]
fn an_edit_touches_nothing_that_is_kept() {
    let body = r#"{ "x":1.50, "messages" : [ {"role":"user","content":"one","u":[1, 2]},{"role":"assistant","content":"two"} , {"role":"user","content":"thr\u00e9e"} ], "z":null }"#;
    let plan = Plan { edits: vec![Edit::Replace(0..2, Some(Note { text: "note \"q\"".into() })), Edit::Keep(2..3)] };
    for dialect in [Dialect::Chat, Dialect::OpenAiChat, Dialect::Anthropic] {
        assert_eq!(
            dialect.apply(body, &plan, None).expect("applied"),
            r#"{ "x":1.50, "messages" : [{"role":"user","content":"note \"q\""},{"role":"user","content":"thr\u00e9e"}], "z":null }"#
        );
    }
}

proptest! {
    #[test]
    fn an_empty_plan_is_the_identity(texts in prop::collection::vec(".{0,12}", 0..8)) {
        let messages: Vec<Value> = texts.iter().map(|text| json!({ "role": "user", "content": text })).collect();
        for (dialect, list) in [(Dialect::Chat, "messages"), (Dialect::OpenAiChat, "messages"), (Dialect::Anthropic, "messages"), (Dialect::Responses, "input")] {
            let body = json!({ "model": "m", list: messages, "unknown": { "a": [1] } }).to_string();
            prop_assert_eq!(dialect.apply(&body, &Plan::identity(messages.len()), None).expect("applied"), body);
        }
    }

    #[test]
    fn keeping_some_keeps_exactly_those(texts in prop::collection::vec("[^\\x00]{0,12}", 1..10), at in any::<prop::sample::Index>()) {
        let at = at.index(texts.len());
        let messages: Vec<Value> = texts.iter().map(|text| json!({ "role": "user", "content": text, "more": text })).collect();
        let body = json!({ "model": "m", "messages": messages }).to_string();
        let plan = Plan { edits: vec![Edit::Replace(0..at, None), Edit::Keep(at..texts.len())] };
        let after: Value = serde_json::from_str(&Dialect::Chat.apply(&body, &plan, None).expect("applied")).expect("json");
        prop_assert_eq!(&after["messages"].as_array().expect("a list")[..], &messages[at..]);
    }

    #[test]
    fn no_body_makes_a_dialect_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for dialect in Dialect::ALL {
            if let Some(plain) = dialect.plain(&bytes) {
                let _ = dialect.parse(&plain);
            }
        }
    }

    #[test]
    fn no_mangled_request_makes_a_dialect_panic(cut in any::<prop::sample::Index>(), byte in any::<u8>(), at in any::<prop::sample::Index>()) {
        let body = json!({ "model": "m", "max_tokens": 4, "input": [{ "role": "user", "content": "x" }], "prompt": "p", "system": "s", "tools": [{ "name": "f" }],
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "\u{1F600}" }] }, { "role": "assistant", "content": "", "tool_calls": [{ "function": { "name": "f", "arguments": {} } }] }] }).to_string();
        let mut bytes = body.into_bytes();
        let position = at.index(bytes.len());
        bytes[position] = byte;
        bytes.truncate(cut.index(bytes.len()) + 1);
        for dialect in Dialect::ALL {
            if let Some(plain) = dialect.plain(&bytes) {
                let _ = dialect.parse(&plain);
            }
        }
    }
}
