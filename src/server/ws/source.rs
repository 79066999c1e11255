//! Where one socket's news come from: its frames, the end of the server, its operations. Each is looked at only when it has something.

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

use super::protocol;
use super::rate::Bucket;
use crate::graphql::HeldBytes;
use crate::server::answer::{Answer, Delivery, Executed};
use crate::server::operation::Deliveries;

/// By what a client knows an operation.
pub(super) type Id = Arc<str>;

pub(super) type Sources = SelectAll<Source>;

pub(super) enum Source {
    Frames(Frames),
    /// Until it was told.
    Stop(Option<Pin<Box<WaitForCancellationFutureOwned>>>),
    Operation(Operation),
}

impl Source {
    /// Those that are no operations.
    pub(super) const FIXED: usize = 2;
}

/// What there is to do.
pub(super) enum News {
    Stopping,
    /// What came in, `None` at the end, and for how long it has come too fast.
    Read(Option<Result<Message, axum::Error>>, Duration),
    /// A query or a mutation has its one answer.
    Answered(Id, Executed),
    /// The message that tells a client what a subscription tells. Its bytes count until they were written.
    Told(String, Option<HeldBytes>),
    /// The subscription cannot go on.
    Refused(Id, Answer),
    /// The subscription is over.
    Over(Id),
}

impl Stream for Source {
    type Item = News;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<News>> {
        match self.get_mut() {
            Self::Frames(frames) => frames.poll(cx),
            Self::Operation(operation) => operation.poll(cx),
            Self::Stop(stop) => {
                let Some(cancelled) = stop else {
                    return Poll::Ready(None);
                };
                ready!(cancelled.poll_unpin(cx));
                *stop = None;
                Poll::Ready(Some(News::Stopping))
            }
        }
    }
}

/// What comes in, as fast as its rate allows.
pub(super) struct Frames {
    stream: SplitStream<WebSocket>,
    /// `None`: nobody counts any more.
    bucket: Option<Bucket>,
    pause: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl Frames {
    pub(super) fn new(stream: SplitStream<WebSocket>, bucket: Bucket) -> Self {
        Self {
            stream,
            bucket: Some(bucket),
            pause: None,
            is_over: false,
        }
    }

    /// What comes from now on is not answered.
    pub(super) fn let_all_come(&mut self) {
        self.bucket = None;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<News>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if let Some(read_at) = self
            .bucket
            .as_mut()
            .and_then(|bucket| bucket.ready_at(Instant::now()))
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
        if let Some(bucket) = &mut self.bucket {
            let now = Instant::now();
            bucket.take(now);
            over_for = bucket.over_for(now);
        }
        Poll::Ready(Some(News::Read(frame, over_for)))
    }
}

/// Something that a client asked for.
pub(super) struct Operation {
    id: Id,
    /// `None`: it was stopped, or is over.
    work: Option<Work>,
    /// By which it is looked at once more, to go, after it was stopped.
    waker: Option<Waker>,
}

enum Work {
    Request(BoxFuture<'static, Executed>),
    Subscription {
        deliveries: Deliveries,
        /// What stands before each payload.
        head: Box<str>,
    },
}

impl Operation {
    pub(super) fn request(id: Id, answer: BoxFuture<'static, Executed>) -> Self {
        Self {
            id,
            work: Some(Work::Request(answer)),
            waker: None,
        }
    }

    pub(super) fn subscription(id: Id, deliveries: Deliveries) -> Self {
        let head = protocol::next_head(&id);
        Self {
            id,
            work: Some(Work::Subscription { deliveries, head }),
            waker: None,
        }
    }

    /// Drops what it does, at once, where it is this one.
    pub(super) fn stop(&mut self, id: &str) {
        if *self.id == *id {
            self.work = None;
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<News>> {
        let news =
            match &mut self.work {
                None => return Poll::Ready(None),
                Some(Work::Request(answer)) => answer
                    .poll_unpin(cx)
                    .map(|answer| News::Answered(Arc::clone(&self.id), answer)),
                Some(Work::Subscription { deliveries, head }) => deliveries
                    .poll_next_unpin(cx)
                    .map(|delivery| match delivery {
                        None => News::Over(Arc::clone(&self.id)),
                        Some(Delivery::Refused(answer)) => {
                            News::Refused(Arc::clone(&self.id), answer)
                        }
                        Some(Delivery::Event(text, held)) => {
                            News::Told(protocol::next(head, text.as_str()), held)
                        }
                    }),
            };
        match &news {
            Poll::Ready(News::Told(..)) => {}
            Poll::Ready(_) => self.work = None,
            Poll::Pending
                if self
                    .waker
                    .as_ref()
                    .is_some_and(|waker| waker.will_wake(cx.waker())) => {}
            Poll::Pending => self.waker = Some(cx.waker().clone()),
        }
        news.map(Some)
    }
}
