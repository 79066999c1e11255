//! Mutations of reactions: add, remove.

use std::sync::Arc;

use async_graphql::{Context, ID, InputObject, Object, SimpleObject};

use super::mutate;
use crate::graphql::error::{Nullable, Result};
use crate::graphql::id::message_of;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::Message;
use crate::model;

/// Input of `addReaction`.
#[derive(InputObject)]
pub(super) struct AddReactionInput {
    /// Global id of the message.
    message_id: ID,
    /// One emoji of Unicode. Spellings with and without U+FE0F are the same emoji. At a time a message has
    /// at most 20 different ones, and at most 5 of one user.
    emoji: String,
}

/// Payload of `addReaction`.
#[derive(SimpleObject)]
pub(super) struct AddReactionPayload {
    /// The message in its new state.
    message: Message,
}

/// Input of `removeReaction`.
#[derive(InputObject)]
pub(super) struct RemoveReactionInput {
    /// Global id of the message.
    message_id: ID,
    /// The emoji, in any spelling, or the `:name:` of a custom one that an import kept.
    emoji: String,
    /// Username of the user whose reaction goes. Default: the viewer.
    username: Option<String>,
}

/// Payload of `removeReaction`.
#[derive(SimpleObject)]
pub(super) struct RemoveReactionPayload {
    /// The message in its new state.
    message: Message,
}

#[derive(Default)]
pub(super) struct ReactionMutation;

#[Object]
impl ReactionMutation {
    /// Adds the viewer's reaction to a message. A deleted message takes no reaction:
    /// BAD_USER_INPUT. Repeating it changes nothing.
    async fn add_reaction(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message and the emoji.")] input: AddReactionInput,
    ) -> Nullable<AddReactionPayload> {
        mutate(ctx, async |scope| {
            let message = react(&scope, &input.message_id, &input.emoji, true).await?;
            let message = Message::new(&scope, message);
            Ok(AddReactionPayload { message })
        })
        .await
    }

    /// Removes a reaction from a message: the viewer's, or as an OWNER or ADMIN of the group that of
    /// another user, else FORBIDDEN. Without such a reaction it changes nothing.
    async fn remove_reaction(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message and the emoji.")] input: RemoveReactionInput,
    ) -> Nullable<RemoveReactionPayload> {
        mutate(ctx, async |scope| {
            let message = match &input.username {
                None => react(&scope, &input.message_id, &input.emoji, false).await?,
                Some(username) => {
                    let (conversation, id) = message_of(&input.message_id)?;
                    let (writes, emoji) = (&scope.chat.writes, &input.emoji);
                    writes
                        .remove_reaction_of(&scope.caller, conversation, id, emoji, username)
                        .await?
                }
            };
            let message = Message::new(&scope, message);
            Ok(RemoveReactionPayload { message })
        })
        .await
    }
}

async fn react(
    scope: &ViewerScope,
    message: &ID,
    emoji: &str,
    is_on: bool,
) -> Result<Arc<model::Message>> {
    let (conversation, id) = message_of(message)?;
    Ok(scope
        .chat
        .writes
        .react(&scope.caller, conversation, id, emoji, is_on)
        .await?)
}
