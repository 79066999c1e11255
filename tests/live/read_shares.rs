//! Shares of the store's read permits, through HTTP: a user with many parallel reads leaves permits to the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use serde_json::{Value, json};
use tokio::runtime::Builder;
use wideroom::chat::Bounds;
use wideroom::server::{AdmissionBounds, ServerBounds};

use super::chat_server::ChatServer;
use crate::support::client::{Caller, soon};

/// Reads in progress, of all users.
const READS: &str = "wideroom_store_reads";
const SHARE: usize = 4;
/// Parallel requests of one user, and reads in each.
const REQUESTS: usize = 64;
const PAGES: usize = 4;

/// The runtime has one thread for reads, and the test holds it: every read that has a permit is then slow.
#[test]
fn a_user_with_many_slow_reads_does_not_delay_the_read_of_another() {
    Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test());
}

async fn test() {
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
    let server = ChatServer::start(bounds, chat).await;
    let alice = server.user("alice");
    let conversation = alice.direct("bob").await;
    let mut cursors = Vec::new();
    for _ in 0..REQUESTS * PAGES {
        cursors.push(alice.send(&conversation, &"x".repeat(4_000)).await.cursor);
    }
    let mut callers = Vec::new();
    for _ in 0..REQUESTS {
        callers.push(server.caller("alice").await);
    }
    let mut bob = server.caller("bob").await;

    let (release, held) = mpsc::channel::<()>();
    let holder = tokio::task::spawn_blocking(move || held.recv().is_ok());
    let left = Arc::new(AtomicUsize::new(REQUESTS));
    let requests: Vec<_> = callers
        .into_iter()
        .zip(cursors.chunks(PAGES))
        .map(|(caller, cursors)| {
            let (document, variables) = (pages(cursors), json!({ "c": conversation }));
            tokio::spawn(request(caller, document, variables, Arc::clone(&left)))
        })
        .collect();
    soon(until(&server, SHARE)).await;
    let document =
        "query($c: ID!) { conversation(id: $c) { messages(first: 3) { edges { cursor } } } }";
    let variables = json!({ "c": conversation });
    let read = async {
        bob.data(document, &variables).await.unwrap();
        left.load(Ordering::Relaxed)
    };
    let watch = async {
        until(&server, SHARE + 1).await;
        release.send(()).unwrap();
        let mut most = 0;
        while left.load(Ordering::Relaxed) > 0 {
            most = most.max(reads(&server));
            tokio::task::yield_now().await;
        }
        most
    };
    let (unfinished, most) = tokio::join!(soon(read), soon(watch));
    for request in requests {
        request.await.unwrap();
    }
    assert!(holder.await.unwrap());
    assert!(
        most <= 3 * SHARE,
        "alice and bob have at most {SHARE} reads in progress each, of the store's 64: {most}"
    );
    assert!(
        unfinished > REQUESTS / 2,
        "bob waits for few of alice's requests: {unfinished} are left"
    );
}

/// One query of several pages. Each page begins elsewhere, because equal reads would share one.
fn pages(cursors: &[String]) -> String {
    let pages: String = cursors
        .iter()
        .enumerate()
        .map(|(number, cursor)| {
            format!("p{number}: conversation(id: $c) {{ messages(last: 100, before: \"{cursor}\") {{ edges {{ cursor }} }} }} ")
        })
        .collect();
    format!("query($c: ID!) {{ {pages} }}")
}

async fn request(mut caller: Caller, document: String, variables: Value, left: Arc<AtomicUsize>) {
    caller.data(&document, &variables).await.unwrap();
    left.fetch_sub(1, Ordering::Relaxed);
}

fn reads(server: &ChatServer) -> usize {
    server.metric(READS) as usize
}

/// Waits until so many reads are in progress.
async fn until(server: &ChatServer, count: usize) {
    while reads(server) < count {
        tokio::task::yield_now().await;
    }
}
