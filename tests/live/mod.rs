//! Against a real Ollama. `scripts/real-ollama` prepares one; where there is none, these tests say so and
//! pass, unless `LOADLINE_REQUIRE` names `ollama`, as CI does.
//!
//! * `server.rs` finds and starts it, `gguf.rs` and `vocabularies.rs` make tiny models with real vocabularies.
//! * `conversations.rs` makes up conversations; `counts.rs` compares what we predict with what is reported.
//! * `scripted.rs` has models that say what they are told to; `clients/` are the libraries that people use.
//! * `agents.rs` has a loop of 150 tool calls; `fidelity.rs` compares bytes; `recorder.rs` sees what is forwarded.
//! * `front_end.rs` types a long chat into Open WebUI.
//! * `compaction.rs` has a long chat, `history.rs` reads one back. `agreement.rs` holds the simulator, and the gate itself, against the real thing.

mod agents;
mod agreement;
mod clients;
mod compaction;
mod conversations;
mod counts;
mod fidelity;
mod front_end;
pub mod gguf;
mod history;
mod recorder;
mod scripted;
mod server;
mod vocabularies;

pub use server::tell;
