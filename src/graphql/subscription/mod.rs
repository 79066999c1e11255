//! The subscriptions: streams of the chat, delivered as payloads.

mod conversation;
mod inbox;
mod live;
mod message;
mod notification;
mod outbox;
mod payload_stream;
mod presence;
mod typing;

use async_graphql::{Context, ID, Subscription};
use futures_util::Stream;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use self::conversation::ConversationEventPayload;
use self::inbox::InboxUpdatedPayload;
use self::live::LiveMessagePayload;
use self::message::MessageAddedPayload;
pub(super) use self::outbox::OutboxHandoff;
use self::outbox::{OutboxEventType, OutboxPayload, outbox_types};
use self::payload_stream::{limits_of, payloads};
use self::presence::PresencePayload;
use self::typing::TypingPayload;
use super::cursor::{CursorKey, List};
use super::error::{Error, Result};
use super::id::conversation_of;
use super::scope::{ViewerScope, is_service};
use crate::chat::{ConversationUpdate, LiveUpdate, MessageUpdate, OutboxFilter, TypingUpdate};
use crate::model::ServiceRight;

/// Whether the document asks where a replay ends. Only such a stream announces it.
fn selects_is_live(ctx: &Context<'_>) -> bool {
    ctx.look_ahead().field("isLive").exists()
}

