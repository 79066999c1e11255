//! Outbox: one log of the events of all conversations, read by services.
//!
//! A write that persists events also persists one [`OutboxRow`], which names them. A reader loads
//! the events when it delivers them.

use strum::{EnumString, FromRepr, IntoStaticStr, VariantArray};

use super::super::{
    Change, ChangeId, ChangeKind, ConversationId, Mentions, MessageId, ReportId, Revision,
    TimeUuid, UserId,
};

/// Shard of the outbox: each conversation belongs to exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutboxShard(u8);

impl OutboxShard {
    /// Stores persist the numbers, so never change it.
    pub const COUNT: u8 = 16;

    /// Stores persist the result, so never change it: FNV-1a of the id.
    pub fn of(conversation: ConversationId) -> Self {
        let hash = conversation
            .0
            .as_bytes()
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let folded = (hash >> 32) ^ hash;
        Self(u8::try_from(folded % u64::from(Self::COUNT)).expect("it is less than the count"))
    }

    pub fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(Self)
    }

    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Events of one conversation that were persisted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxRow {
    /// Position in the outbox: the greatest id of the write.
    pub id: TimeUuid,
    pub conversation: ConversationId,
    /// In their order.
    pub events: Vec<OutboxEvent>,
}

impl OutboxRow {
    /// `None` without events.
    pub fn new(conversation: ConversationId, events: Vec<OutboxEvent>) -> Option<Self> {
        let id = events.iter().map(|event| event.id).max()?;
        Some(Self {
            id,
            conversation,
            events,
        })
    }

    pub fn shard(&self) -> OutboxShard {
        OutboxShard::of(self.conversation)
    }
}

/// Event in the outbox, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxEvent {
    /// Id of the event: the same whenever it is logged again.
    pub id: TimeUuid,
    pub kind: OutboxEventKind,
    /// The message that was added or changed, or the SYSTEM message that announces the event. The
    /// creation of a conversation has none, and repeats its id, as do a report, an erasure and a change
    /// without a message.
    pub message: MessageId,
    /// The participant who was added, removed, silenced or unsilenced, or whose role changed. The user who
    /// was erased.
    pub user: Option<UserId>,
    /// The users whom an edit mentions anew: it notifies them.
    pub newly_mentioned: Mentions,
}

/// Stores persist the index in this list, so never reorder it. The API and the configuration have its names.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    EnumString,
    FromRepr,
    IntoStaticStr,
    VariantArray,
)]
#[repr(u8)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", const_into_str)]
pub enum OutboxEventKind {
    MessageAdded,
    MessageEdited,
    MessageDeleted,
    ReactionsChanged,
    ParticipantAdded,
    ParticipantRemoved,
    RoleChanged,
    ConversationRenamed,
    ConversationCreated,
    ParticipantUpdated,
    ConversationUpdated,
    PinsChanged,
    HistoryExpired,
    Reported,
    UserErased,
}

impl OutboxEventKind {
    /// Index in the list of variants.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Whether the payload is the message itself.
    pub const fn has_message(self) -> bool {
        matches!(
            self,
            Self::MessageAdded
                | Self::MessageEdited
                | Self::MessageDeleted
                | Self::ReactionsChanged
                | Self::PinsChanged
        )
    }

    /// Whether the payload is a participant.
    pub const fn has_user(self) -> bool {
        matches!(
            self,
            Self::ParticipantAdded
                | Self::ParticipantRemoved
                | Self::RoleChanged
                | Self::ParticipantUpdated
        )
    }
}

impl OutboxEvent {
    const fn new(kind: OutboxEventKind, id: TimeUuid) -> Self {
        Self {
            id,
            kind,
            message: id,
            user: None,
            newly_mentioned: Mentions::NONE,
        }
    }

    pub const fn message_added(message: MessageId) -> Self {
        Self::new(OutboxEventKind::MessageAdded, message)
    }

    /// The creation of a conversation under this id.
    pub const fn conversation_created(change: ChangeId) -> Self {
        Self::new(OutboxEventKind::ConversationCreated, change)
    }

    /// A report, whose id is the event's.
    pub const fn reported(report: ReportId) -> Self {
        Self::new(OutboxEventKind::Reported, report)
    }

    /// Messages of a conversation have expired.
    pub const fn history_expired(id: TimeUuid) -> Self {
        Self::new(OutboxEventKind::HistoryExpired, id)
    }

    /// The end of an erasure.
    pub fn user_erased(id: TimeUuid, user: UserId) -> Self {
        Self {
            user: Some(user),
            ..Self::new(OutboxEventKind::UserErased, id)
        }
    }

    pub fn of_change(change: &Change) -> Self {
        let kind = match change.kind {
            ChangeKind::MessageLate => {
                return Self::message_added(change.message);
            }
            ChangeKind::MessageEdited => OutboxEventKind::MessageEdited,
            ChangeKind::MessageDeleted => OutboxEventKind::MessageDeleted,
            ChangeKind::ReactionsChanged => OutboxEventKind::ReactionsChanged,
            ChangeKind::PinsChanged => OutboxEventKind::PinsChanged,
            ChangeKind::ParticipantAdded => OutboxEventKind::ParticipantAdded,
            ChangeKind::ParticipantRemoved => OutboxEventKind::ParticipantRemoved,
            ChangeKind::RoleChanged => OutboxEventKind::RoleChanged,
            ChangeKind::ConversationRenamed => OutboxEventKind::ConversationRenamed,
            ChangeKind::ParticipantUpdated => OutboxEventKind::ParticipantUpdated,
            ChangeKind::ConversationUpdated => OutboxEventKind::ConversationUpdated,
            ChangeKind::HistoryRaised => OutboxEventKind::HistoryExpired,
        };
        Self {
            message: change.message,
            user: kind.has_user().then(|| change.user.clone()),
            ..Self::new(kind, change.id)
        }
    }

    pub fn of_revision(change: &Change, revision: &Revision) -> Self {
        Self {
            newly_mentioned: revision.newly_mentioned().clone(),
            ..Self::of_change(change)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_by_its_number() {
        for (index, kind) in OutboxEventKind::VARIANTS.iter().copied().enumerate() {
            assert_eq!(usize::from(kind.number()), index);
            assert_eq!(OutboxEventKind::from_repr(kind.number()), Some(kind));
            assert_eq!(kind.into_str().parse(), Ok(kind));
        }
        assert_eq!(OutboxEventKind::from_repr(200), None);
    }

    #[test]
    fn conversations_spread_over_all_shards_and_stay_there() {
        let mut counts = [0_usize; OutboxShard::COUNT as usize];
        for number in 0..16_000_u128 {
            let conversation = ConversationId(uuid::Uuid::from_u128(number));
            counts[usize::from(OutboxShard::of(conversation).number())] += 1;
        }
        assert!(
            counts.iter().all(|count| (700..1_300).contains(count)),
            "{counts:?}"
        );
        // Rows of these conversations are in stores.
        let known =
            |number| OutboxShard::of(ConversationId(uuid::Uuid::from_u128(number))).number();
        assert_eq!([known(0), known(1), known(u128::MAX)], [12, 11, 13]);
    }
}
