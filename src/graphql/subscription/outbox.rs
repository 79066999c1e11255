//! Payloads of `outbox`.

use std::sync::Arc;

use async_graphql::{Context, Enum, ID, Object, Union};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream, Stream};
use parking_lot::Mutex;

use super::conversation::{
    ConversationRenamedEvent, ConversationUpdatedEvent, HistoryExpiredEvent, MessageAddedEvent,
    MessageDeletedEvent, MessageEditedEvent, ParticipantAddedEvent, ParticipantRemovedEvent,
    ParticipantUpdatedEvent, PinsChangedEvent, ReactionsChangedEvent, RoleChangedEvent,
    participant_or_gone,
};
use super::notification::NotificationEvent;
use crate::chat::{LoadedEvent, OutboxItem, OutboxTypes, OutboxUpdate, OutboxUpdates};
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::{Error, Nullable, Result, nullable};
use crate::graphql::execution::ExecutionLimits;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{Conversation, Message, Report, User, message_edge};
use crate::model::{ConversationId, OrderKey, OutboxEventKind};

/// Type of an event in the outbox.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
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
    OutboxTypes {
        has_notifications: types.contains(&OutboxEventType::Notification),
        kinds: Some(types.into_iter().filter_map(kind_of).collect()),
    }
}

fn kind_of(kind: OutboxEventType) -> Option<OutboxEventKind> {
    Some(match kind {
        OutboxEventType::MessageAdded => OutboxEventKind::MessageAdded,
        OutboxEventType::MessageEdited => OutboxEventKind::MessageEdited,
        OutboxEventType::MessageDeleted => OutboxEventKind::MessageDeleted,
        OutboxEventType::ReactionsChanged => OutboxEventKind::ReactionsChanged,
        OutboxEventType::ParticipantAdded => OutboxEventKind::ParticipantAdded,
        OutboxEventType::ParticipantRemoved => OutboxEventKind::ParticipantRemoved,
        OutboxEventType::RoleChanged => OutboxEventKind::RoleChanged,
        OutboxEventType::ConversationRenamed => OutboxEventKind::ConversationRenamed,
        OutboxEventType::ConversationCreated => OutboxEventKind::ConversationCreated,
        OutboxEventType::ParticipantUpdated => OutboxEventKind::ParticipantUpdated,
        OutboxEventType::ConversationUpdated => OutboxEventKind::ConversationUpdated,
        OutboxEventType::PinsChanged => OutboxEventKind::PinsChanged,
        OutboxEventType::HistoryExpired => OutboxEventKind::HistoryExpired,
        OutboxEventType::Reported => OutboxEventKind::Reported,
        OutboxEventType::UserErased => OutboxEventKind::UserErased,
        OutboxEventType::Notification => return None,
    })
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
        nullable(async {
            match &self.source {
                Some((_, conversation)) => Conversation::load(&self.scope, *conversation).await,
                None => Ok(None),
            }
        })
        .await
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
    stream::unfold(Some((updates, scope, limits)), async |state| {
        let (mut updates, scope, limits) = state?;
        let payload = match updates.next().await {
            Ok(update) => {
                limits.budget.pass(update.position);
                OutboxPayload::load(&scope.renewed(), update).await
            }
            Err(error) => Err(error.into()),
        };
        let state = payload.is_ok().then_some((updates, scope, limits));
        Some((payload, state))
    })
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
            conversation,
            item: OutboxItem { event, .. },
            message,
            recipients,
        } = loaded;
        if let (Some(message), Some(recipients)) = (&message, recipients) {
            let event = NotificationEvent::new(scope, Arc::clone(message), recipients);
            return Ok(Some(Self::Notification(event)));
        }
        if let Some(message) = message {
            return Ok(Self::of_message(scope, event.kind, message));
        }
        if let Some(user) = event.user {
            if event.kind == OutboxEventKind::UserErased {
                let username = user.as_str().to_owned();
                return Ok(Some(Self::UserErased(UserErasedEvent { username })));
            }
            if event.kind == OutboxEventKind::ParticipantRemoved {
                let user = User::new(scope, user);
                return Ok(Some(Self::ParticipantRemoved(ParticipantRemovedEvent {
                    user,
                })));
            }
            let participant = participant_or_gone(scope, conversation, &user).await?;
            return Ok(participant.map(|participant| {
                if event.kind == OutboxEventKind::RoleChanged {
                    Self::RoleChanged(RoleChangedEvent { participant })
                } else if event.kind == OutboxEventKind::ParticipantUpdated {
                    Self::ParticipantUpdated(ParticipantUpdatedEvent { participant })
                } else {
                    Self::ParticipantAdded(ParticipantAddedEvent { participant })
                }
            }));
        }
        if event.kind == OutboxEventKind::HistoryExpired {
            let event = HistoryExpiredEvent::load(scope, conversation).await?;
            return Ok(event.map(Self::HistoryExpired));
        }
        if event.kind == OutboxEventKind::Reported {
            let report = Report::load(scope, event.id).await?;
            return Ok(report.map(|report| Self::Reported(ReportedEvent { report })));
        }
        let conversation = Conversation::load(scope, conversation).await?;
        Ok(conversation.map(|conversation| {
            if event.kind == OutboxEventKind::ConversationRenamed {
                Self::Renamed(ConversationRenamedEvent { conversation })
            } else if event.kind == OutboxEventKind::ConversationUpdated {
                Self::ConversationUpdated(ConversationUpdatedEvent { conversation })
            } else {
                Self::Created(ConversationCreatedEvent { conversation })
            }
        }))
    }

    fn of_message(
        scope: &ViewerScope,
        kind: OutboxEventKind,
        message: Arc<crate::model::Message>,
    ) -> Option<Self> {
        let shown = |message| Message::new(scope, message);
        match kind {
            OutboxEventKind::MessageAdded => Some(Self::MessageAdded(MessageAddedEvent {
                message_edge: message_edge(scope, message),
            })),
            OutboxEventKind::MessageEdited => Some(Self::MessageEdited(MessageEditedEvent {
                message: shown(message),
            })),
            OutboxEventKind::MessageDeleted => Some(Self::MessageDeleted(MessageDeletedEvent {
                message: shown(message),
            })),
            OutboxEventKind::ReactionsChanged => {
                Some(Self::ReactionsChanged(ReactionsChangedEvent {
                    message: shown(message),
                }))
            }
            OutboxEventKind::PinsChanged => {
                Some(Self::PinsChanged(PinsChangedEvent::new(scope, message)))
            }
            // Only the kinds above are loaded with a message.
            OutboxEventKind::ParticipantAdded
            | OutboxEventKind::ParticipantRemoved
            | OutboxEventKind::RoleChanged
            | OutboxEventKind::ConversationRenamed
            | OutboxEventKind::ConversationCreated
            | OutboxEventKind::ParticipantUpdated
            | OutboxEventKind::ConversationUpdated
            | OutboxEventKind::HistoryExpired
            | OutboxEventKind::Reported
            | OutboxEventKind::UserErased => None,
        }
    }
}

/// Position of a cursor of this subscription.
pub(super) fn outbox_position(cursor: &str) -> Result<OrderKey> {
    OrderKey::decode(cursor, List::Outbox)
        .ok_or_else(|| Error::bad_input(&["after"], "`after` is not a cursor of this subscription"))
}
