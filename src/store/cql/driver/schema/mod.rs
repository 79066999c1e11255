//! Schema: the tables, as the migrations create them.

pub(crate) mod migrations;
mod tables;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use self::migrations::MIGRATIONS;
pub(crate) use self::tables::SCHEMA_MIGRATIONS;

/// The migration that begins to record the oldest server.
pub(crate) const OLDEST_SERVER_SINCE: i32 = 5;

/// The oldest server that may serve a keyspace: the number of migrations that it must know. A step
/// that only adds something records its predecessor's, so that servers of both versions serve
/// together until `wideroom migrate --finish` records its own. The steps up to this one have to be
/// known by all: version 0.1 hears nothing of the others.
pub(crate) const OLDEST_SERVER_MIN: i32 = OLDEST_SERVER_SINCE;

/// The migration that sets [`SPECULATIVE_RETRY`].
const SPECULATIVE_RETRY_SINCE: i32 = 6;
/// The coordinator of a read asks a third replica after 50 ms. By default it waits for the latency
/// that one read of a hundred exceeds: seconds in a table that was rarely read, or just after a
/// node hung. A table that lacks the option is altered; a new one is created with it.
const SPECULATIVE_RETRY: &str = "speculative_retry = '50ms'";
/// Tables that answer no client.
const RARELY_READ: [&str; 2] = ["wakes", "notes"];

pub(crate) struct Migration {
    pub(crate) version: i32,
    pub(crate) statements: &'static [&'static str],
    pub(crate) columns: &'static [AddedColumns],
}

impl Migration {
    pub(crate) const fn new(
        version: i32,
        statements: &'static [&'static str],
        columns: &'static [AddedColumns],
    ) -> Self {
        Self {
            version,
            statements,
            columns,
        }
    }

    /// Tables that this migration creates.
    fn tables(&self) -> impl Iterator<Item = &'static str> + use<> {
        let creations = self.statements.iter().filter(|text| is_creation(text));
        creations.map(|text| table_of(text))
    }

    /// Tables that get [`SPECULATIVE_RETRY`] by this migration: its own, and those that are older than the option.
    pub(crate) fn speculative_tables(&self) -> Vec<&'static str> {
        let sources = match self.version {
            ..SPECULATIVE_RETRY_SINCE => 0..0,
            SPECULATIVE_RETRY_SINCE => 1..self.version,
            version => version..version + 1,
        };
        let migrations = MIGRATIONS.iter();
        let migrations = migrations.filter(|one| sources.contains(&one.version));
        let tables = migrations.flat_map(Migration::tables);
        tables
            .filter(|table| !RARELY_READ.contains(table))
            .collect()
    }
}

pub(crate) fn speculation_of(table: &str) -> String {
    format!("ALTER TABLE {{keyspace}}.{table} WITH {SPECULATIVE_RETRY}")
}

/// Whether a table's option is [`SPECULATIVE_RETRY`]. Some versions name it `50.0ms`.
pub(crate) fn is_speculative(present: &str) -> bool {
    matches!(present, "50ms" | "50.0ms")
}

/// Columns that a migration adds to a table. Not every cluster knows `ADD IF NOT EXISTS`, so only those that the table lacks are added.
pub(crate) struct AddedColumns {
    pub(crate) table: &'static str,
    /// Each with its type.
    pub(crate) columns: &'static [(&'static str, &'static str)],
}

pub(crate) const fn columns(
    table: &'static str,
    columns: &'static [(&'static str, &'static str)],
) -> AddedColumns {
    AddedColumns { table, columns }
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
        for table in self.speculative_tables() {
            hash.update(speculation_of(table).as_bytes());
            hash.update([0]);
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

fn is_creation(statement: &str) -> bool {
    statement.starts_with("CREATE TABLE")
}

/// The statement of a migration, with the option that it or a later migration sets if it creates a table.
pub(crate) fn with_options(statement: &str) -> String {
    if is_creation(statement) && !RARELY_READ.contains(&table_of(statement)) {
        format!("{statement} AND {SPECULATIVE_RETRY}")
    } else {
        statement.to_owned()
    }
}

#[cfg(test)]
mod tests {
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
    fn a_released_migration_never_changes() {
        let released = [
            "2da5914078ad2240",
            "ba7da37c47aaeac3",
            "d5d231d64b1de6bb",
            "b0eb01fdf2395c14",
            "0f018ac0fea4eff5",
            "b18d3db47ae2c1d5",
            "cd35db7be9334cbd",
            "e0c1089ff124e790",
            "1b8606db340ae822",
            "a47a99ecd07a08a6",
            "56c45eb0d8191d9f",
            "dde6e3fc768db3d4",
            "efb5ffa6ab2b277c",
            "5dc0e98d0c8a28ac",
            "f7be395d27af1a44",
            "7a49a0d8827728c7",
            "f8282c99556f7b84",
            "7ab861dc428a77c7",
            "12f6bd46db339c92",
            "e3b0c44298fc1c14",
            "9fe87a1a6d7ac60d",
            "aed394b4c9160a72",
            "b2928011e1e8fe9a",
            "97db74fc702f13a2",
        ];
        let checksums: Vec<_> = MIGRATIONS.iter().map(Migration::checksum).collect();
        assert_eq!(checksums[..released.len()], released);
    }

    #[test]
    fn only_columns_that_a_table_lacks_are_added() {
        let added = |present: &[&str]| {
            let present: Vec<_> = present.iter().map(|name| (*name).to_owned()).collect();
            MIGRATIONS[1].columns[0].statement(&present)
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
        let tables: Vec<_> = MIGRATIONS.iter().flat_map(Migration::tables).collect();
        let quick: Vec<_> = MIGRATIONS
            .iter()
            .flat_map(Migration::speculative_tables)
            .collect();
        assert_eq!(tables.len(), quick.len() + RARELY_READ.len());
        for statement in MIGRATIONS.iter().flat_map(|one| one.statements) {
            let is_quick = with_options(statement).ends_with(" AND speculative_retry = '50ms'");
            let is_listed = is_creation(statement) && quick.contains(&table_of(statement));
            assert_eq!(is_quick, is_listed, "{statement}");
        }
    }

    #[test]
    fn every_table_has_an_id_of_its_own_in_each_keyspace() {
        let all: Vec<_> = MIGRATIONS
            .iter()
            .flat_map(|migration| migration.statements)
            .filter(|statement| is_creation(statement))
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
