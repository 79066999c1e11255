//! Mutation of the viewer's typing state.

use async_graphql::{Context, ID, InputObject, Object, SimpleObject};

use super::mutate;
use crate::graphql::error::Nullable;
use crate::graphql::id::conversation_of;
use crate::graphql::types::Conversation;

/// Input of `setTyping`.
#[derive(InputObject)]
pub(super) struct SetTypingInput {
    /// Global id of the conversation.
    conversation_id: ID,
    /// True while the viewer types, false when the viewer stops.
    typing: bool,
}

/// Payload of `setTyping`.
#[derive(SimpleObject)]
pub(super) struct SetTypingPayload {
    /// The conversation.
    conversation: Conversation,
}

#[derive(Default)]
pub(super) struct TypingMutation;

#[Object]
impl TypingMutation {
    /// Publishes that the viewer types, or has stopped. Nothing is stored. Repeat it every few
    /// seconds while the viewer types: it expires 6 seconds after the last call, and with a
    /// message. More than one call in 2 seconds in one conversation is RATE_LIMITED. Both times are
    /// defaults.
    async fn set_typing(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The conversation, and whether the viewer types.")] input: SetTypingInput,
    ) -> Nullable<SetTypingPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            scope
                .chat
                .typing
                .set(&scope.caller, id, input.typing)
                .await?;
            let conversation = Conversation::of(&scope, id).await?;
            Ok(SetTypingPayload { conversation })
        })
        .await
    }
}
