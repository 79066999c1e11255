//! Key layout of the embedded store: pure functions whose bytes sort in the order of the lists.
//!
//! Numbers and ids are big-endian with a fixed width. Lists that show the newest first store their bits inverted,
//! so that every list is a forward scan. A zero byte terminates a username: names hold no control characters,
//! and `a` still sorts before `ab`.

mod change;
mod expiry;
mod inbox;
mod live;
mod mention;
mod outbox;
mod reaction;
mod removal;
mod row;
mod safety;
mod search;

use strum::{FromRepr, IntoStaticStr, VariantArray};
use uuid::Uuid;

pub(crate) use self::change::{
    change_id, change_of_conversation, change_of_user, changes_of_conversation_after,
    changes_of_user_after,
};
pub(crate) use self::expiry::{expired, expired_key, expiry};
pub(crate) use self::inbox::{
    activities, activity, activity_place, all_activities, all_busy, all_larges, busy,
    busy_conversation, busy_conversation_id, entries, entry, entry_cell, inbox_key, larges, listed,
    listed_id, listing_of,
};
pub(crate) use self::live::{
    LiveCell, due_live, due_live_of, due_lives, live, live_cell, live_cell_of, live_cells,
    live_listing, live_listing_of, live_listings, live_of, live_position_of, live_rows, live_text,
    live_texts,
};
pub(crate) use self::mention::{
    all_everyones, all_mentions, everyone, everyone_in, everyone_of, everyones, mention,
    mention_of, mentioned_at, mentions, mentions_of_user,
};
pub(crate) use self::outbox::{
    dead_letter, dead_letters, is_dead_letter, outbox_row, outbox_row_of, outbox_rows,
    reader_position,
};
pub(crate) use self::reaction::{
    ended_reaction, ended_reactions_of, reaction, reaction_of, reaction_to, reactions,
    reactions_after, reactions_in, reactions_of,
};
pub(crate) use self::removal::{due_removal, due_removal_of, due_removals, removed_up_to};
pub(crate) use self::row::{
    all_pairs, app_key, behind, conversation, conversation_of, conversation_profile,
    conversations_after, ended_job, is_ended_job, is_send_by_key, job, jobs, meta, note,
    notify_all, notify_all_after, notify_all_of, pair, pin_list, pinned_of, pins, roster,
    send_by_key, user, user_of, users_after,
};
pub(crate) use self::safety::{
    all_bans, all_blocks, all_reports, ban, ban_place, banned_of, bans, block, blocked_of,
    blocker_of, blocks, report, report_of, report_resolution, reports, restricted_of, restriction,
    restrictions,
};
pub(crate) use self::search::{search_block, search_directory, search_segment};
use crate::model::{ConversationId, MessageId, OrderKey, Timestamp, UserId};

/// Keyspace of the engine: a tree of its own. They are few, because each pins the journal until its flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub(crate) enum Table {
    Messages,
    Heads,
    Participants,
    Inbox,
    Activity,
    Changes,
    /// Small and rare rows, each behind its [`Tag`].
    Rows,
    /// The search index: directories of conversations, and blocks of segments.
    Search,
}

impl Table {
    pub(crate) const ALL: &[Self] = Self::VARIANTS;
}

