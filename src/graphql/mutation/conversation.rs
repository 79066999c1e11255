//! Mutations of conversations: start, create, rename.

use async_graphql::{Context, ID, InputObject, MaybeUndefined, Object, SimpleObject};

use super::{conversation, entry_edge, mutate};
use crate::chat::{ConversationProfileInput, ConversationSettings, GroupInput, PostingRolesInput};
use crate::graphql::error::Nullable;
use crate::graphql::id::conversation_of;
use crate::graphql::scalar::Json;
use crate::graphql::types::{Conversation, HistoryVisibility, InboxEntryEdge, ParticipantRole};

/// Input of `startDirectConversation`.
#[derive(InputObject)]
pub(super) struct StartDirectConversationInput {
    /// Username of the other user, or the viewer's own for a conversation with oneself: 1 to 128
    /// bytes.
    username: String,
}

/// Payload of `startDirectConversation`.
#[derive(SimpleObject)]
pub(super) struct StartDirectConversationPayload {
    /// The direct conversation of the two users, existing or new.
    conversation: Conversation,
    /// Edge of the conversation in the viewer's inbox.
    inbox_entry_edge: InboxEntryEdge,
}

/// Input of `createGroupConversation`.
#[derive(InputObject)]
pub(super) struct CreateGroupConversationInput {
    /// Name of the group: 1 to 256 bytes of UTF-8, not blank, without control, invisible or
    /// bidirectional format characters.
    name: String,
    /// Usernames of the other participants: at most 50. They become MEMBERs. The viewer becomes
    /// OWNER and need not be listed.
    usernames: Vec<String>,
    /// Idempotency key, new for each group: 1 to 64 bytes of printable ASCII. A retry with the same
    /// key returns the group of the first try. The same key with another input is CONFLICT.
    idempotency_key: Option<String>,
    /// Description of the group: at most 1 KiB.
    description: Option<String>,
    /// URL of the picture of the group: http or https, at most 2,048 bytes.
    avatar_url: Option<String>,
    /// For services. The app's own data: any JSON of at most 2 KiB, visible to participants.
    metadata: Option<Json>,
    /// For services. Key of the app's own for this group, unique in the deployment: 1 to 128 bytes. The same call any number of
    /// times returns one group; another input or owner with the same key is CONFLICT. It cannot be changed.
    app_key: Option<String>,
    /// Role that sending and editing need. The default is MEMBER, everyone.
    send_role: Option<ParticipantRole>,
    /// Role that adding participants needs. The default is ADMIN.
    add_role: Option<ParticipantRole>,
    /// Role that pinning needs. The default is MEMBER in a small conversation, ADMIN in a large one.
    pin_role: Option<ParticipantRole>,
}

/// Payload of `createGroupConversation`.
#[derive(SimpleObject)]
pub(super) struct CreateGroupConversationPayload {
    /// The group.
    conversation: Conversation,
    /// Edge of the conversation in the viewer's inbox.
    inbox_entry_edge: InboxEntryEdge,
}

/// Input of `renameConversation`.
#[derive(InputObject)]
pub(super) struct RenameConversationInput {
    /// Global id of the group.
    conversation_id: ID,
    /// Name of the group: 1 to 256 bytes of UTF-8, not blank, without control, invisible or
    /// bidirectional format characters.
    name: String,
}

/// Payload of `renameConversation`.
#[derive(SimpleObject)]
pub(super) struct RenameConversationPayload {
    /// The group.
    conversation: Conversation,
}

/// Input of `updateConversation`. Omitted settings stay unchanged; null is the default.
#[derive(InputObject)]
pub(super) struct UpdateConversationInput {
    /// Global id of the conversation.
    conversation_id: ID,
    /// History that new participants of a group see, from now on. The default is ALL.
    history_visibility: MaybeUndefined<HistoryVisibility>,
    /// Seconds after which messages expire, those sent before included: 60 to 315,576,000. The default
    /// is null, never. In a direct conversation it is what the viewer asks for: the longer of what both
    /// ask for holds. A change brings no expired message back.
    message_ttl_seconds: MaybeUndefined<i32>,
    /// Seconds that a MEMBER waits between two sends: 0 to 21,600. The default is 0, no wait.
    slow_mode_seconds: MaybeUndefined<i32>,
    /// Description of the group: at most 1 KiB. Null clears it.
    description: MaybeUndefined<String>,
    /// URL of the picture of the group: http or https, at most 2,048 bytes. Null clears it.
    avatar_url: MaybeUndefined<String>,
    /// For services. The app's own data: any JSON of at most 2 KiB, visible to participants. Null clears it, also of a
    /// direct conversation.
    metadata: MaybeUndefined<Json>,
    /// Role that sending and editing in the group need. The default is MEMBER, everyone. A SYSTEM message announces this and
    /// the next two.
    send_role: MaybeUndefined<ParticipantRole>,
    /// Role that adding participants needs. The default is ADMIN.
    add_role: MaybeUndefined<ParticipantRole>,
    /// Role that pinning needs. The default is MEMBER in a small conversation, ADMIN in a large one.
    pin_role: MaybeUndefined<ParticipantRole>,
}

