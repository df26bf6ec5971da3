//! What left the prompt comes back when it matters: facts over rollovers, and nothing where nothing is needed.

use loadline::sim::SimConfig;
use serde_json::{Value, json};

use crate::stage::{Stage, words};

const FACTS: [(&str, &str, &str); 20] = [
    ("The code of the harbour gate is 7341.", "What is the code of the harbour gate?", "7341"),
    ("My sister Ingrid is allergic to walnuts.", "What is Ingrid allergic to?", "walnuts"),
    ("We agreed to moor the Albatross at berth nineteen.", "At which berth do we moor the Albatross?", "nineteen"),
    ("The invoice from Lindqvist came to 4,812 crowns.", "How much was the invoice from Lindqvist?", "4,812"),
    (
        "Please never schedule anything on Thursday mornings.",
        "Which mornings must stay free of anything scheduled?",
        "Thursday",
    ),
    ("The backup server is called heron.", "What is the name of the backup server?", "heron"),
    ("Captain Okafor prefers tea with cardamom.", "How does Captain Okafor like the tea?", "cardamom"),
    (
        "The lighthouse was repainted in turquoise last spring.",
        "In which colour was the lighthouse repainted?",
        "turquoise",
    ),
    ("Our insurance policy number is HX-20945.", "What is our insurance policy number?", "HX-20945"),
    ("The old crane can lift eleven tonnes at most.", "How many tonnes can the old crane lift?", "eleven"),
    ("The ferry to Marstrand leaves at 06:25.", "When does the ferry to Marstrand leave?", "06:25"),
    ("Deploys go out from the branch called saltwater.", "From which branch do deploys go out?", "saltwater"),
    ("The password hint for the archive is my first bicycle.", "What is the password hint for the archive?", "bicycle"),
    (
        "Doctor Brandt moved the appointment to 3 December.",
        "To which day did Doctor Brandt move the appointment?",
        "3 December",
    ),
    ("The dog's name is Pumpernickel.", "What is the name of the dog?", "Pumpernickel"),
    ("The leak was behind the third bulkhead.", "Behind which bulkhead was the leak?", "third"),
    ("We pay the apprentices 17 crowns an hour.", "How many crowns an hour do the apprentices get?", "17 crowns"),
    ("The rope supplier is based in Kotka.", "Where is the rope supplier based?", "Kotka"),
    (
        "The anniversary party needs a vegetarian menu.",
        "What kind of menu does the anniversary party need?",
        "vegetarian",
    ),
    ("Error E-6602 means that the pump is blocked.", "What does error E-6602 mean?", "pump is blocked"),
];

/// Chatter that has nothing to do with any of the facts.
fn chatter(number: usize) -> String {
    const TALK: [&str; 6] = [
        "It rained again and the gulls were louder than usual",
        "I read half a novel and then fell asleep over it",
        "Somebody played the accordion under my window for an hour",
        "The bread turned out flat but everyone ate it anyway",
        "There was a long queue for stamps and little else to do",
        "I keep thinking about moving the sofa to the other wall",
    ];
    format!("{}, day {number}. {}", TALK[number % TALK.len()], words("mood", 25))
}

fn forwarded(stage: &Stage) -> Vec<Value> {
    let sent: Value = serde_json::from_str(stage.forwarded("/api/chat").last().expect("forwarded")).expect("json");
    sent["messages"].as_array().expect("messages").clone()
}

/// A chat with all facts early in it, and turns until it has been rolled over three times.
async fn after_three_rollovers(stage: &Stage) -> Vec<Value> {
    let mut messages = vec![json!({ "role": "system", "content": "You are my assistant." })];
    let mut rollovers = 0;
    for turn in 0.. {
        let fact = FACTS.get(turn).map_or_else(String::new, |(fact, ..)| format!(" {fact}"));
        // A long text now and then, so that the load jumps past 100 %.
        let long = if turn % 9 == 8 { words(" pasted", 700) } else { String::new() };
        messages.push(json!({ "role": "user", "content": format!("{}{fact}{long}", chatter(turn)) }));
        let got = stage.chat(&json!(messages), 2048).await;
        assert_eq!(got.status, 200, "turn {turn}: {}", got.text);
        assert_eq!(got.json()["prompt_eval_count"], got.tokens().0, "turn {turn}");
        messages.push(got.json()["message"].clone());
        rollovers += usize::from(got.header("x-loadline-action") == "rollover");
        if rollovers >= 3 && turn > FACTS.len() + 20 {
            return messages;
        }
        assert!(turn < 200, "only {rollovers} rollovers in {turn} turns");
    }
    unreachable!("the loop only ends by returning")
}

#[tokio::test]
async fn twenty_planted_facts_are_still_there_when_asked_for_after_three_rollovers() {
    let stage = Stage::new().await;
    let messages = after_three_rollovers(&stage).await;
    let mut missing = Vec::new();
    for (_, question, answer) in FACTS {
        let mut asked = messages.clone();
        asked.push(json!({ "role": "user", "content": question }));
        let got = stage.chat(&json!(asked), 2048).await;
        assert_eq!(got.status, 200, "{}", got.text);
        assert_eq!(got.json()["prompt_eval_count"], got.tokens().0, "{question}");
        let sent = forwarded(&stage);
        assert_eq!(sent.last(), asked.last(), "the question itself is untouched");
        if !sent.iter().any(|message| message["content"].as_str().is_some_and(|text| text.contains(answer))) {
            missing.push(question);
        }
    }
    assert!(missing.is_empty(), "{} of 20 are missing: {missing:?}", missing.len());
}

