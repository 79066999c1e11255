//! `wideroom bench` against a real server: effects and figures of each workload, and one-line errors.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::{Value, json};

use super::Program;
use crate::support::cassandra::shared;
use crate::support::client::Caller;
use crate::support::server::Server;

struct BenchFixture {
    program: Program,
    server: Server,
}

impl BenchFixture {
    fn start(arguments: &[&str]) -> Self {
        let program = Program::new();
        let server = Server::start(&program, &[&["--log", "error"], arguments].concat());
        Self { program, server }
    }

    fn without_rate_limits() -> Self {
        Self::start(&["--rates", "off"])
    }

    /// Report of a load without failures.
    fn bench(&self, arguments: &[&str]) -> Value {
        let id = self.server.id().to_string();
        let on = ["--json", "--url", &self.server.url, "--pid", &id];
        let ended = self.program.run(&[&["bench"], arguments, &on].concat());
        let report: Value = serde_json::from_str(ended.succeeded()).unwrap();
        assert_eq!(
            (&report["failed"], &report["faults"], &report["interrupted"]),
            (&json!(0), &json!([]), &json!(false)),
            "{report}"
        );
        let ascending = ["p50Ms", "p90Ms", "p99Ms", "p999Ms", "maxMs"]
            .map(|name| report[name].as_f64().unwrap());
        assert!(ascending.is_sorted() && ascending[0] > 0.0, "{report}");
        assert!(
            number(&report, "operations") > 0 && report["perSecond"].as_f64() > Some(0.0),
            "{report}"
        );
        assert!(
            report["residentMib"].as_f64() > Some(1.0) && report["cpuCores"].is_number(),
            "{report}"
        );
        report
    }
}

fn number(report: &Value, name: &str) -> u64 {
    report[name]
        .as_f64()
        .unwrap_or_else(|| panic!("{name}: {report}")) as u64
}

#[tokio::test]
async fn sent_messages_are_in_the_conversation() {
    let fixture = BenchFixture::without_rate_limits();
    let report = fixture.bench(&[
        "send",
        "--conversations",
        "1",
        "--participants",
        "3",
        "--in-flight",
        "4",
        "--duration",
        "500ms",
        "--key",
    ]);
    assert_eq!(
        (&report["settings"]["inFlight"], &report["settings"]["key"]),
        (&json!(4), &json!(true))
    );
    assert!(report["cpuMicrosEach"].as_f64() > Some(0.0), "{report}");
    let person = format!("bench-{}-0003", report["run"].as_str().unwrap());
    let mut caller = Caller::connect(fixture.server.address(), &fixture.program.token(&person))
        .await
        .unwrap();
    let inbox = caller
        .data(
            "{ inbox { edges { node { conversation { messageCount } } } } }",
            &Value::Null,
        )
        .await
        .unwrap();
    let count = &inbox["inbox"]["edges"][0]["node"]["conversation"]["messageCount"];
    assert_eq!(
        count.as_u64(),
        Some(number(&report, "operations")),
        "{inbox}"
    );
}

#[test]
fn pages_are_read_at_the_end_and_deep_in_history() {
    let fixture = BenchFixture::without_rate_limits();
    let page = [
        "page",
        "--messages",
        "60",
        "--size",
        "10",
        "--in-flight",
        "2",
        "--duration",
        "300ms",
    ];
    fixture.bench(&page);
    assert_eq!(
        fixture.bench(&[&page[..], &["--deep"]].concat())["settings"]["deep"],
        true
    );
    let ended = fixture.program.run(&[
        "bench",
        "page",
        "--messages",
        "100",
        "--deep",
        "--url",
        &fixture.server.url,
    ]);
    ended.failed(
        1,
        "--deep: 100 messages are too few for deep pages; raise --messages above twice --size",
    );
}

#[tokio::test]
async fn an_inbox_has_unread_messages() {
    let fixture = BenchFixture::without_rate_limits();
    let report = fixture.bench(&[
        "inbox",
        "--conversations",
        "3",
        "--unread",
        "2",
        "--in-flight",
        "2",
        "--duration",
        "300ms",
    ]);
    let viewer = format!("bench-{}-0001", report["run"].as_str().unwrap());
    let mut caller = Caller::connect(fixture.server.address(), &fixture.program.token(&viewer))
        .await
        .unwrap();
    let inbox = caller
        .data("{ inbox { edges { node { unreadCount } } } }", &Value::Null)
        .await
        .unwrap();
    assert_eq!(
        inbox["inbox"]["edges"],
        json!([{"node": {"unreadCount": 2}}, {"node": {"unreadCount": 2}}, {"node": {"unreadCount": 2}}])
    );
}

