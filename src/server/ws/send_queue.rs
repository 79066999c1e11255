//! Send queue of one WebSocket: bounded in messages and bytes, with the time since its last progress.
//!
//! Answers and events enter only while the queue has room (backpressure): a client that asks for many large pages, or
//! missed many events, receives them as fast as it reads. A client that reads nothing for a while is a slow consumer.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::ws::Message;
use futures_util::{Sink, SinkExt};
use tokio::time::{Instant, timeout};

use super::protocol::Close;
use crate::graphql::{AnswerAccount, AnswerBudget, HeldBytes};
use crate::metrics::IntGauge;

/// Capacity that an idle queue retains.
const IDLE_CAPACITY: usize = 4;

/// Longest wait of a replayed event for the next one, and bytes that leave without it.
const HELD_MAX: Duration = Duration::from_millis(10);
const HELD_BYTES_MAX: usize = 8 * 1024;

/// Error of a full queue: the client reads too slowly.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

pub(super) struct SendQueue {
    queue: VecDeque<Queued>,
    /// Bytes of all messages.
    bytes: usize,
    /// Load of messages that are not answers.
    events: QueueLoad,
    bound: QueueLoad,
    /// The sink may hold bytes that the system has not taken.
    is_unflushed: bool,
    /// Budgets of the answers in those bytes, held until the system has taken them.
    unflushed: Vec<Arc<AnswerBudget>>,
    unflushed_event_bytes: usize,
    /// Bytes of events that the system has not taken, in the user's account. Most events are written at once, and never
    /// count.
    waiting_events: Option<HeldBytes>,
    /// Until when all that waits are replayed events that the next one may join.
    held_until: Option<Instant>,
    /// Time since when a write waits without progress.
    stuck_since: Option<Instant>,
    waiting: QueueGauge,
}

struct Queued {
    message: Message,
    bytes: usize,
    is_event: bool,
    /// Budget of an answer.
    budget: Option<Arc<AnswerBudget>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct QueueLoad {
    messages: usize,
    bytes: usize,
}

/// Share of this queue in the gauge of all sockets. A message that is written at once never counts.
struct QueueGauge {
    all: IntGauge,
    ours: usize,
}

impl QueueGauge {
    fn set(&mut self, messages: usize) {
        if messages != self.ours {
            self.all.add(messages as i64 - self.ours as i64);
            self.ours = messages;
        }
    }
}

impl Drop for QueueGauge {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl SendQueue {
    pub(super) fn new(messages_max: usize, bytes_max: usize, waiting: IntGauge) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            events: QueueLoad::default(),
            bound: QueueLoad {
                messages: messages_max,
                bytes: bytes_max,
            },
            is_unflushed: false,
            unflushed: Vec::new(),
            unflushed_event_bytes: 0,
            waiting_events: None,
            held_until: None,
            stuck_since: None,
            waiting: QueueGauge {
                all: waiting,
                ours: 0,
            },
        }
    }

    /// Sets the account in which the bytes of waiting events count.
    pub(super) fn charge_events(&mut self, account: Option<&Arc<AnswerAccount>>) {
        if self.waiting_events.is_none() {
            self.waiting_events = account.map(|account| account.hold(0));
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.is_unflushed
    }

    /// Whether an event waits to be written.
    pub(super) fn has_events(&self) -> bool {
        self.events.messages > 0
    }

    /// Whether half of the queue is free, for an answer or the next event.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() <= self.bound.messages / 2 && self.bytes <= self.bound.bytes / 2
    }

