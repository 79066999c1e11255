//! Viewers of the workload `live`: sockets that receive the texts of live messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::load::client::{BodyStamp, Document, HttpClient, LoadSocket};
use crate::load::driver::fixture::ConversationFixture;
use crate::load::driver::subscribers::{open_sockets, wait_for_count};
use crate::load::failure::{Error, Failure};
use crate::load::measurement::{OperationStats, StatsRecorder};
use crate::load::report::grouped;
use crate::load::run::LoadRun;

/// Fields that a client selects, but for the sender.
const VIEW: &str = "subscription($c: ID!) { liveMessages(conversationId: $c) { cursor isWhole text liveMessage { id state } } }";
const TEXTS: &str = "query($c: ID!) { conversation(id: $c) { liveMessages { body } } }";

/// Open viewers. The first viewer has the first conversation, and so on, over and over.
pub(super) struct Viewers {
    count: u64,
    received: Arc<ReceivedTexts>,
    /// Bytes that all viewers together must receive.
    expected: u64,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct ReceivedTexts {
    recorder: StatsRecorder,
    /// Number of viewers that have received the first payload, which has no text.
    ready: AtomicU64,
    bytes: AtomicU64,
}

impl Viewers {
    /// Opens the viewers, and waits until each of them receives what is written from then on. Stamps in texts count from `start`.
    pub(super) async fn open(
        run: &mut LoadRun<'_>,
        conversations: &[ConversationFixture],
        count: u64,
        start: Instant,
    ) -> Result<Self, Error> {
        let (received, mut tasks) = (Arc::new(ReceivedTexts::default()), JoinSet::new());
        let users = conversations.iter().map(|group| group.usernames[0].clone());
        let users: Vec<_> = users.collect();
        let keep = |number: usize, socket| {
            let conversation = &conversations[number % conversations.len()];
            let variables = json!({"c": conversation.id});
            let received = Arc::clone(&received);
            tasks.spawn(receive(socket, (number, variables), start, received));
        };
        let unused = StatsRecorder::default();
        open_sockets(run, count, &users, None, &unused, keep).await?;
        let ready = || received.ready.load(Ordering::Relaxed);
        wait_for_count(run, "ready viewers", count, ready, ready).await;
        if run.stop.is_cancelled() {
            return Err(Error::Interrupted);
        }
        if ready() < count {
            return Err(Error::Incorrect(format!(
                "only {} of {} viewers received the first payload",
                grouped(ready()),
                grouped(count)
            )));
        }
        Ok(Self {
            count,
            received,
            expected: 0,
            _tasks: tasks,
        })
    }

    /// Waits until the viewers have received all that the server has of the live messages.
    pub(super) async fn catch_up(
        &mut self,
        run: &mut LoadRun<'_>,
        conversations: &[ConversationFixture],
    ) -> Result<(), Error> {
        let (document, all) = (Document::new(TEXTS), conversations.len() as u64);
        for (number, conversation) in (0..self.count.min(all)).zip(conversations) {
            let mut client = HttpClient::new(&run.target, &conversation.usernames[0]);
            let request = document.request_body(&json!({"c": conversation.id}));
            let data = run.unless_cancelled(client.query(request)).await?;
            let lives = data["conversation"]["liveMessages"].as_array();
            let bodies = lives.into_iter().flatten().map(|live| &live["body"]);
            let bytes: usize = bodies.filter_map(Value::as_str).map(str::len).sum();
            let viewers = (self.count - number).div_ceil(all);
            self.expected += viewers * bytes as u64;
        }
        let received = || self.received.bytes.load(Ordering::Relaxed);
        wait_for_count(run, "delivered bytes", self.expected, received, received).await;
        Ok(())
    }

    /// Payloads with text, timed from the scheduled write of the first text in them.
    pub(super) fn payloads(&self) -> OperationStats {
        self.received.recorder.snapshot()
    }

    /// A sentence if the viewers lack text, or have received some twice.
    pub(super) fn fault(&self) -> Option<String> {
        let received = self.received.bytes.load(Ordering::Relaxed);
        (received != self.expected).then(|| {
            format!(
                "viewers received {} bytes of text and {} were expected",
                grouped(received),
                grouped(self.expected)
            )
        })
    }
}

async fn receive(
    mut socket: LoadSocket,
    (number, variables): (usize, Value),
    start: Instant,
    received: Arc<ReceivedTexts>,
) {
    let document = Document::new(VIEW);
    let subscribed = socket.subscribe(number, &document, &variables);
    let mut failure: Option<Failure> = subscribed.await.err();
    let mut is_ready = false;
    while failure.is_none() {
        match socket.next_payload().await {
            Ok(payload) => {
                if !std::mem::replace(&mut is_ready, true) {
                    received.ready.fetch_add(1, Ordering::Relaxed);
                }
                if let Some((stamp, bytes)) = BodyStamp::find_in_text(&payload) {
                    let sent = Duration::from_micros(stamp.sent_micros);
                    let time = start.elapsed().saturating_sub(sent);
                    received.recorder.record(time);
                    received.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                }
            }
            Err(error) => failure = Some(error),
        }
    }
    if let Some(failure) = failure {
        received.recorder.record_failure(&failure);
    }
}