/// Kind of a row of [`Table::Rows`], with the name of its table in CQL. Never renumber it: stores hold these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr, IntoStaticStr)]
#[repr(u8)]
#[strum(serialize_all = "snake_case", const_into_str)]
enum Tag {
    Meta = 0,
    #[strum(serialize = "conversations")]
    Conversation = 1,
    #[strum(serialize = "direct_by_pair")]
    Pair = 2,
    #[strum(serialize = "users")]
    User = 3,
    #[strum(serialize = "sends_by_key")]
    SendByKey = 4,
    #[strum(serialize = "large_conversations_by_user")]
    LargeByUser = 5,
    Expiry = 6,
    #[strum(serialize = "notes")]
    Note = 7,
    #[strum(serialize = "busy_conversations_by_user")]
    BusyByUser = 8,
    #[strum(serialize = "busy_conversations")]
    Busy = 9,
    #[strum(serialize = "rosters")]
    Roster = 10,
    #[strum(serialize = "reactions_by_message")]
    Reaction = 11,
    #[strum(serialize = "restrictions")]
    Restriction = 12,
    #[strum(serialize = "blocks_by_user")]
    Block = 13,
    Outbox = 14,
    #[strum(serialize = "bans_by_conversation")]
    Ban = 15,
    #[strum(serialize = "pins_by_conversation")]
    Pin = 17,
    #[strum(serialize = "mentions_by_entry")]
    Mention = 18,
    #[strum(serialize = "everyone_by_conversation")]
    Everyone = 19,
    #[strum(serialize = "outbox_positions")]
    OutboxPosition = 21,
    OutboxDead = 22,
    #[strum(serialize = "reports_by_week")]
    Report = 23,
    #[strum(serialize = "reports_by_week")]
    ReportResolution = 24,
    #[strum(serialize = "notify_all_by_conversation")]
    NotifyAll = 28,
    #[strum(serialize = "removed_histories")]
    Removed = 44,
    #[strum(serialize = "expiries_by_hour")]
    DueRemoval = 45,
    #[strum(serialize = "jobs")]
    Job = 36,
    #[strum(serialize = "jobs")]
    EndedJob = 37,
    #[strum(serialize = "ended_reactions_by_message")]
    EndedReaction = 50,
    #[strum(serialize = "pinned_by_conversation")]
    PinList = 51,
    #[strum(serialize = "profiles_by_conversation")]
    ConversationProfile = 60,
    #[strum(serialize = "conversations_by_app_key")]
    AppKey = 61,
    #[strum(serialize = "live_texts")]
    Live = 62,
    #[strum(serialize = "live_messages_by_conversation")]
    LiveListing = 63,
    #[strum(serialize = "due_by_minute")]
    DueLive = 64,
}

/// Cells of one participant. Each has its own key, so that concurrent writers never share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cell {
    Membership = 0,
    ReadUpTo = 1,
    DeliveredUpTo = 2,
}

/// Cells of one inbox entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum EntryCell {
    Marker = 0,
    SentUpTo = 1,
    Flags = 2,
}

impl EntryCell {
    pub(crate) const ALL: [Self; 3] = [Self::Marker, Self::SentUpTo, Self::Flags];
}

/// Index by which a user's inbox lists a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listing {
    /// Activity index: one row, ordered by the activity.
    Active(Timestamp),
    /// Busy list: the head holds the activity, so that a send moves no row.
    Busy,
    /// Large list: the conversation has too many participants to move a row for each.
    Large,
}

/// Key of one value: its table and its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) table: Table,
    pub(crate) bytes: Vec<u8>,
}

impl Key {
    /// Key of a row of [`Table::Rows`] as a scan returned it.
    pub(crate) fn of_row(bytes: &[u8]) -> Self {
        Self {
            table: Table::Rows,
            bytes: bytes.to_vec(),
        }
    }

    /// Name of the table as in CQL, for error messages.
    pub(crate) fn table_name(&self) -> &'static str {
        match (self.table, self.bytes.first()) {
            (Table::Rows, Some(&tag)) => Tag::from_repr(tag).map_or("rows", |tag| tag.into_str()),
            (table, _) => table.into_str(),
        }
    }
}

/// Range of keys of one table: `start` inclusive, `end` exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) table: Table,
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

