//! How keys lie in the embedded store: pure functions, so that bytes sort the way lists read.
//!
//! Numbers and ids are big-endian and of fixed width; what lists show newest first is stored with every bit turned over, so that a list
//! is always a scan forward. A user's name ends with a zero byte: names hold no control characters, so no name is cut short by it, and
//! `a` sorts before `ab` as the names themselves do.

use crate::model::message::IdempotencyKey;
use crate::model::{ConversationId, Emoji, InboxKey, MessageId, OrderKey, Timestamp, UserId};

/// A keyspace of the engine: each a tree of its own. Few, because each pins the journal until it is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Table {
    Messages,
    Heads,
    Participants,
    Inbox,
    Activity,
    Changes,
    /// All that is small or rare, each behind its [`Tag`].
    Rows,
}

impl Table {
    pub(super) const ALL: [Self; 7] =
        [Self::Messages, Self::Heads, Self::Participants, Self::Inbox, Self::Activity, Self::Changes, Self::Rows];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Heads => "heads",
            Self::Participants => "participants",
            Self::Inbox => "inbox",
            Self::Activity => "activity",
            Self::Changes => "changes",
            Self::Rows => "rows",
        }
    }
}

/// What a row of [`Table::Rows`] is. Never renumbered: the numbers are on disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Tag {
    Meta = 0,
    Conversation = 1,
    Pair = 2,
    User = 3,
    SendByKey = 4,
    LargeByUser = 5,
    Expiry = 6,
    Note = 7,
    BusyByUser = 8,
    Busy = 9,
    Roster = 10,
    Reaction = 11,
}

/// What a row of [`Table::Changes`] belongs to.
const CHANGES_OF_CONVERSATION: u8 = 0;
const CHANGES_OF_USER: u8 = 1;

/// Values of one participant. Each has a key of its own, so that writers never share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Cell {
    Membership = 0,
    ReadUpTo = 1,
    DeliveredUpTo = 2,
}

/// Values of one user's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EntryCell {
    Marker = 0,
    SentUpTo = 1,
    Flags = 2,
}

/// How a user's inbox finds a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// By its activity, in the index.
    Active(Timestamp),
    /// Among those that are active just now: their heads say when. A send into one of these moves nothing.
    Busy,
    /// Among those that have too many people to move something for each.
    Large,
}

/// Where one value lies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) table: Table,
    pub(super) bytes: Vec<u8>,
}

impl Key {
    /// The table in the words of the design, for messages about it.
    pub(super) fn table_name(&self) -> &'static str {
        const NAMES: [&str; 12] = [
            "meta",
            "conversations",
            "direct_by_pair",
            "users",
            "sends_by_key",
            "large_conversations_by_user",
            "expiry",
            "notes",
            "busy_conversations_by_user",
            "busy_conversations",
            "rosters",
            "reactions_by_message",
        ];
        match (self.table, self.bytes.first()) {
            (Table::Rows, Some(&tag)) => NAMES.get(usize::from(tag)).copied().unwrap_or("rows"),
            (table, _) => table.name(),
        }
    }
}

/// Keys of one table from `start` up to, and without, `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) table: Table,
    pub(super) start: Vec<u8>,
    pub(super) end: Vec<u8>,
}

impl Span {
    /// All keys that begin like this.
    fn of_prefix(table: Table, prefix: Vec<u8>) -> Self {
        let mut end = prefix.clone();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                break;
            }
        }
        if end.is_empty() {
            // Nothing but 0xFF, as one conversation id is: an end that lies behind every key of it.
            end = vec![0xff; 64];
        }
        Self { table, start: prefix, end }
    }

    fn of_key(key: Key) -> Self {
        let end = successor(&key.bytes);
        Self { table: key.table, start: key.bytes, end }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// What of it lies behind another span.
    pub(super) fn behind(mut self, other: &Self) -> Self {
        self.start = self.start.max(other.end.clone());
        self
    }

    /// What of it lies before another span.
    pub(super) fn before(mut self, other: &Self) -> Self {
        self.end = self.end.min(other.start.clone());
        self
    }

    /// What of it lies before the end of another span.
    pub(super) fn up_to(mut self, other: &Self) -> Self {
        self.end = self.end.min(other.end.clone());
        self
    }

    /// What of it lies at or behind the start of another span.
    pub(super) fn from(mut self, other: &Self) -> Self {
        self.start = self.start.max(other.start.clone());
        self
    }
}

/// The smallest key that is greater.
fn successor(bytes: &[u8]) -> Vec<u8> {
    let mut next = bytes.to_vec();
    next.push(0);
    next
}

fn turned(bytes: [u8; 16]) -> [u8; 16] {
    bytes.map(|byte| !byte)
}

