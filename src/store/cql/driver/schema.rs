//! Schema: the tables, as the migrations create them. One table per query.
//!
//! Rules for all tables. A maximum register is a cell whose bytes sort like its values and whose write timestamp is fixed, so the greatest
//! bytes win in any order of arrival. Every other cell has the microsecond of the id that wrote it. No write contains a null. A table in a
//! LOGGED batch has `gc_grace_seconds` of at least a day, as the replay of a batch skips writes that are older than the smallest one.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::next_version::migrations;
use crate::store::FormVersion;

/// All migrations, in order. A released one never changes. Every statement can be repeated.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        statements: TABLES,
        columns: &[],
        speculation: None,
    },
    Migration {
        version: 2,
        statements: &[KEYS_GC_GRACE],
        columns: &[DESCRIPTION_CELLS],
        speculation: None,
    },
    Migration {
        version: 3,
        statements: RESTRICTION_TABLES,
        columns: &[PROFILE_METADATA],
        speculation: None,
    },
    Migration {
        version: 4,
        statements: CLUSTER_TABLES,
        columns: &[],
        speculation: None,
    },
    Migration {
        version: OLDEST_SERVER_SINCE,
        statements: &[],
        columns: &[OLDEST_SERVER],
        speculation: None,
    },
    Migration {
        version: 6,
        statements: &[],
        columns: &[DELIVERED_SEND],
        speculation: Some(QUICK_THIRD_REPLICA),
    },
    Migration {
        version: 7,
        statements: &[BLOCK_TABLE],
        columns: &[],
        speculation: Some(QUICK_BLOCKS),
    },
    Migration {
        version: 8,
        statements: &[OUTBOX_TABLE],
        columns: &[],
        speculation: Some(QUICK_OUTBOX),
    },
    Migration {
        version: 9,
        statements: READER_TABLES,
        columns: &[],
        speculation: Some(QUICK_READERS),
    },
    Migration {
        version: FormVersion::MODERATION.0,
        statements: &[BAN_TABLE],
        columns: &[SLOW_MODE, SLOW_MODE_CELL],
        speculation: Some(QUICK_BANS),
    },
    Migration {
        version: FormVersion::PINS.0,
        statements: &[PIN_TABLE],
        columns: &[MESSAGE_PIN],
        speculation: Some(QUICK_PINS),
    },
    Migration {
        version: FormVersion::MENTIONS.0,
        statements: MENTION_TABLES,
        columns: &[ENTRY_MENTIONS, HEAD_MENTIONS, MESSAGE_MENTIONS],
        speculation: Some(QUICK_MENTIONS),
    },
    Migration {
        version: 13,
        statements: &[NOTIFY_ALL_TABLE],
        columns: &[],
        speculation: Some(QUICK_NOTIFY_ALL),
    },
    Migration {
        version: FormVersion::HISTORY.0,
        statements: &[],
        columns: &[HISTORY, HISTORY_CELL],
        speculation: None,
    },
    Migration {
        version: FormVersion::REPORTS.0,
        statements: &[REPORT_TABLE],
        columns: &[],
        speculation: Some(QUICK_REPORTS),
    },
    Migration {
        version: 16,
        statements: &[EXPIRY_TABLE],
        columns: &[REMOVED_UP_TO],
        speculation: Some(QUICK_EXPIRIES),
    },
    Migration {
        version: FormVersion::ERASURE.0,
        statements: &[JOB_TABLE],
        columns: &[],
        speculation: Some(QUICK_JOBS),
    },
    Migration {
        version: 18,
        statements: SEARCH_TABLES,
        columns: &[],
        speculation: Some(QUICK_SEARCH),
    },
];

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

/// No batch writes the keys, so nothing is replayed into them. Cassandra keeps the Paxos state of a claim as long as this.
const KEYS_GC_GRACE: &str = "ALTER TABLE {keyspace}.sends_by_key WITH gc_grace_seconds = 10800";

