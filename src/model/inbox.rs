//! Inbox of a user: the ordered list of conversations, and unread counts computed from read markers.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use strum::{FromRepr, VariantArray};

use super::{Conversation, ConversationId, Floor, MessageId, OrderKey, Timestamp, UserId};

/// Sort key of an inbox entry: later activity first, then the greater conversation id.
///
/// `Ord` is the order of the list, so the smallest key comes first.
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

/// Position up to which a user has read, as a maximum register: of two values the greater is the later.
///
/// Marking as read advances `up_to` within an epoch. Marking as unread starts a new epoch, whose `up_to` may be smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ReadMarker {
    /// Start of the epoch in microseconds since 1970, or 0 for the first epoch.
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
        Self {
            epoch: u64::from_be_bytes(*epoch),
            up_to: OrderKey(up_to.try_into().expect("16 bytes")),
        }
    }

    /// Marker of a user who joins or rejoins. Everything up to the SYSTEM message of the joining counts as read, even after a mark as unread.
    pub fn at_joining(message: MessageId) -> Self {
        Self {
            epoch: message.moment().micros().cast_unsigned(),
            up_to: message.order_key(),
        }
    }

    /// Marker of an agent, for which nothing is unread.
    pub fn up_to_newest(newest: Option<MessageId>) -> Self {
        Self {
            epoch: 0,
            up_to: newest.map_or(OrderKey::MIN, MessageId::order_key),
        }
    }

    /// Effective marker: sending a message also reads up to it, unless the user has marked it as unread since.
    pub fn with_sent(self, sent_up_to: Option<MessageId>) -> OrderKey {
        match sent_up_to {
            Some(sent) if sent.moment().micros().cast_unsigned() > self.epoch => {
                self.up_to.max(sent.order_key())
            }
            _ => self.up_to,
        }
    }
}

/// Position of a user's newest act of one kind, as a maximum register: of two values the greater bytes are the later act.
///
/// An act of a service in the user's name shows in markers and receipts, but it is no consent of the user. At one
/// position the user's own act is the greater one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActPosition {
    pub up_to: OrderKey,
    pub is_by_service: bool,
}

impl ActPosition {
    /// Last byte of a service's act.
    const BY_SERVICE: u8 = 1;

    pub fn own(up_to: OrderKey) -> Self {
        Self {
            up_to,
            is_by_service: false,
        }
    }

    /// An own act is its order key. A service's act is the position just before, and one byte.
    pub fn to_bytes(self) -> Vec<u8> {
        if self.is_by_service {
            [self.up_to.before().0.as_slice(), &[Self::BY_SERVICE]].concat()
        } else {
            self.up_to.0.to_vec()
        }
    }

    /// `None` if the bytes are no position.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes.split_at_checked(16)? {
            (key, []) => Some(Self::own(OrderKey(key.try_into().ok()?))),
            (key, [Self::BY_SERVICE]) => {
                let before = u128::from_be_bytes(key.try_into().ok()?);
                Some(Self {
                    up_to: OrderKey(before.checked_add(1)?.to_be_bytes()),
                    is_by_service: true,
                })
            }
            (_, _) => None,
        }
    }
}

/// Messages of a conversation that notify a user. A muted entry notifies of nothing. Stores persist the index in this list, so never
/// reorder it.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    FromRepr,
    VariantArray,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(rename_all = "UPPERCASE")]
#[repr(u8)]
pub enum NotificationLevel {
    All,
    Mentions,
    None,
}

impl NotificationLevel {
    /// The level of a user who has set none: in a large conversation only mentions notify.
    pub const fn default_of(is_large: bool) -> Self {
        if is_large { Self::Mentions } else { Self::All }
    }

    /// Index in the list of variants.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// Settings of a user on an inbox entry.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct Flags {
    pub is_muted: bool,
    pub is_pinned: bool,
    pub archived_at: Option<Timestamp>,
    /// `None` is the default of the conversation. Stores encode it behind the other flags.
    #[serde(skip)]
    pub level: Option<NotificationLevel>,
}

/// Stored inbox entry of one user for one conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InboxRow {
    pub conversation: ConversationId,
    pub last_activity: Timestamp,
    pub last_message: Option<MessageId>,
    pub marker: ReadMarker,
    pub sent_up_to: Option<MessageId>,
    /// Whether a service sent that message in the user's name, before the user acted.
    pub is_sent_by_service: bool,
    pub flags: Flags,
    /// Floor of the user, which the chat sets. Stores leave it at [`Floor::NONE`].
    pub floor: Floor,
}

