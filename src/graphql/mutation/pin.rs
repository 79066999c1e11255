//! Mutations of pins: pin, unpin.

use std::sync::Arc;

use async_graphql::{Context, ID, InputObject, Object, SimpleObject};

use super::mutate;
use crate::graphql::error::{Error, Nullable, Result};
use crate::graphql::id::message_of;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{Message, PinnedMessageEdge};
use crate::model;

/// Input of `pinMessage`.
#[derive(InputObject)]
pub(super) struct PinMessageInput {
    /// Global id of the message.
    message_id: ID,
}

/// Payload of `pinMessage`.
#[derive(SimpleObject)]
pub(super) struct PinMessagePayload {
    /// The message in its new state.
    message: Message,
    /// Edge of the message in `Conversation.pinnedMessages`.
    pinned_message_edge: PinnedMessageEdge,
}

/// Input of `unpinMessage`.
#[derive(InputObject)]
pub(super) struct UnpinMessageInput {
    /// Global id of the message.
    message_id: ID,
}

/// Payload of `unpinMessage`.
#[derive(SimpleObject)]
pub(super) struct UnpinMessagePayload {
    /// The message in its new state.
    message: Message,
}

#[derive(Default)]
pub(super) struct PinMutation;

#[Object]
impl PinMutation {
    /// Pins a message for all participants. Any participant may; in a large conversation only an
    /// ADMIN or OWNER: else FORBIDDEN. A deleted message cannot be pinned: BAD_USER_INPUT. With 100
    /// pinned messages: CONFLICT. Repeating it changes nothing.
    async fn pin_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message.")] input: PinMessageInput,
    ) -> Nullable<PinMessagePayload> {
        mutate(ctx, async |scope| {
            let message = change(&scope, &input.message_id, true).await?;
            // Another server deleted the message at this moment.
            let edge = PinnedMessageEdge::of(&scope, &message).ok_or_else(|| {
                Error::bad_input(&["input", "messageId"], "the message is deleted")
            })?;
            Ok(PinMessagePayload {
                message: Message::new(&scope, message),
                pinned_message_edge: edge,
            })
        })
        .await
    }

    /// Unpins a message, with the rights of `pinMessage`. Without effect if the message is not
    /// pinned.
    async fn unpin_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message.")] input: UnpinMessageInput,
    ) -> Nullable<UnpinMessagePayload> {
        mutate(ctx, async |scope| {
            let message = change(&scope, &input.message_id, false).await?;
            let message = Message::new(&scope, message);
            Ok(UnpinMessagePayload { message })
        })
        .await
    }
}

async fn change(scope: &ViewerScope, message: &ID, is_on: bool) -> Result<Arc<model::Message>> {
    let (conversation, id) = message_of(message)?;
    Ok(scope
        .chat
        .writes
        .pin(&scope.caller, conversation, id, is_on)
        .await?)
}
