//! Schema: the tables, as the migrations create them.

pub(crate) mod migrations;
mod tables;

use sha2::{Digest, Sha256};
use uuid::Uuid;

pub(crate) use self::tables::SCHEMA_MIGRATIONS;

/// The migration that begins to record the oldest server.
pub(crate) const OLDEST_SERVER_SINCE: i32 = 5;

/// The oldest server that may serve a keyspace: the number of migrations that it must know. A step
/// that only adds something records its predecessor's, so that servers of both versions serve
/// together until `wideroom migrate --finish` records its own. The steps up to this one have to be
/// known by all: version 0.1 hears nothing of the others.
pub(crate) const OLDEST_SERVER_MIN: i32 = OLDEST_SERVER_SINCE;

pub(crate) struct Migration {
    pub(crate) version: i32,
    pub(crate) statements: &'static [&'static str],
    pub(crate) columns: &'static [AddedColumns],
    pub(crate) speculation: Option<SpeculativeRetry>,
}

/// Time after which the coordinator of a read asks another replica: an option of tables. A table
/// that lacks it is altered; a new one is created with it.
pub(crate) struct SpeculativeRetry {
    pub(crate) tables: &'static [&'static str],
    millis: u32,
}

impl SpeculativeRetry {
    fn clause(&self) -> String {
        format!("speculative_retry = '{}ms'", self.millis)
    }

    pub(crate) fn statement(&self, table: &str) -> String {
        format!("ALTER TABLE {{keyspace}}.{table} WITH {}", self.clause())
    }

    /// Whether a table has the option. Some versions name it `50.0ms`.
    pub(crate) fn is_set(&self, present: &str) -> bool {
        let millis = present
            .strip_suffix("ms")
            .and_then(|text| text.parse().ok());
        millis.is_some_and(|millis: f64| (millis - f64::from(self.millis)).abs() < 0.5)
    }
}

/// Columns that a migration adds to a table. Not every cluster knows `ADD IF NOT EXISTS`, so only those that the table lacks are added.
pub(crate) struct AddedColumns {
    pub(crate) table: &'static str,
    /// Each with its type.
    pub(crate) columns: &'static [(&'static str, &'static str)],
}

impl AddedColumns {
    /// The statement that adds those columns that a table with these ones lacks. `None` if it lacks none.
    pub(crate) fn statement(&self, present: &[String]) -> Option<String> {
        let lacking: Vec<_> = self
            .columns
            .iter()
            .filter(|(name, _)| !present.iter().any(|present| present == name))
            .map(|(name, kind)| format!("{name} {kind}"))
            .collect();
        let table = self.table;
        (!lacking.is_empty()).then(|| {
            format!(
                "ALTER TABLE {{keyspace}}.{table} ADD ({})",
                lacking.join(", ")
            )
        })
    }
}

