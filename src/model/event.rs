//! What the bus carries: hints that something was kept, whole enough to be shown without another read.

use std::any::Any;
use std::sync::{Arc, OnceLock};

use super::{Change, ChangeKind, ConversationId, Message, OrderKey, TimeUuid, UserId};

/// An address on the bus.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// All that happens in one conversation.
    Conversation(ConversationId),
    /// The inbox of one user.
    Inbox(UserId),
    /// Who is typing in one conversation.
    Typing(ConversationId),
    /// The coming and going of one user.
    Presence(UserId),
}

/// Something that was kept before it was told. Typing and presence are only told: they have no place in any order.
#[derive(Debug, Clone)]
pub struct Notice {
    /// The place of the event in the order of its conversation.
    pub id: TimeUuid,
    /// All that was given an id up to here was told before this, or is told by it: where an inbox stream may go on from.
    pub settled: OrderKey,
    pub event: Event,
    /// Where the first who shows it may leave what they made of it, for all others who listen.
    pub shown: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl Notice {
    pub fn new(id: TimeUuid, settled: OrderKey, event: Event) -> Self {
        Self { id, settled, event, shown: OnceLock::new() }
    }
}

#[derive(Debug, Clone)]
pub enum Event {
    MessageAdded(Arc<Message>),
    /// The message as it is now.
    MessageChanged(ChangeKind, Arc<Message>),
    /// A change of no message: a participant has come or gone or has another role, or the conversation has another name.
    Changed(ConversationId, Change),
    /// A participant has read further. Not told in large conversations.
    MarkerMoved(ConversationId, UserId),
    Inbox(InboxChange),
    /// A user gives a sign of typing, or stops.
    Typing(ConversationId, UserId, bool),
    /// A user has come or gone: which of the two, the process knows.
    Presence(UserId),
}

impl Event {
    /// `None` where it belongs to none.
    pub fn conversation(&self) -> Option<ConversationId> {
        match self {
            Self::MessageAdded(message) | Self::MessageChanged(_, message) => Some(message.conversation),
            Self::Changed(conversation, _) | Self::MarkerMoved(conversation, _) | Self::Typing(conversation, ..) => Some(*conversation),
            Self::Inbox(change) => Some(change.conversation),
            Self::Presence(_) => None,
        }
    }
}

/// An entry of the topic's inbox is another than it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InboxChange {
    pub conversation: ConversationId,
}
