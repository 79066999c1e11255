//! Payload streams: updates of the chat, resolved to payloads, each in a scope of its own.

use std::sync::Arc;

use async_graphql::Context;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};

use crate::chat;
use crate::graphql::cursor::List;
use crate::graphql::error::Result;
use crate::graphql::execution::ExecutionLimits;
use crate::graphql::fanout::{StreamHandoff, StreamItem, UpdateFeed, UpdateStream};
use crate::graphql::scope::{ExecutionContext, ViewerScope};
use crate::model::ConversationId;

/// Update of a stream that many equal subscribers may share.
pub(super) trait SharedUpdate: StreamItem {
    type Payload: Send;

    /// List whose cursors resume the stream.
    fn list(conversation: ConversationId) -> Option<List<'static>>;

    fn payload(
        self,
        scope: &ViewerScope,
        conversation: ConversationId,
    ) -> impl Future<Output = Result<Self::Payload>> + Send;
}

/// Payloads of a subscription, according to its [`StreamHandoff`]: none if the stream is handed
/// over, else those of the received updates, or of an own stream.
pub(super) async fn payloads<U: SharedUpdate>(
    ctx: &Context<'_>,
    conversation: ConversationId,
    open: impl AsyncFnOnce(&ViewerScope) -> chat::Result<U::Updates>,
) -> Result<BoxStream<'static, Result<U::Payload>>> {
    let scope = ViewerScope::fresh(ctx)?;
    if let Some(list) = U::list(conversation) {
        let context = ctx.data_unchecked::<ExecutionContext>();
        context.budget.track(list.cursors());
    }
    match ctx.data_opt::<StreamHandoff>() {
        Some(StreamHandoff::Opening(slot)) => {
            StreamHandoff::hand_over(slot, open(&scope).await?.into());
            Ok(stream::empty().boxed())
        }
        Some(StreamHandoff::Receiving(feed)) => Ok(received::<U>(feed.lock().take(), conversation)),
        None => {
            let updates = open(&scope).await?.into();
            Ok(own::<U>(scope, conversation, updates, limits_of(ctx)))
        }
    }
}

/// Byte budget and pace of this subscription.
pub(super) fn limits_of(ctx: &Context<'_>) -> ExecutionLimits {
    let context = ctx.data_unchecked::<ExecutionContext>();
    ExecutionLimits {
        budget: Arc::clone(&context.budget),
        pace: context.pace.clone(),
    }
}

/// Payloads of the updates that a subscription group sends.
fn received<U: SharedUpdate>(
    feed: Option<UpdateFeed>,
    conversation: ConversationId,
) -> BoxStream<'static, Result<U::Payload>> {
    stream::unfold(feed, move |feed| async move {
        let mut feed = feed?;
        let (scope, update) = feed.recv().await?;
        let payload = match update {
            Ok(update) => U::from_update(update)?.payload(&scope, conversation).await,
            Err(error) => Err(error.into()),
        };
        Some((payload, Some(feed)))
    })
    .boxed()
}

/// Payloads of this subscription's own stream. The stream ends with its first error; the client
/// resumes with its cursor.
fn own<U: SharedUpdate>(
    scope: ViewerScope,
    conversation: ConversationId,
    updates: UpdateStream,
    limits: ExecutionLimits,
) -> BoxStream<'static, Result<U::Payload>> {
    let state = (updates, scope, limits);
    let payloads = stream::try_unfold(state, move |(mut updates, scope, mut limits)| async move {
        while let Some(update) = updates.next().await? {
            let paid = limits.pace.pay().await;
            if !updates.may_deliver(&update, paid).await {
                continue;
            }
            if let Some(position) = update.position() {
                limits.budget.pass(position);
            }
            let Some(update) = U::from_update(update) else {
                break;
            };
            let payload = update.payload(&scope.renewed(), conversation).await?;
            return Ok(Some((payload, (updates, scope, limits))));
        }
        Ok(None)
    });
    payloads.boxed()
}
