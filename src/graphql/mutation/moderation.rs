//! Mutations that moderate a group: bans and silences.

use async_graphql::{Context, ID, InputObject, Object, SimpleObject};

use super::participant::participant;
use super::{conversation, mutate};
use crate::chat::BanInput;
use crate::graphql::error::Nullable;
use crate::graphql::id::{GlobalId, conversation_of};
use crate::graphql::scalar::DateTime;
use crate::graphql::types::{BanEdge, Conversation, Participant};

/// Input of `banParticipant`.
#[derive(InputObject)]
pub(super) struct BanParticipantInput {
    /// Global id of the group.
    conversation_id: ID,
    /// Username of another user, who need not take part.
    username: String,
    /// End of the ban, in the future. Without it, the ban holds until `liftBan`.
    until: Option<DateTime>,
    /// Reason, for those who see the ban: at most 255 bytes without control characters.
    reason: Option<String>,
    /// True also removes the user's reactions to the newest 1,000 messages of the group. Default: false.
    remove_reactions: Option<bool>,
}

/// Payload of `banParticipant`.
#[derive(SimpleObject)]
pub(super) struct BanParticipantPayload {
    /// The group.
    conversation: Conversation,
    /// Edge of the ban in `Conversation.bans`.
    ban_edge: BanEdge,
    /// Global id of the removed participant. Null if the user did not take part.
    removed_participant_id: Option<ID>,
}

/// Input of `liftBan`.
#[derive(InputObject)]
pub(super) struct LiftBanInput {
    /// Global id of the group.
    conversation_id: ID,
    /// Username of the banned user.
    username: String,
}

/// Payload of `liftBan`.
#[derive(SimpleObject)]
pub(super) struct LiftBanPayload {
    /// The group.
    conversation: Conversation,
    /// Global id of the lifted ban. Null if the user was not banned.
    lifted_ban_id: Option<ID>,
}

/// Input of `silenceParticipant`.
#[derive(InputObject)]
pub(super) struct SilenceParticipantInput {
    /// Global id of the group.
    conversation_id: ID,
    /// Username of another participant.
    username: String,
    /// End of the silence, in the future. Without it, the silence holds until
    /// `unsilenceParticipant`.
    until: Option<DateTime>,
}

/// Payload of `silenceParticipant`.
#[derive(SimpleObject)]
pub(super) struct SilenceParticipantPayload {
    /// The participant.
    participant: Participant,
}

/// Input of `unsilenceParticipant`.
#[derive(InputObject)]
pub(super) struct UnsilenceParticipantInput {
    /// Global id of the group.
    conversation_id: ID,
    /// Username of the silenced participant.
    username: String,
}

/// Payload of `unsilenceParticipant`.
#[derive(SimpleObject)]
pub(super) struct UnsilenceParticipantPayload {
    /// The participant.
    participant: Participant,
}

#[derive(Default)]
pub(super) struct ModerationMutation;

#[Object]
impl ModerationMutation {
    /// Removes a user from a group, if they take part, and keeps them out until then: nobody can add
    /// them. An ADMIN bans MEMBERs and users who do not take part, an OWNER anyone else, else
    /// FORBIDDEN. A second ban replaces the first. A group has at most 10,000 bans; one more is
    /// CONFLICT. During an upgrade of the deployment: UNAVAILABLE.
    async fn ban_participant(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The user, the end and the reason.")] input: BanParticipantInput,
    ) -> Nullable<BanParticipantPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            let ban = BanInput {
                username: input.username,
                until: input.until.map(|until| until.0),
                reason: input.reason,
                remove_reactions: input.remove_reactions.unwrap_or_default(),
            };
            let banned = scope.chat.writes.ban(&scope.caller, id, ban).await?;
            let removed = GlobalId::Participant(id, banned.ban.user.clone()).encode();
            Ok(BanParticipantPayload {
                conversation: conversation(&scope, id).await?,
                ban_edge: BanEdge::new(&scope, id, banned.ban),
                removed_participant_id: banned.was_participant.then_some(removed),
            })
        })
        .await
    }

    /// Ends the ban of a user, who may be added again. Allowed for OWNERs and ADMINs of the group,
    /// else FORBIDDEN. Without a ban, nothing changes.
    async fn lift_ban(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The banned user.")] input: LiftBanInput,
    ) -> Nullable<LiftBanPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            let writes = &scope.chat.writes;
            let lifted = writes.lift_ban(&scope.caller, id, &input.username).await?;
            Ok(LiftBanPayload {
                conversation: conversation(&scope, id).await?,
                lifted_ban_id: lifted.map(|user| GlobalId::Ban(id, user).encode()),
            })
        })
        .await
    }

    /// Makes a participant of a group read but not write until then: they cannot send, edit, react or
    /// type, and their role gives them no right over the group and the messages of others (FORBIDDEN).
    /// They can delete their own messages, mark, clear their history, and leave. An ADMIN silences
    /// MEMBERs, an OWNER anyone else, else FORBIDDEN. A second silence replaces the first, and
    /// leaving the group ends none. During an upgrade of the deployment: UNAVAILABLE.
    async fn silence_participant(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The participant and the end.")] input: SilenceParticipantInput,
    ) -> Nullable<SilenceParticipantPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            let until = input.until.map(|until| until.0);
            let user = scope
                .chat
                .writes
                .silence(&scope.caller, id, &input.username, until)
                .await?;
            let participant = participant(&scope, id, &user).await?;
            Ok(SilenceParticipantPayload { participant })
        })
        .await
    }

    /// Ends the silence of a participant. Allowed as `silenceParticipant` is. Without a silence,
    /// nothing changes.
    async fn unsilence_participant(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The silenced participant.")] input: UnsilenceParticipantInput,
    ) -> Nullable<UnsilenceParticipantPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            let user = scope
                .chat
                .writes
                .unsilence(&scope.caller, id, &input.username)
                .await?;
            let participant = participant(&scope, id, &user).await?;
            Ok(UnsilenceParticipantPayload { participant })
        })
        .await
    }
}
