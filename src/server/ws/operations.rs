//! Running operations of one socket, by id: queries, mutations and subscriptions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::events::{EventSource, EventSources, OperationId, RunningOperation};
use crate::server::answer::ExecutionResult;
use crate::server::operation::{LogLine, SubscriptionDeliveries};

#[derive(Default)]
pub(super) struct Operations(HashMap<OperationId, OperationEntry>);

struct OperationEntry {
    line: Box<LogLine>,
    is_request: bool,
}

impl Operations {
    /// Whether the socket may start no more operations.
    ///
    /// A stopped operation stays in the sources until the task polls them, which it does not do while the client reads
    /// nothing. The second bound limits those.
    pub(super) fn are_full(&self, sources: &EventSources, max: usize) -> bool {
        self.0.len() >= max || sources.len() >= max * 2 + EventSource::FIXED
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    pub(super) fn has_requests(&self) -> bool {
        self.0.values().any(|running| running.is_request)
    }

    pub(super) fn request(
        &mut self,
        sources: &mut EventSources,
        id: &str,
        line: LogLine,
        answer: BoxFuture<'static, ExecutionResult>,
    ) {
        let id = self.start(id, line, true);
        sources.push(EventSource::RunningOperation(RunningOperation::request(
            id, answer,
        )));
    }

    pub(super) fn subscription(
        &mut self,
        sources: &mut EventSources,
        id: &str,
        line: LogLine,
        deliveries: SubscriptionDeliveries,
    ) {
        let id = self.start(id, line, false);
        sources.push(EventSource::RunningOperation(
            RunningOperation::subscription(id, deliveries),
        ));
    }

    fn start(&mut self, id: &str, line: LogLine, is_request: bool) -> OperationId {
        let id = OperationId::from(id);
        self.0.insert(
            Arc::clone(&id),
            OperationEntry {
                line: Box::new(line),
                is_request,
            },
        );
        id
    }

    /// Removes an operation that has ended, and writes its log line.
    pub(super) fn ended(&mut self, id: &str, code: &str) {
        if let Some(mut running) = self.0.remove(id) {
            running.line.end(code);
        }
    }

    /// The same, of a query or a mutation that waited so long for the store.
    pub(super) fn answered(&mut self, id: &str, code: &str, store_time: Duration) {
        if let Some(running) = self.0.get_mut(id) {
            running.line.store_time(store_time);
        }
        self.ended(id, code);
    }

    /// Stops an operation: the client receives no more messages of it.
    pub(super) fn stop(&mut self, sources: &mut EventSources, id: &str) {
        if self.contains(id) {
            drop_work(sources, id);
            self.ended(id, "OK");
        }
    }

    pub(super) fn stop_subscriptions(&mut self, sources: &mut EventSources) {
        self.0.retain(|id, running| {
            if !running.is_request {
                drop_work(sources, id);
                running.line.end("OK");
            }
            running.is_request
        });
    }

    /// Stops every operation, because the client is gone.
    pub(super) fn stop_all(&mut self, sources: &mut EventSources) {
        self.stop_subscriptions(sources);
        for (id, mut running) in self.0.drain() {
            drop_work(sources, &id);
            running.line.end("GONE");
        }
    }
}

fn drop_work(sources: &mut EventSources, id: &str) {
    for source in sources.iter_mut() {
        if let EventSource::RunningOperation(operation) = source {
            operation.stop(id);
        }
    }
}