impl Span {
    /// Range of all keys with a prefix.
    fn of_prefix(table: Table, prefix: Vec<u8>) -> Self {
        let mut end = prefix.clone();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                break;
            }
        }
        if end.is_empty() {
            // The prefix is all 0xFF, as one conversation id is: choose an end after every key of it.
            end = vec![0xff; 64];
        }
        Self {
            table,
            start: prefix,
            end,
        }
    }

    fn of_key(key: Key) -> Self {
        let end = successor(&key.bytes);
        Self {
            table: key.table,
            start: key.bytes,
            end,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// The part after another span.
    pub(crate) fn behind(mut self, other: &Self) -> Self {
        self.start = self.start.max(other.end.clone());
        self
    }

    /// The part before another span.
    pub(crate) fn before(mut self, other: &Self) -> Self {
        self.end = self.end.min(other.start.clone());
        self
    }

    /// The part before the end of another span.
    pub(crate) fn up_to(mut self, other: &Self) -> Self {
        self.end = self.end.min(other.end.clone());
        self
    }

    /// The part from the start of another span on.
    pub(crate) fn from(mut self, other: &Self) -> Self {
        self.start = self.start.max(other.start.clone());
        self
    }
}

/// Smallest key greater than every key with this prefix.
fn successor(bytes: &[u8]) -> Vec<u8> {
    let mut next = bytes.to_vec();
    next.push(0);
    next
}

fn turned(bytes: [u8; 16]) -> [u8; 16] {
    bytes.map(|byte| !byte)
}

/// Range of the rows of a tag whose keys begin with these parts.
fn rows_with(tag: Tag, parts: &[&[u8]]) -> Span {
    Span::of_prefix(Table::Rows, rows(tag, parts).bytes)
}

fn rows(tag: Tag, parts: &[&[u8]]) -> Key {
    let mut bytes = vec![tag as u8];
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Key {
        table: Table::Rows,
        bytes,
    }
}

/// Username with its terminator.
fn name(user: &UserId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(user.as_str().len() + 32);
    bytes.extend_from_slice(user.as_str().as_bytes());
    bytes.push(0);
    bytes
}

/// Splits a username from the bytes after it. `None` if the bytes have another form.
fn split_name(bytes: &[u8]) -> Option<(UserId, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let user = UserId::parse(std::str::from_utf8(&bytes[..end]).ok()?).ok()?;
    Some((user, &bytes[end + 1..]))
}

// Messages: conversation ‖ inverted order key, so that the newest comes first.

pub(crate) fn message(conversation: ConversationId, position: OrderKey) -> Key {
    Key {
        table: Table::Messages,
        bytes: [*conversation.0.as_bytes(), turned(position.0)].concat(),
    }
}

pub(crate) fn message_position(conversation: ConversationId, position: OrderKey) -> Span {
    Span::of_key(message(conversation, position))
}

pub(crate) fn messages(conversation: ConversationId) -> Span {
    Span::of_prefix(Table::Messages, conversation.0.as_bytes().to_vec())
}

pub(crate) fn message_id(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(turned(bytes.get(16..)?.try_into().ok()?)))
}

/// Parses a key of a message into its conversation and id.
pub(crate) fn message_key(bytes: &[u8]) -> Option<(ConversationId, MessageId)> {
    Some((
        ConversationId(Uuid::from_slice(bytes.get(..16)?).ok()?),
        message_id(bytes)?,
    ))
}

pub(crate) fn head(conversation: ConversationId) -> Key {
    Key {
        table: Table::Heads,
        bytes: conversation.0.as_bytes().to_vec(),
    }
}

// Participants: conversation ‖ name ‖ 0 ‖ cell.

pub(crate) fn participant(conversation: ConversationId, user: &UserId, cell: Cell) -> Key {
    Key {
        table: Table::Participants,
        bytes: [&conversation.0.as_bytes()[..], &name(user), &[cell as u8]].concat(),
    }
}

pub(crate) fn participants(conversation: ConversationId) -> Span {
    Span::of_prefix(Table::Participants, conversation.0.as_bytes().to_vec())
}

/// Range of the participants whose names begin with a prefix.
pub(crate) fn participants_with_prefix(conversation: ConversationId, prefix: &str) -> Span {
    let bytes = [conversation.0.as_bytes(), prefix.as_bytes()].concat();
    Span::of_prefix(Table::Participants, bytes)
}

pub(crate) fn participant_place(conversation: ConversationId, user: &UserId) -> Span {
    let bytes = [&conversation.0.as_bytes()[..], &name(user)].concat();
    Span::of_prefix(Table::Participants, bytes)
}

/// Parses a participant key into its user and the number of its [`Cell`].
pub(crate) fn participant_cell(bytes: &[u8]) -> Option<(UserId, u8)> {
    match split_name(bytes.get(16..)?)? {
        (user, &[cell]) => Some((user, cell)),
        _ => None,
    }
}

fn conversation_id(bytes: &[u8; 16]) -> Option<ConversationId> {
    Some(ConversationId(uuid::Uuid::from_bytes(*bytes)))
}

#[cfg(test)]
#[path = "key_test.rs"]
mod tests;
