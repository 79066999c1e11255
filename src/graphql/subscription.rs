//! The subscriptions: streams of the chat to payloads, each with a scope of its own, so that no event shows what an earlier one read.

use std::sync::Arc;

use async_graphql::{Context, ID, SimpleObject, Subscription, Union};
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt as _};

use super::Terms;
use super::cursor::{CursorKey, List};
use super::error::{Error, Result};
use super::id::{GlobalId, conversation_of};
use super::scope::{Scope, Session};
use super::types::{
    Conversation, InboxEntryEdge, Message, MessageEdge, Participant, Presence, User, message_edge,
};
use super::updates::{Desk, Feed, Update, Updates};
use crate::chat::{
    self, ConversationUpdate, ConversationUpdates, InboxUpdate, MessageUpdate, MessageUpdates,
    PresenceUpdate, TypingUpdate, TypingUpdates,
};
use crate::model::{ChangeKind, ConversationId, OrderKey, UserId};

/// Payload of `messageAdded`.
#[derive(SimpleObject)]
struct MessageAddedPayload {
    /// Edge of the message in `Conversation.messages`. Its cursor resumes this subscription.
    message_edge: MessageEdge,
}

/// An event of the viewer's inbox, or only the position of the stream.
#[derive(SimpleObject)]
struct InboxUpdatedPayload {
    /// Cursor to resume this subscription from.
    cursor: String,
    /// The event. Null in the first payload, and in the one that a quiet stream sends about once an hour.
    event: Option<InboxEvent>,
}

/// Event of an inbox.
#[derive(Union)]
enum InboxEvent {
    Changed(InboxEntryChangedEvent),
    Removed(InboxEntryRemovedEvent),
}

/// An inbox entry is new, or changed.
#[derive(SimpleObject)]
struct InboxEntryChangedEvent {
    /// The entry in its present state. The same state may be delivered again.
    inbox_entry_edge: InboxEntryEdge,
}

/// An inbox entry was removed: the viewer no longer takes part in the conversation.
#[derive(SimpleObject)]
struct InboxEntryRemovedEvent {
    /// Id of the removed entry.
    inbox_entry_id: ID,
    /// Id of its conversation.
    conversation_id: ID,
}

/// An event of a conversation, or only the position of the stream.
#[derive(SimpleObject)]
struct ConversationEventPayload {
    /// Cursor to resume this subscription from.
    cursor: String,
    /// The event. Null in the first payload, and in the one that a quiet stream sends about once an hour.
    event: Option<ConversationEvent>,
}

/// Event of a conversation.
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
}

/// A message was sent.
#[derive(SimpleObject)]
struct MessageAddedEvent {
    /// Edge of the message in `Conversation.messages`.
    message_edge: MessageEdge,
}

/// A message was edited.
#[derive(SimpleObject)]
struct MessageEditedEvent {
    /// The message in its present state.
    message: Message,
}

/// A message was deleted.
#[derive(SimpleObject)]
struct MessageDeletedEvent {
    /// The message without its content.
    message: Message,
}

/// The reactions to a message changed.
#[derive(SimpleObject)]
struct ReactionsChangedEvent {
    /// The message in its present state.
    message: Message,
}

/// The read or delivered marker of a participant moved. Large conversations do not publish it.
#[derive(SimpleObject)]
struct MarkerMovedEvent {
    /// The participant in their present state.
    participant: Participant,
}

/// A user joined, for the first time or again.
#[derive(SimpleObject)]
struct ParticipantAddedEvent {
    /// The participant in their present state, even if they have left since.
    participant: Participant,
}

/// A user left or was removed. It is the last event of that user's stream.
#[derive(SimpleObject)]
struct ParticipantRemovedEvent {
    /// The user who left or was removed.
    user: User,
}

/// The role of a participant changed.
#[derive(SimpleObject)]
struct RoleChangedEvent {
    /// The participant in their present state, even if they have left since.
    participant: Participant,
}

/// The conversation was renamed.
#[derive(SimpleObject)]
struct ConversationRenamedEvent {
    /// The conversation in its present state.
    conversation: Conversation,
}

/// A user started or stopped typing.
#[derive(SimpleObject)]
struct TypingPayload {
    /// The user.
    user: User,
    /// True while the user types.
    is_typing: bool,
}

/// Present state of a user's presence.
#[derive(SimpleObject)]
struct PresencePayload {
    /// The user.
    user: User,
    /// Presence of the user.
    presence: Presence,
}

/// Payload of a stream of the chat. Such a stream may have many equal subscribers.
trait Shown: Sized + Send + 'static {
    type Payload: Send;
    type Updates: Into<Updates> + Send + 'static;

    /// The list whose cursors such a stream resumes from.
    fn list(conversation: ConversationId) -> Option<List<'static>>;

    /// `None` for what another stream tells.
    fn of(update: Update) -> Option<Self>;

    fn show(
        self,
        scope: &Scope,
        conversation: ConversationId,
    ) -> impl Future<Output = Result<Self::Payload>> + Send;
}

