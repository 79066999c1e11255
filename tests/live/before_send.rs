//! The hook before a send, with receivers that behave well and with those that do not.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use wideroom::chat::{Bounds, HookFailureMode, LiveTextMode, SendHook, SendHookSettings};
use wideroom::metrics::Metrics;
use wideroom::server::ServerBounds;
use wideroom::signed_post::PostTarget;

use super::chat_server::ChatServer;
use crate::support::client::soon;
use crate::support::door::{Door, SERVICE};
use crate::support::receiver::{Received, Receiver, Reply, SECRET};
use crate::support::world::{Actor, Answer, text};

/// Deadline of a question to a receiver that answers, also on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Deadline of a question to one that hangs.
const SHORT: Duration = Duration::from_millis(400);
const SEND: &str = "mutation($c: ID!, $b: String!, $k: String, $m: JSON, $u: [String!]) {
    sendMessage(input: {conversationId: $c, body: $b, idempotencyKey: $k, metadata: $m, mentionedUsernames: $u}) {
        messageEdge { node { id uuid body } } } }";
const EDIT: &str = "mutation($m: ID!, $b: String!) { editMessage(input: {messageId: $m, body: $b}) { message { body } } }";

struct Setting {
    server: ChatServer,
    receiver: Receiver,
    metrics: Metrics,
    alice: Actor,
    group: String,
    _folder: TempDir,
}

fn allow() -> Reply {
    Reply::Json(200, json!({"decision": "allow"}).to_string())
}

fn reject(reason: &str) -> Reply {
    let answer = json!({"decision": "reject", "reason": reason});
    Reply::Json(200, answer.to_string())
}

impl Setting {
    /// A server whose hook allows everything yet.
    async fn new(on_failure: HookFailureMode) -> Self {
        Self::with(on_failure, TIMEOUT).await
    }

    /// The same, with a deadline of its own for each question.
    async fn with(on_failure: HookFailureMode, timeout: Duration) -> Self {
        let receiver = Receiver::start().await;
        receiver.answer(|_| allow());
        let folder = tempfile::tempdir().unwrap();
        let secret_file = folder.path().join("secret");
        std::fs::write(&secret_file, SECRET).unwrap();
        let url = format!("http://{}/hook", receiver.address);
        let settings = SendHookSettings {
            target: PostTarget::parse(&url, true).unwrap(),
            url,
            allow_http: true,
            secret_file,
            timeout,
            on_failure,
            live: LiveTextMode::Refuse,
        };
        let server = ChatServer::start(ServerBounds::default(), Bounds::default()).await;
        let (hook, metrics) = (SendHook::open(&settings).unwrap(), Metrics::default());
        hook.register(&metrics);
        server.chat.writes.set_hook(hook);
        let alice = server.user("alice");
        let group = alice.group("Us", &["bob"]).await;
        Self {
            server,
            receiver,
            metrics,
            alice,
            group,
            _folder: folder,
        }
    }

    async fn send(&self, body: &str) -> Answer {
        self.send_with(body, json!({})).await
    }

    async fn send_with(&self, body: &str, more: Value) -> Answer {
        let mut variables = json!({"c": self.group, "b": body});
        let all = variables.as_object_mut().unwrap();
        all.extend(more.as_object().unwrap().clone());
        self.alice.ask(SEND, variables).await
    }

    /// The bodies of the conversation, the newest first.
    async fn bodies(&self) -> Vec<String> {
        let document = "query($c: ID!) { conversation(id: $c) { messages(last: 100) { edges { node { body } } } } }";
        let data = self.alice.data(document, json!({"c": self.group})).await;
        let edges = data["conversation"]["messages"]["edges"]
            .as_array()
            .unwrap();
        edges
            .iter()
            .map(|edge| text(&edge["node"]["body"]))
            .collect()
    }

    fn count(&self, outcome: &str) -> f64 {
        let series = format!("wideroom_before_send_total{{outcome=\"{outcome}\"}} ");
        let text = self.metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.map_or(0.0, |count| count.parse().unwrap())
    }
}

fn sent(answer: Answer) -> (String, String) {
    let node = answer.data()["sendMessage"]["messageEdge"]["node"].clone();
    (text(&node["id"]), text(&node["uuid"]))
}

