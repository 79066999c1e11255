//! Dashboard and README match the program: its metrics, and its table of bounds.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;
use wideroom::config::{BOUNDS, Config};

use crate::cli::get;
use crate::support::program::Program;
use crate::support::server::Server;

/// Metrics without a series on a server without failures.
const OF_TROUBLE: [&str; 2] = ["wideroom_store_failures_total", "wideroom_socket_closes_total"];

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The names of metrics that a text holds.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|char: char| !(char.is_ascii_lowercase() || char == '_'));
    words.filter(|word| ["wideroom_", "process_"].iter().any(|prefix| word.starts_with(prefix))).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let program = Program::new();
    let (server, admin) = Server::start_with_admin(&program, &["--demo"]);
    let query = "GET /graphql?query=%7Bviewer%7Busername%7D%7D HTTP/1.1";
    get(&server.url, &format!("{query}\r\nAuthorization: Bearer {}", program.token("alice")));
    let (_, text) = admin.get("/metrics");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    let told = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let mut told: BTreeSet<_> = told.map(str::to_owned).collect();
    told.extend(OF_TROUBLE.map(str::to_owned));
    let dashboard: Value = serde_json::from_str(&read("docker/grafana.json")).unwrap();
    let shown: Vec<_> = dashboard["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array()).flatten().collect();
    assert!(shown.len() > 20, "the panels were not found");
    let shown = shown.iter().flat_map(|target| names(target["expr"].as_str().unwrap()));
    let of_histogram = |name: String| {
        let base = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(&name).to_owned();
        if told.contains(&base) { base } else { name }
    };
    let shown: BTreeSet<_> = shown.map(of_histogram).collect();
    assert_eq!(shown, told);
}

/// The rows of the README's table of bounds: flag, default, and what a client gets beyond it.
fn rows() -> Vec<[String; 3]> {
    let readme = read("README.md");
    let rows = readme.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| `--")?.split(" | ").collect();
        let [flag, default, _, beyond] = cells[..] else { panic!("{line}") };
        Some([flag.trim_end_matches('`'), default, beyond.trim_end_matches(" |")].map(str::to_owned))
    });
    rows.collect()
}

#[test]
fn the_readme_names_every_bound_with_its_default() {
    let rows = rows();
    let said: Vec<_> = rows.iter().map(|[flag, default, _]| (flag.as_str(), default.clone())).collect();
    let defaults: Vec<_> = BOUNDS.iter().map(|bound| (bound.name, (bound.get)(&Config::default()))).collect();
    assert_eq!(said, defaults);
    assert!(rows.iter().all(|[_, _, beyond]| !beyond.trim().is_empty()));
}
