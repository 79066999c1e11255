//! The mutations of the viewer's inbox entries.

use async_graphql::{Context, ID, InputObject, SimpleObject};

use super::{echo, message_in};
use crate::chat::EntrySettings;
use crate::graphql::error::Result;
use crate::graphql::id::conversation_of;
use crate::graphql::scope::Scope;
use crate::graphql::types::InboxEntry;

/// What is to be set on an entry. What is not given stays as it is.
#[derive(InputObject)]
pub(super) struct UpdateInboxEntryInput {
    /// The entry's conversation.
    conversation_id: ID,
    /// Whether the viewer wants no notice of it.
    muted: Option<bool>,
    /// Whether it is pinned.
    pinned: Option<bool>,
    /// Whether it is put away. Ends by itself with a newer message, unless muted.
    archived: Option<bool>,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The entry as it is now.
#[derive(SimpleObject)]
pub(super) struct UpdateInboxEntryPayload {
    /// The viewer's entry.
    inbox_entry: InboxEntry,
    /// As it was given.
    client_mutation_id: Option<String>,
}

/// What has reached a device.
#[derive(InputObject)]
pub(super) struct MarkDeliveredInput {
    /// In which conversation.
    conversation_id: ID,
    /// The last message that has reached it; the newest one if none is named.
    message_id: Option<ID>,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The entry, which this does not change.
#[derive(SimpleObject)]
pub(super) struct MarkDeliveredPayload {
    /// The viewer's entry.
    inbox_entry: InboxEntry,
    /// As it was given.
    client_mutation_id: Option<String>,
}

pub(super) async fn mark_delivered(ctx: &Context<'_>, input: MarkDeliveredInput) -> Result<Option<MarkDeliveredPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let conversation = conversation_of(&input.conversation_id)?;
    let message = input.message_id.map(|id| message_in(conversation, &id)).transpose()?;
    let row = scope.chat.mark_delivered(&scope.viewer, conversation, message).await?;
    Ok(Some(MarkDeliveredPayload { inbox_entry: InboxEntry::new(&scope, row), client_mutation_id }))
}

pub(super) async fn update_entry(ctx: &Context<'_>, input: UpdateInboxEntryInput) -> Result<Option<UpdateInboxEntryPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let conversation = conversation_of(&input.conversation_id)?;
    let settings = EntrySettings { muted: input.muted, pinned: input.pinned, archived: input.archived };
    let row = scope.chat.update_entry(&scope.viewer, conversation, settings).await?;
    Ok(Some(UpdateInboxEntryPayload { inbox_entry: InboxEntry::new(&scope, row), client_mutation_id }))
}
