//! Event sources of one socket: its frames, its operations, and the shutdown of the server. Only a source with an event is polled.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use futures_util::future::BoxFuture;
use futures_util::stream::{SelectAll, SplitStream};
use futures_util::{FutureExt, Stream, StreamExt};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::message_rate::MessageRate;
use super::protocol;
use crate::server::answer::{Answer, Delivery, ExecutionResult};
use crate::server::operation::SubscriptionDeliveries;

/// Id that the client chose for an operation.
pub(super) type OperationId = Arc<str>;

pub(super) type EventSources = SelectAll<EventSource>;

pub(super) enum EventSource {
    Frames(Frames),
    /// Shutdown of the server. `None` once it was reported.
    Stop(Option<Pin<Box<WaitForCancellationFutureOwned>>>),
    RunningOperation(RunningOperation),
}

impl EventSource {
    /// Number of sources that are not operations.
    pub(super) const FIXED: usize = 2;
}

/// Event that the loop of a socket handles.
pub(super) enum SocketEvent {
    Stopping,
    /// Frame of the client, `None` at the end, and for how long the client has exceeded its rate.
    Received(Option<Result<Message, axum::Error>>, Duration),
    /// Answer of a query or a mutation.
    Answered(OperationId, ExecutionResult),
    /// `next` message of a subscription.
    Delivered(String),
    /// Error that ends a subscription.
    Refused(OperationId, Answer),
    /// End of a subscription.
    Completed(OperationId),
}

impl Stream for EventSource {
    type Item = SocketEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<SocketEvent>> {
        match self.get_mut() {
            Self::Frames(frames) => frames.poll(cx),
            Self::RunningOperation(operation) => operation.poll(cx),
            Self::Stop(stop) => {
                let Some(cancelled) = stop else {
                    return Poll::Ready(None);
                };
                ready!(cancelled.poll_unpin(cx));
                *stop = None;
                Poll::Ready(Some(SocketEvent::Stopping))
            }
        }
    }
}

/// Frames of the client, read no faster than the message rate.
pub(super) struct Frames {
    stream: SplitStream<WebSocket>,
    /// `None` once the limit is lifted.
    rate: Option<MessageRate>,
    pause: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl Frames {
    pub(super) fn new(stream: SplitStream<WebSocket>, rate: MessageRate) -> Self {
        Self {
            stream,
            rate: Some(rate),
            pause: None,
            is_over: false,
        }
    }

    /// Lifts the rate limit: the socket closes and answers no more messages.
    pub(super) fn lift_limit(&mut self) {
        self.rate = None;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<SocketEvent>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(read_at) = self
            .rate
            .as_mut()
            .and_then(|rate| rate.ready_at(Instant::now()))
        {
            let pause = self
                .pause
                .get_or_insert_with(|| Box::pin(sleep_until(read_at)));
            ready!(pause.poll_unpin(cx));
        }
        self.pause = None;
        let frame = ready!(self.stream.poll_next_unpin(cx));
        self.is_over = frame.is_none();
        let mut over_for = Duration::ZERO;
        if let Some(rate) = &mut self.rate {
            let now = Instant::now();
            rate.take(now);
            over_for = rate.over_for(now);
        }
        Poll::Ready(Some(SocketEvent::Received(frame, over_for)))
    }
}

/// Operation that a client started.
pub(super) struct RunningOperation {
    id: OperationId,
    /// `None` once it was stopped or has ended.
    work: Option<OperationWork>,
    /// Waker that polls the source once more after a stop, so that it is removed.
    waker: Option<Waker>,
}

enum OperationWork {
    Request(BoxFuture<'static, ExecutionResult>),
    Subscription {
        deliveries: SubscriptionDeliveries,
        /// JSON before each payload.
        head: Box<str>,
    },
}

impl RunningOperation {
    pub(super) fn request(id: OperationId, answer: BoxFuture<'static, ExecutionResult>) -> Self {
        Self {
            id,
            work: Some(OperationWork::Request(answer)),
            waker: None,
        }
    }

    pub(super) fn subscription(id: OperationId, deliveries: SubscriptionDeliveries) -> Self {
        let head = protocol::next_head(&id);
        Self {
            id,
            work: Some(OperationWork::Subscription { deliveries, head }),
            waker: None,
        }
    }

    /// Drops the work of the operation with this id.
    pub(super) fn stop(&mut self, id: &str) {
        if *self.id == *id {
            self.work = None;
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<SocketEvent>> {
        let event = match &mut self.work {
            None => return Poll::Ready(None),
            Some(OperationWork::Request(answer)) => answer
                .poll_unpin(cx)
                .map(|answer| SocketEvent::Answered(Arc::clone(&self.id), answer)),
            Some(OperationWork::Subscription { deliveries, head }) => deliveries
                .poll_next_unpin(cx)
                .map(|delivery| match delivery {
                    None => SocketEvent::Completed(Arc::clone(&self.id)),
                    Some(Delivery::Refused(answer)) => {
                        SocketEvent::Refused(Arc::clone(&self.id), answer)
                    }
                    Some(Delivery::Event(text)) => {
                        SocketEvent::Delivered(protocol::next(head, text.as_str()))
                    }
                }),
        };
        match &event {
            Poll::Ready(SocketEvent::Delivered(..)) => {}
            Poll::Ready(_) => self.work = None,
            Poll::Pending
                if self
                    .waker
                    .as_ref()
                    .is_some_and(|waker| waker.will_wake(cx.waker())) => {}
            Poll::Pending => self.waker = Some(cx.waker().clone()),
        }
        event.map(Some)
    }
}
