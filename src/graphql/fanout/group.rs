//! Subscription groups: the subscribers of equal subscriptions, and the delivery of one update to
//! one of them.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_graphql::async_stream::stream;
use async_graphql::{Response, Variables};
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use tokio::time::timeout;

use super::SubscriptionGroups;
use super::payload_cache::{PayloadSlot, RenderedPayload, SlotKey};
use super::pooled_execution::ExecutionPool;
use super::response::{EventContent, EventResponse, shared_payload};
use super::update::{StreamUpdate, UpdatePlace, UpdateStream};
use super::viewer_independence::ViewerIndependence;
use crate::chat::UpdateKey;
use crate::graphql::execution::{AnswerBudget, Exceeded, ExecutionLimits, Prepared};
use crate::graphql::scope::{TakenDifferences, ViewerScope};
use crate::model::Viewer;
use crate::rate::{Pace, Paid};

/// Deadline of waiting for another subscriber's execution.
const SHARED_EXECUTION_MAX: Duration = Duration::from_secs(1);
/// Polls of another subscriber's execution before waiting for it.
const POLLS: usize = 3;
/// Source of group ids, which are never reused.
static GROUP_IDS: AtomicU64 = AtomicU64::new(0);

/// Equal subscriptions. The group lives as long as its subscribers.
pub(super) struct SubscriptionGroup {
    pub(super) groups: Arc<SubscriptionGroups>,
    id: u64,
    independence: ViewerIndependence,
    pub(super) prepared: Prepared,
    pub(super) variables: Variables,
    pub(super) pool: ExecutionPool,
}

/// Payload that the first group to execute a notice attaches to it. Its subscribers find it there
/// without a lock.
struct NoticePayload {
    group: u64,
    place: UpdatePlace,
    rendered: RenderedPayload,
}

/// Reason why an execution has no payload for the group.
enum NotShared {
    /// No tokens; nothing was executed.
    Unpaid,
    /// The response is the viewer's alone.
    Own(Box<Response>),
    /// The payload leaves out the viewer's own `clientKey`.
    Withheld,
}

impl SubscriptionGroup {
    pub(super) fn new(
        groups: Arc<SubscriptionGroups>,
        independence: ViewerIndependence,
        prepared: Prepared,
        variables: Variables,
    ) -> Self {
        Self {
            groups,
            id: GROUP_IDS.fetch_add(1, Ordering::Relaxed),
            independence,
            prepared,
            variables,
            pool: ExecutionPool::default(),
        }
    }

