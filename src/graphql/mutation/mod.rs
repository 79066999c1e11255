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
    AddParticipantsInput, AddParticipantsPayload, CreateGroupConversationInput, CreateGroupConversationPayload, LeaveConversationInput,
    LeaveConversationPayload, RemoveParticipantInput, RemoveParticipantPayload, RenameConversationInput, RenameConversationPayload,
    SetParticipantRoleInput, SetParticipantRolePayload, StartDirectConversationInput, StartDirectConversationPayload,
};
use self::inbox::{MarkDeliveredInput, MarkDeliveredPayload, UpdateInboxEntryInput, UpdateInboxEntryPayload};
use self::profile::{UpdateProfileInput, UpdateProfilePayload};
use self::reaction::{AddReactionInput, AddReactionPayload, RemoveReactionInput, RemoveReactionPayload};
use self::typing::{SetTypingInput, SetTypingPayload};
use super::error::{Error, Nullable, Result, nullable};
use super::id::{conversation_of, message_id};
use super::scalar::Json;
use super::scope::Scope;
use super::types::{AttachmentInput, InboxEntry, InboxEntryEdge, Message, MessageEdge};
use crate::chat::{Draft, DraftInput};
use crate::model::{self, ConversationId, MessageId};

const CLIENT_MUTATION_ID_BYTES_MAX: usize = 128;

/// A message to be sent.
#[derive(InputObject)]
struct SendMessageInput {
    /// Where to.
    conversation_id: ID,
    /// The text: at most 16 KiB of UTF-8, not blank. May be empty where there are attachments.
    body: String,
    /// What is attached: at most 10, together at most 8 KiB.
    attachments: Option<Vec<AttachmentInput>>,
    /// The client's own: at most 2 KiB as JSON, and 64 levels deep. Comes back as it was sent, keys in their order.
    metadata: Option<Json>,
    /// The message of the same conversation that this one answers.
    reply_to_id: Option<ID>,
    /// 1 to 64 bytes of printable ASCII, made by the client for this message: a retry with the same one sends nothing twice.
    idempotency_key: Option<String>,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The message, kept.
struct SendMessagePayload {
    scope: Scope,
    conversation: ConversationId,
    message: Arc<model::Message>,
    client_mutation_id: Option<String>,
}

/// The message, kept.
#[Object]
impl SendMessagePayload {
    /// The message at its place in `Conversation.messages`.
    async fn message_edge(&self) -> MessageEdge {
        super::types::message_edge(&self.scope, Arc::clone(&self.message))
    }

    /// The viewer's entry for the conversation.
    async fn inbox_entry_edge(&self) -> Result<InboxEntryEdge> {
        entry_edge(&self.scope, self.conversation).await
    }

    /// As it was given.
    async fn client_mutation_id(&self) -> Option<&str> {
        self.client_mutation_id.as_deref()
    }
}

/// Another text for a message.
#[derive(InputObject)]
struct EditMessageInput {
    /// A message of the viewer's own.
    message_id: ID,
    /// The new text: at most 16 KiB of UTF-8, not blank. May be empty where there are attachments; these stay.
    body: String,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The message with its new text.
#[derive(SimpleObject)]
struct EditMessagePayload {
    /// The message.
    message: Message,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// A message that is to go.
#[derive(InputObject)]
struct DeleteMessageInput {
    /// A message of the viewer's own, or of anybody where the viewer is OWNER or ADMIN of the group.
    message_id: ID,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// What is left of the message.
#[derive(SimpleObject)]
struct DeleteMessagePayload {
    /// The message, without its content.
    message: Message,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// What was read.
#[derive(InputObject)]
struct MarkReadInput {
    /// In which conversation.
    conversation_id: ID,
    /// The last message that was read; the newest one if none is named.
    message_id: Option<ID>,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The entry with the marker where it is now.
#[derive(SimpleObject)]
struct MarkReadPayload {
    /// The viewer's entry.
    inbox_entry: InboxEntry,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// What is to be unread again.
#[derive(InputObject)]
struct MarkUnreadInput {
    /// In which conversation.
    conversation_id: ID,
    /// The first message that is to be unread.
    message_id: ID,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The entry with the marker where it is now.
#[derive(SimpleObject)]
struct MarkUnreadPayload {
    /// The viewer's entry.
    inbox_entry: InboxEntry,
    /// As it was given.
    client_mutation_id: Option<String>,
}

pub struct Mutation;

/// What can be changed. What is answered is kept.
#[Object]
impl Mutation {
    /// The one direct conversation of the viewer and this user; the same one whoever starts it, however often.
    async fn start_direct_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Who is talked to.")] input: StartDirectConversationInput,
    ) -> Nullable<StartDirectConversationPayload> {
        nullable(group::start_direct(ctx, input)).await
    }

