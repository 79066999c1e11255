//! Migrations: the steps by which a keyspace gets its tables, columns and options.

use super::tables::{
    APP_KEY_TABLE, BAN_TABLE, BLOCK_TABLE, CLUSTER_TABLES, CONVERSATION_PROFILE_TABLE,
    EXPIRY_TABLE, JOB_TABLE, LIVE_TABLES, LIVING_TABLES, MENTION_TABLES, NOTIFY_ALL_TABLE,
    OUTBOX_TABLE, PIN_TABLE, READER_TABLES, REPORT_TABLE, RESTRICTION_TABLES, SEARCH_TABLES,
    TABLES,
};
use super::{AddedColumns, Migration, OLDEST_SERVER_SINCE, SpeculativeRetry};
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
    Migration {
        version: 19,
        statements: &[],
        columns: &[SILENT_RUNS],
        speculation: None,
    },
    Migration {
        version: FormVersion::HELD_POSITIONS.0,
        statements: &[],
        columns: &[],
        speculation: None,
    },
    Migration {
        version: FormVersion::PIN_LISTS.0,
        statements: LIVING_TABLES,
        columns: &[],
        speculation: Some(QUICK_LIVING),
    },
    Migration {
        version: 22,
        statements: &[],
        columns: &[PRESENT_CELL],
        speculation: None,
    },
    Migration {
        version: FormVersion::PARTS.0,
        statements: &[CONVERSATION_PROFILE_TABLE, APP_KEY_TABLE],
        columns: &[],
        speculation: Some(QUICK_CONVERSATION_PROFILES),
    },
    Migration {
        version: FormVersion::LIVE_MESSAGES.0,
        statements: LIVE_TABLES,
        columns: &[],
        speculation: Some(QUICK_LIVE),
    },
];

/// No batch writes the keys, so nothing is replayed into them. Cassandra keeps the Paxos state of a claim as long as this.
const KEYS_GC_GRACE: &str = "ALTER TABLE {keyspace}.sends_by_key WITH gc_grace_seconds = 10800";

/// The coordinator of a read asks a third replica after 50 ms. By default it waits for the latency
/// that one read of a hundred exceeds: seconds in a table that was rarely read, or just after a
/// node hung.
pub(super) const QUICK_THIRD_REPLICA: SpeculativeRetry = SpeculativeRetry {
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

const QUICK_LIVING: SpeculativeRetry = SpeculativeRetry {
    tables: &["pinned_by_conversation", "ended_reactions_by_message"],
    millis: 50,
};

const QUICK_LIVE: SpeculativeRetry = SpeculativeRetry {
    tables: &[
        "live_texts",
        "live_messages_by_conversation",
        "due_by_minute",
    ],
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

/// The messages of a conversation that count as unread for nobody.
const SILENT_RUNS: AddedColumns = AddedColumns {
    table: "buckets_by_conversation",
    columns: &[("silent", "blob")],
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
pub(super) const DESCRIPTION_CELLS: AddedColumns = AddedColumns {
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

/// The names of the participants of a small conversation.
const PRESENT_CELL: AddedColumns = AddedColumns {
    table: "participants_by_conversation",
    columns: &[("present", "blob static")],
};

/// The app's own data about a user.
const PROFILE_METADATA: AddedColumns = AddedColumns {
    table: "users",
    columns: &[("metadata", "text")],
};

/// The same for the profiles of conversations.
const QUICK_CONVERSATION_PROFILES: SpeculativeRetry = SpeculativeRetry {
    tables: &["profiles_by_conversation", "conversations_by_app_key"],
    millis: 50,
};

/// The same for the users who are notified of all messages.
const QUICK_NOTIFY_ALL: SpeculativeRetry = SpeculativeRetry {
    tables: &["notify_all_by_conversation"],
    millis: 50,
};
