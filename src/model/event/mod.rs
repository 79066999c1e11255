//! Events: notices on the bus, which are already persisted and complete enough to be delivered
//! without another read, and rows of the outbox.

mod outbox;

use std::sync::Arc;

pub use self::outbox::{OutboxEvent, OutboxEventKind, OutboxRow, OutboxShard};
use super::{Change, ChangeKind, ConversationId, LiveStep, Message, OrderKey, TimeUuid, UserId};

/// Address on the bus.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// Events of one conversation.
    Conversation(ConversationId),
    /// Changes of the inbox of one user.
    Inbox(UserId),
    /// Typing in one conversation.
    Typing(ConversationId),
    /// Live messages of one conversation.
    Live(ConversationId),
    /// Presence of one user.
    Presence(UserId),
}

/// Event that was persisted before it was published. Typing and presence are never persisted, and
/// have no position in any order.
#[derive(Debug, Clone)]
pub struct Notice {
    /// Position of the event in the order of its conversation.
    pub id: TimeUuid,
    /// Low watermark: all events with an id up to here have been published, this one included. An
    /// inbox stream may resume from it.
    pub settled: OrderKey,
    /// Greatest position that a stream may give with this event: an earlier event of another server
    /// may not have arrived yet. [`OrderKey::MAX`] on a store of one server.
    pub position_max: OrderKey,
    pub event: Event,
}

impl Notice {
    pub fn new(id: TimeUuid, settled: OrderKey, event: Event) -> Self {
        Self {
            id,
            settled,
            position_max: OrderKey::MAX,
            event,
        }
    }

    /// Position of a stream after this event.
    pub fn position(&self) -> OrderKey {
        self.id.order_key().min(self.position_max)
    }
}

#[derive(Debug, Clone)]
pub enum Event {
    MessageAdded(Arc<Message>),
    /// The message in its current state.
    MessageChanged(ChangeKind, Arc<Message>),
    /// A change that affects no message: of a participant, a role or the name.
    Changed(ConversationId, Change),
    /// A participant has advanced a marker. Not published in large conversations.
    MarkerMoved(ConversationId, UserId),
    Inbox(InboxChange),
    /// A user has started or stopped typing.
    Typing(ConversationId, UserId, bool),
    /// A live message has changed. It has no position in the order of its conversation.
    LiveStepped(Arc<LiveStep>),
    /// A user has blocked or unblocked another user. Only the blocker's own streams deliver it.
    BlockChanged(BlockNotice),
    /// A user has come online or gone offline. The presence table of the process holds the current
    /// state.
    Presence(UserId),
}

impl Event {
    /// `None` for events without a conversation.
    pub fn conversation(&self) -> Option<ConversationId> {
        match self {
            Self::MessageAdded(message) | Self::MessageChanged(_, message) => {
                Some(message.conversation)
            }
            Self::Changed(conversation, _)
            | Self::MarkerMoved(conversation, _)
            | Self::Typing(conversation, ..) => Some(*conversation),
            Self::Inbox(change) => Some(change.conversation),
            Self::LiveStepped(step) => Some(step.view.message.key.conversation),
            Self::BlockChanged(_) | Self::Presence(_) => None,
        }
    }
}

/// Change of a block, on or off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockNotice {
    pub blocker: UserId,
    pub blocked: UserId,
    /// The direct conversation of both users, if there is one.
    pub direct: Option<ConversationId>,
}

/// An entry of the inbox has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxChange {
    pub conversation: ConversationId,
}
