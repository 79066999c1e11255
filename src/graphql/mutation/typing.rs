//! The mutation of typing.

use async_graphql::{Context, ID, InputObject, SimpleObject};

use super::echo;
use crate::graphql::error::Result;
use crate::graphql::id::conversation_of;
use crate::graphql::scope::Scope;
use crate::graphql::types::Conversation;

/// Whether the viewer types.
#[derive(InputObject)]
pub(super) struct SetTypingInput {
    /// In which conversation.
    conversation_id: ID,
    /// True at most once in 2 seconds, and so false.
    typing: bool,
    /// Echoed: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// The others were told.
#[derive(SimpleObject)]
pub(super) struct SetTypingPayload {
    /// The conversation.
    conversation: Conversation,
    /// As it was given.
    client_mutation_id: Option<String>,
}

pub(super) async fn set_typing(ctx: &Context<'_>, input: SetTypingInput) -> Result<Option<SetTypingPayload>> {
    let scope = Scope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    scope.chat.set_typing(&scope.viewer, id, input.typing).await?;
    Ok(Some(SetTypingPayload { conversation: Conversation::of(&scope, id).await?, client_mutation_id }))
}