/// The coordinator of a read asks a third replica after 50 ms. By default it waits for the latency
/// that one read of a hundred exceeds: seconds in a table that was rarely read, or just after a
/// node hung.
const QUICK_THIRD_REPLICA: SpeculativeRetry = SpeculativeRetry {
    tables: &[
        "conversations",
        "direct_by_pair",
        "participants_by_conversation",
        "messages_by_conversation",
        "buckets_by_conversation",
        "reactions_by_message",
        "changes_by_conversation",
        "inbox_by_user",
        "inbox_activity_by_user",
        "changes_by_user",
        "large_conversations_by_user",
        "sends_by_key",
        "users",
        "restrictions",
        "restriction_log",
        "servers",
        "server_beats",
        "sessions_by_user",
        "listeners_by_conversation",
        "mailboxes",
    ],
    millis: 50,
};

const QUICK_BLOCKS: SpeculativeRetry = SpeculativeRetry {
    tables: &["blocks_by_user"],
    millis: 50,
};

/// The same for the outbox.
const QUICK_OUTBOX: SpeculativeRetry = SpeculativeRetry {
    tables: &["outbox_by_shard"],
    millis: 50,
};

const QUICK_BANS: SpeculativeRetry = SpeculativeRetry {
    tables: &["bans_by_conversation"],
    millis: 50,
};

const QUICK_PINS: SpeculativeRetry = SpeculativeRetry {
    tables: &["pins_by_conversation"],
    millis: 50,
};

/// The last change of a message's pin.
const MESSAGE_PIN: AddedColumns = AddedColumns {
    table: "messages_by_conversation",
    columns: &[("pin", "blob")],
};

const QUICK_MENTIONS: SpeculativeRetry = SpeculativeRetry {
    tables: &["mentions_by_entry", "everyone_by_conversation"],
    millis: 50,
};

const QUICK_REPORTS: SpeculativeRetry = SpeculativeRetry {
    tables: &["reports_by_week"],
    millis: 50,
};

const QUICK_EXPIRIES: SpeculativeRetry = SpeculativeRetry {
    tables: &["expiries_by_hour"],
    millis: 50,
};

/// The last position up to which messages were removed.
const REMOVED_UP_TO: AddedColumns = AddedColumns {
    table: "conversations",
    columns: &[("removed_up_to", "blob")],
};

const QUICK_JOBS: SpeculativeRetry = SpeculativeRetry {
    tables: &["jobs"],
    millis: 50,
};

const QUICK_SEARCH: SpeculativeRetry = SpeculativeRetry {
    tables: &["search_directories", "search_blocks_by_segment"],
    millis: 50,
};

/// The newest mention of an entry, and its notification level.
const ENTRY_MENTIONS: AddedColumns = AddedColumns {
    table: "inbox_by_user",
    columns: &[("mentioned_up_to", "blob"), ("level", "tinyint")],
};

/// The newest message that mentions everyone.
const HEAD_MENTIONS: AddedColumns = AddedColumns {
    table: "conversations",
    columns: &[("everyone_up_to", "blob")],
};

/// Names that edits of a message added or removed.
const MESSAGE_MENTIONS: AddedColumns = AddedColumns {
    table: "messages_by_conversation",
    columns: &[("mentioned", "set<text>")],
};

/// The same for the readers of the outbox.
const QUICK_READERS: SpeculativeRetry = SpeculativeRetry {
    tables: &["outbox_positions", "outbox_dead"],
    millis: 50,
};

/// The parts of a conversation that change, beside the memberships that every reader of it reads.
const DESCRIPTION_CELLS: AddedColumns = AddedColumns {
    table: "participants_by_conversation",
    columns: &[("name", "text static"), ("is_large", "boolean static")],
};

/// The oldest server that may serve beside this migration.
const OLDEST_SERVER: AddedColumns = AddedColumns {
    table: "schema_migrations",
    columns: &[("oldest_server", "int")],
};

/// Whether a retried send was delivered to all servers.
const DELIVERED_SEND: AddedColumns = AddedColumns {
    table: "sends_by_key",
    columns: &[("is_delivered", "boolean")],
};

