//! Crowds of WebSockets that subscribe to one conversation.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fixture::ConversationFixture;
use crate::load::client::{Document, LoadSocket};
use crate::load::failure::{Error, Failure};
use crate::load::measurement::StatsRecorder;
use crate::load::run::LoadRun;

const CONNECT_CONCURRENCY: usize = 64;
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// After this time without progress the wait for deliveries ends.
const STALL_MAX: Duration = Duration::from_secs(10);

/// Fields that a typical client selects.
const MESSAGES: &str = "subscription($c: ID!, $after: String) { messageAdded(conversationId: $c, after: $after) { messageEdge { cursor
    node { id uuid body createdAt sender { username displayName } replyTo { id } reactions { emoji count } } } } }";

/// Subscription to the messages of a conversation after a cursor.
pub(crate) struct MessageSubscription {
    document: Document,
    variables: serde_json::Value,
}

impl MessageSubscription {
    pub(crate) fn new(conversation: &ConversationFixture, after: &str) -> Self {
        Self {
            document: Document::new(MESSAGES),
            variables: json!({"c": conversation.id, "after": after}),
        }
    }

    pub(crate) async fn start(
        &self,
        socket: &mut LoadSocket,
        number: usize,
    ) -> Result<(), Failure> {
        socket
            .subscribe(number, &self.document, &self.variables)
            .await
    }
}

/// Opens and authenticates this many sockets of these users, and starts the subscription on each if there is one. Records how long each took.
/// `keep` receives each socket with its number, and must read it to answer the server's pings.
pub(crate) async fn open_sockets(
    run: &mut LoadRun<'_>,
    count: u64,
    usernames: &[String],
    subscription: Option<&MessageSubscription>,
    recorder: &StatsRecorder,
    mut keep: impl FnMut(usize, LoadSocket),
) -> Result<(), Error> {
    let target = Arc::clone(&run.target);
    let open_one = async |number: usize| {
        let started_at = Instant::now();
        let mut socket = LoadSocket::open(&target, &usernames[number % usernames.len()]).await?;
        if let Some(subscription) = subscription {
            subscription.start(&mut socket, number).await?;
            socket.ping().await?;
        }
        recorder.record(started_at.elapsed());
        Ok((number, socket))
    };
    let mut pending = std::pin::pin!(
        stream::iter(0..count as usize)
            .map(open_one)
            .buffer_unordered(CONNECT_CONCURRENCY)
    );
    let mut open = 0;
    while let Some((number, socket)) = run
        .unless_cancelled(async { pending.next().await.transpose() })
        .await?
    {
        keep(number, socket);
        open += 1;
        run.report_progress(
            "sockets",
            open,
            count,
            &format!("sockets open: {open} of {count}"),
        );
    }
    Ok(())
}

/// Waits until `done` reaches `total`, the run is cancelled, or `activity_count` has not increased for a while. The two counts may
/// differ: a socket is done after many deliveries.
pub(crate) async fn wait_for_count(
    run: &mut LoadRun<'_>,
    activity: &str,
    total: u64,
    done: impl Fn() -> u64,
    activity_count: impl Fn() -> u64,
) {
    let (mut last_count, mut last_change) = (0, Instant::now());
    while done() < total && last_change.elapsed() < STALL_MAX && !run.stop.is_cancelled() {
        let count = activity_count();
        if count > last_count {
            (last_count, last_change) = (count, Instant::now());
        }
        let now = done();
        run.report_progress(
            activity,
            now,
            total,
            &format!("{activity}: {now} of {total}"),
        );
        sleep(POLL_INTERVAL).await;
    }
}
