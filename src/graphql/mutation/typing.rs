//! The mutation of typing.

use async_graphql::{Context, ID, InputObject, SimpleObject};

use super::echo;
use crate::graphql::error::Result;
use crate::graphql::id::conversation_of;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::Conversation;

/// Input of `setTyping`.
#[derive(InputObject)]
pub(super) struct SetTypingInput {
    /// The conversation.
    conversation_id: ID,
    /// True while the viewer types. At most one call in 2 seconds for each conversation, true or false.
    typing: bool,
    /// Opaque text that the payload echoes: at most 128 bytes.
    client_mutation_id: Option<String>,
}

/// Payload of `setTyping`.
#[derive(SimpleObject)]
pub(super) struct SetTypingPayload {
    /// The conversation.
    conversation: Conversation,
    /// The `clientMutationId` of the input.
    client_mutation_id: Option<String>,
}

pub(super) async fn set_typing(
    ctx: &Context<'_>,
    input: SetTypingInput,
) -> Result<Option<SetTypingPayload>> {
    let scope = ViewerScope::fresh(ctx)?;
    let client_mutation_id = echo(input.client_mutation_id)?;
    let id = conversation_of(&input.conversation_id)?;
    scope
        .chat
        .set_typing(&scope.viewer, id, input.typing)
        .await?;
    Ok(Some(SetTypingPayload {
        conversation: Conversation::of(&scope, id).await?,
        client_mutation_id,
    }))
}