/// The slow mode of a conversation, and its copy beside the memberships.
const SLOW_MODE: AddedColumns = AddedColumns {
    table: "conversations",
    columns: &[("slow_mode_seconds", "int")],
};
const SLOW_MODE_CELL: AddedColumns = AddedColumns {
    table: "participants_by_conversation",
    columns: &[("slow_mode_seconds", "int static")],
};

/// The settings of a conversation's history, and their copy beside the memberships.
const HISTORY: AddedColumns = AddedColumns {
    table: "conversations",
    columns: &[("history", "blob")],
};
const HISTORY_CELL: AddedColumns = AddedColumns {
    table: "participants_by_conversation",
    columns: &[("history", "blob static")],
};

/// The app's own data about a user.
const PROFILE_METADATA: AddedColumns = AddedColumns {
    table: "users",
    columns: &[("metadata", "text")],
};

/// The same for the users who are notified of all messages.
const QUICK_NOTIFY_ALL: SpeculativeRetry = SpeculativeRetry {
    tables: &["notify_all_by_conversation"],
    millis: 50,
};

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
pub(crate) fn with_options(statement: &str) -> String {
    let mut text = statement.to_owned();
    if text.starts_with("CREATE TABLE") {
        let table = table_of(statement);
        let speculations = migrations().filter_map(|migration| migration.speculation.as_ref());
        for speculation in speculations.filter(|one| one.tables.contains(&table)) {
            text.push_str(" AND ");
            text.push_str(&speculation.clause());
        }
    }
    text
}

/// The table of applied migrations.
pub(crate) const SCHEMA_MIGRATIONS: &str =
    "CREATE TABLE IF NOT EXISTS {keyspace}.schema_migrations (
    version int PRIMARY KEY,
    checksum text,
    applied_at bigint
) WITH ID = {id}";

const TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS {keyspace}.conversations (
    conversation_id uuid PRIMARY KEY,
    kind tinyint,
    name text,
    created_at bigint,
    created_by text,
    input_hash blob,
    made timeuuid,
    is_large boolean,
    last_message blob,
    newest_change blob,
    last_activity bigint
) WITH ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.direct_by_pair (
    pair_key blob PRIMARY KEY,
    conversation_id uuid
) WITH ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.participants_by_conversation (
    conversation_id uuid,
    user_id text,
    members_version timeuuid static,
    roster blob static,
    pending blob static,
    settled blob static,
    membership blob,
    read_up_to blob,
    delivered_up_to blob,
    PRIMARY KEY ((conversation_id), user_id)
) WITH ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.messages_by_conversation (
    conversation_id uuid,
    width tinyint,
    start bigint,
    message_id timeuuid,
    sender_id text,
    kind tinyint,
    content blob,
    reply_to timeuuid,
    client_key text,
    deleted_at bigint,
    has_reactions boolean,
    PRIMARY KEY ((conversation_id, width, start), message_id)
) WITH CLUSTERING ORDER BY (message_id DESC) AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.buckets_by_conversation (
    conversation_id uuid,
    width tinyint,
    start bigint,
    counted blob,
    PRIMARY KEY ((conversation_id), width, start)
) WITH CLUSTERING ORDER BY (width ASC, start DESC) AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.reactions_by_message (
    conversation_id uuid,
    message_id timeuuid,
    emoji text,
    user_id text,
    is_on boolean,
    PRIMARY KEY ((conversation_id, message_id), emoji, user_id)
) WITH ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.changes_by_conversation (
    conversation_id uuid,
    day int,
    change_id timeuuid,
    kind tinyint,
    message_id timeuuid,
    user_id text,
    PRIMARY KEY ((conversation_id, day), change_id)
) WITH CLUSTERING ORDER BY (change_id DESC) AND default_time_to_live = 3024000
    AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', 'compaction_window_size': '1'}
    AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.inbox_by_user (
    user_id text,
    conversation_id uuid,
    last_message blob,
    last_activity bigint,
    read_up_to blob,
    sent_up_to blob,
    is_muted boolean,
    is_pinned boolean,
    archived_at bigint,
    membership blob,
    PRIMARY KEY ((user_id), conversation_id)
) WITH ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.inbox_activity_by_user (
    user_id text,
    slot int,
    conversation_id uuid,
    last_activity bigint,
    PRIMARY KEY ((user_id), slot, conversation_id)
) WITH CLUSTERING ORDER BY (slot DESC, conversation_id DESC) AND gc_grace_seconds = 86400 AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.changes_by_user (
    user_id text,
    day int,
    change_id timeuuid,
    kind tinyint,
    conversation_id uuid,
    PRIMARY KEY ((user_id, day), change_id)
) WITH CLUSTERING ORDER BY (change_id DESC) AND default_time_to_live = 3024000
    AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', 'compaction_window_size': '1'}
    AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.large_conversations_by_user (
    user_id text,
    conversation_id uuid,
    PRIMARY KEY ((user_id), conversation_id)
) WITH ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.sends_by_key (
    conversation_id uuid,
    sender_id text,
    key text,
    message_id timeuuid,
    width tinyint,
    start bigint,
    input_hash blob,
    PRIMARY KEY ((conversation_id, sender_id, key))
) WITH default_time_to_live = 86400 AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.wakes (
    shard tinyint,
    slot bigint,
    wake_id timeuuid,
    conversation_id uuid,
    user_id text,
    PRIMARY KEY ((shard, slot), wake_id)
) WITH default_time_to_live = 60 AND gc_grace_seconds = 86400
    AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', 'compaction_window_size': '10'}
    AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.users (
    user_id text PRIMARY KEY,
    display_name text,
    avatar_url text,
    last_seen_at bigint
) WITH ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.notes (
    name text PRIMARY KEY,
    value text
) WITH ID = {id}",
];

