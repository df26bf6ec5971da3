//! The dashboard in a real browser: Chromium without a window, driven through its own driver.
//!
//! Debian's `chromium` and `chromium-driver` serve. Where there is none these tests say so and pass, unless
//! `LOADLINE_REQUIRE` names `browser`, as CI does. Pictures of what was seen are kept in `LOADLINE_SCREENSHOTS`, or
//! in `~/.cache/loadline/screenshots`.

mod driver;

use fantoccini::key::Key;
use serde_json::{Value, json};

use crate::flow::filled_to;
use crate::stage::{Stage, words};
use driver::{Page, browser};

/// What a hostile user might say.
const HOSTILE: &str = "<script>window.pwned = 1</script><img src=x onerror=\"window.pwned = 2\"> harbour";

/// A stage with a conversation that was rolled over, and the numbers of it and of that turn.
async fn rolled_over(stage: &Stage) -> (String, i64) {
    let messages = filled_to(stage, 120.0, 2048).await;
    let rolled = stage.chat(&messages, 2048).await;
    assert_eq!(rolled.header("x-loadline-action"), "rollover");
    let conversation = rolled.header("x-loadline-conversation").to_owned();
    let reader = stage.gateway.store.reader().expect("readable");
    let turns = reader.turns(conversation.parse().expect("a number")).expect("readable");
    (conversation, turns.last().expect("a turn").number)
}

#[tokio::test]
async fn signing_in_takes_a_token_that_is_never_in_an_address() {
    let Some(browser) = browser().await else { return };
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    stage.chat(&json!([{ "role": "user", "content": "hello there" }]), 2048).await;
    let page = Page::open(&browser, &stage).await;
    page.picture("sign-in").await;
    page.sign_in("ll_000000000000000000000000000000000000").await;
    page.wait_for_text("#gate-said", "oken").await;
    assert_eq!(page.count("[data-conversation]").await, 0);
    page.sign_in(&token).await;
    page.wait_for("[data-conversation='1']").await;
    let address = page.script("return location.href").await;
    assert!(!address.to_string().contains(&token), "{address}");
    assert_eq!(page.script("return document.cookie").await, json!(""));
    assert_eq!(page.script("return localStorage.getItem('loadline.token')").await, Value::Null);
    page.click("#sign-out").await;
    page.wait_for("#token").await;
    assert_eq!(page.count("[data-conversation]").await, 0);
    assert_eq!(page.script("return sessionStorage.getItem('loadline.token')").await, Value::Null);
    page.without_complaints(&["401"]).await;
}

#[tokio::test]
async fn a_revoked_token_ends_the_visit() {
    let Some(browser) = browser().await else { return };
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    let page = Page::signed_in(&browser, &stage, &token).await;
    page.wait_for("#welcome").await;
    let id = stage.gateway.store.reader().and_then(|reader| reader.tokens()).expect("readable")[0].id;
    stage.gateway.store.submit(loadline::store::Change::RevokeToken { id, at: 1 }).await.expect("stored");
    page.wait_until_shown("#token").await;
    page.without_complaints(&["401"]).await;
}

#[tokio::test]
async fn a_rollover_is_seen_as_it_happens() {
    let Some(browser) = browser().await else { return };
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    let page = Page::signed_in(&browser, &stage, &token).await;
    page.wait_for("#feed").await;
    let (conversation, _) = rolled_over(&stage).await;
    page.wait_for("#feed li[data-kind='rollover']").await;
    page.wait_for("#toast [data-kind='rollover']").await;
    let card = format!("[data-conversation='{conversation}'][data-action='rollover']");
    page.wait_for(&card).await;
    let usage = page.attribute(&card, "data-usage").await;
    assert!(usage.parse::<f64>().expect("a number") > 100.0, "{usage}");
    page.picture("rollover").await;
    page.without_complaints(&[]).await;
}

#[tokio::test]
async fn the_curve_and_the_receipt_tell_what_became_of_each_message() {
    let Some(browser) = browser().await else { return };
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    let (conversation, turn) = rolled_over(&stage).await;
    let page = Page::signed_in(&browser, &stage, &token).await;
    page.wait_for(&format!("[data-conversation='{conversation}']")).await;
    page.go(&format!("#/c/{conversation}")).await;
    page.wait_for(&format!("#curve [data-turn='{turn}'][data-action='rollover']")).await;
    page.wait_for("[data-snapshot]").await;
    page.picture("conversation").await;
    page.go(&format!("#/c/{conversation}/t/{turn}")).await;
    page.wait_for("#receipt [data-fate='archived']").await;
    let told = stage.get_as(&token, &format!("/loadline/turns/{turn}")).await.json();
    let messages = told["messages"].as_array().expect("messages");
    for fate in ["archived", "verbatim"] {
        let wanted = messages.iter().filter(|message| message["fate"] == fate).count();
        assert_eq!(page.count(&format!("#receipt [data-fate='{fate}']")).await, wanted, "{fate}");
    }
    page.wait_for_text("#receipt [data-note='rollover']", "[EMERGENCY ROLLOVER - Context exceeded limit]").await;
    page.picture("receipt").await;
    page.without_complaints(&[]).await;
}

