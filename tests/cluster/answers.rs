//! Answers that are lost between a server and its node: what was written is written once more, as the same message, and never twice.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use uuid::Uuid;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{ChangeKind, ConversationId, OrderKey};
use wideroom::store::Store as _;
use wideroom::store::cql::{Address, Cql};

use super::line::{Line, decided, written};
use super::place::migrated;
use crate::binary::read::{self, Read};
use crate::binary::stage::serve;
use crate::support::cassandra::{say, shared};
use crate::support::client::{Caller, Reply, soon};
use crate::support::program::Program;
use crate::support::server::Server;

const SEND: &str = "mutation($c: ID!, $b: String!, $k: String) {
    sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k}) { messageEdge { node { uuid body } } } }";
/// An attempt of a server to write.
const ATTEMPT: Duration = Duration::from_secs(2);
/// A message that became visible later than this after its id is told of once more.
const LATE: Duration = Duration::from_secs(4);

/// Keyspace that all scenes share, because creating the tables takes seconds. Each scene has its own users.
static KEYSPACE: OnceCell<String> = OnceCell::const_new();

struct Scene {
    line: Line,
    server: Server,
    program: Program,
    store: Cql,
    salt: Uuid,
    conversation: String,
}

impl Scene {
    async fn set() -> Option<Self> {
        let shared = shared().await?;
        let direct: Address = shared.url("none").parse().unwrap();
        let node = tokio::net::lookup_host(&direct.contact_points[0])
            .await
            .unwrap()
            .next()
            .unwrap();
        let line = Line::to(&[node]).await;
        let who = direct
            .credentials
            .as_ref()
            .map(|who| format!("{}:{}@", who.user, who.password))
            .unwrap_or_default();
        let made = async || {
            migrated(|keyspace| shared.url(keyspace), "1")
                .store()
                .parse::<Address>()
                .unwrap()
                .keyspace
        };
        let keyspace = KEYSPACE.get_or_init(made).await.clone();
        let program = Program::on(format!("cql://{who}{}/{keyspace}", line.address));
        let server = serve(&program);
        let store = Cql::open(Address { keyspace, ..direct }, Arc::new(SystemClock))
            .await
            .unwrap();
        let mut scene = Self {
            line,
            server,
            program,
            store,
            salt: Uuid::new_v4(),
            conversation: String::new(),
        };
        let document = "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id } } }";
        let made = scene
            .done(document, &json!({ "u": scene.name("bob") }))
            .await;
        scene.conversation = made["startDirectConversation"]["conversation"]["id"]
            .as_str()
            .unwrap()
            .to_owned();
        Some(scene)
    }

    /// Nobody else's in the keyspace.
    fn name(&self, user: &str) -> String {
        format!("{user}-{}", self.salt)
    }

    async fn caller(&self, user: &str) -> Caller {
        Caller::connect(self.server.address(), &self.program.token(&self.name(user)))
            .await
            .unwrap()
    }

    /// The data of what alice asks, until it is answered.
    async fn done(&self, document: &str, variables: &Value) -> Value {
        let mut caller = self.caller("alice").await;
        caller.data_at_last(document, variables).await.unwrap()
    }

    async fn send(&self, user: &str, body: &str, key: Option<&str>) -> Reply {
        self.caller(user)
            .await
            .ask(
                SEND,
                &json!({ "c": self.conversation, "b": body, "k": key }),
            )
            .await
            .unwrap()
    }

    /// Sends while the answers to all writes are lost for a time.
    async fn send_while_lost(
        &mut self,
        user: &str,
        body: &str,
        key: Option<&str>,
        time: Duration,
    ) -> Reply {
        let mut caller = self.caller(user).await;
        let variables = json!({ "c": self.conversation, "b": body, "k": key });
        self.line.lose(written(), usize::MAX);
        let heal = async {
            tokio::time::sleep(time).await;
            self.line.heal();
        };
        tokio::join!(caller.ask(SEND, &variables), heal).0.unwrap()
    }

    async fn history(&self) -> Vec<Read> {
        let mut caller = self.caller("bob").await;
        let history = read::history(&mut caller, &self.conversation).await;
        let entry = read::inbox(&mut caller).await.entries.remove(0);
        history.agrees(&self.name("bob"), &entry, 99);
        history.messages
    }

    async fn bodies(&self) -> Vec<String> {
        self.history()
            .await
            .into_iter()
            .filter_map(|read| read.body)
            .collect()
    }

    /// Tries with the same key until it is acknowledged.
    async fn send_until_kept(&self, user: &str, body: &str) -> String {
        let kept = async {
            loop {
                let reply = self.send(user, body, Some(&body.replace(' ', "-"))).await;
                if reply.code() != "UNAVAILABLE" {
                    return sent(&reply);
                }
            }
        };
        soon(kept).await
    }

