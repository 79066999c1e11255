//! The phase of a connection, shared by the bytes below HTTP and the requests above it: idle, in a head, in a request, or a WebSocket.
//!
//! It decides whether the connection may be evicted: while a request is under way, or its answer waits for the network, it may not.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body as AxumBody;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::Notify;

use super::permits::{Evicted, Permit};
use crate::server::admission::Peer;

/// Waits for the first byte of a head.
const IDLE: u8 = 0;
/// A head has begun.
const HEAD: u8 = 1;
/// A request is under way, until its answer is written.
const REQUEST: u8 = 2;
/// It is a WebSocket.
const UPGRADED: u8 = 3;
/// It is closed as soon as its client stops writing.
const CLOSING: u8 = 4;

/// The budget of a WebSocket that was admitted.
const UNBOUNDED: usize = usize::MAX;

/// One task reads and writes it, but for the budget, which the task of the WebSocket lifts: so no order between its fields is needed.
pub(crate) struct ConnectionState {
    peer: Peer,
    permit: Permit,
    now: AtomicU8,
    /// The body of the last request was not read to its end: its client may still be writing.
    has_unread: AtomicBool,
    /// The body of the request under way has come: what comes now is the next head.
    is_body_over: AtomicBool,
    has_next_head: AtomicBool,
    /// An answer waits for the network.
    is_stalled: AtomicBool,
    /// Bytes that a WebSocket may still send before it is admitted.
    budget: AtomicUsize,
    /// Notified when the budget is used up.
    over_budget: Arc<Notify>,
}

impl ConnectionState {
    pub(crate) fn new(peer: Peer, permit: Permit) -> Arc<Self> {
        Arc::new(Self {
            peer,
            permit,
            now: AtomicU8::new(IDLE),
            has_unread: AtomicBool::new(false),
            is_body_over: AtomicBool::new(false),
            has_next_head: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            budget: AtomicUsize::new(UNBOUNDED),
            over_budget: Arc::default(),
        })
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Notified when this connection has to make room for another.
    pub(crate) fn eviction(&self) -> Arc<Notify> {
        self.permit.eviction()
    }

    /// Gives the permit back: the connection is over, or a WebSocket, which has a permit of its own.
    pub(crate) fn release(&self) {
        self.permit.release();
    }

    fn now(&self) -> u8 {
        self.now.load(Ordering::Relaxed)
    }

    fn set(&self, phase: u8) {
        self.now.store(phase, Ordering::Relaxed);
    }

    pub(crate) fn is_in_head(&self) -> bool {
        self.now() == HEAD
    }

    /// Takes note of bytes that came. True where a head began with them.
    pub(crate) fn received(&self, count: usize) -> bool {
        match self.now() {
            IDLE => {
                self.set(HEAD);
                true
            }
            UPGRADED => {
                self.spend(count);
                false
            }
            REQUEST if self.is_body_over.load(Ordering::Relaxed) => {
                !self.has_next_head.swap(true, Ordering::Relaxed)
            }
            _ => false,
        }
    }

    fn spend(&self, count: usize) {
        let left = self
            .budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                (left != UNBOUNDED).then(|| left.saturating_sub(count))
            });
        if left.is_ok_and(|left| left <= count) {
            self.over_budget.notify_one();
        }
    }

    pub(crate) fn is_over_budget(&self) -> bool {
        self.budget.load(Ordering::Relaxed) == 0
    }

    /// Notified when a WebSocket has used up its budget.
    pub(crate) fn over_budget(&self) -> Arc<Notify> {
        Arc::clone(&self.over_budget)
    }

    /// From now on it is a WebSocket, which may send so many bytes until it is admitted.
    pub(crate) fn upgrade(&self, budget: usize) {
        self.budget.store(budget, Ordering::Relaxed);
        self.set(UPGRADED);
    }

    /// The WebSocket is admitted, and what it sends is bounded by the message.
    pub(crate) fn admit(&self) {
        self.budget.store(UNBOUNDED, Ordering::Relaxed);
    }

    /// A write waits for the network, or does not any more.
    pub(crate) fn stalled(&self, is_stalled: bool) {
        if self.is_stalled.swap(is_stalled, Ordering::Relaxed) == is_stalled
            || !matches!(self.now(), IDLE | HEAD)
        {
            return;
        }
        if is_stalled {
            // An evicted connection ends, whatever the permit says here.
            let _ = self.permit.busy();
        } else {
            self.permit.idle();
        }
    }

    /// A request begins. Fails where the connection was evicted: nothing may be executed whose answer nobody would get.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<ActiveRequest, Evicted> {
        self.permit.busy()?;
        for flag in [&self.has_unread, &self.is_body_over, &self.has_next_head] {
            flag.store(false, Ordering::Relaxed);
        }
        self.set(REQUEST);
        Ok(ActiveRequest(Arc::clone(self)))
    }

    /// The connection is closed for writing. True where its client may still be writing: then what comes is to be read first.
    pub(crate) fn begin_close(&self) -> bool {
        let now = self.now();
        let must_linger = now == HEAD || now != UPGRADED && self.has_unread.load(Ordering::Relaxed);
        if must_linger {
            self.set(CLOSING);
            self.permit.idle();
        }
        must_linger
    }
}

/// A request that is under way until this is dropped with the body of its answer.
pub(crate) struct ActiveRequest(Arc<ConnectionState>);

impl ActiveRequest {
    /// The request was answered, and its body not read to its end.
    pub(crate) fn has_unread(&self) -> bool {
        self.0.has_unread.load(Ordering::Relaxed)
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let Self(phase) = self;
        if phase.now() == REQUEST {
            phase.set(if phase.has_next_head.load(Ordering::Relaxed) {
                HEAD
            } else {
                IDLE
            });
            if !phase.is_stalled.load(Ordering::Relaxed) {
                phase.permit.idle();
            }
        }
    }
}

/// The body of a request, which tells the connection whether it was read to its end.
pub(crate) struct RequestBody {
    body: Incoming,
    phase: Arc<ConnectionState>,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, phase: Arc<ConnectionState>) -> Self {
        phase
            .is_body_over
            .store(body.is_end_stream(), Ordering::Relaxed);
        Self { body, phase }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.phase.is_body_over.load(Ordering::Relaxed) {
            self.phase.has_unread.store(true, Ordering::Relaxed);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.phase.is_body_over.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer: its request is under way until it is written or dropped.
pub(crate) struct ResponseBody {
    body: AxumBody,
    _under_way: ActiveRequest,
}

impl ResponseBody {
    pub(crate) fn new(body: AxumBody, under_way: ActiveRequest) -> Self {
        Self {
            body,
            _under_way: under_way,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
