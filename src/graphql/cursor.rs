//! Cursors: the clustering key of a row, prefixed with the name of its list, so that other lists
//! refuse it.
//!
//! A cursor holds no state of a server or driver. It works in both directions, on any server and on
//! either store, and does not expire, where its list does not say otherwise.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::id::{KeyBytes, TEXT_BYTES_MAX};
use crate::chat::{BlockKey, SearchKey};
use crate::model::{
    ConversationId, InboxKey, LiveCursor, LiveMessageId, LivePosition, MessageId, OrderKey, PinKey,
    Timestamp, UserId, WriterNumber,
};

const VERSION: u8 = 1;

/// List with cursors, and the partition that it reads.
#[derive(Debug, Clone, Copy)]
pub enum List<'a> {
    /// Messages of a conversation: the history and `messageAdded`.
    Messages(ConversationId),
    /// Events of a conversation.
    Events(ConversationId),
    /// Live messages of a conversation.
    Lives(ConversationId),
    Participants(ConversationId),
    /// Bans of a conversation.
    Bans(ConversationId),
    /// Receipts of a message.
    Receipts(ConversationId, MessageId),
    Inbox(&'a UserId),
    /// Changes of a user's inbox.
    Updates(&'a UserId),
    /// Users whom a user blocks.
    Blocked(&'a UserId),
    /// Matches of a search in a conversation. The second part is the search's fingerprint.
    MatchesIn(ConversationId, [u8; 8]),
    /// Matches of a search in all conversations of a user.
    Matches(&'a UserId, [u8; 8]),
    /// Pinned messages of a conversation.
    Pinned(ConversationId),
    /// Users, for services.
    Users,
    /// Conversations, for services.
    Conversations,
    /// Conversations of a user, for services.
    ConversationsOf(&'a UserId),
    /// Reports, for services.
    Reports,
    /// Events of all conversations, for services.
    Outbox,
}

impl List<'_> {
    /// Common prefix of the list's cursors: version, name and partition.
    fn prefix(self) -> Vec<u8> {
        // Capital letters, as global ids use small ones: an id never decodes as a cursor.
        let (name, partition) = match self {
            Self::Messages(conversation) => (b'M', conversation.0.as_bytes().to_vec()),
            Self::Events(conversation) => (b'V', conversation.0.as_bytes().to_vec()),
            Self::Lives(conversation) => (b'W', conversation.0.as_bytes().to_vec()),
            Self::Participants(conversation) => (b'P', conversation.0.as_bytes().to_vec()),
            Self::Bans(conversation) => (b'X', conversation.0.as_bytes().to_vec()),
            Self::Receipts(conversation, message) => (
                b'R',
                [conversation.0.into_bytes(), message.order_key().0].concat(),
            ),
            Self::Inbox(user) => (b'I', fingerprint(user)),
            Self::Updates(user) => (b'U', fingerprint(user)),
            Self::Blocked(user) => (b'B', fingerprint(user)),
            Self::MatchesIn(conversation, search) => (
                b'C',
                [conversation.0.as_bytes(), search.as_slice()].concat(),
            ),
            Self::Matches(user, search) => (b'S', [fingerprint(user), search.to_vec()].concat()),
            Self::Pinned(conversation) => (b'N', conversation.0.as_bytes().to_vec()),
            Self::Users => (b'A', Vec::new()),
            Self::Conversations => (b'L', Vec::new()),
            Self::ConversationsOf(user) => (b'T', fingerprint(user)),
            Self::Reports => (b'Q', Vec::new()),
            Self::Outbox => (b'O', Vec::new()),
        };
        [&[VERSION, name], partition.as_slice()].concat()
    }

    /// Encoder for many cursors of this list.
    pub(super) fn cursors(self) -> CursorEncoder {
        CursorEncoder(self.prefix())
    }

    fn decode(self, text: &str) -> Option<Vec<u8>> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        bytes
            .strip_prefix(self.prefix().as_slice())
            .map(<[u8]>::to_vec)
    }
}

/// Encoder of the cursors of one list. It computes their common prefix once.
pub(super) struct CursorEncoder(Vec<u8>);

impl CursorEncoder {
    /// Cursor of a position in a stream of this list.
    pub(super) fn at(&self, position: &ResumePosition) -> String {
        match position {
            ResumePosition::Order(key) => self.of(key),
            ResumePosition::Live(cursor) => self.of(cursor),
        }
    }

    pub(super) fn of(&self, key: &impl CursorKey) -> String {
        let mut bytes = KeyBytes::from_slice(&self.0);
        key.append_to(&mut bytes);
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

/// Position of a stream, which its cursors encode.
#[derive(Debug, Clone)]
pub(super) enum ResumePosition {
    Order(OrderKey),
    Live(LiveCursor),
}

impl From<OrderKey> for ResumePosition {
    fn from(position: OrderKey) -> Self {
        Self::Order(position)
    }
}

impl From<LiveCursor> for ResumePosition {
    fn from(cursor: LiveCursor) -> Self {
        Self::Live(cursor)
    }
}

/// Short hash that binds a cursor to its user without repeating the username.
fn fingerprint(user: &UserId) -> Vec<u8> {
    Sha256::digest(user.as_str())[..8].to_vec()
}

/// Key that a cursor encodes.
pub trait CursorKey: Sized {
    /// Appends the bytes of the key.
    fn append_to(&self, bytes: &mut KeyBytes);
    fn from_key(bytes: &[u8]) -> Option<Self>;

    fn encode(&self, list: List<'_>) -> String {
        list.cursors().of(self)
    }

    /// `None` for a text that is no cursor of this list.
    fn decode(text: &str, list: List<'_>) -> Option<Self> {
        Self::from_key(&list.decode(text)?)
    }
}

impl CursorKey for OrderKey {
    fn append_to(&self, bytes: &mut KeyBytes) {
        bytes.extend_from_slice(&self.0);
    }

    fn from_key(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.try_into().ok()?))
    }
}

impl CursorKey for InboxKey {
    fn append_to(&self, bytes: &mut KeyBytes) {
        bytes.extend_from_slice(&self.activity.micros().to_be_bytes());
        bytes.extend_from_slice(self.conversation.0.as_bytes());
    }

    fn from_key(bytes: &[u8]) -> Option<Self> {
        let (activity, conversation) = bytes.split_first_chunk::<8>()?;
        let micros = i64::from_be_bytes(*activity);
        let activity = Timestamp::from_micros(micros);
        // `from_micros` clamps: another result means a time that no cursor of ours has.
        (activity.micros() == micros).then_some(())?;
        Some(Self {
            activity,
            conversation: ConversationId(uuid::Uuid::from_slice(conversation).ok()?),
        })
    }
}

impl CursorKey for LiveCursor {
    fn append_to(&self, bytes: &mut KeyBytes) {
        bytes.extend_from_slice(&self.at.micros().to_be_bytes());
        for LivePosition {
            id,
            writer,
            position,
        } in &self.lives
        {
            bytes.extend_from_slice(id.0.as_bytes());
            bytes.push(writer.get());
            bytes.extend_from_slice(&position.to_be_bytes());
        }
    }

    fn from_key(bytes: &[u8]) -> Option<Self> {
        let (at, lives) = bytes.split_first_chunk::<8>()?;
        let (lives, rest) = lives.as_chunks::<{ LivePosition::BYTES }>();
        if !rest.is_empty() || lives.len() > Self::COUNT_MAX {
            return None;
        }
        let position = |bytes: &[u8; LivePosition::BYTES]| {
            let (id, rest) = bytes.split_first_chunk::<16>()?;
            let (writer, position) = rest.split_first()?;
            Some(LivePosition {
                id: LiveMessageId(uuid::Uuid::from_bytes(*id)),
                writer: WriterNumber::new(*writer)?,
                position: u32::from_be_bytes(position.try_into().ok()?),
            })
        };
        let micros = i64::from_be_bytes(*at);
        let at = Timestamp::from_micros(micros);
        (at.micros() == micros).then_some(())?;
        Some(Self {
            at,
            lives: lives.iter().map(position).collect::<Option<_>>()?,
        })
    }
}

impl CursorKey for SearchKey {
    fn append_to(&self, bytes: &mut KeyBytes) {
        bytes.extend_from_slice(&self.position.0);
        bytes.extend_from_slice(self.conversation.0.as_bytes());
    }

    fn from_key(bytes: &[u8]) -> Option<Self> {
        let (position, conversation) = bytes.split_first_chunk::<16>()?;
        Some(Self {
            position: OrderKey(*position),
            conversation: ConversationId(uuid::Uuid::from_slice(conversation).ok()?),
        })
    }
}

impl CursorKey for ConversationId {
    fn append_to(&self, bytes: &mut KeyBytes) {
        bytes.extend_from_slice(self.0.as_bytes());
    }

    fn from_key(bytes: &[u8]) -> Option<Self> {
        uuid::Uuid::from_slice(bytes).ok().map(Self)
    }
}

impl CursorKey for UserId {
    fn append_to(&self, bytes: &mut KeyBytes) {
        bytes.extend_from_slice(self.as_str().as_bytes());
    }

    fn from_key(bytes: &[u8]) -> Option<Self> {
        Self::parse(std::str::from_utf8(bytes).ok()?).ok()
    }
}

impl CursorKey for BlockKey {
    fn append_to(&self, bytes: &mut KeyBytes) {
        bytes.extend_from_slice(&self.change().0);
        bytes.extend_from_slice(self.user.as_str().as_bytes());
    }

    fn from_key(bytes: &[u8]) -> Option<Self> {
        let (change, user) = bytes.split_first_chunk::<16>()?;
        Some(Self::new(OrderKey(*change), UserId::from_key(user)?))
    }
}

impl CursorKey for PinKey {
    fn append_to(&self, bytes: &mut KeyBytes) {
        bytes.extend_from_slice(&self.pinned.0);
        bytes.extend_from_slice(&self.message.0);
    }

    fn from_key(bytes: &[u8]) -> Option<Self> {
        let (pinned, message) = bytes.split_first_chunk::<16>()?;
        Some(Self {
            pinned: OrderKey(*pinned),
            message: OrderKey::from_key(message)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_one_of_its_list_and_of_no_other() {
        let (one, other) = (ConversationId::random(), ConversationId::random());
        let key = OrderKey([7; 16]);
        let cursor = key.encode(List::Messages(one));
        assert_eq!(OrderKey::decode(&cursor, List::Messages(one)), Some(key));
        for list in [
            List::Messages(other),
            List::Events(one),
            List::Lives(one),
            List::Participants(one),
            List::Bans(one),
            List::Pinned(one),
            List::Reports,
            List::Outbox,
        ] {
            assert_eq!(OrderKey::decode(&cursor, list), None);
        }
        assert_ne!(List::Bans(one).prefix(), List::Pinned(one).prefix());
    }

    #[test]
    fn a_live_cursor_survives_the_round_trip_and_takes_few_bytes() {
        let list = List::Lives(ConversationId::random());
        let part = |number: u8| LivePosition {
            id: LiveMessageId(uuid::Uuid::from_u128(u128::from(number))),
            writer: WriterNumber::new(1 + number).unwrap(),
            position: u32::from(number) << 8,
        };
        for (count, text_bytes) in [(0, 35), (1, 63), (8, 259)] {
            let cursor = LiveCursor {
                at: Timestamp::from_micros(1_742_000_000_123_456),
                lives: (0..count).map(part).collect(),
            };
            let text = cursor.encode(list);
            assert_eq!(text.len(), text_bytes);
            assert_eq!(LiveCursor::decode(&text, list), Some(cursor));
        }
        let key = |lives: &[u8]| [&1_i64.to_be_bytes(), lives].concat();
        let no_writer = [0; LivePosition::BYTES];
        let too_many = [1; 9 * LivePosition::BYTES];
        for lives in [&no_writer[..], &[1; 20], &too_many] {
            assert_eq!(LiveCursor::from_key(&key(lives)), None);
        }
        assert_eq!(LiveCursor::from_key(&[0; 7]), None);
    }

    #[test]
    fn an_inbox_cursor_survives_the_round_trip() {
        let user = UserId::parse("alice").unwrap();
        let key = InboxKey {
            activity: Timestamp::from_micros(1_742_000_000_123_456),
            conversation: ConversationId::random(),
        };
        let cursor = key.encode(List::Inbox(&user));
        assert_eq!(InboxKey::decode(&cursor, List::Inbox(&user)), Some(key));
        assert_eq!(
            InboxKey::decode(&cursor, List::Inbox(&UserId::parse("bob").unwrap())),
            None
        );
        assert_eq!(InboxKey::decode("%%%", List::Inbox(&user)), None);
    }
}
