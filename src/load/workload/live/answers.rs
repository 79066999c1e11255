//! Requests of the workload `live`: writes to live messages, and the messages that end them.

use hyper::body::Bytes;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::load::client::{BodyStamp, Document, HttpClient};
use crate::load::driver::fixture::{ConversationFixture, micros_between};
use crate::load::driver::requests::RequestWorker;
use crate::load::run::LoadRun;

/// Fields that an agent selects.
const WRITE: &str = "mutation($c: ID!, $k: String!, $w: String!, $p: Int!, $t: String!) {
    writeLiveMessage(input: { conversationId: $c, key: $k, writer: $w, position: $p, text: $t }) {
    nextPosition liveMessage { stopRequestedBy { username } } } }";
const END: &str = "mutation($c: ID!, $k: String!) {
    sendMessage(input: { conversationId: $c, body: \"The answer.\", idempotencyKey: $k }) { messageEdge { node { id } } } }";

/// Live messages of one turn, one in each conversation. The last participant of a conversation is the service that writes.
#[derive(Clone, Copy)]
pub(super) struct Answers<'a> {
    pub(super) conversations: &'a [ConversationFixture],
    pub(super) turn: u32,
    /// Size of the text of each write.
    pub(super) bytes: u64,
    /// Stamps in texts count from here.
    pub(super) start: Instant,
}

impl Answers<'_> {
    /// A worker for each live message. Request number 0 of a worker is the write with this number.
    pub(super) fn writers(self, run: &LoadRun<'_>, first: u64) -> Vec<RequestWorker> {
        let each = self.conversations.iter();
        each.map(|conversation| self.writer(run, conversation, first))
            .collect()
    }

    fn writer(
        self,
        run: &LoadRun<'_>,
        conversation: &ConversationFixture,
        first: u64,
    ) -> RequestWorker {
        let Self { bytes, start, .. } = self;
        let (id, key) = (conversation.id.clone(), self.key());
        let (document, writer) = (Document::new(WRITE), format!("bench-{}", run.id()));
        // A write that is repeated has the same text.
        let last = Mutex::new((u64::MAX, String::new()));
        let request = move |number: u64, due: Instant| {
            let number = first + number;
            let mut last = last.lock();
            if last.0 != number {
                let stamp = BodyStamp {
                    number,
                    sent_micros: micros_between(start, due),
                };
                *last = (number, stamp.body(bytes as usize));
            }
            let position = number * bytes;
            document
                .request_body(&json!({"c": id, "k": key, "w": writer, "p": position, "t": last.1}))
        };
        service_worker(run, conversation, request)
    }

    /// A worker for each live message, whose request ends it with a message.
    pub(super) fn enders(self, run: &LoadRun<'_>) -> Vec<RequestWorker> {
        let document = Document::new(END);
        let ender = |conversation: &ConversationFixture| {
            let variables = json!({"c": conversation.id, "k": self.key()});
            let request = document.request_body(&variables);
            service_worker(run, conversation, move |_, _| request.clone())
        };
        self.conversations.iter().map(ender).collect()
    }

    fn key(self) -> String {
        format!("answer-{}", self.turn)
    }
}

fn service_worker(
    run: &LoadRun<'_>,
    conversation: &ConversationFixture,
    request: impl Fn(u64, Instant) -> Bytes + Send + 'static,
) -> RequestWorker {
    RequestWorker {
        client: HttpClient::of_service(&run.target, &conversation.usernames[1]),
        request: Box::new(request),
    }
}
