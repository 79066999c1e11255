//! Events of one socket: from its frames, from its operations, and from the shutdown of the server.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::message_rate::MessageRate;
use super::operations::{EndedOperation, Operations};
use super::wake_gate::WakeGate;
use crate::server::answer::{Answer, ExecutionResult};

/// Event that the loop of a socket handles.
pub(super) enum SocketEvent {
    Stopping,
    /// Frame of the client, `None` at the end, and for how long the client has exceeded its rate.
    Received(Option<Result<Message, axum::Error>>, Duration),
    /// Answer of a query or a mutation.
    Answered(EndedOperation, ExecutionResult),
    Delivered {
        /// `next` message of a subscription.
        text: String,
        /// Whether the next event of a replay is at hand.
        has_more: bool,
    },
    /// Error that ends a subscription.
    Refused(EndedOperation, Answer),
    /// End of a subscription.
    Completed(EndedOperation),
}

/// Sources of events. Only one that was woken is polled, and each gets its turn.
pub(super) struct EventSources {
    shutdown: Shutdown,
    pub(super) frames: Frames,
    pub(super) operations: Operations,
    /// Source that is polled first.
    turn: usize,
}

/// Number of sources that are no operations.
const FIXED: usize = 2;
/// Largest message whose buffer is used again.
const BUFFER_KEPT_BYTES: usize = 256;

impl EventSources {
    pub(super) fn new(stop: WaitForCancellationFutureOwned, rate: MessageRate) -> Self {
        Self {
            shutdown: Shutdown {
                stop: Some(Box::pin(stop)),
                gate: WakeGate::default(),
            },
            frames: Frames::new(rate),
            operations: Operations::default(),
            turn: 0,
        }
    }

    pub(super) fn poll_next(
        &mut self,
        web_socket: &mut WebSocket,
        cx: &mut Context<'_>,
    ) -> Poll<SocketEvent> {
        let sources = FIXED + self.operations.len();
        let first = self.turn % sources;
        for source in (first..sources).chain(0..first) {
            let polled = match source {
                0 => self.shutdown.poll(cx),
                1 => self.frames.poll(web_socket, cx),
                operation => self.operations.poll(operation - FIXED, cx),
            };
            if polled.is_ready() {
                self.turn = source + 1;
                return polled;
            }
        }
        Poll::Pending
    }
}

/// Shutdown of the server.
struct Shutdown {
    /// `None` once it was reported.
    stop: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    gate: WakeGate,
}

impl Shutdown {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<SocketEvent> {
        let Some(stop) = &mut self.stop else {
            return Poll::Pending;
        };
        ready!(self.gate.poll(cx, |cx| stop.poll_unpin(cx)));
        self.stop = None;
        Poll::Ready(SocketEvent::Stopping)
    }
}

/// Frames of the client, read no faster than the message rate.
pub(super) struct Frames {
    /// `None` once the limit is lifted.
    rate: Option<MessageRate>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Last message, if it was large.
    last: Option<Utf8Bytes>,
    is_over: bool,
    gate: WakeGate,
}

impl Frames {
    fn new(rate: MessageRate) -> Self {
        Self {
            rate: Some(rate),
            pause: None,
            last: None,
            is_over: false,
            gate: WakeGate::default(),
        }
    }

    /// Sets the rate of a socket whose viewer is known.
    pub(super) fn set_rate(&mut self, rate: MessageRate) {
        self.rate = Some(rate);
    }

    /// Lifts the rate limit: the socket closes and answers no more messages.
    pub(super) fn lift_limit(&mut self) {
        self.rate = None;
    }

    fn poll(&mut self, web_socket: &mut WebSocket, cx: &mut Context<'_>) -> Poll<SocketEvent> {
        if self.is_over {
            return Poll::Pending;
        }
        let Self {
            rate,
            pause,
            last,
            gate,
            ..
        } = self;
        let frame = ready!(gate.poll(cx, |cx| {
            if let Some(read_at) = rate.as_mut().and_then(|rate| rate.ready_at(Instant::now())) {
                let pause = pause.get_or_insert_with(|| Box::pin(sleep_until(read_at)));
                ready!(pause.poll_unpin(cx));
            }
            *pause = None;
            let frame = web_socket.poll_next_unpin(cx);
            *last = None;
            frame
        }));
        self.is_over = frame.is_none();
        // The library reads on in the buffer of a message that was dropped, and in a new one while it is held. An idle
        // socket thus keeps no buffer of the size of its `subscribe`.
        if let Some(Ok(Message::Text(text))) = &frame
            && text.len() > BUFFER_KEPT_BYTES
        {
            self.last = Some(text.clone());
        }
        let mut over_for = Duration::ZERO;
        if let Some(rate) = &mut self.rate {
            let now = Instant::now();
            rate.take(now);
            over_for = rate.over_for(now);
        }
        Poll::Ready(SocketEvent::Received(frame, over_for))
    }
}