#[tokio::test]
async fn words_are_found_and_lead_to_their_message() {
    let Some(browser) = browser().await else { return };
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    let asked = stage.chat(&json!([{ "role": "user", "content": "the lighthouse keeper's log" }]), 2048).await;
    stage.chat(&json!([{ "role": "user", "content": "something else" }]), 2048).await;
    let page = Page::signed_in(&browser, &stage, &token).await;
    page.wait_for("[data-conversation='1']").await;
    page.type_into("#search", &format!("lighthouse{}", char::from(Key::Enter))).await;
    page.wait_for_text("#results li mark", "lighthouse").await;
    assert_eq!(page.count("#results li").await, 1);
    assert!(!page.script("return location.href").await.to_string().contains("lighthouse"));
    page.picture("search").await;
    let message = stage.stored(&asked)[0].id;
    page.click("#results li a, #results li button").await;
    page.wait_for_text(&format!("[data-message='{message}']"), "the lighthouse keeper's log").await;
    page.without_complaints(&[]).await;
}

#[tokio::test]
async fn what_people_say_is_text_and_nothing_else() {
    let Some(browser) = browser().await else { return };
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    let system = json!({ "role": "system", "content": HOSTILE });
    let got = stage.chat(&json!([system, { "role": "user", "content": HOSTILE }]), 2048).await;
    let page = Page::signed_in(&browser, &stage, &token).await;
    page.wait_for_text("[data-conversation='1']", "<script>window.pwned = 1</script>").await;
    page.go("#/c/1").await;
    let message = stage.stored(&got)[0].id;
    page.wait_for_text(&format!("[data-message='{message}']"), "<img src=x onerror=").await;
    page.go("#/c/1/t/1").await;
    page.wait_for_text("#receipt", "<img src=x onerror=").await;
    page.type_into("#search", &format!("harbour{}", char::from(Key::Enter))).await;
    page.wait_for_text("#results li", "<script>").await;
    assert_eq!(page.script("return window.pwned === undefined").await, json!(true));
    assert_eq!(page.script("return document.querySelectorAll('main script, main img').length").await, json!(0));
    page.picture("hostile").await;
    page.without_complaints(&[]).await;
}

#[tokio::test]
async fn a_phone_shows_all_of_it_without_scrolling_sideways() {
    let Some(browser) = browser().await else { return };
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    stage
        .chat(&json!([{ "role": "user", "content": format!("{} {}", "long".repeat(80), words("wide", 300)) }]), 2048)
        .await;
    let (conversation, turn) = rolled_over(&stage).await;
    let page = Page::signed_in(&browser, &stage, &token).await;
    page.size(390, 844).await;
    let views = [
        ("#/".to_owned(), "[data-conversation]", "phone-home"),
        (format!("#/c/{conversation}"), "#curve [data-turn]", "phone-conversation"),
        (format!("#/c/{conversation}/t/{turn}"), "#receipt [data-fate]", "phone-receipt"),
    ];
    for (address, shows, name) in views {
        page.go(&address).await;
        page.wait_for(shows).await;
        let sideways = page.script("return document.documentElement.scrollWidth - window.innerWidth").await;
        assert!(sideways.as_i64().is_some_and(|pixels| pixels <= 0), "{name} is {sideways} px too wide");
        page.picture(name).await;
    }
    page.without_complaints(&[]).await;
}

#[tokio::test]
async fn everything_can_be_done_with_the_keyboard_in_light_and_in_dark() {
    let Some(browser) = browser().await else { return };
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    stage.chat(&json!([{ "role": "user", "content": "only one" }]), 2048).await;
    let page = Page::signed_in(&browser, &stage, &token).await;
    page.wait_for("[data-conversation='1']").await;
    page.press("j").await;
    page.press(&char::from(Key::Enter).to_string()).await;
    page.wait_for("#messages").await;
    assert_eq!(page.script("return location.hash").await, json!("#/c/1"));
    page.press(&char::from(Key::Escape).to_string()).await;
    page.wait_for("[data-conversation='1']").await;
    page.press("/").await;
    assert_eq!(page.script("return document.activeElement.id").await, json!("search"));
    let colour = "return getComputedStyle(document.body).backgroundColor";
    let before = page.script(colour).await;
    page.click("#theme").await;
    assert_ne!(page.script(colour).await, before);
    page.picture("other-theme").await;
    page.without_complaints(&[]).await;
}

/// Chromium itself says what it thinks of an element's name and colours; here only that nothing is nameless.
#[tokio::test]
async fn every_control_has_a_name() {
    let Some(browser) = browser().await else { return };
    let stage = Stage::new().await;
    let token = stage.token("local").await;
    let (conversation, turn) = rolled_over(&stage).await;
    let page = Page::signed_in(&browser, &stage, &token).await;
    let named = "return [...document.querySelectorAll('button, a[href], input, select, [role=slider]')]
        .filter((one) => one.checkVisibility())
        .filter((one) => !(one.textContent.trim() || one.getAttribute('aria-label') || one.labels?.length || one.title))
        .map((one) => one.outerHTML.slice(0, 120))";
    for (address, shows) in [
        ("#/".to_owned(), "[data-conversation]"),
        (format!("#/c/{conversation}"), "#curve [data-turn]"),
        (format!("#/c/{conversation}/t/{turn}"), "#receipt [data-fate]"),
    ] {
        page.go(&address).await;
        page.wait_for(shows).await;
        assert_eq!(page.script(named).await, json!([]), "{address}");
    }
}
