//! Mutations of live messages: write, stop, discard.

use async_graphql::{Context, ID, InputObject, MaybeUndefined, Object, SimpleObject};

use super::{message_in, mutate};
use crate::chat::LiveWriteInput;
use crate::graphql::error::{Error, Nullable, Result};
use crate::graphql::id::{conversation_of, live_key};
use crate::graphql::types::{LiveMessage, MessageStepInput};
use crate::model::LiveKey;

/// Input of `writeLiveMessage`.
#[derive(InputObject)]
pub(super) struct WriteLiveMessageInput {
    /// Global id of the conversation.
    conversation_id: ID,
    /// The `idempotencyKey` of the `sendMessage` that will end the live message: 1 to 64 bytes of printable ASCII.
    key: String,
    /// Names this process and this try: 1 to 64 bytes, new for each. Another writer's name replaces the text, and takes
    /// over.
    writer: String,
    /// Bytes of UTF-8 before this text: 0 at first, then the `nextPosition` of the last answer.
    position: i32,
    /// Text: at most 4 KiB. Empty if the writer is only still at work.
    text: String,
    /// State of the work in the writer's words, such as `thinking`: 1 to 128 bytes of one line. Left out, it stays; null
    /// clears it.
    status: MaybeUndefined<String>,
    /// Steps of the work, all of them: at most 20, together at most 4 KiB. Left out, they stay.
    steps: Option<Vec<MessageStepInput>>,
    /// Global id of the message that this one replies to, in the same conversation. It counts at the start alone.
    reply_to_id: Option<ID>,
}

/// Payload of `writeLiveMessage`. The text is stored.
#[derive(SimpleObject)]
pub(super) struct WriteLiveMessagePayload {
    /// The live message. Its `stopRequestedBy` says whether the writer should stop.
    live_message: LiveMessage,
    /// Position of the next write, in bytes of UTF-8.
    next_position: i32,
}

/// Input of `stopLiveMessage`.
#[derive(InputObject)]
pub(super) struct StopLiveMessageInput {
    /// Global id of the live message.
    live_message_id: ID,
}

/// Payload of `stopLiveMessage`.
#[derive(SimpleObject)]
pub(super) struct StopLiveMessagePayload {
    /// The live message.
    live_message: LiveMessage,
}

/// Input of `discardLiveMessage`.
#[derive(InputObject)]
pub(super) struct DiscardLiveMessageInput {
    /// Global id of the live message.
    live_message_id: ID,
}

/// Payload of `discardLiveMessage`.
#[derive(SimpleObject)]
pub(super) struct DiscardLiveMessagePayload {
    /// The live message.
    live_message: LiveMessage,
}

#[derive(Default)]
pub(super) struct LiveMessageMutation;

#[Object]
impl LiveMessageMutation {
    /// Appends to a message that the viewer writes in view of the other participants; position 0 begins it. Whoever may send
    /// may write. The answer comes once the text is stored, at most 4 times a second for one live message: gather text
    /// meanwhile. Without an answer, write again from the same position, with the same text or more. A live message that
    /// was sent or discarded, a writer that another one superseded, and another text at a position are CONFLICT; a position
    /// after the end is BAD_USER_INPUT. A writer at work on something else writes an empty text every 20 seconds: after 60
    /// seconds of silence the server sends what there is.
    async fn write_live_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The text, and its position.")] input: WriteLiveMessageInput,
    ) -> Nullable<WriteLiveMessagePayload> {
        mutate(ctx, async |scope| {
            let conversation = conversation_of(&input.conversation_id)?;
            let reply_to = input.reply_to_id.as_ref();
            let steps = input
                .steps
                .map(|steps| steps.into_iter().map(Into::into).collect());
            let input = LiveWriteInput {
                conversation,
                key: input.key,
                writer: input.writer,
                position: input.position,
                text: input.text,
                status: input.status.into(),
                steps,
                reply_to: reply_to
                    .map(|id| message_in(conversation, id))
                    .transpose()?,
            };
            let written = scope.chat.lives.write(&scope.caller, input).await?;
            Ok(WriteLiveMessagePayload {
                live_message: LiveMessage::new(&scope, written.view),
                next_position: i32::try_from(written.next_position).unwrap_or(i32::MAX),
            })
        })
        .await
    }

    /// Asks the writer to stop, who hears of it with the next answer. In a direct conversation either may; in a group the sender
    /// of the message that it replies to, its writer, ADMIN and OWNER: else FORBIDDEN. Repeating it changes nothing.
    async fn stop_live_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The live message.")] input: StopLiveMessageInput,
    ) -> Nullable<StopLiveMessagePayload> {
        mutate(ctx, async |scope| {
            let live = live_of(&input.live_message_id)?;
            let view = scope.chat.lives.stop(&scope.caller, live).await?;
            let live_message = LiveMessage::new(&scope, view);
            Ok(StopLiveMessagePayload { live_message })
        })
        .await
    }

    /// Ends a live message without a message. Its writer may, ADMIN and OWNER of a group: else FORBIDDEN. One that was sent is
    /// CONFLICT. Repeating it changes nothing.
    async fn discard_live_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The live message.")] input: DiscardLiveMessageInput,
    ) -> Nullable<DiscardLiveMessagePayload> {
        mutate(ctx, async |scope| {
            let live = live_of(&input.live_message_id)?;
            let view = scope.chat.lives.discard(&scope.caller, live).await?;
            let live_message = LiveMessage::new(&scope, view);
            Ok(DiscardLiveMessagePayload { live_message })
        })
        .await
    }
}

fn live_of(id: &ID) -> Result<LiveKey> {
    live_key(id).ok_or_else(|| Error::not_found("the live message"))
}
