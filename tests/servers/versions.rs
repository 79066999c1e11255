//! The next version beside this one: it migrates the keyspace under load, writes kinds, states and
//! contents that this version does not know, and ends the upgrade.
//!
//! The next version is played by the test: its rows are written as it would write them. This
//! version serves them through all doors meanwhile, and starts once more beside it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use wideroom::bus::Bus;
use wideroom::chat::{ConversationEvent, Draft, DraftInput};
use wideroom::clock::{Clock as _, IdGenerator, SystemClock};
use wideroom::model::{ConversationId, MessageId, OrderKey, TimeUuid, UserId};
use wideroom::store::cql::{Cql, finish};

use super::keyspace::Keyspace;
use super::pair::{Server, people};
use crate::support::world::PATIENCE;

/// Migrations that this version knows.
const PRESENT: i32 = 24;

/// The next version's own statements.
struct NextVersion {
    keyspace: Keyspace,
    ids: IdGenerator,
}

impl NextVersion {
    fn id(&self) -> TimeUuid {
        self.ids.next(SystemClock.now())
    }

    /// A step that only adds columns lets this version serve.
    async fn migrate(&self) {
        for table in [
            "conversations",
            "participants_by_conversation",
            "messages_by_conversation",
            "inbox_by_user",
            "sends_by_key",
            "changes_by_conversation",
            "users",
            "servers",
        ] {
            self.keyspace
                .run(&format!("ALTER TABLE {{}}.{table} ADD next_column text"))
                .await;
        }
        let (version, now) = (PRESENT + 1, SystemClock.now().micros());
        self.keyspace.run(&format!(
            "INSERT INTO {{}}.schema_migrations (version, checksum, applied_at, oldest_server) VALUES ({version}, 'next', {now}, {PRESENT})"
        ))
        .await;
    }

    /// The bucket of a message, as a part of a statement.
    async fn bucket_of(&self, conversation: ConversationId, id: MessageId) -> String {
        let select = format!(
            "SELECT width, start FROM {{}}.buckets_by_conversation WHERE conversation_id = {}",
            conversation.0
        );
        let rows = self.keyspace.run(&select).await;
        let rows = rows.into_rows_result().unwrap();
        for row in rows.rows::<(i8, i64)>().unwrap() {
            let (width, start) = row.unwrap();
            let key = format!(
                "conversation_id = {} AND width = {width} AND start = {start}",
                conversation.0
            );
            let select = format!(
                "SELECT sender_id FROM {{}}.messages_by_conversation WHERE {key} AND message_id = {}",
                id.uuid()
            );
            let found = self.keyspace.run(&select).await;
            if found.into_rows_result().unwrap().rows_num() == 1 {
                return key;
            }
        }
        panic!("{id} is in no bucket");
    }

    /// A kind of message, a content, a state, changes of both logs, a session, a notice and a
    /// suspension that this version does not know.
    async fn write_new_forms(&self, scene: &Scene) {
        let (conversation, anna, ben) = (scene.conversation.0, &scene.anna, &scene.ben);
        let edited = scene.messages[1];
        let bucket = self.bucket_of(scene.conversation, edited).await;
        self.keyspace.run(&format!(
            "UPDATE {{}}.messages_by_conversation SET content = 0x0907, next_column = 'x' WHERE {bucket} AND message_id = {}",
            edited.uuid()
        ))
        .await;
        let of_new_kind = scene.messages[2];
        self.keyspace.run(&format!(
            "UPDATE {{}}.messages_by_conversation SET kind = 9 WHERE {bucket} AND message_id = {}",
            of_new_kind.uuid()
        ))
        .await;
        let day = SystemClock.now().micros() / (24 * 3_600 * 1_000_000);
        for _ in 0..3 {
            self.keyspace.run(&format!(
                "INSERT INTO {{}}.changes_by_conversation (conversation_id, day, change_id, kind, message_id, user_id) \
                 VALUES ({conversation}, {day}, {}, 99, {}, '{anna}')",
                self.id().uuid(),
                edited.uuid()
            ))
            .await;
            self.keyspace.run(&format!(
                "INSERT INTO {{}}.changes_by_user (user_id, day, change_id, kind, conversation_id) \
                 VALUES ('{ben}', {day}, {}, 99, {conversation})",
                self.id().uuid()
            ))
            .await;
        }
        // Two states: in a version of its own, and one more of this version's.
        for (user, membership) in [("next-state", "0x120203"), ("next-asked", "0x0702")] {
            self.keyspace.run(&format!(
                "INSERT INTO {{}}.participants_by_conversation (conversation_id, user_id, membership) VALUES ({conversation}, '{user}', {membership})"
            ))
            .await;
        }
        self.keyspace.run(&format!(
            "UPDATE {{}}.conversations SET kind = 9, next_column = 'x' WHERE conversation_id = {}",
            scene.channel.0
        ))
        .await;
        let server = uuid::Uuid::new_v4();
        self.keyspace.run(&format!(
            "INSERT INTO {{}}.sessions_by_user (user_id, kind, server_id) VALUES ('{ben}', 99, {server})"
        ))
        .await;
        let minute = SystemClock.now().micros() / 60_000_000;
        for server in self.servers().await {
            self.keyspace.run(&format!(
                "INSERT INTO {{}}.mailboxes (server_id, lane, minute, notice_id, payload) VALUES ({server}, 1, {minute}, {}, 0x0901)",
                self.id().uuid()
            ))
            .await;
        }
        let suspended = format!("next-{anna}");
        // The shard is the first byte of the name's hash; each of the sixteen is read at the start.
        for shard in 0..16 {
            self.keyspace.run(&format!(
                "INSERT INTO {{}}.restrictions (shard, user_id, suspension) VALUES ({shard}, '{suspended}', 0x0901)"
            ))
            .await;
        }
    }

