//! Mutations of the history of a conversation: the viewer's clearing, and a truncation for everyone.

use async_graphql::{Context, ID, InputObject, Object, SimpleObject};

use super::{conversation, message_in, mutate};
use crate::graphql::error::Nullable;
use crate::graphql::id::conversation_of;
use crate::graphql::types::{Conversation, InboxEntry};

/// Input of `clearHistory`.
#[derive(InputObject)]
pub(super) struct ClearHistoryInput {
    /// Global id of the conversation.
    conversation_id: ID,
}

/// Payload of `clearHistory`.
#[derive(SimpleObject)]
pub(super) struct ClearHistoryPayload {
    /// The viewer's entry in its new state.
    inbox_entry: InboxEntry,
}

/// Input of `truncateConversation`.
#[derive(InputObject)]
pub(super) struct TruncateConversationInput {
    /// Global id of the conversation.
    conversation_id: ID,
    /// Global id of the last message to remove.
    up_to_message_id: ID,
}

/// Payload of `truncateConversation`.
#[derive(SimpleObject)]
pub(super) struct TruncateConversationPayload {
    /// The conversation.
    conversation: Conversation,
}

#[derive(Default)]
pub(super) struct HistoryMutation;

#[Object]
impl HistoryMutation {
    /// Removes everything that the conversation has now from the viewer's history, counts and search.
    /// The other participants keep it. During an upgrade of the deployment: UNAVAILABLE.
    async fn clear_history(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The conversation.")] input: ClearHistoryInput,
    ) -> Nullable<ClearHistoryPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            let writes = &scope.chat.writes;
            writes.clear_history(&scope.caller, id).await?;
            let row = scope.chat.inbox.settle_clear(&scope.viewer, id).await?;
            let inbox_entry = InboxEntry::new(&scope, row);
            Ok(ClearHistoryPayload { inbox_entry })
        })
        .await
    }

    /// Removes all messages up to and with this one, for everyone. Allowed for OWNERs of a group, else
    /// FORBIDDEN, and for services with the scope `wideroom:moderate`. During an upgrade of the
    /// deployment: UNAVAILABLE.
    async fn truncate_conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The conversation and the last message to remove.")]
        input: TruncateConversationInput,
    ) -> Nullable<TruncateConversationPayload> {
        mutate(ctx, async |scope| {
            let id = conversation_of(&input.conversation_id)?;
            let up_to = message_in(id, &input.up_to_message_id)?;
            let writes = &scope.chat.writes;
            writes.truncate(&scope.caller, id, up_to).await?;
            let conversation = conversation(&scope, id).await?;
            Ok(TruncateConversationPayload { conversation })
        })
        .await
    }
}
