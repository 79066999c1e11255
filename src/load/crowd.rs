//! Many sockets that listen to one conversation.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::Run;
use super::document::Document;
use super::failure::{Error, Failure};
use super::socket::Socket;
use super::stage::Group;
use super::tally::Meter;

const CONNECT_AT_ONCE: usize = 64;
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Where nothing more comes for so long, nothing will.
const PATIENCE: Duration = Duration::from_secs(10);

/// As a client asks for what it shows.
const MESSAGES: &str = "subscription($c: ID!, $after: String) { messageAdded(conversationId: $c, after: $after) { messageEdge { cursor
    node { id uuid body createdAt sender { username displayName } replyTo { id } reactions { emoji count } } } } }";

/// A subscription to the messages of a group after a cursor.
pub(super) struct Subscription {
    document: Document,
    variables: serde_json::Value,
}

impl Subscription {
    pub(super) fn new(group: &Group, after: &str) -> Self {
        Self { document: Document::new(MESSAGES), variables: json!({"c": group.id, "after": after}) }
    }

    pub(super) async fn begin(&self, socket: &mut Socket, number: usize) -> Result<(), Failure> {
        socket.subscribe(number, &self.document, &self.variables).await
    }
}

/// So many sockets of these people, let in and, where it is given, with this subscription. Each goes with its number to who answers its pings
/// from then on, and how long each took is measured.
pub(super) async fn open(
    run: &mut Run<'_>,
    count: u64,
    people: &[String],
    subscription: Option<&Subscription>,
    meter: &Meter,
    mut hold: impl FnMut(usize, Socket),
) -> Result<(), Error> {
    let target = Arc::clone(&run.target);
    let one = async |number: usize| {
        let began = Instant::now();
        let mut socket = Socket::open(&target, &people[number % people.len()]).await?;
        if let Some(subscription) = subscription {
            subscription.begin(&mut socket, number).await?;
            socket.echo().await?;
        }
        meter.took(began.elapsed());
        Ok((number, socket))
    };
    let mut opening = std::pin::pin!(stream::iter(0..count as usize).map(one).buffer_unordered(CONNECT_AT_ONCE));
    let mut open = 0;
    while let Some((number, socket)) = run.unless_stopped(async { opening.next().await.transpose() }).await? {
        hold(number, socket);
        open += 1;
        run.tell("sockets", open, count, &format!("sockets open: {open} of {count}"));
    }
    Ok(())
}

/// Until so much has come, nothing moves any more, or it is to end. What has come may be less than what moves.
pub(super) async fn all_came(run: &mut Run<'_>, what: &str, of: u64, came: impl Fn() -> u64, moves: impl Fn() -> u64) {
    let (mut last, mut moved) = (0, Instant::now());
    while came() < of && moved.elapsed() < PATIENCE && !run.stop.is_cancelled() {
        let now = moves();
        if now > last {
            (last, moved) = (now, Instant::now());
        }
        let now = came();
        run.tell(what, now, of, &format!("{what}: {now} of {of}"));
        sleep(LOOK_EVERY).await;
    }
}
