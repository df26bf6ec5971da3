use std::collections::HashSet;

use serde_json::Value;

use super::*;

fn shape() -> Shape {
    Shape {
        seed: 1,
        model: "sim".to_owned(),
        routes: Routes::Both,
        streams: Streams::Both,
        turns: 20,
        message_bytes: 400,
        history_bytes: 0,
        fresh: false,
        answer_tokens: 20,
        window_tokens: 32_768,
    }
}

fn script(shape: Shape, path: usize, client: usize) -> Script {
    Script::new(Arc::new(shape), Stage::Measured, path, client)
}

/// So many turns, each answered with the same words.
fn turns(script: &mut Script, count: usize) -> Vec<(Turn, Value)> {
    let turn = |_| {
        let turn = script.next_turn();
        script.answered("Quite so.".to_owned());
        let body = serde_json::from_slice(&turn.body).expect("a body is JSON");
        (turn, body)
    };
    (0..count).map(turn).collect()
}

fn first_user(body: &Value) -> &str {
    let messages = body["messages"].as_array().expect("messages");
    let first = messages.iter().find(|message| message["role"] == "user").expect("a user");
    first["content"].as_str().expect("text")
}

#[test]
fn the_same_seed_says_the_same_and_another_one_something_else() {
    let said = |seed| turns(&mut script(Shape { seed, ..shape() }, 1, 3), 60);
    assert_eq!(said(1), said(1));
    assert_ne!(said(1)[0], said(2)[0]);
}

#[test]
fn paths_have_the_same_conversations_but_for_their_number() {
    let said = |path| turns(&mut script(shape(), path, 0), 60);
    for ((one, _), (other, _)) in said(0).iter().zip(&said(1)) {
        assert_ne!(one.body, other.body);
        let text = |turn: &Turn| String::from_utf8(turn.body.to_vec()).expect("text");
        assert_eq!(text(one).replace("on path 00.", "on path 01."), text(other));
    }
}

#[test]
fn no_two_conversations_begin_the_same() {
    let mut begun = HashSet::new();
    let mut first_turns = 0;
    for client in 0..8 {
        for (turn, body) in turns(&mut script(shape(), 0, client), 200) {
            if turn.number == 1 {
                first_turns += 1;
                begun.insert(first_user(&body).to_owned());
            }
        }
    }
    assert!(first_turns > 50);
    assert_eq!(begun.len(), first_turns);
}

#[test]
fn a_turn_sends_all_that_was_said_before_and_one_message_more() {
    let said = turns(&mut script(shape(), 0, 1), 40);
    for pair in said.windows(2) {
        let [(before, earlier), (turn, later)] = pair else { continue };
        if turn.number == 1 {
            continue;
        }
        assert_eq!(turn.number, before.number + 1);
        let (earlier, later) = (earlier["messages"].as_array().unwrap(), later["messages"].as_array().unwrap());
        assert_eq!(later[..earlier.len()], earlier[..]);
        assert_eq!(later[earlier.len()], json!({ "role": "assistant", "content": "Quite so." }));
        assert_eq!(later.len(), earlier.len() + 2);
    }
}

#[test]
fn sizes_stay_within_their_bounds_and_around_their_median() {
    let mut random = Random::of(&[5]);
    let mut sizes: Vec<usize> = (0..10_000).map(|_| size(&shape(), &mut random)).collect();
    sizes.sort_unstable();
    assert!(sizes[0] >= 50 && sizes[9_999] <= 6_400, "{}–{}", sizes[0], sizes[9_999]);
    assert!((380..460).contains(&sizes[5_000]), "{}", sizes[5_000]);
    let pastes = sizes.iter().filter(|size| **size > 2_400).count();
    assert!((200..800).contains(&pastes), "{pastes}");
}

#[test]
fn conversations_end_after_half_to_one_and_a_half_of_their_turns() {
    let said = turns(&mut script(Shape { message_bytes: 40, ..shape() }, 0, 0), 2_000);
    let lengths: Vec<u32> = said.windows(2).filter(|pair| pair[1].0.number == 1).map(|pair| pair[0].0.number).collect();
    assert!(lengths.iter().all(|length| (10..=30).contains(length)), "{lengths:?}");
    assert!(lengths.iter().collect::<HashSet<_>>().len() > 5, "{lengths:?}");
}

#[test]
fn a_conversation_leaves_before_it_fills_the_window_unless_it_is_meant_to_outgrow_it() {
    let longest = |turns_asked: u32| {
        let asked = Shape { turns: turns_asked, window_tokens: 2_048, ..shape() };
        let said = turns(&mut script(asked, 0, 0), 400);
        (said.iter().map(|(turn, _)| turn.number).max(), said.iter().map(|(turn, _)| turn.body.len()).max())
    };
    let (turns, bytes) = longest(100);
    // What is over the line was said in one turn, and a message is no longer than this.
    assert!(bytes < Some(2_048 * 3 * 3 / 5 + 16 * 400 + 500), "{bytes:?}");
    assert!(turns < Some(30), "{turns:?}");
    assert_eq!(longest(300).0, Some(300));
}

#[test]
fn a_fresh_request_is_a_conversation_of_its_own_with_a_history_of_its_own() {
    let asked = Shape { fresh: true, history_bytes: 5_000, ..shape() };
    let said = turns(&mut script(asked, 0, 0), 20);
    let mut streamed = HashSet::new();
    for (turn, body) in &said {
        assert_eq!(turn.number, 1);
        let messages = body["messages"].as_array().unwrap();
        let bytes: usize = messages.iter().map(|message| message["content"].as_str().unwrap().len()).sum();
        assert!((5_000..5_000 + 6_400 + 200).contains(&bytes), "{bytes}");
        assert!(first_user(body).starts_with("Conversation "), "{body}");
        assert_eq!(messages.last().unwrap()["role"], "user");
        assert_eq!(messages[messages.len() - 2]["role"], "assistant");
        streamed.insert(turn.stream);
    }
    assert_eq!(said.iter().map(|(_, body)| first_user(body)).collect::<HashSet<_>>().len(), 20);
    assert_eq!(streamed.len(), 2, "one-turn conversations alternate too");
}

#[test]
fn clients_alternate_between_routes_and_turns_between_streaming_and_not() {
    for (client, dialect) in [(0, Dialect::Chat), (1, Dialect::OpenAiChat), (2, Dialect::Chat)] {
        let said = turns(&mut script(shape(), 0, client), 5);
        assert!(said.iter().all(|(turn, _)| turn.dialect == dialect));
        assert!(said.windows(2).all(|pair| pair[0].0.stream != pair[1].0.stream));
        assert!(said.iter().all(|(turn, body)| body["stream"] == turn.stream));
    }
    let (_, native) = &turns(&mut script(shape(), 0, 0), 1)[0];
    assert_eq!(native["options"], json!({ "num_ctx": 32_768, "num_predict": 20 }));
    let (_, openai) = &turns(&mut script(shape(), 0, 1), 1)[0];
    assert_eq!(openai["max_tokens"], 20);
}

#[test]
fn after_a_failure_the_next_turn_begins_a_new_conversation() {
    let mut script = script(shape(), 0, 0);
    let begun = turns(&mut script, 3);
    script.next_turn();
    script.failed();
    let (turn, body) = &turns(&mut script, 1)[0];
    assert_eq!(turn.number, 1);
    assert_ne!(first_user(body), first_user(&begun[0].1));
}
