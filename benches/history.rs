//! What taking histories in costs.
//!
//!   cargo bench --bench history
//!
//! Session files are validated, and for comparison the same lines are only cut, checked as UTF-8, skipped by
//! serde_json, decoded and dropped, and built into whole values: the floor. Lists of fifty messages are checked by
//! both presets; Loadline promises less than ten milliseconds for that.

use std::fmt::Write;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use jiff::Timestamp;
use jiff::civil::date;
use loadline::history::intake::{Limits, Preset, check, section};
use loadline::history::validate::{Options, validate};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};

const CORPUS_BYTES: usize = 12 << 20;
const START_SECOND: i64 = 1_762_400_000;

/// A small generator of even quality, so that every run sees the same corpus.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % limit
    }

    /// Prose with line breaks, quotes and letters beyond ASCII.
    fn prose(&mut self, length_bytes: usize) -> String {
        const WORDS: [&str; 12] = [
            "the ",
            "session ",
            "window ",
            "holds ",
            "größer ",
            "naïve ",
            "\"quoted\" ",
            "and ",
            "then\n",
            "model ",
            "answer ",
            "→ ",
        ];
        let mut text = String::new();
        while text.len() < length_bytes {
            text.push_str(WORDS[self.below(WORDS.len())]);
        }
        text
    }

    /// Source code as a tool gives it back: many lines, tabs, some quotes.
    fn source(&mut self, length_bytes: usize) -> String {
        let mut text = String::new();
        while text.len() < length_bytes {
            let (number, name) = (self.below(9000), self.below(90));
            let _ = writeln!(
                text,
                "{number:>6}\tlet value_{name} = compute(\"key-{name}\", {number}).unwrap_or_default();"
            );
        }
        text
    }

    fn content(&mut self, turn: usize) -> (&'static str, Value) {
        match turn % 4 {
            0 => {
                let length_bytes = 200 + self.below(3800);
                ("user", json!(self.prose(length_bytes)))
            }
            1 => {
                let (thought, said) = (200 + self.below(1500), 200 + self.below(1500));
                let blocks = json!([
                    { "type": "thinking", "thinking": self.prose(thought), "signature": "c2lnbmF0dXJl".repeat(20) },
                    { "type": "text", "text": self.prose(said) },
                ]);
                ("assistant", blocks)
            }
            2 => {
                let input =
                    json!({ "path": "src/main.rs", "range": [1, 400], "options": { "follow": true, "depth": 3 } });
                let blocks = json!([
                    { "type": "text", "text": self.prose(200) },
                    { "type": "tool_use", "id": format!("call-{turn}"), "name": "read_file", "input": input },
                ]);
                ("assistant", blocks)
            }
            _ => {
                let length_bytes = 2000 + self.below(18_000);
                let id = format!("call-{}", turn - 1);
                ("user", json!([{ "type": "tool_result", "tool_use_id": id, "content": self.source(length_bytes) }]))
            }
        }
    }
}

fn corpus() -> String {
    let mut chance = Chance(7);
    let mut file = String::new();
    for turn in 0.. {
        if file.len() > CORPUS_BYTES {
            break;
        }
        let (kind, content) = chance.content(turn);
        let time = Timestamp::from_second(START_SECOND + i64::try_from(turn).unwrap_or(0)).unwrap_or_default();
        let uuid = |turn: usize| format!("0199f0a1-7c00-7000-8000-{turn:012x}");
        let line = json!({
            "uuid": uuid(turn),
            "parentUuid": turn.checked_sub(1).map(uuid),
            "timestamp": time.to_string(),
            "type": kind,
            "sessionId": "0199f0a1-0000-7000-8000-5e5510000001",
            "provider": "cursor",
            "cwd": "/home/user/project",
            "message": {
                "role": kind,
                "content": content,
                "model": "some-model",
                "usage": { "input_tokens": turn, "output_tokens": 120, "cache_read_input_tokens": 4000 },
            },
            "providerMetadata": { "provider_type": "cursor", "request_id": uuid(turn + 1), "has_thoughts": true },
        });
        let _ = writeln!(file, "{line}");
    }
    file
}

/// Decodes every string and number of a line and keeps none.
struct Decoded;

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Decoded {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<IgnoredAny, Self>()?.is_some() {}
        Ok(self)
    }
}

fn speed(criterion: &mut Criterion) {
    let file = corpus();
    let options = Options::at(Timestamp::from_second(START_SECOND + 86_400).unwrap_or_default());
    let report = validate(file.as_bytes(), &options).unwrap_or_default();
    let is_good = report.total_lines > 0 && report.passes(true);
    assert!(is_good, "the corpus must be good: {:?} {:?}", report.errors.first(), report.warnings.first());

    let mut group = criterion.benchmark_group("validate");
    group.throughput(Throughput::Bytes(file.len() as u64)).sample_size(20);
    group.bench_function("canonical", |bencher| bencher.iter(|| validate(black_box(file.as_bytes()), &options)));
    group.bench_function("floor_cut_lines", |bencher| {
        bencher.iter(|| memchr::memchr_iter(b'\n', black_box(file.as_bytes())).count());
    });
    group.bench_function("floor_utf8", |bencher| {
        bencher.iter(|| {
            file.split_inclusive('\n').filter(|line| std::str::from_utf8(black_box(line.as_bytes())).is_ok()).count()
        });
    });
    group.bench_function("floor_skip_json", |bencher| {
        bencher
            .iter(|| file.lines().filter(|line| serde_json::from_str::<IgnoredAny>(black_box(line)).is_ok()).count());
    });
    group.bench_function("floor_decode_json", |bencher| {
        bencher.iter(|| file.lines().filter(|line| serde_json::from_str::<Decoded>(black_box(line)).is_ok()).count());
    });
    group.bench_function("whole_values", |bencher| {
        bencher.iter(|| file.lines().filter(|line| serde_json::from_str::<Value>(black_box(line)).is_ok()).count());
    });
    group.finish();
}

/// Fifty messages in turns, each long enough to be cut by at least one of the presets and refused by neither.
fn fifty_messages() -> Value {
    let turn = |number: usize| {
        let (role, length) = if number.is_multiple_of(2) { ("user", 250) } else { ("assistant", 2000) };
        let content: String = "Wörter für Loadline, 日本語 🎉 ".chars().cycle().take(length).collect();
        json!({"role": role, "content": content, "timestamp": format!("2025-10-29T13:25:{number:02}.123456+02:00")})
    };
    (0..50).map(turn).collect()
}

fn intake(criterion: &mut Criterion) {
    let history = fifty_messages();
    let limits = Limits::default();
    let now = date(2025, 10, 29).at(13, 30, 0, 0);
    for preset in Preset::ALL {
        criterion.bench_function(&format!("check_50_messages/{}", preset.name()), |bencher| {
            bencher.iter(|| check(black_box(&history), preset, &limits, now));
        });
    }
    let checked = check(&history, Preset::RequirementsFirst, &limits, now).unwrap_or_default();
    let kept = checked.history.unwrap_or_default();
    criterion.bench_function("section_50_messages", |bencher| bencher.iter(|| section(black_box(&kept))));
}

criterion_group!(benches, speed, intake);
criterion_main!(benches);
