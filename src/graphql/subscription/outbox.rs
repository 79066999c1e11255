//! Payloads of `outbox`.

use std::sync::Arc;

use async_graphql::{Context, Enum, ID, Object, Union};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream, Stream};
use parking_lot::Mutex;
use strum::IntoStaticStr;

use super::conversation::{
    ConversationRenamedEvent, ConversationUpdatedEvent, HistoryExpiredEvent, MessageAddedEvent,
    MessageDeletedEvent, MessageEditedEvent, ParticipantAddedEvent, ParticipantRemovedEvent,
    ParticipantUpdatedEvent, PinsChangedEvent, ReactionsChangedEvent, RoleChangedEvent,
    participant_or_gone,
};
use super::notification::NotificationEvent;
use crate::chat::{LoadedEvent, OutboxItem, OutboxTypes, OutboxUpdate, OutboxUpdates};
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::execution::ExecutionLimits;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{Conversation, Message, Report, User, message_edge};
use crate::model::{ConversationId, OrderKey, OutboxEventKind};

/// Type of an event in the outbox.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", const_into_str)]
pub(super) enum OutboxEventType {
    /// A message was sent, or the server announces a change of the conversation.
    MessageAdded,
    /// A message was edited.
    MessageEdited,
    /// A message was deleted.
    MessageDeleted,
    /// The reactions to a message changed.
    ReactionsChanged,
    /// A user joined, for the first time or again.
    ParticipantAdded,
    /// A user left or was removed.
    ParticipantRemoved,
    /// The role of a participant changed.
    RoleChanged,
    /// A conversation was renamed.
    ConversationRenamed,
    /// A conversation was created.
    ConversationCreated,
    /// A participant was silenced, or may write again.
    ParticipantUpdated,
    /// A setting of a conversation changed.
    ConversationUpdated,
    /// A message was pinned or unpinned.
    PinsChanged,
    /// Messages of a conversation are gone for everyone.
    HistoryExpired,
    /// A user or a message was reported.
    Reported,
    /// A user was erased: the last event of the erasure.
    UserErased,
    /// Users are to be notified of a message, or of an edit that mentions them anew: its id begins with that of the message or of
    /// the edit. A reader that asks for it receives all events some seconds later, so that users who read the message at once are
    /// not notified.
    Notification,
}

/// The types that a reader asks for. Without a list: all but notifications.
pub(super) fn outbox_types(types: Option<Vec<OutboxEventType>>) -> OutboxTypes {
    let Some(types) = types else {
        return OutboxTypes::default();
    };
    // Kinds have the names of their types; a notification is of no kind.
    let kinds = types.iter().filter_map(|kind| kind.into_str().parse().ok());
    OutboxTypes {
        has_notifications: types.contains(&OutboxEventType::Notification),
        kinds: Some(kinds.collect()),
    }
}

/// Payload of `outbox`: an event, or only the position of the stream.
pub(super) struct OutboxPayload {
    scope: ViewerScope,
    position: OrderKey,
    source: Option<(OutboxItem, ConversationId)>,
    event: Option<OutboxEvent>,
}

/// Payload of `outbox`: an event, or only the position of the stream.
#[Object]
impl OutboxPayload {
    /// Cursor to resume the subscription after this payload, with `after`. It serves every reader,
    /// whatever its `shard` and `types`.
    async fn cursor(&self) -> String {
        self.position.encode(List::Outbox)
    }

    /// Id of the event: the same when a reader resumes. Null without an event. On a cluster, a change
    /// whose server died may be delivered again under another id.
    async fn id(&self) -> Option<ID> {
        self.source.as_ref().map(|(item, _)| ID(item.id()))
    }

    /// Time of the event. Null without an event.
    async fn occurred_at(&self) -> Option<DateTime> {
        let source = self.source.as_ref();
        source.map(|(item, _)| DateTime(item.event.id.moment()))
    }

    /// Conversation of the event, in its current state. Null without an event, for a report
    /// without a conversation, and for an erasure.
    async fn conversation(&self) -> Nullable<Conversation> {
        let id = self.source.as_ref().map(|(_, conversation)| *conversation);
        nullable(Conversation::load(&self.scope, id)).await
    }

    /// The event. Null in the first payload, and in the one that an idle stream sends about once an
    /// hour.
    async fn event(&self) -> Option<&OutboxEvent> {
        self.event.as_ref()
    }
}

/// Event of the outbox. A later version may add types: clients need a default branch.
#[derive(Union)]
pub(super) enum OutboxEvent {
    MessageAdded(MessageAddedEvent),
    MessageEdited(MessageEditedEvent),
    MessageDeleted(MessageDeletedEvent),
    ReactionsChanged(ReactionsChangedEvent),
    ParticipantAdded(ParticipantAddedEvent),
    ParticipantRemoved(ParticipantRemovedEvent),
    RoleChanged(RoleChangedEvent),
    Renamed(ConversationRenamedEvent),
    Created(ConversationCreatedEvent),
    ParticipantUpdated(ParticipantUpdatedEvent),
    ConversationUpdated(ConversationUpdatedEvent),
    PinsChanged(PinsChangedEvent),
    HistoryExpired(HistoryExpiredEvent),
    Reported(ReportedEvent),
    UserErased(UserErasedEvent),
    Notification(NotificationEvent),
}

/// A conversation was created.
#[derive(async_graphql::SimpleObject)]
pub(super) struct ConversationCreatedEvent {
    /// The conversation in its current state.
    conversation: Conversation,
}

/// A user or a message was reported.
#[derive(async_graphql::SimpleObject)]
pub(super) struct ReportedEvent {
    /// The report in its current state.
    report: Report,
}

