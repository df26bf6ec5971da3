//! One smallest file for each code, which must give that finding and no other.

use serde_json::{Value, json};

use super::super::{Code, Level, Severity, validate};
use super::{Options, changed, check, codes, jsonl, message, options, tool_result, tool_use};

#[test]
fn every_code_is_found_alone_by_its_smallest_example() {
    for code in Code::ALL {
        let (line, file) = example(*code);
        let report = validate(file.as_slice(), &Options { max_line_bytes: 64 << 10, ..options() }).unwrap();
        assert_eq!(codes(&report), [(line, *code)], "{}", String::from_utf8_lossy(&file));
        assert_eq!(report.is_valid(), code.severity() == Severity::Warning);
        assert!(!report.passes(true));
    }
}

#[test]
fn names_are_unique_and_hints_are_sentences() {
    let mut names: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Code::ALL.len());
    for code in Code::ALL {
        assert!(code.as_str().bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'));
        assert!(code.hint().ends_with('.'));
        // Quality of the data is never worth more than a warning, nor its shape less than an error.
        assert!(code.level() != Level::Integrity || code.severity() == Severity::Warning);
        assert!(code.level() > Level::Semantic || code.severity() == Severity::Error);
    }
}

/// The line of the finding, and the file.
fn example(code: Code) -> (usize, Vec<u8>) {
    let good = || message(0, "user", json!("hi"));
    let next = |minute: usize| message(minute, "user", json!("hi"));
    let with = |change: &dyn Fn(&mut Value)| (1, vec![changed(good(), |message| change(message))]);
    let block = |kind: &str, block: Value| (1, vec![message(0, kind, json!([block]))]);
    let after_call = |kind: &str, block: Value| {
        (2, vec![message(0, "assistant", json!([tool_use("c")])), message(1, kind, json!([block]))])
    };
    let (line, messages) = match code {
        Code::InvalidJson => return (1, b"{\"uuid\":".to_vec()),
        Code::NotAnObject => return (1, b"[1]".to_vec()),
        Code::LineTooLong => return (1, jsonl(&[message(0, "user", json!("a".repeat(64 << 10)))]).into_bytes()),
        Code::DuplicateField => return (1, good().to_string().replacen('{', r#"{"uuid":"m-0","#, 1).into_bytes()),
        Code::EmptyFile => return (0, b"\n\n".to_vec()),
        Code::ByteOrderMark => return (1, format!("\u{feff}{}", good()).into_bytes()),
        Code::MissingField => with(&|message| drop(message.as_object_mut().unwrap().remove("message"))),
        Code::InvalidFieldType => with(&|message| message["uuid"] = json!(7)),
        Code::EmptyField => with(&|message| message["provider"] = json!("")),
        Code::InvalidMessageType => with(&|message| message["type"] = json!("system")),
        Code::InvalidContent => with(&|message| message["message"]["content"] = json!(7)),
        Code::InvalidContentBlock => block("user", json!({ "text": "hi" })),
        Code::UnknownBlockType => block("assistant", json!({ "type": "tool-use" })),
        Code::InvalidUsage => with(&|message| message["message"]["usage"] = json!({ "input_tokens": -1 })),
        Code::InvalidTimestampFormat => with(&|message| message["timestamp"] = json!("1762421400")),
        Code::InvalidRole => with(&|message| message["message"]["role"] = json!("system")),
        Code::RoleTypeMismatch => with(&|message| message["message"]["role"] = json!("assistant")),
        Code::InvalidToolResultMessageType => after_call("assistant", tool_result("c")),
        Code::InvalidToolUseMessageType => block("user", tool_use("c")),
        Code::EmptyToolUseId => block("assistant", tool_use("")),
        Code::EmptyToolUseName => block("assistant", changed(tool_use("c"), |block| block["name"] = json!(""))),
        Code::EmptyToolResultId => after_call("user", tool_result("")),
        Code::EmptyToolResultContent => {
            after_call("user", changed(tool_result("c"), |block| block["content"] = json!("")))
        }
        Code::OrphanToolResult => block("user", tool_result("c")),
        Code::DuplicateUuid => (2, vec![good(), good()]),
        Code::OwnParent => with(&|message| message["parentUuid"] = json!("m-0")),
        Code::DuplicateToolUseId => after_call("assistant", tool_use("c")),
        Code::DuplicateToolResult => {
            let (_, mut messages) = after_call("user", tool_result("c"));
            messages.push(message(2, "user", json!([tool_result("c")])));
            (3, messages)
        }
        Code::TimestampOutOfOrder => (2, vec![next(1), good()]),
        Code::LargeTimeGap => {
            (2, vec![changed(good(), |message| message["timestamp"] = json!("2025-11-05T09:00:00Z")), next(1)])
        }
        Code::TimestampInFuture => with(&|message| message["timestamp"] = json!("2025-11-07T12:00:01Z")),
        Code::TimestampTooOld => with(&|message| message["timestamp"] = json!("2020-11-01T00:00:00Z")),
        Code::ParentNotFound => with(&|message| message["parentUuid"] = json!("m-9")),
        Code::ParentAfterChild => (1, vec![changed(good(), |message| message["parentUuid"] = json!("m-1")), next(1)]),
        Code::MixedSessions => (2, vec![good(), changed(next(1), |message| message["sessionId"] = json!("other"))]),
        Code::MixedProviders => (2, vec![good(), changed(next(1), |message| message["provider"] = json!("other"))]),
        Code::DuplicateContentInMetadata => {
            let mut message = message(0, "user", json!("sixteen letters!"));
            message["providerMetadata"] = json!({ "raw": ["sixteen letters!"] });
            (1, vec![message])
        }
        Code::LargeMetadata => with(&|message| message["providerMetadata"] = json!({ "blob": "x".repeat(17 << 10) })),
        Code::StringifiedToolInput => {
            block("assistant", changed(tool_use("c"), |block| block["input"] = json!(" {\"path\":1}")))
        }
        Code::ThinkingInUserMessage => block("user", json!({ "type": "thinking", "thinking": "hm" })),
    };
    (line, jsonl(&messages).into_bytes())
}

#[test]
fn optional_fields_may_be_null_and_unknown_ones_anything() {
    let mut line = message(0, "assistant", json!([{ "type": "thinking", "thinking": "", "signature": null }]));
    line["parentUuid"] = Value::Null;
    line["providerMetadata"] = Value::Null;
    line["cwd"] = json!(["/", 1]);
    line["message"]["model"] = Value::Null;
    line["message"]["usage"] = json!({ "input_tokens": null, "output_tokens": 3, "service_tier": "x" });
    assert_eq!(codes(&check(jsonl(&[line]))), []);
}

#[test]
fn all_faults_of_one_line_are_named_with_their_fields() {
    let report = check(
        r#"{"uuid":null,"timestamp":"","type":"user","provider":"","message":{"role":1,"content":[3,{"type":"text"}]}}"#,
    );
    let found: Vec<_> = report.errors.iter().map(|issue| (issue.code, issue.field.as_deref().unwrap())).collect();
    assert_eq!(
        found,
        [
            (Code::InvalidFieldType, "uuid"),
            (Code::MissingField, "sessionId"),
            (Code::EmptyField, "provider"),
            (Code::InvalidTimestampFormat, "timestamp"),
            (Code::InvalidFieldType, "message.role"),
            (Code::InvalidContent, "message.content[0]"),
            (Code::MissingField, "message.content[1].text"),
        ]
    );
}

#[test]
fn a_key_twice_is_found_in_message_and_blocks_and_among_unknown_keys() {
    for (part, field) in [
        (r#""content":"#, "message.content"),
        (r#""text":"#, "message.content[0].text"),
        (r#""cache":"#, "message.content[0].cache"),
        (r#""branch":"#, "branch"),
    ] {
        let mut line = message(0, "user", json!([{ "type": "text", "text": "a", "cache": 1 }]));
        line["branch"] = json!("main");
        let report = check(line.to_string().replacen(part, &format!("{part}null,{part}"), 1));
        assert_eq!(codes(&report), [(1, Code::DuplicateField)]);
        assert_eq!(report.errors[0].field.as_deref(), Some(field));
    }
}

#[test]
fn what_a_plain_reader_refuses_is_refused_wherever_it_stands() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    for value in [deep.as_str(), r#""\ud800""#, "1e999", "\"\u{1}\"", "01"] {
        for place in ["cwd", "providerMetadata", "uuid"] {
            let line = format!(r#"{{"{place}":{value}}}"#);
            assert_eq!(codes(&check(line)), [(1, Code::InvalidJson)], "{value} in {place}");
        }
    }
    assert_eq!(codes(&check(b"{\"a\":\"\xff\"}")), [(1, Code::InvalidJson)]);
    assert_eq!(codes(&check(r#"{} {}"#)), [(1, Code::InvalidJson)]);
}

#[test]
fn a_tool_result_holds_text_and_images_only() {
    let image = json!({ "type": "image", "source": { "type": "base64" } });
    let result = |content: Value| changed(tool_result("c"), |block| block["content"] = content);
    let file = |content: Value| {
        jsonl(&[message(0, "assistant", json!([tool_use("c")])), message(1, "user", json!([result(content)]))])
    };
    assert_eq!(codes(&check(file(json!([{ "type": "text", "text": "a" }, image])))), []);
    assert_eq!(codes(&check(file(json!([])))), [(2, Code::EmptyToolResultContent)]);
    assert_eq!(codes(&check(file(Value::Null))), [(2, Code::EmptyToolResultContent)]);
    assert_eq!(codes(&check(file(json!(" ")))), []);
    assert_eq!(codes(&check(file(json!({})))), [(2, Code::InvalidFieldType)]);
    assert_eq!(codes(&check(file(json!([{ "type": "image" }])))), [(2, Code::MissingField)]);
    assert_eq!(codes(&check(file(json!(["a"])))), [(2, Code::InvalidContentBlock)]);
    let report = check(file(json!([{ "type": "text", "text": "a" }, tool_result("x")])));
    assert_eq!(codes(&report), [(2, Code::InvalidContentBlock)]);
    assert_eq!(report.errors[0].field.as_deref(), Some("message.content[0].content[1]"));
}

#[test]
fn a_call_in_a_faulty_line_still_has_its_result() {
    let call = changed(message(0, "assistant", json!([tool_use("c")])), |line| line["timestamp"] = json!(7));
    let file = jsonl(&[call, message(1, "user", json!([tool_result("c")]))]);
    assert_eq!(codes(&check(file)), [(1, Code::InvalidFieldType)]);
}

#[test]
fn a_call_of_another_session_does_not_count() {
    let call = changed(message(0, "assistant", json!([tool_use("c")])), |line| line["sessionId"] = json!("other"));
    let file = jsonl(&[call, message(1, "user", json!([tool_result("c")]))]);
    assert_eq!(codes(&check(file)), [(2, Code::OrphanToolResult), (2, Code::MixedSessions)]);
}

#[test]
fn a_uuid_may_return_in_another_session_but_only_once() {
    let line = |session: &str| changed(message(0, "user", json!("a")), |line| line["sessionId"] = json!(session));
    let report = check(jsonl(&[line("a"), line("b"), line("a"), line("b"), line("c")]));
    assert_eq!(codes(&report), [(3, Code::DuplicateUuid), (4, Code::DuplicateUuid), (2, Code::MixedSessions)]);
}

#[test]
fn a_resumed_session_may_pause_for_long() {
    let early = changed(message(0, "user", json!("a")), |line| line["timestamp"] = json!("2025-11-01T00:00:00Z"));
    let late = |metadata: Value| changed(message(1, "user", json!("a")), |line| line["providerMetadata"] = metadata);
    assert_eq!(codes(&check(jsonl(&[early.clone(), late(json!({ "resumed": true }))]))), []);
    for metadata in [json!({ "resumed": "true" }), json!({ "deeper": { "resumed": true } })] {
        assert_eq!(codes(&check(jsonl(&[early.clone(), late(metadata)]))), [(2, Code::LargeTimeGap)]);
    }
}

#[test]
fn times_exactly_on_a_limit_are_fine() {
    let at = |minute, time: &str| changed(message(minute, "user", json!("a")), |line| line["timestamp"] = json!(time));
    let file = jsonl(&[at(0, "2025-11-06T12:00:00Z"), at(1, "2025-11-07T12:00:00Z"), at(2, "2025-11-07T12:00:00Z")]);
    assert_eq!(codes(&check(file)), []);
    assert_eq!(codes(&check(jsonl(&[at(0, "2020-11-06T06:00:00Z")]))), []);
    assert_eq!(codes(&check(jsonl(&[at(0, "2020-11-06T05:59:59Z")]))), [(1, Code::TimestampTooOld)]);
}

#[test]
fn a_message_of_endless_blocks_is_refused_within_bounds() {
    let blocks = vec!["{}"; 100_050].join(",");
    let line = message(0, "user", json!("BLOCKS")).to_string().replace("\"BLOCKS\"", &format!("[{blocks}]"));
    let report = check(line);
    assert_eq!(report.errors[0].code, Code::InvalidContent);
    assert_eq!(report.error_count(), 100_002);
    assert_eq!(report.errors.len(), 1000);
}