const RESTRICTION_TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS {keyspace}.restrictions (
    shard tinyint,
    user_id text,
    suspension blob,
    tokens_from blob,
    PRIMARY KEY ((shard), user_id)
) WITH ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.restriction_log (
    hour bigint,
    at bigint,
    user_id text,
    PRIMARY KEY ((hour), at, user_id)
) WITH CLUSTERING ORDER BY (at DESC, user_id ASC) AND default_time_to_live = 86400 AND gc_grace_seconds = 86400
    AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', 'compaction_window_size': '6'}
    AND ID = {id}",
];

const BLOCK_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.blocks_by_user (
    user_id text,
    blocked_id text,
    state blob,
    PRIMARY KEY ((user_id), blocked_id)
) WITH ID = {id}";

const BAN_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.bans_by_conversation (
    conversation_id uuid,
    user_id text,
    state blob,
    PRIMARY KEY ((conversation_id), user_id)
) WITH ID = {id}";

/// Pins that are on, and ended ones for 35 days.
const PIN_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.pins_by_conversation (
    conversation_id uuid,
    message_id timeuuid,
    pin blob,
    PRIMARY KEY ((conversation_id), message_id)
) WITH ID = {id}";

/// Mentions of a user and of everyone. They live for 400 days.
const MENTION_TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS {keyspace}.mentions_by_entry (
    user_id text,
    conversation_id uuid,
    message_id timeuuid,
    sender_id text,
    PRIMARY KEY ((user_id, conversation_id), message_id)
) WITH CLUSTERING ORDER BY (message_id DESC) AND default_time_to_live = 34560000 AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.everyone_by_conversation (
    conversation_id uuid,
    message_id timeuuid,
    sender_id text,
    PRIMARY KEY ((conversation_id), message_id)
) WITH CLUSTERING ORDER BY (message_id DESC) AND default_time_to_live = 34560000 AND ID = {id}",
];

/// Reports, and how services resolved them. They live for 400 days.
const REPORT_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.reports_by_week (
    week int,
    report_id timeuuid,
    report blob,
    resolution blob,
    PRIMARY KEY ((week), report_id)
) WITH CLUSTERING ORDER BY (report_id DESC) AND default_time_to_live = 34560000 AND ID = {id}";

