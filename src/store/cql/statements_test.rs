//! Tests of all statements: portable CQL only, and no table that a batch replay could outlive.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::driver::schema::SCHEMA_MIGRATIONS;
use super::driver::schema::migrations::MIGRATIONS;
use super::driver::statement::{Kind, Statement};
use super::open::STATEMENTS;

/// Tables that no LOGGED batch writes: rows are claimed by lightweight transactions, or stand alone.
const UNBATCHED: &[&str] = &[
    "sends_by_key",
    ".server_beats (",
    ".mailboxes (",
    ".outbox_positions (",
    ".live_texts (",
    ".live_messages_by_conversation (",
];

fn statements() -> Vec<&'static Statement> {
    STATEMENTS.iter().copied().flatten().copied().collect()
}

fn all() -> Vec<(String, &'static str)> {
    let tables = MIGRATIONS
        .iter()
        .flat_map(|migration| migration.statements)
        .chain([&SCHEMA_MIGRATIONS]);
    let tables = tables.map(|text| {
        (
            text.split_whitespace()
                .take(6)
                .collect::<Vec<_>>()
                .join(" "),
            *text,
        )
    });
    statements()
        .into_iter()
        .map(|statement| (statement.name.to_owned(), statement.text))
        .chain(tables)
        .collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                sources(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn every_declared_statement_is_prepared_once() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/cql");
    let declared = |text: String| {
        let block = text
            .split("\nstatements! {\n")
            .nth(1)?
            .split("\n}\n")
            .next()?
            .to_owned();
        let is_of_a_name =
            |char: char| char.is_ascii_uppercase() || char.is_ascii_digit() || char == '_';
        let is_declaration = |line: &str| {
            line.trim_start()
                .split_once(": ")
                .is_some_and(|(name, _)| name.chars().all(is_of_a_name))
        };
        Some(block.lines().filter(|line| is_declaration(line)).count())
    };
    let declared: usize = sources(&folder)
        .into_iter()
        .filter_map(|file| declared(fs::read_to_string(file).unwrap()))
        .sum();
    let prepared = statements();
    assert!(declared > 50, "the statements were not found");
    assert_eq!(prepared.len(), declared);
    assert_eq!(
        prepared
            .iter()
            .map(|statement| statement.text)
            .collect::<HashSet<_>>()
            .len(),
        declared,
        "a text is declared twice"
    );
}

#[test]
fn every_statement_is_portable() {
    let refused = [
        "ALLOW FILTERING",
        "SELECT *",
        "CREATE INDEX",
        "CUSTOM INDEX",
        "MATERIALIZED VIEW",
        "COUNTER",
        "FUNCTION",
        "TOKEN(",
        " NULL",
    ];
    for (name, text) in all() {
        // Exports and verification scan whole tables, in pieces.
        let is_scan = name.starts_with("SCAN_") && text.ends_with(" LIMIT ?");
        let text = if is_scan {
            text.replace("token(", "(")
        } else {
            text.to_owned()
        };
        let upper = text
            .to_uppercase()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        // A condition that a cell is absent writes nothing.
        let upper = upper
            .replace(" IF ROSTER = NULL", "")
            .replace(" IF WRITERS = NULL", "");
        for part in refused {
            assert!(!upper.contains(part), "{name} has {part}: {text}");
        }
    }
}

#[test]
fn every_read_names_its_partition_and_every_list_its_bound() {
    for (name, text) in all() {
        let upper = text.to_uppercase();
        if upper.starts_with("SELECT") {
            assert!(
                upper.contains(" WHERE "),
                "{name} reads a whole table: {text}"
            );
        }
    }
}

/// A second execution, however late, writes the same cells: writes are hedged, and a node that hung
/// executes what it had received.
#[test]
fn every_write_has_a_timestamp_of_its_own() {
    let writes = statements();
    let writes = writes
        .iter()
        .filter(|statement| matches!(statement.kind, Kind::Write | Kind::Beat));
    for Statement { name, text, .. } in writes {
        assert!(text.contains("USING TIMESTAMP ?"), "{name}: {text}");
        let upper = text.to_uppercase();
        assert!(
            !upper.contains("NOW()") && !upper.contains(" IF "),
            "{name}: {text}"
        );
    }
}

#[test]
fn no_batch_replays_into_a_table_that_forgets_sooner() {
    let tables = MIGRATIONS.iter().flat_map(|migration| migration.statements);
    for text in tables.filter(|text| !UNBATCHED.iter().any(|table| text.contains(table))) {
        if let Some(seconds) = text.split("gc_grace_seconds = ").nth(1) {
            let seconds: u32 = seconds.split_whitespace().next().unwrap().parse().unwrap();
            assert!(seconds >= 86_400, "{text}");
        }
    }
}
