//! The program. Everything it does is in `wideroom::cli`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    wideroom::cli::main()
}
