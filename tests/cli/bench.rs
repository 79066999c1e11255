//! `wideroom bench` against the real server: each shape does what it says, its figures agree, and what is wrong is one clear line.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::{Value, json};

use super::Program;
use crate::cluster::place::migrated;
use crate::support::cassandra::shared;
use crate::support::client::Caller;
use crate::support::server::Server;

struct Stage {
    program: Program,
    server: Server,
}

impl Stage {
    fn start(arguments: &[&str]) -> Self {
        let program = Program::new();
        let server = Server::start(&program, &[&["--log", "error"], arguments].concat());
        Self { program, server }
    }

    fn at_any_rate() -> Self {
        Self::start(&["--rates", "off"])
    }

    /// The report of a load in which nothing failed.
    fn bench(&self, arguments: &[&str]) -> Value {
        let id = self.server.id().to_string();
        let on = ["--json", "--url", &self.server.url, "--pid", &id];
        let ended = self.program.run(&[&["bench"], arguments, &on].concat());
        let report: Value = serde_json::from_str(ended.succeeded()).unwrap();
        assert_eq!((&report["failed"], &report["faults"], &report["interrupted"]), (&json!(0), &json!([]), &json!(false)), "{report}");
        let ascending = ["p50Ms", "p90Ms", "p99Ms", "maxMs"].map(|name| report[name].as_f64().unwrap());
        assert!(ascending.is_sorted() && ascending[0] > 0.0, "{report}");
        assert!(number(&report, "operations") > 0 && report["perSecond"].as_f64() > Some(0.0), "{report}");
        assert!(report["residentMib"].as_f64() > Some(1.0) && report["cpuCores"].is_number(), "{report}");
        report
    }
}

fn number(report: &Value, name: &str) -> u64 {
    report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}")) as u64
}

#[tokio::test]
async fn what_was_sent_is_there() {
    let stage = Stage::at_any_rate();
    let report = stage.bench(&["send", "--conversations", "1", "--participants", "3", "--in-flight", "4", "--duration", "500ms", "--key"]);
    assert_eq!((&report["settings"]["inFlight"], &report["settings"]["key"]), (&json!(4), &json!(true)));
    assert!(report["cpuMicrosEach"].as_f64() > Some(0.0), "{report}");
    let person = format!("bench-{}-0003", report["run"].as_str().unwrap());
    let mut caller = Caller::connect(stage.server.address(), &stage.program.token(&person)).await.unwrap();
    let inbox = caller.data("{ inbox { edges { node { conversation { messageCount } } } } }", &Value::Null).await.unwrap();
    let count = &inbox["inbox"]["edges"][0]["node"]["conversation"]["messageCount"];
    assert_eq!(count.as_u64(), Some(number(&report, "operations")), "{inbox}");
}

#[test]
fn pages_are_read_at_the_end_and_deep_inside() {
    let stage = Stage::at_any_rate();
    let page = ["page", "--messages", "60", "--size", "10", "--in-flight", "2", "--duration", "300ms"];
    stage.bench(&page);
    assert_eq!(stage.bench(&[&page[..], &["--deep"]].concat())["settings"]["deep"], true);
    let ended = stage.program.run(&["bench", "page", "--messages", "100", "--deep", "--url", &stage.server.url]);
    ended.failed(1, "--deep: there is nothing deep in 100 messages; fill in more");
}

#[tokio::test]
async fn an_inbox_has_unread_messages() {
    let stage = Stage::at_any_rate();
    let report = stage.bench(&["inbox", "--conversations", "3", "--unread", "2", "--in-flight", "2", "--duration", "300ms"]);
    let viewer = format!("bench-{}-0001", report["run"].as_str().unwrap());
    let mut caller = Caller::connect(stage.server.address(), &stage.program.token(&viewer)).await.unwrap();
    let inbox = caller.data("{ inbox { edges { node { unreadCount } } } }", &Value::Null).await.unwrap();
    assert_eq!(inbox["inbox"]["edges"], json!([{"node": {"unreadCount": 2}}, {"node": {"unreadCount": 2}}, {"node": {"unreadCount": 2}}]));
}

