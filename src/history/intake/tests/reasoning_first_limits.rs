//! Boundaries, order and configured limits of `reasoning-first`.

use serde_json::{Value, json};

use super::super::{HistoryMessage, Limits, Preset, ReasoningLimits, check, truncate};
use super::{Checked, NOW, TIME, checked, contents, kept, now, only, said, warned};

fn take(history: Value) -> Checked {
    checked(Preset::ReasoningFirst, history)
}

#[test]
fn limits_themselves_are_not_yet_too_long() {
    let taken = take(json!([said("user", &"u".repeat(150)), said("assistant", &"a".repeat(8192))]));
    assert_eq!((taken.warnings.as_slice(), kept(&taken).truncated_count), ([].as_slice(), 0));
    let at_hard_limit = take(json!([said("user", &"u".repeat(300)), said("assistant", &"a".repeat(16384))]));
    assert_eq!(kept(&at_hard_limit).truncated_count, 2);
}

#[test]
fn characters_count_once_however_many_bytes_they_have() {
    let taken = take(json!([said("user", &"👩".repeat(150))]));
    assert_eq!((only(&taken).truncated, only(&taken).original_length), (false, 150));
    let taken = take(json!([said("user", &"日".repeat(299))]));
    assert_eq!(only(&taken).content, "日".repeat(150) + "... [truncated]");
}

#[test]
fn blanks_around_content_and_role_are_removed_before_anything_is_measured() {
    let padded = format!("\u{1c} \n{}\t\u{3000}", "u".repeat(150));
    let taken = take(json!([{"role": " USER\n", "content": padded, "timestamp": TIME}]));
    assert_eq!(taken.warnings, []);
    assert_eq!((only(&taken).role.as_str(), only(&taken).original_length), ("user", 150));
}

#[test]
fn positions_in_fields_count_after_the_cut_and_indexes_from_the_given_start() {
    let mut messages: Vec<_> = (0..60).map(|_| said("user", "x")).collect();
    messages[12]["content"] = json!("");
    let taken = take(messages.clone().into());
    let text = "Empty message content - message will be skipped";
    assert_eq!(warned(&taken)[1], ("conversation_history[2].content", text, Some(12)));
    messages[59]["role"] = json!("nobody");
    let fatal = super::refused(Preset::ReasoningFirst, messages.into());
    assert_eq!(fatal.field, "conversation_history[49].role");
    assert_eq!(fatal.warnings.len(), 2);
}

#[test]
fn messages_before_the_last_fifty_are_not_even_looked_at() {
    let mut messages = vec![json!("no message at all")];
    messages.extend((0..50).map(|_| said("user", "x")));
    assert_eq!(kept(&take(messages.into())).total_messages, 50);
}

#[test]
fn content_is_dealt_with_before_the_timestamp() {
    let taken = take(json!([{"role": "user", "content": "u".repeat(200)}]));
    let cut = "User message truncated from 200 to 165 characters";
    let missing = format!("Missing timestamp - added current time: {NOW}");
    let expected = [
        ("conversation_history[0].content", cut, Some(0)),
        ("conversation_history[0].timestamp", missing.as_str(), Some(0)),
    ];
    assert_eq!(warned(&taken), expected);
}

#[test]
fn five_messages_stay_however_large_and_the_omission_is_noted_all_the_same() {
    let messages: Vec<_> = (0..5).map(|_| said("assistant", &"a".repeat(8000))).collect();
    let taken = take(messages.into());
    assert_eq!(kept(&taken).total_messages, 5);
    assert!(kept(&taken).messages[0].content.starts_with("... (earlier messages omitted for brevity)\n\naaa"));
    let text = "Total history size exceeded limit. Kept last 5 of 5 messages.";
    assert_eq!(warned(&taken)[1], ("conversation_history", text, None));
}

#[test]
fn a_total_of_exactly_the_limit_is_not_exceeded() {
    let size = |content: usize| content + "assistant".len() + TIME.len() + 10;
    let rest = 15360 - size(8000) - size(0);
    let at_limit = json!([said("assistant", &"a".repeat(8000)), said("assistant", &"b".repeat(rest))]);
    assert_eq!(take(at_limit).warnings, []);
    let beyond = json!([said("assistant", &"a".repeat(8000)), said("assistant", &"b".repeat(rest + 1))]);
    assert!(warned(&take(beyond))[0].1.starts_with("Total history size (15361 chars)"));
}

#[test]
fn configured_limits_are_the_ones_in_the_texts() {
    let reasoning_first =
        ReasoningLimits { max_messages: 3, user_chars: 4, assistant_chars: 6, total_chars: 60, min_keep: 1 };
    let limits = Limits { reasoning_first, ..Limits::default() };
    let history: Value = (0..4).map(|_| said("user", "12345")).collect();
    let taken = check(&history, Preset::ReasoningFirst, &limits, now()).unwrap();
    let texts: Vec<_> = taken.warnings.iter().map(|warning| warning.message.as_str()).collect();
    let cut = "User message truncated from 5 to 19 characters";
    let expected = [
        "Too many messages (4 > 3). Will keep only the last 3 messages to preserve recent context.",
        cut,
        cut,
        cut,
        "Total history size (156 chars) exceeds limit (60 chars). Dropping oldest messages to fit within limit.",
        "Total history size exceeded limit. Kept last 1 of 3 messages.",
    ];
    assert_eq!(texts, expected);
    let fatal = check(&json!([said("user", "123456789")]), Preset::ReasoningFirst, &limits, now()).unwrap_err();
    assert_eq!(fatal.message, "User message exceeds hard limit of 8 characters");
}

#[test]
fn lists_of_parts_become_text_and_attached_images() {
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let content = json!([{"type": "text", "text": " Look"}, image, {"type": "input_text", "text": "here "}]);
    let code = json!({"type": "code", "language": "python", "content": "x = 1"});
    let taken = take(json!([{"role": "user", "content": content, "timestamp": TIME, "attachments": [code]}]));
    assert_eq!((only(&taken).content.as_str(), only(&taken).original_length), ("Look\nhere", 9));
    assert_eq!(only(&taken).attachments, [code, image]);
}

#[test]
fn stored_messages_are_cut_but_never_refused() {
    let messages = vec![
        HistoryMessage::new("user", "u".repeat(1000), TIME),
        HistoryMessage::new("tool", "t".repeat(9000), TIME),
        HistoryMessage::new("user", "  short ", TIME),
    ];
    let history = truncate(messages, Preset::ReasoningFirst, &Limits::default(), now());
    let [user, tool] = ["u".repeat(150), "t".repeat(8192)].map(|text| text + "... [truncated]");
    assert_eq!(contents(&history), [user.as_str(), tool.as_str(), "  short "]);
    assert_eq!(history.truncated_count, 2);
    let again = truncate(history.messages.clone(), Preset::ReasoningFirst, &Limits::default(), now());
    assert_eq!(again, history);
}
