//! Mutations of the participants of a group: add, remove, change roles, leave.

use async_graphql::{Context, ID, InputObject, Object, SimpleObject};

use super::{conversation, mutate};
use crate::graphql::error::{Error, Nullable, Result};
use crate::graphql::id::{GlobalId, conversation_of};
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{Conversation, Participant, ParticipantEdge, ParticipantRole};
use crate::model::{ConversationId, UserId};

/// Input of `addParticipants`.
#[derive(InputObject)]
pub(super) struct AddParticipantsInput {
    /// Global id of the group.
    conversation_id: ID,
    /// Usernames to add: 1 to 50. Existing participants stay unchanged.
    usernames: Vec<String>,
    /// Moment from which the new participants see the history: never before that from which the viewer
    /// sees it by joining. Left out: as the history visibility of the group says.
    visible_from: Option<DateTime>,
}

/// Payload of `addParticipants`.
#[derive(SimpleObject)]
pub(super) struct AddParticipantsPayload {
    /// The group.
    conversation: Conversation,
    /// Edges of those named users who take part now, existing participants included, ordered by
    /// username (bytewise).
    participant_edges: Vec<ParticipantEdge>,
}

/// Input of `removeParticipant`.
#[derive(InputObject)]
pub(super) struct RemoveParticipantInput {
    /// Global id of the group.
    conversation_id: ID,
    /// Username of another participant. The viewer leaves with `leaveConversation`.
    username: String,
}

/// Payload of `removeParticipant`.
#[derive(SimpleObject)]
pub(super) struct RemoveParticipantPayload {
    /// The group.
    conversation: Conversation,
    /// Global id of the removed participant. Null if the user never took part in the group.
    removed_participant_id: Option<ID>,
}

/// Input of `setParticipantRole`.
#[derive(InputObject)]
pub(super) struct SetParticipantRoleInput {
    /// Global id of the group.
    conversation_id: ID,
    /// Username of the participant.
    username: String,
    /// The new role. A group may have several OWNERs.
    role: ParticipantRole,
}

/// Payload of `setParticipantRole`.
#[derive(SimpleObject)]
pub(super) struct SetParticipantRolePayload {
    /// The participant with the new role.
    participant: Participant,
}

/// Input of `leaveConversation`.
#[derive(InputObject)]
pub(super) struct LeaveConversationInput {
    /// Global id of the group.
    conversation_id: ID,
}

/// Payload of `leaveConversation`.
#[derive(SimpleObject)]
pub(super) struct LeaveConversationPayload {
    /// Global id of the group.
    left_conversation_id: ID,
    /// Global id of the viewer's former inbox entry.
    removed_inbox_entry_id: ID,
}

#[derive(Default)]
pub(super) struct ParticipantMutation;

#[Object]
impl ParticipantMutation {
    /// Adds users to a group as MEMBERs. They see its history as its visibility says, with
    /// nothing unread. Allowed for its OWNERs and ADMINs, else FORBIDDEN. A group has at most 20,000 participants. Adding
    /// many strangers is RATE_LIMITED.
    async fn add_participants(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The users to add.")] input: AddParticipantsInput,
    ) -> Nullable<AddParticipantsPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            let visible_from = input.visible_from.map(|moment| moment.0);
            let users = scope
                .chat
                .writes
                .add_participants(&scope.caller, id, &input.usernames, visible_from)
                .await?;
            let participants = scope
                .chat
                .participants
                .named(&scope.caller, id, &users)
                .await;
            let participants = participants.map_err(|error| Error::from(error).once_done())?;
            let participant_edges = participants
                .into_iter()
                .map(|participant| ParticipantEdge::new(&scope, participant))
                .collect();
            Ok(AddParticipantsPayload {
                conversation: conversation(&scope, id).await?,
                participant_edges,
            })
        })
        .await
    }

    /// Removes a participant from a group. An OWNER may remove anyone, an ADMIN only MEMBERs, else
    /// FORBIDDEN. Removing a user who does not take part changes nothing.
    async fn remove_participant(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The participant to remove.")] input: RemoveParticipantInput,
    ) -> Nullable<RemoveParticipantPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            let removed = scope
                .chat
                .writes
                .remove_participant(&scope.caller, id, &input.username)
                .await?;
            let removed_participant_id =
                removed.map(|user| GlobalId::Participant(id, user).encode());
            Ok(RemoveParticipantPayload {
                conversation: conversation(&scope, id).await?,
                removed_participant_id,
            })
        })
        .await
    }

    /// Changes the role of a participant of a group. Allowed for its OWNERs, else FORBIDDEN. The
    /// last OWNER cannot give up the role: BAD_USER_INPUT.
    async fn set_participant_role(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The participant and the new role.")] input: SetParticipantRoleInput,
    ) -> Nullable<SetParticipantRolePayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            let user = scope
                .chat
                .writes
                .set_role(&scope.caller, id, &input.username, input.role.into())
                .await?;
            let participant = participant(&scope, id, &user).await?;
            Ok(SetParticipantRolePayload { participant })
        })
        .await
    }

    /// Removes the viewer from a group. When the last OWNER leaves, the ADMIN with the longest
    /// membership becomes OWNER, else the participant with the longest one.
    async fn leave_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The group to leave.")] input: LeaveConversationInput,
    ) -> Nullable<LeaveConversationPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            scope.chat.writes.leave(&scope.caller, id).await?;
            let left_conversation_id = GlobalId::Conversation(id).encode();
            let removed_inbox_entry_id = GlobalId::InboxEntry(id, scope.viewer.clone()).encode();
            Ok(LeaveConversationPayload {
                left_conversation_id,
                removed_inbox_entry_id,
            })
        })
        .await
    }
}

pub(super) async fn participant(
    scope: &ViewerScope,
    id: ConversationId,
    user: &UserId,
) -> Result<Participant> {
    let participants = &scope.chat.participants;
    let found = participants.participant(&scope.caller, id, user).await;
    let found = found.map_err(|error| Error::from(error).once_done())?;
    found
        .map(|participant| Participant::new(scope, participant))
        .ok_or_else(|| Error::not_found("the participant").once_done())
}