    /// A new group of the viewer, who is its OWNER, and these users.
    async fn create_group_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The group to be made.")] input: CreateGroupConversationInput,
    ) -> Nullable<CreateGroupConversationPayload> {
        nullable(group::create(ctx, input)).await
    }

    /// Gives a group another name. For its ADMINs and OWNERs.
    async fn rename_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The new name.")] input: RenameConversationInput,
    ) -> Nullable<RenameConversationPayload> {
        nullable(group::rename(ctx, input)).await
    }

    /// Adds users to a group, as MEMBERs: they see its whole history, and nothing of it is unread. For its ADMINs and OWNERs. Adding one twice
    /// changes nothing.
    async fn add_participants(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Who is to be added.")] input: AddParticipantsInput,
    ) -> Nullable<AddParticipantsPayload> {
        nullable(group::add(ctx, input)).await
    }

    /// Removes a user from a group. ADMINs may remove MEMBERs, OWNERs anybody. Once more changes nothing.
    async fn remove_participant(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Who is to be removed.")] input: RemoveParticipantInput,
    ) -> Nullable<RemoveParticipantPayload> {
        nullable(group::remove(ctx, input)).await
    }

    /// Gives a participant of a group another role. For its OWNERs. A group is never without an OWNER.
    async fn set_participant_role(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Who, and what they may do.")] input: SetParticipantRoleInput,
    ) -> Nullable<SetParticipantRolePayload> {
        nullable(group::set_role(ctx, input)).await
    }

    /// Takes the viewer out of a group. When its last OWNER leaves, its oldest ADMIN, else its oldest participant, becomes OWNER.
    async fn leave_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "What is left.")] input: LeaveConversationInput,
    ) -> Nullable<LeaveConversationPayload> {
        nullable(group::leave(ctx, input)).await
    }

    /// Sends a message. A retry with the same idempotencyKey within 24 hours answers with the message of the first try; with another
    /// content it is CONFLICT.
    async fn send_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message to be sent.")] input: SendMessageInput,
    ) -> Nullable<SendMessagePayload> {
        nullable(async {
            let scope = Scope::fresh(ctx)?;
            let client_mutation_id = echo(input.client_mutation_id)?;
            let conversation = conversation_of(&input.conversation_id)?;
            let draft = DraftInput {
                body: input.body,
                attachments: input.attachments.unwrap_or_default().into_iter().map(Into::into).collect(),
                metadata: input.metadata.map(|metadata| metadata.0),
                reply_to: input.reply_to_id.map(|id| message_in(conversation, &id)).transpose()?,
                idempotency_key: input.idempotency_key,
            };
            let draft = Draft::parse(draft, scope.chat.bounds())?;
            let message = scope.chat.send(&scope.viewer, conversation, draft).await?;
            Ok(Some(SendMessagePayload { scope, conversation, message, client_mutation_id }))
        })
        .await
    }

    /// Replaces the text of a message of the viewer's own. Its attachments and metadata stay.
    async fn edit_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The new text.")] input: EditMessageInput,
    ) -> Nullable<EditMessagePayload> {
        nullable(async {
            let scope = Scope::fresh(ctx)?;
            let client_mutation_id = echo(input.client_mutation_id)?;
            let (conversation, id) = message_id(&input.message_id).ok_or_else(|| Error::not_found("the message"))?;
            let message = scope.chat.edit(&scope.viewer, conversation, id, input.body).await?;
            Ok(Some(EditMessagePayload { message: Message::new(&scope, message), client_mutation_id }))
        })
        .await
    }

