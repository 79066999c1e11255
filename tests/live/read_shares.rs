//! Shares of the store's read permits, through HTTP: a user with many parallel reads leaves permits to the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use wideroom::chat::Bounds;
use wideroom::server::{AdmissionBounds, ServerBounds};

use super::chat_server::ChatServer;
use crate::support::client::soon;

/// Reads in progress, of all users.
const READS: &str = "wideroom_store_reads";
const SHARE: usize = 4;
/// Parallel requests of one user, and pages in each.
const REQUESTS: usize = 64;
const PAGES: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_user_with_many_slow_reads_does_not_delay_the_read_of_another() {
    let rates = AdmissionBounds {
        is_on: false,
        ..AdmissionBounds::default()
    };
    let bounds = ServerBounds {
        rates,
        ..ServerBounds::default()
    };
    let chat = Bounds {
        user_reads_max: SHARE,
        ..Bounds::default()
    };
    let server = Arc::new(ChatServer::start(bounds, chat).await);
    let alice = server.user("alice");
    let conversation = alice.direct("bob").await;
    let mut cursors = Vec::new();
    for _ in 0..REQUESTS * PAGES {
        cursors.push(alice.send(&conversation, &"x".repeat(8_000)).await.cursor);
    }

    // Each page begins elsewhere: equal reads would share one.
    let left = Arc::new(AtomicUsize::new(REQUESTS));
    let mut requests = Vec::new();
    for chunk in cursors.chunks(PAGES) {
        let pages: String = chunk
            .iter()
            .enumerate()
            .map(|(number, cursor)| {
                format!("p{number}: conversation(id: $c) {{ messages(last: 100, before: \"{cursor}\") {{ edges {{ cursor }} }} }} ")
            })
            .collect();
        let (document, variables) = (
            format!("query($c: ID!) {{ {pages} }}"),
            json!({ "c": conversation }),
        );
        let mut caller = server.caller("alice").await;
        let left = Arc::clone(&left);
        requests.push(tokio::spawn(async move {
            caller.data(&document, &variables).await.unwrap();
            left.fetch_sub(1, Ordering::Relaxed);
        }));
    }
    let mut bob = server.caller("bob").await;
    let mut most = 0;
    let flood = async {
        while left.load(Ordering::Relaxed) > 0 {
            most = most.max(server.metric(READS) as usize);
            tokio::task::yield_now().await;
        }
        most
    };
    let read = async {
        let variables = json!({ "c": conversation });
        let document =
            "query($c: ID!) { conversation(id: $c) { messages(first: 3) { edges { cursor } } } }";
        bob.data(document, &variables).await.unwrap();
        left.load(Ordering::Relaxed)
    };
    let (most, unfinished) = tokio::join!(soon(flood), soon(read));
    for request in requests {
        request.await.unwrap();
    }
    assert!(
        (SHARE..=SHARE + 1).contains(&most),
        "alice has at most {SHARE} reads in progress and bob one: {most}"
    );
    assert!(
        unfinished > 0,
        "bob's read is answered while alice's reads go on"
    );
}