fn rows(tag: Tag, parts: &[&[u8]]) -> Key {
    let mut bytes = vec![tag as u8];
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Key { table: Table::Rows, bytes }
}

/// A user's name with its end.
fn name(user: &UserId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(user.as_str().len() + 32);
    bytes.extend_from_slice(user.as_str().as_bytes());
    bytes.push(0);
    bytes
}

/// What follows a name, and the name itself. `None` where the bytes have no such form.
fn split_name(bytes: &[u8]) -> Option<(UserId, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let user = UserId::parse(std::str::from_utf8(&bytes[..end]).ok()?).ok()?;
    Some((user, &bytes[end + 1..]))
}

// Messages: conversation ‖ turned order key, so that the newest comes first.

pub(super) fn message(conversation: ConversationId, place: OrderKey) -> Key {
    Key { table: Table::Messages, bytes: [*conversation.0.as_bytes(), turned(place.0)].concat() }
}

pub(super) fn message_place(conversation: ConversationId, place: OrderKey) -> Span {
    Span::of_key(message(conversation, place))
}

pub(super) fn messages(conversation: ConversationId) -> Span {
    Span::of_prefix(Table::Messages, conversation.0.as_bytes().to_vec())
}

pub(super) fn message_id(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(turned(bytes.get(16..)?.try_into().ok()?)))
}

pub(super) fn head(conversation: ConversationId) -> Key {
    Key { table: Table::Heads, bytes: conversation.0.as_bytes().to_vec() }
}

// Participants: conversation ‖ name ‖ 0 ‖ cell.

pub(super) fn participant(conversation: ConversationId, user: &UserId, cell: Cell) -> Key {
    let mut bytes = conversation.0.as_bytes().to_vec();
    bytes.extend_from_slice(&name(user));
    bytes.push(cell as u8);
    Key { table: Table::Participants, bytes }
}

pub(super) fn participants(conversation: ConversationId) -> Span {
    Span::of_prefix(Table::Participants, conversation.0.as_bytes().to_vec())
}

pub(super) fn participant_place(conversation: ConversationId, user: &UserId) -> Span {
    let mut bytes = conversation.0.as_bytes().to_vec();
    bytes.extend_from_slice(&name(user));
    Span::of_prefix(Table::Participants, bytes)
}

/// Whose value it is, and which of [`Cell`].
pub(super) fn participant_cell(bytes: &[u8]) -> Option<(UserId, u8)> {
    match split_name(bytes.get(16..)?)? {
        (user, &[cell]) => Some((user, cell)),
        _ => None,
    }
}

// Entries: name ‖ 0 ‖ conversation ‖ cell; their order: name ‖ 0 ‖ turned activity ‖ turned conversation.

pub(super) fn entry(user: &UserId, conversation: ConversationId, cell: EntryCell) -> Key {
    let mut bytes = name(user);
    bytes.extend_from_slice(conversation.0.as_bytes());
    bytes.push(cell as u8);
    Key { table: Table::Inbox, bytes }
}

pub(super) fn activity(user: &UserId, key: &InboxKey) -> Key {
    let mut bytes = name(user);
    bytes.extend_from_slice(&(!key.activity.micros().cast_unsigned()).to_be_bytes());
    bytes.extend_from_slice(&turned(*key.conversation.0.as_bytes()));
    Key { table: Table::Activity, bytes }
}

pub(super) fn activity_place(user: &UserId, key: &InboxKey) -> Span {
    Span::of_key(activity(user, key))
}

pub(super) fn activities(user: &UserId) -> Span {
    Span::of_prefix(Table::Activity, name(user))
}

pub(super) fn inbox_key(bytes: &[u8]) -> Option<InboxKey> {
    let (_, rest) = bytes.split_at_checked(bytes.iter().position(|byte| *byte == 0)? + 1)?;
    let (micros, conversation) = rest.split_first_chunk::<8>()?;
    let activity = Timestamp::from_micros((!u64::from_be_bytes(*micros)).cast_signed());
    Some(InboxKey { activity, conversation: conversation_id(&turned(conversation.try_into().ok()?))? })
}

// Changes of a conversation: conversation ‖ order key, the oldest first.

pub(super) fn change_of_conversation(conversation: ConversationId, change: OrderKey) -> Key {
    let bytes = [&[CHANGES_OF_CONVERSATION], conversation.0.as_bytes().as_slice(), &change.0].concat();
    Key { table: Table::Changes, bytes }
}

pub(super) fn changes_of_conversation_after(conversation: ConversationId, after: OrderKey) -> Span {
    let prefix = [&[CHANGES_OF_CONVERSATION], conversation.0.as_bytes().as_slice()].concat();
    Span::of_prefix(Table::Changes, prefix).behind(&Span::of_key(change_of_conversation(conversation, after)))
}