    /// Time since when a write waits without progress.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        self.stuck_since
    }

    /// Queues a message that cannot wait. A single message may exceed the bound of bytes; otherwise it could never be sent.
    pub(super) fn push(&mut self, text: String) -> Result<(), Full> {
        self.held_until = None;
        self.push_event(text)
    }

    /// Queues a ping: as a frame, which every client answers. Some know no message `ping`, and some close on one.
    pub(super) fn push_ping(&mut self) -> Result<(), Full> {
        self.held_until = None;
        self.push_message(Message::Ping(Bytes::new()), 0)
    }

    /// Queues an event of a replay that goes on: many subscribers wait for each other's executions, and would write
    /// each event on its own.
    pub(super) fn push_replayed(&mut self, text: String, now: Instant) -> Result<(), Full> {
        if self.is_idle() {
            self.held_until = Some(now + HELD_MAX);
        }
        self.push_event(text)
    }

    /// Time at which held events leave.
    pub(super) fn held_until(&self) -> Option<Instant> {
        self.held_until
    }

    /// Whether all that waits may wait for the next event of a replay.
    pub(super) fn is_held(&self) -> bool {
        self.bytes < HELD_BYTES_MAX
            && self.has_room()
            && self.held_until.is_some_and(|until| Instant::now() < until)
    }

    fn push_event(&mut self, text: String) -> Result<(), Full> {
        let bytes = text.len();
        self.push_message(Message::Text(text.into()), bytes)
    }

    fn push_message(&mut self, message: Message, bytes: usize) -> Result<(), Full> {
        let is_over = self.events.messages >= self.bound.messages
            || self.events.bytes.saturating_add(bytes) > self.bound.bytes;
        if is_over && self.events.messages > 0 {
            return Err(Full);
        }
        self.events.messages += 1;
        self.events.bytes += bytes;
        self.enqueue(Queued {
            message,
            bytes,
            is_event: true,
            budget: None,
        });
        Ok(())
    }

    /// Queues an answer. The caller checked [`SendQueue::has_room`] before.
    pub(super) fn push_answer(&mut self, text: String, budget: Option<Arc<AnswerBudget>>) {
        self.held_until = None;
        self.enqueue(Queued {
            bytes: text.len(),
            message: Message::Text(text.into()),
            is_event: false,
            budget,
        });
    }

    fn enqueue(&mut self, queued: Queued) {
        self.bytes += queued.bytes;
        self.queue.push_back(queued);
    }

    /// Writes and flushes the queue. It is safe to drop and poll again: no message is lost or written twice.
    pub(super) fn poll_flush<S: Sink<Message> + Unpin>(
        &mut self,
        sink: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), S::Error>> {
        self.held_until = None;
        let before = self.queue.len();
        let flushed = self.poll_write(sink, cx);
        let has_moved = self.queue.len() < before;
        self.stuck_since = match self.stuck_since {
            _ if flushed.is_ready() => None,
            Some(since) if !has_moved => Some(since),
            _ => Some(Instant::now()),
        };
        self.waiting.set(self.queue.len());
        self.count_waiting_events();
        flushed
    }

    fn count_waiting_events(&mut self) {
        if let Some(waiting) = &mut self.waiting_events {
            waiting.set(self.events.bytes + self.unflushed_event_bytes);
        }
    }

    fn poll_write<S: Sink<Message> + Unpin>(
        &mut self,
        sink: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), S::Error>> {
        while !self.queue.is_empty() {
            ready!(sink.poll_ready_unpin(cx))?;
            if let Some(Queued {
                message,
                bytes,
                is_event,
                budget,
            }) = self.queue.pop_front()
            {
                self.bytes -= bytes;
                if is_event {
                    self.events.messages -= 1;
                    self.events.bytes -= bytes;
                    self.unflushed_event_bytes += bytes;
                }
                self.is_unflushed = true;
                self.unflushed.extend(budget);
                sink.start_send_unpin(message)?;
            }
        }
        // Gives back the capacity of a burst.
        self.queue.shrink_to(IDLE_CAPACITY);
        ready!(sink.poll_flush_unpin(cx))?;
        self.is_unflushed = false;
        self.unflushed.clear();
        self.unflushed_event_bytes = 0;
        Poll::Ready(Ok(()))
    }

    /// Writes the rest of the queue and the closing frame within a time. Returns whether both were written.
    pub(super) async fn close<S: Sink<Message> + Unpin>(
        &mut self,
        sink: &mut S,
        close: Close,
        within: Duration,
    ) -> bool {
        let all = async {
            poll_fn(|cx| self.poll_flush(sink, cx)).await?;
            sink.send(Message::Close(Some(close.frame()))).await
        };
        timeout(within, all).await.is_ok_and(|sent| sent.is_ok())
    }

    /// Drops every queued message.
    pub(super) fn clear(&mut self) {
        self.waiting.set(0);
        self.held_until = None;
        self.queue.clear();
        self.bytes = 0;
        self.events = QueueLoad::default();
        self.count_waiting_events();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::*;
    use crate::metrics;

    fn send_queue() -> SendQueue {
        SendQueue::new(3, 10, metrics::gauge("waiting", "In a test."))
    }

    #[test]
    fn events_are_bounded_in_messages_and_in_bytes() {
        let mut by_messages = send_queue();
        for _ in 0..3 {
            by_messages.push("a".to_owned()).unwrap();
        }
        assert_eq!(by_messages.push("a".to_owned()), Err(Full));
        let mut by_bytes = send_queue();
        by_bytes.push("0123456".to_owned()).unwrap();
        assert_eq!(by_bytes.push("789a".to_owned()), Err(Full));
        by_bytes.push("789".to_owned()).unwrap();
        assert!(!by_bytes.has_room());
    }

    #[test]
    fn one_message_may_be_larger_than_the_queue() {
        let mut send_queue = send_queue();
        send_queue.push("x".repeat(100)).unwrap();
        assert_eq!(send_queue.push("x".to_owned()), Err(Full));
    }

    #[test]
    fn a_large_answer_makes_no_client_a_slow_consumer() {
        let mut send_queue = send_queue();
        send_queue.push_answer("x".repeat(100), None);
        assert!(!send_queue.has_room());
        send_queue.push("x".to_owned()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_replayed_event_waits_a_moment_for_the_next_and_for_nothing_else() {
        let now = Instant::now();
        let queue = || SendQueue::new(10, 100_000, metrics::gauge("waiting", "In a test."));
        let replayed = || {
            let mut replayed = queue();
            replayed.push_replayed("a".to_owned(), now).unwrap();
            replayed.push_replayed("b".to_owned(), now).unwrap();
            assert!(replayed.is_held() && replayed.held_until() == Some(now + HELD_MAX));
            replayed
        };
        let mut live = replayed();
        live.push("c".to_owned()).unwrap();
        assert!(!live.is_held() && live.held_until().is_none());
        let mut answered = replayed();
        answered.push_answer("c".to_owned(), None);
        assert!(!answered.is_held());
        let mut large = replayed();
        let text = "c".repeat(HELD_BYTES_MAX);
        large.push_replayed(text, now).unwrap();
        assert!(!large.is_held());
        let mut behind_another = queue();
        behind_another.push("a".to_owned()).unwrap();
        behind_another.push_replayed("b".to_owned(), now).unwrap();
        assert!(!behind_another.is_held());
        let late = replayed();
        tokio::time::advance(HELD_MAX).await;
        assert!(!late.is_held());
    }

    #[tokio::test]
    async fn a_write_makes_room_again() {
        let mut send_queue = send_queue();
        send_queue.push("x".repeat(100)).unwrap();
        send_queue.push_answer("x".repeat(100), None);
        assert!(!send_queue.is_idle());
        let mut sink = futures_util::sink::drain();
        poll_fn(|cx| send_queue.poll_flush(&mut sink, cx))
            .await
            .unwrap();
        assert!(
            send_queue.is_idle() && send_queue.has_room() && send_queue.stuck_since().is_none()
        );
        assert_eq!(
            (send_queue.bytes, send_queue.events),
            (0, QueueLoad::default())
        );
    }

    /// Sink that takes nothing, as a client that does not read.
    struct Shut;

    impl Sink<Message> for Shut {
        type Error = std::convert::Infallible;

        fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Pending
        }

        fn start_send(self: Pin<&mut Self>, _: Message) -> Result<(), Self::Error> {
            panic!("it was not ready")
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Pending
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_message_is_stuck_from_the_first_try_and_counts_until_it_is_dropped() {
        let all = metrics::gauge("waiting", "In a test.");
        let mut send_queue = SendQueue::new(3, 100, all.clone());
        send_queue.push("a".to_owned()).unwrap();
        assert_eq!((send_queue.stuck_since(), all.get()), (None, 0));
        assert!(
            poll_fn(|cx| Poll::Ready(send_queue.poll_flush(&mut Shut, cx)))
                .await
                .is_pending()
        );
        let since = send_queue.stuck_since();
        assert!(since.is_some());
        send_queue.push("b".to_owned()).unwrap();
        assert!(
            poll_fn(|cx| Poll::Ready(send_queue.poll_flush(&mut Shut, cx)))
                .await
                .is_pending()
        );
        assert_eq!((send_queue.stuck_since(), all.get()), (since, 2));
        drop(send_queue);
        assert_eq!(all.get(), 0);
    }
}
