//! Models that say what they are told to, word by word, on a real Ollama: for tool calls, thinking, pictures
//! and answers that never end, none of which a small real model does reliably.
//!
//! The layer in the middle adds nothing, so the newest token alone decides which one follows. Each token of a
//! script is used once; the row of the one that follows it is its own embedding, so nothing else comes near.
//! A script begins at a control token that the template writes last. All of it is real but the wisdom:
//! Ollama loads the file, renders, tokenizes, samples, and finds the tool calls in what was said.

use std::collections::HashMap;

use loadline::tokenize::{TokenType, Vocabulary};
use serde_json::{Value, json};

use super::gguf::{Keys, Tensor, Weights, assemble, write_vocabulary};
use super::server::Ollama;
use super::vocabularies::gpt2;

const EMBEDDING: u64 = 64;

/// What `say` answers.
pub const SAYS: &str = "Fair winds and a following sea to you.";

struct Script {
    begins: &'static str,
    pieces: &'static [&'static str],
    /// Whether it stops after the last piece, or begins again with the first.
    stops: bool,
}

const SCRIPTS: [Script; 4] = [
    Script {
        begins: "<|say|>",
        pieces: &["Fair wi", "nds an", "d a fol", "lowing s", "ea t", "o yo", "u."],
        stops: true,
    },
    Script {
        begins: "<|call|>",
        pieces: &[
            "<tool_call>",
            "{\"name\": \"get_ti",
            "de\", \"argu",
            "ments\": {\"harb",
            "our\": \"Brest\"}}",
            "</tool_call>",
        ],
        stops: true,
    },
    Script {
        begins: "<|muse|>",
        pieces: &[
            "<think>",
            "The moon is fu",
            "ll, so the ti",
            "de turns at si",
            "x.",
            "</think>",
            "At si",
            "x o'clo",
            "ck.",
        ],
        stops: true,
    },
    Script { begins: "<|endless|>", pieces: &["and on", " and furt", "her st", "ill, "], stops: false },
];

/// ChatML, with a control token of a script at its end.
fn template(begins: &str) -> String {
    [
        r#"{{- if or .System .Tools }}<|im_start|>system
{{ .System }}{{ if .Tools }}

You may call these:
{{- range .Tools }}
{{ . }}{{ end }}{{ end }}<|im_end|>
{{ end }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if eq .Role "user" }}<|im_start|>user
{{ .Content }}<|im_end|>
{{ else if eq .Role "assistant" }}<|im_start|>assistant
{{ if .Thinking }}<think>{{ .Thinking }}</think>
{{ end }}{{ .Content }}{{ if .ToolCalls }}<tool_call>{{ range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}{{ end }}</tool_call>{{ end }}{{ if not $last }}<|im_end|>
{{ end }}
{{- else if eq .Role "tool" }}<|im_start|>tool
{{ .Content }}<|im_end|>
{{ end }}
{{- if and (ne .Role "assistant") $last }}<|im_start|>assistant
"#,
        begins,
        "{{ end }}\n{{- end }}",
    ]
    .concat()
}

/// The names that the models have on this Ollama, by what they do.
pub struct Cast {
    pub names: Value,
}

