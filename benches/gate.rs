//! What the hot path is made of: read, identify, count and decide, for requests in which one message is new.
//!
//!   cargo bench --bench gate

#![allow(clippy::expect_used, reason = "a benchmark that cannot be set up has nothing to say")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use loadline::context::{Budget, ChainKey, Decision, Usage};
use loadline::dialect::{Dialect, Prompt};
use loadline::ollama::count::shape;
use loadline::sim::SimModel;
use loadline::tokenize::template::{Layout, SegmentCache};
use loadline::tokenize::{Generation, Tokenizer};
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
    assert!(layout.learn(&shape, &rendered, tokenizer, Generation::Later));
    layout
}

fn one_new_message(criterion: &mut Criterion) {
    let model = SimModel::standard().expect("the built-in vocabulary");
    let tokenizer = &model.tokenizer;
    let key = ChainKey::new([1; 32]);
    for messages in [2, 200, 2000] {
        let layout = learnt(tokenizer, messages);
        let cache = SegmentCache::default();
        let recount = |body: &str| {
            let request = Dialect::Chat.parse(body).expect("understood");
            let shape = shape(&request);
            layout.compose(&shape).expect("known").count(tokenizer, Generation::Later, &cache).tokens
        };
        recount(&body(messages, 0));
        let bodies: Vec<String> = (1..200).map(|salt| body(messages, salt)).collect();
        let mut group = criterion.benchmark_group("one new message");
        let mut turn = 0;
        let mut next = || {
            turn += 1;
            bodies[turn % bodies.len()].as_str()
        };
        group.bench_function(BenchmarkId::new("parse", messages), |bencher| {
            bencher.iter(|| Dialect::Chat.parse(black_box(next())).expect("understood").kinds.len());
        });
        let requests: Vec<_> = bodies.iter().map(|body| Dialect::Chat.parse(body).expect("understood")).collect();
        let mut turn = 0;
        group.bench_function(BenchmarkId::new("recount", messages), |bencher| {
            bencher.iter(|| {
                turn += 1;
                let shape = shape(black_box(&requests[turn % requests.len()]));
                layout.compose(&shape).expect("known").count(tokenizer, Generation::Later, &cache).tokens
            });
        });
        let mut turn = 0;
        group.bench_function(BenchmarkId::new("identify", messages), |bencher| {
            bencher.iter(|| {
                turn += 1;
                let Prompt::Chat(said) = &requests[turn % requests.len()].prompt else { unreachable!("a chat") };
                key.links("local", black_box(said)).len()
            });
        });
        let mut turn = 0;
        group.bench_function(BenchmarkId::new("parse + identify + count + decide", messages), |bencher| {
            bencher.iter(|| {
                turn += 1;
                let body = black_box(bodies[turn % bodies.len()].as_str());
                let request = Dialect::Chat.parse(body).expect("understood");
                let Prompt::Chat(said) = &request.prompt else { unreachable!("a chat") };
                let links = key.links("local", said);
                let total =
                    layout.compose(&shape(&request)).expect("known").count(tokenizer, Generation::Later, &cache).tokens;
                let limit = Budget::new(131_072, 0.15, None).limit;
                (links.len(), Decision::of(Usage { total, limit }))
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

criterion_group!(benches, one_new_message, counting);
criterion_main!(benches);
