//! Go programs that drive Go's clients: `tests/clients`, built in a folder outside the source tree.
//!
//! They want Go, with a version that the client's module knows. Where it is absent a line says so and the test passes: not every
//! distribution has it as a package.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use super::tool;

/// Oldest version that fetches the one that a module asks for.
const MINOR_MIN: u32 = 21;

/// Runs a program of `tests/clients` to its good end. False where it cannot be run.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> bool {
    if !is_installed() {
        // Not eprintln!, which is kept from sight in a test that passes.
        let _ = writeln!(
            std::io::stderr(),
            "LEFT OUT: {program}: go 1.{MINOR_MIN} is missing"
        );
        return false;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/clients")
        .join(program);
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("go")
        .join(program);
    let mut build = Command::new("go");
    build
        .args(["build", "-buildvcs=false", "-o"])
        .arg(&binary)
        .current_dir(source);
    let mut run = Command::new(binary);
    run.args(arguments);
    for mut command in [build, run] {
        tool::run(&mut command);
    }
    true
}

fn is_installed() -> bool {
    let version = Command::new("go").arg("version").output();
    let version = version.map_or_else(
        |_| String::new(),
        |output| String::from_utf8_lossy(&output.stdout).into_owned(),
    );
    let minor = version
        .split_once("go1.")
        .and_then(|(_, rest)| rest.split(['.', ' ']).next()?.parse::<u32>().ok());
    minor.is_some_and(|minor| minor >= MINOR_MIN)
}