#[tokio::test]
async fn the_hook_receives_each_send_and_edit_signed() {
    let setting = Setting::new(HookFailureMode::Refuse).await;
    let more = json!({"m": {"a": 1}, "u": ["bob"]});
    let (id, uuid) = sent(setting.send_with("hello", more).await);
    let edited = setting.alice.data(EDIT, json!({"m": id, "b": "better"}));
    assert_eq!(edited.await["editMessage"]["message"]["body"], "better");
    let received = setting.receiver.received();
    let [first, second] = <[Received; 2]>::try_from(received).unwrap();
    assert!(first.is_signed_by(SECRET) && second.is_signed_by(SECRET));
    assert_ne!(first.id(), second.id());
    let conversation = "query($c: ID!) { conversation(id: $c) { uuid } }";
    let data = setting
        .alice
        .data(conversation, json!({"c": setting.group}));
    let conversation = data.await["conversation"]["uuid"].clone();
    let question = json!({
        "type": "message.sending", "conversationId": conversation, "sender": "alice", "body": "hello",
        "attachments": [], "metadata": {"a": 1}, "mentionedUsernames": ["bob"], "mentionsEveryone": false,
    });
    assert_eq!(first.json(), question);
    let question = json!({
        "type": "message.editing", "conversationId": conversation, "messageId": uuid, "sender": "alice",
        "body": "better", "attachments": [], "metadata": {"a": 1}, "mentionedUsernames": ["bob"],
        "mentionsEveryone": false,
    });
    assert_eq!(second.json(), question);
    // An edit without effect asks nothing, as does a deletion; both are done.
    setting
        .alice
        .data(EDIT, json!({"m": id, "b": "better"}))
        .await;
    let delete = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }";
    setting.alice.data(delete, json!({"m": id})).await;
    assert_eq!(setting.receiver.received().len(), 2);
    assert_eq!(setting.count("allow"), 2.0);
}

#[tokio::test]
async fn a_rejected_message_is_stored_nowhere() {
    let setting = Setting::new(HookFailureMode::Allow).await;
    let (id, _) = sent(setting.send("fine").await);
    setting.receiver.answer(|_| reject("no links"));
    let refused = setting.send("bad").await;
    assert_eq!(refused.code(), "FORBIDDEN");
    assert_eq!(refused.extensions()["reason"], "no links");
    let refused = setting.alice.ask(EDIT, json!({"m": id, "b": "bad"})).await;
    assert_eq!(refused.extensions()["reason"], "no links");
    setting.receiver.answer(|_| reject(""));
    let refused = setting.send("bad").await;
    assert_eq!(refused.code(), "FORBIDDEN");
    assert!(refused.extensions().get("reason").is_none());
    assert_eq!(setting.bodies().await, ["fine"]);
    assert_eq!(setting.count("reject"), 3.0);
}

#[tokio::test]
async fn a_retry_of_a_stored_send_asks_no_more() {
    let setting = Setting::new(HookFailureMode::Refuse).await;
    let key = json!({"k": "one"});
    setting.receiver.answer(|_| Reply::Status(500));
    let refused = setting.send_with("hello", key.clone()).await;
    assert_eq!(refused.code(), "UNAVAILABLE");
    setting.receiver.answer(|_| allow());
    let first = sent(setting.send_with("hello", key.clone()).await);
    assert_eq!(
        setting.receiver.received().len(),
        2,
        "nothing was stored before"
    );
    setting.receiver.answer(|_| reject("too late"));
    for _ in 0..3 {
        assert_eq!(sent(setting.send_with("hello", key.clone()).await), first);
    }
    let conflict = setting.send_with("other", key).await;
    assert_eq!(conflict.code(), "CONFLICT");
    assert_eq!(setting.receiver.received().len(), 2);
}

#[tokio::test]
async fn a_message_that_the_rules_refuse_is_not_asked_about() {
    let setting = Setting::new(HookFailureMode::Allow).await;
    let slow = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, slowModeSeconds: 60}) { conversation { id } } }";
    setting.alice.data(slow, json!({"c": setting.group})).await;
    let bob = setting.server.user("bob");
    let variables = json!({"c": setting.group, "b": "first"});
    bob.data(SEND, variables.clone()).await;
    let refused = bob.ask(SEND, variables).await;
    assert_eq!(refused.code(), "RATE_LIMITED");
    let carol = setting.server.user("carol");
    let stranger = carol.ask(SEND, json!({"c": setting.group, "b": "x"})).await;
    assert_eq!(stranger.code(), "NOT_FOUND");
    assert_eq!(setting.send(" ").await.code(), "BAD_USER_INPUT");
    let (id, _) = sent(setting.send("mine").await);
    let foreign = bob.ask(EDIT, json!({"m": id, "b": "yours"})).await;
    assert_eq!(foreign.code(), "FORBIDDEN");
    assert_eq!(setting.receiver.received().len(), 2);
}

