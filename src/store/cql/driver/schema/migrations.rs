//! Migrations: the steps by which a keyspace gets its tables, columns and options.

use super::tables::{
    APP_KEY_TABLE, BAN_TABLE, BLOCK_TABLE, CLUSTER_TABLES, CONVERSATION_PROFILE_TABLE,
    EXPIRY_TABLE, JOB_TABLE, LIVE_TABLES, LIVING_TABLES, MENTION_TABLES, NOTIFY_ALL_TABLE,
    OUTBOX_TABLE, PIN_TABLE, READER_TABLES, REPORT_TABLE, RESTRICTION_TABLES, SEARCH_TABLES,
    TABLES,
};
use super::{Migration, OLDEST_SERVER_SINCE, SPECULATIVE_RETRY_SINCE, columns};
use crate::store::FormVersion;

/// All migrations, in order. A released one never changes. Every statement can be repeated.
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration::new(1, TABLES, &[]),
    Migration::new(
        2,
        &[KEYS_GC_GRACE],
        // The parts of a conversation that change, beside the memberships that every reader of it reads.
        &[columns(
            "participants_by_conversation",
            &[("name", "text static"), ("is_large", "boolean static")],
        )],
    ),
    Migration::new(
        3,
        RESTRICTION_TABLES,
        // The app's own data about a user.
        &[columns("users", &[("metadata", "text")])],
    ),
    Migration::new(4, CLUSTER_TABLES, &[]),
    Migration::new(
        OLDEST_SERVER_SINCE,
        &[],
        // The oldest server that may serve beside this migration.
        &[columns("schema_migrations", &[("oldest_server", "int")])],
    ),
    Migration::new(
        SPECULATIVE_RETRY_SINCE,
        &[],
        // Whether a retried send was delivered to all servers.
        &[columns("sends_by_key", &[("is_delivered", "boolean")])],
    ),
    Migration::new(7, &[BLOCK_TABLE], &[]),
    Migration::new(8, &[OUTBOX_TABLE], &[]),
    Migration::new(9, READER_TABLES, &[]),
    Migration::new(
        FormVersion::MODERATION.0,
        &[BAN_TABLE],
        // The slow mode of a conversation, and its copy beside the memberships.
        &[
            columns("conversations", &[("slow_mode_seconds", "int")]),
            columns(
                "participants_by_conversation",
                &[("slow_mode_seconds", "int static")],
            ),
        ],
    ),
    Migration::new(
        FormVersion::PINS.0,
        &[PIN_TABLE],
        // The last change of a message's pin.
        &[columns("messages_by_conversation", &[("pin", "blob")])],
    ),
    Migration::new(
        FormVersion::MENTIONS.0,
        MENTION_TABLES,
        &[
            // The newest mention of an entry, and its notification level.
            columns(
                "inbox_by_user",
                &[("mentioned_up_to", "blob"), ("level", "tinyint")],
            ),
            // The newest message that mentions everyone.
            columns("conversations", &[("everyone_up_to", "blob")]),
            // Names that edits of a message added or removed.
            columns("messages_by_conversation", &[("mentioned", "set<text>")]),
        ],
    ),
    Migration::new(13, &[NOTIFY_ALL_TABLE], &[]),
    Migration::new(
        FormVersion::HISTORY.0,
        &[],
        // The settings of a conversation's history, and their copy beside the memberships.
        &[
            columns("conversations", &[("history", "blob")]),
            columns(
                "participants_by_conversation",
                &[("history", "blob static")],
            ),
        ],
    ),
    Migration::new(FormVersion::REPORTS.0, &[REPORT_TABLE], &[]),
    Migration::new(
        16,
        &[EXPIRY_TABLE],
        // The last position up to which messages were removed.
        &[columns("conversations", &[("removed_up_to", "blob")])],
    ),
    Migration::new(FormVersion::ERASURE.0, &[JOB_TABLE], &[]),
    Migration::new(18, SEARCH_TABLES, &[]),
    Migration::new(
        19,
        &[],
        // The messages of a conversation that count as unread for nobody.
        &[columns("buckets_by_conversation", &[("silent", "blob")])],
    ),
    Migration::new(FormVersion::HELD_POSITIONS.0, &[], &[]),
    Migration::new(FormVersion::PIN_LISTS.0, LIVING_TABLES, &[]),
    Migration::new(
        22,
        &[],
        // The names of the participants of a small conversation.
        &[columns(
            "participants_by_conversation",
            &[("present", "blob static")],
        )],
    ),
    Migration::new(
        FormVersion::PARTS.0,
        &[CONVERSATION_PROFILE_TABLE, APP_KEY_TABLE],
        &[],
    ),
    Migration::new(FormVersion::LIVE_MESSAGES.0, LIVE_TABLES, &[]),
];

/// No batch writes the keys, so nothing is replayed into them. Cassandra keeps the Paxos state of a claim as long as this.
const KEYS_GC_GRACE: &str = "ALTER TABLE {keyspace}.sends_by_key WITH gc_grace_seconds = 10800";
