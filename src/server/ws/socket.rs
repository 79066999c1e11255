//! Task of one WebSocket: one loop reads, executes, writes and checks deadlines, so that nothing outlives the socket.
//!
//! Each round checks the deadlines, takes the pending events of the sources in order, then flushes: events of one moment
//! leave with one write, and so do those of a replay that follow each other closely. While the send queue is over half
//! full the loop takes no event and reads no message (backpressure).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::ws::WebSocket;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::events::{EventSources, SocketEvent};
use super::linger;
use super::message_rate::MessageRate;
use super::protocol::{Close, Outgoing};
use super::send_queue::{Full, SendQueue};
use super::socket_permit::SocketPermit;
use super::timers::{Due, Timers};
use super::wake_gate::WakeGate;
use crate::graphql::OnlineGuard;
use crate::model::{UserId, Viewer};
use crate::server::admission::{ClientAddress, ConcurrencyPermit};
use crate::server::bounds::SocketBounds;
use crate::server::context::Server;
use crate::server::identification::TokenTimes;
use crate::server::trace_context::TraceContext;

pub(super) struct Socket {
    pub(super) server: Arc<Server>,
    web_socket: WebSocket,
    pub(super) sources: EventSources,
    pub(super) send_queue: SendQueue,
    pub(super) address: ClientAddress,
    pub(super) session: SocketSession,
    pub(super) timers: Timers,
    pub(super) permit: SocketPermit,
    /// Ready when the socket must make room for another. `None` once a viewer is known.
    pub(super) eviction: Option<BoxFuture<'static, ()>>,
    /// Signals after changes of suspensions and revocations. Polled without room in the send queue too.
    restrictions: BoxStream<'static, ()>,
    restrictions_gate: WakeGate,
}

/// State of the `connection_init` handshake.
pub(super) enum SocketSession {
    Waiting {
        /// `Authorization` of the handshake, for a client that shows no token in `connection_init`.
        authorization: Option<Box<str>>,
    },
    Open {
        viewer: Option<Viewer>,
        trace: Option<TraceContext>,
        token: TokenTimes,
        _user_permit: Option<ConcurrencyPermit<UserId>>,
        _here: Option<OnlineGuard>,
    },
}

/// Reason for the end of the loop.
pub(super) enum SocketEnd {
    Close(Close),
    /// The client closes the socket and waits for our closing frame.
    Closed,
    /// The client is gone, or takes no more bytes.
    Gone,
}

impl From<Close> for SocketEnd {
    fn from(close: Close) -> Self {
        Self::Close(close)
    }
}

impl From<Full> for SocketEnd {
    fn from(Full: Full) -> Self {
        Self::Close(Close::SLOW_CONSUMER)
    }
}

impl Socket {
    /// Boxed: a future reserves space for every location that a value moves through.
    pub(super) fn open(
        server: Arc<Server>,
        web_socket: WebSocket,
        address: ClientAddress,
        authorization: Option<Box<str>>,
        permit: SocketPermit,
    ) -> Box<Self> {
        let (bounds, now) = (&server.bounds.sockets, Instant::now());
        let rate = MessageRate::new(bounds.rate_per_second, bounds.rate_burst, now);
        let stop = server.stop.clone().cancelled_owned();
        let watch = server.executor.watch_restrictions();
        let restrictions = stream::unfold(watch, async |mut watch| {
            watch.changed().await;
            Some(((), watch))
        });
        Box::new(Self {
            web_socket,
            sources: EventSources::new(stop, rate),
            send_queue: SendQueue::new(
                bounds.queue_messages,
                bounds.queue_bytes,
                server.metrics.waiting.clone(),
            ),
            address,
            session: SocketSession::Waiting { authorization },
            timers: Timers::new(bounds, now),
            eviction: Some(permit.eviction()),
            restrictions: restrictions.boxed(),
            restrictions_gate: WakeGate::default(),
            permit,
            server,
        })
    }

    pub(super) async fn run(mut self: Box<Self>) {
        let mut alarm = pin!(sleep_until(Instant::now()));
        let end = poll_fn(|cx| self.poll_end(alarm.as_mut(), cx)).await;
        self.sources.operations.stop_all();
        // Boxed: otherwise the task of every socket would reserve space for this rare path.
        Box::pin(self.end(end)).await;
    }

    async fn end(mut self: Box<Self>, end: SocketEnd) {
        match end {
            SocketEnd::Gone => tracing::debug!("the client dropped a WebSocket"),
            SocketEnd::Closed => {
                tracing::debug!("the client closed a WebSocket");
                self.send_queue.clear();
                // The library has the answer ready. A client that does not wait for it loses nothing.
                let answer = SinkExt::close(&mut self.web_socket);
                let _ = timeout(self.server.bounds.sockets.write, answer).await;
            }
            SocketEnd::Close(close) => {
                tracing::debug!(code = close.code, "the server closes a WebSocket");
                self.server
                    .metrics
                    .closes
                    .with_label_values(&[close.code.to_string()])
                    .inc();
                if close.drops_queue() {
                    self.send_queue.clear();
                }
                let bounds = &self.server.bounds.sockets;
                let closing = self
                    .send_queue
                    .close(&mut self.web_socket, close, bounds.write);
                if closing.await {
                    self.sources.frames.lift_limit();
                    let read_on = poll_fn(|cx| {
                        while let SocketEvent::Stopping | SocketEvent::Received(Some(Ok(_)), _) =
                            ready!(self.sources.poll_next(&mut self.web_socket, cx))
                        {
                        }
                        Poll::Ready(())
                    });
                    linger(read_on, bounds).await;
                }
            }
        }
    }

