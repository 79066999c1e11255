//! Mutations of the viewer's inbox entries: markers and flags.

use async_graphql::{Context, ID, InputObject, MaybeUndefined, Object, SimpleObject};

use super::{message_in, mutate};
use crate::chat::EntrySettings;
use crate::graphql::error::Nullable;
use crate::graphql::id::conversation_of;
use crate::graphql::types::{InboxEntry, NotificationLevel};

/// Input of `markRead`.
#[derive(InputObject)]
pub(super) struct MarkReadInput {
    /// Global id of the conversation.
    conversation_id: ID,
    /// Global id of the last message that the viewer has read. Default: the newest message.
    message_id: Option<ID>,
}

/// Payload of `markRead`.
#[derive(SimpleObject)]
pub(super) struct MarkReadPayload {
    /// The viewer's entry in its new state.
    inbox_entry: InboxEntry,
}

/// Input of `markUnread`.
#[derive(InputObject)]
pub(super) struct MarkUnreadInput {
    /// Global id of the conversation.
    conversation_id: ID,
    /// Global id of the first message to become unread.
    message_id: ID,
}

/// Payload of `markUnread`.
#[derive(SimpleObject)]
pub(super) struct MarkUnreadPayload {
    /// The viewer's entry in its new state.
    inbox_entry: InboxEntry,
}

/// Input of `markDelivered`.
#[derive(InputObject)]
pub(super) struct MarkDeliveredInput {
    /// Global id of the conversation.
    conversation_id: ID,
    /// Global id of the last delivered message. Default: the newest message.
    message_id: Option<ID>,
}

/// Payload of `markDelivered`. The mutation does not change the entry.
#[derive(SimpleObject)]
pub(super) struct MarkDeliveredPayload {
    /// The viewer's entry in its new state.
    inbox_entry: InboxEntry,
}

/// Input of `updateInboxEntry`. Omitted fields stay unchanged.
#[derive(InputObject)]
pub(super) struct UpdateInboxEntryInput {
    /// Global id of the conversation of the entry.
    conversation_id: ID,
    /// True mutes the conversation, false unmutes it.
    muted: Option<bool>,
    /// True pins the entry, false unpins it.
    pinned: Option<bool>,
    /// True archives the entry until a newer message arrives, one of a blocked user excepted; a muted
    /// entry stays archived. False ends it.
    archived: Option<bool>,
    /// Messages that notify the viewer. Null sets the default of the conversation again.
    notification_level: MaybeUndefined<NotificationLevel>,
}

/// Payload of `updateInboxEntry`.
#[derive(SimpleObject)]
pub(super) struct UpdateInboxEntryPayload {
    /// The viewer's entry in its new state.
    inbox_entry: InboxEntry,
}

#[derive(Default)]
pub(super) struct InboxMutation;

#[Object]
impl InboxMutation {
    /// Moves the viewer's read marker forward to a message. It never moves back: an older message
    /// changes nothing. The viewer's receipts of these messages become READ. An agent has neither: nothing changes.
    async fn mark_read(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The conversation and the message.")] input: MarkReadInput,
    ) -> Nullable<MarkReadPayload> {
        mutate(ctx, async |scope| {
            let conversation = conversation_of(&input.conversation_id)?;
            let message = input
                .message_id
                .map(|id| message_in(conversation, &id))
                .transpose()?;
            let row = scope
                .chat
                .inbox
                .mark_read(&scope.caller, conversation, message)
                .await?;
            let inbox_entry = InboxEntry::new(&scope, row);
            Ok(MarkReadPayload { inbox_entry })
        })
        .await
    }

    /// Moves the viewer's read marker back, so that a message and all later ones are unread again.
    /// Messages that the viewer sent are never unread: from such a message on, the later ones of others
    /// are, and without any the count stays 0. Receipts stay as they are. For an agent nothing changes.
    async fn mark_unread(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The conversation and the message.")] input: MarkUnreadInput,
    ) -> Nullable<MarkUnreadPayload> {
        mutate(ctx, async |scope| {
            let conversation = conversation_of(&input.conversation_id)?;
            let message = message_in(conversation, &input.message_id)?;
            let row = scope
                .chat
                .inbox
                .mark_unread(&scope.caller, conversation, message)
                .await?;
            let inbox_entry = InboxEntry::new(&scope, row);
            Ok(MarkUnreadPayload { inbox_entry })
        })
        .await
    }

    /// Moves the viewer's delivered marker forward to a message. It never moves back: an older
    /// message changes nothing, and so does any message for an agent.
    async fn mark_delivered(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The conversation and the message.")] input: MarkDeliveredInput,
    ) -> Nullable<MarkDeliveredPayload> {
        mutate(ctx, async |scope| {
            let conversation = conversation_of(&input.conversation_id)?;
            let message = input
                .message_id
                .map(|id| message_in(conversation, &id))
                .transpose()?;
            let row = scope
                .chat
                .inbox
                .mark_delivered(&scope.caller, conversation, message)
                .await?;
            let inbox_entry = InboxEntry::new(&scope, row);
            Ok(MarkDeliveredPayload { inbox_entry })
        })
        .await
    }

    /// Changes the settings of the viewer's inbox entry: muted, pinned, archived, and the notification
    /// level. Omitted fields stay
    /// unchanged. For an agent nothing changes.
    async fn update_inbox_entry(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The entry and its new flags.")] input: UpdateInboxEntryInput,
    ) -> Nullable<UpdateInboxEntryPayload> {
        mutate(ctx, async |scope| {
            let conversation = conversation_of(&input.conversation_id)?;
            let settings = EntrySettings {
                muted: input.muted,
                pinned: input.pinned,
                archived: input.archived,
                level: input.notification_level.map_value(Into::into).into(),
            };
            let row = scope
                .chat
                .inbox
                .update_entry(&scope.caller, conversation, settings)
                .await?;
            let inbox_entry = InboxEntry::new(&scope, row);
            Ok(UpdateInboxEntryPayload { inbox_entry })
        })
        .await
    }
}
