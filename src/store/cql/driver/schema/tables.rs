//! Tables, each for one query.
//!
//! Rules for all tables. A maximum register is a cell whose bytes sort like its values and whose write timestamp is fixed, so the greatest
//! bytes win in any order of arrival. Every other cell has the microsecond of the id that wrote it. No write contains a null. A table in a
//! LOGGED batch has `gc_grace_seconds` of at least a day, as the replay of a batch skips writes that are older than the smallest one.

/// The table of applied migrations.
pub(crate) const SCHEMA_MIGRATIONS: &str =
    "CREATE TABLE IF NOT EXISTS {keyspace}.schema_migrations (
    version int PRIMARY KEY,
    checksum text,
    applied_at bigint
) WITH ID = {id}";

pub(super) const TABLES: &[&str] = &[
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

pub(super) const CONVERSATION_PROFILE_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS {keyspace}.profiles_by_conversation (
    conversation_id uuid PRIMARY KEY,
    description text,
    avatar_url text,
    metadata text,
    app_key text
) WITH ID = {id}";

pub(super) const APP_KEY_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS {keyspace}.conversations_by_app_key (
    app_key text PRIMARY KEY,
    conversation_id uuid,
    input_hash blob
) WITH ID = {id}";

pub(super) const RESTRICTION_TABLES: &[&str] = &[
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

pub(super) const BLOCK_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.blocks_by_user (
    user_id text,
    blocked_id text,
    state blob,
    PRIMARY KEY ((user_id), blocked_id)
) WITH ID = {id}";

pub(super) const BAN_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.bans_by_conversation (
    conversation_id uuid,
    user_id text,
    state blob,
    PRIMARY KEY ((conversation_id), user_id)
) WITH ID = {id}";

/// Pins that are on, and ended ones for 35 days.
pub(super) const PIN_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.pins_by_conversation (
    conversation_id uuid,
    message_id timeuuid,
    pin blob,
    PRIMARY KEY ((conversation_id), message_id)
) WITH ID = {id}";

/// The pins of a conversation that are on, in one cell, which no batch writes; and reactions that were taken back, for 35 days.
pub(super) const LIVING_TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS {keyspace}.pinned_by_conversation (
    conversation_id uuid PRIMARY KEY,
    pins blob
) WITH ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.ended_reactions_by_message (
    conversation_id uuid,
    message_id timeuuid,
    user_id text,
    emoji text,
    PRIMARY KEY ((conversation_id, message_id), user_id, emoji)
) WITH default_time_to_live = 3024000 AND ID = {id}",
];

/// Mentions of a user and of everyone. They live for 400 days.
pub(super) const MENTION_TABLES: &[&str] = &[
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
pub(super) const REPORT_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.reports_by_week (
    week int,
    report_id timeuuid,
    report blob,
    resolution blob,
    PRIMARY KEY ((week), report_id)
) WITH CLUSTERING ORDER BY (report_id DESC) AND default_time_to_live = 34560000 AND ID = {id}";

/// Conversations with messages to remove, by the hour from which they may go. An entry is deleted once they are gone.
pub(super) const EXPIRY_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.expiries_by_hour (
    hour int,
    shard tinyint,
    conversation_id uuid,
    PRIMARY KEY ((hour, shard), conversation_id)
) WITH ID = {id}";

/// Erasures of users: those that run in one partition, and those that have ended in others, for 400 days.
pub(super) const JOB_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.jobs (
    shard tinyint,
    job_id uuid,
    state blob,
    PRIMARY KEY ((shard), job_id)
) WITH ID = {id}";

/// The search index of each conversation: a directory, which changes by lightweight transactions, and the blocks of segments, which are
/// written once. No LOGGED batch writes them.
pub(super) const SEARCH_TABLES: &[&str] = &[
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

/// Live messages: their texts with their cells, the list of each conversation, and the due queue. No batch writes them, and nothing is
/// deleted. Cassandra keeps the Paxos state of a claim as long as `gc_grace_seconds`. The text of a live message lives for a day after its
/// last write; the writers, which claims write, half a day longer.
pub(super) const LIVE_TABLES: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS {keyspace}.live_texts (
    conversation_id uuid,
    live_id blob,
    writer_number tinyint,
    text_end int,
    position int,
    content text,
    writers blob static,
    started blob static,
    touched bigint static,
    status blob static,
    steps blob static,
    stop blob static,
    discarded blob static,
    PRIMARY KEY ((conversation_id, live_id), writer_number, text_end, position)
) WITH default_time_to_live = 86400 AND gc_grace_seconds = 10800
    AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'HOURS', 'compaction_window_size': '6'}
    AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.live_messages_by_conversation (
    conversation_id uuid,
    minute int,
    live_id blob,
    sender_id text,
    key text,
    PRIMARY KEY ((conversation_id), minute, live_id)
) WITH CLUSTERING ORDER BY (minute DESC, live_id ASC) AND default_time_to_live = 600 AND gc_grace_seconds = 10800
    AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'MINUTES', 'compaction_window_size': '5'}
    AND ID = {id}",
    "CREATE TABLE IF NOT EXISTS {keyspace}.due_by_minute (
    minute int,
    shard tinyint,
    due_id blob,
    kind tinyint,
    conversation_id uuid,
    live_id blob,
    sender_id text,
    key text,
    PRIMARY KEY ((minute, shard), due_id)
) WITH default_time_to_live = 3024000 AND gc_grace_seconds = 86400
    AND compaction = {'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', 'compaction_window_size': '1'}
    AND ID = {id}",
];