#[tokio::test]
async fn every_reader_marks_every_message() {
    let fixture = BenchFixture::without_rate_limits();
    let report = fixture.bench(&["mark-read", "--in-flight", "33", "--messages", "5"]);
    assert_eq!(number(&report, "operations"), 33 * 5);
    for number in ["0001", "0033"] {
        let reader = format!("bench-{}-{number}", report["run"].as_str().unwrap());
        let mut caller = Caller::connect(fixture.server.address(), &fixture.program.token(&reader))
            .await
            .unwrap();
        let query =
            "{ inbox { edges { node { unreadCount readUpTo { id } lastMessage { id } } } } }";
        let inbox = caller.data(query, &Value::Null).await.unwrap();
        let entry = &inbox["inbox"]["edges"][0]["node"];
        assert!(
            entry["unreadCount"] == 0
                && entry["readUpTo"].is_object()
                && entry["readUpTo"] == entry["lastMessage"],
            "{inbox}"
        );
    }
}

#[test]
fn every_subscriber_receives_every_message() {
    let fixture = BenchFixture::without_rate_limits();
    let report = fixture.bench(&[
        "fanout",
        "--subscribers",
        "20",
        "--participants",
        "3",
        "--rate",
        "40",
        "--duration",
        "500ms",
    ]);
    assert_eq!(
        (number(&report, "sends"), number(&report, "operations")),
        (20, 20 * 20)
    );
}

#[tokio::test]
async fn live_messages_are_written_seen_and_sent() {
    let fixture = BenchFixture::without_rate_limits();
    let live = ["live", "--answers", "6", "--services", "2", "--rate", "2"];
    let arguments = ["--viewers", "13", "--duration", "1s"];
    let report = fixture.bench(&[&live[..], &arguments].concat());
    assert_eq!(number(&report, "operations"), 6 * 2);
    assert!(
        report["viewerP99Ms"].as_f64() > Some(0.0) && number(&report, "payloads") > 13,
        "{report}"
    );
    assert!(report["sendP99Ratio"].is_null(), "{report}");
    // A service writes in every second conversation.
    let service = format!("bench-{}-0001", report["run"].as_str().unwrap());
    let mut caller = Caller::connect(fixture.server.address(), &fixture.program.token(&service))
        .await
        .unwrap();
    let query = "{ inbox { edges { node { conversation { liveMessages { id } messages(first: 9) { edges { node { body liveMessageId } } } } } } } }";
    let inbox = caller.data(query, &Value::Null).await.unwrap();
    let entries = inbox["inbox"]["edges"].as_array().unwrap();
    assert_eq!(entries.len(), 3, "{inbox}");
    for entry in entries {
        let conversation = &entry["node"]["conversation"];
        assert_eq!(conversation["liveMessages"], json!([]), "{inbox}");
        let messages = conversation["messages"]["edges"].as_array().unwrap();
        let [sent] = &messages[..] else {
            panic!("{inbox}")
        };
        assert_eq!(sent["node"]["body"], "The answer.");
        assert!(sent["node"]["liveMessageId"].is_string(), "{inbox}");
    }
}

#[test]
fn sends_beside_live_messages_are_compared_with_sends_alone() {
    let fixture = BenchFixture::without_rate_limits();
    let live = ["live", "--answers", "4", "--services", "1", "--rate", "2"];
    let arguments = ["--sends", "40", "--viewers", "3", "--duration", "2500ms"];
    let report = fixture.bench(&[&live[..], &arguments].concat());
    assert_eq!(number(&report, "operations"), 4 * 5);
    let figure = |name: &str| report[name].as_f64().unwrap();
    let ratio = figure("sendP99BesideMs") / figure("sendP99AloneMs");
    assert!(
        (figure("sendP99Ratio") / ratio - 1.0).abs() < 0.05,
        "{report}"
    );
    let long = ["--rate", "2", "--duration", "10m"];
    let url = ["--url", &fixture.server.url];
    let ended = fixture
        .program
        .run(&[&["bench", "live"], &long[..], &url].concat());
    ended.failed(
        1,
        "--duration: live messages of 76,864 bytes are too long; lower --duration, --rate or --bytes",
    );
}

