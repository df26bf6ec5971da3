use std::collections::HashSet;

use super::*;

#[test]
fn a_history_that_is_sent_again_is_stored_once() {
    let (_dir, store) = fresh();
    say(&store, 1, &["hello", "hi"]);
    say(&store, 1, &["hello", "hi", "how are you", "fine"]);
    // A retried POST, answered in the same words.
    say(&store, 1, &["hello", "hi", "how are you", "fine"]);
    let reader = store.reader().expect("reader");
    let row = reader.conversation(1).expect("read").expect("there");
    assert_eq!((row.messages, row.branches, row.user.as_str()), (4, 1, "local"));
    assert_eq!(texts(&store, 1, None), ["hello", "hi", "how are you", "fine"]);
}

#[test]
fn a_turn_goes_on_after_a_message_that_is_known() {
    let (_dir, store) = fresh();
    say(&store, 1, &["hello", "hi"]);
    let mut next = begin("t2", 1, &["hello", "hi", "and now"]);
    next.messages.drain(..2);
    next.after = Some(link("local", &["hello", "hi"]));
    store.submit(Change::Begin(next)).wait().expect("stored");
    assert_eq!(texts(&store, 1, None), ["hello", "hi", "and now"]);
}

#[test]
fn an_edit_makes_a_branch_and_both_histories_read_back_whole() {
    let (_dir, store) = fresh();
    let first = ["hello", "hi", "tell me of ships", "they float"];
    let edited = ["hello", "hi", "tell me of trains", "they roll"];
    let opening = ["good day", "hi"];
    say(&store, 1, &first);
    say(&store, 1, &edited);
    say(&store, 1, &opening);
    assert_eq!(texts(&store, 1, Some(link("local", &first))), first);
    assert_eq!(texts(&store, 1, Some(link("local", &edited))), edited);
    assert_eq!(texts(&store, 1, Some(link("local", &opening))), opening);
    assert_eq!(texts(&store, 1, Some(link("local", &first[..3]))), first[..3]);
    assert_eq!(texts(&store, 1, None), opening, "what was said last");
    assert!(texts(&store, 1, Some(link("local", &["never"]))).is_empty());
    let row = store.reader().expect("reader").conversation(1).expect("read").expect("there");
    assert_eq!((row.messages, row.branches), (8, 3));
}

#[test]
fn another_answer_makes_a_branch() {
    let (_dir, store) = fresh();
    say(&store, 1, &["hello", "hi"]);
    say(&store, 1, &["hello", "good day"]);
    say(&store, 1, &["hello", "hi", "on the first", "yes"]);
    assert_eq!(texts(&store, 1, Some(link("local", &["hello", "good day"]))), ["hello", "good day"]);
    assert_eq!(texts(&store, 1, None), ["hello", "hi", "on the first", "yes"]);
    let row = store.reader().expect("reader").conversation(1).expect("read").expect("there");
    assert_eq!((row.messages, row.branches), (5, 2));
}

#[test]
fn pages_of_a_history_put_together_are_the_history() {
    let (_dir, store) = fresh();
    let names: Vec<String> = (0..40).map(|number| number.to_string()).collect();
    let trunk: Vec<&str> = names.iter().map(String::as_str).collect();
    say(&store, 1, &trunk);
    let branch = [&trunk[..25], &["edit", "b", "c", "d"]].concat();
    say(&store, 1, &branch);
    let twig = [&branch[..27], &["edit again", "e"]].concat();
    say(&store, 1, &twig);
    let (reader, to) = (store.reader().expect("reader"), Some(link("local", &twig)));
    for size in [1, 7, 26, 100] {
        let mut read: Vec<MessageRow> = Vec::new();
        loop {
            let page = reader.path_page(1, to, read.len() as u32, size).expect("page");
            assert!(page.len() <= size as usize);
            if page.is_empty() {
                break;
            }
            read.extend(page);
        }
        assert_eq!(read, reader.path(1, to).expect("path"));
        assert_eq!(read.iter().map(|message| message.text.as_str()).collect::<Vec<_>>(), twig);
    }
}

#[test]
fn an_answer_that_was_cut_short_becomes_whole_and_never_the_other_way() {
    let (_dir, store) = fresh();
    let mut cut = finish("t1", &["hello", "hi"]);
    cut.status = TurnStatus::Cancelled;
    drop(store.submit(Change::Begin(begin("t1", 1, &["hello"]))));
    store.submit(Change::Finish(cut.clone())).wait().expect("stored");
    let status = || store.reader().expect("reader").path(1, None).expect("path")[1].status.clone();
    assert_eq!(status(), "cancelled");
    say(&store, 1, &["hello", "hi"]);
    assert_eq!(status(), "complete");
    drop(store.submit(Change::Begin(begin("t3", 1, &["hello"]))));
    cut.turn = "t3".to_owned();
    store.submit(Change::Finish(cut)).wait().expect("stored");
    assert_eq!(status(), "complete");
}