/// The directory of servers, and their mailboxes. No LOGGED batch writes them. The registrations keep their tombstones as long as a row could
/// live, so that no removed one comes back from a replica that was away.
pub(super) const CLUSTER_TABLES: &[&str] = &[
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
pub(super) const OUTBOX_TABLE: &str = "CREATE TABLE IF NOT EXISTS {keyspace}.outbox_by_shard (
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
pub(super) const NOTIFY_ALL_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS {keyspace}.notify_all_by_conversation (
    conversation_id uuid,
    user_id text,
    PRIMARY KEY ((conversation_id), user_id)
) WITH ID = {id}";

/// Positions of the readers of the outbox, and the events that they refused, which live for 30 days. No batch writes them. Cassandra
/// keeps the Paxos state of a position as long as its `gc_grace_seconds`.
pub(super) const READER_TABLES: &[&str] = &[
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
    use super::{CLUSTER_TABLES, LIVE_TABLES};
    use crate::store::cluster::{REGISTRATION_SECONDS, SERVER_ROW_SECONDS};
    use crate::store::live::{LIVE_LISTED_MINUTES, LIVE_TEXT_LIFETIME_MICROS};

    #[test]
    fn rows_of_the_directory_live_as_long_as_their_servers_believe() {
        for (name, seconds) in [
            ("servers", SERVER_ROW_SECONDS),
            ("sessions_by_user", REGISTRATION_SECONDS),
            ("listeners_by_conversation", REGISTRATION_SECONDS),
        ] {
            let begin = format!("CREATE TABLE IF NOT EXISTS {{keyspace}}.{name} (");
            let table = CLUSTER_TABLES.iter().find(|text| text.starts_with(&begin));
            let life = format!("default_time_to_live = {seconds} ");
            assert!(table.unwrap().contains(&life), "{name}");
        }
    }

    #[test]
    fn live_messages_live_as_long_as_the_store_promises() {
        let lives = [
            LIVE_TEXT_LIFETIME_MICROS / 1_000_000,
            i64::from(LIVE_LISTED_MINUTES) * 60,
        ];
        for (table, seconds) in LIVE_TABLES.iter().zip(lives) {
            let life = format!("default_time_to_live = {seconds} ");
            assert!(table.contains(&life), "{table}");
        }
    }
}
