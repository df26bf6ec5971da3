//! Claims about recall that hold for any tuning of its numbers.

use proptest::prelude::*;

use super::*;

/// A conversation with enough small talk around it for rarity to mean something.
fn conversation() -> Vec<String> {
    let mut messages = vec![
        "The invoice PO-7341 was shipped on Tuesday by the Rotterdam office.".to_owned(),
        "Good, then accounting can close it.".to_owned(),
        "Which restaurant did Anna choose for the anniversary?".to_owned(),
        "The little Georgian one behind the station, at eight.".to_owned(),
        "parse_config() in src/loader.rs fails with E0502 since v2.3".to_owned(),
        "Clone the map before the loop, the borrow ends too late.".to_owned(),
        "我们的预算是三千欧元，不能再多了。".to_owned(),
        "好的，我记下了。".to_owned(),
    ];
    for number in 0..40 {
        messages.push(format!("How far are you with part {number}?"));
        messages.push("Nearly there, I will write again when it works.".to_owned());
    }
    messages
}

fn index() -> Index {
    Index::build(conversation().iter().map(String::as_str))
}

fn ask<'a>(newest: &'a str) -> Query<'a> {
    Query { newest, before: None, semantic: None, keen: 0.0 }
}

fn best(query: &Query<'_>) -> Option<usize> {
    index().rank(query).first().map(|hit| hit.index)
}

#[test]
fn small_talk_and_orders_recall_nothing() {
    for talk in [
        "ok thanks",
        "continue",
        "tell me a joke",
        "what do you think?",
        "Thank you so much!",
        "go on",
        "sounds good to me",
        "make it shorter",
        "can you explain that in more detail?",
        "that is wrong, try again",
        "why?",
        "👍",
        "",
        "   \n",
    ] {
        assert_eq!(best(&ask(talk)), None, "{talk}");
    }
}

#[test]
fn a_subject_that_never_came_up_recalls_nothing() {
    for question in [
        "What is the capital of Mongolia?",
        "Who won the football world cup in 1998?",
        "How do I knit a scarf with a cable pattern?",
        "法国大革命是哪一年开始的？",
    ] {
        assert_eq!(best(&ask(question)), None, "{question}");
    }
}

#[test]
fn naming_what_was_said_recalls_it() {
    assert_eq!(best(&ask("Who handled the invoice in Rotterdam?")), Some(0));
    assert_eq!(best(&ask("remind me about the anniversary restaurant")), Some(2));
}

#[test]
fn words_match_in_other_forms() {
    assert_eq!(best(&ask("Was the invoice shipping on time?")), Some(0));
    let index = Index::build(["We bought a Peugeot.", "Fine."].into_iter());
    assert_eq!(index.rank(&ask("What car did we buy, a peugeot?"))[0].index, 0);
    let index = Index::build(["Wir wohnen in Zürich.", "Schön."].into_iter());
    assert_eq!(index.rank(&ask("Wohnung ZURICH"))[0].index, 0);
}

#[test]
fn identifiers_match_whole_and_in_parts() {
    for question in ["status of PO-7341?", "what about 7341", "Wo ist po-7341?"] {
        assert_eq!(best(&ask(question)), Some(0), "{question}");
    }
    for question in ["what broke parse_config?", "loader.rs", "is E0502 solved?", "since v2.3?", "parseConfig"] {
        assert_eq!(best(&ask(question)), Some(4), "{question}");
    }
}

#[test]
fn chinese_matches_without_spaces() {
    assert_eq!(best(&ask("预算是多少？")), Some(6));
}

#[test]
fn an_answer_comes_with_its_question() {
    let hits = index().rank(&ask("Which restaurant did Anna pick?"));
    let answer = hits.iter().position(|hit| hit.index == 3);
    assert!(answer.is_some_and(|rank| rank <= 2), "{hits:?}");
}

#[test]
fn a_follow_up_is_understood_by_what_was_said_before() {
    let before = Some("The Georgian restaurant behind the station is booked.");
    assert_eq!(best(&Query { before, ..ask("and the other one?") }).map(|index| index / 2), Some(1));
    assert_eq!(best(&Query { before, ..ask("ok thanks") }), None);
    assert_eq!(best(&Query { before, ..ask("what do you think?") }), None);
    assert_eq!(best(&Query { before, ..ask("Was the invoice shipped?") }), Some(0));
}

