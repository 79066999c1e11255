//! Receipts: how far a message has come at each of those it was sent to.

use super::{MessageId, Participant, UserId};

/// How far a message has come. The least advanced is the smallest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryStatus {
    Sent,
    Delivered,
    Read,
}

impl Participant {
    /// Whether a message was sent to them: they were there then, are there still, and did not send it themselves.
    pub fn receives(&self, message: MessageId, sender: &UserId) -> bool {
        let was_there = self.membership.since.is_none_or(|since| since <= message.moment());
        self.membership.is_joined() && was_there && self.user != *sender
    }

    /// How far a message that they receive has come. What was read was delivered.
    pub fn status_of(&self, message: MessageId) -> DeliveryStatus {
        let place = message.order_key();
        if self.read_up_to >= place {
            DeliveryStatus::Read
        } else if self.delivered_up_to >= place {
            DeliveryStatus::Delivered
        } else {
            DeliveryStatus::Sent
        }
    }
}

impl DeliveryStatus {
    /// The least advanced over those whom the message was sent to. `None` where there is none of them.
    pub fn least(participants: &[Participant], message: MessageId, sender: &UserId) -> Option<Self> {
        participants.iter().filter(|one| one.receives(message, sender)).map(|one| one.status_of(message)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConversationId, Membership, MembershipState, OrderKey, Role, Timestamp};

    fn id(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn participant(name: &str, read: i64, delivered: i64) -> Participant {
        let place = |micros| if micros == 0 { OrderKey::MIN } else { id(micros).order_key() };
        Participant {
            conversation: ConversationId(uuid::Uuid::nil()),
            user: user(name),
            membership: Membership::joined(Role::Member),
            read_up_to: place(read),
            delivered_up_to: place(delivered),
        }
    }

    #[test]
    fn the_least_advanced_state_counts() {
        let status = |people: &[Participant]| DeliveryStatus::least(people, id(50), &user("ann"));
        let (ann, read, delivered) = (participant("ann", 0, 0), participant("ben", 50, 0), participant("cat", 49, 50));
        assert_eq!(status(std::slice::from_ref(&ann)), None, "the sender is none of them");
        assert_eq!(status(&[ann.clone(), read.clone()]), Some(DeliveryStatus::Read), "what was read was delivered");
        assert_eq!(status(&[ann.clone(), read.clone(), delivered.clone()]), Some(DeliveryStatus::Delivered));
        assert_eq!(status(&[ann, read, delivered, participant("dan", 49, 49)]), Some(DeliveryStatus::Sent));
    }

    #[test]
    fn who_came_later_or_has_left_does_not_count() {
        let with = |state, since: i64| {
            let membership = Membership { state, since: Some(Timestamp::from_micros(since)), ..Membership::joined(Role::Member) };
            Participant { membership, ..participant("ben", 0, 0) }
        };
        let receives = |one: Participant| one.receives(id(50), &user("ann"));
        assert!(receives(with(MembershipState::Joined, 50)));
        assert!(!receives(with(MembershipState::Joined, 51)));
        assert!(!receives(with(MembershipState::Left, 40)));
        assert!(receives(participant("ben", 0, 0)), "there from the beginning");
    }
}
