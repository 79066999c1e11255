//! Subscriptions through quiet and outages, on a store of one server and on a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use wideroom::model::UserId;

use super::world::{Ground, QuietServer, around, quiet, stored_id};
use crate::support::world::{Actor, Stream};

/// Seconds that deliveries, polls, beats, caches and graces count in.
const CONSTANTS: &[u64] = &[1, 2, 3, 5, 8, 10, 20, 25, 30, 60, 300, 600, 900];
const HOUR: u64 = 3_600;
/// Longest time from a send to its event, on the server of the sender and on another one.
const HERE_MAX: Duration = Duration::from_millis(100);
const THERE_MAX: Duration = Duration::from_secs(6);

const ADDED: &str =
    "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { uuid } } } }";
const UPDATED: &str = "subscription { inboxUpdated { event { ... on InboxEntryChangedEvent { inboxEntryEdge { node { lastMessage { uuid } } } } } } }";

/// Bob's streams. He reads them while time passes: they repeat their positions.
struct Streams {
    added: Stream,
    updated: Stream,
}

impl Streams {
    fn open(bob: &Actor, direct: &str) -> Self {
        Self {
            added: bob.subscribe(ADDED, json!({"c": direct})),
            updated: bob.subscribe(UPDATED, json!({})),
        }
    }

    /// Reads until both have told of this message.
    async fn tell_of(&mut self, uuid: &str) {
        while self.added.next().await["messageAdded"]["messageEdge"]["node"]["uuid"] != *uuid {}
        let node = async |stream: &mut Stream| {
            let mut payload = stream.next().await;
            payload["inboxUpdated"]["event"]["inboxEntryEdge"]["node"]["lastMessage"]["uuid"].take()
        };
        while node(&mut self.updated).await != *uuid {}
    }
}

async fn events_come_after_any_quiet(
    from: &QuietServer,
    to: &QuietServer,
    ground: &Ground,
    longest: Duration,
) {
    let (alice, bob) = (from.user("alice"), to.user("bob"));
    let direct = alice.direct("bob").await;
    let names = ["alice", "bob"].map(|name| UserId::parse(name).unwrap());
    ground.place(stored_id(&alice, &direct).await, BTreeSet::from(names));
    let mut streams = Streams::open(&bob, &direct);
    // A stream begins with its first poll.
    let first = async {
        quiet(10).await;
        alice.send(&direct, "first").await.uuid
    };
    let (first, added, _) = tokio::join!(first, streams.added.next(), streams.updated.next());
    assert_eq!(added["messageAdded"]["messageEdge"]["node"]["uuid"], *first);
    for seconds in [around(CONSTANTS), vec![HOUR]].concat() {
        quiet(seconds).await;
        let began = Instant::now();
        let sent = alice.send(&direct, "hello").await;
        streams.tell_of(&sent.uuid).await;
        let took = began.elapsed();
        assert!(took <= longest, "{took:?} after {seconds} s of quiet");
    }
}

#[tokio::test(start_paused = true)]
async fn events_after_any_quiet_come_as_if_they_were_the_first() {
    let ground = Ground::of_one().await;
    let server = ground.server().await;
    events_come_after_any_quiet(&server, &server, &ground, HERE_MAX).await;
}

#[tokio::test(start_paused = true)]
async fn events_of_another_server_after_any_quiet_come_as_if_they_were_the_first() {
    let ground = Ground::shared().await;
    let (one, other) = (ground.server().await, ground.server().await);
    events_come_after_any_quiet(&one, &other, &ground, THERE_MAX).await;
}

/// While the store is away sends are refused. Afterwards they are stored, and streams that were open tell of them.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_ends_with_it() {
    let ground = Ground::of_one().await;
    let server = ground.server().await;
    let (alice, bob) = (server.user("alice"), server.user("bob"));
    let direct = alice.direct("bob").await;
    let mut added = bob.subscribe(ADDED, json!({"c": direct}));
    let send = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"lost\"}) { messageEdge { cursor } } }";
    // A stream begins with its first poll.
    let first = async {
        quiet(1).await;
        alice.send(&direct, "before").await
    };
    tokio::join!(first, added.next());
    for seconds in [1, 5, 31, 301, HOUR] {
        server.still.set_away(true);
        let refused = alice.ask(send, json!({"c": direct})).await;
        assert_eq!(refused.code(), "UNAVAILABLE");
        quiet(seconds).await;
        server.still.set_away(false);
        let began = Instant::now();
        let sent = alice.send(&direct, "after").await;
        assert_eq!(
            added.next().await["messageAdded"]["messageEdge"]["node"]["uuid"],
            *sent.uuid
        );
        assert!(
            began.elapsed() <= HERE_MAX,
            "after an outage of {seconds} s"
        );
    }
}
