//! Files for operators match the program: the dashboard, the configuration and the pages.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use wideroom::config::BOUNDS;

use crate::cli::get;
use crate::support::cassandra::shared;
use crate::support::program::Program;
use crate::support::server::Server;

/// Metrics without a series on a server without failures.
const OF_TROUBLE: [&str; 3] = [
    "wideroom_store_failures_total",
    "wideroom_socket_closes_total",
    "wideroom_cluster_lane_errors_total",
];
/// Metrics of a server on a cluster begin so.
const OF_CLUSTERS: [&str; 2] = ["wideroom_cluster_", "wideroom_cql_"];

/// Metrics of a server with a webhook, or with a hook before a send, begin so.
const OF_WEBHOOKS: [&str; 2] = ["wideroom_webhook_", "wideroom_before_send_"];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The names of metrics that a text holds.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|char: char| !(char.is_ascii_lowercase() || char == '_'));
    words
        .filter(|word| {
            ["wideroom_", "process_"]
                .iter()
                .any(|prefix| word.starts_with(prefix))
        })
        .map(str::to_owned)
        .collect()
}

fn begins_with(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// The metrics that a server tells of, after one request.
fn told_by(program: &Program, arguments: &[&str]) -> BTreeSet<String> {
    let (server, admin) = Server::start_with_admin(program, arguments);
    let query = "GET /graphql?query=%7Bviewer%7Busername%7D%7D HTTP/1.1";
    get(
        &server.url,
        &format!(
            "{query}\r\nAuthorization: Bearer {}",
            program.token("alice")
        ),
    );
    let (_, text) = admin.get("/metrics");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let told = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut told: BTreeSet<_> = told.map(str::to_owned).collect();
    told.extend(OF_TROUBLE.map(str::to_owned));
    told
}

/// The metrics of which the dashboard has a panel. Those of a histogram count as one of those that
/// are told.
fn shown(told: &BTreeSet<String>) -> BTreeSet<String> {
    let dashboard: Value = serde_json::from_str(&read("docker/grafana.json")).unwrap();
    let shown: Vec<_> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|panel| panel["targets"].as_array())
        .flatten()
        .collect();
    assert!(shown.len() > 20, "the panels were not found");
    let shown = shown
        .iter()
        .flat_map(|target| names(target["expr"].as_str().unwrap()));
    let of_histogram = |name: String| {
        let base = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(&name)
            .to_owned();
        if told.contains(&base) { base } else { name }
    };
    shown.map(of_histogram).collect()
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let mut told = told_by(&Program::new(), &["--demo"]);
    let mut shown = shown(&told);
    let is_here =
        |name: &String| !begins_with(name, &OF_CLUSTERS) && !begins_with(name, &OF_WEBHOOKS);
    told.retain(is_here);
    shown.retain(is_here);
    assert_eq!(shown, told);
}

#[test]
fn the_dashboard_shows_every_metric_of_webhooks() {
    let program = Program::new();
    program.run(&["outbox", "on"]).succeeded();
    let secret = program.write("secret", crate::support::receiver::SECRET);
    let webhook = format!(
        "[[webhook]]\nname = \"backend\"\nurl = \"https://localhost:9/\"\nsecret_file = \"{secret}\"\n\
         [before_send]\nurl = \"https://localhost:9/\"\nsecret_file = \"{secret}\"\n"
    );
    let file = program.write("wideroom.toml", &webhook);
    let of_webhooks = |names: BTreeSet<String>| -> BTreeSet<String> {
        let own = names.into_iter();
        own.filter(|name| begins_with(name, &OF_WEBHOOKS)).collect()
    };
    let told = told_by(&program, &["--config", &file]);
    let shown = of_webhooks(shown(&told));
    assert_eq!(shown, of_webhooks(told));
    assert_eq!(shown.len(), 12);
}

