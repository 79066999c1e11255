//! Floor: the lower bound of the messages that a viewer sees in a conversation. Only this module computes it.
//!
//! It is the greatest of four positions: the floor of the conversation, the moment before which messages have
//! expired, the position from which the viewer sees the history, and the one up to which they have cleared it. All
//! lie beside the membership, so that reading a floor costs nothing. A message at or below it does not exist.

use std::ops::Deref;
use std::sync::Arc;

use crate::model::{
    Conversation, ConversationId, Floor, HistorySettings, MessageId, OrderKey, OwnFloor, Timestamp,
};

const SECOND_MICROS: i64 = 1_000_000;

/// Computes floors by the time of the server, and the expiry of the deployment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FloorRule {
    /// Expiry of all messages of the deployment, in seconds.
    pub(crate) retention_seconds: Option<u32>,
}

impl FloorRule {
    /// The shorter one of the expiries of a conversation and of the deployment, in seconds.
    pub(crate) fn ttl_seconds(self, settings: &HistorySettings) -> Option<u32> {
        let ttls = [settings.ttl_seconds, self.retention_seconds];
        ttls.into_iter().flatten().min()
    }

    /// The floor of a viewer whose own bound is given.
    pub(crate) fn floor(self, conversation: &Conversation, own: OwnFloor, now: Timestamp) -> Floor {
        let fixed = conversation.history.floor.max(own.key());
        let expired = self
            .ttl_seconds(&conversation.history)
            .map(|seconds| expired_at(now, seconds));
        Floor {
            key: expired.map_or(fixed, |expired| expired.max(fixed)),
            fixed,
        }
    }
}

/// The last position that has expired at a moment.
pub(crate) fn expired_at(now: Timestamp, ttl_seconds: u32) -> OrderKey {
    let oldest = now.plus_micros(-i64::from(ttl_seconds) * SECOND_MICROS);
    if oldest <= Timestamp::ZERO {
        return OrderKey::MIN;
    }
    // A message expires at its time and the expiry: at that very moment it is gone.
    OrderKey::first_at(oldest.plus_micros(1)).before()
}

/// The last position before a moment: the bound of those who see messages from then on.
pub(crate) fn bound_before(moment: Timestamp) -> OrderKey {
    OrderKey::first_at(moment.max(Timestamp::ZERO)).before()
}

/// A conversation as one viewer sees it.
#[derive(Debug, Clone)]
pub struct VisibleConversation {
    pub conversation: Arc<Conversation>,
    pub floor: Floor,
    /// The viewer's own part of the floor. The rest is the same for everyone.
    pub own_floor: OwnFloor,
}

impl VisibleConversation {
    pub(crate) fn new(
        rule: FloorRule,
        conversation: Arc<Conversation>,
        own_floor: OwnFloor,
        now: Timestamp,
    ) -> Self {
        Self {
            floor: rule.floor(&conversation, own_floor, now),
            conversation,
            own_floor,
        }
    }

    /// Whether the viewer may see a message of this conversation.
    pub fn shows(&self, message: MessageId) -> bool {
        self.floor.shows(message)
    }

    pub fn arc(&self) -> Arc<Conversation> {
        Arc::clone(&self.conversation)
    }

    /// The conversation and its floor, as counts take them.
    pub fn count_key(&self) -> (ConversationId, OrderKey) {
        (self.conversation.id, self.floor.key)
    }
}

impl Deref for VisibleConversation {
    type Target = Conversation;

    fn deref(&self) -> &Conversation {
        &self.conversation
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConversationKind, Membership, Role};

    fn conversation(history: HistorySettings) -> Conversation {
        Conversation {
            id: ConversationId(uuid::Uuid::nil()),
            kind: ConversationKind::Group,
            name: None,
            created_at: Timestamp::ZERO,
            created_by: None,
            input_hash: None,
            slow_mode_seconds: 0,
            history,
            is_large: false,
        }
    }

    fn id(seconds: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(seconds * SECOND_MICROS), [0; 8])
    }

    #[test]
    fn the_greatest_of_the_four_bounds_is_the_floor() {
        let now = Timestamp::from_micros(1_000 * SECOND_MICROS);
        let floor = |ttl_seconds, floor: i64, seen: i64, cleared: i64, retention_seconds| {
            let conversation = conversation(HistorySettings {
                ttl_seconds,
                floor: id(floor).order_key(),
                ..HistorySettings::default()
            });
            let membership = Membership {
                visible_from: id(seen).order_key(),
                cleared_up_to: id(cleared).order_key(),
                ..Membership::joined(Role::Member)
            };
            let rule = FloorRule { retention_seconds };
            rule.floor(&conversation, membership.own_floor(), now)
        };
        for (bounds, first_hidden, first_shown) in [
            ((None, 10, 5, 7, None), 10, 11),
            ((None, 10, 20, 7, None), 20, 21),
            ((None, 10, 20, 30, None), 30, 31),
            ((Some(100), 10, 20, 30, None), 900, 901),
            ((Some(100), 10, 20, 950, None), 950, 951),
            ((Some(100), 10, 20, 30, Some(60)), 940, 941),
            ((None, 10, 20, 30, Some(60)), 940, 941),
        ] {
            let (ttl, conversation, seen, cleared, retention) = bounds;
            let floor = floor(ttl, conversation, seen, cleared, retention);
            assert!(!floor.shows(id(first_hidden)), "{bounds:?}");
            assert!(floor.shows(id(first_shown)), "{bounds:?}");
        }
        let floor = floor(Some(100), 10, 20, 30, None);
        let from = floor.visible_from().unwrap();
        assert_eq!(from.micros(), 30 * SECOND_MICROS + 1, "expiry comes on top");
    }

    #[test]
    fn without_a_bound_everything_is_visible() {
        let none = FloorRule::default();
        let floor = none.floor(
            &conversation(HistorySettings::default()),
            OwnFloor::NONE,
            Timestamp::from_micros(SECOND_MICROS),
        );
        assert_eq!((floor, floor.visible_from()), (Floor::NONE, None));
        let short = FloorRule {
            retention_seconds: Some(u32::MAX),
        };
        let conversation = conversation(HistorySettings::default());
        let floor = short.floor(&conversation, OwnFloor::NONE, Timestamp::ZERO);
        assert_eq!(floor, Floor::NONE, "nothing is older than time");
    }
}
