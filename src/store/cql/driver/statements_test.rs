//! Portable CQL only: what no statement of any file may have.

use super::schema::{MIGRATIONS, SCHEMA_MIGRATIONS};
use crate::store::cql::Statements;

fn all() -> Vec<(String, &'static str)> {
    let named = |(group, statements): &(&str, &'static [(&'static str, &'static str)])| {
        statements.iter().map(|(name, text)| (format!("{group}.{name}"), *text)).collect::<Vec<_>>()
    };
    let tables = MIGRATIONS.iter().flat_map(|migration| migration.statements).chain([&SCHEMA_MIGRATIONS]);
    let tables = tables.map(|text| (text.split_whitespace().take(6).collect::<Vec<_>>().join(" "), *text));
    Statements::GROUPS.iter().flat_map(named).chain(tables).collect()
}

#[test]
fn every_statement_is_portable() {
    let refused =
        ["ALLOW FILTERING", "SELECT *", "CREATE INDEX", "CUSTOM INDEX", "MATERIALIZED VIEW", "COUNTER", "FUNCTION", "TOKEN(", " NULL"];
    for (name, text) in all() {
        // A whole table is read by what looks at everything, in pieces.
        let is_scan = ["export.", "verify."].iter().any(|group| name.starts_with(group)) && text.ends_with(" LIMIT ?");
        let text = if is_scan { text.replace("token(", "(") } else { text.to_owned() };
        let upper = text.to_uppercase().split_whitespace().collect::<Vec<_>>().join(" ");
        // That something is not there yet is asked, and nothing is written by it.
        let upper = upper.replace(" IF ROSTER = NULL", "");
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
            assert!(upper.contains(" WHERE "), "{name} reads a whole table: {text}");
        }
    }
}

#[test]
fn no_batch_replays_into_a_table_that_forgets_sooner() {
    let tables = MIGRATIONS.iter().flat_map(|migration| migration.statements);
    for text in tables {
        if let Some(seconds) = text.split("gc_grace_seconds = ").nth(1) {
            let seconds: u32 = seconds.split_whitespace().next().unwrap().parse().unwrap();
            assert!(seconds >= 86_400, "{text}");
        }
    }
}