    async fn servers(&self) -> Vec<uuid::Uuid> {
        let select = "SELECT server_id FROM {}.server_beats WHERE partition = 0";
        let rows = self.keyspace.run(select).await;
        let rows = rows.into_rows_result().unwrap();
        rows.rows::<(uuid::Uuid,)>()
            .unwrap()
            .map(|row| row.unwrap().0)
            .collect()
    }
}

/// A conversation with a few messages, and a second one.
struct Scene {
    anna: UserId,
    ben: UserId,
    conversation: ConversationId,
    channel: ConversationId,
    messages: Vec<MessageId>,
    start: OrderKey,
}

impl Scene {
    async fn set(server: &Server) -> Self {
        let [anna, ben] = people(["anna", "ben"]);
        let conversation = server.group(&anna, &[&ben]).await;
        let channel = server.group(&anna, &[&ben]).await;
        let mut messages = Vec::new();
        for number in 0..4 {
            let sent = server.send(&anna, conversation, &format!("{number}")).await;
            messages.push(sent.id);
        }
        Self {
            anna,
            ben,
            conversation,
            channel,
            start: messages[0].order_key().before(),
            messages,
        }
    }

    /// Every page and stream of a server works, and shows what this version knows.
    async fn is_served_by(&self, server: &Server) {
        let ben = server.actor(&self.ben);
        let conversations = "{ inbox(first: 10) { edges { node { unreadCount lastMessage { body }
            conversation { uuid name messageCount participants(first: 10) { edges { node { user { username } role } } }
                messages(first: 50) { edges { node { uuid kind body sender { username } } } } } } } } }";
        let data = ben.data(conversations, json!({})).await;
        let edges = data["inbox"]["edges"].as_array().unwrap();
        assert_eq!(edges.len(), 3, "{data}");
        let shown = edges
            .iter()
            .map(|edge| &edge["node"]["conversation"])
            .find(|one| one["uuid"] == self.conversation.0.to_string())
            .unwrap();
        let participants = shown["participants"]["edges"].as_array().unwrap();
        assert_eq!(participants.len(), 2, "{participants:?}");
        let messages = shown["messages"]["edges"].as_array().unwrap();
        let of = |id: MessageId| {
            let mut all = messages.iter().map(|edge| &edge["node"]);
            all.find(|node| node["uuid"] == id.to_string()).unwrap()
        };
        assert_eq!(of(self.messages[0])["body"], "0");
        assert!(
            of(self.messages[1])["body"]
                .as_str()
                .unwrap_or_default()
                .is_empty()
        );
        assert_eq!(of(self.messages[2])["kind"], "SYSTEM");
        assert_eq!(of(self.messages[3])["body"], "3");

        let streams = &server.chat.streams;
        let after = Some(self.start);
        let mut events = streams
            .conversation(&self.ben, self.conversation, after)
            .await
            .unwrap();
        let mut missing = self.messages.clone();
        let wait = async {
            while !missing.is_empty() {
                let update = events.next().await.unwrap().unwrap();
                if let Some(ConversationEvent::MessageAdded(message)) = update.event {
                    missing.retain(|id| *id != message.id);
                }
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        assert!(waited.is_ok(), "not replayed: {missing:?}");
        let mut inbox = streams.inbox(&self.ben, after).await.unwrap();
        let wait = async {
            while inbox.next().await.unwrap().unwrap().conversation != Some(self.conversation) {}
        };
        tokio::time::timeout(PATIENCE, wait)
            .await
            .expect("it is shown");
    }
}

