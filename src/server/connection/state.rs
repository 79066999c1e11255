//! State of one connection, shared by the transport below HTTP and the requests above it.
//!
//! The state decides whether the connection can be evicted: not during a request, nor while an answer waits for the
//! network.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Body as AxumBody;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::sync::Notify;

use super::permits::{Evicted, Permit};
use crate::server::admission::Peer;

/// The connection waits for the first byte of a head.
const IDLE: u8 = 0;
/// A head has begun.
const HEAD: u8 = 1;
/// A request runs, until its answer is written.
const REQUEST: u8 = 2;
/// The connection is a WebSocket.
const UPGRADED: u8 = 3;
/// The connection closes once its client stops writing.
const CLOSING: u8 = 4;

/// Bytes of the head of a control frame: a client masks its frames, and a control frame has no extended length.
const CONTROL_HEAD_BYTES: usize = 6;

/// One task reads and writes the fields, except the budget, which the task of the WebSocket refills. Relaxed atomics
/// therefore suffice.
pub(crate) struct ConnectionState {
    peer: Peer,
    permit: Permit,
    phase: AtomicU8,
    /// The last request's body was not read to its end: the client may still be writing.
    has_unread: AtomicBool,
    /// The body of the running request is complete: further bytes begin the next head.
    is_body_over: AtomicBool,
    has_next_head: AtomicBool,
    /// An answer waits for the network.
    is_stalled: AtomicBool,
    /// Bytes that a WebSocket may still send before its admission, and then before the end of its message, in however
    /// many fragments.
    budget: AtomicUsize,
    /// Budget of one message. 0 before the admission.
    message_budget: AtomicUsize,
    /// A WebSocket has sent bytes since the last look: any of them show that it is alive.
    is_heard: AtomicBool,
}

impl ConnectionState {
    pub(crate) fn new(peer: Peer, permit: Permit) -> Arc<Self> {
        Arc::new(Self {
            peer,
            permit,
            phase: AtomicU8::new(IDLE),
            has_unread: AtomicBool::new(false),
            is_body_over: AtomicBool::new(false),
            has_next_head: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            budget: AtomicUsize::new(usize::MAX),
            message_budget: AtomicUsize::new(0),
            is_heard: AtomicBool::new(false),
        })
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// Notified when the connection is evicted for another.
    pub(crate) fn eviction(&self) -> Arc<Notify> {
        self.permit.eviction()
    }

    /// Releases the permit: the connection has ended, or became a WebSocket, which has a permit of its own.
    pub(crate) fn release(&self) {
        self.permit.release();
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Relaxed)
    }

    fn set(&self, phase: u8) {
        self.phase.store(phase, Ordering::Relaxed);
    }

    pub(crate) fn is_in_head(&self) -> bool {
        self.phase() == HEAD
    }

    /// Records received bytes. Returns whether a head began with them.
    pub(crate) fn received(&self, count: usize) -> bool {
        match self.phase() {
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
        self.is_heard.store(true, Ordering::Relaxed);
        self.change_budget(|left| left.saturating_sub(count));
    }

    fn change_budget(&self, change: impl Fn(usize) -> usize) {
        let changed = |left| Some(change(left));
        let relaxed = Ordering::Relaxed;
        let _ = self.budget.fetch_update(relaxed, relaxed, changed);
    }

    pub(crate) fn is_over_budget(&self) -> bool {
        self.budget.load(Ordering::Relaxed) == 0
    }

    /// Turns the connection into a WebSocket with a byte budget until its admission.
    pub(crate) fn upgrade(&self, budget: usize) {
        self.budget.store(budget, Ordering::Relaxed);
        self.set(UPGRADED);
    }

    /// Sets the byte budget of each message, in place of the one until the admission.
    pub(crate) fn admit(&self, message_budget: usize) {
        self.message_budget.store(message_budget, Ordering::Relaxed);
        self.budget.store(message_budget, Ordering::Relaxed);
    }

    fn message_budget(&self) -> usize {
        self.message_budget.load(Ordering::Relaxed)
    }

    /// Refills the budget of an admitted WebSocket after a complete message.
    pub(crate) fn end_message(&self) {
        self.change_budget(|left| left.max(self.message_budget()));
    }

    /// Gives back the bytes of a control frame, which may stand between two fragments.
    pub(crate) fn end_control_frame(&self, payload_bytes: usize) {
        let frame = CONTROL_HEAD_BYTES + payload_bytes;
        self.change_budget(|left| left.max(self.message_budget().min(left.saturating_add(frame))));
    }

    /// Whether a message of an admitted WebSocket has begun and has not ended.
    pub(crate) fn is_in_message(&self) -> bool {
        self.budget.load(Ordering::Relaxed) < self.message_budget()
    }

    /// Whether a WebSocket has sent bytes since the last call.
    pub(crate) fn take_heard(&self) -> bool {
        self.is_heard.swap(false, Ordering::Relaxed)
    }

    /// Records whether a write waits for the network.
    pub(crate) fn set_stalled(&self, is_stalled: bool) {
        if self.is_stalled.swap(is_stalled, Ordering::Relaxed) == is_stalled
            || !matches!(self.phase(), IDLE | HEAD)
        {
            return;
        }
        if is_stalled {
            // An evicted connection ends in any case.
            let _ = self.permit.set_busy();
        } else {
            self.permit.set_idle();
        }
    }

    /// Begins a request. Fails if the connection was evicted: its client could not receive the answer.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<ActiveRequest, Evicted> {
        self.permit.set_busy()?;
        for flag in [&self.has_unread, &self.is_body_over, &self.has_next_head] {
            flag.store(false, Ordering::Relaxed);
        }
        self.set(REQUEST);
        Ok(ActiveRequest(Arc::clone(self)))
    }

    /// Begins to close the connection. Returns whether the client may still be writing: then the transport reads first.
    pub(crate) fn begin_close(&self) -> bool {
        let phase = self.phase();
        let must_linger =
            phase == HEAD || phase != UPGRADED && self.has_unread.load(Ordering::Relaxed);
        if must_linger {
            self.set(CLOSING);
            self.permit.set_idle();
        }
        must_linger
    }
}

/// Running request, until it is dropped with the body of its answer.
pub(crate) struct ActiveRequest(Arc<ConnectionState>);

impl ActiveRequest {
    /// Whether the answered request has an unread rest of its body.
    pub(crate) fn has_unread(&self) -> bool {
        self.0.has_unread.load(Ordering::Relaxed)
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let Self(state) = self;
        if state.phase() == REQUEST {
            state.set(if state.has_next_head.load(Ordering::Relaxed) {
                HEAD
            } else {
                IDLE
            });
            if !state.is_stalled.load(Ordering::Relaxed) {
                state.permit.set_idle();
            }
        }
    }
}

/// Body of a request, which records whether it was read to its end.
pub(crate) struct RequestBody {
    body: Incoming,
    state: Arc<ConnectionState>,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, state: Arc<ConnectionState>) -> Self {
        state
            .is_body_over
            .store(body.is_end_stream(), Ordering::Relaxed);
        Self { body, state }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.state.is_body_over.load(Ordering::Relaxed) {
            self.state.has_unread.store(true, Ordering::Relaxed);
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
            self.state.is_body_over.store(true, Ordering::Relaxed);
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

/// Body of an answer: its request runs until the body is written or dropped.
pub(crate) struct ResponseBody {
    body: AxumBody,
    _request: ActiveRequest,
}

impl ResponseBody {
    pub(crate) fn new(body: AxumBody, request: ActiveRequest) -> Self {
        Self {
            body,
            _request: request,
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