/// Payload of `updateConversation`.
#[derive(SimpleObject)]
pub(super) struct UpdateConversationPayload {
    /// The conversation.
    conversation: Conversation,
}

#[derive(Default)]
pub(super) struct ConversationMutation;

#[Object]
impl ConversationMutation {
    /// Returns the direct conversation of the viewer and another user. Creates it if it does not
    /// exist. A new conversation with a stranger may be RATE_LIMITED.
    async fn start_direct_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The other user.")] input: StartDirectConversationInput,
    ) -> Nullable<StartDirectConversationPayload> {
        mutate(ctx, async |scope| {
            let conversation = scope
                .chat
                .writes
                .start_direct(&scope.caller, &input.username)
                .await?;
            let inbox_entry_edge = entry_edge(&scope, conversation.id).await?;
            let conversation = Conversation::new(&scope, conversation);
            Ok(StartDirectConversationPayload {
                conversation,
                inbox_entry_edge,
            })
        })
        .await
    }

    /// Creates a group of the viewer and the named users. Bringing in many strangers is
    /// RATE_LIMITED.
    async fn create_group_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The new group.")] input: CreateGroupConversationInput,
    ) -> Nullable<CreateGroupConversationPayload> {
        mutate(ctx, async |scope| {
            let group = GroupInput {
                name: input.name,
                usernames: input.usernames,
                idempotency_key: input.idempotency_key,
                app_key: input.app_key,
                profile: ConversationProfileInput {
                    description: input.description.map(Some),
                    avatar_url: input.avatar_url.map(Some),
                    metadata: input.metadata.map(|json| Some(json.0)),
                },
                roles: PostingRolesInput {
                    send: input.send_role.map(|role| Some(role.into())),
                    add: input.add_role.map(|role| Some(role.into())),
                    pin: input.pin_role.map(|role| Some(role.into())),
                },
            };
            let conversation = scope.chat.writes.create_group(&scope.caller, group).await?;
            let inbox_entry_edge = entry_edge(&scope, conversation.id).await?;
            let conversation = Conversation::new(&scope, conversation);
            Ok(CreateGroupConversationPayload {
                conversation,
                inbox_entry_edge,
            })
        })
        .await
    }

    /// Renames a group. Allowed for its OWNERs and ADMINs, else FORBIDDEN. The same name changes
    /// nothing.
    async fn rename_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The group and its new name.")] input: RenameConversationInput,
    ) -> Nullable<RenameConversationPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            scope
                .chat
                .writes
                .rename(&scope.caller, id, &input.name)
                .await?;
            let conversation = conversation(&scope, id).await?;
            Ok(RenameConversationPayload { conversation })
        })
        .await
    }

    /// Changes the settings of a group: its history visibility, expiry and posting roles by its OWNERs, the slow mode,
    /// description and picture by its OWNERs and ADMINs, the metadata by services, else FORBIDDEN. Of a
    /// direct conversation: the metadata, and the expiry that the viewer asks for; a viewer who blocks
    /// the other user asks for none (FORBIDDEN). The same settings change nothing. During an upgrade of
    /// the deployment: UNAVAILABLE.
    async fn update_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The conversation and its new settings.")] input: UpdateConversationInput,
    ) -> Nullable<UpdateConversationPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            let visibility = Option::<Option<_>>::from(input.history_visibility);
            let slow_mode = Option::<Option<_>>::from(input.slow_mode_seconds);
            let settings = ConversationSettings {
                visibility: visibility.map(|given| given.map(Into::into).unwrap_or_default()),
                ttl_seconds: input.message_ttl_seconds.into(),
                slow_mode_seconds: slow_mode.map(Option::unwrap_or_default),
                profile: ConversationProfileInput {
                    description: input.description.into(),
                    avatar_url: input.avatar_url.into(),
                    metadata: input.metadata.map_value(|json| json.0).into(),
                },
                roles: PostingRolesInput {
                    send: input.send_role.map_value(Into::into).into(),
                    add: input.add_role.map_value(Into::into).into(),
                    pin: input.pin_role.map_value(Into::into).into(),
                },
            };
            scope
                .chat
                .writes
                .update_settings(&scope.caller, id, settings)
                .await?;
            let conversation = Conversation::of(&scope, id).await?;
            Ok(UpdateConversationPayload { conversation })
        })
        .await
    }
}
