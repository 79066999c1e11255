//! Notifications: who is notified of a message, through webhooks, the outbox, and the push worker that operators copy.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use wideroom::chat::{Bounds, Draft, DraftInput, OutboxTypes};
use wideroom::model::{MessageId, UserId, Viewer};
use wideroom::webhook::{RetryPolicy, WebhookSettings};

use super::chat_server::ChatServer;
use crate::support::client::Socket;
use crate::support::node::Node;
use crate::support::program::Running;
use crate::support::receiver::{Received, Receiver, SECRET};
use crate::support::world::group_of;

/// Short, so that the tests are.
const NOTIFY_AFTER: Duration = Duration::from_millis(700);
/// For sends and marks that come before it, also on a busy machine.
const NOTIFY_LATER: Duration = Duration::from_secs(3);

const DOCUMENT: &str = "subscription { outbox { id conversation { id uuid name } event { ... on NotificationEvent {
    message { id uuid body sender { username displayName } }
    recipients { user { username } reason unreadCount unreadMentionCount unreadConversationCount isOnline } } } } }";

async fn server() -> ChatServer {
    server_after(NOTIFY_AFTER).await
}

async fn server_after(notify_after: Duration) -> ChatServer {
    let bounds = Bounds {
        notify_after,
        ..Bounds::default()
    };
    ChatServer::with_outbox_and(bounds).await
}

fn settings(receiver: &Receiver, folder: &Path) -> WebhookSettings {
    let secret_file = folder.join("secret");
    std::fs::write(&secret_file, SECRET).unwrap();
    WebhookSettings {
        types: OutboxTypes::parse(&["NOTIFICATION".to_owned()]).unwrap(),
        document: Some(DOCUMENT.to_owned()),
        ..receiver.settings("push", secret_file)
    }
}

fn event(received: &Received) -> Value {
    let mut body = received.json();
    assert!(body.get("errors").is_none(), "{body}");
    assert_eq!(body["type"], "NOTIFICATION");
    body["data"]["outbox"]["event"].take()
}

fn usernames(event: &Value) -> Vec<&str> {
    let recipients = event["recipients"].as_array().unwrap().iter();
    recipients
        .map(|one| one["user"]["username"].as_str().unwrap())
        .collect()
}

/// A group that a third user has made, who has left: its messages are nobody's request.
async fn group_of_another(server: &ChatServer, usernames: &[&str]) -> String {
    let zoe = server.user("zoe");
    let group = zoe.group("a group", usernames).await;
    let leave =
        "mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { __typename } }";
    zoe.data(leave, json!({ "c": group })).await;
    group
}

