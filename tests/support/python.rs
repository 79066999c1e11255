//! Python programs that check with the official libraries: `tests/clients`, with their packages in an environment outside the source
//! tree.
//!
//! They want python3 with pip. Where it is absent a line says so and the test passes, except in CI.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::tool::{self, Tool};

/// Packages, each of one version.
const PACKAGES: [&str; 16] = [
    "standardwebhooks==1.1.0",
    // The client `gql` with its transports, and what these need.
    "gql==4.4.0",
    "aiohappyeyeballs==2.7.1",
    "aiohttp==3.14.5",
    "aiosignal==1.4.0",
    "anyio==4.16.0",
    "attrs==26.1.0",
    "frozenlist==1.8.0",
    "graphql-core==3.3.2",
    "idna==3.20",
    "multidict==7.2.1",
    "propcache==0.5.4",
    "tenacity==9.2.1",
    "typing_extensions==4.16.0",
    "websockets==17.4",
    "yarl==1.25.1",
];

/// Runs a program of `tests/clients` to its good end. False where it cannot be run.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> bool {
    static PACKAGES_AT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let packages = match PACKAGES_AT.get_or_init(install) {
        Ok(packages) => packages,
        Err(missing) => {
            assert!(
                std::env::var_os("CI").is_none_or(|value| value != "true"),
                "Python cannot be tested: {missing}"
            );
            // Not eprintln!, which is kept from sight in a test that passes.
            let _ = writeln!(std::io::stderr(), "Python is not tested: {missing}");
            return false;
        }
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let mut python = Command::new("python3");
    python.args(["-B", program]).args(arguments);
    tool::run(python.current_dir(folder).env("PYTHONPATH", packages));
    true
}

fn install() -> Result<PathBuf, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    let marker = target.join(".installed");
    let wanted = PACKAGES.join("\n");
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(target);
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"])
        .args([
            "--disable-pip-version-check",
            "--retries",
            "1",
            "--timeout",
            "20",
        ])
        .arg("--target")
        .arg(&target)
        .args(PACKAGES);
    Tool::spawn(&mut pip)
        .end(tool::ENDS_WITHIN)
        .map_err(|said| format!("pip could not install the packages: {said}"))?;
    std::fs::write(&marker, wanted).map_err(|error| error.to_string())?;
    Ok(target)
}
