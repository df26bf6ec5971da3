//! The required tests and edge cases of `requirements-first`, and what is refused.

use serde_json::{Value, json};

use super::super::{Fatal, History, HistoryMessage, Limits, Preset, Severity, section, truncate};
use super::{Checked, NOW, TIME, checked, kept, now, only, said, warned};

fn take(history: Value) -> Checked {
    checked(Preset::RequirementsFirst, history)
}

fn refuse(history: Value) -> Fatal {
    super::refused(Preset::RequirementsFirst, history)
}

fn cut(role: &str, content: String) -> History {
    let message = HistoryMessage::new(role, content, "2025-10-29T10:00:00");
    truncate(vec![message], Preset::RequirementsFirst, &Limits::default(), now())
}

#[test]
fn user_message_under_limit_preserved() {
    let history = cut("user", "x".repeat(200));
    assert_eq!(history.truncated_count, 0);
    assert_eq!(history.messages[0].content, "x".repeat(200));
    assert!(!history.messages[0].truncated);
    assert_eq!(history.messages[0].original_length, 200);
}

#[test]
fn assistant_message_over_limit_truncated() {
    let history = cut("assistant", "x".repeat(500));
    assert_eq!(history.truncated_count, 1);
    assert_eq!(history.messages[0].content, "x".repeat(150) + " ... (truncated)");
    assert!(history.messages[0].truncated);
    assert_eq!(history.messages[0].original_length, 500);
}

#[test]
fn validation_missing_role() {
    let fatal = refuse(json!([{"content": "no role"}]));
    assert_eq!(fatal.to_string(), "Message at index 0 missing required field 'role'");
    assert_eq!((fatal.field.as_str(), fatal.error_type), ("conversation_history[0]", "missing_field"));
    assert_eq!(fatal.value, json!(["content"]));
}

#[test]
fn validation_over_50_messages() {
    let messages: Value = (0..60).map(|number| said("user", &format!("msg {number}"))).collect();
    let taken = take(messages);
    assert_eq!((kept(&taken).total_messages, kept(&taken).messages.len()), (50, 50));
    assert_eq!(kept(&taken).messages[0].content, "msg 10");
    let [warning] = taken.warnings.as_slice() else { panic!("{taken:?}") };
    assert_eq!(warning.message, "conversation_history has 60 messages, truncating to most recent 50");
    assert_eq!(warning.suggestion.as_deref(), Some("Consider providing only recent relevant messages"));
    assert_eq!((warning.severity, warning.index), (Severity::Medium, None));
    assert_eq!(serde_json::to_value(warning).unwrap()["severity"], "medium");
}

#[test]
fn auto_generate_timestamp() {
    for message in [json!({}), json!({"timestamp": null})] {
        let mut message = message;
        message["role"] = json!("user");
        message["content"] = json!("no timestamp");
        let taken = take(json!([message]));
        assert_eq!((only(&taken).timestamp.as_str(), taken.warnings.len()), (NOW, 0));
    }
}

#[test]
fn format_conversation_history_in_prompt() {
    let stored = json!({
        "messages": [
            {"role": "user", "content": "Help me fix a bug", "timestamp": "2025-10-29T10:00:00",
             "truncated": false, "original_length": 18},
            {"role": "assistant", "content": "I will help you debug the issue", "timestamp": "2025-10-29T10:00:15",
             "truncated": false, "original_length": 32},
        ],
        "total_messages": 2,
        "truncated_count": 0,
    });
    let prompt = section(&serde_json::from_value(stored).unwrap());
    let expected = "
💬 CONVERSATION HISTORY (Leading to This Task):

The orchestrator had the following conversation before creating this task.
This provides context for WHY this task exists and WHAT the user wants.

[1] 👤 User (10:00:00):
    Help me fix a bug

[2] 🤖 Assistant (10:00:15):
    I will help you debug the issue

📊 History metadata: 2 messages
";
    assert_eq!(prompt, expected);
}

#[test]
fn edge_case_1_empty_conversation_history() {
    assert_eq!(take(json!([])), Checked::default());
    assert_eq!(take(Value::Null), Checked::default());
    assert_eq!(section(&History::default()), "");
}

#[test]
fn edge_case_2_malformed_message() {
    let fatal = refuse(json!([{"role": "user"}]));
    assert_eq!(fatal.to_string(), "Message at index 0 missing required field 'content'");
    assert_eq!((fatal.value, fatal.error_type), (json!(["role"]), "missing_field"));
}

#[test]
fn edge_case_3_too_many_messages() {
    let messages: Value = (0..100).map(|number| json!({"role": "user", "content": format!("msg {number}")})).collect();
    let taken = take(messages);
    assert_eq!(kept(&taken).total_messages, 50);
    let text = "conversation_history has 100 messages, truncating to most recent 50";
    assert_eq!(warned(&taken), [("conversation_history", text, None)]);
}

#[test]
fn edge_case_4_invalid_role() {
    for (role, shown) in
        [(json!("system"), "system"), (json!("User"), "User"), (json!(" user"), " user"), (json!(null), "None")]
    {
        let fatal = refuse(json!([{"role": role, "content": "Invalid role"}]));
        let text = format!("Message at index 0 has invalid role '{shown}', must be user|assistant|orchestrator");
        assert_eq!(fatal.to_string(), text);
        assert_eq!(fatal.field, "conversation_history[0].role");
        assert_eq!((fatal.value, fatal.error_type), (json!(shown), "invalid_value"));
    }
}

#[test]
fn edge_case_5_missing_timestamp() {
    let taken = take(json!([{"role": "user", "content": "No timestamp provided"}]));
    let metadata = &kept(&taken).metadata;
    assert_eq!(only(&taken).timestamp, NOW);
    assert_eq!((metadata.collection_time.as_str(), metadata.oldest_message.as_deref()), (NOW, Some(NOW)));
}

#[test]
fn what_is_no_list_is_refused_even_if_it_is_empty() {
    let others =
        [(json!({}), "dict"), (json!(""), "str"), (json!(0), "int"), (json!(0.5), "float"), (json!(false), "bool")];
    for (history, name) in others {
        let fatal = refuse(history);
        assert_eq!(fatal.to_string(), "conversation_history must be a list of message dicts");
        assert_eq!((fatal.field.as_str(), fatal.error_type), ("conversation_history", "type_error"));
        assert_eq!(fatal.value, json!(name));
    }
}

#[test]
fn a_message_that_is_no_object_is_refused_with_the_name_of_its_type() {
    let others = [(json!([]), "list"), (json!("hi"), "str"), (json!(null), "NoneType"), (json!(1), "int")];
    for (message, name) in others {
        let fatal = refuse(json!([said("user", "fine"), message]));
        assert_eq!(fatal.to_string(), format!("Message at index 1 must be a dict, got {name}"));
        assert_eq!((fatal.value, fatal.error_type), (json!(name), "type_error"));
    }
}

#[test]
fn the_stored_form_has_its_keys_in_order() {
    let taken = take(json!([said("orchestrator", "On it")]));
    let expected = json!({
        "messages": [
            {"role": "orchestrator", "content": "On it", "timestamp": TIME, "truncated": false, "original_length": 5},
        ],
        "total_messages": 1,
        "truncated_count": 0,
        "metadata": {"collection_time": NOW, "oldest_message": TIME, "newest_message": TIME},
    });
    assert_eq!(serde_json::to_string(kept(&taken)).unwrap(), expected.to_string());
    assert_eq!(serde_json::from_value::<History>(expected).unwrap(), *kept(&taken));
}
