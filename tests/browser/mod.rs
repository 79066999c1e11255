//! The page at `/` in a real browser: `graphiql.js` beside this file drives it against a server of its own, with every other host closed.
//!
//! It wants node, npm and chromium. Where one is absent a line says so and the test passes, except in CI.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const STARTS_WITHIN: Duration = Duration::from_secs(30);
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
    let server = Server::start();
    let screenshots = program.with_file_name("screenshots");
    std::fs::create_dir_all(&screenshots).unwrap();
    let mut driver = Running(Command::new("node").arg(&program).args([&server.url, &chromium]).arg(&screenshots).spawn().unwrap());
    assert!(driver.ends_well_within(DRIVES_WITHIN), "see above; the screenshots are in {}", screenshots.display());
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
        let npm = Command::new("npm").args(install).current_dir(&work).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut npm = Running(npm.map_err(|error| error.to_string())?);
        if !npm.ends_well_within(INSTALLS_WITHIN) {
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

/// The real binary with `--demo`, on a port and a data folder of its own.
struct Server {
    url: String,
    _process: Running,
    _data: tempfile::TempDir,
}

impl Server {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_wideroom"));
        command.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (lines, printed) = mpsc::sync_channel(1024);
        let errors: Box<dyn std::io::Read + Send> = Box::new(child.stderr.take().unwrap());
        for pipe in [Box::new(child.stdout.take().unwrap()), errors] {
            let lines = lines.clone();
            // Reads to the end, so that the server never waits for a full pipe; what nobody takes is let go.
            std::thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).for_each(|line| drop(lines.try_send(line))));
        }
        let process = Running(child);
        let deadline = Instant::now() + STARTS_WITHIN;
        let mut said = String::new();
        let url = loop {
            let line = printed.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("the server does not say where it listens:\n{said}"));
            if let Some(url) = address_in(&line) {
                break url;
            }
            said.push_str(&line);
            said.push('\n');
        };
        Self { url, _process: process, _data: data }
    }
}

/// The first URL that is printed is that of the public listener.
fn address_in(line: &str) -> Option<String> {
    let start = line.find("http://127.0.0.1:")?;
    let url = &line[start..];
    let port_at = "http://127.0.0.1:".len();
    let port_end = url[port_at..].find(|character: char| !character.is_ascii_digit()).map_or(url.len(), |end| port_at + end);
    Some(format!("{}/", &url[..port_end]))
}

/// A process that does not outlive the test.
struct Running(Child);

impl Running {
    fn ends_well_within(&mut self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.success();
            }
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
