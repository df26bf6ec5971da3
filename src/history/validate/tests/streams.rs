//! Lines as they come: blank, long, cut, with strange ends.

use std::io::{BufReader, Write};

use serde_json::json;

use super::super::stream::Partial;
use super::super::{Code, Validator, validate};
use super::{Options, check, codes, jsonl, message, options};

#[test]
fn physical_line_numbers_survive_blank_lines_and_carriage_returns() {
    let good = message(0, "user", json!("a"));
    let file = format!("\r\n{good}\r\n\n  \t\r\n{{}}x\r\n\n7");
    let report = check(&file);
    assert_eq!(codes(&report), [(5, Code::InvalidJson), (7, Code::NotAnObject)]);
    assert_eq!((report.total_lines, report.parsed_lines, report.messages, report.valid_messages), (3, 2, 1, 1));
}

#[test]
fn an_overlong_line_is_skipped_and_the_next_is_checked() {
    let options = Options { max_line_bytes: 400, ..options() };
    let (good, long) = (message(0, "user", json!("a")), message(1, "user", json!("b".repeat(5000))));
    let file = format!("{good}\n{long}\n\n{{}}x\n{long}");
    for capacity in [1, 7, 64, 401, 10_000] {
        let report = validate(BufReader::with_capacity(capacity, file.as_bytes()), &options).unwrap();
        assert_eq!(codes(&report), [(2, Code::LineTooLong), (4, Code::InvalidJson), (5, Code::LineTooLong)]);
        assert_eq!((report.total_lines, report.parsed_lines, report.valid_messages), (4, 1, 1));
    }
}

#[test]
fn no_more_of_a_line_is_stored_than_the_limit() {
    let mut partial = Partial::default();
    for _ in 0..100 {
        partial.extend(&[b'a'; 60], 400);
        assert!(partial.bytes.len() <= 400);
    }
    assert_eq!(partial.bytes.capacity(), 0);
    assert!(!partial.is_empty());
}

#[test]
fn a_line_of_exactly_the_limit_passes() {
    let line = message(0, "user", json!("a")).to_string();
    for end in ["", "\n", "\r\n"] {
        for (limit, expected) in [(line.len(), 0), (line.len() - 1, 1)] {
            let options = Options { max_line_bytes: limit, ..options() };
            let file = format!("{line}{end}");
            let report = validate(BufReader::with_capacity(3, file.as_bytes()), &options).unwrap();
            assert_eq!(report.error_count(), expected);
        }
    }
}

#[test]
fn the_size_of_the_readers_buffer_makes_no_difference() {
    let lines: Vec<_> = (0..20).map(|minute| message(minute, "user", json!("ä".repeat(minute * 9)))).collect();
    let file = jsonl(&lines).replace("m-7", "m-6");
    for capacity in 1..80 {
        let report = validate(BufReader::with_capacity(capacity, file.as_bytes()), &options()).unwrap();
        assert_eq!(codes(&report), [(8, Code::DuplicateUuid)]);
        assert_eq!(report.valid_messages, 19);
    }
}

#[test]
fn lines_at_hand_are_validated_like_a_file() {
    let mut validator = Validator::new(&options());
    validator.line(message(0, "user", json!("a")).to_string().as_bytes());
    validator.line(b"");
    validator.line(b"{}x\n");
    let report = validator.finish();
    assert_eq!(codes(&report), [(3, Code::InvalidJson)]);
    assert_eq!(report.session_id.as_deref(), Some("abc-123"));
}

#[test]
fn a_file_on_disk_is_validated() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(jsonl(&[message(0, "user", json!("a"))]).as_bytes()).unwrap();
    let report = validate(BufReader::new(file.reopen().unwrap()), &options()).unwrap();
    assert!(report.passes(true));
}

#[test]
fn a_byte_order_mark_counts_only_at_the_start() {
    let (first, second) = (message(0, "user", json!("a")), message(1, "user", json!("b")));
    let report = check(format!("\u{feff}{first}\n\u{feff}{second}\n"));
    assert_eq!(codes(&report), [(2, Code::InvalidJson), (1, Code::ByteOrderMark)]);
}