/// A user was erased. Each deleted message had its `MessageDeletedEvent`.
#[derive(async_graphql::SimpleObject)]
pub(super) struct UserErasedEvent {
    /// Username of the user, for the last time.
    username: String,
}

/// Event that the caller hands to the resolver of `outbox`, which then reads no log: the payload of a
/// webhook. Without an event the subscription ends at once.
pub(in crate::graphql) struct OutboxHandoff(Mutex<Option<OutboxUpdate>>);

impl OutboxHandoff {
    pub(in crate::graphql) fn new(update: Option<OutboxUpdate>) -> Self {
        Self(Mutex::new(update))
    }

    pub(super) fn payloads(
        &self,
        ctx: &Context<'_>,
    ) -> Result<BoxStream<'static, Result<OutboxPayload>>> {
        let Some(update) = self.0.lock().take() else {
            return Ok(stream::empty().boxed());
        };
        let scope = ViewerScope::fresh(ctx)?;
        let payload = async move { OutboxPayload::load(&scope, update).await };
        Ok(stream::once(payload).boxed())
    }
}

pub(super) fn payloads(
    updates: OutboxUpdates,
    scope: ViewerScope,
    limits: ExecutionLimits,
) -> impl Stream<Item = Result<OutboxPayload>> + use<> {
    limits.budget.track(List::Outbox.cursors());
    // A service that reads all events does not pay for each: the reads of its socket are its pace.
    stream::try_unfold(
        (updates, scope, limits),
        async |(mut updates, scope, limits)| {
            let update = updates.next().await?;
            limits.budget.pass(update.position);
            let payload = OutboxPayload::load(&scope.renewed(), update).await?;
            Ok(Some((payload, (updates, scope, limits))))
        },
    )
}

impl OutboxPayload {
    async fn load(scope: &ViewerScope, update: OutboxUpdate) -> Result<Self> {
        let OutboxUpdate { position, event } = update;
        let (source, event) = match event {
            None => (None, None),
            Some(loaded) => {
                let source = (loaded.item.clone(), loaded.conversation);
                (Some(source), OutboxEvent::load(scope, loaded).await?)
            }
        };
        Ok(Self {
            scope: scope.clone(),
            position,
            source,
            event,
        })
    }
}

impl OutboxEvent {
    /// The event with its objects in their present state. `None` if such an object no longer
    /// exists.
    async fn load(scope: &ViewerScope, loaded: LoadedEvent) -> Result<Option<Self>> {
        let LoadedEvent {
            conversation: id,
            item: OutboxItem { event, .. },
            message,
            recipients,
        } = loaded;
        if let (Some(message), Some(recipients)) = (&message, recipients) {
            let event = NotificationEvent::new(scope, Arc::clone(message), recipients);
            return Ok(Some(Self::Notification(event)));
        }
        let edge = |message| message_edge(scope, message);
        let shown = |message| Message::new(scope, message);
        let conversation = || Conversation::load(scope, id);
        let user = event.user;
        let participant = async || match &user {
            Some(user) => participant_or_gone(scope, id, user).await,
            None => Ok(None),
        };
        Ok(match event.kind {
            OutboxEventKind::MessageAdded => (message.map(edge))
                .map(|message_edge| Self::MessageAdded(MessageAddedEvent { message_edge })),
            OutboxEventKind::MessageEdited => (message.map(shown))
                .map(|message| Self::MessageEdited(MessageEditedEvent { message })),
            OutboxEventKind::MessageDeleted => (message.map(shown))
                .map(|message| Self::MessageDeleted(MessageDeletedEvent { message })),
            OutboxEventKind::ReactionsChanged => (message.map(shown))
                .map(|message| Self::ReactionsChanged(ReactionsChangedEvent { message })),
            OutboxEventKind::PinsChanged => {
                message.map(|message| Self::PinsChanged(PinsChangedEvent::new(scope, message)))
            }
            OutboxEventKind::ParticipantAdded => (participant().await?)
                .map(|participant| Self::ParticipantAdded(ParticipantAddedEvent { participant })),
            OutboxEventKind::ParticipantRemoved => user
                .map(|user| User::new(scope, user))
                .map(|user| Self::ParticipantRemoved(ParticipantRemovedEvent { user })),
            OutboxEventKind::RoleChanged => (participant().await?)
                .map(|participant| Self::RoleChanged(RoleChangedEvent { participant })),
            OutboxEventKind::ParticipantUpdated => (participant().await?).map(|participant| {
                Self::ParticipantUpdated(ParticipantUpdatedEvent { participant })
            }),
            OutboxEventKind::ConversationRenamed => (conversation().await?)
                .map(|conversation| Self::Renamed(ConversationRenamedEvent { conversation })),
            OutboxEventKind::ConversationCreated => (conversation().await?)
                .map(|conversation| Self::Created(ConversationCreatedEvent { conversation })),
            OutboxEventKind::ConversationUpdated => (conversation().await?).map(|conversation| {
                Self::ConversationUpdated(ConversationUpdatedEvent { conversation })
            }),
            OutboxEventKind::HistoryExpired => HistoryExpiredEvent::load(scope, id)
                .await?
                .map(Self::HistoryExpired),
            OutboxEventKind::Reported => (Report::load(scope, event.id).await?)
                .map(|report| Self::Reported(ReportedEvent { report })),
            OutboxEventKind::UserErased => user
                .map(|user| user.as_str().to_owned())
                .map(|username| Self::UserErased(UserErasedEvent { username })),
        })
    }
}