#[tokio::test]
async fn services_that_moderate_are_not_asked_about_and_others_are() {
    let setting = Setting::new(HookFailureMode::Allow).await;
    setting.receiver.answer(|_| reject("no"));
    let door = Door::of(&setting.server.chat);
    let name = door
        .ask(&door.service(), "{ viewer { username } }", &json!({}))
        .await;
    let name = name.json()["data"]["viewer"]["username"].clone();
    let add = "mutation($c: ID!, $u: String!) { addParticipants(input: {conversationId: $c, usernames: [$u]}) { conversation { id } } }";
    setting
        .alice
        .data(add, json!({"c": setting.group, "u": name}))
        .await;
    let variables = json!({"c": setting.group, "b": "hello"});
    let said = door.ask(&door.service(), SEND, &variables).await;
    assert!(said.json().get("errors").is_none(), "{said:?}");
    assert!(
        setting.receiver.received().is_empty(),
        "SYSTEM messages neither"
    );
    let acting = door.service().acting_as("alice");
    let narrow = door.scoped(SERVICE, "wideroom:outbox wideroom:read");
    for badge in [acting, narrow] {
        let said = door.ask(&badge, SEND, &variables).await;
        assert_eq!(said.code(), "FORBIDDEN");
    }
    let asked = setting.receiver.received();
    let senders: Vec<_> = asked
        .iter()
        .map(|one| one.json()["sender"].take())
        .collect();
    assert_eq!(senders, ["alice", SERVICE]);
}

/// Answers that are none, and the outcome of each way to decide without one.
#[tokio::test]
async fn without_a_decision_the_configuration_decides() {
    let answers: [fn(&Received) -> Reply; 10] = [
        |_| Reply::Status(500),
        |_| Reply::Status(204),
        |_| Reply::Status(404),
        |_| Reply::With(302, "location: http://127.0.0.1:1/"),
        |_| Reply::Long(10 << 20),
        |_| Reply::Hang,
        |_| Reply::Close,
        |_| Reply::Json(200, "allow".to_owned()),
        |_| Reply::Json(200, json!({"decision": "perhaps"}).to_string()),
        |_| Reply::Json(500, json!({"decision": "reject"}).to_string()),
    ];
    let allowing = Setting::with(HookFailureMode::Allow, SHORT).await;
    let refusing = Setting::with(HookFailureMode::Refuse, SHORT).await;
    for answer in answers {
        for setting in [&allowing, &refusing] {
            setting.receiver.answer(answer);
        }
        let sends = async { tokio::join!(allowing.send("hello"), refusing.send("hello")) };
        let (allowed, refused) = soon(sends).await;
        sent(allowed);
        assert_eq!(refused.code(), "UNAVAILABLE");
        assert_eq!(refused.extensions()["outcome"], "NOT_DONE");
    }
    // A connection that is refused.
    for setting in [&allowing, &refusing] {
        setting.receiver.kill();
    }
    sent(allowing.send("hello").await);
    assert_eq!(refusing.send("hello").await.code(), "UNAVAILABLE");
    assert_eq!(allowing.bodies().await.len(), 11);
    assert!(refusing.bodies().await.is_empty());
    assert_eq!(refusing.count("failure"), 11.0);
}

