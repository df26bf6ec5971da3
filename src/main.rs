//! The `loadline` program. Everything it does is in the library; see `commands`.

use std::process::ExitCode;

/// A proxy allocates and frees small things all day, on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    loadline::commands::main()
}