#[test]
fn similarity_lifts_a_passage_without_shared_words() {
    let mut semantic = vec![0.2; index().len()];
    semantic[3] = 0.8;
    let semantic = Some(semantic.as_slice());
    assert_eq!(best(&Query { semantic, ..ask("Where is the birthday dinner?") }), Some(3));
    assert_eq!(best(&Query { semantic, ..ask("thanks!") }), None);
}

#[test]
fn similarity_that_stands_out_nowhere_recalls_nothing() {
    let semantic: Vec<f32> = (0..index().len()).map(|message| 0.4 + 0.01 * (message % 5) as f32).collect();
    for semantic in [semantic.as_slice(), &[], &[f32::NAN; 88]] {
        let query = Query { semantic: Some(semantic), ..ask("What is the capital of Mongolia?") };
        assert_eq!(best(&query), None);
    }
}

#[test]
fn nothing_is_found_in_an_empty_index() {
    let index = Index::build(std::iter::empty());
    assert!(index.is_empty());
    assert!(
        index.rank(&Query { newest: "invoice", before: Some("invoice"), semantic: Some(&[]), keen: 0.0 }).is_empty()
    );
    assert!(Index::default().rank(&ask("invoice")).is_empty());
    assert!(choose(&[], 0, 100, 5, |_| Some(1)).is_empty());
}

#[test]
fn a_megabyte_is_read_at_its_ends() {
    let log = "2026-01-01 WARN retry 17 of queue alpha\n".repeat(25_000);
    let index = Index::build(conversation().iter().map(String::as_str).chain([log.as_str()]));
    assert_eq!(index.len(), conversation().len() + 1);
    let query = format!("{log}\nDoes that explain the Rotterdam invoice?");
    // The log itself is the best hit by far.
    assert!(index.rank(&Query { keen: 1.0, ..ask(&query) }).iter().any(|hit| hit.index == 0));
}

#[test]
fn a_gap_of_one_short_message_is_filled() {
    let hits = [Hit { index: 4, score: 2.0 }, Hit { index: 6, score: 1.0 }];
    assert_eq!(choose(&hits, 10, 1000, 14, |_| Some(10)), [4, 5, 6]);
    assert_eq!(choose(&hits, 10, 1000, 14, |index| (index != 5).then_some(10)), [4, 6]);
}

proptest! {
    #[test]
    fn choice_is_ascending_unique_and_within_budget(
        hits in proptest::collection::vec((0_usize..60, 0.0_f32..9.0), 0..80),
        costs in proptest::collection::vec(proptest::option::of(0_u32..200), 50),
        budget in 0_u32..2000,
        per_block in 0_u32..40,
    ) {
        let hits: Vec<Hit> = hits.into_iter().map(|(index, score)| Hit { index, score }).collect();
        let chosen = choose(&hits, costs.len(), budget, per_block, |index| costs[index]);
        prop_assert!(chosen.is_sorted_by(|a, b| a < b));
        prop_assert!(chosen.iter().all(|index| costs[*index].is_some()));
        let blocks = chosen.iter().filter(|index| **index == 0 || !chosen.contains(&(**index - 1))).count() as u32;
        let spent: u32 = chosen.iter().filter_map(|index| costs[*index]).sum();
        prop_assert!(spent + blocks * per_block <= budget);
    }

    #[test]
    fn any_text_can_be_indexed_and_asked(texts in proptest::collection::vec(".{0,60}", 0..8), newest in ".{0,60}") {
        let index = Index::build(texts.iter().map(String::as_str));
        let hits = index.rank(&Query { newest: &newest, before: Some(&newest), semantic: None, keen: 0.0 });
        prop_assert!(hits.iter().all(|hit| hit.index < texts.len() && hit.score > 0.0));
        prop_assert!(hits.is_sorted_by(|a, b| a.score >= b.score));
    }
}
