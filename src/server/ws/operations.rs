//! Running operations of one socket, by id: queries, mutations and subscriptions.

use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};
use smallvec::SmallVec;

use super::events::SocketEvent;
use super::protocol;
use super::wake_gate::WakeGate;
use crate::server::answer::{Delivery, ExecutionResult};
use crate::server::operation::{LogLine, SubscriptionDeliveries};

/// The operations that a client has started, in no order. Most sockets have one.
#[derive(Default)]
pub(super) struct Operations(SmallVec<[RunningOperation; 1]>);

struct RunningOperation {
    id: Box<str>,
    line: Box<LogLine>,
    work: OperationWork,
    gate: WakeGate,
}

pub(super) enum OperationWork {
    Request(BoxFuture<'static, ExecutionResult>),
    Subscription {
        deliveries: SubscriptionDeliveries,
        /// JSON before each payload.
        head: Box<str>,
    },
}

/// Operation that runs no more. Its log line is yet to end.
pub(super) struct EndedOperation {
    pub(super) id: Box<str>,
    pub(super) line: Box<LogLine>,
}

impl Operations {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.place(id).is_some()
    }

    pub(super) fn has_requests(&self) -> bool {
        self.0.iter().any(RunningOperation::is_request)
    }

    pub(super) fn start(&mut self, id: &str, line: LogLine, work: OperationWork) {
        self.0.push(RunningOperation {
            id: id.into(),
            line: Box::new(line),
            work,
            gate: WakeGate::default(),
        });
    }

    /// Polls the operation at a place below [`Operations::len`]. One that ends is no longer here.
    pub(super) fn poll(&mut self, place: usize, cx: &mut Context<'_>) -> Poll<SocketEvent> {
        let RunningOperation { work, gate, .. } = &mut self.0[place];
        Poll::Ready(match work {
            OperationWork::Request(answer) => {
                let result = ready!(gate.poll(cx, |cx| answer.poll_unpin(cx)));
                SocketEvent::Answered(self.remove(place), result)
            }
            OperationWork::Subscription { deliveries, head } => {
                match ready!(gate.poll(cx, |cx| deliveries.poll_next_unpin(cx))) {
                    Some(Delivery::Event { text, has_more }) => SocketEvent::Delivered {
                        text: protocol::next(head, text.as_str()),
                        has_more,
                    },
                    Some(Delivery::Refused(answer)) => {
                        SocketEvent::Refused(self.remove(place), answer)
                    }
                    None => SocketEvent::Completed(self.remove(place)),
                }
            }
        })
    }

    /// Stops an operation: the client receives no more messages of it.
    pub(super) fn stop(&mut self, id: &str) {
        if let Some(place) = self.place(id) {
            self.remove(place).line.end("OK");
        }
    }

    pub(super) fn stop_subscriptions(&mut self) {
        self.0.retain(|operation| {
            let is_request = operation.is_request();
            if !is_request {
                operation.line.end("OK");
            }
            is_request
        });
    }

    /// Stops every operation, because the client is gone.
    pub(super) fn stop_all(&mut self) {
        self.stop_subscriptions();
        for mut operation in self.0.drain(..) {
            operation.line.end("GONE");
        }
    }

    fn place(&self, id: &str) -> Option<usize> {
        self.0.iter().position(|operation| *operation.id == *id)
    }

    fn remove(&mut self, place: usize) -> EndedOperation {
        let RunningOperation { id, line, .. } = self.0.swap_remove(place);
        EndedOperation { id, line }
    }
}

impl RunningOperation {
    fn is_request(&self) -> bool {
        matches!(self.work, OperationWork::Request(_))
    }
}
