//! Receipts: the delivery status of a message at each recipient.

use super::{MessageId, OrderKey, Participant, UserId};

/// Delivery status of a message, ordered by progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeliveryStatus {
    Sent,
    Delivered,
    Read,
}

impl Participant {
    /// Whether this participant is a recipient of the message: no agent, not its sender, joined before it and still joined.
    pub fn receives(&self, message: MessageId, sender: &UserId) -> bool {
        let was_there = self
            .membership
            .since
            .is_none_or(|since| since <= message.moment());
        self.is_recipient_of(sender) && was_there
    }

    /// Whether this participant is a recipient of later messages of this sender. Agents have no receipts.
    fn is_recipient_of(&self, sender: &UserId) -> bool {
        self.membership.is_joined() && self.user != *sender && !self.user.is_agent()
    }

    /// Status of a message at this recipient. A read message counts as delivered.
    pub fn status_of(&self, message: MessageId) -> DeliveryStatus {
        let position = message.order_key();
        if self.read_up_to >= position {
            DeliveryStatus::Read
        } else if self.delivered_up_to >= position {
            DeliveryStatus::Delivered
        } else {
            DeliveryStatus::Sent
        }
    }
}

impl Participant {
    /// Position up to which every message that this participant receives has at least this status
    /// here. A message from before the participant joined is not received.
    fn has_up_to(&self, status: DeliveryStatus) -> OrderKey {
        let mark = match status {
            DeliveryStatus::Sent => OrderKey::MAX,
            DeliveryStatus::Delivered => self.read_up_to.max(self.delivered_up_to),
            DeliveryStatus::Read => self.read_up_to,
        };
        let joined = self.membership.since.map(OrderKey::first_at);
        mark.max(joined.map_or(OrderKey::MIN, OrderKey::before))
    }
}

impl DeliveryStatus {
    /// Low watermark of a status: exactly up to this position, the messages of a sender have at least
    /// it. `None` without another participant who is no agent.
    pub fn watermark(self, participants: &[Participant], sender: &UserId) -> Option<OrderKey> {
        let others = participants
            .iter()
            .filter(|other| other.is_recipient_of(sender));
        others.map(|other| other.has_up_to(self)).min()
    }

    /// Least advanced status over all recipients. `None` without a recipient.
    pub fn least(
        participants: &[Participant],
        message: MessageId,
        sender: &UserId,
    ) -> Option<Self> {
        let recipients = participants
            .iter()
            .filter(|participant| participant.receives(message, sender));
        recipients
            .map(|participant| participant.status_of(message))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConversationId, Membership, MembershipState, Role, Timestamp};

    fn id(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn participant(name: &str, read: i64, delivered: i64) -> Participant {
        let position = |micros| {
            if micros == 0 {
                OrderKey::MIN
            } else {
                id(micros).order_key()
            }
        };
        Participant {
            conversation: ConversationId(uuid::Uuid::nil()),
            user: user(name),
            membership: Membership::joined(Role::Member),
            read_up_to: position(read),
            is_read_by_service: false,
            delivered_up_to: position(delivered),
        }
    }

    #[test]
    fn the_least_advanced_state_counts() {
        let status = |participants: &[Participant]| {
            DeliveryStatus::least(participants, id(50), &user("ann"))
        };
        let (ann, read, delivered) = (
            participant("ann", 0, 0),
            participant("ben", 50, 0),
            participant("cat", 49, 50),
        );
        assert_eq!(
            status(std::slice::from_ref(&ann)),
            None,
            "the sender is not a recipient"
        );
        assert_eq!(
            status(&[ann.clone(), read.clone()]),
            Some(DeliveryStatus::Read),
            "a read message counts as delivered"
        );
        assert_eq!(
            status(&[ann.clone(), read.clone(), delivered.clone()]),
            Some(DeliveryStatus::Delivered)
        );
        assert_eq!(
            status(&[ann, read, delivered, participant("dan", 49, 49)]),
            Some(DeliveryStatus::Sent)
        );
    }

    #[test]
    fn participants_who_joined_later_or_left_are_not_recipients() {
        let with = |state, since: i64| {
            let membership = Membership {
                state,
                since: Some(Timestamp::from_micros(since)),
                ..Membership::joined(Role::Member)
            };
            Participant {
                membership,
                ..participant("ben", 0, 0)
            }
        };
        let receives = |participant: Participant| participant.receives(id(50), &user("ann"));
        assert!(receives(with(MembershipState::Joined, 50)));
        assert!(!receives(with(MembershipState::Joined, 51)));
        assert!(!receives(with(MembershipState::Left, 40)));
        assert!(receives(participant("ben", 0, 0)), "joined at the creation");
    }

    #[test]
    fn an_agent_is_no_recipient() {
        let ann = user("ann");
        let agent = participant("agent:helper", 0, 0);
        let read = participant("ben", 50, 50);
        let (with_agent, both) = ([agent.clone()], [agent, read]);
        assert_eq!(DeliveryStatus::least(&with_agent, id(50), &ann), None);
        assert_eq!(DeliveryStatus::Read.watermark(&with_agent, &ann), None);
        let least = DeliveryStatus::least(&both, id(50), &ann);
        assert_eq!(least, Some(DeliveryStatus::Read));
        let watermark = DeliveryStatus::Read.watermark(&both, &ann);
        assert_eq!(watermark, Some(id(50).order_key()));
    }

    #[test]
    fn a_watermark_ends_exactly_where_the_status_does() {
        let moments = [0, 3, 5, 8, 20];
        let mut count = 0;
        for (read, delivered, since) in moments.into_iter().flat_map(|read| {
            moments
                .into_iter()
                .flat_map(move |delivered| moments.map(|since| (read, delivered, since)))
        }) {
            let mut late = participant("dan", read, delivered);
            late.membership.since = Some(Timestamp::from_micros(since));
            let all = [
                participant("ann", 0, 0),
                participant("ben", 5, 8),
                participant("cat", 8, 3),
                late,
            ];
            for status in [DeliveryStatus::Delivered, DeliveryStatus::Read] {
                let watermark = status.watermark(&all, &user("ann")).unwrap();
                for message in (1..12).map(id) {
                    let least = DeliveryStatus::least(&all, message, &user("ann"));
                    assert_eq!(least >= Some(status), message.order_key() <= watermark);
                    count += 1;
                }
            }
        }
        assert_eq!(count, 125 * 2 * 11);
        let alone = [participant("ann", 0, 0)];
        assert_eq!(DeliveryStatus::Read.watermark(&alone, &user("ann")), None);
    }
}
