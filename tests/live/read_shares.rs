//! Shares of the store's read permits, through HTTP: a user with many parallel reads leaves permits to the others.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use wideroom::chat::Bounds;
use wideroom::clock::{Clock, SystemClock};
use wideroom::model::Timestamp;

use super::chat_server::{ChatServer, without_rates};
use crate::support::client::{Caller, soon};

/// Reads in progress, of all users.
const READS: &str = "wideroom_store_reads";
const SHARE: usize = 4;
/// Parallel requests of one user, and reads in each.
const REQUESTS: usize = 64;
const PAGES: usize = 4;

/// Clock that holds up whoever asks it. A read of bans asks it; a read of messages does not.
#[derive(Default)]
struct HeldClock {
    is_held: Mutex<bool>,
    released: Condvar,
}

impl HeldClock {
    fn hold(&self) {
        *self.is_held.lock() = true;
    }

    fn release(&self) {
        *self.is_held.lock() = false;
        self.released.notify_all();
    }
}

impl Clock for HeldClock {
    fn now(&self) -> Timestamp {
        self.released
            .wait_while(&mut self.is_held.lock(), |is_held| *is_held);
        SystemClock.now()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_many_slow_reads_does_not_delay_the_read_of_another() {
    let clock = Arc::new(HeldClock::default());
    let server = start(Arc::clone(&clock)).await;
    let alice = server.user("alice");
    let conversation = alice.group("Rust", &["bob"]).await;
    for text in ["one", "two", "three"] {
        alice.send(&conversation, text).await;
    }
    let mut callers = Vec::new();
    for _ in 0..REQUESTS {
        callers.push(server.caller("alice").await);
    }
    let mut bob = server.caller("bob").await;

    let document =
        "query($c: ID!) { conversation(id: $c) { messages(first: 1) { edges { cursor } } } }";
    // A first question reads the user's blocks, which asks the clock, too.
    bob.data(document, &json!({ "c": conversation }))
        .await
        .unwrap();
    clock.hold();
    let requests: Vec<_> = callers
        .into_iter()
        .map(|caller| tokio::spawn(request(caller, json!({ "c": conversation }))))
        .collect();
    soon(async {
        while reads(&server) < SHARE {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..20 {
        bob.data(document, &json!({ "c": conversation }))
            .await
            .unwrap();
        // The sweep of expired rows may read too.
        let reads = reads(&server);
        assert!(
            (SHARE..=SHARE + 1).contains(&reads),
            "alice has {SHARE} reads in progress, of the store's 64, and bob's has ended: {reads}"
        );
    }
    clock.release();
    for request in requests {
        request.await.unwrap();
    }
}

async fn start(clock: Arc<HeldClock>) -> ChatServer {
    let chat = Bounds {
        user_reads_max: SHARE,
        ..Bounds::default()
    };
    ChatServer::with_clock_of_store(without_rates(), chat, clock).await
}

/// Reads several pages of bans. A page that has waited over 5 s for its turn is UNAVAILABLE.
async fn request(mut caller: Caller, variables: Value) {
    let pages: String = (1..=PAGES)
        .map(|size| {
            format!(
                "p{size}: conversation(id: $c) {{ bans(first: {size}) {{ edges {{ cursor }} }} }} "
            )
        })
        .collect();
    let document = format!("query($c: ID!) {{ {pages} }}");
    let reply = caller.ask(&document, &variables).await.unwrap();
    let errors = reply.body["errors"].as_array();
    for error in errors.into_iter().flatten() {
        assert_eq!(error["extensions"]["code"], "UNAVAILABLE", "{error}");
    }
}

fn reads(server: &ChatServer) -> usize {
    server.metric(READS) as usize
}