impl Shown for MessageUpdate {
    type Payload = MessageAddedPayload;
    type Updates = MessageUpdates;

    fn list(conversation: ConversationId) -> Option<List<'static>> {
        Some(List::Messages(conversation))
    }

    fn of(update: Update) -> Option<Self> {
        if let Update::Message(update) = update {
            Some(update)
        } else {
            None
        }
    }

    async fn show(self, scope: &Scope, _: ConversationId) -> Result<MessageAddedPayload> {
        Ok(MessageAddedPayload {
            message_edge: message_edge(scope, self.message),
        })
    }
}

impl Shown for ConversationUpdate {
    type Payload = ConversationEventPayload;
    type Updates = ConversationUpdates;

    fn list(conversation: ConversationId) -> Option<List<'static>> {
        Some(List::Events(conversation))
    }

    fn of(update: Update) -> Option<Self> {
        if let Update::Event(update) = update {
            Some(update)
        } else {
            None
        }
    }

    async fn show(
        self,
        scope: &Scope,
        conversation: ConversationId,
    ) -> Result<ConversationEventPayload> {
        conversation_payload(scope, conversation, self).await
    }
}

impl Shown for TypingUpdate {
    type Payload = TypingPayload;
    type Updates = TypingUpdates;

    fn list(_: ConversationId) -> Option<List<'static>> {
        None
    }

    fn of(update: Update) -> Option<Self> {
        if let Update::Typing(update) = update {
            Some(update)
        } else {
            None
        }
    }

    async fn show(self, scope: &Scope, _: ConversationId) -> Result<TypingPayload> {
        Ok(TypingPayload {
            user: User::new(scope, self.user),
            is_typing: self.is_typing,
        })
    }
}

/// The payloads of what is opened; or, where that is to be handed over, none; or those of what another stream tells.
async fn payloads<U: Shown>(
    ctx: &Context<'_>,
    conversation: ConversationId,
    open: impl AsyncFnOnce(&Scope) -> chat::Result<U::Updates>,
) -> Result<BoxStream<'static, Result<U::Payload>>> {
    let scope = Scope::fresh(ctx)?;
    let session = ctx.data_unchecked::<Session>();
    if let Some(list) = U::list(conversation) {
        session.budget.track(list.cursors());
    }
    match &session.desk {
        Some(Desk::Opening(slot)) => {
            Desk::hand_over(slot, open(&scope).await?.into());
            Ok(stream::empty().boxed())
        }
        Some(Desk::Showing(feed)) => {
            let feed = feed.lock().take();
            Ok(stream::unfold(feed, move |feed: Option<Feed>| async move {
                let mut feed = feed?;
                let (scope, update) = feed.recv().await?;
                let payload = match update.map(U::of) {
                    Ok(update) => update?.show(&scope, conversation).await,
                    Err(error) => Err(error.into()),
                };
                Some((payload, Some(feed)))
            })
            .boxed())
        }
        None => {
            let updates = open(&scope).await?.into();
            Ok(own::<U>(scope, conversation, updates, terms_of(ctx)))
        }
    }
}

/// How much and how fast this subscription may answer.
fn terms_of(ctx: &Context<'_>) -> Terms {
    let session = ctx.data_unchecked::<Session>();
    Terms {
        budget: Arc::clone(&session.budget),
        pace: session.pace.clone(),
    }
}

/// Each payload has a scope of its own. The stream ends with its error: the client comes back with its cursor.
fn own<U: Shown>(
    scope: Scope,
    conversation: ConversationId,
    updates: Updates,
    terms: Terms,
) -> BoxStream<'static, Result<U::Payload>> {
    stream::unfold(
        Some((updates, scope, terms)),
        move |state: Option<(Updates, Scope, Terms)>| async move {
            let (mut updates, scope, mut terms) = state?;
            let payload = loop {
                match updates.next().await? {
                    Ok(update) => {
                        let paid = terms.pace.pay().await;
                        if !updates.may_show(&update, paid).await {
                            continue;
                        }
                        if let Some(position) = update.position() {
                            terms.budget.pass(position);
                        }
                        break U::of(update)?.show(&scope.renewed(), conversation).await;
                    }
                    Err(error) => break Err(error.into()),
                }
            };
            let state = payload.is_ok().then_some((updates, scope, terms));
            Some((payload, state))
        },
    )
    .boxed()
}

pub struct Subscription;