// Changes of a user: name ‖ 0 ‖ order key, the oldest first.

pub(super) fn change_of_user(user: &UserId, change: OrderKey) -> Key {
    let mut bytes = vec![CHANGES_OF_USER];
    bytes.extend_from_slice(&name(user));
    bytes.extend_from_slice(&change.0);
    Key { table: Table::Changes, bytes }
}

pub(super) fn changes_of_user_after(user: &UserId, after: OrderKey) -> Span {
    let mut prefix = vec![CHANGES_OF_USER];
    prefix.extend_from_slice(&name(user));
    let place = Span::of_key(change_of_user(user, after));
    Span::of_prefix(Table::Changes, prefix).behind(&place)
}

pub(super) fn change_id(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(*bytes.last_chunk::<16>()?))
}

// Rows.

pub(super) fn meta(name: &str) -> Key {
    rows(Tag::Meta, &[name.as_bytes()])
}

pub(super) fn note(name: &str) -> Key {
    rows(Tag::Note, &[name.as_bytes()])
}

pub(super) fn conversation(id: ConversationId) -> Key {
    rows(Tag::Conversation, &[id.0.as_bytes()])
}

pub(super) fn conversations_after(after: Option<ConversationId>) -> Span {
    all_after(Tag::Conversation, after.map(conversation))
}

/// The conversation of a key of [`conversations_after`].
pub(super) fn conversation_of(bytes: &[u8]) -> Option<ConversationId> {
    conversation_id(bytes.get(1..)?.try_into().ok()?)
}

pub(super) fn users_after(after: Option<&UserId>) -> Span {
    all_after(Tag::User, after.map(user))
}

/// The user of a key of [`users_after`].
pub(super) fn user_of(bytes: &[u8]) -> Option<UserId> {
    UserId::parse(std::str::from_utf8(bytes.get(1..)?).ok()?).ok()
}

fn all_after(tag: Tag, after: Option<Key>) -> Span {
    let all = Span::of_prefix(Table::Rows, vec![tag as u8]);
    match after {
        Some(key) => all.behind(&Span::of_key(key)),
        None => all,
    }
}

/// What is known of a conversation's people as a whole.
pub(super) fn roster(id: ConversationId) -> Key {
    rows(Tag::Roster, &[id.0.as_bytes()])
}

pub(super) fn pair(one: &UserId, other: &UserId) -> Key {
    rows(Tag::Pair, &[&crate::model::id::pair_key(one, other)])
}

pub(super) fn user(id: &UserId) -> Key {
    rows(Tag::User, &[id.as_str().as_bytes()])
}

pub(super) fn send_by_key(conversation: ConversationId, sender: &UserId, key: &IdempotencyKey) -> Key {
    rows(Tag::SendByKey, &[conversation.0.as_bytes(), &name(sender), key.as_str().as_bytes()])
}

// Reactions: conversation ‖ order key ‖ emoji ‖ 0 ‖ name ‖ 0. No emoji holds a zero byte.

pub(super) fn reaction(conversation: ConversationId, message: MessageId, emoji: &Emoji, user: &UserId) -> Key {
    rows(Tag::Reaction, &[conversation.0.as_bytes(), &message.order_key().0, emoji.as_str().as_bytes(), &[0], &name(user)])
}

pub(super) fn reactions(conversation: ConversationId, message: MessageId) -> Span {
    Span::of_prefix(Table::Rows, rows(Tag::Reaction, &[conversation.0.as_bytes(), &message.order_key().0]).bytes)
}

/// Of one emoji.
pub(super) fn reactions_of(conversation: ConversationId, message: MessageId, emoji: &Emoji) -> Span {
    let key = rows(Tag::Reaction, &[conversation.0.as_bytes(), &message.order_key().0, emoji.as_str().as_bytes(), &[0]]);
    Span::of_prefix(Table::Rows, key.bytes)
}

/// Those behind one of them.
pub(super) fn reactions_after(conversation: ConversationId, message: MessageId, after: Option<&(Emoji, UserId)>) -> Span {
    let all = reactions(conversation, message);
    match after {
        Some((emoji, user)) => all.behind(&Span::of_key(reaction(conversation, message, emoji, user))),
        None => all,
    }
}

/// Of all messages of a conversation.
pub(super) fn reactions_in(conversation: ConversationId) -> Span {
    Span::of_prefix(Table::Rows, rows(Tag::Reaction, &[conversation.0.as_bytes()]).bytes)
}

/// To which message.
pub(super) fn reaction_to(bytes: &[u8]) -> Option<MessageId> {
    MessageId::from_order_key(OrderKey(bytes.get(17..33)?.try_into().ok()?))
}

