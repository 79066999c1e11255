//! The pages in a real browser: the drivers beside this file (`graphiql.js`, `token.js`, `demo.js`, `features.js`,
//! `everyday.js`, `live.js`, `trust.js`, `expired.js`, `network.js`, `look.js` and `states.js`)
//! use them as people do, each against a server of its own, with every other host closed.
//!
//! It wants node, npm and Chromium, or its shell without windows. Where one is absent a line says so and the test passes, except in CI.

use std::io::{BufRead as _, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, mpsc};
use std::time::Instant;

use crate::support::node::{self, Node};
use crate::support::port;
use crate::support::program::Program;
use crate::support::server::Server;
use crate::support::tool::{self, Tool};
use crate::support::world::PATIENCE;

const AGENT: &str = "agent:helper";
/// The first that is there. The shell is the same browser without its windows, and takes half of the processor.
const BROWSERS: [&str; 4] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
];

#[test]
#[ignore = "gate: half a minute in a browser"]
fn the_graphiql_page_works_in_a_browser() {
    let Some(tools) = tools_or_a_line() else {
        return;
    };
    let server_program = Program::new();
    let server = Server::start(&server_program, &["--demo"]);
    let service = server_program.run(&["token", "--service", "backend", "--scope", "act"]);
    let mut driver = tools.driver("graphiql.js", &server);
    tool::run(driver.arg(service.stdout.trim_end()));
}

#[test]
fn the_playground_keeps_a_token_no_longer_than_its_window() {
    let Some(tools) = tools_or_a_line() else {
        return;
    };
    let server_program = Program::new();
    let token = server_program.token("alice");
    let server = Server::start(&server_program, &[]);
    tool::run(tools.driver("token.js", &server).arg(token));
}