/// Sends with keys, each twice, until it is stopped. Returns how many.
async fn send_all_the_time(
    server: &Server,
    user: &UserId,
    conversation: ConversationId,
    stop: &tokio_util::sync::CancellationToken,
) -> usize {
    let mut sent = 0;
    while !stop.is_cancelled() {
        let body = format!("{sent} of {user}");
        let send = || {
            let input = DraftInput {
                body: body.clone(),
                idempotency_key: Some(body.clone()),
                ..DraftInput::default()
            };
            let draft = Draft::parse(input, server.chat.bounds()).unwrap();
            server.chat.writes.send(user, conversation, draft)
        };
        let first = send().await.unwrap();
        assert_eq!(send().await.unwrap().id, first.id);
        sent += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: an upgrade of two servers"]
async fn the_next_version_serves_beside_this_one_until_the_upgrade_is_finished() {
    let Some(keyspace) = Keyspace::migrated().await else {
        return;
    };
    assert_eq!(keyspace.version, PRESENT);
    let address = keyspace.address.clone();
    let open = async || Server::at(address.clone(), Bus::default(), 0).await;
    let (one, other) = (open().await, open().await);
    let next = NextVersion {
        keyspace,
        ids: IdGenerator::random(),
    };
    let scene = Scene::set(&one).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let busy = one.group(&scene.anna, &[&scene.ben]).await;
    let load = |server, user| send_all_the_time(server, user, busy, &stop);
    let upgrade = async {
        next.migrate().await;
        next.write_new_forms(&scene).await;
        // Back: this version starts beside the next one.
        let third = open().await;
        for server in [&one, &other, &third] {
            scene.is_served_by(server).await;
        }
        stop.cancel();
    };
    let (from_one, from_other, ()) =
        tokio::join!(load(&one, &scene.anna), load(&other, &scene.ben), upgrade);
    println!("through the upgrade: {from_one} and {from_other} sends, each repeated");
    assert!(from_one > 0 && from_other > 0);

    // The upgrade to this version is not finished while an older server beats.
    let older = uuid::Uuid::new_v4();
    next.keyspace
        .run(&format!(
            "INSERT INTO {{}}.servers (server_id, version) VALUES ({older}, {})",
            PRESENT - 1
        ))
        .await;
    next.keyspace
        .run(&format!(
            "INSERT INTO {{}}.server_beats (partition, server_id, number) VALUES (0, {older}, 1)"
        ))
        .await;
    let refused = finish(&address).await.unwrap_err().to_string();
    let still = format!("1 servers of version {} still serve", PRESENT - 1);
    assert!(refused.starts_with(&still), "{refused}");
    // Nor while one beats whose row is missing: it may be an older one.
    next.keyspace
        .run(&format!(
            "DELETE FROM {{}}.servers WHERE server_id = {older}"
        ))
        .await;
    let refused = finish(&address).await.unwrap_err().to_string();
    assert!(
        refused.starts_with("1 servers beat whose version is unknown"),
        "{refused}"
    );
    next.keyspace
        .run(&format!(
            "DELETE FROM {{}}.server_beats WHERE partition = 0 AND server_id = {older}"
        ))
        .await;
    assert_eq!(finish(&address).await.unwrap(), PRESENT);

    // The next version ends the upgrade: this one is refused, and says what to do.
    next.keyspace
        .run(&format!(
            "UPDATE {{}}.schema_migrations SET oldest_server = {0} WHERE version = {0}",
            PRESENT + 1
        ))
        .await;
    let clock: Arc<dyn wideroom::clock::Clock> = Arc::new(SystemClock);
    let refused = Cql::open(address.clone(), clock)
        .await
        .err()
        .unwrap()
        .to_string();
    let newer = format!(
        "a server must know version {}, and this one knows {PRESENT}",
        PRESENT + 1
    );
    assert!(refused.contains(&newer), "{refused}");
    assert!(refused.ends_with("upgrade this server"), "{refused}");
    next.keyspace.drop().await;
}