/// Subscriptions. A stream that resumes from its cursor has no gap.
#[Subscription]
impl Subscription {
    /// Delivers new messages of one conversation. With `after` it first delivers every later message, oldest first, then
    /// continues live without a gap. Such a cursor never expires.
    async fn message_added(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the conversation.")] conversation_id: ID,
        #[graphql(
            desc = "Cursor of `Conversation.messages`, of this subscription, or an `eventsCursor`."
        )]
        after: Option<String>,
    ) -> Result<BoxStream<'static, Result<MessageAddedPayload>>> {
        let conversation = conversation_of(&conversation_id)?;
        let after = after
            .map(|text| message_place(conversation, &text))
            .transpose()?;
        let open = async |scope: &Scope| {
            scope
                .chat
                .message_updates(&scope.viewer, conversation, after)
                .await
        };
        payloads::<MessageUpdate>(ctx, conversation, open).await
    }

    /// Delivers every event of one conversation. The first payload has no event, only the position. With `after` it then
    /// delivers the present markers of all participants and every later event, oldest first, and continues live without a gap.
    async fn conversation_events(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the conversation.")] conversation_id: ID,
        #[graphql(desc = "An `eventsCursor`, or a cursor of this subscription.")] after: Option<
            String,
        >,
    ) -> Result<BoxStream<'static, Result<ConversationEventPayload>>> {
        let conversation = conversation_of(&conversation_id)?;
        let after = after
            .map(|text| events_place(conversation, &text))
            .transpose()?;
        let open = async |scope: &Scope| {
            scope
                .chat
                .conversation_updates(&scope.viewer, conversation, after)
                .await
        };
        payloads::<ConversationUpdate>(ctx, conversation, open).await
    }

    /// Delivers the viewer's inbox entries as they change, in all conversations, new and removed ones included. The first
    /// payload has no event, only the position.
    async fn inbox_updated(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "An `updatesCursor`, or a cursor of this subscription.")] after: Option<
            String,
        >,
    ) -> Result<impl Stream<Item = Result<InboxUpdatedPayload>> + use<>> {
        let scope = Scope::fresh(ctx)?;
        let after = after.map(|text| inbox_place(&scope, &text)).transpose()?;
        let updates = scope.chat.inbox_updates(&scope.viewer, after).await?;
        let terms = terms_of(ctx);
        terms.budget.track(List::Updates(&scope.viewer).cursors());
        Ok(stream::unfold(
            Some((updates, scope, terms)),
            async |state| {
                let (mut updates, scope, mut terms) = state?;
                let update = match updates.next().await? {
                    Ok(update) => {
                        // The entry is read after the wait, as it is then.
                        let _ = terms.pace.pay().await;
                        terms.budget.pass(update.position);
                        inbox_payload(&scope.renewed(), update).await
                    }
                    Err(error) => Err(error.into()),
                };
                let state = update.is_ok().then_some((updates, scope, terms));
                Some((update, state))
            },
        ))
    }

    /// Delivers typing users of a conversation, the viewer included. Typing ends with a call, with a message, or after
    /// 6 seconds without a call. It is never stored and never replayed.
    async fn typing_changed(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the conversation.")] conversation_id: ID,
    ) -> Result<BoxStream<'static, Result<TypingPayload>>> {
        let conversation = conversation_of(&conversation_id)?;
        let open =
            async |scope: &Scope| scope.chat.typing_updates(&scope.viewer, conversation).await;
        payloads::<TypingUpdate>(ctx, conversation, open).await
    }

    /// Delivers the presence of at most 100 users: first the present state of each, then changes. Users whose presence the
    /// viewer may not see are left out.
    async fn presence_changed(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Usernames: at most 100.")] usernames: Vec<String>,
    ) -> Result<impl Stream<Item = Result<PresencePayload>> + use<>> {
        let scope = Scope::fresh(ctx)?;
        let updates = scope
            .chat
            .presence_updates(&scope.viewer, &usernames)
            .await?;
        Ok(stream::unfold(
            Some((updates, scope, terms_of(ctx).pace)),
            async |state| {
                let (mut updates, scope, mut pace) = state?;
                // Before the state is taken, which would be old after a wait.
                let _ = pace.pay().await;
                match updates.next().await? {
                    Ok(PresenceUpdate { user, presence }) => {
                        let user = User::new(&scope.renewed(), user);
                        Some((
                            Ok(PresencePayload {
                                user,
                                presence: presence.into(),
                            }),
                            Some((updates, scope, pace)),
                        ))
                    }
                    Err(error) => Some((Err(error.into()), None)),
                }
            },
        ))
    }
}