    /// Responses for one subscriber, until the stream of the chat ends or fails.
    pub(super) fn stream(
        self: Arc<Self>,
        mut updates: UpdateStream,
        mut limits: ExecutionLimits,
    ) -> BoxStream<'static, EventResponse> {
        // Not `unfold`: it reserves room for each place that it moves its state through.
        let responses = stream! {
            loop {
                let Some(update) = updates.next().await.transpose() else {
                    break;
                };
                let content = match update {
                    Ok(ref update) => {
                        if let Some(position) = update.position() {
                            limits.budget.pass(position);
                        }
                        self.deliver(&updates, &mut limits, update).await
                    }
                    // The stream ends with its error. The client resumes with its cursor.
                    Err(error) => {
                        let scope = self.scope(&updates);
                        let execution = self.execute(&updates, Err(error), scope, &limits.budget);
                        Some(Box::pin(execution).await.into())
                    }
                };
                if let Some(content) = content {
                    // The stream continues after an event that was too large; the client receives
                    // its cursor.
                    let is_over = limits.budget.exceeded().is_none() && content.is_last();
                    yield EventResponse { content, has_more: updates.has_more() };
                    if is_over {
                        break;
                    }
                }
            }
        };
        responses.boxed()
    }

    /// Response of this subscriber to one update. `None` if the viewer left while the update waited
    /// for tokens.
    async fn deliver(
        self: &Arc<Self>,
        updates: &UpdateStream,
        limits: &mut ExecutionLimits,
        update: &StreamUpdate,
    ) -> Option<EventContent> {
        let viewer = updates.guard().viewer();
        // A lone subscriber shares with nobody. A sender sees its own `clientKey`, which the others
        // do not.
        let is_alone = Arc::strong_count(self) == 1
            || (self.independence.varies_for_sender && update.has_client_key_of(viewer));
        let key = if is_alone { None } else { update.shared_key() };
        let Some((place, key)) = key else {
            return Box::pin(self.execute_own(updates, limits, update)).await;
        };
        if let Some(rendered) = self.attached(place, key) {
            if rendered.is_for(updates.guard()).await {
                return Some(EventContent::Shared(Arc::clone(&rendered.payload)));
            }
            return Box::pin(self.execute_own(updates, limits, update)).await;
        }
        let slot_key = SlotKey {
            group: self.id,
            place,
            update: key.identity(),
        };
        let slot = self.groups.payloads.slot(slot_key, key);
        for _ in 0..POLLS {
            if let Some(rendered) = slot.rendered.get()
                && rendered.is_for(updates.guard()).await
            {
                return Some(EventContent::Shared(Arc::clone(&rendered.payload)));
            }
            if slot.start() {
                break;
            }
            // Yielding and polling again is cheaper than a wait.
            tokio::task::yield_now().await;
        }
        Box::pin(self.execute_or_wait(slot_key, &slot, updates, limits, update)).await
    }

    /// Executes the update for this viewer alone.
    async fn execute_own(
        &self,
        updates: &UpdateStream,
        limits: &mut ExecutionLimits,
        update: &StreamUpdate,
    ) -> Option<EventContent> {
        let paid = limits.pace.pay().await;
        if !updates.may_deliver(update, paid).await {
            return None;
        }
        Some(self.execute_paid(updates, limits, update).await)
    }

    async fn execute_paid(
        &self,
        updates: &UpdateStream,
        limits: &ExecutionLimits,
        update: &StreamUpdate,
    ) -> EventContent {
        let scope = self.scope(updates);
        let update = Ok(update.clone());
        let response = self.execute(updates, update, scope, &limits.budget).await;
        EventContent::own(response, &limits.budget)
    }

    /// The payload attached to the notice, if it is this group's.
    fn attached<'a>(&self, place: UpdatePlace, key: &'a UpdateKey) -> Option<&'a RenderedPayload> {
        let attached: &NoticePayload = key.shown()?.get()?.downcast_ref()?;
        (attached.group == self.id && attached.place == place).then_some(&attached.rendered)
    }

    /// Attaches a payload to the notice of its update. The first group wins; the others use the
    /// cache.
    fn attach(&self, update: &StreamUpdate, rendered: &RenderedPayload) {
        if let Some((place, key)) = update.shared_key()
            && let Some(attachment) = key.shown()
        {
            let _ = attachment.set(Arc::new(NoticePayload {
                group: self.id,
                place,
                rendered: rendered.clone(),
            }));
        }
    }

    /// Executes the update for the group, or waits for the subscriber that does.
    async fn execute_or_wait(
        &self,
        key: SlotKey,
        slot: &PayloadSlot,
        updates: &UpdateStream,
        limits: &mut ExecutionLimits,
        update: &StreamUpdate,
    ) -> Option<EventContent> {
        let mut is_paid = false;
        loop {
            let execute = async || {
                is_paid = is_paid || limits.pace.try_pay();
                if is_paid {
                    self.execute_shared(key, updates, update, &limits.budget)
                        .await
                } else {
                    Err(NotShared::Unpaid)
                }
            };
            match timeout(SHARED_EXECUTION_MAX, slot.rendered.get_or_try_init(execute)).await {
                Ok(Ok(rendered)) => {
                    slot.done.notify_waiters();
                    if rendered.is_for(updates.guard()).await {
                        return Some(EventContent::Shared(Arc::clone(&rendered.payload)));
                    }
                    return self.execute_own(updates, limits, update).await;
                }
                Ok(Err(NotShared::Own(response))) => {
                    return Some(EventContent::own(*response, &limits.budget));
                }
                Ok(Err(NotShared::Withheld)) => {
                    return self.execute_own(updates, limits, update).await;
                }
                Ok(Err(NotShared::Unpaid)) => {
                    is_paid = wait_for_tokens_or_payload(slot, &mut limits.pace).await;
                    if !updates.may_deliver(update, Paid::AfterWait).await {
                        return None;
                    }
                }
                // An execution advances only as fast as its subscriber reads. No other subscriber
                // may depend on that.
                Err(_) if is_paid => return Some(self.execute_paid(updates, limits, update).await),
                Err(_) => return self.execute_own(updates, limits, update).await,
            }
        }
    }

    /// Executes the update without the viewer's own `clientKey`, and caches the payload for the
    /// group.
    async fn execute_shared(
        &self,
        key: SlotKey,
        updates: &UpdateStream,
        update: &StreamUpdate,
        budget: &AnswerBudget,
    ) -> Result<RenderedPayload, NotShared> {
        let reads_store = self.independence.reads_store || update.reads_store();
        let scope = ViewerScope::for_group(&self.groups.chat, updates.guard().viewer());
        let response = self
            .execute(updates, Ok(update.clone()), scope.clone(), budget)
            .await;
        let TakenDifferences {
            withheld,
            unblocked,
            oldest,
        } = scope.take_differences();
        match shared_payload(&response, budget.event_cursor()) {
            // Escapes make the text longer than the charged bytes.
            Some(payload) if payload.get().len() > budget.bytes_max() => {
                budget.exceed(Exceeded::Answer);
                Err(NotShared::Own(Box::new(response)))
            }
            // A viewer who was removed during the reads may have seen less than the others do.
            Some(payload) if !reads_store || updates.guard().is_in().await => {
                let rendered = RenderedPayload {
                    payload,
                    withheld: withheld.into(),
                    unblocked: unblocked.into(),
                    oldest,
                };
                if self.groups.payloads.keep(&key, &rendered.payload) {
                    self.attach(update, &rendered);
                }
                Ok(rendered)
            }
            Some(_) | None if withheld.contains(updates.guard().viewer()) => {
                Err(NotShared::Withheld)
            }
            Some(_) | None => Err(NotShared::Own(Box::new(response))),
        }
    }

    /// A scope for one update, for the viewer of this stream. No field of its document is a service's.
    fn scope(&self, updates: &UpdateStream) -> ViewerScope {
        let viewer = Viewer::from(updates.guard().viewer().clone());
        ViewerScope::new(&self.groups.chat, &viewer)
    }
}

/// Waits for tokens, or until another subscriber has executed the update. Returns whether tokens
/// were taken.
async fn wait_for_tokens_or_payload(slot: &PayloadSlot, pace: &mut Pace) -> bool {
    let mut done = pin!(slot.done.notified());
    done.as_mut().enable();
    if slot.rendered.initialized() {
        return false;
    }
    tokio::select! {
        biased;
        () = done => false,
        _ = pace.pay() => true,
    }
}
