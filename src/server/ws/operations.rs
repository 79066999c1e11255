//! What one socket has running: queries, mutations and subscriptions, all of which wait while the socket is slow.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream::{self, AbortHandle, Abortable, BoxStream, SelectAll};
use futures_util::{FutureExt, Stream, StreamExt};

use super::protocol;
use crate::server::answer::{Answer, Delivery};
use crate::server::operation::LogLine;

type Id = Arc<str>;

#[derive(Default)]
pub(super) struct Operations {
    running: HashMap<Id, Running>,
    /// Each gives one answer.
    pub(super) requests: SelectAll<BoxStream<'static, (Id, Answer)>>,
    pub(super) subscriptions: SelectAll<BoxStream<'static, Told>>,
}

/// What a subscription tells.
pub(super) enum Told {
    /// The message that goes to the client.
    Next(String),
    /// It cannot go on.
    Refused(Id, Answer),
    Over(Id),
}

struct Running {
    abort: AbortHandle,
    line: Box<LogLine>,
    is_request: bool,
}

impl Operations {
    /// Whether there may be no more. Those that were stopped are there until the socket's task next looks at its streams, which it does not
    /// where nothing is read of what it says: of these there may be as many again.
    pub(super) fn are_full(&self, most: usize) -> bool {
        self.running.len() >= most || self.requests.len() + self.subscriptions.len() >= most * 2
    }

    pub(super) fn contains(&self, id: &str) -> bool {
        self.running.contains_key(id)
    }

    pub(super) fn has_requests(&self) -> bool {
        self.running.values().any(|running| running.is_request)
    }

    pub(super) fn request(&mut self, id: &str, line: LogLine, answer: impl Future<Output = Answer> + Send + 'static) {
        let (id, registration) = self.start(id, line, true);
        let answers = answer.map(move |answer| (id, answer)).into_stream();
        self.requests.push(Abortable::new(answers, registration).boxed());
    }

    pub(super) fn subscription(&mut self, id: &str, line: LogLine, deliveries: impl Stream<Item = Delivery> + Send + 'static) {
        let (id, registration) = self.start(id, line, false);
        // The same before each payload.
        let head = protocol::next_head(&id);
        let told = deliveries.map(Some).chain(stream::iter([None])).map(move |delivery| match delivery {
            None => Told::Over(Arc::clone(&id)),
            Some(Delivery::Own(answer)) if answer.is_refusal() => Told::Refused(Arc::clone(&id), answer),
            Some(delivery) => Told::Next(protocol::next(&head, &delivery.json())),
        });
        self.subscriptions.push(Abortable::new(told, registration).boxed());
    }

    fn start(&mut self, id: &str, line: LogLine, is_request: bool) -> (Id, stream::AbortRegistration) {
        let id = Id::from(id);
        let (abort, registration) = AbortHandle::new_pair();
        self.running.insert(Arc::clone(&id), Running { abort, line: Box::new(line), is_request });
        (id, registration)
    }

    /// Forgets it. Its stream gives nothing any more, and is dropped when the socket's task next looks at its streams, which this makes it do.
    pub(super) fn stop(&mut self, id: &str, code: &str) {
        if let Some(mut running) = self.running.remove(id) {
            running.abort.abort();
            running.line.end(code);
        }
    }

    /// Drops every subscription, at once.
    pub(super) fn stop_subscriptions(&mut self) {
        self.subscriptions.clear();
        self.running.retain(|_, running| {
            if !running.is_request {
                running.line.end("OK");
            }
            running.is_request
        });
    }

    /// Drops everything, at once.
    pub(super) fn stop_all(&mut self) {
        self.stop_subscriptions();
        self.requests.clear();
        for (_, mut running) in self.running.drain() {
            running.line.end("GONE");
        }
    }
}