#[test]
fn memory_and_cpu_of_idle_sockets_are_measured() {
    let fixture = BenchFixture::without_rate_limits();
    let report = fixture.bench(&["idle", "--sockets", "50", "--duration", "200ms"]);
    assert_eq!(number(&report, "operations"), 50);
    assert!(
        report["residentKibEach"].is_number() && report["cpuMicrosPerSocketSecond"].is_number(),
        "{report}"
    );
}

#[test]
fn a_storm_loses_nothing() {
    let fixture = BenchFixture::without_rate_limits();
    let report = fixture.bench(&[
        "storm",
        "--sockets",
        "30",
        "--missed",
        "12",
        "--send-rate",
        "200",
    ]);
    assert_eq!(number(&report, "operations"), 30);
    assert_eq!(
        number(&report, "delivered"),
        30 * (12 + number(&report, "sentMeanwhile"))
    );
    assert_eq!(report["allCurrentMs"], report["maxMs"]);
}

#[test]
fn the_text_report_has_the_figures() {
    let fixture = BenchFixture::without_rate_limits();
    let ended = fixture.program.run(&[
        "bench",
        "send",
        "--in-flight",
        "1",
        "--duration",
        "200ms",
        "--url",
        &fixture.server.url,
    ]);
    let text = ended.succeeded();
    for piece in [
        "send: 1 in flight to 64 conversations of 2",
        "  sends ",
        " a second\n",
        "p50 ",
        ", max ",
        "  failed      none\n",
    ] {
        assert!(text.contains(piece), "{piece}: {text}");
    }
    assert!(!text.contains("CPU"), "the bench got no --pid: {text}");
}

#[test]
fn an_unreachable_server_or_a_wrong_option_is_one_line() {
    let fixture = BenchFixture::without_rate_limits();
    fixture.program.token("alice");
    let url = fixture.server.url.clone();
    fixture.server.kill();
    let reason = "Connection refused (os error 111)";
    let ended = fixture.program.run(&["bench", "storm", "--url", &url]);
    ended.failed(
        1,
        &format!("cannot connect to {url}: {reason}; check that the server is running"),
    );
    let ended = fixture
        .program
        .run(&["bench", "send", "--url", "https://chat.example.org"]);
    ended.failed(1, "--url: wideroom bench does not support TLS: give the address of the server itself, not of a proxy in front of it");
    let ended = fixture
        .program
        .run(&["bench", "send", "--url", &url, "--pid", "4294967295"]);
    ended.failed(
        1,
        "--pid: process 4294967295 does not exist on this machine",
    );
}

#[test]
fn a_refused_token_names_the_missing_option() {
    let fixture = BenchFixture::without_rate_limits();
    let url = &fixture.server.url;
    let ended = fixture
        .program
        .run(&["bench", "idle", "--url", url, "--data", "nowhere"]);
    ended.failed(
        1,
        "nowhere holds no key of a server: name the server's data folder with --data, or its token secret with --token-secret-file",
    );
    fixture
        .program
        .run(&["token", "--user", "alice", "--data", "elsewhere"])
        .succeeded();
    let ended = fixture
        .program
        .run(&["bench", "fanout", "--url", url, "--data", "elsewhere"]);
    let advice =
        "name the server's data folder with --data, or its token secret with --token-secret-file";
    let reason = "UNAUTHENTICATED: The token is not signed by a key of this server";
    ended.failed(1, &format!("{url}: {reason}; {advice}"));
}

#[test]
fn a_server_with_a_secret_is_measured_with_it() {
    let program = Program::new();
    let secret = program.write(
        "secret",
        "a secret of an issuer, thirty-two bytes and some.\n",
    );
    let arguments = [
        "--log",
        "error",
        "--rates",
        "off",
        "--token-secret-file",
        &secret,
        "--token-audience",
        "chat",
    ];
    let server = Server::start(&program, &arguments);
    let fixture = BenchFixture { program, server };
    fixture.bench(&[
        "storm",
        "--sockets",
        "2",
        "--missed",
        "1",
        "--token-secret-file",
        &secret,
        "--token-audience",
        "chat",
    ]);
}

