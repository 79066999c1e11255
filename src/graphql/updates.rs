//! Streams of the chat that may have many equal subscribers, and what they tell, on the way between the resolvers and whoever drives them.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::scope::Scope;
use crate::chat::{
    self, ConversationEvent, ConversationUpdate, ConversationUpdates, MembershipGuard,
    MessageUpdate, MessageUpdates, TypingUpdate, TypingUpdates, UpdateKey,
};
use crate::model::{OrderKey, UserId};
use crate::rate::Paid;

/// A stream that was opened.
pub(super) enum Updates {
    Messages(MessageUpdates),
    Events(ConversationUpdates),
    Typing(TypingUpdates),
}

/// What one of them tells.
#[derive(Clone)]
pub(super) enum Update {
    Message(MessageUpdate),
    Event(ConversationUpdate),
    Typing(TypingUpdate),
}

impl Updates {
    pub(super) async fn next(&mut self) -> Option<chat::Result<Update>> {
        Some(match self {
            Self::Messages(updates) => updates.next().await?.map(Update::Message),
            Self::Events(updates) => updates.next().await?.map(Update::Event),
            Self::Typing(updates) => updates.next().await?.map(Update::Typing),
        })
    }

    pub(super) fn guard(&self) -> &MembershipGuard {
        match self {
            Self::Messages(updates) => updates.guard(),
            Self::Events(updates) => updates.guard(),
            Self::Typing(updates) => updates.guard(),
        }
    }

    /// Whether an update may still be shown: while it waited for its tokens its viewer may have left. An update that is nobody else's holds
    /// nothing of the conversation: it is a position, or says that the viewer was removed.
    pub(super) async fn may_show(&self, update: &Update, paid: Paid) -> bool {
        match paid {
            Paid::AtOnce => true,
            Paid::AfterWait => update.same().is_none() || self.guard().is_in().await,
        }
    }
}

impl From<MessageUpdates> for Updates {
    fn from(updates: MessageUpdates) -> Self {
        Self::Messages(updates)
    }
}

impl From<ConversationUpdates> for Updates {
    fn from(updates: ConversationUpdates) -> Self {
        Self::Events(updates)
    }
}

impl From<TypingUpdates> for Updates {
    fn from(updates: TypingUpdates) -> Self {
        Self::Typing(updates)
    }
}

impl Update {
    /// By what it is known again, where another stream may have the same one: whoever shows it there shows the same.
    pub(super) fn same(&self) -> Option<(OrderKey, &UpdateKey)> {
        match self {
            Self::Message(update) => Some((OrderKey::MIN, &update.key)),
            Self::Event(update) => Some((update.position, update.key.as_ref()?)),
            Self::Typing(update) => Some((OrderKey::MIN, update.key.as_ref()?)),
        }
    }

    /// Its position in the order of its conversation, behind which a stream resumes.
    pub(super) fn position(&self) -> Option<OrderKey> {
        match self {
            Self::Message(update) => Some(update.message.id.order_key()),
            Self::Event(update) => Some(update.position),
            Self::Typing(_) => None,
        }
    }

    /// Whether this user sent the message that it is about, with a key that only the sender is shown.
    pub(super) fn is_keyed_by(&self, user: &UserId) -> bool {
        let message = match self {
            Self::Message(update) => Some(&update.message),
            Self::Event(update) => match &update.event {
                Some(
                    ConversationEvent::MessageAdded(message)
                    | ConversationEvent::MessageChanged(_, message),
                ) => Some(message),
                None
                | Some(
                    ConversationEvent::ParticipantAdded(_)
                    | ConversationEvent::ParticipantRemoved(_)
                    | ConversationEvent::RoleChanged(_)
                    | ConversationEvent::Renamed
                    | ConversationEvent::MarkerMoved(_),
                ) => None,
            },
            Self::Typing(_) => None,
        };
        message.is_some_and(|message| message.client_key.is_some() && message.sender == *user)
    }

    /// Whether something is read to show it, whatever is asked of it.
    pub(super) fn is_read(&self) -> bool {
        match self {
            Self::Message(_) | Self::Typing(_) => false,
            Self::Event(update) => match &update.event {
                None
                | Some(
                    ConversationEvent::MessageAdded(_)
                    | ConversationEvent::MessageChanged(..)
                    | ConversationEvent::ParticipantRemoved(_),
                ) => false,
                Some(
                    ConversationEvent::ParticipantAdded(_)
                    | ConversationEvent::RoleChanged(_)
                    | ConversationEvent::Renamed
                    | ConversationEvent::MarkerMoved(_),
                ) => true,
            },
        }
    }
}

/// What stands between a resolver and whoever drives a stream that many may share.
pub(super) enum Desk {
    /// The stream is opened, and handed over.
    Opening(Arc<Mutex<Option<Updates>>>),
    /// What another stream told is shown, one after the other.
    Showing(Mutex<Option<Feed>>),
}

/// Updates to be shown, each with the scope to show it in.
pub(super) type Feed = mpsc::Receiver<(Scope, chat::Result<Update>)>;

impl Desk {
    pub(super) fn hand_over(slot: &Mutex<Option<Updates>>, updates: Updates) {
        *slot.lock() = Some(updates);
    }

    pub(super) fn take_over(slot: &Mutex<Option<Updates>>) -> Option<Updates> {
        slot.lock().take()
    }
}
