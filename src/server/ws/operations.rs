//! What one socket has running: queries, mutations and subscriptions, by their ids.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::source::{Id, Operation, Source, Sources};
use crate::server::answer::Executed;
use crate::server::operation::{Deliveries, LogLine};

#[derive(Default)]
pub(super) struct Operations(HashMap<Id, Running>);

struct Running {
    line: Box<LogLine>,
    is_request: bool,
}

impl Operations {
    /// Whether there may be no more. Those that were stopped are there until the socket's task next looks at its sources, which it does not
    /// where nothing is read of what it says: of these there may be as many again.
    pub(super) fn are_full(&self, sources: &Sources, most: usize) -> bool {
        self.0.len() >= most || sources.len() >= most * 2 + Source::FIXED
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    pub(super) fn has_requests(&self) -> bool {
        self.0.values().any(|running| running.is_request)
    }

    pub(super) fn request(
        &mut self,
        sources: &mut Sources,
        id: &str,
        line: LogLine,
        answer: BoxFuture<'static, Executed>,
    ) {
        let id = self.start(id, line, true);
        sources.push(Source::Operation(Operation::request(id, answer)));
    }

    pub(super) fn subscription(
        &mut self,
        sources: &mut Sources,
        id: &str,
        line: LogLine,
        deliveries: Deliveries,
    ) {
        let id = self.start(id, line, false);
        sources.push(Source::Operation(Operation::subscription(id, deliveries)));
    }

    fn start(&mut self, id: &str, line: LogLine, is_request: bool) -> Id {
        let id = Id::from(id);
        self.0.insert(
            Arc::clone(&id),
            Running {
                line: Box::new(line),
                is_request,
            },
        );
        id
    }

    /// It has ended.
    pub(super) fn ended(&mut self, id: &str, code: &str) {
        if let Some(mut running) = self.0.remove(id) {
            running.line.end(code);
        }
    }

    /// Ends it: nothing more is heard of it.
    pub(super) fn stop(&mut self, sources: &mut Sources, id: &str) {
        if self.contains(id) {
            drop_work(sources, id);
            self.ended(id, "OK");
        }
    }

    pub(super) fn stop_subscriptions(&mut self, sources: &mut Sources) {
        self.0.retain(|id, running| {
            if !running.is_request {
                drop_work(sources, id);
                running.line.end("OK");
            }
            running.is_request
        });
    }

    /// Nobody is there to be told any more.
    pub(super) fn stop_all(&mut self, sources: &mut Sources) {
        self.stop_subscriptions(sources);
        for (id, mut running) in self.0.drain() {
            drop_work(sources, &id);
            running.line.end("GONE");
        }
    }
}

fn drop_work(sources: &mut Sources, id: &str) {
    for source in sources.iter_mut() {
        if let Source::Operation(operation) = source {
            operation.stop(id);
        }
    }
}