impl Migration {
    /// A checksum of the text, by which a keyspace with another schema is detected.
    pub(crate) fn checksum(&self) -> String {
        let mut hash = Sha256::new();
        for statement in self.statements {
            hash.update(statement.as_bytes());
            hash.update([0]);
        }
        for added in self.columns {
            let statement = added.statement(&[]).unwrap_or_default();
            hash.update(statement.as_bytes());
            hash.update([0]);
        }
        if let Some(speculation) = &self.speculation {
            for table in speculation.tables {
                hash.update(speculation.statement(table).as_bytes());
                hash.update([0]);
            }
        }
        hash.finalize()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// Fills in the keyspace and the table id. The id follows from the names, so two concurrent migrations create one table.
pub(crate) fn in_keyspace(statement: &str, keyspace: &str) -> String {
    let table = table_of(statement);
    let id = Uuid::new_v5(
        &Uuid::NAMESPACE_OID,
        format!("wideroom {keyspace}.{table}").as_bytes(),
    );
    statement
        .replace("{keyspace}", &format!("\"{keyspace}\""))
        .replace("{id}", &id.to_string())
}

fn table_of(statement: &str) -> &str {
    let rest = statement.split("{keyspace}.").nth(1);
    rest.and_then(|rest| rest.split_whitespace().next())
        .unwrap_or_default()
}

/// The statement of a migration, with the options that later migrations set if it creates a table.
pub(crate) fn with_options<'a>(
    statement: &str,
    migrations: impl Iterator<Item = &'a Migration>,
) -> String {
    let mut text = statement.to_owned();
    if text.starts_with("CREATE TABLE") {
        let table = table_of(statement);
        let speculations = migrations.filter_map(|migration| migration.speculation.as_ref());
        for speculation in speculations.filter(|one| one.tables.contains(&table)) {
            text.push_str(" AND ");
            text.push_str(&speculation.clause());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::migrations::{DESCRIPTION_CELLS, MIGRATIONS, QUICK_THIRD_REPLICA};
    use super::*;

    #[test]
    fn migrations_count_up_from_one() {
        let versions: Vec<_> = MIGRATIONS
            .iter()
            .map(|migration| migration.version)
            .collect();
        assert_eq!(versions, (1..).take(versions.len()).collect::<Vec<_>>());
    }

    #[test]
    fn only_columns_that_a_table_lacks_are_added() {
        let added = |present: &[&str]| {
            let present: Vec<_> = present.iter().map(|name| (*name).to_owned()).collect();
            DESCRIPTION_CELLS.statement(&present)
        };
        let table = "ALTER TABLE {keyspace}.participants_by_conversation";
        assert_eq!(
            added(&["roster"]).unwrap(),
            format!("{table} ADD (name text static, is_large boolean static)")
        );
        assert_eq!(
            added(&["roster", "name"]).unwrap(),
            format!("{table} ADD (is_large boolean static)")
        );
        assert_eq!(added(&["is_large", "name"]), None);
    }

    #[test]
    fn every_table_that_answers_clients_has_a_quick_third_replica() {
        let rarely_read = ["wakes", "notes"];
        let tables: Vec<_> = MIGRATIONS
            .iter()
            .flat_map(|migration| migration.statements)
            .filter(|statement| statement.starts_with("CREATE TABLE"))
            .map(|statement| {
                (
                    table_of(statement),
                    with_options(statement, MIGRATIONS.iter()),
                )
            })
            .filter(|(table, _)| !rarely_read.contains(table))
            .collect();
        let quick = MIGRATIONS.iter().filter_map(|one| one.speculation.as_ref());
        assert_eq!(
            tables.len(),
            quick.map(|one| one.tables.len()).sum::<usize>()
        );
        for (table, text) in tables {
            assert!(
                text.ends_with(" AND speculative_retry = '50ms'"),
                "{table}: {text}"
            );
        }
        for present in ["50ms", "50.0ms"] {
            assert!(QUICK_THIRD_REPLICA.is_set(present), "{present}");
        }
        for present in ["99p", "5ms", "500ms", "NONE"] {
            assert!(!QUICK_THIRD_REPLICA.is_set(present), "{present}");
        }
    }

    #[test]
    fn every_table_has_an_id_of_its_own_in_each_keyspace() {
        let all: Vec<_> = MIGRATIONS
            .iter()
            .flat_map(|migration| migration.statements)
            .filter(|statement| statement.starts_with("CREATE TABLE"))
            .chain([&SCHEMA_MIGRATIONS])
            .collect();
        let made = |keyspace| {
            all.iter()
                .map(move |statement| in_keyspace(statement, keyspace))
        };
        let mut ids: Vec<_> = made("one")
            .chain(made("other"))
            .filter_map(|text| Some(text.split("ID = ").nth(1)?.to_owned()))
            .collect();
        assert!(ids.iter().all(|id| Uuid::try_parse(id).is_ok()), "{ids:?}");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all.len() * 2);
        assert!(made("one").all(|text| text.starts_with("CREATE TABLE IF NOT EXISTS \"one\".")));
    }
}
