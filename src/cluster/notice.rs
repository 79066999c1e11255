//! Notices between servers: ids of events, of markers and of users, and nothing that is shown. The
//! receiver loads what a notice names by key.
//!
//! The same bytes lie in a mailbox and go over NATS. They begin with a version; a receiver passes
//! over an event of a kind that it does not know, and refuses a version that it does not know.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::{
    Change, ChangeKind, ConversationId, LiveKey, MessageId, OrderKey, TimeUuid, UserId,
};
use crate::store::cluster::ServerId;

const VERSION: u8 = 1;

/// Notice for one server, with its sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RemoteEnvelope {
    /// Identity of the notice: that of the first attempt to deliver it. All attempts, and the copy
    /// over NATS, have the same.
    pub(super) delivery: TimeUuid,
    pub(super) sender: ServerId,
    pub(super) notice: RemoteNotice,
}

/// Message of a server to another one. Variants are only ever appended, and none gets another field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoteNotice {
    /// Events of one conversation that were persisted in one batch, and the users on the receiving
    /// server whose inboxes they concern.
    Events {
        conversation: ConversationId,
        #[serde(serialize_with = "encode_events", deserialize_with = "decode_events")]
        events: Vec<RemoteEvent>,
        users: Vec<UserId>,
        /// Whether the conversation is large: then its inbox subscribers listen to itself.
        is_large: bool,
    },
    /// Change of these users' inbox entries that is no event of the conversation: of a flag or a
    /// marker, or a new conversation.
    Inbox {
        conversation: ConversationId,
        change: TimeUuid,
        users: Vec<UserId>,
    },
    /// A participant has advanced a marker.
    Marker {
        conversation: ConversationId,
        user: UserId,
    },
    /// Users who have come or gone.
    Presence { users: Vec<UserId> },
    /// A user has started or stopped typing. It goes over NATS only.
    Typing {
        conversation: ConversationId,
        user: UserId,
        is_typing: bool,
    },
    /// A conversation has become large, by this change: from now on the servers with streams of it
    /// must be registered as its listeners.
    Growth {
        conversation: ConversationId,
        change: TimeUuid,
        users: Vec<UserId>,
    },
    /// A live message has begun, was written to, or was discarded.
    Live(LiveKey),
}

/// Event that a notice names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteEvent {
    Message(MessageId),
    Change(Change),
}

impl RemoteEvent {
    pub fn id(&self) -> TimeUuid {
        match self {
            Self::Message(id) => *id,
            Self::Change(change) => change.id,
        }
    }
}

impl RemoteNotice {
    /// `None` for notices that concern no conversation.
    pub fn conversation(&self) -> Option<ConversationId> {
        match self {
            Self::Events { conversation, .. }
            | Self::Growth { conversation, .. }
            | Self::Inbox { conversation, .. }
            | Self::Marker { conversation, .. }
            | Self::Typing { conversation, .. } => Some(*conversation),
            Self::Live(live) => Some(live.conversation),
            Self::Presence { .. } => None,
        }
    }

    /// Users whose inboxes it concerns.
    pub fn users(&self) -> &[UserId] {
        match self {
            Self::Events { users, .. } | Self::Growth { users, .. } | Self::Inbox { users, .. } => {
                users
            }
            Self::Marker { .. } | Self::Presence { .. } | Self::Typing { .. } | Self::Live(_) => {
                &[]
            }
        }
    }

    /// Least id of its events: until it is followed, no cursor of its conversation and users may
    /// pass it. `None` for what has no position.
    pub fn oldest(&self) -> Option<OrderKey> {
        match self {
            Self::Events { events, .. } => events.iter().map(|event| event.id().order_key()).min(),
            Self::Growth { change, .. } | Self::Inbox { change, .. } => Some(change.order_key()),
            Self::Marker { .. } | Self::Presence { .. } | Self::Typing { .. } | Self::Live(_) => {
                None
            }
        }
    }

    /// The same notice for some of the users.
    pub(super) fn for_users(&self, some: Vec<UserId>) -> Self {
        let mut notice = self.clone();
        if let Self::Events { users, .. } | Self::Growth { users, .. } | Self::Inbox { users, .. } =
            &mut notice
        {
            *users = some;
        }
        notice
    }
}

/// Number of a new message among the kinds of events; a change has the index of its kind after it.
const MESSAGE: u8 = 0;

impl RemoteEnvelope {
    pub(super) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).expect("plain data serialises")
    }

    /// `None` for bytes of another version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (&VERSION, rest) = bytes.split_first()? else {
            return None;
        };
        postcard::from_bytes(rest).ok()
    }
}

/// Event as it is encoded: the number of its kind, its id, its message and its user.
type EncodedEvent = (u8, TimeUuid, MessageId, Option<UserId>);

fn encode_events<S: Serializer>(events: &[RemoteEvent], serializer: S) -> Result<S::Ok, S::Error> {
    let encoded = |event: &RemoteEvent| -> EncodedEvent {
        match event {
            RemoteEvent::Message(id) => (MESSAGE, *id, *id, None),
            RemoteEvent::Change(change) => (
                1 + change.kind.number(),
                change.id,
                change.message,
                Some(change.user.clone()),
            ),
        }
    };
    serializer.collect_seq(events.iter().map(encoded))
}

