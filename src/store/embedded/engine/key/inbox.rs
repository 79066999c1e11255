//! Keys of inboxes: the cells of entries, and the lists of conversations by user.

use uuid::Uuid;

use super::row::all_after;
use super::{
    EntryCell, Key, Listing, Span, Table, Tag, conversation_id, name, rows, rows_with, split_name,
    turned,
};
use crate::model::{ConversationId, InboxKey, Timestamp, UserId};

// Entries: name ‖ 0 ‖ conversation ‖ cell; their index: name ‖ 0 ‖ inverted activity ‖ inverted conversation.

pub(crate) fn entry(user: &UserId, conversation: ConversationId, cell: EntryCell) -> Key {
    let mut bytes = name(user);
    bytes.extend_from_slice(conversation.0.as_bytes());
    bytes.push(cell as u8);
    Key {
        table: Table::Inbox,
        bytes,
    }
}

/// Parses an entry key into its user, its conversation and the number of its cell.
pub(crate) fn entry_cell(bytes: &[u8]) -> Option<(UserId, ConversationId, EntryCell)> {
    let (user, rest) = split_name(bytes)?;
    let (conversation, cell) = rest.split_first_chunk::<16>()?;
    let cell = EntryCell::ALL
        .into_iter()
        .find(|known| cell == [*known as u8])?;
    Some((user, ConversationId(Uuid::from_bytes(*conversation)), cell))
}

pub(crate) fn activity(user: &UserId, key: &InboxKey) -> Key {
    let mut bytes = name(user);
    bytes.extend_from_slice(&(!key.activity.micros().cast_unsigned()).to_be_bytes());
    bytes.extend_from_slice(&turned(*key.conversation.0.as_bytes()));
    Key {
        table: Table::Activity,
        bytes,
    }
}

pub(crate) fn activity_place(user: &UserId, key: &InboxKey) -> Span {
    Span::of_key(activity(user, key))
}

pub(crate) fn activities(user: &UserId) -> Span {
    Span::of_prefix(Table::Activity, name(user))
}

pub(crate) fn inbox_key(bytes: &[u8]) -> Option<InboxKey> {
    let (_, rest) = bytes.split_at_checked(bytes.iter().position(|byte| *byte == 0)? + 1)?;
    let (micros, conversation) = rest.split_first_chunk::<8>()?;
    let activity = Timestamp::from_micros((!u64::from_be_bytes(*micros)).cast_signed());
    Some(InboxKey {
        activity,
        conversation: conversation_id(&turned(conversation.try_into().ok()?))?,
    })
}

/// Key of the row that lists a conversation in a user's inbox.
pub(crate) fn listed(user: &UserId, conversation: ConversationId, listing: Listing) -> Key {
    match listing {
        Listing::Active(activity) => super::activity(
            user,
            &InboxKey {
                activity,
                conversation,
            },
        ),
        Listing::Busy => rows(Tag::BusyByUser, &[&name(user), conversation.0.as_bytes()]),
        Listing::Large => rows(Tag::LargeByUser, &[&name(user), conversation.0.as_bytes()]),
    }
}

pub(crate) fn busy(user: &UserId) -> Span {
    rows_with(Tag::BusyByUser, &[&name(user)])
}

/// Key that schedules a check of a busy conversation, for when it may have become quiet.
pub(crate) fn busy_conversation(id: ConversationId) -> Key {
    rows(Tag::Busy, &[id.0.as_bytes()])
}

/// Parses a key of [`busy_conversation`]. `None` for any other key.
pub(crate) fn busy_conversation_id(key: &Key) -> Option<ConversationId> {
    match (key.table, key.bytes.split_first()) {
        (Table::Rows, Some((&tag, id))) if tag == Tag::Busy as u8 => {
            conversation_id(id.try_into().ok()?)
        }
        _ => None,
    }
}

pub(crate) fn larges(user: &UserId) -> Span {
    rows_with(Tag::LargeByUser, &[&name(user)])
}

/// Parses the conversation at the end of a key of [`larges`] or [`busy`].
pub(crate) fn listed_id(bytes: &[u8]) -> Option<ConversationId> {
    conversation_id(bytes.last_chunk::<16>()?)
}

// Whole lists, for export and verification.

pub(crate) fn all_activities() -> Span {
    Span {
        table: Table::Activity,
        start: Vec::new(),
        end: vec![0xff; 64],
    }
}

pub(crate) fn all_busy() -> Span {
    all_after(Tag::BusyByUser, None)
}

pub(crate) fn all_larges() -> Span {
    all_after(Tag::LargeByUser, None)
}

/// Parses a list row into its user, its conversation and its list. `None` for any other row.
pub(crate) fn listing_of(row: &Key) -> Option<(UserId, ConversationId, Listing)> {
    if row.table == Table::Activity {
        let (user, _) = split_name(&row.bytes)?;
        let InboxKey {
            activity,
            conversation,
        } = inbox_key(&row.bytes)?;
        return Some((user, conversation, Listing::Active(activity)));
    }
    let (tag, named) = row.bytes.split_first()?;
    let listing = match *tag {
        _ if row.table != Table::Rows => return None,
        tag if tag == Tag::BusyByUser as u8 => Listing::Busy,
        tag if tag == Tag::LargeByUser as u8 => Listing::Large,
        _ => return None,
    };
    let (user, _) = split_name(named)?;
    Some((user, listed_id(&row.bytes)?, listing))
}

/// Range of the cells of all entries of a user.
pub(crate) fn entries(user: &UserId) -> Span {
    Span::of_prefix(Table::Inbox, name(user))
}
