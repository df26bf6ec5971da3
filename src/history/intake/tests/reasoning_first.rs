//! The fourteen required cases of `reasoning-first`, and what is refused.

use serde_json::{Value, json};

use super::super::{Fatal, Preset};
use super::{Checked, NOW, TIME, checked, contents, kept, only, said, warned};

fn take(history: Value) -> Checked {
    checked(Preset::ReasoningFirst, history)
}

fn refuse(history: Value) -> Fatal {
    super::refused(Preset::ReasoningFirst, history)
}

#[test]
fn case_01_valid_history_with_all_fields() {
    let taken = take(json!([said("user", "Fix it"), said("assistant", "Done")]));
    assert_eq!(taken.warnings, []);
    let expected = json!({
        "messages": [
            {"role": "user", "content": "Fix it", "timestamp": TIME, "truncated": false, "original_length": 6},
            {"role": "assistant", "content": "Done", "timestamp": TIME, "truncated": false, "original_length": 4},
        ],
        "total_messages": 2,
        "truncated_count": 0,
        "metadata": {"collection_time": NOW, "oldest_message": TIME, "newest_message": TIME},
    });
    assert_eq!(serde_json::to_string(kept(&taken)).unwrap(), expected.to_string());
}

#[test]
fn case_02_missing_timestamps_are_added() {
    let missing = [json!({}), json!({"timestamp": null}), json!({"timestamp": ""}), json!({"timestamp": 0})];
    for mut message in missing.into_iter().chain([json!({"timestamp": false}), json!({"timestamp": []})]) {
        message["role"] = json!("user");
        message["content"] = json!("hi");
        let taken = take(json!([message]));
        assert_eq!(only(&taken).timestamp, NOW);
        let text = "Missing timestamp - added current time: 2025-10-29T13:30:00.123456";
        assert_eq!(warned(&taken), [("conversation_history[0].timestamp", text, Some(0))]);
    }
}

#[test]
fn case_03_invalid_timestamps_are_replaced() {
    let invalid = [(json!("yesterday"), "yesterday"), (json!(5), "5"), (json!(true), "True"), (json!([1, 2]), "[1,2]")];
    for (timestamp, shown) in invalid {
        let taken = take(json!([{"role": "user", "content": "hi", "timestamp": timestamp}]));
        assert_eq!(only(&taken).timestamp, NOW);
        let text = format!("Invalid timestamp format '{shown}' - replaced with current time");
        assert_eq!(warned(&taken), [("conversation_history[0].timestamp", text.as_str(), Some(0))]);
    }
}

#[test]
fn case_04_too_many_messages_leave_the_last_fifty() {
    let messages: Vec<_> = (0..60).map(|number| said("user", &format!("m{number}"))).collect();
    let taken = take(messages.into());
    assert_eq!(kept(&taken).total_messages, 50);
    assert_eq!(kept(&taken).messages[0].content, "m10");
    assert_eq!(kept(&taken).messages[49].content, "m59");
    let text = "Too many messages (60 > 50). Will keep only the last 50 messages to preserve recent context.";
    assert_eq!(warned(&taken), [("conversation_history", text, None)]);
}

#[test]
fn case_05_excessively_long_user_message_is_truncated() {
    let taken = take(json!([said("user", &"u".repeat(151))]));
    assert_eq!(only(&taken).content, "u".repeat(150) + "... [truncated]");
    assert!(only(&taken).truncated);
    assert_eq!((only(&taken).original_length, kept(&taken).truncated_count), (151, 1));
    let text = "User message truncated from 151 to 165 characters";
    assert_eq!(warned(&taken), [("conversation_history[0].content", text, Some(0))]);
}

#[test]
fn case_06_excessively_long_assistant_message_is_truncated() {
    let taken = take(json!([said("assistant", &"a".repeat(9000))]));
    assert_eq!(only(&taken).content, "a".repeat(8192) + "... [truncated]");
    assert_eq!((only(&taken).original_length, kept(&taken).truncated_count), (9000, 1));
    let text = "Assistant message truncated from 9000 to 8207 characters";
    assert_eq!(warned(&taken), [("conversation_history[0].content", text, Some(0))]);
}

#[test]
fn case_07_history_exceeding_the_total_drops_its_oldest_messages() {
    // Each takes 2000 + 9 + 19 + 10 characters, so seven of ten fit.
    let messages: Vec<_> = (0..10).map(|number| said("assistant", &number.to_string().repeat(2000))).collect();
    let taken = take(messages.into());
    assert_eq!(kept(&taken).total_messages, 7);
    let first = &kept(&taken).messages[0];
    assert_eq!(first.content, "... (earlier messages omitted for brevity)\n\n".to_owned() + &"3".repeat(2000));
    assert_eq!((first.truncated, first.original_length), (false, 2000));
    let size = "Total history size (20380 chars) exceeds limit (15360 chars). \
                Dropping oldest messages to fit within limit.";
    let dropped = "Total history size exceeded limit. Kept last 7 of 10 messages.";
    assert_eq!(warned(&taken), [("conversation_history", size, None), ("conversation_history", dropped, None)]);
}

