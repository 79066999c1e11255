//! Removal of history on several servers: one at a time works through a list, and another takes over from one that ended.

use serde_json::json;
use wideroom::bus::Bus;
use wideroom::chat::RemovalWorker;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{ConversationId, UserId};
use wideroom::store::{DueRemoval, RemovalStore as _, StoreAdmin as _, hour_of};

use super::pair::{Server, people};
use crate::support::cassandra::shared;
use crate::support::ground::Keyspace;

/// Reader of the outbox under whose name the leases are.
const READER: &str = "wideroom:removal";
/// So many that each server holds the lists of some.
const CONVERSATIONS: usize = 16;

/// A server on this keyspace, with its worker.
async fn server(url: &str) -> (Server, RemovalWorker) {
    let server = Server::at(url.parse().unwrap(), Bus::default(), 0).await;
    let worker = server.chat.removals.worker();
    (server, worker)
}

/// A truncated conversation whose messages are due now.
async fn due(server: &Server, owner: &UserId) -> ConversationId {
    let id = server.group(owner, &[]).await;
    server.send(owner, id, "old").await;
    let last = server.send(owner, id, "older").await;
    let actor = server.actor(owner);
    let data = actor
        .data("{ inbox(first: 1) { edges { node { conversation { id lastMessage { id body } } } } } }", json!({}))
        .await;
    let newest = &data["inbox"]["edges"][0]["node"]["conversation"];
    assert_eq!(
        newest["lastMessage"]["body"],
        last.content.as_ref().unwrap().body.as_str()
    );
    let truncate = "mutation($c: ID!, $m: ID!) { truncateConversation(input: {conversationId: $c, upToMessageId: $m}) { conversation { id } } }";
    let variables = json!({"c": newest["id"], "m": newest["lastMessage"]["id"]});
    actor.data(truncate, variables).await;
    let hour = hour_of(SystemClock.now());
    let conversation = id;
    let due = DueRemoval { hour, conversation };
    server.cql.schedule_removal(due).await.unwrap();
    id
}

/// Messages of these conversations that are on the disk.
async fn left(server: &Server, ids: &[ConversationId]) -> usize {
    let mut left = 0;
    for id in ids {
        left += server.cql.all_messages(*id, None, 100).await.unwrap().len();
    }
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: a server ends, and another waits for its lease"]
async fn one_server_removes_and_another_takes_over_when_it_has_ended() {
    let Some(shared) = shared().await else { return };
    let keyspace = Keyspace::empty(shared.authority().to_owned(), &SystemClock).await;
    let url = keyspace.url();
    let (one, mut first) = server(&url).await;
    let (other, mut second) = server(&url).await;
    let [anna] = people(["anna"]);
    let mut ids = Vec::new();
    for _ in 0..CONVERSATIONS {
        ids.push(due(&one, &anna).await);
    }
    assert!(left(&one, &ids).await >= 2 * CONVERSATIONS);
    let (passed, beside) = tokio::join!(first.pass(), second.pass());
    passed.and(beside).unwrap();
    assert_eq!(left(&one, &ids).await, 0, "together they hold all lists");

    let mut ids = Vec::new();
    for _ in 0..CONVERSATIONS {
        ids.push(due(&other, &anna).await);
    }
    one.chat.finish().await;
    drop((one, first));
    second.pass().await.unwrap();
    assert!(left(&other, &ids).await > 0, "a lease outlives its holder");
    // In time the leases end, and the beats of the first expire, whose share falls to the others.
    other.end_leases(READER).await;
    let truncate = format!("TRUNCATE {}.server_beats", keyspace.name());
    let session = shared.session().await;
    session.query_unpaged(truncate, ()).await.unwrap();
    // Its own leases have ended too: it notices as it renews them.
    second.pass().await.unwrap();
    second.pass().await.unwrap();
    assert_eq!(left(&other, &ids).await, 0);
}