    /// Longest time without progress of a write. With an unsent event the close code needs the other half of that time.
    fn write_patience(&self) -> Duration {
        self.bounds().write / if self.send_queue.has_events() { 2 } else { 1 }
    }

    pub(super) fn bounds(&self) -> &SocketBounds {
        &self.server.bounds.sockets
    }

    fn write_deadline(&self) -> Option<Instant> {
        self.send_queue
            .stuck_since()
            .map(|since| since + self.write_patience())
    }

    /// Runs rounds until the socket has to end.
    fn poll_end(&mut self, mut alarm: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<SocketEnd> {
        loop {
            match self.poll_round(cx) {
                Ok(Round::Again) => continue,
                Ok(Round::Done) => {}
                Err(end) => return Poll::Ready(end),
            }
            let wake = [
                self.timers.next(),
                self.write_deadline(),
                self.send_queue.held_until(),
            ];
            let wake = wake.into_iter().flatten().min();
            let Some(wake) = wake else {
                return Poll::Pending;
            };
            if alarm.deadline() != wake {
                alarm.as_mut().reset(wake);
            }
            ready!(alarm.as_mut().poll(cx));
        }
    }

    fn poll_round(&mut self, cx: &mut Context<'_>) -> Result<Round, SocketEnd> {
        self.check_deadlines(Instant::now())?;
        if let Some(eviction) = &mut self.eviction
            && eviction.poll_unpin(cx).is_ready()
        {
            return Err(Close::EVICTED.into());
        }
        while self.poll_restrictions(cx).is_ready() {
            self.check_restrictions()?;
        }
        // Backpressure: a subscription of a slow reader waits, and reads from the store what the bus dropped meanwhile.
        let mut has_room = self.send_queue.has_room();
        while has_room {
            let polled = self.sources.poll_next(&mut self.web_socket, cx);
            self.check_budget()?;
            let Poll::Ready(event) = polled else {
                break;
            };
            self.handle(event)?;
            has_room = self.send_queue.has_room();
        }
        // A client is not to blame for a message that the socket does not read.
        let is_awaited = has_room && self.permit.is_in_message();
        self.timers
            .await_message(is_awaited, self.server.bounds.request, Instant::now());
        if self.timers.is_draining() && !self.sources.operations.has_requests() {
            return Err(Close::DRAINING.into());
        }
        if self.send_queue.is_idle() || self.send_queue.is_held() {
            return Ok(Round::Done);
        }
        let is_written = self
            .send_queue
            .poll_flush(&mut self.web_socket, cx)
            .map_err(|_| SocketEnd::Gone)?
            .is_ready();
        // Without room this round polled no source.
        let is_again = !has_room && (is_written || self.send_queue.has_room());
        Ok(if is_again { Round::Again } else { Round::Done })
    }

    fn poll_restrictions(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let restrictions = &mut self.restrictions;
        self.restrictions_gate
            .poll(cx, |cx| restrictions.poll_next_unpin(cx).map(drop))
    }

    fn handle(&mut self, event: SocketEvent) -> Result<(), SocketEnd> {
        match event {
            SocketEvent::Delivered {
                text,
                has_more: true,
            } => Ok(self.send_queue.push_replayed(text, Instant::now())?),
            SocketEvent::Delivered {
                text,
                has_more: false,
            } => Ok(self.send_queue.push(text)?),
            SocketEvent::Received(frame, over_for) => self.read(frame, over_for),
            SocketEvent::Answered(operation, result) => {
                self.answer(operation, result);
                Ok(())
            }
            SocketEvent::Refused(mut operation, answer) => {
                operation.line.end(answer.code());
                self.send(&Outgoing::Error {
                    id: &operation.id,
                    payload: &answer.errors,
                })
            }
            SocketEvent::Completed(mut operation) => {
                operation.line.end("OK");
                self.send(&Outgoing::Complete { id: &operation.id })
            }
            SocketEvent::Stopping => {
                // No `complete`: the client would take the subscription for complete, and not resume it.
                self.sources.operations.stop_subscriptions();
                self.timers
                    .drain(Instant::now() + self.server.bounds.drain / 2);
                Ok(())
            }
        }
    }

    /// Closes a socket whose bytes exceed their budget. Only this task reads, so that no signal is needed.
    fn check_budget(&self) -> Result<(), SocketEnd> {
        if !self.permit.is_over_budget() {
            return Ok(());
        }
        let bounds = self.bounds();
        Err(match self.session {
            SocketSession::Waiting { .. } => Close::too_much_before_init(bounds.init_bytes),
            SocketSession::Open { .. } => Close::too_big(bounds.message_bytes),
        }
        .into())
    }

    fn check_deadlines(&mut self, now: Instant) -> Result<(), SocketEnd> {
        if self.timers.awaits_pong() && self.permit.take_heard() {
            self.timers.received();
        }
        if self.write_deadline().is_some_and(|by| by <= now) {
            return Err(if self.send_queue.has_events() {
                Close::SLOW_CONSUMER.into()
            } else {
                SocketEnd::Gone
            });
        }
        match self
            .timers
            .due(&self.server.bounds.sockets, self.server.clock.as_ref(), now)
        {
            Due::Nothing => Ok(()),
            Due::Ping => {
                self.permit.take_heard();
                Ok(self.send_queue.push_ping()?)
            }
            Due::Close(close) => Err(close.into()),
        }
    }

    pub(super) fn send(&mut self, message: &Outgoing<'_>) -> Result<(), SocketEnd> {
        Ok(self.send_queue.push(message.json())?)
    }
}

enum Round {
    /// The send queue has room again.
    Again,
    /// Every source and the network wait.
    Done,
}
