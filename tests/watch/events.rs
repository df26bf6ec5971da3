//! The feed of events: durable, numbered, resumable, filtered, and everyone's own.

use loadline::api::auth::Scope;
use serde_json::{Value, json};

use crate::cli::{Running, run, stdout};
use crate::flow::filled_to;
use crate::stage::{Stage, words};

/// A reader of the feed.
struct Reader {
    response: reqwest::Response,
    pending: String,
}

impl Reader {
    async fn open(stage: &Stage, query: &str, headers: &[(&str, &str)]) -> Self {
        let mut request = stage.client.get(format!("{}/loadline/events{query}", stage.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.expect("a stream");
        assert_eq!(response.status(), 200);
        Self { response, pending: String::new() }
    }

    /// The next event: its number and its data.
    async fn next(&mut self) -> (i64, Value) {
        loop {
            if let Some((frame, rest)) = self.pending.split_once("\n\n") {
                let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                let event = field("id: ").zip(field("data: "));
                self.pending = rest.to_owned();
                if let Some((id, data)) = event {
                    return (id.parse().expect("a number"), serde_json::from_str(&data).expect("json"));
                }
                continue;
            }
            let chunk = tokio::time::timeout(std::time::Duration::from_secs(30), self.response.chunk());
            let chunk = chunk.await.expect("an event comes").expect("a chunk").expect("not the end");
            self.pending.push_str(std::str::from_utf8(&chunk).expect("text"));
        }
    }
}

/// One turn that warns, in a conversation of its own.
async fn warned(stage: &Stage, tag: &str) {
    let got = stage.chat(&json!([{ "role": "user", "content": words(tag, 330) }]), 1024).await;
    assert_eq!((got.status, got.warnings().len()), (200, 1), "{}", got.text);
}

#[tokio::test]
async fn events_survive_a_restart_and_a_resumed_reader_misses_none() {
    let stage = Stage::new().await;
    let mut reader = Reader::open(&stage, "", &[]).await;
    warned(&stage, "first").await;
    let (seen, _) = reader.next().await;
    drop(reader);
    // While nobody listens.
    for number in 0..5 {
        warned(&stage, &format!("away{number}")).await;
    }
    let stage = stage.restarted().await;
    warned(&stage, "afterwards").await;
    let mut reader = Reader::open(&stage, "", &[("last-event-id", &seen.to_string())]).await;
    let mut numbers = Vec::new();
    for _ in 0..6 {
        numbers.push(reader.next().await.0);
    }
    let stored: Vec<i64> = stage.events().iter().map(|event| event.id).filter(|id| *id > seen).collect();
    assert_eq!(numbers, stored, "in order, each once");
    warned(&stage, "live").await;
    assert_eq!(reader.next().await.0, stored[5] + 1, "and then live");
}

#[tokio::test]
async fn a_reader_that_is_far_behind_gets_everything_from_disk() {
    let stage = Stage::new().await;
    let all: Vec<_> = (0..700).map(|number| event(&format!("told {number}"))).collect();
    for event in all {
        stage.gateway.store.submit(event).await.expect("stored");
    }
    let mut reader = Reader::open(&stage, "", &[("last-event-id", "0")]).await;
    for number in 0..700 {
        let (id, data) = reader.next().await;
        assert_eq!((id, data["text"].as_str()), (number + 1, Some(&*format!("told {number}"))));
    }
}

fn event(text: &str) -> loadline::store::Change {
    loadline::store::Change::Event(loadline::store::NewEvent {
        at: 1,
        kind: "warning",
        conversation: None,
        user: Some("local".to_owned()),
        body: json!({ "text": text }).to_string(),
    })
}

#[tokio::test]
async fn an_event_that_nobody_waited_for_is_told_all_the_same() {
    let stage = Stage::new().await;
    let mut reader = Reader::open(&stage, "", &[]).await;
    warned(&stage, "first").await;
    assert_eq!(reader.next().await.0, 1);
    // A client that goes away takes whoever waits for the commit with it.
    drop(stage.gateway.events.submit(event("nobody waits")));
    assert_eq!(reader.next().await.1["text"], "nobody waits");
    let counted = async {
        let line = "loadline_events_total{kind=\"warning\"} 2";
        while !stage.get("/metrics").await.text.lines().any(|written| written == line) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), counted).await.expect("it is counted");
}

#[tokio::test]
async fn a_reader_that_catches_up_while_others_are_told_gets_each_event_once() {
    let stage = Stage::new().await;
    for number in 0..700 {
        stage.gateway.store.submit(event(&number.to_string())).await.expect("stored");
    }
    let mut live = Reader::open(&stage, "", &[]).await;
    let mut behind = Reader::open(&stage, "", &[("last-event-id", "0")]).await;
    for wanted in 1..=700 {
        if wanted % 70 == 0 {
            stage.gateway.events.submit(event("meanwhile")).await.expect("stored");
            assert_eq!(live.next().await.0, 700 + wanted / 70);
        }
        assert_eq!(behind.next().await.0, wanted);
    }
    for wanted in 701..=710 {
        assert_eq!(behind.next().await.0, wanted);
    }
}

#[tokio::test]
async fn what_was_told_of_a_deleted_conversation_is_not_told_again() {
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    warned(&stage, "secret").await;
    let mut reader = Reader::open(&stage, "", &[("last-event-id", "0")]).await;
    assert_eq!(reader.next().await.0, 1);
    let bearer = format!("Bearer {token}");
    assert_eq!(stage.send("DELETE", "/api/conversations/1", "", &[("authorization", &bearer)]).await.status, 204);
    warned(&stage, "other").await;
    let mut again = Reader::open(&stage, "", &[("last-event-id", "0")]).await;
    assert_eq!(again.next().await.0, 2);
}

#[tokio::test]
async fn many_readers_all_get_every_event_in_order() {
    let stage = Stage::new().await;
    let mut readers = Vec::new();
    for _ in 0..50 {
        readers.push(Reader::open(&stage, "", &[]).await);
    }
    for number in 0..3 {
        warned(&stage, &format!("said{number}")).await;
    }
    for reader in &mut readers {
        for wanted in 1..=3 {
            assert_eq!(reader.next().await.0, wanted);
        }
    }
    let open = |text: String| text.lines().any(|line| line == "loadline_event_streams 50");
    assert!(open(stage.get("/metrics").await.text));
}

#[tokio::test]
async fn a_feed_can_be_narrowed_by_kind_and_conversation_and_begin_earlier() {
    let stage = Stage::new().await;
    warned(&stage, "one").await;
    let messages = filled_to(&stage, 120.0, 2048).await;
    let rolled = stage.chat(&messages, 2048).await;
    let (_, data) = Reader::open(&stage, "?kind=rollover&last=100", &[]).await.next().await;
    assert_eq!(
        (data["kind"].as_str(), &data["snapshot"]),
        (Some("rollover"), &json!(rolled.header("x-loadline-snapshot")))
    );
    let conversation = rolled.header("x-loadline-conversation").to_owned();
    let (_, data) = Reader::open(&stage, &format!("?conversation={conversation}&last=100"), &[]).await.next().await;
    assert_eq!(data["conversation"].to_string(), conversation);
    for (query, status) in [("?kind=nonsense", 422), ("?conversation=x", 422), ("?last=-1", 422), ("?last=100000", 422)]
    {
        assert_eq!(stage.get(&format!("/loadline/events{query}")).await.status, status, "{query}");
    }
    assert_eq!(stage.send("GET", "/loadline/events", "", &[("last-event-id", "seven")]).await.status, 400);
    assert_eq!(stage.post("/loadline/events", "").await.status, 405);
}

#[tokio::test]
async fn a_user_hears_of_their_own_and_an_admin_of_all() {
    let stage = Stage::new().await;
    let (alice, bob) = (stage.token("alice").await, stage.token("bob").await);
    let admin = stage.token_with("root", &[Scope::Admin], None).await;
    let bearer = |token: &str| format!("Bearer {token}");
    let mut hers = Reader::open(&stage, "", &[("authorization", &bearer(&alice))]).await;
    let mut all = Reader::open(&stage, "", &[("authorization", &bearer(&admin))]).await;
    for token in [&bob, &alice] {
        let body = json!({ "model": "sim", "stream": false, "options": { "num_ctx": 1024, "num_predict": 4 },
            "messages": [{ "role": "user", "content": words(&token[3..9], 330) }] });
        stage.post_with("/api/chat", body.to_string(), &[("authorization", &bearer(token))]).await;
    }
    assert_eq!(hers.next().await.1["user"], "alice");
    let mut only = Reader::open(&stage, "?user=alice&last=100", &[("authorization", &bearer(&admin))]).await;
    assert_eq!(only.next().await.1["user"], "alice");
    let (first, second) = (all.next().await.1, all.next().await.1);
    assert_eq!((first["user"].as_str(), second["user"].as_str()), (Some("bob"), Some("alice")));
}

#[test]
fn the_command_tells_what_has_happened_and_follows_over_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data").to_str().expect("text").to_owned();
    let sim = Running::start(&["sim", "--listen", "127.0.0.1:0", "--window", "1024"]);
    let serve = || Running::start(&["serve", "--listen", "127.0.0.1:0", "--upstream", sim.url(), "--data-dir", &data]);
    let say = |server: &Running, tag: &str| {
        let body = json!({ "model": "sim", "stream": false, "options": { "num_ctx": 1024, "num_predict": 4 },
            "messages": [{ "role": "user", "content": words(tag, 330) }] });
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let request = reqwest::Client::new().post(format!("{}/api/chat", server.url())).body(body.to_string());
        runtime.block_on(async { request.send().await.expect("an answer").bytes().await.expect("a body") });
    };
    let first = serve();
    say(&first, "one");
    let told = stdout(&run(&["events", "--data-dir", &data], ""));
    assert!(told.contains("warning") && told.contains("INFO: Context at"), "{told}");
    let line = stdout(&run(&["events", "--json", "--kind", "warning", "--data-dir", &data], ""));
    let shown: Value = serde_json::from_str(line.lines().next().expect("a line")).expect("json");
    assert_eq!((shown["id"].as_i64(), shown["user"].as_str()), (Some(1), Some("local")));
    assert!(stdout(&run(&["events", "--kind", "rollover", "--data-dir", &data], "")).is_empty());
    assert_eq!(run(&["events", "--kind", "nonsense", "--data-dir", &data], "").status.code(), Some(2));
    let mut following = crate::cli::Lines::of(&["events", "--follow", "--json", "--after", "0", "--data-dir", &data]);
    let number = |line: String| serde_json::from_str::<Value>(&line).expect("json")["id"].as_i64();
    assert_eq!(number(following.next()), Some(1));
    say(&first, "two");
    assert_eq!(number(following.next()), Some(2));
    drop(first);
    let second = serve();
    say(&second, "three");
    assert_eq!(number(following.next()), Some(3), "the server was another, the events go on");
}
