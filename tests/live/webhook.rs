//! Webhooks to receivers that behave well, and to those that do not.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use wideroom::chat::OutboxTypes;
use wideroom::webhook::{RetryPolicy, WebhookError, WebhookSettings, Webhooks};

use super::chat_server::ChatServer;
use crate::support::node::Node;
use crate::support::python;
use crate::support::receiver::{NEXT_SECRET, Received, Receiver, Reply, SECRET};
use crate::support::world::{Actor, PATIENCE};

/// Pauses that a test can wait for, and a deadline that a receiver meets on a busy machine.
const POLICY: RetryPolicy = RetryPolicy {
    first: Duration::from_millis(50),
    longest: Duration::from_millis(400),
    refusals: [Duration::from_millis(50), Duration::from_millis(100)],
    deadline: Duration::from_secs(4),
};

struct Setting {
    server: ChatServer,
    receiver: Receiver,
    folder: TempDir,
    alice: Actor,
    direct: String,
}

impl Setting {
    async fn new() -> Self {
        let server = ChatServer::with_outbox().await;
        let alice = server.user("alice");
        let direct = alice.direct("bob").await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), SECRET).unwrap();
        let receiver = Receiver::start().await;
        Self {
            server,
            receiver,
            folder,
            alice,
            direct,
        }
    }

    fn secret_file(&self) -> PathBuf {
        self.folder.path().join("secret")
    }

    /// A webhook of added messages.
    fn settings(&self) -> WebhookSettings {
        WebhookSettings {
            types: OutboxTypes::parse(&["MESSAGE_ADDED".to_owned()]).unwrap(),
            ..self.receiver.settings("backend", self.secret_file())
        }
    }

    async fn open(&self) -> Webhooks {
        self.server
            .webhooks(&[self.settings()], POLICY)
            .await
            .unwrap()
    }

    /// Sends so many messages, and returns their ids.
    async fn send(&self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        for number in 0..count {
            let body = format!("message {number}");
            ids.push(self.alice.send(&self.direct, &body).await.uuid);
        }
        ids
    }
}

