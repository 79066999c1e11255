//! What is still to be written to one socket: a queue with an end, and the time since when it has not moved.
//!
//! Answers and what subscriptions tell wait before they are put here, until there is room: a client may ask for many large pages at once, or
//! have missed much, and gets it as fast as it reads. Who reads nothing for a while is a slow consumer.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::ws::{Message, Utf8Bytes};
use futures_util::{Sink, SinkExt};
use tokio::time::{Instant, timeout};

use super::protocol::Close;
use crate::graphql::{AnswerBudget, HeldBytes};
use crate::metrics::IntGauge;

/// Places in the queue of a socket at rest.
const PLACES_KEPT: usize = 4;

/// The queue is full: the other side reads too slowly.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

pub(super) struct Outbox<S> {
    sink: S,
    queue: VecDeque<Queued>,
    /// Of all there is.
    bytes: usize,
    /// Of what was told.
    told: Load,
    most: Load,
    /// Something was handed to the sink that may not be with the system yet.
    is_unflushed: bool,
    /// What counts in an account until that is.
    unflushed: Vec<Held>,
    /// Since when no message moved on, where one could not.
    stuck_since: Option<Instant>,
    waiting: Waiting,
}

struct Queued {
    text: Utf8Bytes,
    is_told: bool,
    held: Option<Held>,
}

