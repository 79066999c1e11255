//! The subscriptions: streams of the chat, delivered as payloads.

mod conversation;
mod inbox;
mod message;
mod payload_stream;
mod presence;
mod typing;

use async_graphql::{Context, ID, Subscription};
use futures_util::Stream;
use futures_util::stream::BoxStream;

use self::conversation::{ConversationEventPayload, event_position};
use self::inbox::{InboxUpdatedPayload, inbox_position};
use self::message::{MessageAddedPayload, message_position};
use self::payload_stream::{limits_of, payloads};
use self::presence::PresencePayload;
use self::typing::TypingPayload;
use super::error::Result;
use super::id::conversation_of;
use super::scope::ViewerScope;
use crate::chat::{ConversationUpdate, MessageUpdate, TypingUpdate};

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
            .map(|cursor| message_position(conversation, &cursor))
            .transpose()?;
        let open = async |scope: &ViewerScope| {
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
            .map(|cursor| event_position(conversation, &cursor))
            .transpose()?;
        let open = async |scope: &ViewerScope| {
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
        let scope = ViewerScope::fresh(ctx)?;
        let after = after
            .map(|cursor| inbox_position(&scope, &cursor))
            .transpose()?;
        let updates = scope.chat.inbox_updates(&scope.viewer, after).await?;
        Ok(inbox::payloads(updates, scope, limits_of(ctx)))
    }

    /// Delivers typing users of a conversation, the viewer included. Typing ends with a call, with a message, or after
    /// 6 seconds without a call. It is never stored and never replayed.
    async fn typing_changed(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the conversation.")] conversation_id: ID,
    ) -> Result<BoxStream<'static, Result<TypingPayload>>> {
        let conversation = conversation_of(&conversation_id)?;
        let open = async |scope: &ViewerScope| {
            scope.chat.typing_updates(&scope.viewer, conversation).await
        };
        payloads::<TypingUpdate>(ctx, conversation, open).await
    }

    /// Delivers the presence of at most 100 users: first the present state of each, then changes. Users whose presence the
    /// viewer may not see are left out.
    async fn presence_changed(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Usernames: at most 100.")] usernames: Vec<String>,
    ) -> Result<impl Stream<Item = Result<PresencePayload>> + use<>> {
        let scope = ViewerScope::fresh(ctx)?;
        let updates = scope
            .chat
            .presence_updates(&scope.viewer, &usernames)
            .await?;
        Ok(presence::payloads(updates, scope, limits_of(ctx).pace))
    }
}