/// With which emoji, and whose.
pub(super) fn reaction_of(bytes: &[u8]) -> Option<(Emoji, UserId)> {
    let rest = bytes.get(33..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    let emoji = Emoji::kept(std::str::from_utf8(&rest[..end]).ok()?);
    let (user, rest) = split_name(&rest[end + 1..])?;
    rest.is_empty().then_some((emoji, user))
}

/// The row by which a user's inbox finds a conversation.
pub(super) fn listed(user: &UserId, conversation: ConversationId, listing: Listing) -> Key {
    match listing {
        Listing::Active(activity) => self::activity(user, &InboxKey { activity, conversation }),
        Listing::Busy => rows(Tag::BusyByUser, &[&name(user), conversation.0.as_bytes()]),
        Listing::Large => rows(Tag::LargeByUser, &[&name(user), conversation.0.as_bytes()]),
    }
}

pub(super) fn busy(user: &UserId) -> Span {
    Span::of_prefix(Table::Rows, rows(Tag::BusyByUser, &[&name(user)]).bytes)
}

/// Names a busy conversation to the sweep, which looks at it again when it may have become quiet.
pub(super) fn busy_conversation(id: ConversationId) -> Key {
    rows(Tag::Busy, &[id.0.as_bytes()])
}

/// The conversation that [`busy_conversation`] names. `None` where it is another key.
pub(super) fn busy_conversation_id(key: &Key) -> Option<ConversationId> {
    match (key.table, key.bytes.split_first()) {
        (Table::Rows, Some((&tag, id))) if tag == Tag::Busy as u8 => conversation_id(id.try_into().ok()?),
        _ => None,
    }
}

pub(super) fn larges(user: &UserId) -> Span {
    Span::of_prefix(Table::Rows, rows(Tag::LargeByUser, &[&name(user)]).bytes)
}

/// The conversation that a key of [`larges`] or [`busy`] ends with.
pub(super) fn listed_id(bytes: &[u8]) -> Option<ConversationId> {
    conversation_id(bytes.last_chunk::<16>()?)
}

fn conversation_id(bytes: &[u8; 16]) -> Option<ConversationId> {
    Some(ConversationId(uuid::Uuid::from_bytes(*bytes)))
}

// Whole lists, for one who looks at all of them.

pub(super) fn all_activities() -> Span {
    Span { table: Table::Activity, start: Vec::new(), end: vec![0xff; 64] }
}

pub(super) fn all_busy() -> Span {
    all_after(Tag::BusyByUser, None)
}

pub(super) fn all_larges() -> Span {
    all_after(Tag::LargeByUser, None)
}

pub(super) fn all_pairs() -> Span {
    all_after(Tag::Pair, None)
}

/// What of a span lies behind the key with these bytes.
pub(super) fn behind(span: Span, bytes: Option<Vec<u8>>) -> Span {
    match bytes {
        Some(bytes) => {
            let key = Key { table: span.table, bytes };
            span.behind(&Span::of_key(key))
        }
        None => span,
    }
}

/// Whose inbox a row of a list belongs to, and which conversation it lists.
pub(super) fn listing_of(row: &Key) -> Option<(UserId, ConversationId)> {
    let named = if row.table == Table::Activity { &row.bytes[..] } else { row.bytes.get(1..)? };
    let (user, _) = split_name(named)?;
    let id = if row.table == Table::Activity { inbox_key(&row.bytes)?.conversation } else { listed_id(&row.bytes)? };
    Some((user, id))
}

// Expiry: hour ‖ table ‖ key of what expires. An hour's rows have all expired once it has begun.

const HOUR_MICROS: i64 = 3_600 * 1_000_000;

fn hour(moment: Timestamp) -> u32 {
    u32::try_from(moment.micros() / HOUR_MICROS).expect("the year 9999 lies within 71 million hours of 1970")
}

pub(super) fn expiry(of: &Key, expires_at: Timestamp) -> Key {
    rows(Tag::Expiry, &[&(hour(expires_at) + 1).to_be_bytes(), &[of.table as u8], &of.bytes])
}

/// Of all that has expired by now.
pub(super) fn expired(now: Timestamp) -> Span {
    let start = rows(Tag::Expiry, &[]).bytes;
    let end = rows(Tag::Expiry, &[&(hour(now) + 1).to_be_bytes()]).bytes;
    Span { table: Table::Rows, start, end }
}

/// What a row of [`expired`] speaks of.
pub(super) fn expired_key(bytes: &[u8]) -> Option<Key> {
    let (table, key) = bytes.get(5..)?.split_first()?;
    let table = *Table::ALL.get(usize::from(*table))?;
    Some(Key { table, bytes: key.to_vec() })
}

#[cfg(test)]
#[path = "key_test.rs"]
mod tests;
