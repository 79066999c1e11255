//! The mutations of the viewer's inbox entries.

use async_graphql::{Context, ID, InputObject, SimpleObject};

use super::{echo, message_in};
use crate::chat::EntrySettings;
use crate::graphql::error::Result;
use crate::graphql::id::conversation_of;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::InboxEntry;

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

pub(super) async fn mark_delivered(
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

pub(super) async fn update_entry(
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
