//! The streams as the usual clients read them: `tests/clients/clients.js` drives the packages `graphql-sse` and `@apollo/client`.
//!
//! It wants node and npm. Where one is absent a line says so and the test passes, except in CI.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::world::World;

const INSTALLS_WITHIN: Duration = Duration::from_secs(120);
const RUNS_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_usual_clients_read_streams_and_come_back() {
    let program = match tokio::task::spawn_blocking(program).await.unwrap() {
        Ok(program) => program,
        Err(missing) => {
            assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "the test of the clients cannot run: {missing}");
            // Not eprintln!, which is kept from sight in a test that passes.
            let _ = writeln!(std::io::stderr(), "the test of the clients did not run: {missing}");
            return;
        }
    };
    let world = World::start().await;
    // Long enough for node to start.
    let tokens = [Duration::from_secs(6), Duration::from_secs(600)].map(|ttl| world.token("alice", ttl));
    let mut node = Running(Command::new("node").arg(&program).arg(world.url()).args(tokens).spawn().unwrap());
    assert!(tokio::task::spawn_blocking(move || node.ends_well_within(RUNS_WITHIN)).await.unwrap(), "see above");
    world.alive(0).await;
}

/// The program with what it needs beside it, installed outside the source tree; or what is missing.
fn program() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for tool in ["node", "npm"] {
        if !std::env::split_paths(&path).any(|folder| folder.join(tool).is_file()) {
            return Err(format!("{tool} is missing"));
        }
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
    std::fs::create_dir_all(&work).map_err(|error| error.to_string())?;
    let lock = "package-lock.json";
    let is_installed = std::fs::read(work.join("node_modules/.installed")).ok() == std::fs::read(source.join(lock)).ok();
    for name in ["clients.js", "package.json", lock] {
        std::fs::copy(source.join(name), work.join(name)).map_err(|error| error.to_string())?;
    }
    if !is_installed {
        let install =
            ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=1", "--loglevel=error"];
        let npm = Command::new("npm").args(install).current_dir(&work).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        if !Running(npm.map_err(|error| error.to_string())?).ends_well_within(INSTALLS_WITHIN) {
            return Err("npm could not install the clients".to_owned());
        }
        std::fs::copy(source.join(lock), work.join("node_modules/.installed")).map_err(|error| error.to_string())?;
    }
    Ok(work.join("clients.js"))
}

/// A process that does not outlive the test.
struct Running(Child);

impl Running {
    fn ends_well_within(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        while Instant::now() < deadline {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.success();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