/// Conversations with messages to remove, by the hour from which they may go. An entry is deleted once they are gone.
const EXPIRY_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.expiries_by_hour (
    hour int,
    shard tinyint,
    conversation_id uuid,
    PRIMARY KEY ((hour, shard), conversation_id)
) WITH ID = {id}";

/// Erasures of users: those that run in one partition, and those that have ended in others, for 400 days.
const JOB_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.jobs (
    shard tinyint,
    job_id uuid,
    state blob,
    PRIMARY KEY ((shard), job_id)
) WITH ID = {id}";

/// The search index of each conversation: a directory, which changes by lightweight transactions, and the blocks of segments, which are
/// written once. No LOGGED batch writes them.
const SEARCH_TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS {keyspace}.search_directories (
    conversation_id uuid PRIMARY KEY,
    state blob
) WITH ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.search_blocks_by_segment (
    conversation_id uuid,
    segment_id uuid,
    block int,
    content blob,
    PRIMARY KEY ((conversation_id, segment_id), block)
) WITH ID = {id}",
];

/// The directory of servers, and their mailboxes. No LOGGED batch writes them. The registrations keep their tombstones as long as a row could
/// live, so that no removed one comes back from a replica that was away.
const CLUSTER_TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS {keyspace}.servers (
    server_id uuid PRIMARY KEY,
    version int,
    has_ended boolean
) WITH default_time_to_live = 90000 AND gc_grace_seconds = 86400 AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.server_beats (
    partition tinyint,
    server_id uuid,
    number bigint,
    PRIMARY KEY ((partition), server_id)
) WITH default_time_to_live = 60 AND gc_grace_seconds = 600 AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.sessions_by_user (
    user_id text,
    kind tinyint,
    server_id uuid,
    PRIMARY KEY ((user_id), kind, server_id)
) WITH default_time_to_live = 86400 AND gc_grace_seconds = 86400 AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.listeners_by_conversation (
    conversation_id uuid,
    server_id uuid,
    PRIMARY KEY ((conversation_id), server_id)
) WITH default_time_to_live = 86400 AND gc_grace_seconds = 86400 AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.mailboxes (
    server_id uuid,
    lane tinyint,
    minute int,
    notice_id timeuuid,
    payload blob,
    PRIMARY KEY ((server_id, lane, minute), notice_id)
) WITH default_time_to_live = 300 AND gc_grace_seconds = 600
    AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', 'compaction_window_size': '5'}
    AND ID = {id}",
];

/// Rows that name the events of each batch. They live for 7 days and an hour.
const OUTBOX_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.outbox_by_shard (
    shard tinyint,
    lane tinyint,
    slot int,
    event_id timeuuid,
    conversation_id uuid,
    payload blob,
    PRIMARY KEY ((shard, lane, slot), event_id, conversation_id)
) WITH default_time_to_live = 608400 AND gc_grace_seconds = 86400
    AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', 'compaction_window_size': '6'}
    AND ID = {id}";

/// Users who chose the notification level ALL, by conversation.
const NOTIFY_ALL_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.notify_all_by_conversation (
    conversation_id uuid,
    user_id text,
    PRIMARY KEY ((conversation_id), user_id)
) WITH ID = {id}";

/// Positions of the readers of the outbox, and the events that they refused, which live for 30 days. No batch writes them. Cassandra
/// keeps the Paxos state of a position as long as its `gc_grace_seconds`.
const READER_TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS {keyspace}.outbox_positions (
    reader text,
    shard tinyint,
    state blob,
    PRIMARY KEY ((reader, shard))
) WITH gc_grace_seconds = 10800 AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.outbox_dead (
    reader text,
    day int,
    event_id timeuuid,
    kind tinyint,
    part text,
    payload blob,
    PRIMARY KEY ((reader, day), event_id, kind, part)
) WITH default_time_to_live = 2592000 AND ID = {id}",
];

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
            .map(|statement| (table_of(statement), with_options(statement)))
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