    /// Messages published a second time because they became visible late.
    async fn late(&self) -> Vec<String> {
        let document = "query($c: ID!) { conversation(id: $c) { uuid } }";
        let data = self
            .caller("bob")
            .await
            .data_at_last(document, &json!({ "c": self.conversation }))
            .await
            .unwrap();
        let id = ConversationId(
            data["conversation"]["uuid"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap(),
        );
        let since = OrderKey::first_at(SystemClock.now().plus_micros(-3_600_000_000));
        let changes = self.store.changes(id, since, 100).await.unwrap();
        let late: Vec<_> = changes
            .into_iter()
            .filter(|change| change.kind == ChangeKind::MessageLate)
            .map(|change| change.message)
            .collect();
        let body = |read: &Read| late.contains(&read.id).then(|| read.body.clone().unwrap());
        self.history().await.iter().filter_map(body).collect()
    }
}

fn sent(reply: &Reply) -> String {
    let node = &reply.body["data"]["sendMessage"]["messageEdge"]["node"];
    assert!(node.is_object(), "{}", reply.body);
    node["uuid"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: servers on a cluster wait for answers"]
async fn a_message_whose_answer_is_lost_is_kept_once_and_in_its_place() {
    let Some(mut scene) = Scene::set().await else {
        return;
    };
    scene.send_until_kept("alice", "first").await;

    // All answers while the batch is first tried. The same again is answered.
    let began = Instant::now();
    let second = scene
        .send_while_lost("alice", "second", None, 3 * ATTEMPT / 4)
        .await;
    let took = began.elapsed();
    assert!(took >= ATTEMPT, "{took:?}");
    // On a busy machine it is late, and its outcome may be unknown then.
    let is_late = took > LATE;
    if !is_late {
        sent(&second);
    }
    soon(async { while scene.bodies().await.len() < 2 {} }).await;
    assert_eq!(scene.bodies().await, ["first", "second"]);
    assert_eq!(
        scene.late().await,
        if is_late { vec!["second"] } else { vec![] }
    );

    // Twice over: now it is late.
    let began = Instant::now();
    scene
        .send_while_lost("bob", "third", Some("third"), 7 * ATTEMPT / 4)
        .await;
    let third = scene.send_until_kept("bob", "third").await;
    assert!(began.elapsed() > LATE, "{:?}", began.elapsed());
    assert_eq!(third, scene.send_until_kept("bob", "third").await);
    assert!(scene.late().await.contains(&"third".to_owned()));

    // The answer to the claim of a key.
    scene.line.lose(decided(), 1);
    let began = Instant::now();
    let fourth = scene.send_until_kept("alice", "fourth").await;
    assert!(began.elapsed() >= ATTEMPT, "{:?}", began.elapsed());
    assert_eq!(fourth, scene.send_until_kept("alice", "fourth").await);
    assert_eq!(scene.bodies().await, ["first", "second", "third", "fourth"]);
    say(&format!(
        "answers: one lost write was settled in {took:.1?}"
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: servers on a cluster wait for answers"]
async fn a_send_that_times_out_has_an_unknown_outcome_and_its_key_reveals_it() {
    let Some(mut scene) = Scene::set().await else {
        return;
    };
    scene.send_until_kept("alice", "first").await;
    scene.line.lose(written(), usize::MAX);
    let began = Instant::now();
    let second = scene.send("alice", "second", Some("second")).await;
    let took = began.elapsed();
    assert_eq!(
        (second.code(), second.outcome()),
        ("UNAVAILABLE", "UNKNOWN"),
        "{}",
        second.body
    );
    // Its turn does not come before that of the one before it is known.
    let began = Instant::now();
    let third = scene.send("bob", "third", Some("third")).await;
    assert_eq!(
        (third.code(), third.outcome()),
        ("UNAVAILABLE", "NOT_DONE"),
        "{}",
        third.body
    );
    say(&format!(
        "answers: UNKNOWN was said after {took:.1?}, NOT_DONE after {:.1?}",
        began.elapsed()
    ));
    scene.line.heal();
    let third = scene.send_until_kept("bob", "third").await;
    assert_eq!(third, scene.send_until_kept("bob", "third").await);
    scene.send_until_kept("bob", "fourth").await;
    scene.send_until_kept("alice", "second").await;
    assert_eq!(scene.bodies().await, ["first", "second", "third", "fourth"]);
    assert_eq!(scene.late().await, ["second"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_comes_once_where_the_answer_to_the_decision_is_lost() {
    let Some(mut scene) = Scene::set().await else {
        return;
    };
    let document = "mutation($u: String!) { createGroupConversation(input: {name: \"club\", usernames: [$u]}) { conversation { id } } }";
    let made = scene
        .done(document, &json!({ "u": scene.name("bob") }))
        .await;
    let id = made["createGroupConversation"]["conversation"]["id"]
        .as_str()
        .unwrap();
    scene.line.lose(decided(), 1);
    let add = "mutation($c: ID!, $u: String!) { addParticipants(input: {conversationId: $c, usernames: [$u]}) { conversation { id } } }";
    let began = Instant::now();
    scene
        .done(add, &json!({ "c": id, "u": scene.name("carol") }))
        .await;
    assert!(began.elapsed() >= ATTEMPT, "{:?}", began.elapsed());
    let history = read::history(&mut scene.caller("carol").await, id).await;
    assert_eq!(history.message_count, 1, "{:?}", history.messages);
    assert_eq!(history.participants["edges"].as_array().unwrap().len(), 3);
    let inbox = read::inbox(&mut scene.caller("carol").await).await;
    assert_eq!(
        inbox
            .entries
            .iter()
            .map(|entry| entry.last_message)
            .collect::<Vec<_>>(),
        [history.last_message]
    );
}
