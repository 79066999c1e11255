//! The mutations of conversations and their people.

use async_graphql::{Context, ID, InputObject, SimpleObject};

use super::{echo, entry_edge};
use crate::graphql::error::{Error, Result};
use crate::graphql::id::{GlobalId, conversation_of};
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{
    Conversation, InboxEntryEdge, Participant, ParticipantEdge, ParticipantRole,
};
use crate::model::{ConversationId, UserId};

/// Input of `startDirectConversation`.
#[derive(InputObject)]
pub(super) struct StartDirectConversationInput {
    /// Username of the other user, or the viewer's own.
    username: String,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `startDirectConversation`.
#[derive(SimpleObject)]
pub(super) struct StartDirectConversationPayload {
    /// The direct conversation of the two users.
    conversation: Conversation,
    /// The viewer's inbox entry of the conversation.
    inbox_entry_edge: InboxEntryEdge,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `createGroupConversation`.
#[derive(InputObject)]
pub(super) struct CreateGroupConversationInput {
    /// Name: 1 to 256 bytes, not blank, without control, invisible or bidirectional format characters.
    name: String,
    /// The other participants, at most 50. The viewer is OWNER and need not be listed.
    usernames: Vec<String>,
    /// Idempotency key: 1 to 64 bytes of printable ASCII. A retry with the same key returns the group of the first try.
    idempotency_key: Option<String>,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The group.
#[derive(SimpleObject)]
pub(super) struct CreateGroupConversationPayload {
    /// The group.
    conversation: Conversation,
    /// The viewer's inbox entry of the conversation.
    inbox_entry_edge: InboxEntryEdge,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `renameConversation`.
#[derive(InputObject)]
pub(super) struct RenameConversationInput {
    /// The group.
    conversation_id: ID,
    /// Name: 1 to 256 bytes, not blank, without control, invisible or bidirectional format characters.
    name: String,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `renameConversation`.
#[derive(SimpleObject)]
pub(super) struct RenameConversationPayload {
    /// The group.
    conversation: Conversation,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `addParticipants`.
#[derive(InputObject)]
pub(super) struct AddParticipantsInput {
    /// The group.
    conversation_id: ID,
    /// Usernames to add: at most 50. Present participants stay unchanged.
    usernames: Vec<String>,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `addParticipants`.
#[derive(SimpleObject)]
pub(super) struct AddParticipantsPayload {
    /// The group.
    conversation: Conversation,
    /// The named users, existing participants included, ordered by username (bytewise).
    participant_edges: Vec<ParticipantEdge>,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `removeParticipant`.
#[derive(InputObject)]
pub(super) struct RemoveParticipantInput {
    /// The group.
    conversation_id: ID,
    /// Username of another participant. To leave, use `leaveConversation`.
    username: String,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `removeParticipant`.
#[derive(SimpleObject)]
pub(super) struct RemoveParticipantPayload {
    /// The group.
    conversation: Conversation,
    /// Id of the removed participant. Null if the user never took part in the group.
    removed_participant_id: Option<ID>,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `setParticipantRole`.
#[derive(InputObject)]
pub(super) struct SetParticipantRoleInput {
    /// The group.
    conversation_id: ID,
    /// Username of the participant.
    username: String,
    /// The new role. A group may have several OWNERs.
    role: ParticipantRole,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `setParticipantRole`.
#[derive(SimpleObject)]
pub(super) struct SetParticipantRolePayload {
    /// The participant.
    participant: Participant,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `leaveConversation`.
#[derive(InputObject)]
pub(super) struct LeaveConversationInput {
    /// The group.
    conversation_id: ID,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `leaveConversation`.
#[derive(SimpleObject)]
pub(super) struct LeaveConversationPayload {
    /// Id of the group.
    left_conversation_id: ID,
    /// Id of the viewer's former inbox entry.
    removed_inbox_entry_id: ID,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

pub(super) async fn start_direct(
    ctx: &Context<'_>,
    input: StartDirectConversationInput,
) -> Result<Option<StartDirectConversationPayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let conversation = scope
        .chat
        .start_direct(&scope.viewer, &input.username)
        .await?;
    let inbox_entry_edge = entry_edge(&scope, conversation.id).await?;
    let conversation = Conversation::new(&scope, conversation);
    Ok(Some(StartDirectConversationPayload {
        conversation,
        inbox_entry_edge,
        client_mutation_id,
    }))
}

pub(super) async fn create(
    ctx: &Context<'_>,
    input: CreateGroupConversationInput,
) -> Result<Option<CreateGroupConversationPayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let key = input.idempotency_key.as_deref();
    let conversation = scope
        .chat
        .create_group(&scope.viewer, &input.name, &input.usernames, key)
        .await?;
    let inbox_entry_edge = entry_edge(&scope, conversation.id).await?;
    let conversation = Conversation::new(&scope, conversation);
    Ok(Some(CreateGroupConversationPayload {
        conversation,
        inbox_entry_edge,
        client_mutation_id,
    }))
}

pub(super) async fn rename(
    ctx: &Context<'_>,
    input: RenameConversationInput,
) -> Result<Option<RenameConversationPayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    scope.chat.rename(&scope.viewer, id, &input.name).await?;
    Ok(Some(RenameConversationPayload {
        conversation: conversation(&scope, id).await?,
        client_mutation_id,
    }))
}

pub(super) async fn add(
    ctx: &Context<'_>,
    input: AddParticipantsInput,
) -> Result<Option<AddParticipantsPayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    let users = scope
        .chat
        .add_participants(&scope.viewer, id, &input.usernames)
        .await?;
    let participants = scope
        .chat
        .participants_named(&scope.viewer, id, &users)
        .await;
    let participants = participants.map_err(|error| Error::from(error).once_done())?;
    let participant_edges = participants
        .into_iter()
        .map(|participant| ParticipantEdge::new(&scope, participant))
        .collect();
    Ok(Some(AddParticipantsPayload {
        conversation: conversation(&scope, id).await?,
        participant_edges,
        client_mutation_id,
    }))
}

pub(super) async fn remove(
    ctx: &Context<'_>,
    input: RemoveParticipantInput,
) -> Result<Option<RemoveParticipantPayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    let removed = scope
        .chat
        .remove_participant(&scope.viewer, id, &input.username)
        .await?;
    let removed_participant_id = removed.map(|user| GlobalId::Participant(id, user).encode());
    Ok(Some(RemoveParticipantPayload {
        conversation: conversation(&scope, id).await?,
        removed_participant_id,
        client_mutation_id,
    }))
}

pub(super) async fn set_role(
    ctx: &Context<'_>,
    input: SetParticipantRoleInput,
) -> Result<Option<SetParticipantRolePayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    let user = scope
        .chat
        .set_role(&scope.viewer, id, &input.username, input.role.into())
        .await?;
    let participant = participant(&scope, id, &user)
        .await
        .map_err(Error::once_done)?;
    Ok(Some(SetParticipantRolePayload {
        participant,
        client_mutation_id,
    }))
}

pub(super) async fn leave(
    ctx: &Context<'_>,
    input: LeaveConversationInput,
) -> Result<Option<LeaveConversationPayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    scope.chat.leave(&scope.viewer, id).await?;
    let left_conversation_id = GlobalId::Conversation(id).encode();
    let removed_inbox_entry_id = GlobalId::InboxEntry(id, scope.viewer.clone()).encode();
    Ok(Some(LeaveConversationPayload {
        left_conversation_id,
        removed_inbox_entry_id,
        client_mutation_id,
    }))
}

/// For the answer to what was done by now.
async fn conversation(scope: &ViewerScope, id: ConversationId) -> Result<Conversation> {
    Conversation::of(scope, id).await.map_err(Error::once_done)
}

async fn participant(
    scope: &ViewerScope,
    id: ConversationId,
    user: &UserId,
) -> Result<Participant> {
    let found = scope.chat.participant(&scope.viewer, id, user).await?;
    found
        .map(|participant| Participant::new(scope, participant))
        .ok_or_else(|| Error::not_found("the participant"))
}