#[test]
fn an_answer_that_a_client_brought_along_counts_once_it_came_from_us() {
    let (_dir, store) = fresh();
    let long = ["hello", "hi", "and", "so", "on"];
    let edited = ["hello", "hi", "or", "else"];
    for (turn, history) in [("t1", &long[..]), ("t2", &edited[..])] {
        store.submit(Change::Begin(begin(turn, 1, history))).wait().expect("stored");
    }
    let answered = |history: &[&str]| {
        let found = store.reader().expect("reader").find("local", &links("local", history)).expect("read");
        found.is_some_and(|found| found.index + 1 == history.len())
    };
    assert!(!answered(&long) && !answered(&edited));
    say(&store, 1, &["hello", "hi"]);
    assert!(answered(&long) && answered(&edited) && answered(&["hello", "hi"]));
    assert!(!answered(&["hello"]));
}

#[test]
fn users_with_the_same_words_do_not_meet() {
    let (_dir, store) = fresh();
    say(&store, 1, &["hello", "hi"]);
    let reader = store.reader().expect("reader");
    let theirs = links("mallory", &["hello", "hi"]);
    assert_eq!(reader.find("mallory", &theirs).expect("read"), None);
    // Not even with links that are somebody else's.
    let stolen = links("local", &["hello", "hi"]);
    assert_eq!(reader.find("mallory", &stolen).expect("read"), None);
    assert!(reader.find("local", &stolen).expect("read").is_some());
    assert_eq!(reader.find("local", &[]).expect("read"), None);
}

#[test]
fn of_equal_openings_the_longest_that_was_answered_is_found_then_the_newest() {
    let (_dir, store) = fresh();
    let (answered, opening) = (["hello", "hi"], links("local", &["hello", "hi"]));
    say(&store, 1, &answered);
    for (turn, conversation) in [("t2", 2), ("t3", 3)] {
        store.submit(Change::Begin(begin(turn, conversation, &answered))).wait().expect("stored");
    }
    let find = |links: &[Link]| store.reader().expect("reader").find("local", links).expect("read");
    assert_eq!(find(&opening), Some(Found { index: 1, conversation: 1, tip: true }));
    assert_eq!(find(&opening[..1]), None, "nobody has answered it");
    say(&store, 4, &answered);
    assert_eq!(find(&opening), Some(Found { index: 1, conversation: 4, tip: true }));
    let long = ["hello", "hi", "and", "so"];
    say(&store, 1, &long);
    assert_eq!(find(&opening), Some(Found { index: 1, conversation: 4, tip: true }));
    assert_eq!(find(&links("local", &long)), Some(Found { index: 3, conversation: 1, tip: true }));
    assert_eq!(find(&links("local", &long)[..3]), Some(Found { index: 2, conversation: 1, tip: false }));
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % sides
    }
}

#[test]
fn finding_equals_looking_at_every_link() {
    const WORDS: [&str; 3] = ["a", "b", "c"];
    let (_dir, store) = fresh();
    let mut dice = Dice(7);
    let mut told: Vec<Vec<&str>> = vec![vec!["a", "b"]];
    // What each conversation has, and which of it we have answered.
    let mut known: [(HashSet<Link>, HashSet<Link>); 3] = Default::default();
    for turn in 0..400 {
        // Cut a known history somewhere, and go on with other words.
        let old = &told[dice.roll(told.len())];
        let mut history = old[..dice.roll(old.len() + 1)].to_vec();
        history.extend((0..=dice.roll(4)).map(|_| WORDS[dice.roll(3)]));
        let unknown: Vec<&str> = (0..dice.roll(12)).map(|_| "x").collect();
        let mut asked = links("local", &[&history[..], &unknown].concat());
        // Messages of the system have the link of the one before them, and the first ones one that is not stored.
        for _ in 0..dice.roll(3) {
            let at = dice.roll(asked.len());
            asked.insert(at, asked[at]);
        }
        asked.splice(0..0, vec![Link::from_bytes([9; 32]); dice.roll(3)]);
        let linear = known.iter().zip(1..).filter_map(|((stored, ours), conversation)| {
            let last = asked.iter().rposition(|link| stored.contains(link))?;
            asked[..=last].iter().any(|link| ours.contains(link)).then_some((last, conversation))
        });
        let found = store.reader().expect("reader").find("local", &asked).expect("read");
        assert_eq!(found.map(|found| (found.index, found.conversation)), linear.max());
        let number = dice.roll(3);
        let conversation = number as i64 + 1;
        let stored = links("local", &history);
        if dice.roll(2) == 0 && history.len() > 1 {
            say(&store, conversation, &history);
            known[number].1.extend(stored.last());
        } else {
            store.submit(Change::Begin(begin(&turn.to_string(), conversation, &history))).wait().expect("stored");
        }
        known[number].0.extend(stored);
        assert_eq!(texts(&store, conversation, Some(link("local", &history))), history);
        told.push(history);
    }
    let stored = &known[0].0;
    let row = store.reader().expect("reader").conversation(1).expect("read").expect("there");
    assert_eq!(row.messages as usize, stored.len());
    assert!(row.branches > 20);
}
