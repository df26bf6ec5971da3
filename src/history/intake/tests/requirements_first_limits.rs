//! Boundaries, conversions and repeated intake of `requirements-first`.

use serde_json::{Value, json};

use super::super::{HistoryMessage, Limits, Preset, RequirementsLimits, check, truncate};
use super::{Checked, NOW, TIME, checked, contents, kept, now, only, said};

fn take(history: Value) -> Checked {
    checked(Preset::RequirementsFirst, history)
}

#[test]
fn a_request_is_cut_to_7900_characters_and_a_note() {
    let at_limit = take(json!([said("user", &"é".repeat(8000))]));
    assert_eq!((only(&at_limit).truncated, only(&at_limit).original_length), (false, 8000));
    let beyond = take(json!([said("user", &"é".repeat(8001))]));
    assert_eq!(only(&beyond).content, "é".repeat(7900) + " ... (truncated, original: 8001 chars)");
    assert_eq!((only(&beyond).truncated, only(&beyond).original_length), (true, 8001));
}

#[test]
fn an_answer_is_cut_to_150_characters_and_a_note() {
    for role in ["assistant", "orchestrator"] {
        assert!(!only(&take(json!([said(role, &"🎉".repeat(150))]))).truncated);
        let beyond = take(json!([said(role, &"🎉".repeat(151))]));
        assert_eq!(only(&beyond).content, "🎉".repeat(150) + " ... (truncated)");
    }
}

#[test]
fn content_is_kept_with_its_blanks_and_even_if_empty() {
    let taken = take(json!([said("user", "  "), said("user", "")]));
    assert_eq!(contents(kept(&taken)), ["  ", ""]);
}

#[test]
fn content_of_other_types_becomes_text() {
    let cases = [
        (json!(null), "None"),
        (json!(true), "True"),
        (json!(5), "5"),
        (json!(1.5), "1.5"),
        (json!({"a": [1, "b"]}), r#"{"a":[1,"b"]}"#),
        (json!(["a", null]), r#"["a",null]"#),
        (json!([]), "[]"),
        (json!([{"type": "text", "text": "a"}, {"type": "audio"}]), r#"[{"type":"text","text":"a"},{"type":"audio"}]"#),
    ];
    for (content, text) in cases {
        assert_eq!(only(&take(json!([{"role": "user", "content": content}]))).content, text);
    }
}

#[test]
fn lists_of_parts_become_text_and_attached_images() {
    let images = [
        json!({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}),
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}),
        json!({"type": "input_image", "image_url": "data:image/webp;base64,AAAA"}),
    ];
    let mut content = vec![json!({"type": "text", "text": "a"}), json!({"type": "input_text", "text": "b"})];
    content.extend(images.clone());
    let taken = take(json!([{"role": "user", "content": content}]));
    assert_eq!((only(&taken).content.as_str(), only(&taken).original_length), ("a\nb", 3));
    assert_eq!(only(&taken).attachments, images);
}

#[test]
fn attachments_are_carried_untouched_and_uncounted() {
    let code = json!({"type": "code", "language": "python", "content": "x".repeat(10_000), "odd": [null]});
    let taken = take(json!([{"role": "assistant", "content": "Fix", "attachments": [code]}]));
    assert_eq!((only(&taken).attachments.as_slice(), only(&taken).original_length), ([code].as_slice(), 3));
    let taken = take(json!([{"role": "user", "content": "Fix", "attachments": "notes.txt"}]));
    assert_eq!(only(&taken).attachments, [json!("notes.txt")]);
    let taken = take(json!([{"role": "user", "content": "Fix", "attachments": null}]));
    assert!(!serde_json::to_string(only(&taken)).unwrap().contains("attachments"));
}

#[test]
fn times_are_kept_as_they_are_and_compared_as_text() {
    let timed = |timestamp: Value| json!({"role": "user", "content": "x", "timestamp": timestamp});
    let taken =
        take(json!([timed(json!("yesterday")), timed(json!("")), timed(json!(17)), timed(json!("2025-10-29"))]));
    let times: Vec<_> = kept(&taken).messages.iter().map(|message| message.timestamp.as_str()).collect();
    assert_eq!(times, ["yesterday", "", "17", "2025-10-29"]);
    let metadata = &kept(&taken).metadata;
    assert_eq!((metadata.oldest_message.as_deref(), metadata.newest_message.as_deref()), (Some(""), Some("yesterday")));
    assert_eq!(metadata.collection_time, NOW);
}

#[test]
fn a_stored_history_taken_in_again_stays_the_same() {
    let first = take(json!([said("user", &"u".repeat(9000)), said("assistant", &"a".repeat(500)), said("user", "ok")]));
    let again = take(serde_json::to_value(&kept(&first).messages).unwrap());
    assert_eq!(again, first);
    assert_eq!(kept(&again).truncated_count, 2);
}

#[test]
fn a_mark_of_truncation_is_not_believed_without_a_cut() {
    let claims = json!({"role": "assistant", "content": "short", "truncated": true, "original_length": 500});
    let taken = take(json!([claims]));
    assert_eq!((only(&taken).truncated, only(&taken).original_length), (false, 5));
}

#[test]
fn configured_limits_apply() {
    let requirements_first = RequirementsLimits { max_messages: 2, user_chars: 110, assistant_chars: 3 };
    let limits = Limits { requirements_first, ..Limits::default() };
    let history = json!([said("user", "gone"), said("user", &"u".repeat(111)), said("orchestrator", "four")]);
    let taken = check(&history, Preset::RequirementsFirst, &limits, now()).unwrap();
    assert_eq!(contents(kept(&taken)), ["uuuuuuuuuu ... (truncated, original: 111 chars)", "fou ... (truncated)"]);
    let text = "conversation_history has 3 messages, truncating to most recent 2";
    assert_eq!(taken.warnings[0].message, text);
}

#[test]
fn stored_messages_beyond_the_permitted_number_are_left_out() {
    let messages = (0..70).map(|number| HistoryMessage::new("tool", number.to_string(), TIME)).collect();
    let history = truncate(messages, Preset::RequirementsFirst, &Limits::default(), now());
    assert_eq!((history.total_messages, history.messages[0].content.as_str()), (50, "20"));
    let nothing = truncate(Vec::new(), Preset::RequirementsFirst, &Limits::default(), now());
    assert_eq!((nothing.total_messages, nothing.metadata.oldest_message), (0, None));
}

#[test]
fn a_message_cut_elsewhere_keeps_its_original_length() {
    let mut message = HistoryMessage::new("assistant", "a".repeat(300), TIME);
    message.truncated = true;
    message.original_length = 12_000;
    let history = truncate(vec![message], Preset::RequirementsFirst, &Limits::default(), now());
    assert_eq!((history.messages[0].original_length, history.truncated_count), (12_000, 1));
}