/// Position of a cursor of one of these lists.
fn resume<K: CursorKey>(
    after: Option<String>,
    lists: &[List<'_>],
    otherwise: &str,
) -> Result<Option<K>> {
    let Some(cursor) = after else {
        return Ok(None);
    };
    let position = lists.iter().find_map(|list| K::decode(&cursor, *list));
    let position = position.ok_or_else(|| Error::bad_input(&["after"], otherwise));
    position.map(Some)
}

pub struct Subscription;

/// Subscriptions, over WebSocket (graphql-transport-ws) or HTTP streams. Each payload of a stream
/// with cursors resumes it without a gap: pass the last cursor as `after`. The response holds it in
/// `extensions.cursor`, whatever the document selects.
///
/// A stream ends with its first error at the root field; resume it with the last cursor. After
/// CURSOR_EXPIRED read the list again, and subscribe with its new cursor. An event over the byte
/// limit is delivered as an error with its cursor, and the stream continues.
#[Subscription]
impl Subscription {
    /// Delivers new messages of one conversation. With `after` it first delivers every later
    /// message, oldest first, and then continues live without a gap. The cursors of this stream
    /// never expire.
    async fn message_added(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the conversation.")] conversation_id: ID,
        #[graphql(
            desc = "Cursor of `Conversation.messages` or of this subscription, or an `eventsCursor`. Without it the stream starts with the next message."
        )]
        after: Option<String>,
    ) -> Result<BoxStream<'static, Result<MessageAddedPayload>>> {
        let conversation = conversation_of(&conversation_id)?;
        let lists = [List::Messages(conversation), List::Events(conversation)];
        let otherwise =
            "`after` is neither a cursor of this conversation's messages nor its eventsCursor";
        let after = resume(after, &lists, otherwise)?;
        let open = async |scope: &ViewerScope| {
            scope
                .chat
                .streams
                .messages(&scope.caller, conversation, after)
                .await
        };
        payloads::<MessageUpdate>(ctx, conversation, open).await
    }

    /// Delivers every event of one conversation. The first payload has no event, only the position.
    /// With `after` it then delivers the current markers of all participants and every later event,
    /// oldest first, and continues live without a gap. Messages that the viewer no longer sees have
    /// no event. Changes of participants and of the conversation have one, from the viewer's joining
    /// on if they see the history since then.
    async fn conversation_events(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the conversation.")] conversation_id: ID,
        #[graphql(
            desc = "An `eventsCursor`, or a cursor of this subscription. Without it the stream starts with the next event."
        )]
        after: Option<String>,
    ) -> Result<BoxStream<'static, Result<ConversationEventPayload>>> {
        let conversation = conversation_of(&conversation_id)?;
        let otherwise = "`after` is neither an eventsCursor of this conversation nor a cursor of this subscription";
        let after = resume(after, &[List::Events(conversation)], otherwise)?;
        let announces_live = after.is_some() && selects_is_live(ctx);
        let open = async |scope: &ViewerScope| {
            let streams = &scope.chat.streams;
            let updates = streams
                .conversation(&scope.caller, conversation, after)
                .await?;
            Ok(if announces_live {
                updates.announcing_live()
            } else {
                updates
            })
        };
        payloads::<ConversationUpdate>(ctx, conversation, open).await
    }

    /// Delivers the viewer's inbox entries as they change, including new and removed ones. The
    /// first payload has no event, only the position. With `after` it then delivers every entry
    /// that has changed since, and continues live without a gap. An agent has no entries, and receives positions
    /// alone.
    async fn inbox_updated(
        &self,
        ctx: &Context<'_>,
        #[graphql(
            desc = "An `updatesCursor`, or a cursor of this subscription. Without it the stream starts with the next change."
        )]
        after: Option<String>,
    ) -> Result<impl Stream<Item = Result<InboxUpdatedPayload>> + use<>> {
        let scope = ViewerScope::fresh(ctx)?;
        let otherwise = "`after` is neither an updatesCursor nor a cursor of this subscription";
        let after = resume(after, &[List::Updates(&scope.viewer)], otherwise)?;
        let mut updates = scope.chat.streams.inbox(&scope.viewer, after).await?;
        if after.is_some() && selects_is_live(ctx) {
            updates = updates.announcing_live();
        }
        Ok(inbox::payloads(updates, scope, limits_of(ctx)))
    }

    /// For services with the scope `wideroom:outbox`, which covers everything that the document selects.
    /// Delivers every event of the listed types, in all conversations: at least once, and in order
    /// within each conversation. Objects are shown in their current state. The first payload has no
    /// event, only the position. Of `shards` parallel readers, each conversation belongs to exactly
    /// one. UNAVAILABLE while the deployment has no outbox.
    #[graphql(visible = "is_service")]
    async fn outbox(
        &self,
        ctx: &Context<'_>,
        #[graphql(
            desc = "A cursor of this subscription or of a webhook, of any reader. It expires with the events after it: after 7 days by default. Without it the stream starts with the next event."
        )]
        after: Option<String>,
        #[graphql(
            desc = "Types of the delivered events. Without it: all but NOTIFICATION. Not empty."
        )]
        types: Option<Vec<OutboxEventType>>,
        #[graphql(desc = "Number of this reader, from 0 to less than `shards`, which it needs.")]
        shard: Option<i32>,
        #[graphql(desc = "Number of parallel readers: 1 to 16. It needs `shard`.")] shards: Option<
            i32,
        >,
    ) -> Result<BoxStream<'static, Result<OutboxPayload>>> {
        if let Some(handoff) = ctx.data_opt::<OutboxHandoff>() {
            return handoff.payloads(ctx);
        }
        let scope = ViewerScope::fresh(ctx)?;
        let restrictions = &scope.chat.restrictions;
        restrictions.require(&scope.caller, ServiceRight::Outbox)?;
        let filter = OutboxFilter::parse(outbox_types(types), shard, shards)?;
        let otherwise = "`after` is not a cursor of this subscription";
        let after = resume(after, &[List::Outbox], otherwise)?;
        let updates = scope
            .chat
            .outbox
            .updates(&scope.caller, after, filter)
            .await?;
        Ok(outbox::payloads(updates, scope.of_outbox(), limits_of(ctx)).boxed())
    }

    /// Delivers the users who start or stop typing in a conversation, including the viewer; not those
    /// whom the viewer blocks, nor those who block the viewer. Typing ends with `setTyping`, with a
    /// message, or after 6 seconds (by default) without a call. It is never stored or replayed.
    async fn typing_changed(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the conversation.")] conversation_id: ID,
    ) -> Result<BoxStream<'static, Result<TypingPayload>>> {
        let conversation = conversation_of(&conversation_id)?;
        let open = async |scope: &ViewerScope| {
            scope.chat.streams.typing(&scope.caller, conversation).await
        };
        payloads::<TypingUpdate>(ctx, conversation, open).await
    }

    /// Delivers messages of a conversation while they are written. The first payload has no live message, only the
    /// position. Then come the whole text of each live message, and what is appended, in order; a change of the state, the
    /// status or the steps comes with an empty text. With `after` each continues after its last byte, on any server. A
    /// live message ends when its state is SENT or DISCARDED, and when a message with its `liveMessageId` arrives. Those of
    /// users whom the viewer blocks are left out. A large conversation has one payload a second for each.
    async fn live_messages(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the conversation.")] conversation_id: ID,
        #[graphql(
            desc = "A cursor of this subscription, at most 24 hours old. Without it the stream starts with the live messages that are being written."
        )]
        after: Option<String>,
    ) -> Result<BoxStream<'static, Result<LiveMessagePayload>>> {
        let conversation = conversation_of(&conversation_id)?;
        let otherwise = "`after` is no cursor of this subscription to this conversation";
        let after = resume(after, &[List::Lives(conversation)], otherwise)?;
        let open = async |scope: &ViewerScope| {
            scope
                .chat
                .streams
                .lives(&scope.caller, conversation, after)
                .await
        };
        payloads::<LiveUpdate>(ctx, conversation, open).await
    }

    /// Delivers the presence of at most 100 users: first the current state of each, then its
    /// changes. Users whose presence the viewer may not see are left out.
    async fn presence_changed(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Usernames: 1 to 128 bytes each, at most 100.")] usernames: Vec<String>,
    ) -> Result<impl Stream<Item = Result<PresencePayload>> + use<>> {
        let scope = ViewerScope::fresh(ctx)?;
        let updates = scope
            .chat
            .streams
            .presence(&scope.viewer, &usernames)
            .await?;
        Ok(presence::payloads(updates, scope, limits_of(ctx).pace))
    }
}