#[tokio::test]
async fn the_dashboard_shows_every_metric_of_a_cluster_and_no_other() {
    let Some(shared) = shared().await else { return };
    let program = Program::on_cluster(shared).await;
    let told = told_by(&program, &[]);
    let shown = shown(&told);
    let missing: Vec<_> = told.difference(&shown).collect();
    assert!(missing.is_empty(), "no panel shows {missing:?}");
    let of_cluster = shown.iter().filter(|name| begins_with(name, &OF_CLUSTERS));
    let unknown: Vec<_> = of_cluster.filter(|name| !told.contains(*name)).collect();
    assert!(unknown.is_empty(), "no server tells of {unknown:?}");
}

/// Anchor of a heading, as hosts of repositories make it.
fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

#[test]
fn each_alert_has_a_page_and_asks_for_metrics_of_the_dashboard() {
    let (rules, pages) = (read("docker/alerts.yml"), read("docker/ALARMS.md"));
    let anchors: BTreeSet<_> = pages
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .map(anchor)
        .collect();
    let runbooks: BTreeSet<_> = rules
        .split("runbook: \"ALARMS.md#")
        .skip(1)
        .filter_map(|rest| Some(rest.split('"').next()?.to_owned()))
        .collect();
    assert_eq!(
        rules.matches("- alert:").count(),
        rules.matches("runbook:").count()
    );
    assert_eq!(runbooks, anchors);
    let base = |name: String| {
        let histogram = ["_bucket", "_count", "_sum"];
        let base = histogram.iter().find_map(|part| name.strip_suffix(part));
        base.map_or(name.clone(), str::to_owned)
    };
    let dashboard: BTreeSet<_> = names(&read("docker/grafana.json"))
        .into_iter()
        .map(base)
        .collect();
    let unknown: Vec<_> = names(&rules)
        .into_iter()
        .map(base)
        .filter(|name| !dashboard.contains(name))
        .collect();
    assert!(unknown.is_empty(), "no panel shows {unknown:?}");
}

/// Prometheus itself reads and tests the rules, where its tool is installed.
#[test]
fn prometheus_takes_the_alerts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (action, file) in [
        ("check", "docker/alerts.yml"),
        ("test", "tests/alerts_test.yml"),
    ] {
        let checked = std::process::Command::new("promtool")
            .args([action, "rules"])
            .arg(root.join(file))
            .output();
        match checked {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(error) => {
                println!(
                    "left out: promtool (Debian's package prometheus) is not installed: {error}"
                );
                assert!(
                    std::env::var_os("CI").is_none_or(|value| value != "true"),
                    "promtool is missing"
                );
            }
        }
    }
}

/// `UPDATE_CONFIG=1` writes the file anew.
#[test]
fn the_committed_configuration_is_the_one_that_the_program_prints() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/wideroom.toml");
    let printed = wideroom::config::default_file();
    if std::env::var_os("UPDATE_CONFIG").is_some() {
        std::fs::write(&path, &printed).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == printed,
        "docker/wideroom.toml is stale: run UPDATE_CONFIG=1 cargo test committed_configuration"
    );
}

#[test]
fn every_bound_says_what_a_client_gets_beyond_it() {
    let silent: Vec<_> = BOUNDS
        .iter()
        .filter(|bound| bound.beyond.is_none_or(|beyond| beyond.trim().is_empty()))
        .collect();
    assert!(
        silent.is_empty(),
        "{:?}",
        silent.iter().map(|bound| bound.name).collect::<Vec<_>>()
    );
}

/// Links of a page to files of this repository.
fn links(page: &str) -> Vec<String> {
    let targets = read(page)
        .split("](")
        .skip(1)
        .filter_map(|rest| Some(rest.split(')').next()?.to_owned()))
        .collect::<Vec<_>>();
    targets
        .into_iter()
        .filter(|target| !target.starts_with("http") && !target.starts_with('#'))
        .collect()
}

#[test]
fn pages_link_to_files_that_exist_and_the_readme_is_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for page in ["README.md", "docker/README.md", "tests/clients/README.md"] {
        let folder = root.join(page).parent().unwrap().to_owned();
        let links = links(page);
        assert!(links.len() > 5, "the links of {page} were not found");
        for link in links {
            let file = folder.join(link.split('#').next().unwrap());
            assert!(file.exists(), "{page} links to {link}");
        }
    }
    assert!(read("README.md").lines().count() <= 200);
}
