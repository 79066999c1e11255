//! Payloads of `conversationEvents`.

use std::sync::Arc;

use async_graphql::{Object, SimpleObject, Union};

use super::payload_stream::SharedUpdate;
use crate::chat::{self, ConversationUpdate, VisibleConversation};
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::Result;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{
    Conversation, Message, MessageEdge, Participant, PinnedMessageEdge, User, message_edge,
};
use crate::model::{self, ChangeKind, ConversationId, UserId};

/// Payload of `conversationEvents`: an event, or only the position of the stream.
#[derive(SimpleObject)]
pub(super) struct ConversationEventPayload {
    /// Cursor to resume the subscription after this payload, with `after`.
    cursor: String,
    /// The event. Null in the first payload, and in the one that an idle stream sends about once an
    /// hour.
    event: Option<ConversationEvent>,
    /// False while the stream replays. Where it is selected, a replay ends with one payload without
    /// an event. Without `after` it is true at once. A stream that lags stays true.
    is_live: bool,
}

/// Event of a conversation. A later version may add types: clients need a default branch.
#[derive(Union)]
enum ConversationEvent {
    MessageAdded(MessageAddedEvent),
    MessageEdited(MessageEditedEvent),
    MessageDeleted(MessageDeletedEvent),
    ReactionsChanged(ReactionsChangedEvent),
    MarkerMoved(MarkerMovedEvent),
    ParticipantAdded(ParticipantAddedEvent),
    ParticipantRemoved(ParticipantRemovedEvent),
    RoleChanged(RoleChangedEvent),
    Renamed(ConversationRenamedEvent),
    ParticipantUpdated(ParticipantUpdatedEvent),
    ConversationUpdated(ConversationUpdatedEvent),
    PinsChanged(PinsChangedEvent),
    HistoryExpired(HistoryExpiredEvent),
}

/// A message was sent.
#[derive(SimpleObject)]
pub(super) struct MessageAddedEvent {
    /// Edge of the message in `Conversation.messages`.
    pub(super) message_edge: MessageEdge,
}

/// A message was edited.
#[derive(SimpleObject)]
pub(super) struct MessageEditedEvent {
    /// The message in its current state.
    pub(super) message: Message,
}

/// A message was deleted.
#[derive(SimpleObject)]
pub(super) struct MessageDeletedEvent {
    /// The message without its content.
    pub(super) message: Message,
}

/// The reactions to a message changed.
#[derive(SimpleObject)]
pub(super) struct ReactionsChangedEvent {
    /// The message in its current state.
    pub(super) message: Message,
}

/// A message was pinned or unpinned.
#[derive(SimpleObject)]
pub(super) struct PinsChangedEvent {
    /// The message in its current state.
    pub(super) message: Message,
    /// Edge of the message in `Conversation.pinnedMessages`. Null if it is no longer pinned. A
    /// deletion unpins without this event.
    pub(super) pinned_message_edge: Option<PinnedMessageEdge>,
}

impl PinsChangedEvent {
    pub(super) fn new(scope: &ViewerScope, message: Arc<model::Message>) -> Self {
        Self {
            pinned_message_edge: PinnedMessageEdge::of(scope, &message),
            message: Message::new(scope, message),
        }
    }
}

/// The read or delivered marker of a participant moved. Large conversations (more than 32
/// participants) do not publish it.
#[derive(SimpleObject)]
struct MarkerMovedEvent {
    /// The participant in its current state.
    participant: Participant,
}

/// A user joined, for the first time or again.
#[derive(SimpleObject)]
pub(super) struct ParticipantAddedEvent {
    /// The participant in its current state, even if the user has left since.
    pub(super) participant: Participant,
}

/// A user left or was removed. That user's own stream ends after this event.
#[derive(SimpleObject)]
pub(super) struct ParticipantRemovedEvent {
    /// The user who left or was removed.
    pub(super) user: User,
}

/// The role of a participant changed.
#[derive(SimpleObject)]
pub(super) struct RoleChangedEvent {
    /// The participant in its current state, even if the user has left since.
    pub(super) participant: Participant,
}

/// A participant was silenced, or may write again. The end of a silence by time has no event.
#[derive(SimpleObject)]
pub(super) struct ParticipantUpdatedEvent {
    /// The participant in its current state, even if the user has left since.
    pub(super) participant: Participant,
}

/// A setting of the conversation changed.
#[derive(SimpleObject)]
pub(super) struct ConversationUpdatedEvent {
    /// The conversation in its current state.
    pub(super) conversation: Conversation,
}

/// Messages are gone for everyone.
pub(super) struct HistoryExpiredEvent {
    scope: ViewerScope,
    conversation: VisibleConversation,
}

impl HistoryExpiredEvent {
    /// `None` if the viewer sees the conversation no longer.
    pub(super) async fn load(
        scope: &ViewerScope,
        conversation: ConversationId,
    ) -> Result<Option<Self>> {
        let loaded = scope.loaders.conversations.load(conversation).await?;
        Ok(loaded.map(|conversation| Self {
            scope: scope.clone(),
            conversation,
        }))
    }
}

/// Messages are gone for everyone: the conversation was truncated, or its expiry changed. A message
/// that merely expires has no such event here.
#[Object]
impl HistoryExpiredEvent {
    /// The conversation in its current state.
    async fn conversation(&self) -> Conversation {
        Conversation::new(&self.scope, self.conversation.arc())
    }