fn ids(received: &[Received]) -> Vec<&str> {
    received.iter().map(Received::id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_event_is_sent_signed_and_in_order() {
    let setting = Setting::new().await;
    let all = WebhookSettings {
        types: OutboxTypes::default(),
        ..setting.settings()
    };
    let _webhooks = setting.server.webhooks(&[all], POLICY).await.unwrap();
    let sent = setting.send(5).await;
    let group = setting.alice.group("a group", &["bob", "carol"]).await;
    let received = setting.receiver.until(|all| all.len() >= 6).await;
    let bodies: Vec<_> = received.iter().map(Received::json).collect();
    for (received, body) in received.iter().zip(&bodies) {
        assert!(received.is_signed_by(SECRET) && !received.is_signed_by(NEXT_SECRET));
        assert_eq!(received.headers["content-type"], "application/json");
        let outbox = &body["data"]["outbox"];
        assert_eq!(outbox["id"], received.id());
        assert_eq!(outbox["occurredAt"], body["timestamp"]);
        assert_eq!(outbox["cursor"], body["cursor"]);
        assert!(body.get("errors").is_none(), "{body}");
    }
    let of = |kind: &str| -> Vec<_> {
        let is_kind = bodies.iter().filter(|body| body["type"] == kind);
        is_kind.map(|body| &body["data"]["outbox"]).collect()
    };
    let added = of("MESSAGE_ADDED");
    let order: Vec<_> = added
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(order, sent);
    let node = &added[0]["event"]["messageEdge"]["node"];
    assert_eq!(node["body"], "message 0");
    assert_eq!(node["sender"]["username"], "alice");
    assert_eq!(added[0]["conversation"]["id"], setting.direct);
    let created = of("CONVERSATION_CREATED");
    assert_eq!(created.len(), 1);
    assert_eq!(created[0]["conversation"]["id"], group);
    // Another webhook begins with the next event.
    assert!(received.iter().all(|one| one.tries == 0));
}

/// Requests with one signature, and with two, in a file.
async fn requests(setting: &Setting, secrets: &[&str]) -> String {
    std::fs::write(setting.secret_file(), secrets.join("\n")).unwrap();
    let webhooks = setting.open().await;
    setting
        .alice
        .send(&setting.direct, "Zoë — 👍\n\"quoted\"")
        .await;
    setting.send(2).await;
    let received = setting.receiver.until(|all| all.len() == 3).await;
    drop(webhooks);
    let shown = |one: &Received| serde_json::json!({ "headers": one.headers, "body": one.body });
    let list: Vec<_> = received.iter().map(shown).collect();
    let path = setting.folder.path().join("requests.json");
    std::fs::write(&path, serde_json::to_string(&list).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_libraries_verify_the_signatures() {
    let node = tokio::task::block_in_place(Node::installed);
    for secrets in [&[SECRET][..], &[NEXT_SECRET, SECRET]] {
        let setting = Setting::new().await;
        let file = requests(&setting, secrets).await;
        let arguments = [&[file.as_str()], secrets].concat();
        tokio::task::block_in_place(|| {
            if let Some(node) = &node {
                node.run("webhook.js", &arguments);
            }
            python::run("webhook.py", &arguments);
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_event_is_sent_again_before_the_next_one() {
    let setting = Setting::new().await;
    let _webhooks = setting.open().await;
    setting.receiver.answer(|request| match request.tries {
        0 => Reply::Status(500),
        1 => Reply::Close,
        2 => Reply::Hang,
        3 => Reply::With(302, "location: http://127.0.0.1:9/"),
        4 => Reply::Status(409),
        _ => Reply::Long(10 << 20),
    });
    let sent = setting.send(2).await;
    let received = setting.receiver.until(|all| all.len() >= 12).await;
    let expected: Vec<_> = [[&*sent[0]; 6], [&*sent[1]; 6]].concat();
    assert_eq!(ids(&received), expected);
    setting.receiver.answer(|_| Reply::Status(200));
    setting.send(1).await;
    setting.receiver.until(|all| all.len() == 13).await;
    assert_eq!(
        setting
            .server
            .metric("wideroom_webhook_tries_total{outcome=\"failed\",webhook=\"backend\"}"),
        8.0,
        "a request on a kept connection that closes is sent once more at once"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_conversation_passes_a_failed_event() {
    let setting = Setting::new().await;
    let _webhooks = setting.open().await;
    let first = setting.send(1).await;
    setting.receiver.until(|all| all.len() == 1).await;
    let blocked = setting.direct.clone();
    setting.receiver.answer(move |request| {
        let is_blocked = request.json()["data"]["outbox"]["conversation"]["id"] == *blocked;
        Reply::Status(if is_blocked { 503 } else { 200 })
    });
    setting.send(2).await;
    // Most of these share no shard with the blocked one, and some do.
    let mut others = BTreeSet::new();
    for number in 0..40 {
        let group = setting
            .alice
            .group(&format!("group {number}"), &["bob"])
            .await;
        others.insert(setting.alice.send(&group, "passes").await.uuid);
    }
    let has_all = |all: &[Received]| {
        let received: BTreeSet<_> = all.iter().map(Received::id).collect();
        others.iter().all(|id| received.contains(id.as_str()))
    };
    let received = setting.receiver.until(has_all).await;
    let distinct: BTreeSet<_> = ids(&received).into_iter().collect();
    assert_eq!(
        distinct.len(),
        first.len() + 1 + others.len(),
        "the second waits for the first"
    );
    setting.receiver.answer(|_| Reply::Status(200));
    setting
        .receiver
        .until(|all| ids(all).into_iter().collect::<BTreeSet<_>>().len() == 43)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_asks_for_a_pause_gets_it() {
    let setting = Setting::new().await;
    let _webhooks = setting.open().await;
    setting.receiver.answer(|request| match request.tries {
        0 => Reply::With(429, "retry-after: 2"),
        _ => Reply::Status(200),
    });
    setting.send(1).await;
    setting.receiver.until(|all| all.len() == 1).await;
    let group = setting.alice.group("another", &["bob"]).await;
    setting.alice.send(&group, "waits too").await;
    let received = setting.receiver.until(|all| all.len() >= 3).await;
    let pause = received[1].at - received[0].at;
    assert!(pause >= Duration::from_millis(1_950), "{pause:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_event_becomes_a_dead_letter_and_is_redelivered() {
    let setting = Setting::new().await;
    let webhooks = setting.open().await;
    setting.receiver.answer(|_| Reply::Status(404));
    let sent = setting.send(2).await;
    let received = setting.receiver.until(|all| all.len() >= 6).await;
    let expected: Vec<_> = [[&*sent[0]; 3], [&*sent[1]; 3]].concat();
    assert_eq!(ids(&received), expected, "three tries each");
    let list = async || webhooks.list().await.unwrap();
    let began = std::time::Instant::now();
    while !list().await.contains("2 dead letters") {
        assert!(began.elapsed() < PATIENCE, "{}", list().await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let shown = list().await;
    assert!(
        shown.contains(&sent[0]) && shown.contains("the receiver answers 404 after 3 tries"),
        "{shown}"
    );
    let redeliver = async |event| webhooks.redeliver("backend", event).await.unwrap().unwrap();
    assert_eq!(
        redeliver(None).await,
        "0 delivered, 2 left: the receiver answers 404\n"
    );
    setting.receiver.answer(|_| Reply::Status(200));
    assert_eq!(
        redeliver(Some(sent[1].as_str())).await,
        "1 delivered, 0 left\n"
    );
    assert_eq!(redeliver(None).await, "1 delivered, 0 left\n");
    assert!(list().await.contains("0 dead letters"));
    assert!(webhooks.redeliver("nobody", None).await.is_none());
    let received = setting.receiver.received();
    assert_eq!(ids(&received[8..]), [&sent[1], &sent[0]]);
    let dead = "wideroom_webhook_dead_letters_total{webhook=\"backend\"}";
    assert_eq!(setting.server.metric(dead), 2.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_is_gone_is_asked_no_more_until_the_next_start() {
    let setting = Setting::new().await;
    let webhooks = setting.open().await;
    setting.receiver.answer(|_| Reply::Status(410));
    let sent = setting.send(1).await;
    setting.receiver.until(|all| all.len() == 1).await;
    setting.receiver.answer(|_| Reply::Status(200));
    let later = setting.send(2).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(setting.receiver.received().len(), 1);
    assert!(
        webhooks
            .list()
            .await
            .unwrap()
            .contains("off since the receiver answered 410")
    );
    webhooks.finish().await;
    drop(webhooks);
    // The metrics of a process are registered once.
    let metrics = wideroom::metrics::Metrics::default();
    let _again = setting
        .server
        .webhooks_with(&[setting.settings()], POLICY, &metrics)
        .await
        .unwrap();
    let received = setting.receiver.until(|all| all.len() >= 4).await;
    assert_eq!(ids(&received[1..]), [&sent[0], &later[0], &later[1]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_rotates_with_two_signatures() {
    let setting = Setting::new().await;
    let both = format!("{NEXT_SECRET}\n{SECRET}\n");
    std::fs::write(setting.secret_file(), both).unwrap();
    let _webhooks = setting.open().await;
    setting.send(1).await;
    let received = setting.receiver.until(|all| all.len() == 1).await;
    assert!(received[0].is_signed_by(SECRET) && received[0].is_signed_by(NEXT_SECRET));
    std::fs::write(setting.secret_file(), NEXT_SECRET).unwrap();
    // The file is looked at every five seconds.
    tokio::time::sleep(Duration::from_millis(5_200)).await;
    setting.send(1).await;
    let received = setting.receiver.until(|all| all.len() == 2).await;
    assert!(!received[1].is_signed_by(SECRET) && received[1].is_signed_by(NEXT_SECRET));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_chooses_the_payload_and_deleted_text_is_not_sent() {
    let setting = Setting::new().await;
    let document = "subscription { outbox { event { ... on MessageAddedEvent { messageEdge { node { body deletedAt } } } } } }";
    let settings = WebhookSettings {
        document: Some(document.to_owned()),
        ..setting.settings()
    };
    let _webhooks = setting.server.webhooks(&[settings], POLICY).await.unwrap();
    setting.receiver.answer(|_| Reply::Status(500));
    let sent = setting.alice.send(&setting.direct, "hunter2").await;
    let received = setting.receiver.until(|all| !all.is_empty()).await;
    let node = |received: &Received| {
        let event = received.json()["data"]["outbox"]["event"].take();
        event["messageEdge"]["node"].clone()
    };
    assert_eq!(node(&received[0])["body"], "hunter2");
    let delete = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }";
    let variables = serde_json::json!({ "m": sent.id });
    setting.alice.data(delete, variables).await;
    let before = setting.receiver.received().len();
    let received = setting.receiver.until(|all| all.len() > before + 1).await;
    let last = received.last().unwrap();
    assert!(!last.body.contains("hunter2"), "{}", last.body);
    assert!(node(last)["deletedAt"].is_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_needs_the_outbox_its_secret_and_a_document() {
    let setting = Setting::new().await;
    let refused = async |settings: WebhookSettings| {
        let opened = setting.server.webhooks(&[settings], POLICY).await;
        opened.err().unwrap()
    };
    let document = WebhookSettings {
        document: Some("{ viewer { username } }".to_owned()),
        ..setting.settings()
    };
    assert!(matches!(
        refused(document).await,
        WebhookError::Unusable { reason, .. } if reason.starts_with("the document is refused")
    ));
    let server = ChatServer::start(Default::default(), Default::default()).await;
    let opened = server.webhooks(&[setting.settings()], POLICY).await;
    assert!(matches!(opened, Err(WebhookError::OutboxOff)));
}

/// A server that ends releases its shards; the next one goes on where it stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_the_time_without_webhooks_are_sent_later() {
    let setting = Setting::new().await;
    let webhooks = setting.open().await;
    let first = setting.send(3).await;
    setting.receiver.until(|all| all.len() == 3).await;
    webhooks.finish().await;
    let missed = setting.send(3).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(setting.receiver.received().len(), 3);
    let metrics = wideroom::metrics::Metrics::default();
    let _again = setting
        .server
        .webhooks_with(&[setting.settings()], POLICY, &metrics)
        .await
        .unwrap();
    let received = setting.receiver.until(|all| all.len() >= 6).await;
    assert_eq!(ids(&received), [first, missed].concat());
}