#[tokio::test]
async fn every_reader_marks_every_message() {
    let stage = Stage::at_any_rate();
    let report = stage.bench(&["mark-read", "--in-flight", "33", "--messages", "5"]);
    assert_eq!(number(&report, "operations"), 33 * 5);
    for place in ["0001", "0033"] {
        let reader = format!("bench-{}-{place}", report["run"].as_str().unwrap());
        let mut caller = Caller::connect(stage.server.address(), &stage.program.token(&reader)).await.unwrap();
        let query = "{ inbox { edges { node { unreadCount readUpTo { id } lastMessage { id } } } } }";
        let inbox = caller.data(query, &Value::Null).await.unwrap();
        let entry = &inbox["inbox"]["edges"][0]["node"];
        assert!(entry["unreadCount"] == 0 && entry["readUpTo"].is_object() && entry["readUpTo"] == entry["lastMessage"], "{inbox}");
    }
}

#[test]
fn everybody_is_told_of_every_send() {
    let stage = Stage::at_any_rate();
    let report = stage.bench(&["fanout", "--subscribers", "20", "--participants", "3", "--rate", "40", "--duration", "500ms"]);
    assert_eq!((number(&report, "sends"), number(&report, "operations")), (20, 20 * 20));
}

#[test]
fn idle_sockets_are_weighed() {
    let stage = Stage::at_any_rate();
    let report = stage.bench(&["idle", "--sockets", "50", "--duration", "200ms"]);
    assert_eq!(number(&report, "operations"), 50);
    assert!(report["residentKibEach"].is_number() && report["cpuMicrosPerSocketSecond"].is_number(), "{report}");
}

#[test]
fn a_storm_loses_nothing() {
    let stage = Stage::at_any_rate();
    let report = stage.bench(&["storm", "--sockets", "30", "--missed", "12", "--send-rate", "200"]);
    assert_eq!(number(&report, "operations"), 30);
    assert_eq!(number(&report, "told"), 30 * (12 + number(&report, "sentMeanwhile")));
    assert_eq!(report["allCurrentMs"], report["maxMs"]);
}

#[test]
fn a_person_reads_the_same_as_text() {
    let stage = Stage::at_any_rate();
    let ended = stage.program.run(&["bench", "send", "--in-flight", "1", "--duration", "200ms", "--url", &stage.server.url]);
    let text = ended.succeeded();
    for piece in ["send: 1 in flight to 64 conversations of 2", "  sends ", " a second\n", "p50 ", ", max ", "  failed      none\n"] {
        assert!(text.contains(piece), "{piece}: {text}");
    }
    assert!(!text.contains("CPU"), "nobody said which process it is: {text}");
}

#[test]
fn a_server_that_is_away_or_no_wideroom_is_one_clear_line() {
    let stage = Stage::at_any_rate();
    stage.program.token("alice");
    let url = stage.server.url.clone();
    stage.server.kill();
    let reason = "Connection refused (os error 111)";
    let ended = stage.program.run(&["bench", "storm", "--url", &url]);
    ended.failed(1, &format!("cannot connect to {url}: {reason}: is it running?"));
    let ended = stage.program.run(&["bench", "send", "--url", "https://chat.example.org"]);
    ended.failed(1, "--url: TLS is not spoken here: name the server itself, not the proxy before it");
    let ended = stage.program.run(&["bench", "send", "--url", &url, "--pid", "4294967295"]);
    ended.failed(1, "--pid: there is no process 4294967295 here");
}

#[test]
fn a_token_that_is_not_taken_says_what_to_give() {
    let stage = Stage::at_any_rate();
    let url = &stage.server.url;
    let ended = stage.program.run(&["bench", "idle", "--url", url, "--data", "nowhere"]);
    ended.failed(1, "nowhere holds no key of a server: say where its data folder is with --data, or its secret with --token-secret-file");
    stage.program.run(&["token", "--user", "alice", "--data", "elsewhere"]).succeeded();
    let ended = stage.program.run(&["bench", "fanout", "--url", url, "--data", "elsewhere"]);
    let advice = "say where the server's data folder is with --data, or its secret with --token-secret-file";
    let reason = "UNAUTHENTICATED: The token is not signed by a key of this server";
    ended.failed(1, &format!("{url}: {reason}; {advice}"));
}