    /// Takes a message back: its content goes, its place in history stays. Once more changes nothing.
    async fn delete_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message that is to go.")] input: DeleteMessageInput,
    ) -> Nullable<DeleteMessagePayload> {
        nullable(async {
            let scope = Scope::fresh(ctx)?;
            let client_mutation_id = echo(input.client_mutation_id)?;
            let (conversation, id) = message_id(&input.message_id).ok_or_else(|| Error::not_found("the message"))?;
            let message = scope.chat.delete(&scope.viewer, conversation, id).await?;
            Ok(Some(DeleteMessagePayload { message: Message::new(&scope, message), client_mutation_id }))
        })
        .await
    }

    /// Reacts to a message with one emoji. Once more changes nothing.
    async fn add_reaction(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "To which message, and with what.")] input: AddReactionInput,
    ) -> Nullable<AddReactionPayload> {
        nullable(reaction::add(ctx, input)).await
    }

    /// Takes a reaction of the viewer's own back. Where there is none, nothing changes.
    async fn remove_reaction(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Which reaction to which message.")] input: RemoveReactionInput,
    ) -> Nullable<RemoveReactionPayload> {
        nullable(reaction::remove(ctx, input)).await
    }

    /// Moves the viewer's read marker forward to this message (the newest one if none is named); never back.
    async fn mark_read(&self, ctx: &Context<'_>, #[graphql(desc = "What was read.")] input: MarkReadInput) -> Nullable<MarkReadPayload> {
        nullable(async {
            let scope = Scope::fresh(ctx)?;
            let client_mutation_id = echo(input.client_mutation_id)?;
            let conversation = conversation_of(&input.conversation_id)?;
            let message = input.message_id.map(|id| message_in(conversation, &id)).transpose()?;
            let row = scope.chat.mark_read(&scope.viewer, conversation, message).await?;
            Ok(Some(MarkReadPayload { inbox_entry: InboxEntry::new(&scope, row), client_mutation_id }))
        })
        .await
    }

    /// Moves the read marker back, so that this message and all later ones are unread again.
    async fn mark_unread(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "What is to be unread again.")] input: MarkUnreadInput,
    ) -> Nullable<MarkUnreadPayload> {
        nullable(async {
            let scope = Scope::fresh(ctx)?;
            let client_mutation_id = echo(input.client_mutation_id)?;
            let conversation = conversation_of(&input.conversation_id)?;
            let message = message_in(conversation, &input.message_id)?;
            let row = scope.chat.mark_unread(&scope.viewer, conversation, message).await?;
            Ok(Some(MarkUnreadPayload { inbox_entry: InboxEntry::new(&scope, row), client_mutation_id }))
        })
        .await
    }

    /// Notes that this message (the newest one if none is named) and all before it have reached one of the viewer's devices. Never goes back.
    async fn mark_delivered(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "What has reached a device.")] input: MarkDeliveredInput,
    ) -> Nullable<MarkDeliveredPayload> {
        nullable(inbox::mark_delivered(ctx, input)).await
    }

    /// Mutes, pins or archives the viewer's entry, or takes that back. What is not given stays as it is.
    async fn update_inbox_entry(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "What is to be set.")] input: UpdateInboxEntryInput,
    ) -> Nullable<UpdateInboxEntryPayload> {
        nullable(inbox::update_entry(ctx, input)).await
    }

    /// Gives a sign that the viewer is typing, or stops; for as long as it lasts, again every few seconds. It ends by itself 6 seconds after
    /// the last one, and with a message.
    async fn set_typing(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Where, and whether.")] input: SetTypingInput,
    ) -> Nullable<SetTypingPayload> {
        nullable(typing::set_typing(ctx, input)).await
    }

    /// Changes what the viewer tells of themselves. What is not given stays as it is; null takes it back.
    async fn update_profile(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "What is to be told.")] input: UpdateProfileInput,
    ) -> Nullable<UpdateProfilePayload> {
        nullable(profile::update_profile(ctx, input)).await
    }
}

fn echo(client_mutation_id: Option<String>) -> Result<Option<String>> {
    match client_mutation_id {
        Some(id) if id.len() > CLIENT_MUTATION_ID_BYTES_MAX => {
            let message = format!("a clientMutationId has at most {CLIENT_MUTATION_ID_BYTES_MAX} bytes");
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
async fn entry_edge(scope: &Scope, conversation: ConversationId) -> Result<InboxEntryEdge> {
    let edge = InboxEntryEdge::load(scope, conversation).await;
    edge.and_then(|edge| edge.ok_or_else(|| Error::not_found("the conversation"))).map_err(Error::once_done)
}
