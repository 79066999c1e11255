//! The words of the model, made short: users, conversations and messages for tests, at times that a test can name.
//!
//! Time is microseconds after [`START`]. The same number is always the same id.
//!
//! Cases of one test run may share a database, so users and conversations belong to their case: they begin with its [salt](new_salt), in the
//! order that they have without it. What is made before a case begins has no salt, or that of another.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uuid::Uuid;
use wideroom::model::{
    Body, Change, ChangeId, ChangeKind, Content, Conversation, ConversationId, ConversationKind,
    IdempotencyKey, InputHash, Membership, Message, MessageId, MessageKind, Role, TimeUuid,
    Timestamp, UserId,
};
use wideroom::store::{FlagsChange, ImportPositions, ImportRow, NewConversation, NewMessage};

/// 2026-01-01T00:00:00Z, from which tests count.
pub const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);
pub const HOUR: i64 = 3_600 * 1_000_000;
/// Time of the stores' clock.
pub const NOW: Timestamp = START.plus_micros(HOUR);

thread_local! {
    /// Salt of the test case that this thread runs. A case creates all its names and ids on one thread.
    static SALT: Cell<Option<u32>> = const { Cell::new(None) };
    static IS_AMONG_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// From here on this thread's words are those of a new case: no other of this process has them.
pub fn new_salt() {
    static LAST: AtomicU32 = AtomicU32::new(0);
    SALT.set(Some(LAST.fetch_add(1, Ordering::Relaxed) + 1));
    IS_AMONG_OTHERS.set(false);
}

/// The same, for a case that shares its database with others: what is asked of the whole of it, others have a part in.
pub fn new_salt_among_others() {
    new_salt();
    IS_AMONG_OTHERS.set(true);
}

pub fn is_among_others() -> bool {
    IS_AMONG_OTHERS.get()
}

/// Name with the salt of this test case. An agent stays one.
pub fn salted(name: &str) -> String {
    match name.strip_prefix(UserId::AGENT_PREFIX) {
        Some(rest) => format!("{}{}{rest}", UserId::AGENT_PREFIX, prefix()),
        None => format!("{}{name}", prefix()),
    }
}

/// Prefix of constant length, so that tests can build names of maximum length. Empty without a salt.
fn prefix() -> String {
    SALT.get()
        .map_or_else(String::new, |salt| format!("{salt:07x}."))
}

pub fn user(name: &str) -> UserId {
    UserId::parse(&salted(name)).unwrap()
}

/// The longest name that there is of nothing but this letter.
pub fn longest_user(letter: char) -> UserId {
    let letters = (UserId::BYTES_MAX - prefix().len()) / letter.len_utf8();
    user(&letter.to_string().repeat(letters))
}

pub fn users<const N: usize>(names: [&str; N]) -> [UserId; N] {
    names.map(user)
}

/// So many users, whose names sort as their numbers do.
pub fn crowd(count: usize) -> Vec<UserId> {
    (0..count).map(|n| user(&format!("crowd{n:03}"))).collect()
}

/// A group's id: greater ones for greater numbers.
pub fn conversation_id(number: u8) -> ConversationId {
    // The number comes first, so that first bytes of all kinds are met.
    let [a, b, c, d] = SALT.get().unwrap_or_default().to_be_bytes();
    ConversationId(Uuid::from_bytes([
        number, 0x5a, a, b, c, d, 0x40, 0, 0x80, 0, 0, 0, 0, 0, 0, number,
    ]))
}

/// The id of a message.
pub fn id(micros: i64) -> MessageId {
    TimeUuid::new(START.plus_micros(micros), [0x80, 0, 1, 0, 0, 0, 0, 0])
}

/// The id of a change: after the message of the same microsecond.
pub fn change(micros: i64) -> ChangeId {
    TimeUuid::new(START.plus_micros(micros), [0x80, 1, 1, 0, 0, 0, 0, 0])
}

/// A change of a message, as the log has it.
pub fn change_of(id: ChangeId, kind: ChangeKind, message: MessageId, by: &UserId) -> Change {
    Change {
        id,
        kind,
        message,
        user: by.clone(),
    }
}

/// A change of flags that leaves them all as they are.
pub fn flags_change(conversation: ConversationId, change: ChangeId) -> FlagsChange {
    FlagsChange {
        conversation,
        muted: None,
        pinned: None,
        archive: None,
        level: None,
        change,
    }
}

/// Any order key of that time: its first eight bytes are the tick, the others these.
pub fn id_with(micros: i64, rest: [u8; 8]) -> MessageId {
    TimeUuid::new(START.plus_micros(micros), rest)
}

pub fn content(text: &str) -> Content {
    Content {
        body: Body::parse(text.to_owned(), Body::BYTES_MAX, false).unwrap(),
        ..Content::default()
    }
}

/// A TEXT message without anything special.
pub fn text(conversation: ConversationId, id: MessageId, sender: &UserId) -> Message {
    Message::new(
        conversation,
        id,
        sender.clone(),
        MessageKind::Text,
        content(&format!("said by {sender} at {id}")),
    )
}

pub fn system(conversation: ConversationId, id: MessageId, sender: &UserId) -> Message {
    Message {
        kind: MessageKind::System,
        ..text(conversation, id, sender)
    }
}

pub fn deleted(conversation: ConversationId, id: MessageId, sender: &UserId) -> Message {
    Message {
        content: None,
        deleted_at: Some(NOW),
        ..text(conversation, id, sender)
    }
}

/// A message on its way in, with the hash of its input where it has a key.
pub fn new(message: Message) -> NewMessage {
    let input_hash = message
        .client_key
        .as_ref()
        .and(message.content.as_ref())
        .map(|content| InputHash::of_send(content, message.reply_to));
    NewMessage {
        message: Arc::new(message),
        input_hash,
        is_by_service: false,
    }
}

pub fn key(text: &str) -> IdempotencyKey {
    IdempotencyKey::parse(text).unwrap()
}

pub fn conversation(
    id: ConversationId,
    kind: ConversationKind,
    created_at: Timestamp,
) -> Conversation {
    Conversation {
        id,
        kind,
        name: None,
        created_at,
        created_by: None,
        input_hash: None,
        slow_mode_seconds: 0,
        history: Default::default(),
        is_large: false,
    }
}

/// A group that was made at [`START`], its first participant being the owner.
pub fn group(id: ConversationId, people: &[UserId]) -> NewConversation {
    let role = |n| if n == 0 { Role::Owner } else { Role::Member };
    NewConversation {
        conversation: conversation(id, ConversationKind::Group, START),
        participants: people
            .iter()
            .enumerate()
            .map(|(n, user)| (user.clone(), role(n)))
            .collect(),
        change: change(0),
        profile: Default::default(),
    }
}

/// The direct conversation of two, or of one with themselves.
pub fn direct(one: &UserId, other: &UserId) -> NewConversation {
    let mut participants = vec![(one.clone(), Role::Member)];
    if one != other {
        participants.push((other.clone(), Role::Member));
    }
    let id = ConversationId::direct(one, other);
    NewConversation {
        conversation: conversation(id, ConversationKind::Direct, START),
        participants,
        change: change(0),
        profile: Default::default(),
    }
}

/// An import line of a group that was made at [`START`].
pub fn group_row(id: ConversationId, last_activity: Option<Timestamp>) -> ImportRow {
    ImportRow::Conversation {
        conversation: conversation(id, ConversationKind::Group, START),
        last_activity,
        profile: Default::default(),
    }
}

/// An import line of one who is in it now.
pub fn participant_row(conversation: ConversationId, user: &UserId) -> ImportRow {
    participant_row_at(conversation, user, ImportPositions::default())
}

pub fn participant_row_at(
    conversation: ConversationId,
    user: &UserId,
    positions: ImportPositions,
) -> ImportRow {
    ImportRow::Participant {
        conversation,
        user: user.clone(),
        membership: Membership::joined(Role::Member),
        positions,
        ban: None,
    }
}

pub fn message_row(message: Message) -> ImportRow {
    ImportRow::Message(Arc::new(message))
}
