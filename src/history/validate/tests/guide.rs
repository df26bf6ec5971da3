//! The rules and the layouts of the format's guide.

use serde_json::{Value, json};

use super::super::{Code, human, json as report_json};
use super::{changed, check, codes, jsonl, message, options, tool_result, tool_use};

/// Fifteen messages over 42 minutes with two tool calls, of which one still runs.
fn conversation() -> Vec<Value> {
    (0..15)
        .map(|index| {
            let (kind, content) = match index {
                5 => ("assistant", json!([{ "type": "text", "text": "Let me look." }, tool_use("call-1")])),
                6 => ("user", json!([tool_result("call-1")])),
                7 => ("assistant", json!([tool_use("call-2")])),
                _ if index % 2 == 0 => ("user", json!("Please go on.")),
                _ => ("assistant", json!([{ "type": "thinking", "thinking": "Hm." }])),
            };
            message(index * 3, kind, content)
        })
        .collect()
}

/// The guide's example: three faults, on lines 7, 9 and 12.
fn three_faults() -> Vec<Value> {
    let mut lines = conversation();
    lines[6]["message"]["content"][0]["content"] = json!("");
    lines[8]["message"]["content"] = json!([tool_result("call-999")]);
    lines[11]["message"]["content"] = json!([tool_result("call-2")]);
    lines
}

#[test]
fn empty_tool_result_content() {
    let report = check(jsonl(&three_faults()));
    assert_eq!(report.errors[0].code, Code::EmptyToolResultContent);
    assert_eq!(report.errors[0].message, "tool_result block has empty content");
    assert_eq!(report.errors[0].field.as_deref(), Some("message.content[0].content"));
}

#[test]
fn wrong_message_type_for_tool_result() {
    let call = message(0, "assistant", json!([tool_use("c")]));
    for (kind, role) in [("assistant", "assistant"), ("meta", "system")] {
        let mut line = message(1, kind, json!([tool_result("c")]));
        line["message"]["role"] = json!(role);
        let report = check(jsonl(&[call.clone(), line]));
        assert_eq!(codes(&report), [(2, Code::InvalidToolResultMessageType)]);
        let text = format!("tool_result blocks must be in user messages, found in {kind} message");
        assert_eq!(report.errors[0].message, text);
    }
}

#[test]
fn orphan_tool_result() {
    let result = message(1, "user", json!([tool_result("call-999")]));
    let report = check(jsonl(&[message(0, "user", json!("a")), result.clone()]));
    assert_eq!(codes(&report), [(2, Code::OrphanToolResult)]);
    assert_eq!(report.errors[0].message, "tool_result references tool_use_id \"call-999\" which doesn't exist");
    // A call that comes too late does not help.
    let late_call = message(2, "assistant", json!([tool_use("call-999")]));
    assert_eq!(codes(&check(jsonl(&[result, late_call]))), [(1, Code::OrphanToolResult)]);
}

#[test]
fn invalid_timestamp_format() {
    for text in ["1762421400", "2025-11-06", "2025-11-06T09:00:00", "06.11.2025 09:00"] {
        let line = changed(message(0, "user", json!("a")), |line| line["timestamp"] = json!(text));
        assert_eq!(codes(&check(jsonl(&[line]))), [(1, Code::InvalidTimestampFormat)], "{text}");
    }
}

#[test]
fn duplicate_content_in_metadata() {
    let long = "The whole answer of the model, \"quoted\" and long enough that a part of it counts as well.";
    let contents = [
        ("user", json!(long)),
        ("assistant", json!([{ "type": "text", "text": "a" }, { "type": "thinking", "thinking": long }])),
        (
            "user",
            json!([changed(tool_result("c"), |block| block["content"] = json!([{ "type": "text", "text": long }]))]),
        ),
    ];
    for (kind, content) in contents {
        let call = message(0, "assistant", json!([tool_use("c")]));
        let file = |metadata: Value| {
            let mut line = message(1, kind, content.clone());
            line["providerMetadata"] = json!({ "id": "6f1c", "original": metadata });
            jsonl(&[call.clone(), line])
        };
        for repeated in [json!(long), json!([{ "a": long }]), json!(&long[..70]), json!(format!("> {long}"))] {
            let report = check(file(repeated));
            assert_eq!(codes(&report), [(2, Code::DuplicateContentInMetadata)]);
            assert_eq!(report.warnings[0].field.as_deref(), Some("providerMetadata.original"));
        }
        for other in [json!(&long[..40]), json!(long.replace("model", "human")), json!({ long: true })] {
            assert_eq!(codes(&check(file(other))), []);
        }
    }
}