/// Passes over events of kinds of a later version.
fn decode_events<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RemoteEvent>, D::Error> {
    let events = Vec::<EncodedEvent>::deserialize(deserializer)?;
    Ok(events.into_iter().filter_map(decode_event).collect())
}

/// `None` for an event of a kind of a later version.
fn decode_event((kind, id, message, user): EncodedEvent) -> Option<RemoteEvent> {
    if kind == MESSAGE {
        return Some(RemoteEvent::Message(id));
    }
    Some(RemoteEvent::Change(Change {
        id,
        kind: ChangeKind::from_repr(kind - 1)?,
        message,
        user: user?,
    }))
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;
    use crate::model::{LiveMessageId, Timestamp};

    fn id(micros: i64) -> TimeUuid {
        TimeUuid::new(Timestamp::from_micros(micros), [7; 8])
    }

    fn envelope(notice: RemoteNotice) -> RemoteEnvelope {
        RemoteEnvelope {
            delivery: id(1),
            sender: ServerId::random(),
            notice,
        }
    }

    #[test]
    fn every_notice_survives_encoding() {
        let conversation = ConversationId::random();
        let user = UserId::parse("käthe.* >").unwrap();
        let changed = |kind| {
            RemoteEvent::Change(Change {
                id: id(9),
                kind,
                message: id(5),
                user: user.clone(),
            })
        };
        let mut events: Vec<_> = ChangeKind::VARIANTS.iter().copied().map(changed).collect();
        events.push(RemoteEvent::Message(id(4)));
        let notices = [
            RemoteNotice::Events {
                conversation,
                events,
                users: vec![user.clone()],
                is_large: true,
            },
            RemoteNotice::Growth {
                conversation,
                change: id(2),
                users: vec![user.clone()],
            },
            RemoteNotice::Inbox {
                conversation,
                change: id(3),
                users: vec![user.clone()],
            },
            RemoteNotice::Marker {
                conversation,
                user: user.clone(),
            },
            RemoteNotice::Presence {
                users: vec![user.clone()],
            },
            RemoteNotice::Typing {
                conversation,
                user,
                is_typing: true,
            },
            RemoteNotice::Live(LiveKey {
                conversation,
                id: LiveMessageId(uuid::Uuid::from_u128(8)),
            }),
        ];
        // The version, the delivery of 16 bytes, the sender of 17, then the number of the kind: servers of versions before know these.
        let kinds = [0, 5, 1, 2, 3, 4, 6];
        for (notice, kind) in notices.into_iter().zip(kinds) {
            let envelope = envelope(notice);
            let bytes = envelope.encode();
            assert_eq!(bytes[1 + 16 + 17], kind);
            assert_eq!(RemoteEnvelope::decode(&bytes), Some(envelope));
        }
    }

    #[test]
    fn an_unknown_kind_of_event_is_passed_over_and_an_unknown_version_refused() {
        let events: [EncodedEvent; 2] = [(200, id(1), id(2), None), (MESSAGE, id(3), id(3), None)];
        // Variant 0: a conversation, events, no user, and not large.
        let notice = (0_u8, ConversationId::random(), &events[..], 0_u8, false);
        let parts = (id(1), ServerId::random(), notice);
        let bytes = postcard::to_extend(&parts, vec![VERSION]).unwrap();
        let decoded = RemoteEnvelope::decode(&bytes).unwrap();
        assert!(
            matches!(&decoded.notice, RemoteNotice::Events { events, .. } if *events == [RemoteEvent::Message(id(3))])
        );
        let mut newer = bytes.clone();
        newer[0] = VERSION + 1;
        assert_eq!(RemoteEnvelope::decode(&newer), None);
        assert_eq!(RemoteEnvelope::decode(&bytes[..5]), None);
        assert_eq!(RemoteEnvelope::decode(&[]), None);
    }

    /// A later version appends kinds of notices: one of an unknown kind is no envelope, and nothing follows it.
    #[test]
    fn an_unknown_kind_of_notice_is_passed_over() {
        let live = RemoteNotice::Live(LiveKey {
            conversation: ConversationId::random(),
            id: LiveMessageId(uuid::Uuid::from_u128(8)),
        });
        let mut bytes = envelope(live).encode();
        let kind = bytes.len() - 2 * 17 - 1;
        assert_eq!(bytes[kind], 6, "the last kind that this version knows");
        bytes[kind] = 7;
        assert_eq!(RemoteEnvelope::decode(&bytes), None);
    }

    #[test]
    fn the_oldest_event_is_the_one_that_holds_cursors_back() {
        let notice = RemoteNotice::Events {
            conversation: ConversationId::random(),
            events: vec![RemoteEvent::Message(id(8)), RemoteEvent::Message(id(6))],
            users: Vec::new(),
            is_large: false,
        };
        assert_eq!(notice.oldest(), Some(id(6).order_key()));
    }
}