/// What counts among its user's until a message was written.
#[expect(dead_code, reason = "they count as long as they are held")]
pub(super) enum Held {
    Answer(Arc<AnswerBudget>),
    Event(HeldBytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Load {
    messages: usize,
    bytes: usize,
}

/// What of this queue is counted among that of all sockets. What can be written at once never is.
struct Waiting {
    all: IntGauge,
    ours: usize,
}

impl Waiting {
    fn set(&mut self, messages: usize) {
        if messages != self.ours {
            self.all.add(messages as i64 - self.ours as i64);
            self.ours = messages;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl<S: Sink<Message> + Unpin> Outbox<S> {
    pub(super) fn new(sink: S, messages_max: usize, bytes_max: usize, waiting: IntGauge) -> Self {
        Self {
            sink,
            queue: VecDeque::new(),
            bytes: 0,
            told: Load::default(),
            most: Load {
                messages: messages_max,
                bytes: bytes_max,
            },
            is_unflushed: false,
            unflushed: Vec::new(),
            stuck_since: None,
            waiting: Waiting {
                all: waiting,
                ours: 0,
            },
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.is_unflushed
    }

    /// Something that a subscription told waits to be written.
    pub(super) fn has_told(&self) -> bool {
        self.told.messages > 0
    }

    /// Half of the queue is free: there is room for an answer, or for what a subscription tells next.
    pub(super) fn has_room(&self) -> bool {
        self.queue.len() <= self.most.messages / 2 && self.bytes <= self.most.bytes / 2
    }

    /// Since when nothing moved, where there is something to move and it was tried.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        self.stuck_since
    }

    /// What cannot wait. A single message may be larger than the queue, else it could never be sent.
    pub(super) fn tell(&mut self, text: String, held: Option<Held>) -> Result<(), Full> {
        let is_over = self.told.messages >= self.most.messages
            || self.told.bytes.saturating_add(text.len()) > self.most.bytes;
        if is_over && self.told.messages > 0 {
            return Err(Full);
        }
        self.told.messages += 1;
        self.told.bytes += text.len();
        self.push(text, true, held);
        Ok(())
    }

    /// An answer, for which [`Outbox::has_room`] was asked before.
    pub(super) fn answer(&mut self, text: String, held: Option<Held>) {
        self.push(text, false, held);
    }

    fn push(&mut self, text: String, is_told: bool, held: Option<Held>) {
        self.bytes += text.len();
        self.queue.push_back(Queued {
            text: text.into(),
            is_told,
            held,
        });
    }

    /// Writes all there is. Where it cannot, nothing is lost, and nothing will be written twice.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let before = self.queue.len();
        let flushed = self.poll_write(cx);
        let has_moved = self.queue.len() < before;
        self.stuck_since = match self.stuck_since {
            _ if flushed.is_ready() => None,
            Some(since) if !has_moved => Some(since),
            _ => Some(Instant::now()),
        };
        self.waiting.set(self.queue.len());
        flushed
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        while !self.queue.is_empty() {
            ready!(self.sink.poll_ready_unpin(cx))?;
            if let Some(Queued {
                text,
                is_told,
                held,
            }) = self.queue.pop_front()
            {
                self.bytes -= text.len();
                if is_told {
                    self.told.messages -= 1;
                    self.told.bytes -= text.len();
                }
                self.is_unflushed = true;
                self.unflushed.extend(held);
                self.sink.start_send_unpin(Message::Text(text))?;
            }
        }
        // What was queued for a burst is given back.
        self.queue.shrink_to(PLACES_KEPT);
        ready!(self.sink.poll_flush_unpin(cx))?;
        self.is_unflushed = false;
        self.unflushed.clear();
        Poll::Ready(Ok(()))
    }

    /// Writes what is left and the closing frame, if that goes within this time. A slow consumer only gets the frame.
    pub(super) async fn close(&mut self, close: Close, within: Duration) -> bool {
        let all = async {
            poll_fn(|cx| self.poll_flush(cx)).await?;
            self.sink.send(Message::Close(Some(close.frame()))).await
        };
        timeout(within, all).await.is_ok_and(|sent| sent.is_ok())
    }

    /// Writes the answer to the other side's closing frame, which the library has ready.
    pub(super) async fn answer_close(&mut self, within: Duration) {
        // One that does not wait for it has lost nothing.
        let _ = timeout(within, self.sink.close()).await;
    }

    pub(super) fn forget(&mut self) {
        self.waiting.set(0);
        self.queue.clear();
        self.bytes = 0;
        self.told = Load::default();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use super::*;
    use crate::metrics;

    fn outbox() -> Outbox<futures_util::sink::Drain<Message>> {
        Outbox::new(
            futures_util::sink::drain(),
            3,
            10,
            metrics::gauge("waiting", "In a test."),
        )
    }

    #[test]
    fn what_is_told_ends_by_messages_and_by_bytes() {
        let mut by_messages = outbox();
        for _ in 0..3 {
            by_messages.tell("a".to_owned(), None).unwrap();
        }
        assert_eq!(by_messages.tell("a".to_owned(), None), Err(Full));
        let mut by_bytes = outbox();
        by_bytes.tell("0123456".to_owned(), None).unwrap();
        assert_eq!(by_bytes.tell("789a".to_owned(), None), Err(Full));
        by_bytes.tell("789".to_owned(), None).unwrap();
        assert!(!by_bytes.has_room());
    }

    #[test]
    fn one_message_may_be_larger_than_the_queue() {
        let mut outbox = outbox();
        outbox.tell("x".repeat(100), None).unwrap();
        assert_eq!(outbox.tell("x".to_owned(), None), Err(Full));
    }

    #[test]
    fn a_large_answer_makes_nobody_a_slow_consumer() {
        let mut outbox = outbox();
        outbox.answer("x".repeat(100), None);
        assert!(!outbox.has_room());
        outbox.tell("x".to_owned(), None).unwrap();
    }

    #[tokio::test]
    async fn what_is_written_makes_room_again() {
        let mut outbox = outbox();
        outbox.tell("x".repeat(100), None).unwrap();
        outbox.answer("x".repeat(100), None);
        assert!(!outbox.is_idle());
        poll_fn(|cx| outbox.poll_flush(cx)).await.unwrap();
        assert!(outbox.is_idle() && outbox.has_room() && outbox.stuck_since().is_none());
        assert_eq!((outbox.bytes, outbox.told), (0, Load::default()));
    }

    /// Takes nothing, as one who does not read.
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
    async fn what_cannot_be_written_is_stuck_from_the_first_try_on_and_counted_until_it_is_forgotten()
     {
        let all = metrics::gauge("waiting", "In a test.");
        let mut outbox = Outbox::new(Shut, 3, 100, all.clone());
        outbox.tell("a".to_owned(), None).unwrap();
        assert_eq!((outbox.stuck_since(), all.get()), (None, 0));
        assert!(
            poll_fn(|cx| Poll::Ready(outbox.poll_flush(cx)))
                .await
                .is_pending()
        );
        let since = outbox.stuck_since();
        assert!(since.is_some());
        outbox.tell("b".to_owned(), None).unwrap();
        assert!(
            poll_fn(|cx| Poll::Ready(outbox.poll_flush(cx)))
                .await
                .is_pending()
        );
        assert_eq!((outbox.stuck_since(), all.get()), (since, 2));
        drop(outbox);
        assert_eq!(all.get(), 0);
    }
}