    /// All messages that were sent before this moment are gone for everyone.
    async fn before(&self) -> DateTime {
        DateTime(self.scope.chat.access.gone_before(&self.conversation))
    }
}

/// The conversation was renamed.
#[derive(SimpleObject)]
pub(super) struct ConversationRenamedEvent {
    /// The conversation in its current state.
    pub(super) conversation: Conversation,
}

impl SharedUpdate for ConversationUpdate {
    type Payload = ConversationEventPayload;

    fn list(conversation: ConversationId) -> Option<List<'static>> {
        Some(List::Events(conversation))
    }

    async fn payload(
        self,
        scope: &ViewerScope,
        conversation: ConversationId,
    ) -> Result<ConversationEventPayload> {
        let cursor = self.position.encode(List::Events(conversation));
        let is_live = self.is_live;
        let event = match self.event {
            None => None,
            Some(event) => ConversationEvent::load(scope, conversation, event).await?,
        };
        Ok(ConversationEventPayload {
            cursor,
            event,
            is_live,
        })
    }
}

impl ConversationEvent {
    /// The event with its objects in their present state. `None` if such an object no longer
    /// exists: only the position is delivered.
    async fn load(
        scope: &ViewerScope,
        conversation: ConversationId,
        event: chat::ConversationEvent,
    ) -> Result<Option<Self>> {
        Ok(match event {
            chat::ConversationEvent::MessageAdded(message) => {
                Some(Self::MessageAdded(MessageAddedEvent {
                    message_edge: message_edge(scope, message),
                }))
            }
            chat::ConversationEvent::MessageChanged(kind, message) => {
                Self::of_message(scope, kind, message)
            }
            chat::ConversationEvent::ParticipantAdded(user) => {
                let participant = participant_or_gone(scope, conversation, &user).await?;
                participant.map(|participant| {
                    Self::ParticipantAdded(ParticipantAddedEvent { participant })
                })
            }
            chat::ConversationEvent::ParticipantRemoved(user) => {
                Some(Self::ParticipantRemoved(ParticipantRemovedEvent {
                    user: User::new(scope, user),
                }))
            }
            chat::ConversationEvent::RoleChanged(user) => {
                let participant = participant_or_gone(scope, conversation, &user).await?;
                participant.map(|participant| Self::RoleChanged(RoleChangedEvent { participant }))
            }
            chat::ConversationEvent::ParticipantUpdated(user) => {
                let participant = participant_or_gone(scope, conversation, &user).await?;
                participant.map(|participant| {
                    Self::ParticipantUpdated(ParticipantUpdatedEvent { participant })
                })
            }
            chat::ConversationEvent::ConversationUpdated => {
                let conversation = Conversation::load(scope, conversation).await?;
                conversation.map(|conversation| {
                    Self::ConversationUpdated(ConversationUpdatedEvent { conversation })
                })
            }
            chat::ConversationEvent::HistoryExpired => {
                let event = HistoryExpiredEvent::load(scope, conversation).await?;
                event.map(Self::HistoryExpired)
            }
            chat::ConversationEvent::Renamed => {
                let conversation = Conversation::load(scope, conversation).await?;
                conversation
                    .map(|conversation| Self::Renamed(ConversationRenamedEvent { conversation }))
            }
            // A user who has left has no marker any more.
            chat::ConversationEvent::MarkerMoved(user) => {
                let participant = scope
                    .chat
                    .participants
                    .participant(&scope.caller, conversation, &user)
                    .await?;
                participant.map(|participant| {
                    Self::MarkerMoved(MarkerMovedEvent {
                        participant: Participant::new(scope, participant),
                    })
                })
            }
        })
    }

    fn of_message(
        scope: &ViewerScope,
        kind: ChangeKind,
        message: Arc<model::Message>,
    ) -> Option<Self> {
        if kind == ChangeKind::PinsChanged {
            return Some(Self::PinsChanged(PinsChangedEvent::new(scope, message)));
        }
        let message = Message::new(scope, message);
        match kind {
            ChangeKind::MessageEdited => Some(Self::MessageEdited(MessageEditedEvent { message })),
            ChangeKind::MessageDeleted => {
                Some(Self::MessageDeleted(MessageDeletedEvent { message }))
            }
            ChangeKind::ReactionsChanged => {
                Some(Self::ReactionsChanged(ReactionsChangedEvent { message }))
            }
            // A late message is delivered as MessageAdded, and a pin above; the other kinds change no message.
            ChangeKind::MessageLate
            | ChangeKind::PinsChanged
            | ChangeKind::ParticipantAdded
            | ChangeKind::ParticipantRemoved
            | ChangeKind::RoleChanged
            | ChangeKind::ConversationRenamed
            | ChangeKind::ParticipantUpdated
            | ChangeKind::ConversationUpdated
            | ChangeKind::HistoryRaised => None,
        }
    }
}

pub(super) async fn participant_or_gone(
    scope: &ViewerScope,
    conversation: ConversationId,
    user: &UserId,
) -> Result<Option<Participant>> {
    let found = scope
        .chat
        .participants
        .current_or_former(&scope.caller, conversation, user)
        .await?;
    Ok(found.map(|participant| Participant::new(scope, participant)))
}
