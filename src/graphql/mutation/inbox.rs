//! Mutations of the viewer's inbox entries: markers and flags.

use async_graphql::{Context, ID, InputObject, Object, SimpleObject};

use super::{echo, message_in};
use crate::chat::EntrySettings;
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::id::conversation_of;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::InboxEntry;

/// Input of `markRead`.
#[derive(InputObject)]
pub(super) struct MarkReadInput {
    /// The conversation.
    conversation_id: ID,
    /// Last message that the viewer read. Default: the newest message.
    message_id: Option<ID>,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload with the entry's new read marker.
#[derive(SimpleObject)]
pub(super) struct MarkReadPayload {
    /// The viewer's entry.
    inbox_entry: InboxEntry,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `markUnread`.
#[derive(InputObject)]
pub(super) struct MarkUnreadInput {
    /// The conversation.
    conversation_id: ID,
    /// First message to be unread again.
    message_id: ID,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload with the entry's new read marker.
#[derive(SimpleObject)]
pub(super) struct MarkUnreadPayload {
    /// The viewer's entry.
    inbox_entry: InboxEntry,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `markDelivered`.
#[derive(InputObject)]
pub(super) struct MarkDeliveredInput {
    /// The conversation.
    conversation_id: ID,
    /// Last delivered message. Default: the newest message.
    message_id: Option<ID>,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `markDelivered`. The mutation does not change the entry.
#[derive(SimpleObject)]
pub(super) struct MarkDeliveredPayload {
    /// The viewer's entry.
    inbox_entry: InboxEntry,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

/// Input of `updateInboxEntry`. Omitted fields stay unchanged.
#[derive(InputObject)]
pub(super) struct UpdateInboxEntryInput {
    /// The conversation of the entry.
    conversation_id: ID,
    /// True if the viewer muted the conversation.
    muted: Option<bool>,
    /// True pins the entry, false unpins it.
    pinned: Option<bool>,
    /// True if the viewer archived the entry. A newer message ends it, unless the entry is muted.
    archived: Option<bool>,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload with the entry in its present state.
#[derive(SimpleObject)]
pub(super) struct UpdateInboxEntryPayload {
    /// The viewer's entry.
    inbox_entry: InboxEntry,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

#[derive(Default)]
pub(super) struct InboxMutation;

#[Object]
impl InboxMutation {
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
        nullable(mark_delivered(ctx, input)).await
    }

    /// Mutes, pins or archives the viewer's inbox entry, or undoes it. Omitted fields stay unchanged.
    async fn update_inbox_entry(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The entry and its new flags.")] input: UpdateInboxEntryInput,
    ) -> Nullable<UpdateInboxEntryPayload> {
        nullable(update_entry(ctx, input)).await
    }
}

async fn mark_delivered(
    ctx: &Context<'_>,
    input: MarkDeliveredInput,
) -> Result<Option<MarkDeliveredPayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let conversation = conversation_of(&input.conversation_id)?;
    let message = input
        .message_id
        .map(|id| message_in(conversation, &id))
        .transpose()?;
    let row = scope
        .chat
        .mark_delivered(&scope.viewer, conversation, message)
        .await?;
    Ok(Some(MarkDeliveredPayload {
        inbox_entry: InboxEntry::new(&scope, row),
        client_mutation_id,
    }))
}

async fn update_entry(
    ctx: &Context<'_>,
    input: UpdateInboxEntryInput,
) -> Result<Option<UpdateInboxEntryPayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let conversation = conversation_of(&input.conversation_id)?;
    let settings = EntrySettings {
        muted: input.muted,
        pinned: input.pinned,
        archived: input.archived,
    };
    let row = scope
        .chat
        .update_entry(&scope.viewer, conversation, settings)
        .await?;
    Ok(Some(UpdateInboxEntryPayload {
        inbox_entry: InboxEntry::new(&scope, row),
        client_mutation_id,
    }))
}
