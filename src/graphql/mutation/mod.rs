//! The mutations: arguments to words of the chat, and back.
//!
//! Each field is nullable, so that one error does not null its siblings; each echoes its `clientMutationId`.

mod group;
mod inbox;
mod profile;
mod reaction;
mod typing;

use std::sync::Arc;

use async_graphql::{Context, ID, InputObject, Object, SimpleObject};

use self::group::{
    AddParticipantsInput, AddParticipantsPayload, CreateGroupConversationInput,
    CreateGroupConversationPayload, LeaveConversationInput, LeaveConversationPayload,
    RemoveParticipantInput, RemoveParticipantPayload, RenameConversationInput,
    RenameConversationPayload, SetParticipantRoleInput, SetParticipantRolePayload,
    StartDirectConversationInput, StartDirectConversationPayload,
};
use self::inbox::{
    MarkDeliveredInput, MarkDeliveredPayload, UpdateInboxEntryInput, UpdateInboxEntryPayload,
};
use self::profile::{UpdateProfileInput, UpdateProfilePayload};
use self::reaction::{
    AddReactionInput, AddReactionPayload, RemoveReactionInput, RemoveReactionPayload,
};
use self::typing::{SetTypingInput, SetTypingPayload};
use super::error::{Error, Nullable, Result, nullable};
use super::id::{conversation_of, message_id};
use super::scalar::Json;
use super::scope::ViewerScope;
use super::types::{AttachmentInput, InboxEntry, InboxEntryEdge, Message, MessageEdge};
use crate::chat::{Draft, DraftInput};
use crate::model::{self, ConversationId, MessageId};

const CLIENT_MUTATION_ID_BYTES_MAX: usize = 128;

/// Input of `sendMessage`.
#[derive(InputObject)]
struct SendMessageInput {
    /// The conversation.
    conversation_id: ID,
    /// Text: 1 byte to 16 KiB of UTF-8, not blank. It may be empty only with attachments. Control characters other than tab, line feed and carriage return are refused.
    body: String,
    /// Attachments: at most 10, together at most 8 KiB.
    attachments: Option<Vec<AttachmentInput>>,
    /// Metadata of the client: at most 2 KiB of JSON, at most 64 levels deep. Reads return the same value, its keys in order.
    metadata: Option<Json>,
    /// Message of the same conversation that this one replies to.
    reply_to_id: Option<ID>,
    /// Idempotency key: 1 to 64 bytes of printable ASCII, new for each message. A retry with the same key within 24 hours returns the first message.
    idempotency_key: Option<String>,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `sendMessage`: the message is stored.
struct SendMessagePayload {
    scope: ViewerScope,
    conversation: ConversationId,
    message: Arc<model::Message>,
    client_mutation_id: Option<String>,
}

/// Payload of `sendMessage`: the message is stored.
#[Object]
impl SendMessagePayload {
    /// Edge of the message in `Conversation.messages`.
    async fn message_edge(&self) -> MessageEdge {
        super::types::message_edge(&self.scope, Arc::clone(&self.message))
    }

    /// The viewer's entry for the conversation.
    async fn inbox_entry_edge(&self) -> Result<InboxEntryEdge> {
        entry_edge(&self.scope, self.conversation).await
    }

    /// The `clientMutationId` of the input.
    async fn client_mutation_id(&self) -> Option<&str> {
        self.client_mutation_id.as_deref()
    }
}

/// Input of `editMessage`.
#[derive(InputObject)]
struct EditMessageInput {
    /// A message that the viewer sent.
    message_id: ID,
    /// New text: at most 16 KiB of UTF-8, not blank, without control characters other than tab, line feed and carriage return. It may be empty if the message has attachments, which stay.
    body: String,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `editMessage`.
#[derive(SimpleObject)]
struct EditMessagePayload {
    /// The message.
    message: Message,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `deleteMessage`.
#[derive(InputObject)]
struct DeleteMessageInput {
    /// A message that the viewer sent. An OWNER or ADMIN of a group may name any message of the group.
    message_id: ID,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `deleteMessage`.
#[derive(SimpleObject)]
struct DeleteMessagePayload {
    /// The message without its content.
    message: Message,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `markRead`.
#[derive(InputObject)]
struct MarkReadInput {
    /// The conversation.
    conversation_id: ID,
    /// Last message that the viewer read. Default: the newest message.
    message_id: Option<ID>,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload with the entry's new read marker.
#[derive(SimpleObject)]
struct MarkReadPayload {
    /// The viewer's entry.
    inbox_entry: InboxEntry,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `markUnread`.
#[derive(InputObject)]
struct MarkUnreadInput {
    /// The conversation.
    conversation_id: ID,
    /// First message to be unread again.
    message_id: ID,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload with the entry's new read marker.
#[derive(SimpleObject)]
struct MarkUnreadPayload {
    /// The viewer's entry.
    inbox_entry: InboxEntry,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

pub struct Mutation;

/// Mutations. The server answers after the change is stored.
#[Object]
impl Mutation {
    /// Returns the direct conversation of the viewer and a user, and creates it if none exists.
    async fn start_direct_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Input of `startDirectConversation`.")]
        input: StartDirectConversationInput,
    ) -> Nullable<StartDirectConversationPayload> {
        nullable(group::start_direct(ctx, input)).await
    }

