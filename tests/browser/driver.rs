//! A browser for one test, and what a test does with a page.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use crate::live::tell;
use crate::stage::Stage;

/// The page asks every two seconds; slow machines may take their time.
const PATIENCE: Duration = Duration::from_secs(40);

/// A driver that ends with the test.
pub(super) struct Browser {
    address: String,
    client: Client,
    _driver: Driver,
    _turn: MutexGuard<'static, ()>,
}

/// A browser takes a whole core while it starts: one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

struct Driver(Child);

impl Driver {
    /// Starts it, and says where it listens; none if it has ended without.
    fn start() -> std::io::Result<Option<(Self, String)>> {
        let spawned = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut driver = Self(spawned?);
        let mut said = BufReader::new(driver.0.stdout.take().expect("piped")).lines().map_while(Result::ok);
        let port = said.find_map(|line| {
            let (_, port) = line.rsplit_once("started successfully on port ")?;
            port.trim_end_matches('.').parse::<u16>().ok()
        });
        // The pipe must be read to its end, or the driver would stop when it is full.
        std::thread::spawn(move || said.for_each(drop));
        Ok(port.map(|port| (driver, format!("http://127.0.0.1:{port}"))))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The driver takes its browser with it.
        let _ = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

/// Starts a browser; none if there is none and none is asked for.
pub(super) async fn browser() -> Option<Browser> {
    let required =
        std::env::var("LOADLINE_REQUIRE").is_ok_and(|names| names.split(',').any(|name| name.trim() == "browser"));
    let turn = ONE_AT_A_TIME.lock().await;
    let mut started = None;
    // It takes a free port of one address family, and ends if somebody has it in the other: then it takes another.
    for _ in 0..20 {
        match Driver::start() {
            Ok(Some(driver)) => {
                started = Some(driver);
                break;
            }
            Ok(None) => {}
            Err(error) if required => {
                panic!("LOADLINE_REQUIRE names browser, but chromedriver does not start: {error}")
            }
            Err(_) => {
                let thread = std::thread::current();
                let name = thread.name().unwrap_or("a test");
                tell(&format!("skipped {name}: chromedriver is not installed (Debian: chromium, chromium-driver)"));
                return None;
            }
        }
    }
    let (driver, address) = started.expect("chromedriver finds a free port");
    let options = json!({
        "goog:chromeOptions": { "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,1000"] },
        "goog:loggingPrefs": { "browser": "ALL" },
    });
    let Value::Object(options) = options else { unreachable!("it is an object") };
    let client = ClientBuilder::new(HttpConnector::new()).capabilities(options).connect(&address).await;
    match client {
        Ok(client) => Some(Browser { address, client, _driver: driver, _turn: turn }),
        Err(error) if required => panic!("LOADLINE_REQUIRE names browser, but there is no session: {error}"),
        Err(error) => {
            tell(&format!("skipped a test in the browser: chromedriver has no chromium ({error})"));
            None
        }
    }
}

/// The dashboard of a stage.
pub(super) struct Page<'b> {
    browser: &'b Browser,
}

impl<'b> Page<'b> {
    pub(super) async fn open(browser: &'b Browser, stage: &Stage) -> Self {
        browser.client.goto(&format!("{}/loadline/", stage.url)).await.expect("the page opens");
        let page = Self { browser };
        page.wait_until_shown("#token").await;
        page
    }

    pub(super) async fn signed_in(browser: &'b Browser, stage: &Stage, token: &str) -> Self {
        let page = Self::open(browser, stage).await;
        page.sign_in(token).await;
        page.wait_until_shown("#sign-out").await;
        page
    }

    pub(super) async fn sign_in(&self, token: &str) {
        self.script("document.querySelector('#token').value = ''").await;
        self.type_into("#token", token).await;
        self.click("#sign-in").await;
    }

    pub(super) async fn wait_for(&self, css: &str) -> Element {
        let found = self.browser.client.wait().at_most(PATIENCE).for_element(Locator::Css(css)).await;
        match found {
            Ok(element) => element,
            Err(error) => panic!("{css} did not come: {error}\n{}", self.text().await),
        }
    }

    pub(super) async fn wait_until_shown(&self, css: &str) {
        let shown = format!("return document.querySelector({})?.checkVisibility() === true", json!(css));
        self.wait_until(&shown, css).await;
    }

    /// Waits for an element that holds a text.
    pub(super) async fn wait_for_text(&self, css: &str, text: &str) {
        let held = "return [...document.querySelectorAll(CSS)].some((one) => one.textContent.includes(TEXT))";
        let held = held.replace("CSS", &json!(css).to_string()).replace("TEXT", &json!(text).to_string());
        self.wait_until(&held, &format!("{css} with {text}")).await;
    }

    async fn wait_until(&self, script: &str, what: &str) {
        let holds = async {
            while self.script(script).await != json!(true) {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(PATIENCE, holds).await.is_err() {
            panic!("{what} did not come\n{}", self.text().await);
        }
    }

    async fn text(&self) -> String {
        self.script("return document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    pub(super) async fn script(&self, script: &str) -> Value {
        self.browser.client.execute(script, Vec::new()).await.expect("the script runs")
    }

    pub(super) async fn count(&self, css: &str) -> usize {
        self.browser.client.find_all(Locator::Css(css)).await.expect("an answer").len()
    }

    pub(super) async fn attribute(&self, css: &str, name: &str) -> String {
        self.wait_for(css).await.attr(name).await.expect("an answer").unwrap_or_default()
    }

    pub(super) async fn click(&self, css: &str) {
        self.wait_for(css).await.click().await.unwrap_or_else(|error| panic!("{css}: {error}"));
    }

    pub(super) async fn type_into(&self, css: &str, text: &str) {
        self.wait_for(css).await.send_keys(text).await.expect("typed");
    }

    /// Presses a key wherever the focus is.
    pub(super) async fn press(&self, key: &str) {
        let focused = self.browser.client.active_element().await.expect("something has the focus");
        focused.send_keys(key).await.expect("typed");
    }

    pub(super) async fn go(&self, address: &str) {
        self.script(&format!("location.hash = {}", json!(address))).await;
    }

    pub(super) async fn size(&self, width: u32, height: u32) {
        self.browser.client.set_window_size(width, height).await.expect("resized");
    }

    /// Keeps a picture of the page, to be looked at.
    pub(super) async fn picture(&self, name: &str) {
        let dir = std::env::var_os("LOADLINE_SCREENSHOTS")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/loadline/screenshots")));
        let dir = dir.expect("a place for pictures");
        std::fs::create_dir_all(&dir).expect("the directory");
        let picture = self.browser.client.screenshot().await.expect("a picture");
        std::fs::write(dir.join(format!("{name}.png")), picture).expect("written");
    }

    /// The browser has found nothing wrong with the page, but for what was expected: no error of a script, nothing
    /// that the content security policy had to stop.
    pub(super) async fn without_complaints(&self, expected: &[&str]) {
        let session = self.browser.client.session_id().await.expect("an answer").expect("a session");
        let log = reqwest::Client::new()
            .post(format!("{}/session/{session}/se/log", self.browser.address))
            .body(json!({ "type": "browser" }).to_string());
        let log: Value =
            serde_json::from_str(&log.send().await.expect("an answer").text().await.expect("text")).expect("json");
        let complaints = log["value"].as_array().expect("a log").iter().filter_map(|entry| entry["message"].as_str());
        let unexpected: Vec<&str> =
            complaints.filter(|message| !expected.iter().any(|known| message.contains(known))).collect();
        assert!(unexpected.is_empty(), "the browser complains: {unexpected:#?}");
    }
}
