//! Other chats beside the one that is walked, so that the dashboard has something to show: some hardly begun, some
//! near a mark, one that could not be helped, and one that goes on as long as somebody looks.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::{Stage, ask};

/// What each chat is about, and how many turns it has.
const CHATS: [(&str, u32); 6] = [
    ("Write a letter to the chandler in Porto: the rope we got was short by nine fathoms.", 1),
    ("Teach the new hands what the rings and lines on our hull mean.", 3),
    ("Reckon the tides at the bar for the week of the new moon, with the height at each hour.", 6),
    ("Translate the pilot's notes for the Skagerrak, page by page, and keep his warnings.", 8),
    ("Draw up the watch bill for thirty-one hands so that nobody stands two dog watches in a row.", 9),
    ("Keep the surgeon's book: who was sick, of what, since when, and what was given.", 11),
];

/// What is said on and on.
const REPORTS: [&str; 5] = [
    "Log: wind from the north-west, freshening; we took in the topgallants and hold our course.",
    "Log: sounded forty fathoms, sand and shells, and the water has changed its colour since noon.",
    "Log: a sail to leeward, a brig by the look of her, standing the same way as ourselves.",
    "Log: pumped for a quarter of an hour; the carpenter has found the seam and caulks it at slack water.",
    "Log: the cook reports eleven casks of water left, two of them brackish, and asks for rain.",
];

/// One turn of the chat that goes on, and how often it may.
const PACE: Duration = Duration::from_secs(3);
const MOST_REPORTS: usize = 1200;

/// Has the other chats. They go through Loadline only.
pub(super) async fn sail(client: &reqwest::Client, stage: &Stage) -> Result<()> {
    let url = format!("http://{}", stage.proxy);
    for (topic, turns) in CHATS {
        let mut history = vec![json!({ "role": "system", "content": "You are the ship's clerk. Be brief." })];
        for turn in 1..=turns {
            let text = if turn == 1 { topic.to_owned() } else { format!("Go on with part {turn}. {topic}") };
            history.push(json!({ "role": "user", "content": text }));
            let answer = ask(client, &url, &history).await?;
            history.push(answer.body["message"].clone());
        }
    }
    // Too large for any window, so it is refused: the dashboard shows that, too.
    let list: String = (1..=400).map(|lot| format!("Lot {lot}: {} casks of nails. ", lot * 3)).collect();
    let body = json!({ "model": "sim", "messages": [{ "role": "user", "content": list }] });
    client.post(format!("{url}/api/chat")).body(body.to_string()).send().await?;
    Ok(())
}

/// A chat that goes on for as long as somebody looks, within reason.
pub(super) async fn keep_talking(client: &reqwest::Client, stage: &Stage) {
    let url = format!("http://{}", stage.proxy);
    let mut history: Vec<Value> = vec![json!({ "role": "system", "content": "You keep the ship's log." })];
    for report in 0..MOST_REPORTS {
        let text = format!("Bell {}. {}", report + 1, REPORTS[report % REPORTS.len()]);
        history.push(json!({ "role": "user", "content": text }));
        let Ok(answer) = ask(client, &url, &history).await else { return };
        history.push(answer.body["message"].clone());
        tokio::time::sleep(PACE).await;
    }
}
