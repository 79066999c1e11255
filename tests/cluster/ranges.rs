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

const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { uuid } } } }";
/// Node that is killed.
const GONE: u8 = 2;
/// Pairs of users. A conversation has rows in four ranges or more, so about a quarter of them has
/// none on the node.
const PAIRS: usize = 40;
/// The time in which the others take the node for dead: until then a batch may wait for its log.
const NOTICED: Duration = Duration::from_secs(4);
const OUTAGE: Duration = Duration::from_secs(6);
/// The machine does other things.
const P99_MAX: Duration = Duration::from_secs(3);
const HEALED_MAX: Duration = Duration::from_secs(60);

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

pub(super) async fn range_without_quorum(ring: &mut Ring) {
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

    let before = pace(&whole, Duration::from_secs(3), "before").await;
    ring.kill(GONE);
    let killed = Instant::now();
    // Some of the broken ones cannot be written. They are tried all the while.
    let (first, refused) = tokio::join!(
        pace(&whole, NOTICED, "at first"),
        refusals(&broken, NOTICED + OUTAGE)
    );
    assert_eq!(ready(&admin), 200);
    assert!(refused > 0, "every range has a quorum");
    let after = pace(&whole, OUTAGE, "later").await;
    say(&format!(
        "ranges: {} conversations elsewhere: p99 {:.0?} before, {:.0?} in the first {NOTICED:.0?}, {:.0?} later; {refused} sends into the range refused",
        whole.len(),
        p99(&before),
        p99(&first),
        p99(&after)
    ));
    assert!(p99(&after) < P99_MAX, "{:?}", p99(&after));
    assert_eq!(ready(&admin), 200);

    // The range comes back, and nobody restarts a server.
    ring.restart(GONE).await;
    let back = Instant::now();
    for pair in &broken {
        while code(&send(pair, "back").await) == "UNAVAILABLE" {
            assert!(back.elapsed() < HEALED_MAX, "it does not heal");
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
    let mut pair = Pair {
        id: String::new(),
        server,
        token: program.token(&format!("left-{number}")),
        is_whole: false,
    };
    let document = "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id uuid } } }";
    let variables = json!({ "u": format!("right-{number}") });
    let made = pair.caller().await.data(document, &variables).await;
    let made = made.expect("the server runs");
    let id = &made["startDirectConversation"]["conversation"]["id"];
    pair.id = id.as_str().unwrap().to_owned();
    assert_eq!(code(&send(&pair, "first").await), "");
    pair
}

async fn send(pair: &Pair, body: &str) -> Reply {
    let variables = json!({ "c": pair.id, "b": body });
    let mut caller = pair.caller().await;
    let sent = caller.ask(SEND, &variables).await;
    sent.expect("the server runs")
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
            .data(document, &json!({ "c": pair.id }))
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

/// Sends to all of them in turn, and returns how long each send took. Each must be acknowledged.
async fn pace(pairs: &[Pair], time: Duration, what: &str) -> Vec<Duration> {
    let (end, mut took) = (Instant::now() + time, Vec::new());
    while Instant::now() < end {
        for pair in pairs {
            let began = Instant::now();
            let reply = send(pair, what).await;
            assert_eq!(code(&reply), "", "{what}: {}", reply.body);
            took.push(began.elapsed());
        }
    }
    took
}

/// Sends to all of them at once, again and again, and returns how many sends were refused.
async fn refusals(pairs: &[Pair], time: Duration) -> usize {
    let (end, mut refused) = (Instant::now() + time, 0);
    while Instant::now() < end {
        let sent = join_all(pairs.iter().map(|pair| send(pair, "broken"))).await;
        refused += sent
            .iter()
            .filter(|reply| code(reply) == "UNAVAILABLE")
            .count();
    }
    refused
}
