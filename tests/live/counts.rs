//! The predicted count equals what real Ollama reports, in every case where the basis says `exact`.

use std::collections::BTreeMap;

use loadline::tokenize::Vocabulary;
use serde_json::{Value, json};

use super::conversations::{Dice, conversation, tools};
use super::server::{ollama, tell};
use super::vocabularies::{self as vocabulary, CHATML, FOLDED, LEGACY, PLAIN, TOOLS_LAST};
use crate::stage::{Got, Stage};

/// Conversations for each vocabulary, and for a mere variation of one.
const MANY: usize = 300;
const SOME: usize = 40;

struct Case {
    name: &'static str,
    template: &'static str,
    tools: bool,
    conversations: usize,
    more: Value,
}

impl Case {
    fn new(name: &'static str, template: &'static str) -> Self {
        Self {
            name,
            template,
            tools: template == CHATML || template == TOOLS_LAST,
            conversations: MANY,
            more: json!({}),
        }
    }
}

async fn counts_agree(case: Case, vocabulary: impl FnOnce() -> Vocabulary + Send + 'static) {
    let Some(ollama) = ollama(case.name) else { return };
    let (name, template, more) = (case.name, case.template, case.more.clone());
    let model =
        tokio::task::spawn_blocking(move || ollama.tiny(name, &vocabulary(), template, &more)).await.expect("made");
    agree(&case, &model, &ollama.url).await;
}

async fn agree(case: &Case, model: &str, upstream: &str) {
    let sim = loadline::sim::start(loadline::sim::SimConfig {
        models: vec![crate::stage::MODEL.clone()],
        ..Default::default()
    })
    .await
    .expect("a port");
    let stage = Stage::before(sim, upstream, &[]).await;
    let mut dice = Dice::new(case.name.bytes().map(u64::from).sum());
    let mut bases: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for number in 0..case.conversations {
        let (messages, offers_tools) = conversation(&mut dice, case.tools);
        let (got, reported) = ask(&stage, model, number, messages.clone(), offers_tools).await;
        let (predicted, basis) = (got.tokens().0, got.header("x-loadline-basis").to_owned());
        if basis == "exact" && reported != predicted {
            wrong.push(format!(
                "conversation {number}: {predicted} predicted, {reported} reported: {}",
                json!(messages)
            ));
        }
        *bases.entry(basis).or_default() += 1;
    }
    let exact = bases.get("exact").copied().unwrap_or(0);
    tell(&format!("{}: {} conversations, {bases:?}, {} wrong", case.name, case.conversations, wrong.len()));
    assert!(wrong.is_empty(), "{}:\n{}", case.name, wrong.join("\n"));
    assert!(exact * 100 >= case.conversations * 95, "{}: only {exact} counts were exact", case.name);
}

/// One turn, mostly on the native route, sometimes on the others. Returns the reported count, too.
async fn ask(stage: &Stage, model: &str, number: usize, messages: Vec<Value>, offers_tools: bool) -> (Got, u32) {
    let (path, mut body) = match number % 10 {
        8 if !offers_tools => {
            ("/v1/chat/completions", json!({ "model": model, "max_tokens": 1, "messages": messages }))
        }
        9 if !offers_tools => {
            let system: Vec<Value> = messages.iter().filter(|message| message["role"] == "system").cloned().collect();
            let rest: Vec<Value> = messages.into_iter().filter(|message| message["role"] != "system").collect();
            let mut body = json!({ "model": model, "max_tokens": 1, "messages": rest });
            if let Some(system) = system.first() {
                body["system"] = system["content"].clone();
            }
            ("/v1/messages", body)
        }
        _ => (
            "/api/chat",
            json!({ "model": model, "stream": false, "messages": messages, "options": { "num_predict": 1 } }),
        ),
    };
    if offers_tools {
        body["tools"] = tools();
    }
    let got = stage.post(path, body.to_string()).await;
    assert_eq!(got.status, 200, "{path}: {}\n{body}", got.text);
    let answer = got.json();
    let reported = match path {
        "/api/chat" => &answer["prompt_eval_count"],
        "/v1/messages" => &answer["usage"]["input_tokens"],
        _ => &answer["usage"]["prompt_tokens"],
    };
    let reported = reported.as_u64().unwrap_or_else(|| panic!("{path}: no count in {answer}")) as u32;
    (got, reported)
}