#[tokio::test]
async fn recalled_passages_are_quoted_as_data_with_dates_before_the_newest_message_within_their_share() {
    let stage = Stage::new().await;
    let mut messages = after_three_rollovers(&stage).await;
    messages.push(json!({ "role": "user", "content": "What is the code of the harbour gate?" }));
    let got = stage.chat(&json!(messages), 2048).await;
    let sent = forwarded(&stage);
    let note = &sent[sent.len() - 2];
    assert_eq!(note["role"], "user", "never the system's word");
    let text = note["content"].as_str().expect("text");
    assert!(text.starts_with("[RECALLED - earlier messages of this conversation"), "{text}");
    assert!(text.contains("7341") && text.contains("\nuser: "), "{text}");
    let today = jiff::Timestamp::now().strftime("%Y-").to_string();
    assert!(text.contains(&format!("\n[{today}")), "{text}");
    let tokens = crate::stage::MODEL.tokenizer.count(text, Default::default()).tokens;
    assert!(tokens <= got.tokens().1 / 4, "{tokens} of {}", got.tokens().1);
}

#[tokio::test]
async fn a_turn_that_needs_nothing_recalls_nothing() {
    let stage = Stage::new().await;
    let messages = after_three_rollovers(&stage).await;
    for idle in ["ok thanks", "continue", "Yes, please go on.", "Haha, good one!"] {
        let mut asked = messages.clone();
        asked.push(json!({ "role": "user", "content": idle }));
        stage.chat(&json!(asked), 2048).await;
        let recalled = forwarded(&stage)
            .iter()
            .any(|message| message["content"].as_str().is_some_and(|text| text.starts_with("[RECALLED")));
        assert!(!recalled, "{idle}");
    }
}

#[tokio::test]
async fn the_receipt_of_a_compacted_turn_adds_up_and_quotes_nothing() {
    let stage = Stage::new().await;
    let mut messages = after_three_rollovers(&stage).await;
    messages.push(json!({ "role": "user", "content": "What is the code of the harbour gate?" }));
    let got = stage.chat(&json!(messages), 2048).await;
    let answer = stage.get(&format!("/loadline/receipts/{}", got.header("x-loadline-receipt"))).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let receipt = answer.json();
    assert_eq!(receipt["forwarded_tokens"], got.tokens().0);
    assert_eq!(receipt["forwarded_tokens"], got.json()["prompt_eval_count"]);
    let parts = receipt["parts"].as_array().expect("parts");
    let sum: i64 = parts.iter().map(|part| part["tokens"].as_i64().expect("a number")).sum();
    assert_eq!(sum, i64::from(got.tokens().0), "{receipt}");
    for what in ["system", "rollover", "recalled", "verbatim", "template"] {
        assert!(parts.iter().any(|part| part["what"] == what), "`{what}` is missing: {receipt}");
    }
    assert!(parts.iter().all(|part| part["tokens"].as_i64() > Some(0)), "{receipt}");
    // Every message of the client's is somewhere.
    let mut named = vec![false; messages.len() + 1];
    let ranges = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut mark = |range: &Value| {
        let (first, last) =
            (range[0].as_u64().expect("a number") as usize, range[1].as_u64().expect("a number") as usize);
        named[first..=last].fill(true);
    };
    ranges(&receipt["verbatim"]).iter().for_each(&mut mark);
    ranges(&receipt["archived"]).iter().for_each(&mut mark);
    ranges(&receipt["summarised"]).iter().for_each(|one| mark(&one["messages"]));
    assert!(named[1..].iter().all(|named| *named), "{receipt}");
    assert!(!answer.text.contains("harbour"), "a receipt quotes nothing: {receipt}");
    assert_eq!(stage.get("/loadline/receipts/receipt-nope").await.status, 404);
}

#[tokio::test]
async fn recall_can_be_switched_off() {
    let stage = Stage::with(SimConfig::default(), &[("LOADLINE_RECALL_ENABLED", "false")]).await;
    let mut messages = after_three_rollovers(&stage).await;
    messages.push(json!({ "role": "user", "content": "What is the code of the harbour gate?" }));
    stage.chat(&json!(messages), 2048).await;
    let note = "[RECALLED";
    assert!(
        !forwarded(&stage).iter().any(|message| message["content"].as_str().is_some_and(|text| text.starts_with(note)))
    );
}

#[tokio::test]
async fn with_little_room_it_is_the_passage_asked_for_that_comes_back_not_its_neighbours() {
    let stage = Stage::new().await;
    for fillers in [20, 28, 36] {
        let mut messages = Vec::new();
        for number in 0..fillers {
            let fact = if number == 3 { "Please note: the vault code for the Zanzibar office is 7741." } else { "" };
            messages.push(json!({ "role": "user", "content": format!("{}{fact}", if fact.is_empty() { chatter(number) } else { String::new() }) }));
            messages.push(json!({ "role": "assistant", "content": words(&format!("answer{number}"), 20) }));
        }
        for long in [150, 250, 330] {
            let mut asked = messages.clone();
            let question = format!("{} What is the vault code for the Zanzibar office?", words("hm", long));
            asked.push(json!({ "role": "user", "content": question }));
            let checked = stage.post("/loadline/check/api/chat", crate::stage::chat_body(&json!(asked), 1024)).await;
            assert!(checked.text.contains("7741"), "{fillers} {long}: {}", checked.text);
        }
    }
}