#[test]
fn a_server_with_a_secret_is_measured_with_it() {
    let program = Program::new();
    let secret = program.write("secret", "a secret of an issuer, thirty-two bytes and some.\n");
    let arguments = ["--log", "error", "--rates", "off", "--token-secret-file", &secret, "--token-audience", "chat"];
    let server = Server::start(&program, &arguments);
    let stage = Stage { program, server };
    stage.bench(&["storm", "--sockets", "2", "--missed", "1", "--token-secret-file", &secret, "--token-audience", "chat"]);
}

#[test]
fn rates_of_users_are_told_and_counted() {
    let stage = Stage::start(&["--send-rate", "1", "--send-burst", "1"]);
    let url = &stage.server.url;
    let ended =
        stage.program.run(&["bench", "send", "--json", "--in-flight", "2", "--conversations", "1", "--duration", "1s", "--url", url]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let refused = number(&report["failures"], "RATE_LIMITED");
    assert!(ended.code == Some(1) && refused > 0 && refused == number(&report, "failed"), "{report}");
    let sentence = "failed: RATE_LIMITED; start the server with --rates off for a load like this\n";
    assert!(ended.stderr.ends_with(sentence), "{}", ended.stderr);
    let ended = stage.program.run(&["bench", "page", "--url", url]);
    assert!(ended.code == Some(1) && ended.stdout.is_empty(), "{}", ended.stdout);
    assert!(ended.stderr.contains("RATE_LIMITED") && ended.stderr.ends_with(&sentence[22..]), "{}", ended.stderr);
}

#[test]
fn who_is_interrupted_is_told_what_there_is() {
    let stage = Stage::at_any_rate();
    let mut command = stage.program.command(&["bench", "send", "--json", "--duration", "1h", "--url", &stage.server.url]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // It says now and then how far it is.
    while !line.contains("sends: ") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended by itself");
    }
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["interrupted"] == true && number(&report, "operations") > 0, "{report}");
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("wideroom: interrupted; what was measured until then is above\n"), "{rest}");
}

#[test]
fn every_shape_teaches_itself() {
    let program = Program::new();
    let help = program.run(&["bench", "--help"]);
    let listed = help.succeeded().split("Shapes:").nth(1).unwrap().split("Options:").next().unwrap();
    let shapes: Vec<_> = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next()).collect();
    assert_eq!(shapes, ["send", "page", "inbox", "mark-read", "fanout", "idle", "storm"]);
    for shape in shapes {
        let help = program.run(&["bench", shape, "--help"]);
        for piece in ["Examples:", &format!("wideroom bench {shape}"), "--url", "--pid", "--json", "[default: "] {
            assert!(help.succeeded().contains(piece), "{shape}: {piece}: {}", help.stdout);
        }
    }
    for wrong in [&["bench"][..], &["bench", "sned"], &["bench", "storm", "--sockets", "0"], &["bench", "send", "--duration", "10"]] {
        assert_eq!(program.run(wrong).code, Some(2), "{wrong:?}");
    }
}

/// The load knows nothing of the store, and a storm is as whole there.
#[tokio::test]
async fn a_server_on_a_cluster_is_measured_as_well() {
    let Some(shared) = shared().await else { return };
    let program = migrated(|keyspace| shared.url(keyspace), "1");
    let server = Server::start(&program, &["--log", "error", "--rates", "off"]);
    let stage = Stage { program, server };
    stage.bench(&["send", "--conversations", "2", "--in-flight", "2", "--duration", "500ms"]);
    let report = stage.bench(&["storm", "--sockets", "10", "--missed", "7", "--send-rate", "20"]);
    assert_eq!(number(&report, "told"), 10 * (7 + number(&report, "sentMeanwhile")));
}
