//! Small things the presets rest on: times, texts of values, names and numbers of the presets.

use jiff::civil::date;
use serde_json::{Value, json};

use super::super::python_text::{clipped, first_chars, text, type_name};
use super::super::timestamp::{is_valid, isoformat, time_of_day};
use super::super::{Limits, Preset, PresetLimits};
use super::refused;

#[test]
fn times_are_written_as_python_writes_them() {
    assert_eq!(isoformat(date(2025, 10, 29).at(13, 30, 0, 123_456_789)), "2025-10-29T13:30:00.123456");
    assert_eq!(isoformat(date(2025, 1, 2).at(3, 4, 5, 6_000)), "2025-01-02T03:04:05.000006");
    assert_eq!(isoformat(date(987, 1, 2).at(3, 4, 5, 999)), "0987-01-02T03:04:05");
}

#[test]
fn the_forms_of_iso_8601_are_read() {
    let dates = ["2025-10-29", "20251029", "2025-W44-3", "2025W443", "2025-W44", "2025W44"];
    let times = ["10", "10:11", "1011", "10:11:12", "101112", "10:11:12.5", "101112,123456789"];
    let offsets = ["", "Z", "+02", "-0530", "+05:30", "+05:30:15", "-23:59:59.999999", " +02:00"];
    for date in dates {
        assert!(is_valid(date), "{date}");
        for (time, separator) in times.iter().zip(["T", " ", "t", "_", "é", "T", "🎉"]) {
            for offset in offsets {
                let written = format!("{date}{separator}{time}{offset}");
                assert!(is_valid(&written), "{written}");
                assert_eq!(time_of_day(&written).map(|time| time.hour()), Some(10), "{written}");
            }
        }
    }
}

#[test]
fn what_only_resembles_a_time_is_not_read() {
    let wrong = [
        "",
        " ",
        "2025",
        "2025-10",
        "10:11:12",
        "2025-13-01",
        "2025-02-29",
        "2025-1029",
        "202510-29",
        "0000-01-01",
        "2025-W54-1",
        "2025-W44-8",
        "2025W440",
        "2025-10-29T",
        "2025-10-29T1",
        "2025-10-29T24:00",
        "2025-10-29T10:60",
        "2025-10-29T10:11:60",
        "2025-10-29T10:1112",
        "2025-10-29T1011:12",
        "2025-10-29T10:11:12.",
        "2025-10-29T10:11z",
        "2025-10-29T10:11+24:00",
        "2025-10-29T10:11+",
        "2025-10-29T10:11+5",
        "2025-10-29T10:11 ",
        " 2025-10-29",
        "2025-10-29Z10:11",
        "2025-10-29T10:11Z+01:00",
        "2025-10-29T10:11:12.5x",
        "+002025-10-29",
        "٢025-10-29",
    ];
    for written in wrong {
        assert!(!is_valid(written), "{written}");
    }
}

#[test]
fn plain_values_read_as_python_shows_them() {
    let cases = [
        (json!(-7), "-7"),
        (json!(u64::MAX), "18446744073709551615"),
        (json!(1.0), "1.0"),
        (json!(-0.0), "-0.0"),
        (json!(0.0001), "0.0001"),
        (json!(0.00001), "1e-05"),
        (json!(1e15), "1000000000000000.0"),
        (json!(1e16), "1e+16"),
        (json!(-1.25e-7), "-1.25e-07"),
        (json!(2.5e300), "2.5e+300"),
        (json!("as is"), "as is"),
        (json!(false), "False"),
    ];
    for (value, shown) in cases {
        assert_eq!(text(&value), shown);
    }
    let names = [json!(null), json!(true), json!(1), json!(1.0), json!(""), json!([]), json!({})]
        .map(|value| type_name(&value));
    assert_eq!(names, ["NoneType", "bool", "int", "float", "str", "list", "dict"]);
}

#[test]
fn characters_are_never_cut_in_half() {
    assert_eq!(first_chars("a日🎉é", 3), "a日🎉");
    assert_eq!((first_chars("日", 5), first_chars("日", 0)), ("日", ""));
    assert_eq!(clipped(&"日".repeat(201)), "日".repeat(200) + "…");
    assert_eq!(clipped(&"日".repeat(200)), "日".repeat(200));
}

#[test]
fn findings_stay_small_whatever_they_quote() {
    let many_keys: Value = Value::Object((0..1000).map(|key| (format!("{key:0>900}"), Value::Null)).collect());
    for preset in Preset::ALL {
        let keys = refused(preset, json!([many_keys])).value;
        assert_eq!(keys.as_array().unwrap().len(), 64);
        assert!(keys.to_string().len() < 64 * 210);
        assert!(refused(preset, json!([{"role": "r".repeat(100_000), "content": ""}])).to_string().len() < 400);
    }
}

#[test]
fn presets_are_known_by_their_names() {
    assert_eq!(Preset::default(), Preset::RequirementsFirst);
    for preset in Preset::ALL {
        assert_eq!(Preset::parse(preset.name()), Some(preset));
        assert_eq!(preset.name().parse(), Ok(preset));
        assert_eq!(serde_json::to_value(preset).unwrap(), preset.name());
    }
    let error = "Reasoning-First".parse::<Preset>().unwrap_err();
    assert_eq!(error.to_string(), "no such preset, must be reasoning-first or requirements-first");
}

#[test]
fn limits_have_their_defaults_and_refuse_unknown_names() {
    let limits: Limits = serde_json::from_value(json!({"reasoning_first": {"user_chars": 99}})).unwrap();
    let PresetLimits { max_messages, user_chars, assistant_chars, total_chars, min_keep } =
        limits.of(Preset::ReasoningFirst);
    assert_eq!(
        (max_messages, user_chars, assistant_chars, total_chars, min_keep),
        (50, 99, 8192, Some(15360), Some(5))
    );
    let PresetLimits { max_messages, user_chars, assistant_chars, total_chars, min_keep } =
        limits.of(Preset::RequirementsFirst);
    assert_eq!((max_messages, user_chars, assistant_chars, total_chars, min_keep), (50, 8000, 150, None, None));
    assert!(serde_json::from_value::<Limits>(json!({"requirements_first": {"total_chars": 1}})).is_err());
}
