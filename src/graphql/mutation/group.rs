//! The mutations of conversations and their people.

use async_graphql::{Context, ID, InputObject, SimpleObject};

use super::{echo, entry_edge};
use crate::graphql::error::{Error, Result};
use crate::graphql::id::{GlobalId, conversation_of};
use crate::graphql::scope::Scope;
use crate::graphql::types::{Conversation, InboxEntryEdge, Participant, ParticipantEdge, ParticipantRole};
use crate::model::{ConversationId, UserId};

/// Who is talked to.
#[derive(InputObject)]
pub(super) struct StartDirectConversationInput {
    /// The other user's name, or one's own.
    username: String,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The conversation, new or not.
#[derive(SimpleObject)]
pub(super) struct StartDirectConversationPayload {
    /// The one direct conversation of the two.
    conversation: Conversation,
    /// The viewer's entry for it.
    inbox_entry_edge: InboxEntryEdge,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// A group to be made.
#[derive(InputObject)]
pub(super) struct CreateGroupConversationInput {
    /// 1 to 256 bytes, not blank, without control characters.
    name: String,
    /// The other participants, at most 50. The viewer is OWNER and need not be listed.
    usernames: Vec<String>,
    /// 1 to 64 bytes of printable ASCII: a retry with the same one answers with the group of the first try.
    idempotency_key: Option<String>,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The group.
#[derive(SimpleObject)]
pub(super) struct CreateGroupConversationPayload {
    /// The group.
    conversation: Conversation,
    /// The viewer's entry for it.
    inbox_entry_edge: InboxEntryEdge,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// Another name for a group.
#[derive(InputObject)]
pub(super) struct RenameConversationInput {
    /// The group.
    conversation_id: ID,
    /// 1 to 256 bytes, not blank, without control characters.
    name: String,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The group with its new name.
#[derive(SimpleObject)]
pub(super) struct RenameConversationPayload {
    /// The group.
    conversation: Conversation,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// Who is to be added to a group.
#[derive(InputObject)]
pub(super) struct AddParticipantsInput {
    /// The group.
    conversation_id: ID,
    /// At most 50. Who is in the group already stays as they are.
    usernames: Vec<String>,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Those who were named, in the group.
#[derive(SimpleObject)]
pub(super) struct AddParticipantsPayload {
    /// The group.
    conversation: Conversation,
    /// Everybody who was named, also who was in it before, by the bytes of their usernames.
    participant_edges: Vec<ParticipantEdge>,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// Who is to be removed from a group.
#[derive(InputObject)]
pub(super) struct RemoveParticipantInput {
    /// The group.
    conversation_id: ID,
    /// Somebody else. Who wants to go leaves.
    username: String,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The group without them.
#[derive(SimpleObject)]
pub(super) struct RemoveParticipantPayload {
    /// The group.
    conversation: Conversation,
    /// The id that the participant had. Null where they never were in the group.
    removed_participant_id: Option<ID>,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// Another role for a participant.
#[derive(InputObject)]
pub(super) struct SetParticipantRoleInput {
    /// The group.
    conversation_id: ID,
    /// Who gets it.
    username: String,
    /// The role. A group may have several OWNERs.
    role: ParticipantRole,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The participant with their role.
#[derive(SimpleObject)]
pub(super) struct SetParticipantRolePayload {
    /// The participant.
    participant: Participant,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// What the viewer leaves.
#[derive(InputObject)]
pub(super) struct LeaveConversationInput {
    /// The group.
    conversation_id: ID,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// What the viewer has left.
#[derive(SimpleObject)]
pub(super) struct LeaveConversationPayload {
    /// The id of the group.
    left_conversation_id: ID,
    /// The id that the viewer's entry had.
    removed_inbox_entry_id: ID,
    /// As it was given.
    client_mutation_id: Option<String>,
}

pub(super) async fn start_direct(ctx: &Context<'_>, input: StartDirectConversationInput) -> Result<Option<StartDirectConversationPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let conversation = scope.chat.start_direct(&scope.viewer, &input.username).await?;
    let inbox_entry_edge = entry_edge(&scope, conversation.id).await?;
    let conversation = Conversation::new(&scope, conversation);
    Ok(Some(StartDirectConversationPayload { conversation, inbox_entry_edge, client_mutation_id }))
}

pub(super) async fn create(ctx: &Context<'_>, input: CreateGroupConversationInput) -> Result<Option<CreateGroupConversationPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let key = input.idempotency_key.as_deref();
    let conversation = scope.chat.create_group(&scope.viewer, &input.name, &input.usernames, key).await?;
    let inbox_entry_edge = entry_edge(&scope, conversation.id).await?;
    let conversation = Conversation::new(&scope, conversation);
    Ok(Some(CreateGroupConversationPayload { conversation, inbox_entry_edge, client_mutation_id }))
}

pub(super) async fn rename(ctx: &Context<'_>, input: RenameConversationInput) -> Result<Option<RenameConversationPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    scope.chat.rename(&scope.viewer, id, &input.name).await?;
    Ok(Some(RenameConversationPayload { conversation: conversation(&scope, id).await?, client_mutation_id }))
}

pub(super) async fn add(ctx: &Context<'_>, input: AddParticipantsInput) -> Result<Option<AddParticipantsPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    let users = scope.chat.add_participants(&scope.viewer, id, &input.usernames).await?;
    let participants = scope.chat.participants_named(&scope.viewer, id, &users).await;
    let participants = participants.map_err(|error| Error::from(error).once_done())?;
    let participant_edges = participants.into_iter().map(|participant| ParticipantEdge::new(&scope, participant)).collect();
    Ok(Some(AddParticipantsPayload { conversation: conversation(&scope, id).await?, participant_edges, client_mutation_id }))
}

pub(super) async fn remove(ctx: &Context<'_>, input: RemoveParticipantInput) -> Result<Option<RemoveParticipantPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    let removed = scope.chat.remove_participant(&scope.viewer, id, &input.username).await?;
    let removed_participant_id = removed.map(|user| GlobalId::Participant(id, user).encode());
    Ok(Some(RemoveParticipantPayload { conversation: conversation(&scope, id).await?, removed_participant_id, client_mutation_id }))
}

pub(super) async fn set_role(ctx: &Context<'_>, input: SetParticipantRoleInput) -> Result<Option<SetParticipantRolePayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    let user = scope.chat.set_role(&scope.viewer, id, &input.username, input.role.into()).await?;
    let participant = participant(&scope, id, &user).await.map_err(Error::once_done)?;
    Ok(Some(SetParticipantRolePayload { participant, client_mutation_id }))
}

pub(super) async fn leave(ctx: &Context<'_>, input: LeaveConversationInput) -> Result<Option<LeaveConversationPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    scope.chat.leave(&scope.viewer, id).await?;
    let left_conversation_id = GlobalId::Conversation(id).encode();
    let removed_inbox_entry_id = GlobalId::InboxEntry(id, scope.viewer.clone()).encode();
    Ok(Some(LeaveConversationPayload { left_conversation_id, removed_inbox_entry_id, client_mutation_id }))
}

/// For the answer to what was done by now.
async fn conversation(scope: &Scope, id: ConversationId) -> Result<Conversation> {
    Conversation::of(scope, id).await.map_err(Error::once_done)
}

async fn participant(scope: &Scope, id: ConversationId, user: &UserId) -> Result<Participant> {
    let found = scope.chat.participant(&scope.viewer, id, user).await?;
    found.map(|participant| Participant::new(scope, participant)).ok_or_else(|| Error::not_found("the participant"))
}