#[tokio::test]
async fn after_many_failures_the_hook_is_left_alone_for_a_while() {
    let setting = Setting::new(HookFailureMode::Refuse).await;
    setting.receiver.answer(|_| Reply::Status(500));
    for _ in 0..20 {
        assert_eq!(setting.send("hello").await.code(), "UNAVAILABLE");
    }
    assert_eq!(setting.receiver.received().len(), 20);
    let began = Instant::now();
    setting.receiver.answer(|_| allow());
    for _ in 0..5 {
        assert_eq!(setting.send("hello").await.code(), "UNAVAILABLE");
    }
    if began.elapsed() < Duration::from_secs(5) {
        assert_eq!(setting.receiver.received().len(), 20);
        assert_eq!(setting.count("skipped"), 5.0);
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    sent(setting.send("hello").await);
    // One success closes it for good.
    setting.receiver.answer(|_| Reply::Status(500));
    setting.send("hello").await.code();
    setting.receiver.answer(|_| allow());
    sent(setting.send("hello").await);
}

/// A question lasts long: what the sender may no longer do after it, is not done.
#[tokio::test]
async fn what_changes_while_the_hook_is_asked_decides() {
    let setting = Setting::with(HookFailureMode::Refuse, Duration::from_secs(60)).await;
    let door = Door::of(&setting.server.chat);
    let by_service = async |field: &str| {
        let document = format!("mutation {{ {field} {{ __typename }} }}");
        let said = door.ask(&door.service(), &document, &json!({})).await;
        assert!(said.json().get("errors").is_none(), "{said:?}");
    };
    let (alice, group) = (&setting.alice, &setting.group);
    let bob = setting.server.user("bob");
    let (id, _) = sent(setting.send("mine").await);
    let direct = alice.direct("bob").await;
    let during = async |asked: Pin<Box<dyn Future<Output = Answer> + '_>>, change: &str| {
        let release = Arc::new(Notify::new());
        let held = Arc::clone(&release);
        setting.receiver.answer(move |_| {
            let allow = json!({"decision": "allow"}).to_string();
            Reply::Held(Arc::clone(&held), allow)
        });
        let before = setting.receiver.received().len();
        let changed = async {
            setting.receiver.until(|all| all.len() > before).await;
            by_service(change).await;
            release.notify_one();
        };
        tokio::join!(asked, changed).0
    };
    let suspend = "suspendUser(input: {username: \"alice\"})";
    let restore = "restoreUser(input: {username: \"alice\"})";
    let refused = during(Box::pin(setting.send("one")), suspend).await;
    assert_eq!(refused.code(), "FORBIDDEN");
    by_service(restore).await;
    let edit = Box::pin(alice.ask(EDIT, json!({"m": id, "b": "yours"})));
    assert_eq!(during(edit, suspend).await.code(), "FORBIDDEN");
    by_service(restore).await;
    let revoke = "revokeTokens(input: {username: \"alice\"})";
    let refused = during(Box::pin(setting.send("two")), revoke).await;
    assert_eq!(refused.code(), "UNAVAILABLE");
    assert_eq!(refused.extensions()["outcome"], "NOT_DONE");
    let slow =
        format!("updateConversation(input: {{conversationId: \"{group}\", slowModeSeconds: 600}})");
    let say = |c: &str| Box::pin(bob.ask(SEND, json!({"c": c, "b": "bob's"})));
    sent(during(say(group), &slow).await);
    assert_eq!(say(group).await.code(), "RATE_LIMITED");
    let member = format!(
        "setParticipantRole(input: {{conversationId: \"{group}\", username: \"bob\", role: ADMIN}})"
    );
    by_service(&member).await;
    let member = member.replace("ADMIN", "MEMBER");
    assert_eq!(during(say(group), &member).await.code(), "RATE_LIMITED");
    // The block is bob's own: he writes nothing there any more.
    let release = Arc::new(Notify::new());
    let held = Arc::clone(&release);
    setting
        .receiver
        .answer(move |_| Reply::Held(Arc::clone(&held), json!({"decision": "allow"}).to_string()));
    let before = setting.receiver.received().len();
    let block = async {
        setting.receiver.until(|all| all.len() > before).await;
        let block = "mutation { blockUser(input: {username: \"alice\"}) { __typename } }";
        bob.data(block, json!({})).await;
        release.notify_one();
    };
    let refused = tokio::join!(say(&direct), block).0;
    assert_eq!(refused.code(), "FORBIDDEN");
    let document = "query($c: ID!) { conversation(id: $c) { messages(last: 100) { edges { node { kind body } } } } }";
    let stored = alice.data(document, json!({"c": group})).await;
    let stored = stored["conversation"]["messages"]["edges"]
        .as_array()
        .unwrap()
        .iter();
    let texts: Vec<_> = stored
        .filter(|edge| edge["node"]["kind"] == "TEXT")
        .collect();
    let texts: Vec<_> = texts
        .iter()
        .map(|edge| text(&edge["node"]["body"]))
        .collect();
    assert_eq!(texts, ["bob's", "mine"]);
}

#[tokio::test]
async fn a_slow_hook_holds_up_no_other_conversation_and_no_reader() {
    let setting = Setting::with(HookFailureMode::Allow, 10 * SHORT).await;
    setting.receiver.answer(|received| {
        if received.json()["body"] == "slow" {
            Reply::Hang
        } else {
            allow()
        }
    });
    let ended = async |body: &str| {
        sent(setting.send(body).await);
        Instant::now()
    };
    let (slow, quick) = tokio::join!(ended("slow"), ended("quick"));
    assert!(quick < slow, "{:?}", quick - slow);
    assert_eq!(setting.bodies().await, ["slow", "quick"]);
}
