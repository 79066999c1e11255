//! A range without a quorum: with one replica of each row, a node that is gone takes its third of
//! the data with it, and nothing else.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use scylla::client::session::Session;
use serde_json::{Value, json};
use uuid::Uuid;

use super::place::{migrated, p99};
use crate::support::admin::Admin;
use crate::support::cassandra::{Ring, say};
use crate::support::client::{Caller, Reply};
use crate::support::program::Program;
use crate::support::server::Server;
use crate::support::world::PATIENCE;

const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { uuid } } } }";
const PAGE: &str =
    "query($c: ID!) { conversation(id: $c) { messages(last: 20) { edges { node { body } } } } }";
/// Node that is killed.
const GONE: u8 = 2;
/// Pairs of users. A conversation has rows in four ranges or more, so about a quarter of them has
/// none on the node.
const PAIRS: usize = 40;
/// Reads of each conversation in a round, beside a send. A round lasts as long as a request waits
/// for a node that is gone: together they are more than the request threads of the other two.
const READS: usize = 4;
const ROUND: Duration = Duration::from_secs(2);
/// Until the servers and nodes have compiled what they run often.
const WARM_UP: Duration = Duration::from_secs(4);
const BEFORE: Duration = Duration::from_secs(4);
/// The time in which clients and servers find out; the other nodes need longer.
const FIRST: Duration = Duration::from_secs(4);
const OUTAGE: Duration = Duration::from_secs(8);
/// The aim: sends elsewhere may take so many times as long as before, and this much more: once a second a
/// send tries whether the batch log works again, and waits 250 ms for it.
const SLOWER_MAX: u32 = 4;
const MORE_MAX: Duration = Duration::from_millis(300);
/// One send of so many may be refused elsewhere.
const REFUSED_SHARE_MAX: usize = 20;

/// A direct conversation, and the token of its first user.
struct Pair {
    id: String,
    server: SocketAddr,
    token: String,
    is_whole: bool,
}

impl Pair {
    /// A connection of its own: one that was idle for a while may be closed.
    async fn caller(&self) -> Caller {
        Caller::connect(self.server, &self.token).await.unwrap()
    }
}

