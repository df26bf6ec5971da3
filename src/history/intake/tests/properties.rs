//! What holds for every history, however it was made.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::super::{HistoryMessage, Limits, Preset, ReasoningLimits, RequirementsLimits, check, section, truncate};
use super::now;

/// Small limits, so that short texts exceed them.
fn small_limits() -> Limits {
    Limits {
        reasoning_first: ReasoningLimits {
            max_messages: 6,
            user_chars: 8,
            assistant_chars: 20,
            total_chars: 250,
            min_keep: 2,
        },
        requirements_first: RequirementsLimits { max_messages: 6, user_chars: 110, assistant_chars: 9 },
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "(user|assistant|text|image|code|20[0-9]{2}-1[0-2]-[0-3][0-9]T[0-9:+Z-]{0,9})".prop_map(Value::from),
    ];
    let key = "(role|content|timestamp|attachments|type|text|truncated|[a-z]?)";
    leaf.prop_recursive(4, 64, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|entries| Value::Object(entries.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn any_message() -> impl Strategy<Value = Value> {
    let role = prop_oneof![Just("user"), Just("assistant")];
    let content = prop_oneof!["[a-zé日🎉\n ]{0,16}", "[a-z日]{100,130}", "[x日]{0,30} \\.\\.\\. \\(truncated\\)"];
    let marks = (any::<bool>(), 0..200_usize);
    (role, content, any_json(), any_json(), marks).prop_map(|(role, content, timestamp, attachments, marks)| {
        json!({"role": role, "content": content, "timestamp": timestamp, "attachments": attachments,
               "truncated": marks.0, "original_length": marks.1})
    })
}

fn any_history() -> impl Strategy<Value = Value> {
    prop::collection::vec(any_message(), 0..12).prop_map(Value::from)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn no_json_makes_the_intake_panic(history in any_json(), messages in prop::collection::vec(any_json(), 0..8)) {
        for given in [history, Value::from(messages)] {
            for preset in Preset::ALL {
                for limits in [Limits::default(), small_limits()] {
                    if let Ok(checked) = check(&given, preset, &limits, now()) {
                        let _ = checked.history.as_ref().map(section);
                    }
                }
            }
        }
    }

    #[test]
    fn no_text_is_mistaken_for_a_time_or_panics(text in "\\PC{0,40}", near in "20[0-9W-]{2,9}.[0-9:.,+Z-]{0,20}") {
        for timestamp in [text, near] {
            let message = HistoryMessage::new("user", "x", timestamp);
            let history = truncate(vec![message], Preset::ReasoningFirst, &Limits::default(), now());
            prop_assert!(section(&history).contains("[1] 👤 User ("));
        }
    }

    #[test]
    fn a_result_never_exceeds_the_limits(history in any_history()) {
        let limits = small_limits();
        for preset in Preset::ALL {
            let Ok(checked) = check(&history, preset, &limits, now()) else { continue };
            let Some(kept) = checked.history else { continue };
            let allowed = limits.of(preset);
            prop_assert!(kept.messages.len() <= allowed.max_messages);
            prop_assert_eq!(kept.total_messages, kept.messages.len());
            prop_assert_eq!(kept.truncated_count, kept.messages.iter().filter(|message| message.truncated).count());
            let omission = "... (earlier messages omitted for brevity)\n\n";
            let mut total = 0;
            for message in &kept.messages {
                let content = match preset {
                    Preset::ReasoningFirst => message.content.strip_prefix(omission).unwrap_or(&message.content),
                    Preset::RequirementsFirst => &message.content,
                };
                let length = content.chars().count();
                total += length + message.role.chars().count() + message.timestamp.chars().count() + 10;
                let mark = if !message.truncated { 0 } else { match preset {
                    Preset::ReasoningFirst => "... [truncated]".len(),
                    Preset::RequirementsFirst => " ... (truncated)".len(),
                } };
                let limit = if message.role == "user" { allowed.user_chars } else { allowed.assistant_chars };
                prop_assert!(length <= limit + mark, "{message:?}");
            }
            if let (Some(limit), Some(min_keep)) = (allowed.total_chars, allowed.min_keep) {
                prop_assert!(total <= limit || kept.messages.len() <= min_keep);
            }
        }
    }

    #[test]
    fn order_is_kept(count in 0..12_usize, blank in prop::collection::vec(any::<bool>(), 12)) {
        let history: Value = (0..count)
            .map(|number| json!({"role": "user", "content": if blank[number] { String::new() } else { format!("{number:02}") }}))
            .collect();
        for preset in Preset::ALL {
            let kept = check(&history, preset, &small_limits(), now()).unwrap().history.unwrap_or_default();
            let numbers: Vec<usize> = kept.messages.iter()
                .filter_map(|message| message.content.rsplit('\n').next()?.parse().ok())
                .collect();
            prop_assert!(numbers.is_sorted());
            prop_assert_eq!(numbers.last().copied(), (0..count).rfind(|number| !blank[*number]).filter(|last| count - last <= 6));
        }
    }

    #[test]
    fn a_second_intake_changes_nothing(history in any_history()) {
        for limits in [small_limits(), Limits::default()] {
            let first = check(&history, Preset::RequirementsFirst, &limits, now()).unwrap().history;
            let messages = first.as_ref().map(|kept| serde_json::to_value(&kept.messages).unwrap());
            let again = check(&messages.unwrap_or_default(), Preset::RequirementsFirst, &limits, now()).unwrap();
            prop_assert_eq!(&again.history, &first);
            prop_assert!(again.warnings.is_empty());
        }
    }

    #[test]
    fn a_history_survives_being_stored(history in any_history()) {
        let first = check(&history, Preset::RequirementsFirst, &small_limits(), now()).unwrap().history;
        let stored = serde_json::to_string(&first).unwrap();
        prop_assert_eq!(serde_json::from_str::<Option<super::super::History>>(&stored).unwrap(), first);
    }
}
