//! Claims that hold for any input, tried on chance ones.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Code, human, json as report_json};
use super::{check, jsonl, message, tool_result, tool_use};

/// One block of a made-up file: in which session, call or result, which id.
#[derive(Debug, Clone)]
struct Step {
    session: u8,
    is_call: bool,
    id: u8,
}

fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = (0..2u8, any::<bool>(), 0..4u8).prop_map(|(session, is_call, id)| Step { session, is_call, id });
    prop::collection::vec(prop::collection::vec(step, 1..4), 0..12)
}

/// Each group becomes one message, of the session and the kind of its first step.
fn file_of(groups: &[Vec<Step>]) -> Vec<Value> {
    groups
        .iter()
        .enumerate()
        .map(|(minute, group)| {
            let (session, is_call) = (group[0].session, group[0].is_call);
            let block = |step: &Step| if is_call { tool_use(&id(step)) } else { tool_result(&id(step)) };
            let blocks: Vec<_> = group.iter().map(block).collect();
            let mut line = message(minute, if is_call { "assistant" } else { "user" }, json!(blocks));
            line["sessionId"] = json!(format!("s-{session}"));
            line
        })
        .collect()
}

fn id(step: &Step) -> String {
    format!("call-\"{}", step.id)
}

/// The lines with an orphan, found the slow way.
fn orphan_lines(file: &str) -> Vec<usize> {
    let mut calls = HashSet::new();
    let mut orphans = Vec::new();
    for (index, line) in file.lines().enumerate() {
        let line: Value = serde_json::from_str(line).unwrap();
        for block in line["message"]["content"].as_array().unwrap() {
            if block["type"] == "tool_use" {
                calls.insert((line["sessionId"].clone(), block["id"].clone()));
            } else if !calls.contains(&(line["sessionId"].clone(), block["tool_use_id"].clone())) {
                orphans.push(index + 1);
            }
        }
    }
    orphans
}

fn mutated_line() -> impl Strategy<Value = Vec<u8>> {
    let mut line = message(0, "assistant", json!([{ "type": "text", "text": "a\n\u{1f600}" }, tool_use("c")]));
    line["providerMetadata"] = json!({ "resumed": true, "text": "a\n and a good deal more", "list": [1, 2.5, null] });
    line["message"]["usage"] = json!({ "input_tokens": 3 });
    let bytes = line.to_string().into_bytes();
    let edit = (0..bytes.len(), prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\",:\\0n".to_vec())], 0..3u8);
    prop::collection::vec(edit, 0..4).prop_map(move |edits| {
        let mut bytes = bytes.clone();
        for (place, byte, action) in edits {
            let place = place.min(bytes.len() - 1);
            match action {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ => drop(bytes.remove(place)),
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let report = check(&bytes);
        human(&report, true, true);
        report_json(&report, "a", true);
    }

    #[test]
    fn a_mutated_line_is_json_exactly_when_a_plain_reader_says_so(bytes in mutated_line()) {
        prop_assume!(!bytes.contains(&b'\n'));
        let report = check(&bytes);
        human(&report, true, true);
        let is_json = serde_json::from_slice::<Value>(&bytes).is_ok();
        prop_assert_eq!(report.errors.iter().any(|issue| issue.code == Code::InvalidJson), !is_json);
        prop_assert_eq!(report.parsed_lines == 1, is_json);
    }

    #[test]
    fn orphans_are_reported_exactly_where_they_are(groups in steps()) {
        let file = jsonl(&file_of(&groups));
        let report = check(&file);
        let orphans = orphan_lines(&file);
        let reported: Vec<_> =
            report.errors.iter().filter(|issue| issue.code == Code::OrphanToolResult).map(|issue| issue.line).collect();
        prop_assert_eq!(report.is_valid(), orphans.is_empty());
        prop_assert_eq!(reported, orphans);
    }
}