async fn conversation_payload(
    scope: &Scope,
    conversation: ConversationId,
    update: ConversationUpdate,
) -> Result<ConversationEventPayload> {
    let cursor = update.position.encode(List::Events(conversation));
    let event = match update.event {
        None => None,
        Some(chat::ConversationEvent::MessageAdded(message)) => {
            Some(ConversationEvent::MessageAdded(MessageAddedEvent {
                message_edge: message_edge(scope, message),
            }))
        }
        Some(chat::ConversationEvent::MessageChanged(kind, message)) => {
            let message = Message::new(scope, message);
            match kind {
                ChangeKind::MessageEdited => {
                    Some(ConversationEvent::MessageEdited(MessageEditedEvent {
                        message,
                    }))
                }
                ChangeKind::MessageDeleted => {
                    Some(ConversationEvent::MessageDeleted(MessageDeletedEvent {
                        message,
                    }))
                }
                ChangeKind::ReactionsChanged => {
                    Some(ConversationEvent::ReactionsChanged(ReactionsChangedEvent {
                        message,
                    }))
                }
                // A late message comes as the message, and the others are changes of none.
                ChangeKind::MessageLate
                | ChangeKind::ParticipantAdded
                | ChangeKind::ParticipantRemoved
                | ChangeKind::RoleChanged
                | ChangeKind::ConversationRenamed => None,
            }
        }
        Some(chat::ConversationEvent::ParticipantAdded(user)) => {
            let participant = participant_or_gone(scope, conversation, &user).await?;
            participant.map(|participant| {
                ConversationEvent::ParticipantAdded(ParticipantAddedEvent { participant })
            })
        }
        Some(chat::ConversationEvent::ParticipantRemoved(user)) => Some(
            ConversationEvent::ParticipantRemoved(ParticipantRemovedEvent {
                user: User::new(scope, user),
            }),
        ),
        Some(chat::ConversationEvent::RoleChanged(user)) => {
            let participant = participant_or_gone(scope, conversation, &user).await?;
            participant
                .map(|participant| ConversationEvent::RoleChanged(RoleChangedEvent { participant }))
        }
        Some(chat::ConversationEvent::Renamed) => {
            let conversation = Conversation::load(scope, conversation).await?;
            conversation.map(|conversation| {
                ConversationEvent::Renamed(ConversationRenamedEvent { conversation })
            })
        }
        // One who is gone by now has no marker: then it is the position alone.
        Some(chat::ConversationEvent::MarkerMoved(user)) => {
            let participant = scope
                .chat
                .participant(&scope.viewer, conversation, &user)
                .await?;
            participant.map(|participant| {
                ConversationEvent::MarkerMoved(MarkerMovedEvent {
                    participant: Participant::new(scope, participant),
                })
            })
        }
    };
    Ok(ConversationEventPayload { cursor, event })
}

async fn participant_or_gone(
    scope: &Scope,
    conversation: ConversationId,
    user: &UserId,
) -> Result<Option<Participant>> {
    let found = scope
        .chat
        .participant_or_gone(&scope.viewer, conversation, user)
        .await?;
    Ok(found.map(|participant| Participant::new(scope, participant)))
}

async fn inbox_payload(scope: &Scope, update: InboxUpdate) -> Result<InboxUpdatedPayload> {
    let cursor = update.position.encode(List::Updates(&scope.viewer));
    let Some(conversation) = update.conversation else {
        return Ok(InboxUpdatedPayload {
            cursor,
            event: None,
        });
    };
    let event = match InboxEntryEdge::load(scope, conversation).await? {
        Some(inbox_entry_edge) => InboxEvent::Changed(InboxEntryChangedEvent { inbox_entry_edge }),
        None => InboxEvent::Removed(InboxEntryRemovedEvent {
            inbox_entry_id: GlobalId::InboxEntry(conversation, scope.viewer.clone()).encode(),
            conversation_id: GlobalId::Conversation(conversation).encode(),
        }),
    };
    Ok(InboxUpdatedPayload {
        cursor,
        event: Some(event),
    })
}

fn message_place(conversation: ConversationId, text: &str) -> Result<OrderKey> {
    let lists = [List::Messages(conversation), List::Events(conversation)];
    let place = lists
        .into_iter()
        .find_map(|list| OrderKey::decode(text, list));
    place.ok_or_else(|| {
        Error::bad_input(
            &["after"],
            "`after` is neither a cursor of this conversation's messages nor its eventsCursor",
        )
    })
}

/// Not a cursor of history: changes of the messages before it may lie behind it.
fn events_place(conversation: ConversationId, text: &str) -> Result<OrderKey> {
    let place = OrderKey::decode(text, List::Events(conversation));
    place.ok_or_else(|| {
        Error::bad_input(&["after"], "`after` is neither an eventsCursor of this conversation nor a cursor of this subscription")
    })
}

fn inbox_place(scope: &Scope, text: &str) -> Result<OrderKey> {
    let place = OrderKey::decode(text, List::Updates(&scope.viewer));
    place.ok_or_else(|| {
        Error::bad_input(
            &["after"],
            "`after` is neither an updatesCursor nor a cursor of this subscription",
        )
    })
}
