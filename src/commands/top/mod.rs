//! `loadline top`: the dashboard in a terminal, for people on ssh.
//!
//! It asks the server for its overview once a second and draws it. It changes nothing but the one token that
//! it makes for itself beside a local server, and that it takes back when it ends.

mod conversations;
mod gauge;
mod model;
mod panes;
mod screen;
mod sentences;
mod server;
mod state;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io::IsTerminal;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use self::gauge::Paint;
use self::model::Overview;
use self::server::{NoAnswer, Server};
use self::state::{Next, State};
use super::data::DataDir;
use super::{Outcome, stop_signal};

/// The width of a page for a pipe, which has none.
const PAGE_CELLS: u16 = 120;

/// Keys pressed while the screen is being drawn.
const KEYS_WAITING: usize = 64;

/// Watch conversations fill up, live, in the terminal.
///
/// Finds the server that runs on this machine by its data directory, and sees everybody's conversations, because
/// whoever owns the directory may. Another server is watched with --url and a token in the variable
/// LOADLINE_TOKEN; through `ssh -L 11435:127.0.0.1:11435 HOST` if it is on another machine. `?` explains the keys.
#[derive(Debug, Args)]
pub(super) struct Top {
    #[command(flatten)]
    data: DataDir,
    /// A server elsewhere, such as http://127.0.0.1:11435; its token is read from LOADLINE_TOKEN
    #[arg(long, value_name = "URL", help_heading = "Where")]
    url: Option<String>,
    /// Seconds from one look to the next
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Print one screen as plain text and end; so it is, too, when the output is no terminal
    #[arg(long)]
    once: bool,
    /// Print what the server says as JSON, as it came, and end
    #[arg(long)]
    json: bool,
}

type Asking = Pin<Box<dyn Future<Output = Result<String, NoAnswer>> + Send>>;

impl Top {
    pub(super) async fn run(self) -> Result<Outcome> {
        let mut server = match &self.url {
            Some(url) => Server::remote(url, std::env::var("LOADLINE_TOKEN").ok())?,
            None => Server::local(self.data)?,
        };
        // Before there is a screen: without a first answer there is nothing to show.
        let text = tokio::select! {
            text = server.ask(true)? => text?,
            () = asked_to_end() => return Ok(Outcome::Fine),
        };
        if self.json {
            say!("{}", text.trim_end());
            return Ok(Outcome::Fine);
        }
        let mut state = State::new(read(&text)?, server.address()?, Paint::from_environment());
        if self.once || !can_draw() {
            say!("{}", screen::once(&mut state, page_cells()).trim_end());
            return Ok(Outcome::Fine);
        }
        let watched = watch(&mut server, &mut state, self.interval).await;
        // Whose terminal has gone cannot be told so.
        if can_draw() {
            watched?;
        }
        Ok(Outcome::Fine)
    }
}

fn read(text: &str) -> Result<Overview> {
    Overview::read(text).context("the server's overview cannot be understood")
}

/// Draws, and takes keys and answers as they come, until somebody has seen enough.
async fn watch(server: &mut Server, state: &mut State, interval: Duration) -> Result<()> {
    let mut keys = keys();
    let mut end = std::pin::pin!(asked_to_end());
    let mut clock = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asking: Option<Asking> = None;
    let mut window = Window::open()?;
    loop {
        window.0.draw(|frame| screen::draw(state, frame.area(), frame.buffer_mut()))?;
        tokio::select! {
            () = &mut end => return Ok(()),
            key = keys.recv() => match key.map(|key| key.map(|key| pressed(state, &key))) {
                None | Some(Ok(Next::Quit)) => return Ok(()),
                Some(Err(error)) => return Err(error).context("the terminal"),
                Some(Ok(Next::Ask)) => asking = ask(server, state),
                Some(Ok(Next::Stay)) if state.paused => asking = None,
                Some(Ok(Next::Stay)) => {}
            },
            answer = async { asking.as_mut().unwrap_or(&mut never()).await } => {
                asking = None;
                take(server, state, answer);
            }
            _ = clock.tick(), if asking.is_none() && !state.paused => asking = ask(server, state),
        }
    }
}

fn never() -> Asking {
    Box::pin(std::future::pending())
}

fn pressed(state: &mut State, event: &Event) -> Next {
    // Anything else, such as another size, is answered by drawing anew.
    event.as_key_event().map_or(Next::Stay, |key| state.key(key))
}

/// Asks, if there is somebody to ask.
fn ask(server: &mut Server, state: &mut State) -> Option<Asking> {
    match server.ask(state.all) {
        Ok(answer) => Some(Box::pin(answer)),
        Err(error) => {
            state.take(Err(format!("{error:#}")));
            None
        }
    }
}

fn take(server: &mut Server, state: &mut State, answer: Result<String, NoAnswer>) {
    let overview = match answer {
        Ok(text) => read(&text).map_err(|error| format!("{error:#}")),
        Err(no) => {
            server.was_refused(&no);
            Err(no.to_string())
        }
    };
    if let Ok(address) = server.address() {
        state.address = address;
    }
    state.take(overview);
}

/// What is pressed, from a thread of its own: reading a terminal waits.
fn keys() -> mpsc::Receiver<std::io::Result<Event>> {
    let (send, receive) = mpsc::channel(KEYS_WAITING);
    // It ends with the process, or when nobody wants its keys any more.
    std::thread::spawn(move || while send.blocking_send(event::read()).is_ok() {});
    receive
}

/// Ready when the process is asked to end, or when its terminal has gone, as when ssh is cut: the token that
/// was made for it is taken back then, too.
async fn asked_to_end() {
    let hung_up = async {
        match signal(SignalKind::hangup()) {
            Ok(mut hangup) => hangup.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = hung_up => {}
        () = stop_signal() => {}
    }
}

/// The terminal as long as we draw on it. Given back however that ends: a panic gives it back before its message
/// is printed. Nothing here may fail when the terminal itself has gone, or our token would outlive us; that is
/// why neither the library's own hook nor its own drop is used, which would complain to a terminal that is not there.
struct Window(ManuallyDrop<DefaultTerminal>);

impl Window {
    fn open() -> Result<Self> {
        let tell = std::panic::take_hook();
        let opened = ratatui::try_init();
        std::panic::set_hook(Box::new(move |panic| {
            let _best_effort = ratatui::try_restore();
            tell(panic);
        }));
        let opened = opened.inspect_err(|_| {
            let _best_effort = ratatui::try_restore();
        });
        Ok(Self(ManuallyDrop::new(opened.context("this terminal cannot be drawn on; try --once")?)))
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _best_effort = self.0.show_cursor();
        if !std::thread::panicking() {
            let _best_effort = ratatui::try_restore();
        }
    }
}

fn can_draw() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb")
}

fn page_cells() -> u16 {
    let wished = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let own = || ratatui::crossterm::terminal::size().ok().map(|(columns, _)| columns);
    let there = if std::io::stdout().is_terminal() { own() } else { None };
    wished.or(there).unwrap_or(PAGE_CELLS).clamp(40, 500)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if !(0.2..=3600.0).contains(&seconds) {
        return Err("between 0.2 and 3600".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}
