//! Mutations of messages: send, edit, delete.

use std::sync::Arc;

use async_graphql::{Context, ID, InputObject, Object, SimpleObject};

use super::{entry_edge, message_in, mutate};
use crate::chat::{Draft, DraftInput, EditInput};
use crate::graphql::error::{Nullable, Result};
use crate::graphql::id::{conversation_of, message_of};
use crate::graphql::scalar::Json;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{
    AttachmentInput, InboxEntryEdge, Message, MessageEdge, MessageStepInput, message_edge,
};
use crate::model::{self, ConversationId};

/// Input of `sendMessage`.
#[derive(InputObject)]
pub(super) struct SendMessageInput {
    /// Global id of the conversation.
    conversation_id: ID,
    /// Text: at most 16 KiB of UTF-8 (a deployment may allow up to 20 KiB), not of white space and invisible characters
    /// alone; empty only with attachments. The only control characters are tab, line feed and carriage return.
    body: String,
    /// Attachments: at most 10, together at most 8 KiB.
    attachments: Option<Vec<AttachmentInput>>,
    /// Metadata of the client: any JSON value of at most 2 KiB, nested at most 64 levels, without
    /// duplicate keys. Reads return it unchanged, its keys in order.
    metadata: Option<Json>,
    /// Global id of the message that this one replies to, in the same conversation.
    reply_to_id: Option<ID>,
    /// Usernames of the mentioned users: at most 50, together at most 2 KiB. They are never parsed from
    /// the body. Only participants are counted and notified.
    mentioned_usernames: Option<Vec<String>>,
    /// True mentions every participant. In a large conversation only an ADMIN or OWNER may: else
    /// FORBIDDEN.
    mentions_everyone: Option<bool>,
    /// Steps of the work behind the message: at most 20, whose texts take at most 4 KiB together. With the body they
    /// take at most 20 KiB.
    steps: Option<Vec<MessageStepInput>>,
    /// Idempotency key, new for each message: 1 to 64 bytes of printable ASCII, such as a UUID. A
    /// retry with the same key within 24 hours returns the message of the first try, so that no
    /// message is sent twice.
    idempotency_key: Option<String>,
}

/// Payload of `sendMessage`. The message is stored.
pub(super) struct SendMessagePayload {
    scope: ViewerScope,
    conversation: ConversationId,
    message: Arc<model::Message>,
}

/// Payload of `sendMessage`. The message is stored.
#[Object]
impl SendMessagePayload {
    /// Edge of the message in `Conversation.messages`.
    async fn message_edge(&self) -> MessageEdge {
        message_edge(&self.scope, Arc::clone(&self.message))
    }

    /// Edge of the conversation in the viewer's inbox.
    async fn inbox_entry_edge(&self) -> Result<InboxEntryEdge> {
        entry_edge(&self.scope, self.conversation).await
    }
}

/// Input of `editMessage`.
#[derive(InputObject)]
pub(super) struct EditMessageInput {
    /// Global id of a message that the viewer sent.
    message_id: ID,
    /// New text, as in `sendMessage`; empty only if the message has attachments. The only control characters are tab,
    /// line feed and carriage return.
    body: String,
    /// Usernames of the mentioned users, as in `sendMessage`. Left out, they stay; an empty list removes
    /// them.
    mentioned_usernames: Option<Vec<String>>,
    /// Whether the message mentions every participant, as in `sendMessage`. Left out, it stays.
    mentions_everyone: Option<bool>,
}

/// Payload of `editMessage`.
#[derive(SimpleObject)]
pub(super) struct EditMessagePayload {
    /// The message in its new state.
    message: Message,
}

/// Input of `deleteMessage`.
#[derive(InputObject)]
pub(super) struct DeleteMessageInput {
    /// Global id of a message that the viewer sent. An OWNER or ADMIN of a group may delete every
    /// TEXT message of the group.
    message_id: ID,
}

/// Payload of `deleteMessage`.
#[derive(SimpleObject)]
pub(super) struct DeleteMessagePayload {
    /// The message without its content.
    message: Message,
}

#[derive(Default)]
pub(super) struct MessageMutation;

#[Object]
impl MessageMutation {
    /// Sends a message. A retry with the same `idempotencyKey` within 24 hours returns the message
    /// of the first try, also if the viewer may no longer send; the same key with another content is
    /// CONFLICT. Sending too fast is RATE_LIMITED, a busy conversation UNAVAILABLE; both are NOT_DONE.
    async fn send_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message to send.")] input: SendMessageInput,
    ) -> Nullable<SendMessagePayload> {
        mutate(ctx, async |scope| {
            let conversation = conversation_of(&input.conversation_id)?;
            let attachments = input.attachments.into_iter().flatten();
            let steps = input.steps.into_iter().flatten();
            let draft = DraftInput {
                body: input.body,
                attachments: attachments.map(Into::into).collect(),
                metadata: input.metadata.map(|metadata| metadata.0),
                reply_to: input
                    .reply_to_id
                    .map(|id| message_in(conversation, &id))
                    .transpose()?,
                mentioned_usernames: input.mentioned_usernames.unwrap_or_default(),
                mentions_everyone: input.mentions_everyone.unwrap_or_default(),
                steps: steps.map(Into::into).collect(),
                idempotency_key: input.idempotency_key,
            };
            let draft = Draft::parse(draft, scope.chat.bounds())?;
            let message = scope
                .chat
                .writes
                .send(&scope.caller, conversation, draft)
                .await?;
            Ok(SendMessagePayload {
                scope,
                conversation,
                message,
            })
        })
        .await
    }

    /// Replaces the text of a message, and its mentions if they are given. Attachments, metadata and steps
    /// stay; `isInterrupted` becomes false. Allowed for its sender, else
    /// FORBIDDEN; a SYSTEM message cannot be edited. The same text and mentions change nothing, unless the message is
    /// interrupted. Users
    /// whom the edit mentions anew are notified, unless they have read past the message.
    async fn edit_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message and its new body.")] input: EditMessageInput,
    ) -> Nullable<EditMessagePayload> {
        mutate(ctx, async |scope| {
            let (conversation, id) = message_of(&input.message_id)?;
            let edit = EditInput {
                body: input.body,
                mentioned_usernames: input.mentioned_usernames,
                mentions_everyone: input.mentions_everyone,
            };
            let message = scope
                .chat
                .writes
                .edit(&scope.caller, conversation, id, edit)
                .await?;
            let message = Message::new(&scope, message);
            Ok(EditMessagePayload { message })
        })
        .await
    }

    /// Deletes the content of a message; its position in the history stays. Allowed for its sender,
    /// and for OWNERs and ADMINs of its group, else FORBIDDEN. A SYSTEM message cannot be deleted.
    /// Repeating it changes nothing.
    async fn delete_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message to delete.")] input: DeleteMessageInput,
    ) -> Nullable<DeleteMessagePayload> {
        mutate(ctx, async |scope| {
            let (conversation, id) = message_of(&input.message_id)?;
            let message = scope
                .chat
                .writes
                .delete(&scope.caller, conversation, id)
                .await?;
            let message = Message::new(&scope, message);
            Ok(DeleteMessagePayload { message })
        })
        .await
    }
}