#[test]
fn tool_use_without_result_is_valid() {
    let report = check(jsonl(&[message(0, "assistant", json!([tool_use("call-1")]))]));
    assert_eq!(codes(&report), []);
    assert!(report.passes(true));
}

#[test]
fn canonical_conversion_produces_valid_output() {
    let report = check(jsonl(&conversation()));
    assert_eq!(codes(&report), []);
    assert_eq!((report.total_lines, report.parsed_lines, report.messages, report.valid_messages), (15, 15, 15, 15));
}

#[test]
fn the_report_of_a_good_file_has_the_guides_layout() {
    let text = "\
=== Canonical JSONL Validation Report ===

Status: ✓ VALID
Total Lines: 15
Parsed Lines: 15
Valid Messages: 15/15

Session Info:
  Session ID: abc-123
  Provider: cursor
  Messages: 15
  Duration: 42 minutes

✓ Validation passed!
";
    assert_eq!(human(&check(jsonl(&conversation())), false, false), text);
}

#[test]
fn the_report_of_three_faults_has_the_guides_layout() {
    let text = "\
=== Canonical JSONL Validation Report ===

Status: ✗ INVALID
Total Lines: 15
Parsed Lines: 15
Valid Messages: 12/15

Errors (3):
  ✗ Line 7: [EMPTY_TOOL_RESULT_CONTENT] tool_result block has empty content
  ✗ Line 9: [ORPHAN_TOOL_RESULT] tool_result references tool_use_id \"call-999\" which doesn't exist
  ✗ Line 12: [INVALID_TOOL_RESULT_MESSAGE_TYPE] tool_result blocks must be in user messages, found in assistant message

✗ Validation failed!
";
    assert_eq!(human(&check(jsonl(&three_faults())), false, false), text);
}

#[test]
fn warnings_are_shown_and_fail_a_strict_check() {
    let report = check(jsonl(&[message(1, "user", json!("a")), message(0, "user", json!("b"))]));
    let lenient = human(&report, false, false);
    let warning =
        "Warnings (1):\n  ⚠ Line 2: [TIMESTAMP_OUT_OF_ORDER] timestamp is earlier than that of the message before\n";
    assert!(lenient.contains("Status: ✓ VALID") && lenient.ends_with(&format!("{warning}\n✓ Validation passed!\n")));
    let strict = human(&report, true, true);
    assert!(
        strict.contains("Status: ✗ INVALID")
            && strict.ends_with("✗ Validation failed! (with --strict, warnings count as errors)\n")
    );
    assert!(strict.contains("      Level: 3 (session)\n      Field: timestamp\n      Hint: Sort "));
    assert_eq!(report_json(&report, "a", false)["valid"], true);
    assert_eq!(report_json(&report, "a", true)["valid"], false);
}

#[test]
fn json_of_a_good_file_is_the_guides_object() {
    let value = report_json(&check(jsonl(&conversation())), "/path/to/session.jsonl", false);
    let expected = json!({
        "file": "/path/to/session.jsonl",
        "valid": true,
        "totalLines": 15,
        "parsedLines": 15,
        "validMessages": 15,
        "errors": [],
        "warnings": [],
        "sessionId": "abc-123",
        "provider": "cursor",
        "durationMs": 2_520_000,
    });
    assert_eq!(value.to_string(), expected.to_string());
}

#[test]
fn json_of_three_faults_names_each() {
    let value = report_json(&check(jsonl(&three_faults())), "s.jsonl", false);
    assert_eq!(value["valid"], false);
    assert_eq!(value["validMessages"], 12);
    assert_eq!(
        value["errors"][1],
        json!({
            "line": 9,
            "code": "ORPHAN_TOOL_RESULT",
            "message": "tool_result references tool_use_id \"call-999\" which doesn't exist",
            "level": 3,
            "field": "message.content[0].tool_use_id",
            "hint": Code::OrphanToolResult.hint(),
        })
    );
}

#[test]
fn findings_beyond_the_limit_are_counted_and_said() {
    let options = super::Options { max_issues: 2, ..options() };
    let report = super::validate("{}\n".as_bytes(), &options).unwrap();
    assert_eq!((report.errors.len(), report.errors_left_out), (2, 4));
    let text = human(&report, false, false);
    assert!(text.contains("Errors (6):") && text.contains("  … and 4 more, not listed\n"));
    assert_eq!(report_json(&report, "a", false)["errorsLeftOut"], 4);
}

#[test]
fn strings_of_the_file_cannot_steer_a_terminal() {
    let line = changed(message(0, "user", json!("a")), |line| line["sessionId"] = json!("a\u{1b}[2J\u{202e}"));
    let text = human(&check(jsonl(&[line])), false, false);
    assert!(text.contains("Session ID: a\\u{1b}[2J\\u{202e}\n"), "{text}");
}