/// `is_quiet`: the machine does nothing else, so the aim for latencies is asserted.
pub(super) async fn range_without_quorum(ring: &mut Ring, is_quiet: bool) {
    let program = migrated(|keyspace| ring.url(keyspace), "1");
    let rates = ["--rates", "off"];
    let (server, admin) = Server::start_with_admin(&program, &rates);
    let mut pairs =
        join_all((0..PAIRS).map(|number| pair(&program, server.address(), number))).await;
    let keyspace = program.store().rsplit('/').next().unwrap().to_owned();
    find_whole(ring, &keyspace, &mut pairs).await;
    let (whole, broken): (Vec<_>, Vec<_>) = pairs.into_iter().partition(|pair| pair.is_whole);
    assert!(
        !whole.is_empty() && !broken.is_empty(),
        "{} of {PAIRS} are whole",
        whole.len()
    );

    let with_all_nodes = async {
        pace(&whole, WARM_UP, "warm-up", is_quiet).await;
        pace(&whole, BEFORE, "before", is_quiet).await
    };
    let (before, _) = tokio::join!(with_all_nodes, press(&broken, WARM_UP + BEFORE));
    ring.kill(GONE);
    let killed = Instant::now();
    let elsewhere = async {
        let first = pace(&whole, FIRST, "at first", is_quiet).await;
        assert_eq!(ready(&admin), 200);
        (first, pace(&whole, OUTAGE, "later", is_quiet).await)
    };
    let ((first, later), refused) = tokio::join!(elsewhere, press(&broken, FIRST + OUTAGE));
    assert!(refused > 0, "every range has a quorum");
    let [before, first, later] = [before, first, later].map(|took| p99(&took));
    say(&format!(
        "ranges: {} conversations elsewhere: p99 {before:.0?} before, {first:.0?} in the first {FIRST:.0?}, {later:.0?} later; {refused} sends into the range refused",
        whole.len(),
    ));
    let most = before * SLOWER_MAX + MORE_MAX;
    let is_in_time = first < most && later < most;
    assert!(is_in_time || !is_quiet, "{first:?} {later:?}");
    assert_eq!(ready(&admin), 200);

    // The range comes back, and nobody restarts a server.
    ring.restart(GONE).await;
    let back = Instant::now();
    for pair in &broken {
        while code(&send(pair, "back").await) == "UNAVAILABLE" {
            assert!(back.elapsed() < PATIENCE, "it does not heal");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    say(&format!(
        "ranges: {:.0?} without the range, all of it again after {:.1?}",
        back - killed,
        back.elapsed()
    ));
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

fn ready(admin: &Admin) -> u16 {
    let (status, reason) = admin.get("/readyz");
    if status != 200 {
        say(&format!("ranges: not ready: {reason}"));
    }
    status
}

/// Starts a conversation, and sends a message, so that it has a bucket.
async fn pair(program: &Program, server: SocketAddr, number: usize) -> Pair {
    let began = Instant::now();
    let mut pair = Pair {
        id: String::new(),
        server,
        token: program.token(&format!("left-{number}")),
        is_whole: false,
    };
    let document = "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id uuid } } }";
    let variables = json!({ "u": format!("right-{number}") });
    let made = pair.caller().await.data_at_last(document, &variables).await;
    let made = made.expect("the server runs");
    let id = &made["startDirectConversation"]["conversation"]["id"];
    pair.id = id.as_str().unwrap().to_owned();
    while code(&send(&pair, "first").await) == "UNAVAILABLE" {
        assert!(began.elapsed() < PATIENCE, "it takes no message");
    }
    pair
}

async fn send(pair: &Pair, body: &str) -> Reply {
    let variables = json!({ "c": pair.id, "b": body });
    let mut caller = pair.caller().await;
    let sent = caller.ask(SEND, &variables).await;
    sent.expect("the server runs")
}

/// Reads the newest messages. They may be in the range, and the read refused.
async fn page(pair: &Pair) -> Reply {
    let mut caller = pair.caller().await;
    let read = caller.ask(PAGE, &json!({ "c": pair.id })).await;
    read.expect("the server runs")
}

fn code(reply: &Reply) -> String {
    reply.code().to_owned()
}

/// Finds the conversations of which no row lies on the node that will be killed.
async fn find_whole(ring: &Ring, keyspace: &str, pairs: &mut [Pair]) {
    let session = ring.session().await;
    session.refresh_metadata().await.unwrap();
    let state = session.get_cluster_state();
    let gone = ring.contact_points()[usize::from(GONE) - 1].clone();
    for (number, pair) in pairs.iter_mut().enumerate() {
        let document = "query($c: ID!) { conversation(id: $c) { uuid lastMessage { uuid } } }";
        let data = pair
            .caller()
            .await
            .data_at_last(document, &json!({ "c": pair.id }))
            .await
            .unwrap();
        let uuid = |value: &Value| value.as_str().unwrap().parse::<Uuid>().unwrap();
        let conversation = uuid(&data["conversation"]["uuid"]);
        let mut nodes = HashSet::new();
        let mut add = |table: &str, key: &dyn scylla::serialize::row::SerializeRow| {
            let of_key = state.get_endpoints(keyspace, table, key).unwrap();
            nodes.extend(of_key.into_iter().map(|(node, _)| node.address.to_string()));
        };
        add("conversations", &(conversation,));
        for name in ["left", "right"] {
            add("inbox_by_user", &(format!("{name}-{number}"),));
        }
        for (width, start) in buckets(&session, keyspace, conversation).await {
            add("messages_by_conversation", &(conversation, width, start));
        }
        pair.is_whole = !nodes.contains(&gone);
    }
}

async fn buckets(session: &Session, keyspace: &str, conversation: Uuid) -> Vec<(i8, i64)> {
    let read = format!(
        "SELECT width, start FROM {keyspace}.buckets_by_conversation WHERE conversation_id = ?"
    );
    let rows = session.query_unpaged(read, (conversation,)).await.unwrap();
    let rows = rows.into_rows_result().unwrap();
    rows.rows().unwrap().map(Result::unwrap).collect()
}

/// Sends to all of them in turn, and returns how long each send took. On a quiet machine nearly each must be
/// acknowledged; on one with other load at least half.
async fn pace(pairs: &[Pair], time: Duration, what: &str, is_quiet: bool) -> Vec<Duration> {
    let (end, mut took) = (Instant::now() + time, Vec::new());
    let mut refused = 0;
    while Instant::now() < end {
        for pair in pairs {
            let began = Instant::now();
            let reply = send(pair, what).await;
            assert!(
                ["", "UNAVAILABLE"].contains(&reply.code()),
                "{}",
                reply.body
            );
            refused += usize::from(!reply.code().is_empty());
            took.push(began.elapsed());
        }
    }
    let share = if is_quiet { REFUSED_SHARE_MAX } else { 2 };
    assert!(
        refused <= took.len() / share,
        "{what}: {refused} of {} were refused",
        took.len()
    );
    took
}

/// Sends to each of them and reads its pages, evenly over a round, round after round. Returns how
/// many sends were refused.
async fn press(pairs: &[Pair], time: Duration) -> usize {
    let (end, mut refused) = (Instant::now() + time, 0);
    let mut round = tokio::time::interval(ROUND);
    while Instant::now() < end {
        let began = round.tick().await;
        let each = (0..).zip(pairs).map(async |(number, pair)| {
            tokio::time::sleep_until(began + ROUND * number / PAIRS as u32).await;
            let reads = join_all((0..READS).map(|_| page(pair)));
            tokio::join!(send(pair, "broken"), reads).0
        });
        let sent = join_all(each).await;
        let codes = sent.iter().map(code);
        refused += codes.filter(|code| code == "UNAVAILABLE").count();
    }
    refused
}
