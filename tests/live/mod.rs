//! Against a real Ollama. `scripts/real-ollama` prepares one; where there is none, these tests say so and
//! pass, unless `LOADLINE_REQUIRE` names `ollama`, as CI does.

pub mod gguf;
