//! One try: executes the document for an event, sends the answer, and reads what the receiver says.

use std::sync::Arc;
use std::time::Duration;

use async_graphql::ServerError;
use hyper::body::Bytes;
use parking_lot::Mutex;
use time::OffsetDateTime;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::metrics::HookMetrics;
use super::queue::EventDelivery;
use super::retry::RetryPolicy;
use crate::chat::{Chat, OutboxItem, OutboxTypes, OutboxUpdate, ReaderName};
use crate::graphql::{AnswerJson, Api, CursorKey as _, List, OutboxDocument, RenderedEvent};
use crate::model::{ConversationId, OrderKey};
use crate::signed_post::{PostAnswer, PostClient, PostLimits, SignedMessage};

/// Bytes of an answer that are read. Only its status counts.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A webhook that runs.
pub(super) struct Deliverer {
    pub(super) name: ReaderName,
    pub(super) types: OutboxTypes,
    pub(super) client: PostClient,
    pub(super) document: OutboxDocument,
    pub(super) policy: RetryPolicy,
    pub(super) chat: Chat,
    pub(super) api: Arc<Api>,
    pub(super) metrics: HookMetrics,
    /// The receiver asked for a pause until then.
    pub(super) paused_until: Mutex<Option<Instant>>,
    /// Last time that the receiver took an event.
    pub(super) taken_at: Mutex<Option<Instant>>,
    /// Cancelled once the receiver has answered 410.
    pub(super) is_gone: CancellationToken,
}

/// Outcome of one try.
#[derive(Debug)]
pub(super) enum TryOutcome {
    Delivered,
    /// The event has nothing to deliver any more.
    Nothing,
    /// The event is tried again.
    Failed(FailureCause, String),
    /// The receiver does not want this event.
    Refused(String),
    /// The receiver wants no event any more.
    Gone,
}

/// Part that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureCause {
    /// This server made no request.
    Server,
    /// The receiver gave no answer.
    Silence,
    Answer,
}

/// Outcome of a try, with the item that follows the tried one in its place.
pub(super) struct DeliveryAttempt {
    pub(super) outcome: TryOutcome,
    /// Next piece of a notification.
    pub(super) next: Option<OutboxItem>,
    pub(super) took: Duration,
}

/// Body of a request.
#[derive(serde::Serialize)]
struct EventBody<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    timestamp: String,
    cursor: String,
    data: AnswerJson<'a>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    errors: &'a [ServerError],
}

impl Deliverer {
    pub(super) async fn attempt(&self, delivery: &EventDelivery) -> DeliveryAttempt {
        let (conversation, position) = (delivery.conversation, delivery.position);
        self.try_event(conversation, &delivery.item, position).await
    }

    /// Tries to deliver an event, and counts the outcome.
    pub(super) async fn try_event(
        &self,
        conversation: ConversationId,
        item: &OutboxItem,
        position: OrderKey,
    ) -> DeliveryAttempt {
        let began = Instant::now();
        let mut next = None;
        let outcome = self.send(conversation, item, position, &mut next).await;
        let took = began.elapsed();
        self.metrics.seconds.observe(took.as_secs_f64());
        match &outcome {
            TryOutcome::Delivered => {
                *self.taken_at.lock() = Some(Instant::now());
                self.metrics.delivered.inc();
            }
            TryOutcome::Nothing => {}
            TryOutcome::Failed(..) => self.metrics.failed.inc(),
            TryOutcome::Refused(_) | TryOutcome::Gone => self.metrics.refused.inc(),
        }
        DeliveryAttempt {
            outcome,
            next,
            took,
        }
    }

    async fn send(
        &self,
        conversation: ConversationId,
        item: &OutboxItem,
        position: OrderKey,
        next: &mut Option<OutboxItem>,
    ) -> TryOutcome {
        let unrendered = |reason: &str| TryOutcome::Failed(FailureCause::Server, reason.to_owned());
        let Ok(loaded) = self.chat.outbox.load(conversation, item).await else {
            return unrendered("the store did not give the event");
        };
        *next = loaded.next;
        if loaded.event.is_none() {
            return TryOutcome::Nothing;
        }
        let update = OutboxUpdate {
            position,
            event: loaded.event,
        };
        let Some(rendered) = self.api.render(&self.document, update).await else {
            return unrendered("the document gave no answer");
        };
        if rendered.is_transient() {
            return unrendered("the document gave an error of this server");
        }
        let message = SignedMessage {
            id: item.id(),
            timestamp: OffsetDateTime::now_utc().unix_timestamp(),
            body: body(item, position, &rendered),
        };
        let limits = PostLimits {
            deadline: self.policy.deadline,
            answer_bytes: ANSWER_BYTES_MAX,
        };
        match self.client.post(&message, limits).await {
            Ok(answer) => self.outcome(&answer),
            Err(error) => TryOutcome::Failed(FailureCause::Silence, error.to_string()),
        }
    }

    fn outcome(&self, answer: &PostAnswer) -> TryOutcome {
        let reason = format!("the receiver answers {}", answer.status);
        match answer.status {
            200..300 => TryOutcome::Delivered,
            410 => TryOutcome::Gone,
            408 | 409 | 425 | 429 => self.failed(answer, reason),
            400..500 => TryOutcome::Refused(reason),
            // Redirects, too: an address that has moved is the operator's to change.
            _ => self.failed(answer, reason),
        }
    }

    fn failed(&self, answer: &PostAnswer, reason: String) -> TryOutcome {
        if let Some(pause) = answer.retry_after {
            let until = Instant::now() + pause;
            let mut paused = self.paused_until.lock();
            *paused = Some(paused.map_or(until, |paused| paused.max(until)));
        }
        TryOutcome::Failed(FailureCause::Answer, reason)
    }

    /// End of the pause that the receiver asked for, if it lies ahead.
    pub(super) fn pause_end(&self, now: Instant) -> Option<Instant> {
        let paused_until = *self.paused_until.lock();
        paused_until.filter(|until| *until > now)
    }
}

fn body(item: &OutboxItem, position: OrderKey, rendered: &RenderedEvent) -> Bytes {
    let body = EventBody {
        kind: item.type_name(),
        timestamp: item.event.id.moment().to_string(),
        cursor: position.encode(List::Outbox),
        data: AnswerJson(&rendered.data),
        errors: &rendered.errors,
    };
    let text = serde_json::to_vec(&body).expect("an answer is a tree of text and numbers");
    text.into()
}