    /// Creates a group of the viewer, as its OWNER, and these users.
    async fn create_group_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The new group.")] input: CreateGroupConversationInput,
    ) -> Nullable<CreateGroupConversationPayload> {
        nullable(group::create(ctx, input)).await
    }

    /// Renames a group. Allowed for its ADMINs and OWNERs.
    async fn rename_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The group and its new name.")] input: RenameConversationInput,
    ) -> Nullable<RenameConversationPayload> {
        nullable(group::rename(ctx, input)).await
    }

    /// Adds users to a group as MEMBERs. They see its whole history, with nothing unread. Allowed for its ADMINs and
    /// OWNERs. Adding a participant again changes nothing.
    async fn add_participants(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The users to add.")] input: AddParticipantsInput,
    ) -> Nullable<AddParticipantsPayload> {
        nullable(group::add(ctx, input)).await
    }

    /// Removes a participant from a group. An ADMIN may remove MEMBERs, an OWNER anyone. Repeating it changes nothing.
    async fn remove_participant(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The participant to remove.")] input: RemoveParticipantInput,
    ) -> Nullable<RemoveParticipantPayload> {
        nullable(group::remove(ctx, input)).await
    }

    /// Changes the role of a participant of a group. Allowed for its OWNERs. A group always has an OWNER.
    async fn set_participant_role(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The participant and the new role.")] input: SetParticipantRoleInput,
    ) -> Nullable<SetParticipantRolePayload> {
        nullable(group::set_role(ctx, input)).await
    }

    /// Removes the viewer from a group. After the last OWNER leaves, its oldest ADMIN, else its oldest participant, is OWNER.
    async fn leave_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The group to leave.")] input: LeaveConversationInput,
    ) -> Nullable<LeaveConversationPayload> {
        nullable(group::leave(ctx, input)).await
    }

    /// Sends a message. A retry with the same `idempotencyKey` within 24 hours returns the message of the first try. The
    /// same key with another content is CONFLICT.
    async fn send_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message to send.")] input: SendMessageInput,
    ) -> Nullable<SendMessagePayload> {
        nullable(async {
            let scope = ViewerScope::fresh(ctx)?;
            let client_mutation_id = echo(input.client_mutation_id)?;
            let conversation = conversation_of(&input.conversation_id)?;
            let draft = DraftInput {
                body: input.body,
                attachments: input
                    .attachments
                    .unwrap_or_default()
                    .into_iter()
                    .map(Into::into)
                    .collect(),
                metadata: input.metadata.map(|metadata| metadata.0),
                reply_to: input
                    .reply_to_id
                    .map(|id| message_in(conversation, &id))
                    .transpose()?,
                idempotency_key: input.idempotency_key,
            };
            let draft = Draft::parse(draft, scope.chat.bounds())?;
            let message = scope.chat.send(&scope.viewer, conversation, draft).await?;
            Ok(Some(SendMessagePayload {
                scope,
                conversation,
                message,
                client_mutation_id,
            }))
        })
        .await
    }

    /// Replaces the body of a message that the viewer sent. Attachments and metadata stay.
    async fn edit_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message and its new body.")] input: EditMessageInput,
    ) -> Nullable<EditMessagePayload> {
        nullable(async {
            let scope = ViewerScope::fresh(ctx)?;
            let client_mutation_id = echo(input.client_mutation_id)?;
            let (conversation, id) =
                message_id(&input.message_id).ok_or_else(|| Error::not_found("the message"))?;
            let message = scope
                .chat
                .edit(&scope.viewer, conversation, id, input.body)
                .await?;
            Ok(Some(EditMessagePayload {
                message: Message::new(&scope, message),
                client_mutation_id,
            }))
        })
        .await
    }

    /// Deletes the content of a message. Its position in history stays. Repeating it changes nothing.
    async fn delete_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message to delete.")] input: DeleteMessageInput,
    ) -> Nullable<DeleteMessagePayload> {
        nullable(async {
            let scope = ViewerScope::fresh(ctx)?;
            let client_mutation_id = echo(input.client_mutation_id)?;
            let (conversation, id) =
                message_id(&input.message_id).ok_or_else(|| Error::not_found("the message"))?;
            let message = scope.chat.delete(&scope.viewer, conversation, id).await?;
            Ok(Some(DeleteMessagePayload {
                message: Message::new(&scope, message),
                client_mutation_id,
            }))
        })
        .await
    }

