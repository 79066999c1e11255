//! The page at `/` in a real browser: `graphiql.js` beside this file drives it against a server of its own, with every other host closed.
//!
//! It wants node, npm and chromium. Where one is absent a line says so and the test passes, except in CI.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::program::{Program, Running};
use crate::support::server::Server;

const INSTALLS_WITHIN: Duration = Duration::from_secs(120);
const DRIVES_WITHIN: Duration = Duration::from_secs(240);

#[test]
fn the_graphiql_page_works_in_a_browser() {
    let (chromium, program) = match tools() {
        Ok(tools) => tools,
        Err(missing) => {
            assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "the browser test cannot run: {missing}");
            // Not eprintln!, which is kept from sight in a test that passes.
            let _ = writeln!(std::io::stderr(), "the browser test did not run: {missing}");
            return;
        }
    };
    let server_program = Program::new();
    let server = Server::start(&server_program, &["--demo"]);
    let screenshots = program.with_file_name("screenshots");
    std::fs::create_dir_all(&screenshots).unwrap();
    let page = format!("{}/", server.url);
    let mut driver = Running::spawn(Command::new("node").arg(&program).args([&page, &chromium]).arg(&screenshots));
    assert!(ends_well_within(&mut driver, DRIVES_WITHIN), "see above; the screenshots are in {}", screenshots.display());
}

/// The browser, and the program with what it needs beside it, installed outside the source tree; or what is missing.
fn tools() -> Result<(String, PathBuf), String> {
    if !wideroom::server::pages::is_embedded() {
        return Err("this build has no GraphiQL inside".to_owned());
    }
    for tool in ["node", "npm"] {
        find(tool).ok_or(format!("{tool} is missing"))?;
    }
    let chromium = ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(find).ok_or("chromium is missing")?;

    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    std::fs::create_dir_all(&work).map_err(|error| error.to_string())?;
    let lock = "package-lock.json";
    let is_installed = std::fs::read(work.join("node_modules/.installed")).ok() == std::fs::read(source.join(lock)).ok();
    for name in ["graphiql.js", "package.json", lock] {
        std::fs::copy(source.join(name), work.join(name)).map_err(|error| error.to_string())?;
    }
    if !is_installed {
        let install =
            ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=1", "--loglevel=error"];
        let mut npm = Command::new("npm");
        let mut npm = Running::spawn(npm.args(install).current_dir(&work).stdout(Stdio::null()).stderr(Stdio::null()));
        if !ends_well_within(&mut npm, INSTALLS_WITHIN) {
            return Err("npm could not install playwright-core".to_owned());
        }
        std::fs::copy(source.join(lock), work.join("node_modules/.installed")).map_err(|error| error.to_string())?;
    }
    Ok((chromium, work.join("graphiql.js")))
}

fn find(tool: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|file| file.is_file()).map(|file| file.display().to_string())
}

/// Whether it ended, and well, in this time. If not, it is killed when it is dropped.
fn ends_well_within(process: &mut Running, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    loop {
        if let Some(status) = process.child.try_wait().unwrap() {
            return status.success();
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
