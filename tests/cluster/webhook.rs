//! Webhooks of two servers on one cluster: they share the shards, and one takes over those of a server that hangs or
//! is killed. No event is lost, and the order within a conversation holds.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::binary::stage::{Stage, name};
use crate::binary::webhook::{by_conversation, config, log};
use crate::support::admin::Admin;
use crate::support::cassandra::{say, shared};
use crate::support::client::Caller;
use crate::support::program::Program;
use crate::support::receiver::{Received, Receiver, Reply};
use crate::support::server::Server;
use crate::support::world::PATIENCE;

const SHARDS: f64 = 16.0;
const SENDERS: usize = 4;
const SEND: &str = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"hello\"}) { messageEdge { node { id } } } }";

/// Users who send to their conversations through one server, until they are stopped.
struct Senders {
    is_stopped: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<usize>>,
}

impl Senders {
    fn start(stage: &Arc<Stage>, address: SocketAddr) -> Self {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let task = |user: usize| {
            let (stage, is_stopped) = (Arc::clone(stage), Arc::clone(&is_stopped));
            tokio::spawn(async move {
                let token = stage.program.token(&name(user));
                let mut caller = Caller::connect(address, &token).await.unwrap();
                let own: Vec<_> = stage.of_user(user).collect();
                let (mut turn, mut count) = (0, 0);
                while !is_stopped.load(Ordering::SeqCst) {
                    let id = &stage.conversations[own[turn % own.len()]].id;
                    turn += 1;
                    // A server that is killed answers nothing.
                    let Ok(reply) = caller.ask(SEND, &json!({ "c": id })).await else {
                        break;
                    };
                    count += usize::from(reply.body.get("errors").is_none());
                    tokio::time::sleep(Duration::from_millis(40)).await;
                }
                count
            })
        };
        let tasks = (0..SENDERS).map(task).collect();
        Self { is_stopped, tasks }
    }

    async fn stop(self) -> usize {
        self.is_stopped.store(true, Ordering::SeqCst);
        let mut count = 0;
        for task in self.tasks {
            count += task.await.unwrap();
        }
        count
    }
}

fn shards(admin: &Admin) -> f64 {
    let series = "wideroom_webhook_shards{webhook=\"backend\"}";
    admin.series(series).unwrap_or_default()
}

/// Waits until a server delivers so many shards. How long that took.
async fn until_shards(admin: &Admin, count: f64) -> Duration {
    let began = Instant::now();
    loop {
        let present = shards(admin);
        if present == count {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENCE, "{present} shards, not {count}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn distinct(received: &[Received]) -> usize {
    received
        .iter()
        .map(Received::id)
        .collect::<BTreeSet<_>>()
        .len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: a minute of leases on a cluster"]
async fn two_servers_share_the_shards_and_take_them_over() {
    let Some(shared) = shared().await else { return };
    let program = Program::on_cluster(shared).await;
    program.run(&["outbox", "on"]).succeeded();
    let stage = Arc::new(Stage::set_up(program).await);
    let receiver = Receiver::start().await;
    // Some requests are taken and never answered.
    let mut number = 0;
    receiver.answer(move |_| {
        number += 1;
        if number % 17 == 0 {
            Reply::Close
        } else {
            Reply::Status(200)
        }
    });
    let document = "subscription { outbox { id conversation { id } } }";
    let more = format!("types = [\"MESSAGE_ADDED\"]\ndocument = \"{document}\"");
    let file = config(&stage.program, receiver.address, &more);
    let arguments = ["--config", &file, "--log", "info", "--rates", "off"];
    let serve = || Server::start_with_admin(&stage.program, &arguments);
    let (one, of_one) = serve();
    let (other, of_other) = serve();
    until_shards(&of_one, SHARDS / 2.0).await;
    until_shards(&of_other, SHARDS / 2.0).await;
    let both = [one.address(), other.address()].map(|address| Senders::start(&stage, address));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let [by_one, by_other] = both;
    let sent_by_other = by_other.stop().await;
    // It holds its leases and answers nothing: its shards wait until they have ended.
    other.signal("-STOP");
    let after_stop = until_shards(&of_one, SHARDS).await;
    let sent_by_one = by_one.stop().await;
    let log_then = log(&stage, one.address()).await;
    let count = log_then.values().map(Vec::len).sum::<usize>();
    receiver.until(|all| distinct(all) >= count).await;
    // Its leases have ended: it delivers nothing any more.
    other.signal("-CONT");
    until_shards(&of_other, 0.0).await;
    let last = Senders::start(&stage, one.address());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let log_of_one = one.kill();
    assert!(!log_of_one.contains("panicked"), "{log_of_one}");
    let sent_last = last.stop().await;
    let after_kill = until_shards(&of_other, SHARDS).await;
    let sent: usize = [sent_by_one, sent_by_other, sent_last].iter().sum();
    let log = log(&stage, other.address()).await;
    let count = log.values().map(Vec::len).sum::<usize>();
    assert!(count >= sent, "{count} of {sent} acknowledged messages");
    let received = receiver.until(|all| distinct(all) >= count).await;
    say(&format!(
        "webhooks: {count} events in {} requests; the shards of a server that hangs were taken over after {after_stop:.1?}, those of a killed one after {after_kill:.1?}",
        received.len()
    ));
    assert_eq!(by_conversation(&received), log, "each event, in order");
    other.signal("-TERM");
    let (code, _, log_of_other) = other.end();
    assert_eq!(code, Some(0), "{log_of_other}");
    assert!(!log_of_other.contains("panicked"), "{log_of_other}");
}