/// One test a row: name, template, vocabulary.
macro_rules! vocabularies {
    ($($test:ident: $template:expr, $vocabulary:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $test() {
            counts_agree(Case::new(stringify!($test), $template), || $vocabulary).await;
        }
    )*};
}

vocabularies! {
    gpt2_counts_agree: PLAIN, vocabulary::gpt2();
    llama3_counts_agree: TOOLS_LAST, vocabulary::cl100k_as_llama3();
    gpt4o_counts_agree: CHATML, vocabulary::o200k();
    qwen2_counts_agree: CHATML, vocabulary::qwen();
    deepseek3_counts_agree: FOLDED, vocabulary::deepseek();
    tekken_counts_agree: LEGACY, vocabulary::tekken();
    sentencepiece_counts_agree: LEGACY, vocabulary::mistral_sentencepiece();
}

/// SmolLM2's vocabulary in a tiny model: three hundred real prefills would take many minutes.
#[tokio::test(flavor = "multi_thread")]
async fn smollm_counts_agree() {
    if ollama("smollm_counts_agree").is_some() {
        let vocabulary = vocabulary::smollm().expect("scripts/real-ollama has put SmolLM2 into the cache");
        counts_agree(Case::new("smollm_counts_agree", CHATML), || vocabulary).await;
    }
}

/// The real model with the template that Ollama finds for it by itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_real_smollm2_counts_agree() {
    let Some(ollama) = ollama("the_real_smollm2_counts_agree") else { return };
    let model = tokio::task::spawn_blocking(|| ollama.smollm2()).await.expect("made");
    let case = Case { conversations: 12, tools: false, ..Case::new("the_real_smollm2_counts_agree", CHATML) };
    agree(&case, model, &ollama.url).await;
}

/// The Modelfile's own SYSTEM and MESSAGEs are part of every prompt.
#[tokio::test(flavor = "multi_thread")]
async fn modelfile_system_and_messages_are_counted() {
    let said = json!([{ "role": "user", "content": "who are you" }, { "role": "assistant", "content": "a parrot" }]);
    let more = json!({ "system": "You are a parrot.", "messages": said });
    let case = Case { conversations: SOME, more, ..Case::new("modelfile_system_and_messages_are_counted", CHATML) };
    counts_agree(case, vocabulary::gpt2).await;
}

/// The pre-tokenizers that no vocabulary above has, on GPT-2's.
#[tokio::test(flavor = "multi_thread")]
async fn every_other_pre_tokenizer_agrees() {
    if ollama("every_other_pre_tokenizer_agrees").is_none() {
        return;
    }
    for pre in ["default", "starcoder", "falcon", "bloom", "viking", "deepseek-llm", "deepseek-coder", "dbrx"] {
        let case = Case { conversations: SOME, ..Case::new("every_other_pre_tokenizer_agrees", CHATML) };
        counts_agree(case, move || vocabulary::gpt2_split_as(pre)).await;
    }
}

/// `/api/generate`: template, system, suffix-less, raw, and the context of an earlier answer.
#[tokio::test(flavor = "multi_thread")]
async fn generate_counts_agree() {
    let Some(ollama) = ollama("generate_counts_agree") else { return };
    let model = tokio::task::spawn_blocking(|| ollama.tiny("generate", &vocabulary::gpt2(), CHATML, &json!({})))
        .await
        .expect("made");
    let sim = loadline::sim::start(loadline::sim::SimConfig {
        models: vec![crate::stage::MODEL.clone()],
        ..Default::default()
    })
    .await
    .expect("a port");
    let stage = Stage::before(sim, &ollama.url, &[]).await;
    let mut dice = Dice::new(77);
    let mut context = Value::Null;
    for number in 0..60 {
        let (messages, _) = conversation(&mut dice, false);
        let mut body = json!({ "model": model, "stream": false, "prompt": messages[0]["content"], "options": { "num_predict": 1 } });
        match number % 4 {
            0 => {}
            1 => body["system"] = json!("Be kind."),
            2 => body["raw"] = json!(true),
            _ => body["context"] = context.clone(),
        }
        let got = stage.post("/api/generate", body.to_string()).await;
        assert_eq!(got.status, 200, "{}", got.text);
        let answer = got.json();
        if answer["context"].is_array() {
            context = answer["context"].clone();
        }
        if got.header("x-loadline-basis") == "exact" {
            assert_eq!(answer["prompt_eval_count"], got.tokens().0, "{number}: {body}");
        } else {
            assert!(number < 20, "the generation is learnt by then: {body}");
        }
    }
}
