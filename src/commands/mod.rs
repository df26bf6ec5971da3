//! The command line: one file a command. May use everything; nothing uses it.
//!
//! Exit codes: 0 fine, 1 the answer is no, 2 could not do it. Errors go to standard error.
// Printing is what commands are for.
#![allow(clippy::print_stdout, clippy::print_stderr)]

/// Prints a line. A reader that has gone away ends the program in peace, as in `loadline count … | head`.
macro_rules! say {
    ($($arguments:tt)*) => { $crate::commands::print(format_args!($($arguments)*)) };
}

mod bench;
mod check;
mod conversations;
mod count;
mod data;
mod demo;
mod doctor;
mod events;
mod history;
mod serve;
mod sim;
mod snapshots;
mod source;
mod store;
mod token;
mod top;
mod validate;

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::{Parser, Subcommand};

/// A reverse proxy in front of Ollama that keeps every prompt inside the model's context window.
///
/// Point an Ollama, OpenAI or Anthropic client at it and change nothing else. It counts tokens exactly
/// as Ollama will, warns at 70 %, and never forwards what does not fit.
#[derive(Debug, Parser)]
#[command(name = "loadline", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Demo(demo::Demo),
    Top(top::Top),
    Doctor(doctor::Doctor),
    Sim(sim::SimCommand),
    Conversations(conversations::Conversations),
    Snapshots(snapshots::Snapshots),
    Events(events::EventsCommand),
    Token(token::TokenCommand),
    Store(store::StoreCommand),
    Validate(validate::Validate),
    History(history::HistoryCommand),
    Check(check::Check),
    Count(count::CountCommand),
    Bench(bench::Bench),
}

/// What a command came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Fine,
    /// The question was answered, with no.
    No,
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let outcome = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        runtime.block_on(async {
            match cli.command {
                Command::Serve(command) => command.run().await,
                Command::Demo(command) => command.run().await,
                Command::Top(command) => command.run().await,
                Command::Doctor(command) => command.run().await,
                Command::Sim(command) => command.run().await,
                Command::Conversations(command) => command.run().await,
                Command::Snapshots(command) => command.run(),
                Command::Events(command) => command.run().await,
                Command::Token(command) => command.run().await,
                Command::Store(command) => command.run().await,
                Command::Validate(command) => command.run().await,
                Command::History(command) => command.run(),
                Command::Check(command) => command.run().await,
                Command::Count(command) => command.run().await,
                Command::Bench(command) => command.run().await,
            }
        })
    });
    match outcome {
        Ok(Outcome::Fine) => ExitCode::SUCCESS,
        Ok(Outcome::No) => ExitCode::from(1),
        Err(error) => {
            // A closed pipe is the reader's choice, as in `loadline count … | head`.
            let broken_pipe = |cause: &std::io::Error| cause.kind() == std::io::ErrorKind::BrokenPipe;
            if error.downcast_ref::<std::io::Error>().is_some_and(broken_pipe) {
                return ExitCode::SUCCESS;
            }
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// What the process ends with when whoever reads goes away half-way. Nothing, unless the answer is no already.
static CODE_IF_NOBODY_READS: AtomicU8 = AtomicU8::new(0);

fn if_nobody_reads(code: u8) {
    CODE_IF_NOBODY_READS.store(code, Ordering::Relaxed);
}

fn print(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{line}").and_then(|()| out.flush()) {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(CODE_IF_NOBODY_READS.load(Ordering::Relaxed).into());
        }
        eprintln!("error: standard output: {error}");
        std::process::exit(2);
    }
}

/// Ready when the process is asked to stop. Asked twice, it stops at once.
async fn stop_signal() {
    let mut terminate = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(signal) => signal,
        Err(_) => return std::future::pending().await,
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        std::process::exit(2);
    });
}