impl Cast {
    /// Makes those that are not there yet. `free` is a real small model, everything else is scripted.
    pub fn on(ollama: &Ollama) -> Self {
        let (text, sight) = (file(Sees::Nothing), file(Sees::Pictures));
        // Whoever asks for nothing special gets a window of this size.
        let window = |tokens: u32| json!({ "parameters": { "num_ctx": tokens } });
        let make = |name: &str, file: &[u8], begins: &str, tokens: u32| {
            ollama.made_of(name, file, &template(begins), &window(tokens))
        };
        // One calls its tool once, the other as long as it has one.
        let call = r#"{{ if eq .Role "tool" }}<|say|>{{ else }}<|call|>{{ end }}"#;
        let agent = "{{ if $.Tools }}<|call|>{{ else }}<|say|>{{ end }}";
        let names = json!({
            "say": make("say", &text, "<|say|>", 4096),
            "call": make("call", &text, call, 4096),
            "agent": make("agent", &text, agent, 4096),
            "think": make("think", &text, "<|muse|>", 4096),
            "endless": make("endless", &text, "<|endless|>", 4096),
            "sight": make("sight", &sight, "<|say|>", 4096),
            "small": make("small", &text, "<|say|>", 2048),
            "free": ollama.smollm2(),
        });
        Self { names }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Sees {
    Nothing,
    Pictures,
}

/// A whole model file. Pictures need an architecture that Ollama runs itself, with a part that looks at them.
fn file(sees: Sees) -> Vec<u8> {
    let (vocabulary, follows) = vocabulary();
    let architecture = if sees == Sees::Pictures { "mistral3" } else { "llama" };
    let mut keys = Keys::default();
    keys.text("general.architecture", architecture);
    keys.text("general.name", "scripted");
    let tokens = vocabulary.tokens.len() as u32;
    let mut numbers = vec![
        ("context_length", 131_072),
        ("embedding_length", EMBEDDING as u32),
        ("block_count", 1),
        ("feed_forward_length", 64),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 32),
        ("attention.value_length", 32),
        ("rope.dimension_count", 32),
        ("vocab_size", tokens),
    ];
    if sees == Sees::Pictures {
        numbers.extend([
            ("spatial_merge_size", 2),
            ("vision.block_count", 1),
            ("vision.embedding_length", EMBEDDING as u32),
            ("vision.feed_forward_length", 64),
            ("vision.attention.head_count", 2),
            ("vision.attention.key_length", 32),
            ("vision.image_size", 56),
            ("vision.longest_edge", 56),
            ("vision.patch_size", 14),
            ("vision.num_channels", 3),
        ]);
    }
    numbers.iter().for_each(|(name, value)| keys.number(&format!("{architecture}.{name}"), *value));
    keys.float(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5);
    keys.float(&format!("{architecture}.rope.freq_base"), 10_000.0);
    write_vocabulary(&mut keys, &vocabulary);
    let mut tensors = language(tokens, &follows);
    if sees == Sees::Pictures {
        tensors.extend(eyes());
    }
    assemble(&keys, &tensors)
}

/// GPT-2's vocabulary and the pieces of the scripts, and which token follows which.
fn vocabulary() -> (Vocabulary, HashMap<u32, u32>) {
    let mut vocabulary = gpt2();
    // The one that Ollama's own engine splits words by; here it splits plain text alike.
    "tekken".clone_into(&mut vocabulary.pre);
    let stop = vocabulary.eos.expect("there is an end");
    let mut follows = HashMap::new();
    for script in SCRIPTS {
        let first = vocabulary.tokens.len() as u32;
        vocabulary.tokens.push(script.begins.to_owned());
        vocabulary.types.push(TokenType::Control);
        for piece in script.pieces {
            // Byte-level vocabularies write a blank like this.
            let token = piece.replace(' ', "\u{120}");
            assert!(!vocabulary.tokens.contains(&token), "{piece} is a token already: cut the script elsewhere");
            vocabulary.tokens.push(token);
            vocabulary.types.push(TokenType::Normal);
        }
        let last = vocabulary.tokens.len() as u32 - 1;
        follows.extend((first..last).map(|token| (token, token + 1)));
        follows.insert(last, if script.stops { stop } else { first + 1 });
    }
    // Ids that end a picture for this architecture are below twenty: any vocabulary has those.
    (vocabulary, follows)
}

fn tensor(name: impl Into<String>, dimensions: &[u64], weights: Weights) -> Tensor {
    Tensor { name: name.into(), dimensions: dimensions.to_vec(), weights }
}

fn language(tokens: u32, follows: &HashMap<u32, u32>) -> Vec<Tensor> {
    let mut rows = vec![0_i8; EMBEDDING as usize * tokens as usize];
    for (token, next) in follows {
        let at = *next as usize * EMBEDDING as usize;
        // Several scripts end in the same token.
        rows[at..].iter_mut().zip(embedding(*token)).for_each(|(sum, sign)| *sum += sign);
    }
    let embeddings: Vec<i8> = (0..tokens).flat_map(embedding).collect();
    let dimensions = [EMBEDDING, u64::from(tokens)];
    let mut tensors = vec![
        tensor("token_embd.weight", &dimensions, Weights::Given(embeddings)),
        tensor("output.weight", &dimensions, Weights::Given(rows)),
        tensor("output_norm.weight", &[EMBEDDING], Weights::Ones),
    ];
    tensors.extend(layer("blk.0"));
    tensors
}

/// A layer that adds nothing to what goes through it.
fn layer(name: &str) -> Vec<Tensor> {
    let norms = ["attn_norm", "ffn_norm"];
    let squares = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    let norm = |part: &str| tensor(format!("{name}.{part}.weight"), &[EMBEDDING], Weights::Ones);
    let square = |part: &str| tensor(format!("{name}.{part}.weight"), &[EMBEDDING, EMBEDDING], Weights::Zeros);
    norms.map(norm).into_iter().chain(squares.map(square)).collect()
}

/// What looks at pictures: it sees nothing in them, but it looks.
fn eyes() -> Vec<Tensor> {
    let mut tensors = vec![
        tensor("v.patch_conv.weight", &[14, 14, 3, EMBEDDING], Weights::Even),
        tensor("v.encoder_norm.weight", &[EMBEDDING], Weights::Ones),
        tensor("mm.norm.weight", &[EMBEDDING], Weights::Ones),
        tensor("mm.patch_merger.merging_layer.weight", &[EMBEDDING * 4, EMBEDDING], Weights::Zeros),
        tensor("mm.linear_1.weight", &[EMBEDDING, EMBEDDING], Weights::Zeros),
        tensor("mm.linear_2.weight", &[EMBEDDING, EMBEDDING], Weights::Zeros),
    ];
    tensors.extend(layer("v.blk.0"));
    tensors
}

/// Sixty-four signs that belong to this token and, nearly always, to no other.
fn embedding(token: u32) -> [i8; EMBEDDING as usize] {
    // The finisher of SplitMix64: every bit depends on all of the number.
    let mut bits = (u64::from(token) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^= bits >> 31;
    std::array::from_fn(|at| if bits >> at & 1 == 1 { 1 } else { -1 })
}

#[tokio::test(flavor = "multi_thread")]
async fn scripted_models_say_what_they_are_told_to() {
    let Some(ollama) = super::server::ollama("scripted_models_say_what_they_are_told_to") else { return };
    let cast = tokio::task::spawn_blocking(|| Cast::on(ollama)).await.expect("made");
    let ask = async |role: &str, more: Value| {
        let mut body =
            json!({ "model": cast.names[role], "stream": false, "messages": [{ "role": "user", "content": "hello" }] });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let url = format!("{}/api/chat", ollama.url);
        let answer = reqwest::Client::new().post(url).body(body.to_string()).send().await.expect("an answer");
        let text = answer.text().await.expect("a body");
        serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{role}: {error}: {text}"))
    };
    assert_eq!(ask("say", json!({})).await["message"]["content"], SAYS);
    let tool = json!({ "type": "function", "function": { "name": "get_tide", "description": "the tide", "parameters": { "type": "object", "properties": { "harbour": { "type": "string" } } } } });
    let called = ask("call", json!({ "tools": [tool] })).await;
    let function = &called["message"]["tool_calls"][0]["function"];
    assert_eq!(
        (&function["name"], &function["arguments"]),
        (&json!("get_tide"), &json!({ "harbour": "Brest" })),
        "{called}"
    );
    let thought = ask("think", json!({})).await["message"].clone();
    assert_eq!(thought["thinking"], "The moon is full, so the tide turns at six.", "{thought}");
    assert_eq!(thought["content"], "At six o'clock.");
    let long = ask("endless", json!({ "options": { "num_predict": 40 } })).await;
    assert_eq!((&long["eval_count"], &long["done_reason"]), (&json!(40), &json!("length")), "{long}");
    let pictured =
        json!({ "messages": [{ "role": "user", "content": "what is this?", "images": [super::clients::IMAGE] }] });
    let looked = ask("sight", pictured).await;
    assert_eq!(looked["message"]["content"], SAYS, "{looked}");
}
