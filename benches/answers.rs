//! What reading along costs: cutting an answer into frames, and reading each of them.
//!
//!   cargo bench --bench answers

#![allow(clippy::expect_used, reason = "a benchmark that cannot be set up has nothing to say")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use loadline::dialect::{Answer, Dialect};
use loadline::framing::{Frames, Framing};

/// An answer of so many tokens, as one of Ollama's streams writes it.
fn stream(framing: Framing, tokens: usize) -> String {
    let frame = |number: usize| match framing {
        Framing::Sse => format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\" word{number}\"}},\"finish_reason\":null}}]}}\n\n"
        ),
        Framing::Ndjson | Framing::Whole => format!(
            "{{\"model\":\"m\",\"created_at\":\"2026-01-01T00:00:00Z\",\"message\":{{\"role\":\"assistant\",\"content\":\" word{number}\"}},\"done\":false}}\n"
        ),
    };
    (0..tokens).map(frame).collect()
}

fn framing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("answers");
    for (name, framing, dialect) in
        [("ndjson", Framing::Ndjson, Dialect::Chat), ("sse", Framing::Sse, Dialect::OpenAiChat)]
    {
        let text = stream(framing, 1000);
        // As a socket gives them: a frame at a time, and many at once.
        for (pieces, size) in [("frame by frame", text.len() / 1000), ("16 KiB at once", 16 << 10)] {
            group.throughput(Throughput::Bytes(text.len() as u64));
            group.bench_with_input(BenchmarkId::new(format!("cut {name}"), pieces), &size, |bencher, &size| {
                bencher.iter(|| {
                    let (mut frames, mut bytes) = (Frames::new(framing), 0);
                    text.as_bytes().chunks(size).for_each(|piece| frames.push(piece, |frame, _| bytes += frame.len()));
                    black_box(bytes)
                });
            });
            group.bench_with_input(
                BenchmarkId::new(format!("cut and read {name}"), pieces),
                &size,
                |bencher, &size| {
                    bencher.iter(|| {
                        let (mut frames, mut answer) = (Frames::new(framing), Answer::default());
                        let pieces = text.as_bytes().chunks(size);
                        pieces.for_each(|piece| frames.push(piece, |frame, _| answer.read(dialect, frame)));
                        assert_eq!(answer.unreadable, 0);
                        black_box(answer)
                    });
                },
            );
        }
    }
    group.finish();
}

criterion_group!(benches, framing);
criterion_main!(benches);