    /// Adds the viewer's reaction to a message. Repeating it changes nothing.
    async fn add_reaction(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message and the emoji.")] input: AddReactionInput,
    ) -> Nullable<AddReactionPayload> {
        nullable(reaction::add(ctx, input)).await
    }

    /// Removes the viewer's reaction from a message. Without one, nothing changes.
    async fn remove_reaction(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message and the emoji.")] input: RemoveReactionInput,
    ) -> Nullable<RemoveReactionPayload> {
        nullable(reaction::remove(ctx, input)).await
    }

    /// Moves the viewer's read marker forward to this message (default: the newest one). It never moves back.
    async fn mark_read(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Input of `markRead`.")] input: MarkReadInput,
    ) -> Nullable<MarkReadPayload> {
        nullable(async {
            let scope = ViewerScope::fresh(ctx)?;
            let client_mutation_id = echo(input.client_mutation_id)?;
            let conversation = conversation_of(&input.conversation_id)?;
            let message = input
                .message_id
                .map(|id| message_in(conversation, &id))
                .transpose()?;
            let row = scope
                .chat
                .mark_read(&scope.viewer, conversation, message)
                .await?;
            Ok(Some(MarkReadPayload {
                inbox_entry: InboxEntry::new(&scope, row),
                client_mutation_id,
            }))
        })
        .await
    }

    /// Moves the read marker back, so that this message and all later ones are unread again.
    async fn mark_unread(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Input of `markUnread`.")] input: MarkUnreadInput,
    ) -> Nullable<MarkUnreadPayload> {
        nullable(async {
            let scope = ViewerScope::fresh(ctx)?;
            let client_mutation_id = echo(input.client_mutation_id)?;
            let conversation = conversation_of(&input.conversation_id)?;
            let message = message_in(conversation, &input.message_id)?;
            let row = scope
                .chat
                .mark_unread(&scope.viewer, conversation, message)
                .await?;
            Ok(Some(MarkUnreadPayload {
                inbox_entry: InboxEntry::new(&scope, row),
                client_mutation_id,
            }))
        })
        .await
    }

    /// Moves the viewer's delivered marker forward to this message (default: the newest one). It never moves back.
    async fn mark_delivered(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Input of `markDelivered`.")] input: MarkDeliveredInput,
    ) -> Nullable<MarkDeliveredPayload> {
        nullable(inbox::mark_delivered(ctx, input)).await
    }

    /// Mutes, pins or archives the viewer's inbox entry, or undoes it. Omitted fields stay unchanged.
    async fn update_inbox_entry(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The entry and its new flags.")] input: UpdateInboxEntryInput,
    ) -> Nullable<UpdateInboxEntryPayload> {
        nullable(inbox::update_entry(ctx, input)).await
    }

    /// Publishes that the viewer types, or stopped. Repeat it every few seconds while the viewer types. It expires
    /// 6 seconds after the last call, and with a message.
    async fn set_typing(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The conversation, and whether the viewer types.")] input: SetTypingInput,
    ) -> Nullable<SetTypingPayload> {
        nullable(typing::set_typing(ctx, input)).await
    }

    /// Changes the viewer's profile. Omitted fields stay unchanged; null clears a field.
    async fn update_profile(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The new profile fields.")] input: UpdateProfileInput,
    ) -> Nullable<UpdateProfilePayload> {
        nullable(profile::update_profile(ctx, input)).await
    }
}

fn echo(client_mutation_id: Option<String>) -> Result<Option<String>> {
    match client_mutation_id {
        Some(id) if id.len() > CLIENT_MUTATION_ID_BYTES_MAX => {
            let message =
                format!("a clientMutationId has at most {CLIENT_MUTATION_ID_BYTES_MAX} bytes");
            Err(Error::bad_input(&["input", "clientMutationId"], message))
        }
        id => Ok(id),
    }
}

fn message_in(conversation: ConversationId, id: &ID) -> Result<MessageId> {
    match message_id(id) {
        Some((named, message)) if named == conversation => Ok(message),
        _ => Err(Error::not_found("the message")),
    }
}

/// For the answer to what was done by now.
async fn entry_edge(scope: &ViewerScope, conversation: ConversationId) -> Result<InboxEntryEdge> {
    let edge = InboxEntryEdge::load(scope, conversation).await;
    edge.and_then(|edge| edge.ok_or_else(|| Error::not_found("the conversation")))
        .map_err(Error::once_done)
}
