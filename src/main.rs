//! The program. Everything it does is in `wideroom::cli`.

use std::process::ExitCode;

fn main() -> ExitCode {
    wideroom::cli::main()
}