/// The minute of the clock in which a message was sent.
fn minute(uuid: &str) -> i64 {
    let id = MessageId::parse(uuid).unwrap();
    id.moment().micros() / 60_000_000
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_notifies_once_a_minute_and_a_service_each_time() {
    let server = server().await;
    let (receiver, folder) = (Receiver::start().await, tempfile::tempdir().unwrap());
    let all = [settings(&receiver, folder.path())];
    let _webhooks = server.webhooks(&all, RetryPolicy::default()).await.unwrap();
    let [mallory, bob] = ["mallory", "bob"].map(|name| server.user(name));
    let spam = mallory.group("spam", &["bob", "carol"]).await;
    let mut sent = Vec::new();
    for number in 0..4 {
        sent.push(mallory.send(&spam, &number.to_string()).await.uuid);
    }
    let is_of = |one: &Received, uuid: &str| one.id().starts_with(uuid);
    receiver
        .until(|all| all.iter().any(|one| is_of(one, &sent[0])))
        .await;
    sent.push(bob.send(&spam, "who are you?").await.uuid);
    sent.push(mallory.send(&spam, "a friend").await.uuid);
    let received = receiver
        .until(|all| all.iter().any(|one| is_of(one, &sent[5])))
        .await;
    let notified = |uuid: &str| -> Vec<Value> {
        let events = received.iter().filter(|one| is_of(one, uuid)).map(event);
        let part = |one: &Value| json!([one["user"]["username"], one["reason"]]);
        let parts = |event: Value| -> Vec<Value> {
            event["recipients"]
                .as_array()
                .unwrap()
                .iter()
                .map(part)
                .collect()
        };
        events.flat_map(parts).collect()
    };
    let (carol, reader) = (json!(["carol", "REQUEST"]), json!(["bob", "GROUP"]));
    for (index, uuid) in sent.iter().enumerate() {
        let is_first = sent[..index]
            .iter()
            .all(|earlier| minute(earlier) != minute(uuid));
        // Bob is no stranger, also where his message is the first of a minute.
        let is_of_bob = index == 4;
        assert_eq!(
            notified(uuid).contains(&carol),
            is_first && !is_of_bob,
            "{index}: {received:?}"
        );
        assert_eq!(notified(uuid).contains(&reader), index == 5, "{index}");
    }
    assert!(notified(&sent[4]).contains(&json!(["carol", "GROUP"])));
    assert!(notified(&sent[0]).contains(&json!(["bob", "REQUEST"])));
    // A service, under its own name, is no stranger.
    let service = Viewer::service(UserId::parse("backend").unwrap());
    let writes = &server.chat.writes;
    let dave = ["dave".to_owned()];
    let news = writes.create_group(&service, group_of("news", &dave, None));
    let news = news.await.unwrap().id;
    for number in 0..2 {
        let input = DraftInput {
            body: number.to_string(),
            ..DraftInput::default()
        };
        let draft = Draft::parse(input, &Bounds::default()).unwrap();
        let message = writes.send(&service, news, draft).await.unwrap();
        let uuid = message.id.to_string();
        let received = receiver
            .until(|all| all.iter().any(|one| is_of(one, &uuid)))
            .await;
        let of_service = event(received.iter().find(|one| is_of(one, &uuid)).unwrap());
        let recipient = &of_service["recipients"][0];
        assert_eq!(recipient["user"]["username"], "dave");
        assert_eq!(recipient["reason"], "GROUP");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn participants_who_have_not_read_are_notified() {
    let server = server_after(NOTIFY_LATER).await;
    let (receiver, folder) = (Receiver::start().await, tempfile::tempdir().unwrap());
    let all = [settings(&receiver, folder.path())];
    let _webhooks = server.webhooks(&all, RetryPolicy::default()).await.unwrap();
    let [alice, bob, carol, dave] = ["alice", "bob", "carol", "dave"].map(|name| server.user(name));
    let direct = alice.direct("bob").await;
    let names = ["alice", "bob", "carol", "dave", "erin"];
    let group = group_of_another(&server, &names).await;
    let online = server.socket("bob").await;
    let mute = "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, muted: true}) { inboxEntry { isMuted } } }";
    carol.data(mute, json!({ "c": group })).await;
    let block = "mutation { blockUser(input: {username: \"alice\"}) { user { username } } }";
    dave.data(block, json!({})).await;
    let first = alice.send(&direct, "hello").await;
    let second = alice.send(&group, "hello all").await;
    // Read at once: nobody is left to notify.
    let read = alice.send(&direct, "read at once").await;
    bob.mark_read(&direct, Some(&read.id)).await;
    let last = bob.send(&direct, "and back").await;
    let received = receiver.until(|all| all.len() >= 2).await;
    let ids: Vec<_> = received.iter().map(Received::id).collect();
    assert!(
        ids.contains(&format!("{}:notification", second.uuid).as_str()),
        "{ids:?}"
    );
    assert!(
        ids.contains(&format!("{}:notification", last.uuid).as_str()),
        "{ids:?}"
    );
    assert!(
        !ids.iter()
            .any(|id| id.starts_with(&first.uuid) || id.starts_with(&read.uuid))
    );
    let of = |uuid: &str| {
        let is_of = |one: &&Received| one.id().starts_with(uuid);
        event(received.iter().find(is_of).unwrap())
    };
    let in_group = of(&second.uuid);
    assert_eq!(usernames(&in_group), ["bob", "erin"]);
    assert_eq!(
        in_group["recipients"][0],
        json!({"user": {"username": "bob"}, "reason": "GROUP", "unreadCount": 1, "unreadMentionCount": 0,
            "unreadConversationCount": 1, "isOnline": true})
    );
    assert_eq!(in_group["recipients"][1]["isOnline"], false);
    assert_eq!(in_group["message"]["body"], "hello all");
    let in_direct = of(&last.uuid);
    assert_eq!(usernames(&in_direct), ["alice"]);
    assert_eq!(in_direct["recipients"][0]["reason"], "DIRECT");
    let waited = received.iter().map(|one| one.at).min().unwrap();
    assert!(waited.elapsed() < Duration::from_secs(60));
    drop(online);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn levels_and_mentions_decide_who_is_notified() {
    let server = server().await;
    let (receiver, folder) = (Receiver::start().await, tempfile::tempdir().unwrap());
    let all = [settings(&receiver, folder.path())];
    let _webhooks = server.webhooks(&all, RetryPolicy::default()).await.unwrap();
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| server.user(name));
    let group = group_of_another(&server, &["alice", "bob", "carol", "dave"]).await;
    let level = "mutation($i: UpdateInboxEntryInput!) { updateInboxEntry(input: $i) { inboxEntry { notificationLevel } } }";
    for (actor, level_of) in [(&bob, "NONE"), (&carol, "MENTIONS")] {
        let input = json!({"conversationId": group, "notificationLevel": level_of});
        actor.data(level, json!({"i": input})).await;
    }
    let crowd: Vec<_> = (0..40).map(|number| format!("user-{number}")).collect();
    let crowd: Vec<_> = crowd.iter().map(String::as_str).collect();
    let large = alice.group("a crowd", &crowd).await;
    let send = "mutation($i: SendMessageInput!) { sendMessage(input: $i) { messageEdge { node { uuid } } } }";
    let mut sent = Vec::new();
    for (c, names, everyone) in [
        (&group, json!([]), false),
        (&group, json!(["bob", "carol"]), false),
        (&group, json!([]), true),
        (&large, json!(["user-7"]), false),
    ] {
        let input = json!({"conversationId": c, "body": "hello", "mentionedUsernames": names, "mentionsEveryone": everyone});
        let data = alice.data(send, json!({"i": input})).await;
        sent.push(
            data["sendMessage"]["messageEdge"]["node"]["uuid"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    let received = receiver.until(|all| all.len() >= 4).await;
    let notified = |uuid: &str| {
        let is_of = |one: &&Received| one.id().starts_with(uuid);
        let event = event(received.iter().find(is_of).unwrap());
        let recipients = event["recipients"].as_array().unwrap().iter();
        let part = |one: &Value| json!([one["user"]["username"], one["reason"]]);
        recipients.map(part).collect::<Vec<_>>()
    };
    assert_eq!(notified(&sent[0]), [json!(["dave", "GROUP"])]);
    assert_eq!(
        notified(&sent[1]),
        [json!(["carol", "MENTION"]), json!(["dave", "GROUP"])]
    );
    assert_eq!(
        notified(&sent[2]),
        [json!(["carol", "EVERYONE"]), json!(["dave", "EVERYONE"])]
    );
    assert_eq!(notified(&sent[3]), [json!(["user-7", "REQUEST"])]);
    let is_last = |one: &&Received| one.id().starts_with(&sent[3]);
    let last = event(received.iter().find(is_last).unwrap());
    assert_eq!(last["recipients"][0]["unreadMentionCount"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_edit_notifies_those_whom_it_mentions_anew() {
    let server = server().await;
    let (receiver, folder) = (Receiver::start().await, tempfile::tempdir().unwrap());
    let all = [settings(&receiver, folder.path())];
    let [alice, bob, carol, dave] = ["alice", "bob", "carol", "dave"].map(|name| server.user(name));
    let group = alice.group("a group", &["bob", "carol", "dave"]).await;
    // All of them have answered: they have read a message.
    let welcome = alice.send(&group, "welcome").await;
    for user in [&bob, &carol, &dave] {
        user.mark_read(&group, Some(&welcome.id)).await;
    }
    let _webhooks = server.webhooks(&all, RetryPolicy::default()).await.unwrap();
    let level = "mutation($i: UpdateInboxEntryInput!) { updateInboxEntry(input: $i) { inboxEntry { notificationLevel } } }";
    let input = json!({"conversationId": group, "notificationLevel": "MENTIONS"});
    carol.data(level, json!({"i": input})).await;
    let sent = alice.send(&group, "hello").await;
    bob.mark_read(&group, Some(&sent.id)).await;
    let edit = "mutation($i: EditMessageInput!) { editMessage(input: $i) { message { id } } }";
    for (body, names) in [
        ("hello there", json!(["carol"])),
        ("hello there", json!(["bob", "carol", "dave"])),
        ("hello again", json!(["bob", "carol", "dave"])),
    ] {
        let input = json!({"messageId": sent.id, "body": body, "mentionedUsernames": names});
        alice.data(edit, json!({"i": input})).await;
    }
    let last = alice.send(&group, "the last").await;
    let received = receiver.until(|all| all.len() >= 4).await;
    let of = |one: &Received| one.id().trim_end_matches(":notification").to_owned();
    assert_eq!(of(&received[0]), sent.uuid);
    assert_eq!(
        of(&received[3]),
        last.uuid,
        "an edit of the text notifies nobody"
    );
    let [first, second] = [&received[1], &received[2]].map(event);
    assert_eq!(usernames(&first), ["carol"]);
    assert_eq!(usernames(&second), ["dave"], "bob has read past it");
    for edited in [&first, &second] {
        assert_eq!(edited["message"]["uuid"], sent.uuid);
        assert_eq!(edited["recipients"][0]["reason"], "MENTION");
    }
    let ids = received.iter().map(of).collect::<BTreeSet<_>>();
    assert_eq!(ids.len(), 4, "each edit has an id of its own: {ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_asks_for_notifications_trails_and_others_do_not() {
    let server = server().await;
    let alice = server.user("alice");
    let direct = alice.direct("bob").await;
    let token = server.outbox_token();
    let mut socket = Socket::connect(server.address, &token).await;
    let document = |types: &str| {
        format!(
            "subscription {{ outbox{types} {{ cursor id event {{ __typename ... on NotificationEvent {{ recipients {{ user {{ username }} }} }} }} }} }}"
        )
    };
    socket.subscribe("plain", &document("")).await;
    socket.told("plain").await;
    let sent = alice.send(&direct, "hello").await;
    server.user("bob").mark_read(&direct, None).await;
    let plain = socket.told("plain").await["outbox"].take();
    assert_eq!(plain["event"]["__typename"], "MessageAddedEvent");
    let after = plain["cursor"].as_str().unwrap();
    let large: Vec<_> = (0..40).map(|number| format!("user-{number}")).collect();
    let large: Vec<_> = large.iter().map(String::as_str).collect();
    let crowd = alice.group("a crowd", &large).await;
    let mut both = Socket::connect(server.address, &token).await;
    let types = "(types: [MESSAGE_ADDED, NOTIFICATION])";
    both.subscribe("both", &document(types)).await;
    both.told("both").await;
    alice.send(&crowd, "hello crowd").await;
    let again = alice.send(&direct, "again").await;
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let payload = both.told("both").await["outbox"].take();
        seen.push((
            payload["id"].clone(),
            payload["event"]["__typename"].clone(),
        ));
        // The crowd is large, and nobody there chose ALL.
        seen.retain(|(id, _)| id.as_str().unwrap().starts_with(&again.uuid));
    }
    assert_eq!(seen[0], (json!(again.uuid), json!("MessageAddedEvent")));
    let id = format!("{}:notification", again.uuid);
    assert_eq!(seen[1], (json!(id), json!("NotificationEvent")));
    assert!(!sent.uuid.is_empty() && !after.is_empty());
}

/// A large conversation: those who chose ALL, and the mentioned, in pieces of a hundred users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_conversation_notifies_in_pieces() {
    const USERS: usize = 230;
    let server = server().await;
    let (receiver, folder) = (Receiver::start().await, tempfile::tempdir().unwrap());
    let all = [settings(&receiver, folder.path())];
    let _webhooks = server.webhooks(&all, RetryPolicy::default()).await.unwrap();
    let name = |number: usize| format!("user-{number:03}");
    let alice = server.user("alice");
    let crowd: Vec<_> = (0..49).map(name).collect();
    let crowd: Vec<_> = crowd.iter().map(String::as_str).collect();
    let large = alice.group("a crowd", &crowd).await;
    let add = "mutation($c: ID!, $u: [String!]!) { addParticipants(input: {conversationId: $c, usernames: $u}) { __typename } }";
    for first in (49..USERS).step_by(50) {
        let names: Vec<_> = (first..USERS.min(first + 50)).map(name).collect();
        alice.data(add, json!({"c": large, "u": names})).await;
    }
    // All of them have answered.
    alice.send(&large, "welcome").await;
    let people: Vec<_> = (0..USERS)
        .map(|number| server.user(&name(number)))
        .collect();
    join_all(people.iter().map(|user| user.mark_read(&large, None))).await;
    let level = "mutation($i: UpdateInboxEntryInput!) { updateInboxEntry(input: $i) { inboxEntry { notificationLevel } } }";
    for (number, level_of) in [
        (7, "ALL"),
        (200, "ALL"),
        (201, "ALL"),
        (201, "MENTIONS"),
        (9, "NONE"),
    ] {
        let input = json!({"conversationId": large, "notificationLevel": level_of});
        server
            .user(&name(number))
            .data(level, json!({"i": input}))
            .await;
    }
    let token = server.outbox_token();
    let mut socket = Socket::connect(server.address, &token).await;
    let document = "subscription { outbox(types: [NOTIFICATION]) { cursor id event { ... on NotificationEvent { recipients { user { username } reason } } } } }";
    socket.subscribe("all", document).await;
    socket.told("all").await;
    let plain = alice.send(&large, "to few").await;
    let send = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"hello\", mentionsEveryone: true}) { messageEdge { node { uuid } } } }";
    let data = alice.data(send, json!({"c": large})).await;
    let everyone = data["sendMessage"]["messageEdge"]["node"]["uuid"]
        .as_str()
        .unwrap()
        .to_owned();
    let received = receiver.until(|all| all.len() >= 4).await;
    assert_eq!(received[0].id(), format!("{}:notification", plain.uuid));
    assert_eq!(usernames(&event(&received[0])), [name(7), name(200)]);
    let pieces: Vec<_> = received[1..].iter().map(event).collect();
    assert!(
        received[1..]
            .iter()
            .all(|one| one.id().starts_with(&everyone))
    );
    let named: Vec<_> = pieces.iter().flat_map(usernames).collect();
    let expected: Vec<_> = (0..USERS).filter(|number| *number != 9).map(name).collect();
    assert_eq!(named, expected);
    assert!(pieces.iter().all(|piece| usernames(piece).len() <= 100));
    let mut ids: Vec<_> = received.iter().map(Received::id).collect();
    ids.dedup();
    assert_eq!(ids.len(), 4, "each piece has an id of its own: {ids:?}");
    // A subscription delivers the same pieces under the same ids, and passes the row with the last one.
    let mut cursors = Vec::new();
    for (number, one) in received.iter().enumerate() {
        let payload = socket.told("all").await["outbox"].take();
        assert_eq!(payload["id"], one.id());
        let event = payload["event"].clone();
        assert_eq!(
            usernames(&event),
            usernames(&self::event(&received[number]))
        );
        cursors.push(payload["cursor"].as_str().unwrap().to_owned());
    }
    assert_eq!(cursors[1], cursors[2]);
    assert_ne!(cursors[2], cursors[3]);
}

/// `docker/push-example`, as it stands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_push_worker_sends_one_push_to_each_device() {
    let Some(node) = tokio::task::block_in_place(Node::installed) else {
        return;
    };
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("docker/push-example/worker.js");
    let program = node.path(&format!("push-worker-{}.js", std::process::id()));
    std::fs::copy(worker, &program).unwrap();
    let devices = folder.path().join("devices.json");
    let phones =
        json!({"bob": [{"platform": "apns", "token": "b1"}, {"platform": "fcm", "token": "b2"}]});
    std::fs::write(&devices, phones.to_string()).unwrap();
    // Only to find a free port.
    let receiver = Receiver::start().await;
    let all = [WebhookSettings {
        target: wideroom::signed_post::PostTarget::parse(
            &format!("http://{}/", receiver.address),
            true,
        )
        .unwrap(),
        ..settings(&receiver, folder.path())
    }];
    let port = receiver.address.port();
    drop(receiver);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut command = Command::new("node");
    let mut process = Running::spawn(
        command
            .arg(&program)
            .env("SECRET", SECRET)
            .env("DEVICES", &devices)
            .env("PORT", port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    );
    let mut lines = BufReader::new(process.child.stdout.take().unwrap()).lines();
    let mut line = || -> Value {
        let line = tokio::task::block_in_place(|| lines.next())
            .unwrap()
            .unwrap();
        serde_json::from_str(&line).unwrap()
    };
    assert_eq!(line(), json!({ "listening": port }));
    let policy = RetryPolicy {
        first: Duration::from_millis(100),
        ..RetryPolicy::default()
    };
    let _webhooks = server.webhooks(&all, policy).await.unwrap();
    let alice = server.user("alice");
    let direct = alice.direct("bob").await;
    let sent = alice.send(&direct, "Your order was shipped").await;
    let (apns, fcm) = (line(), line());
    assert_eq!(
        (&apns["service"], &apns["token"]),
        (&json!("apns"), &json!("b1"))
    );
    assert_eq!(apns["payload"]["aps"]["badge"], 1);
    assert_eq!(
        apns["payload"]["aps"]["alert"],
        json!({"title": "alice", "body": "Your order was shipped"})
    );
    assert_eq!(apns["payload"]["messageId"], sent.id);
    assert_eq!(
        (&fcm["service"], &fcm["token"]),
        (&json!("fcm"), &json!("b2"))
    );
    let collapse = &fcm["payload"]["message"]["android"]["collapse_key"];
    assert_eq!(*collapse, apns["payload"]["collapseId"]);
    assert_eq!(fcm["payload"]["message"]["notification"]["title"], "alice");
    process.kill();
    let _ = std::fs::remove_file(program);
}