impl InboxRow {
    /// Row of an agent, which has none: made from the head of the conversation, read up to its newest message.
    pub fn of_agent(
        conversation: ConversationId,
        last_activity: Timestamp,
        last_message: Option<MessageId>,
    ) -> Self {
        Self {
            conversation,
            last_activity,
            last_message,
            marker: ReadMarker::up_to_newest(last_message),
            sent_up_to: None,
            is_sent_by_service: false,
            flags: Flags::default(),
            floor: Floor::NONE,
        }
    }

    pub fn key(&self) -> InboxKey {
        InboxKey {
            activity: self.last_activity,
            conversation: self.conversation,
        }
    }

    /// The position after which messages are unread: the marker, or the floor if that is later.
    pub fn read_up_to(&self) -> OrderKey {
        self.marker.with_sent(self.sent_up_to).max(self.floor.key)
    }

    /// The same row for a user with this floor.
    #[must_use]
    pub fn above(self, floor: Floor) -> Self {
        Self { floor, ..self }
    }

    /// The last message, if it lies above the floor.
    pub fn visible_last_message(&self) -> Option<MessageId> {
        self.last_message.filter(|last| self.floor.shows(*last))
    }

    /// Whether the user acted in the conversation since joining it: sent a message, or moved the marker.
    pub fn is_answered(&self) -> bool {
        let joined = self.marker.epoch;
        let has_moved = self.marker.up_to.moment().micros().cast_unsigned() != joined;
        has_moved
            || self
                .sent_up_to
                .is_some_and(|sent| sent.moment().micros().cast_unsigned() > joined)
    }

    /// Which of a user's large conversations their inbox shows, where it does not show all: the smallest ranks first.
    pub fn large_rank(&self) -> impl Ord + use<> {
        std::cmp::Reverse((self.is_answered(), self.read_up_to(), self.conversation))
    }

    /// Whether the last message is newer than the marker. If not, the unread count is 0 without a read of messages.
    pub fn may_be_unread(&self) -> bool {
        self.last_message
            .is_some_and(|last| last.order_key() > self.read_up_to())
    }

    /// A newer message ends the archiving, unless the entry is muted.
    pub fn is_archived(&self) -> bool {
        self.flags.archived_at.is_some_and(|archived| {
            self.flags.is_muted
                || self
                    .last_message
                    .is_none_or(|last| last.moment() <= archived)
        })
    }
}

/// Unread count of a conversation, with the first unread message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unread {
    pub count: u32,
    /// Whether the count is a lower bound: more messages than the cap are unread, or the store has not read all of them yet.
    pub is_capped: bool,
    pub first: Option<MessageId>,
}

impl Unread {
    pub const CAP: u32 = 99;
    pub const CAP_MAX: u32 = 999;
    /// Rows that one read takes to compute a count.
    pub const ROWS_MAX: usize = 1_000;

    /// Counts the next unread message in order. Returns `false` if it exceeds the cap, which ends the count.
    pub fn add(&mut self, message: MessageId, cap: u32) -> bool {
        self.first = self.first.or(Some(message));
        self.is_capped = self.count >= cap;
        self.count += u32::from(!self.is_capped);
        !self.is_capped
    }
}

/// Senders whose messages never count as unread for a user, who has blocked them.
#[derive(Debug, Clone, Default)]
pub struct IgnoredSenders {
    /// `None` for most users, who block nobody.
    names: Option<Arc<HashSet<UserId>>>,
    fingerprint: u64,
}

impl IgnoredSenders {
    pub fn of(names: impl IntoIterator<Item = UserId>) -> Self {
        let mut sorted: Vec<_> = names.into_iter().collect();
        if sorted.is_empty() {
            return Self::default();
        }
        sorted.sort_unstable();
        let mut hasher = DefaultHasher::new();
        sorted.hash(&mut hasher);
        Self {
            names: Some(Arc::new(sorted.into_iter().collect())),
            fingerprint: hasher.finish(),
        }
    }

    pub fn contains(&self, name: &str) -> bool {
        self.names
            .as_ref()
            .is_some_and(|names| names.contains(name))
    }

    /// The same by the bytes of a stored name.
    pub fn contains_bytes(&self, name: &[u8]) -> bool {
        self.names.is_some() && std::str::from_utf8(name).is_ok_and(|name| self.contains(name))
    }

