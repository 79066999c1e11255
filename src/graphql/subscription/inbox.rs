//! Payloads of `inboxUpdated`.

use std::sync::Arc;

use async_graphql::{Context, ID, Object, SimpleObject, Union};
use futures_util::stream::{self, Stream};
use tokio::time::Instant;

use crate::chat::{InboxUpdate, InboxUpdates, SharedSummary};
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::execution::ExecutionLimits;
use crate::graphql::id::GlobalId;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{InboxEntryEdge, InboxSummary, User};

/// Payload of `inboxUpdated`: an event, or only the position of the stream.
pub(super) struct InboxUpdatedPayload {
    scope: ViewerScope,
    cursor: String,
    event: Option<InboxEvent>,
    is_live: bool,
    received_at: Instant,
    summary: Arc<SharedSummary>,
}

/// Payload of `inboxUpdated`: an event, or only the position of the stream.
#[Object]
impl InboxUpdatedPayload {
    /// Cursor to resume the subscription after this payload, with `after`.
    async fn cursor(&self) -> &str {
        &self.cursor
    }

    /// The event. Null in the first payload, and in the one that an idle stream sends about once an
    /// hour.
    async fn event(&self) -> Option<&InboxEvent> {
        self.event.as_ref()
    }

    /// False while the stream replays. Where it is selected, a replay ends with one payload without
    /// an event. Without `after` it is true at once. A stream that lags stays true.
    async fn is_live(&self) -> bool {
        self.is_live
    }

    /// Counts of the inbox, computed after this event. The payloads of one user share
    /// computations, one a second at most, so this may delay them. Null if it failed. Price 100.
    async fn summary(&self, ctx: &Context<'_>) -> Nullable<InboxSummary> {
        let wanted = InboxSummary::selected(&ctx.look_ahead());
        let scope = &self.scope;
        let compute = async || scope.chat.inbox.summary(&scope.viewer, wanted).await;
        let summary = self.summary.since(self.received_at, wanted, compute);
        nullable(async { Ok(Some(summary.await?.into())) }).await
    }
}

/// Event of the viewer's inbox. A later version may add types: clients need a default branch.
#[derive(Union)]
enum InboxEvent {
    Changed(InboxEntryChangedEvent),
    Removed(InboxEntryRemovedEvent),
    BlockChanged(BlockChangedEvent),
}

/// An inbox entry is new or has changed.
#[derive(SimpleObject)]
struct InboxEntryChangedEvent {
    /// Edge of the entry in its current state. The same state may be delivered more than once.
    inbox_entry_edge: InboxEntryEdge,
}

/// An inbox entry was removed: the viewer no longer takes part in the conversation, or has blocked
/// the other participant of a direct one.
#[derive(SimpleObject)]
struct InboxEntryRemovedEvent {
    /// Global id of the removed entry.
    inbox_entry_id: ID,
    /// Global id of its conversation.
    conversation_id: ID,
}

/// The viewer has blocked or unblocked a user, perhaps on another device. Unread counts of common
/// groups may have changed: read them again.
#[derive(SimpleObject)]
struct BlockChangedEvent {
    /// The user. `viewerHasBlocked` is the current state.
    user: User,
}

pub(super) fn payloads(
    updates: InboxUpdates,
    scope: ViewerScope,
    limits: ExecutionLimits,
) -> impl Stream<Item = Result<InboxUpdatedPayload>> + use<> {
    limits.budget.track(List::Updates(&scope.viewer).cursors());
    let summary = scope.chat.inbox.shared_summary(&scope.viewer);
    let state = (updates, scope, limits, summary);
    stream::try_unfold(state, async |(mut updates, scope, mut limits, summary)| {
        let Some(update) = updates.next().await? else {
            return Ok(None);
        };
        // Pays before it reads the entry, which would be stale after a wait.
        let _ = limits.pace.pay().await;
        limits.budget.pass(update.position);
        let payload = payload(&scope.renewed(), update, Arc::clone(&summary)).await?;
        Ok(Some((payload, (updates, scope, limits, summary))))
    })
}

async fn payload(
    scope: &ViewerScope,
    update: InboxUpdate,
    summary: Arc<SharedSummary>,
) -> Result<InboxUpdatedPayload> {
    Ok(InboxUpdatedPayload {
        scope: scope.clone(),
        summary,
        received_at: update.received_at,
        cursor: update.position.encode(List::Updates(&scope.viewer)),
        is_live: update.is_live,
        event: InboxEvent::load(scope, update).await?,
    })
}

impl InboxEvent {
    /// `None` if only the position has advanced.
    async fn load(scope: &ViewerScope, update: InboxUpdate) -> Result<Option<Self>> {
        if let Some(user) = update.block_of {
            let user = User::new(scope, user);
            return Ok(Some(Self::BlockChanged(BlockChangedEvent { user })));
        }
        let Some(conversation) = update.conversation else {
            return Ok(None);
        };
        let edge = match update.entry {
            Some(entry) => Some(InboxEntryEdge::of_loaded(scope, *entry).await),
            None => InboxEntryEdge::load(scope, conversation).await?,
        };
        Ok(Some(match edge {
            Some(inbox_entry_edge) => Self::Changed(InboxEntryChangedEvent { inbox_entry_edge }),
            None => Self::Removed(InboxEntryRemovedEvent {
                inbox_entry_id: GlobalId::InboxEntry(conversation, scope.viewer.clone()).encode(),
                conversation_id: GlobalId::Conversation(conversation).encode(),
            }),
        }))
    }
}