#[test]
fn case_08_invalid_roles_are_refused() {
    let roles = [(json!("system"), "system"), (json!("  BOT "), "bot"), (json!(""), ""), (json!(null), "None")];
    for (role, shown) in roles.into_iter().chain([(json!("orchestrator"), "orchestrator"), (json!(7), "7")]) {
        let fatal = refuse(json!([{"role": role, "content": "hi"}]));
        assert_eq!(fatal.field, "conversation_history[0].role");
        assert_eq!(fatal.message, format!("Role must be one of {{'user', 'assistant'}}, got '{shown}'"));
        assert_eq!((fatal.value, fatal.error_type), (json!(shown), "invalid_value"));
    }
}

#[test]
fn case_09_missing_required_fields_are_refused() {
    let cases = [
        (json!({"content": "x", "timestamp": TIME}), "role", json!(["content", "timestamp"])),
        (json!({"role": "user"}), "content", json!(["role"])),
        (json!({"z": 1, "a": 2}), "role, content", json!(["z", "a"])),
    ];
    for (message, missing, keys) in cases {
        let fatal = refuse(json!([said("user", "fine"), message]));
        assert_eq!(fatal.to_string(), format!("conversation_history[1]: Missing required fields: {missing}"));
        assert_eq!((fatal.value, fatal.error_type), (keys, "missing_field"));
    }
}

#[test]
fn case_10_empty_messages_are_skipped() {
    let taken = take(json!([said("user", " \n\u{2003}\u{1f}"), said("assistant", "Here"), said("user", "")]));
    assert_eq!(contents(kept(&taken)), ["Here"]);
    let text = "Empty message content - message will be skipped";
    let expected =
        [("conversation_history[0].content", text, Some(0)), ("conversation_history[2].content", text, Some(2))];
    assert_eq!(warned(&taken), expected);
}

#[test]
fn case_11_single_very_long_message_is_refused() {
    let fatal = refuse(json!([said("user", &"u".repeat(301))]));
    assert_eq!(fatal.field, "conversation_history[0].content");
    assert_eq!(fatal.message, "User message exceeds hard limit of 300 characters");
    assert_eq!((fatal.value, fatal.error_type), (json!("301 characters"), "invalid_value"));
    let fatal = refuse(json!([said("assistant", &"a".repeat(16385))]));
    assert_eq!(fatal.message, "Assistant message exceeds hard limit of 16384 characters");
    assert_eq!(fatal.value, json!("16385 characters"));
}

#[test]
fn case_12_empty_list_gives_nothing_and_says_so() {
    let taken = take(json!([]));
    assert_eq!(taken.history, None);
    let text = "All messages were filtered out due to validation issues. History will be omitted.";
    assert_eq!(warned(&taken), [("conversation_history", text, None)]);
}

#[test]
fn case_13_none_value_gives_nothing_in_silence() {
    assert_eq!(take(Value::Null), Checked::default());
}

#[test]
fn case_14_all_messages_invalid_returns_none() {
    let taken = take(json!([said("user", ""), said("assistant", "  ")]));
    assert_eq!(taken.history, None);
    let empty = "Empty message content - message will be skipped";
    let all = "All messages were filtered out due to validation issues. History will be omitted.";
    let expected = [
        ("conversation_history[0].content", empty, Some(0)),
        ("conversation_history[1].content", empty, Some(1)),
        ("conversation_history", all, None),
    ];
    assert_eq!(warned(&taken), expected);
}

#[test]
fn what_is_no_list_is_refused_with_the_name_of_its_type() {
    let others =
        [(json!({}), "dict"), (json!(""), "str"), (json!(1), "int"), (json!(1.5), "float"), (json!(true), "bool")];
    for (history, name) in others {
        let fatal = refuse(history);
        assert_eq!(fatal.to_string(), "conversation_history: Must be a list of message dictionaries");
        assert_eq!((fatal.value, fatal.error_type), (json!(name), "type_error"));
    }
}

#[test]
fn a_message_that_is_no_object_is_refused_with_the_name_of_its_type() {
    for (message, name) in [(json!([]), "list"), (json!("hi"), "str"), (json!(null), "NoneType")] {
        let fatal = refuse(json!([said("user", "fine"), message]));
        assert_eq!(fatal.to_string(), "conversation_history[1]: Each message must be a dictionary");
        assert_eq!((fatal.value, fatal.error_type), (json!(name), "type_error"));
    }
}

#[test]
fn content_that_is_no_text_is_refused() {
    for (content, name) in
        [(json!(5), "int"), (json!([]), "list"), (json!({"a": 1}), "dict"), (json!(null), "NoneType")]
    {
        let fatal = refuse(json!([{"role": "user", "content": content}]));
        assert_eq!(fatal.to_string(), "conversation_history[0].content: Content must be a string");
        assert_eq!((fatal.value, fatal.error_type), (json!(name), "type_error"));
    }
}
