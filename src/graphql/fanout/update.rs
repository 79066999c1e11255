//! Updates that many subscribers can share, and the chat's streams that deliver them.

use sha2::{Digest as _, Sha256};

use crate::chat::{
    self, ConversationEvent, ConversationUpdate, ConversationUpdates, LiveUpdate, LiveUpdates,
    MembershipGuard, MessageUpdate, MessageUpdates, TypingUpdate, TypingUpdates, UpdateKey,
};
use crate::graphql::cursor::ResumePosition;
use crate::model::{LiveCursor, OrderKey, UserId};
use crate::rate::Paid;

/// An open stream of the chat.
pub(in crate::graphql) enum UpdateStream {
    Messages(MessageUpdates),
    Events(ConversationUpdates),
    Typing(TypingUpdates),
    Live(LiveUpdates),
}

/// Item of an [`UpdateStream`].
#[derive(Clone)]
pub(in crate::graphql) enum StreamUpdate {
    Message(MessageUpdate),
    Event(ConversationUpdate),
    Typing(TypingUpdate),
    Live(LiveUpdate),
}

/// Place of an update in its stream, as its payload shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct UpdatePlace {
    position: OrderKey,
    is_live: bool,
}

impl UpdatePlace {
    /// Place of an update whose payload shows none.
    const NONE: Self = Self {
        position: OrderKey::MIN,
        is_live: true,
    };

    /// Place of a part of a live message, between the parts that the viewer had and has. A hash, as no viewer may bring about
    /// that two are equal.
    fn of_part(from: u32, is_whole: bool, after: &LiveCursor) -> Self {
        let mut hash = Sha256::new();
        hash.update(from.to_be_bytes());
        hash.update(after.at.micros().to_be_bytes());
        for live in &after.lives {
            hash.update(live.id.0.as_bytes());
            hash.update([live.writer.get()]);
            hash.update(live.position.to_be_bytes());
        }
        let digest: [u8; 32] = hash.finalize().into();
        let (first, _) = digest
            .split_first_chunk()
            .expect("a digest is longer than a key");
        Self {
            position: OrderKey(*first),
            is_live: !is_whole,
        }
    }
}

impl UpdateStream {
    pub(in crate::graphql) async fn next(&mut self) -> chat::Result<Option<StreamUpdate>> {
        Ok(match self {
            Self::Messages(updates) => updates.next().await?.map(StreamUpdate::Message),
            Self::Events(updates) => updates.next().await?.map(StreamUpdate::Event),
            Self::Typing(updates) => updates.next().await?.map(StreamUpdate::Typing),
            Self::Live(updates) => updates.next().await?.map(StreamUpdate::Live),
        })
    }

    /// Whether the next update of a replay is at hand.
    pub(super) fn has_more(&self) -> bool {
        match self {
            Self::Messages(updates) => updates.has_more(),
            Self::Events(updates) => updates.has_more(),
            Self::Typing(_) => false,
            Self::Live(updates) => updates.has_more(),
        }
    }

    pub(super) fn guard(&self) -> &MembershipGuard {
        match self {
            Self::Messages(updates) => updates.guard(),
            Self::Events(updates) => updates.guard(),
            Self::Typing(updates) => updates.guard(),
            Self::Live(updates) => updates.guard(),
        }
    }

    /// Whether the update may still be delivered: the viewer may have left while it waited for
    /// tokens. An update without a shared key has no content of the conversation: it is a position,
    /// or says that the viewer was removed.
    pub(in crate::graphql) async fn may_deliver(&self, update: &StreamUpdate, paid: Paid) -> bool {
        match paid {
            Paid::AtOnce => true,
            Paid::AfterWait => update.shared_key().is_none() || self.guard().is_in().await,
        }
    }
}

/// Item of one kind of [`UpdateStream`].
pub(in crate::graphql) trait StreamItem: Sized + Send + 'static {
    type Updates: Into<UpdateStream> + Send + 'static;

    /// `None` for an update of another kind of stream.
    fn from_update(update: StreamUpdate) -> Option<Self>;
}

/// Declares the kinds of streams, each with its item.
macro_rules! streams {
    ($($stream:ident($updates:ty): $update:ident($item:ty),)+) => {$(
        impl From<$updates> for UpdateStream {
            fn from(updates: $updates) -> Self {
                Self::$stream(updates)
            }
        }

        impl StreamItem for $item {
            type Updates = $updates;

            fn from_update(update: StreamUpdate) -> Option<Self> {
                if let StreamUpdate::$update(item) = update {
                    Some(item)
                } else {
                    None
                }
            }
        }
    )+};
}

streams! {
    Messages(MessageUpdates): Message(MessageUpdate),
    Events(ConversationUpdates): Event(ConversationUpdate),
    Typing(TypingUpdates): Typing(TypingUpdate),
    Live(LiveUpdates): Live(LiveUpdate),
}

impl StreamUpdate {
    /// Place and key of an update that other subscribers may receive, too. Updates with equal places
    /// and keys have equal payloads.
    pub(super) fn shared_key(&self) -> Option<(UpdatePlace, &UpdateKey)> {
        match self {
            Self::Message(update) => Some((UpdatePlace::NONE, &update.key)),
            Self::Event(update) => {
                let place = UpdatePlace {
                    position: update.position,
                    is_live: update.is_live,
                };
                Some((place, update.key.as_ref()?))
            }
            Self::Typing(update) => Some((UpdatePlace::NONE, update.key.as_ref()?)),
            Self::Live(update) => {
                let change = update.change.as_ref()?;
                let place = UpdatePlace::of_part(change.from, change.is_whole, &update.cursor);
                Some((place, &change.key))
            }
        }
    }

    /// Position of the stream after the update. It resumes there.
    pub(in crate::graphql) fn position(&self) -> Option<ResumePosition> {
        match self {
            Self::Message(update) => Some(update.position.into()),
            Self::Event(update) => Some(update.position.into()),
            Self::Typing(_) => None,
            Self::Live(update) => Some(update.cursor.clone().into()),
        }
    }

    /// Whether the update is about a message of this user with a `clientKey`, which only its sender
    /// may see.
    pub(super) fn has_client_key_of(&self, user: &UserId) -> bool {
        let message = match self {
            Self::Message(update) => Some(&update.message),
            Self::Event(update) => update.event.as_ref().and_then(ConversationEvent::message),
            Self::Typing(_) | Self::Live(_) => None,
        };
        message.is_some_and(|message| message.client_key.is_some() && message.sender == *user)
    }

    /// Whether its payload needs a read of the store, whatever the document selects.
    pub(super) fn reads_store(&self) -> bool {
        match self {
            Self::Message(_) | Self::Typing(_) | Self::Live(_) => false,
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
                    | ConversationEvent::ParticipantUpdated(_)
                    | ConversationEvent::ConversationUpdated
                    | ConversationEvent::HistoryExpired
                    | ConversationEvent::MarkerMoved(_),
                ) => true,
            },
        }
    }
}
