//! The inbox: conversations as one user's list shows them, and how unread follows from a marker.

use super::{ConversationId, MessageId, OrderKey, Timestamp};

/// Where an entry stands in its list: the later activity first, then the greater conversation id.
///
/// `Ord` is the order of the list: the smallest key is shown first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InboxKey {
    pub activity: Timestamp,
    pub conversation: ConversationId,
}

impl Ord for InboxKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.activity, other.conversation).cmp(&(self.activity, self.conversation))
    }
}

impl PartialOrd for InboxKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// How far a user has read, as a maximum register: the greater one is the later one.
///
/// Marking read moves `up_to` forward within an epoch; marking unread opens a new epoch, in which it may lie further back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReadMarker {
    /// Microseconds since 1970, or 0 for the first one.
    pub epoch: u64,
    pub up_to: OrderKey,
}

impl ReadMarker {
    pub const BYTES: usize = 24;

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[8..].copy_from_slice(&self.up_to.0);
        bytes
    }

    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (epoch, up_to) = bytes.split_first_chunk::<8>().expect("24 bytes");
        Self { epoch: u64::from_be_bytes(*epoch), up_to: OrderKey(up_to.try_into().expect("16 bytes")) }
    }

    /// Of one who joins, or joins again: all up to the message that tells of it is read, also what was marked unread before.
    pub fn at_joining(message: MessageId) -> Self {
        Self { epoch: message.moment().micros().cast_unsigned(), up_to: message.order_key() }
    }

    /// The marker that counts: a user has read what they wrote themselves, unless they marked it unread since.
    pub fn with_sent(self, sent_up_to: Option<MessageId>) -> OrderKey {
        match sent_up_to {
            Some(sent) if sent.moment().micros().cast_unsigned() > self.epoch => self.up_to.max(sent.order_key()),
            _ => self.up_to,
        }
    }
}

/// What a user has set on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct Flags {
    pub is_muted: bool,
    pub is_pinned: bool,
    pub archived_at: Option<Timestamp>,
}

/// One user's entry for one conversation, as the store keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InboxRow {
    pub conversation: ConversationId,
    pub last_activity: Timestamp,
    pub last_message: Option<MessageId>,
    pub marker: ReadMarker,
    pub sent_up_to: Option<MessageId>,
    pub flags: Flags,
}

impl InboxRow {
    pub fn key(&self) -> InboxKey {
        InboxKey { activity: self.last_activity, conversation: self.conversation }
    }

    pub fn read_up_to(&self) -> OrderKey {
        self.marker.with_sent(self.sent_up_to)
    }

    /// Whether the last message lies after the marker: without that, nothing is unread and nothing need be read.
    pub fn may_be_unread(&self) -> bool {
        self.last_message.is_some_and(|last| last.order_key() > self.read_up_to())
    }

    /// An archive ends with any newer message, unless the entry is muted.
    pub fn is_archived(&self) -> bool {
        self.flags.archived_at.is_some_and(|archived| self.flags.is_muted || self.last_message.is_none_or(|last| last.moment() <= archived))
    }
}

/// The answer to "how many are unread", and which is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unread {
    pub count: u32,
    /// There are more than `count`, or there may be: the store read as many rows as it may.
    pub is_capped: bool,
    pub first: Option<MessageId>,
}

impl Unread {
    pub const CAP: u32 = 99;
    pub const CAP_MAX: u32 = 999;
    /// Rows read, at most.
    pub const ROWS_MAX: usize = 1_000;

    /// Counts one more unread message, later than those before. `false` where that one is beyond the cap: the count ends there, capped.
    pub fn add(&mut self, message: MessageId, cap: u32) -> bool {
        self.first = self.first.or(Some(message));
        self.is_capped = self.count >= cap;
        self.count += u32::from(!self.is_capped);
        !self.is_capped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    #[test]
    fn a_later_epoch_wins_over_a_later_place() {
        let read = ReadMarker { epoch: 5, up_to: id(900).order_key() };
        let unread = ReadMarker { epoch: 6, up_to: id(100).order_key() };
        assert!(unread.to_bytes() > read.to_bytes());
        assert_eq!(ReadMarker::from_bytes(unread.to_bytes()), unread);
    }

    #[test]
    fn what_was_sent_before_marking_unread_does_not_count_as_read() {
        let marker = ReadMarker { epoch: 500, up_to: id(100).order_key() };
        assert_eq!(marker.with_sent(Some(id(400))), id(100).order_key());
        assert_eq!(marker.with_sent(Some(id(600))), id(600).order_key());
    }
}
