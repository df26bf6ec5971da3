//! What the hot path is made of: read, identify, count and decide, for requests in which one message is new.
//!
//!   cargo bench --bench gate

#![allow(clippy::expect_used, reason = "a benchmark that cannot be set up has nothing to say")]

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use criterion::{BatchSize, Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use loadline::context::{Budget, ChainKey, Decision, Usage};
use loadline::dialect::{Dialect, Prompt, Request};
use loadline::ollama::count::shape;
use loadline::sim::SimModel;
use loadline::sim::vocabulary::{Table, from_tiktoken};
use loadline::tokenize::template::{Layout, Learnt, SegmentCache};
use loadline::tokenize::{Generation, Tables, Tokenizer};
use serde_json::{Value, json};

/// A chat of so many messages, about a hundred bytes each; `salt` makes the newest one new.
fn body(messages: usize, salt: usize) -> String {
    let message = |index: usize| {
        let role = if index.is_multiple_of(2) { "user" } else { "assistant" };
        let salt = if index + 1 == messages { salt } else { 0 };
        json!({ "role": role, "content": format!("Message {index}.{salt}: the crates of tea are in the forward hold, the tar is aft, and the mate has the list.") })
    };
    let messages: Vec<Value> = (0..messages).map(message).collect();
    json!({ "model": "sim", "stream": true, "messages": messages, "options": { "num_ctx": 131_072 } }).to_string()
}

/// A layout that has learnt ChatML, as the first requests of a model teach it.
fn learnt(tokenizer: &Tokenizer, messages: usize) -> Layout {
    let mut layout = Layout::default();
    let body = body(messages, 0);
    let request = Dialect::Chat.parse(&body).expect("understood");
    let shape = shape(&request);
    let Prompt::Chat(said) = &request.prompt else { unreachable!("a chat") };
    let markers = shape.markers();
    let mut rendered = String::new();
    for (message, marker) in said.iter().zip(&markers) {
        let marker = marker.as_deref().expect("plain text");
        rendered.push_str(&format!("<|im_start|>{}\n{marker}<|im_end|>\n", message.role.name()));
    }
    rendered.push_str("<|im_start|>assistant\n");
    layout.add(Learnt::read(&shape, &rendered, tokenizer, Generation::Later).expect("ChatML can be learnt"));
    layout
}

/// Times `step` on a request whose newest message nobody has seen before; making it is not timed.
fn on_new_turns(bencher: &mut Bencher<'_>, messages: usize, step: impl Fn(&str, &Request<'_>)) {
    static SALT: AtomicUsize = AtomicUsize::new(1);
    bencher.iter_custom(|rounds| {
        let mut took = Duration::ZERO;
        for _ in 0..rounds {
            let body = body(messages, SALT.fetch_add(1, Ordering::Relaxed));
            let request = Dialect::Chat.parse(&body).expect("understood");
            let started = Instant::now();
            step(black_box(&body), black_box(&request));
            took += started.elapsed();
        }
        took
    });
}

fn one_new_message(criterion: &mut Criterion) {
    let model = SimModel::standard().expect("the built-in vocabulary");
    let tokenizer = &model.tokenizer;
    let key = ChainKey::new([1; 32]);
    for messages in [2, 200, 2000] {
        let layout = learnt(tokenizer, messages);
        let cache = SegmentCache::default();
        let recount = |request: &Request<'_>| {
            layout.compose(&shape(request)).expect("known").count(tokenizer, Generation::Later, &cache).tokens
        };
        let identify = |request: &Request<'_>| {
            let Prompt::Chat(said) = &request.prompt else { unreachable!("a chat") };
            key.links("local", said).len()
        };
        recount(&Dialect::Chat.parse(&body(messages, 0)).expect("understood"));
        let mut group = criterion.benchmark_group("one new message");
        let id = |step| BenchmarkId::new(step, messages);
        group.bench_function(id("parse"), |bencher| {
            on_new_turns(bencher, messages, |body, _| {
                black_box(Dialect::Chat.parse(body).expect("understood").kinds.len());
            });
        });
        group.bench_function(id("recount"), |bencher| {
            on_new_turns(bencher, messages, |_, request| {
                black_box(recount(request));
            });
        });
        group.bench_function(id("identify"), |bencher| {
            on_new_turns(bencher, messages, |_, request| {
                black_box(identify(request));
            });
        });
        group.bench_function(id("parse + identify + count + decide"), |bencher| {
            on_new_turns(bencher, messages, |body, _| {
                let request = Dialect::Chat.parse(body).expect("understood");
                let links = identify(&request);
                let limit = Budget::new(131_072, 0.15, None).limit;
                black_box((links, Decision::of(Usage { total: recount(&request), limit })));
            });
        });
        group.finish();
    }
}

fn counting(criterion: &mut Criterion) {
    let model = SimModel::standard().expect("the built-in vocabulary");
    let text = include_str!("../src/tokenize/split.rs").repeat(4);
    let mut group = criterion.benchmark_group("counting");
    group.throughput(Throughput::Bytes(text.len() as u64));
    group.bench_function("byte-level BPE, text seen before", |bencher| {
        bencher.iter(|| model.tokenizer.count(black_box(&text), Generation::Later).tokens);
    });
    group.finish();
}

/// From what the upstream tells to a tokenizer, and from what was kept on disk.
fn a_vocabulary(criterion: &mut Criterion) {
    for (name, table) in [("50k", Table::R50k), ("200k", Table::O200k)] {
        let told = from_tiktoken(table);
        let kept = postcard::to_stdvec(&Tables::new(told.clone()).expect("complete")).expect("written");
        let mut group = criterion.benchmark_group("a vocabulary is ready");
        group.sample_size(10);
        group.bench_function(BenchmarkId::new("from its lists", name), |bencher| {
            bencher.iter_batched(
                || told.clone(),
                |told| Tokenizer::new(told).expect("complete"),
                BatchSize::LargeInput,
            );
        });
        group.bench_function(BenchmarkId::new("from the disk", name), |bencher| {
            bencher.iter(|| {
                let tables: Tables = postcard::from_bytes(black_box(&kept)).expect("as it was written");
                Tokenizer::from_tables(&tables).expect("complete")
            });
        });
        group.finish();
    }
}

criterion_group!(benches, one_new_message, counting, a_vocabulary);
criterion_main!(benches);