#[test]
fn rate_limited_sends_are_counted_and_explained() {
    let fixture = BenchFixture::start(&["--send-rate", "1", "--send-burst", "1"]);
    let url = &fixture.server.url;
    let ended = fixture.program.run(&[
        "bench",
        "send",
        "--json",
        "--in-flight",
        "2",
        "--conversations",
        "1",
        "--duration",
        "1s",
        "--url",
        url,
    ]);
    let report: Value = serde_json::from_str(&ended.stdout).unwrap();
    let refused = number(&report["failures"], "RATE_LIMITED");
    assert!(
        ended.code == Some(1) && refused > 0 && refused == number(&report, "failed"),
        "{report}"
    );
    let sentence = "operations failed: RATE_LIMITED; start the server with --rates off to measure such a load\n";
    assert!(ended.stderr.ends_with(sentence), "{}", ended.stderr);
    let ended = fixture.program.run(&["bench", "page", "--url", url]);
    assert!(
        ended.code == Some(1) && ended.stdout.is_empty(),
        "{}",
        ended.stdout
    );
    assert!(
        ended.stderr.contains("RATE_LIMITED")
            && ended
                .stderr
                .ends_with(&sentence["operations failed: RATE_LIMITED".len()..]),
        "{}",
        ended.stderr
    );
}

#[test]
fn an_interrupted_bench_reports_its_measurements() {
    let fixture = BenchFixture::without_rate_limits();
    let mut command = fixture.program.command(&[
        "bench",
        "send",
        "--json",
        "--duration",
        "1h",
        "--url",
        &fixture.server.url,
    ]);
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    // The bench prints its progress every few seconds.
    while !line.contains("sends: ") {
        line.clear();
        assert!(
            stderr.read_line(&mut line).unwrap() > 0,
            "the bench ended by itself"
        );
    }
    std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        report["interrupted"] == true && number(&report, "operations") > 0,
        "{report}"
    );
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    assert!(
        rest.ends_with(
            "wideroom: interrupted; the report above holds the measurements until then\n"
        ),
        "{rest}"
    );
}

#[test]
fn every_workload_has_help_with_examples() {
    let program = Program::new();
    let help = program.run(&["bench", "--help"]);
    let listed = help
        .succeeded()
        .split("Workloads:")
        .nth(1)
        .unwrap()
        .split("Options:")
        .next()
        .unwrap();
    let workloads: Vec<_> = listed
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .collect();
    assert_eq!(
        workloads,
        [
            "send",
            "page",
            "inbox",
            "mark-read",
            "fanout",
            "live",
            "idle",
            "storm"
        ]
    );
    for workload in workloads {
        let help = program.run(&["bench", workload, "--help"]);
        for piece in [
            "Examples:",
            &format!("wideroom bench {workload}"),
            "--url",
            "--pid",
            "--json",
            "[default: ",
        ] {
            assert!(
                help.succeeded().contains(piece),
                "{workload}: {piece}: {}",
                help.stdout
            );
        }
    }
    for wrong in [
        &["bench"][..],
        &["bench", "sned"],
        &["bench", "storm", "--sockets", "0"],
        &["bench", "send", "--duration", "10"],
    ] {
        assert_eq!(program.run(wrong).code, Some(2), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_storm_on_a_cluster_is_complete() {
    let Some(shared) = shared().await else { return };
    let program = Program::on_cluster(shared).await;
    let server = Server::start(&program, &["--log", "error", "--rates", "off"]);
    let fixture = BenchFixture { program, server };
    fixture.bench(&[
        "send",
        "--conversations",
        "2",
        "--in-flight",
        "2",
        "--duration",
        "500ms",
    ]);
    let report = fixture.bench(&[
        "storm",
        "--sockets",
        "10",
        "--missed",
        "7",
        "--send-rate",
        "20",
    ]);
    assert_eq!(
        number(&report, "delivered"),
        10 * (7 + number(&report, "sentMeanwhile"))
    );
}