#[test]
fn the_chat_works_in_two_windows_and_survives_the_death_of_its_server() {
    let Some(tools) = tools_or_a_line() else {
        return;
    };
    let server_program = Program::new();
    // The driver writes faster than a person may.
    let arguments = ["--demo", "--rates", "off"];
    let server = Server::start(&server_program, &arguments);
    let driver = tools.driver("demo.js", &server);
    drive_with_server(driver, &server_program, server, &arguments);
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn nothing_that_a_person_trusts_in_breaks() {
    let Some(tools) = tools_or_a_line() else {
        return;
    };
    let server_program = Program::new();
    let service = server_program.run(&["token", "--service", "backend"]);
    let agent = server_program.token(AGENT);
    let arguments = ["--demo", "--rates", "off"];
    let server = Server::start(&server_program, &arguments);
    let mut driver = tools.driver("trust.js", &server);
    driver.args([service.stdout.trim_end(), &agent]);
    drive_with_server(driver, &server_program, server, &arguments);
}

#[test]
fn a_draft_outlives_its_token() {
    let Some(tools) = tools_or_a_line() else {
        return;
    };
    let (server_program, server, driver) = tools.driver_with_expired_token("expired.js");
    drive_with_server(driver, &server_program, server, &[]);
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn what_people_see_seldom_is_as_tidy_as_the_rest() {
    let Some(tools) = tools_or_a_line() else {
        return;
    };
    let (server_program, _server, mut driver) = tools.driver_with_expired_token("states.js");
    driver.args((0..6).map(|number| server_program.token(&format!("user{number}"))));
    tool::run(&mut driver);
}

#[test]
#[ignore = "gate: minutes in a browser"]
fn the_demo_shows_everything_once_whatever_the_network_does() {
    drive_over_a_bad_network("demo", None);
}

#[test]
#[ignore = "gate: minutes in a browser"]
fn the_react_app_shows_everything_once_whatever_the_network_does() {
    let Some(node) = Node::installed() else {
        return;
    };
    node.run("package/bundle.js", &[]);
    drive_over_a_bad_network("app", Some(&node.path("generated/app")));
}

fn drive_over_a_bad_network(page: &str, app: Option<&str>) {
    let Some(tools) = tools_or_a_line() else {
        return;
    };
    let server_program = Program::new();
    let origin = format!("http://127.0.0.1:{}", port::free());
    let arguments = ["--demo", "--rates", "off", "--cors-origins", &origin];
    let server = Server::start(&server_program, &arguments);
    let mut driver = tools.driver("network.js", &server);
    driver.arg(page).args(app).env("APP_ORIGIN", &origin);
    drive_with_server(driver, &server_program, server, &arguments);
}

/// Runs a driver that says on its output what to do with the server (`kill`, `start`), or asks for a token (`token alice`), which lives for
/// 20 s. Each line is answered by one.
fn drive_with_server(
    mut driver: Command,
    server_program: &Program,
    server: Server,
    arguments: &[&str],
) {
    let address = server.address().to_string();
    let mut driver = Tool::spawn_talking(&mut driver);
    let child = &mut driver.running.child;
    let mut answers = child.stdin.take().unwrap();
    let (sender, commands) = mpsc::channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    let deadline = Instant::now() + tool::ENDS_WITHIN;
    let mut server = Some(server);
    // It ends with the driver's output, or in time.
    while let Ok(command) =
        commands.recv_timeout(deadline.saturating_duration_since(Instant::now()))
    {
        let mut answer = "done".to_owned();
        match command.split_once(' ').unwrap_or((&command, "")) {
            ("kill", _) => drop(server.take().map(Server::kill)),
            ("start", _) => server = Some(Server::start_on(&address, server_program, arguments)),
            ("token", user) => {
                let token = server_program.run(&["token", "--user", user, "--ttl", "20s"]);
                token.stdout.trim_end().clone_into(&mut answer);
            }
            _ => panic!("the driver says {command}"),
        }
        writeln!(answers, "{answer}").unwrap();
    }
    driver.ends_well(PATIENCE);
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn people_are_mentioned_from_a_picker_and_find_their_mentions() {
    drive_feature("mentions");
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn pinned_messages_stand_above_and_are_jumped_to_however_old() {
    drive_feature("pins");
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn a_blocked_person_is_out_of_sight_until_unblocked() {
    drive_feature("blocks");
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn a_message_is_reported_with_a_reason() {
    drive_feature("reports");
}

#[test]
#[ignore = "gate: a minute in a browser"]
fn history_is_cleared_for_one_person_and_expires_for_all() {
    drive_feature("history");
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn a_search_finds_messages_everywhere_and_in_one_conversation() {
    drive_feature("search");
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn a_group_is_run_from_the_side_sheet() {
    drive("everyday.js", &["sheet"]);
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn an_inbox_entry_has_a_menu_for_every_hand() {
    drive("everyday.js", &["entries"]);
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn a_profile_and_a_picture_are_seen_by_the_others() {
    drive("everyday.js", &["pictures"]);
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn a_silenced_person_reads_why_and_a_message_can_be_copied() {
    drive("everyday.js", &["writing"]);
}

#[test]
#[ignore = "gate: half a minute in a browser"]
fn the_chat_is_used_by_keyboard_by_touch_and_by_ear() {
    drive("everyday.js", &["hands"]);
}

#[test]
#[ignore = "gate: two minutes in a browser"]
fn an_answer_grows_in_every_window_and_becomes_one_message() {
    drive("live.js", &[]);
}

#[test]
#[ignore = "gate: two minutes in a browser"]
fn the_chat_fits_every_screen_and_is_legible_in_light_and_dark() {
    let program = Program::new();
    let token = program.token(AGENT);
    drive_on(&program, "look.js", &[&token]);
}

fn drive_feature(name: &str) {
    drive("features.js", &[name]);
}

/// Drives the chat page on a server of its own.
fn drive(driver: &str, arguments: &[&str]) {
    drive_on(&Program::new(), driver, arguments);
}

fn drive_on(server_program: &Program, driver: &str, arguments: &[&str]) {
    let Some(tools) = tools_or_a_line() else {
        return;
    };
    // The driver writes faster than a person may.
    let server = Server::start(server_program, &["--demo", "--rates", "off"]);
    tool::run(tools.driver(driver, &server).args(arguments));
}

/// Programs that drive a browser.
struct Tools {
    chromium: String,
    work: PathBuf,
    screenshots: PathBuf,
}

impl Tools {
    fn driver(&self, name: &str, server: &Server) -> Command {
        let mut command = Command::new("node");
        command
            .arg(self.work.join(name))
            .arg(format!("{}/", server.url))
            .arg(&self.chromium)
            .arg(&self.screenshots);
        command
    }

    /// A driver with its server, whose arguments are a token of alice that expires within a second, and one of a service.
    fn driver_with_expired_token(&self, name: &str) -> (Program, Server, Command) {
        let program = Program::new();
        let expired = program.run(&["token", "--user", "alice", "--ttl", "1s"]);
        let service = program.run(&["token", "--service", "backend"]);
        let server = Server::start(&program, &[]);
        let mut driver = self.driver(name, &server);
        driver.args([&expired, &service].map(|token| token.stdout.trim_end()));
        (program, server, driver)
    }
}

/// Or a line says what is missing, except in CI, where that is a failure.
fn tools_or_a_line() -> Option<Tools> {
    // They are installed by one, for both.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _one = INSTALLING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    tools()
        .inspect_err(|missing| {
            assert!(
                std::env::var_os("CI").is_none_or(|value| value != "true"),
                "the browser test cannot run: {missing}"
            );
            // Not eprintln!, which is kept from sight in a test that passes.
            let _ = writeln!(std::io::stderr(), "the browser test did not run: {missing}");
        })
        .ok()
}

/// The browser, and the drivers with what they need beside them, installed outside the source tree; or what is missing.
fn tools() -> Result<Tools, String> {
    if !wideroom::server::pages::is_embedded() {
        return Err("this build has no GraphiQL inside".to_owned());
    }
    for tool in ["node", "npm"] {
        find(tool).ok_or(format!("{tool} is missing"))?;
    }
    let chromium = BROWSERS
        .into_iter()
        .find_map(find)
        .ok_or("chromium is missing")?;

    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser");
    let work = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    node::copy(&source, &work).map_err(|error| error.to_string())?;
    node::install_packages(&work)?;
    let screenshots = work.join("screenshots");
    std::fs::create_dir_all(&screenshots).map_err(|error| error.to_string())?;
    Ok(Tools {
        chromium,
        work,
        screenshots,
    })
}

fn find(tool: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(tool))
        .find(|file| file.is_file())
        .map(|file| file.display().to_string())
}
