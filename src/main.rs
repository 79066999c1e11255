//! The program. Everything it does is in `wideroom::cli`.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The tests of rolling upgrades run this version beside a pretended one. A release has none.
    #[cfg(debug_assertions)]
    if std::env::var_os("WIDEROOM_PRETEND_NEXT_VERSION").is_some() {
        wideroom::store::cql::pretend_next_version();
    }
    wideroom::cli::main()
}