    /// Hash of the names, for caches of this process. 0 for nobody.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// Those large conversations of a user that their inbox does not show, by the rows of all of them.
pub fn hidden_larges(rows: impl IntoIterator<Item = InboxRow>) -> HashSet<ConversationId> {
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_unstable_by_key(InboxRow::large_rank);
    let shown = rows
        .iter()
        .filter(|row| row.is_answered())
        .count()
        .max(Conversation::LARGE_MERGED_MAX);
    rows.into_iter()
        .skip(shown)
        .map(|row| row.conversation)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    #[test]
    fn an_own_act_is_greater_than_one_of_a_service_at_the_same_position() {
        let (own, earlier, later) = (
            ActPosition::own(id(500).order_key()),
            ActPosition::own(id(499).order_key()),
            ActPosition::own(id(501).order_key()),
        );
        let by_service = ActPosition {
            is_by_service: true,
            ..own
        };
        let bytes = [earlier, by_service, own, later].map(ActPosition::to_bytes);
        assert!(bytes.is_sorted());
        for act in [own, by_service] {
            assert_eq!(ActPosition::from_bytes(&act.to_bytes()), Some(act));
        }
        for broken in [&[0; 15][..], &[0; 18], &[2; 17]] {
            assert_eq!(ActPosition::from_bytes(broken), None);
        }
    }

    #[test]
    fn a_later_epoch_wins_over_a_later_position() {
        let read = ReadMarker {
            epoch: 5,
            up_to: id(900).order_key(),
        };
        let unread = ReadMarker {
            epoch: 6,
            up_to: id(100).order_key(),
        };
        assert!(unread.to_bytes() > read.to_bytes());
        assert_eq!(ReadMarker::from_bytes(unread.to_bytes()), unread);
    }

    fn row(marker: ReadMarker, sent_up_to: Option<MessageId>) -> InboxRow {
        let conversation = ConversationId::random();
        InboxRow {
            conversation,
            last_activity: Timestamp::ZERO,
            last_message: None,
            marker,
            sent_up_to,
            is_sent_by_service: false,
            flags: Flags::default(),
            floor: Floor::NONE,
        }
    }

    #[test]
    fn only_what_comes_after_joining_is_an_answer() {
        let (made, joined) = (ReadMarker::default(), ReadMarker::at_joining(id(500)));
        assert!(!row(made, None).is_answered() && !row(joined, None).is_answered());
        assert!(
            !row(joined, Some(id(400))).is_answered(),
            "sent before the user left and came back"
        );
        assert!(row(made, Some(id(1))).is_answered() && row(joined, Some(id(600))).is_answered());
        assert!(
            row(
                ReadMarker {
                    up_to: id(600).order_key(),
                    ..joined
                },
                None
            )
            .is_answered(),
            "read"
        );
        assert!(
            row(
                ReadMarker {
                    epoch: 700,
                    up_to: id(100).order_key()
                },
                None
            )
            .is_answered(),
            "marked unread"
        );
    }

    #[test]
    fn a_conversation_that_was_answered_is_hidden_by_none_that_was_not() {
        let answered: Vec<_> = (0..3)
            .map(|n| row(ReadMarker::default(), Some(id(n + 1))))
            .collect();
        let unasked = (0..200).map(|n| row(ReadMarker::at_joining(id(1_000 + n)), None));
        let all: Vec<_> = unasked.chain(answered.clone()).collect();
        let hidden = hidden_larges(all.clone());
        assert!(
            hidden.len() == 3
                && answered
                    .iter()
                    .all(|row| !hidden.contains(&row.conversation))
        );
        assert_eq!(
            hidden,
            all[..3].iter().map(|row| row.conversation).collect(),
            "the oldest of the others"
        );
        let many = (0..250).map(|n| row(ReadMarker::default(), Some(id(n + 1))));
        assert!(
            hidden_larges(many).is_empty(),
            "whatever is answered is shown"
        );
    }

    #[test]
    fn a_send_before_marking_as_unread_does_not_count_as_read() {
        let marker = ReadMarker {
            epoch: 500,
            up_to: id(100).order_key(),
        };
        assert_eq!(marker.with_sent(Some(id(400))), id(100).order_key());
        assert_eq!(marker.with_sent(Some(id(600))), id(600).order_key());
    }
}
