//! The outbox: every event of every conversation, for services.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;
use serde_json::{Value, json};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::graphql::{CursorKey as _, List};
use wideroom::model::{ConversationId, OrderKey, OutboxShard};
use wideroom::store::note_restored;

use crate::support::client::soon;
use crate::support::door::{Badge, Door};
use crate::support::world::{PATIENCE, World, text};

const OUTBOX: &str = "subscription($a: String, $t: [OutboxEventType!], $s: Int, $n: Int) {
    outbox(after: $a, types: $t, shard: $s, shards: $n) {
        cursor id occurredAt conversation { id uuid name kind participantCount directPeer { username } inboxEntry { id } }
        event { __typename
            ... on MessageAddedEvent { messageEdge { cursor node { id kind body deletedAt conversation { id } sender { username } } } }
            ... on MessageEditedEvent { message { id body } }
            ... on MessageDeletedEvent { message { id body deletedAt } }
            ... on ReactionsChangedEvent { message { id reactions { emoji count } } }
            ... on ParticipantAddedEvent { participant { user { username } role } }
            ... on ParticipantRemovedEvent { user { username } }
            ... on RoleChangedEvent { participant { user { username } role } }
            ... on ConversationRenamedEvent { conversation { name } }
            ... on ConversationCreatedEvent { conversation { id } }
        } } }";

/// A world with an outbox, and its door.
async fn open() -> (World, Door) {
    let world = World::open().await;
    switch(&world, true).await;
    let door = Door::of(&world.chat);
    (world, door)
}

async fn switch(world: &World, is_on: bool) {
    let since = is_on.then(|| SystemClock.now());
    world.store.set_outbox(since).await.unwrap();
}

/// Reader under the name of a service.
struct Reader(BoxStream<'static, Value>);

impl Reader {
    fn new(door: &Door, variables: Value) -> Self {
        Self(door.subscribe(&door.service(), OUTBOX, &variables))
    }

    /// The next payload.
    async fn next(&mut self) -> Value {
        let payload = self.0.next().await.expect("the stream goes on");
        assert!(payload.get("errors").is_none(), "{payload}");
        payload["data"]["outbox"].clone()
    }

    /// A reader that is at its first position.
    async fn begun(door: &Door, variables: Value) -> (Self, Value) {
        let mut reader = Self::new(door, variables);
        let first = reader.next().await;
        assert_eq!(first["event"], Value::Null);
        assert_eq!(first["id"], Value::Null);
        assert_eq!(first["occurredAt"], Value::Null);
        assert_eq!(first["conversation"], Value::Null);
        (reader, first)
    }

    /// The next payloads with an event.
    async fn events(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        while events.len() < count {
            let next = tokio::time::timeout(PATIENCE, self.next()).await;
            let payload = next.unwrap_or_else(|_| panic!("nothing comes after {events:#?}"));
            if payload["event"] != Value::Null {
                events.push(payload);
            }
        }
        events
    }
}

/// The code of the error that ends a stream at once.
async fn refused(door: &Door, variables: Value) -> (String, Value) {
    let mut stream = door.subscribe(&door.service(), OUTBOX, &variables);
    let payload = soon(stream.next()).await.expect("an error");
    let extensions = &payload["errors"][0]["extensions"];
    let path = extensions["inputPath"].clone();
    (text(&extensions["code"]), path)
}

fn kinds(payloads: &[Value]) -> Vec<&str> {
    payloads
        .iter()
        .map(|payload| payload["event"]["__typename"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn every_event_is_delivered_in_order_to_a_service_that_takes_no_part() {
    let (world, door) = open().await;
    let (mut reader, _) = Reader::begun(&door, json!({})).await;
    let alice = world.user("alice");
    let group = alice.group("Us", &["bob"]).await;
    let sent = alice.send(&group, "Hello").await;
    let second = alice.send(&group, "again").await;
    let edit = "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"Better\"}) { message { id } } }";
    alice.data(edit, json!({"m": sent.id})).await;
    let react = "mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } } }";
    alice.data(react, json!({"m": sent.id})).await;
    let delete = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }";
    alice.data(delete, json!({"m": second.id})).await;
    let add = "mutation($c: ID!) { addParticipants(input: {conversationId: $c, usernames: [\"carol\"]}) { conversation { id } } }";
    alice.data(add, json!({"c": group})).await;
    let role = "mutation($c: ID!) { setParticipantRole(input: {conversationId: $c, username: \"bob\", role: ADMIN}) { participant { id } } }";
    alice.data(role, json!({"c": group})).await;
    let rename = "mutation($c: ID!) { renameConversation(input: {conversationId: $c, name: \"We\"}) { conversation { id } } }";
    alice.data(rename, json!({"c": group})).await;
    let remove = "mutation($c: ID!) { removeParticipant(input: {conversationId: $c, username: \"carol\"}) { conversation { id } } }";
    alice.data(remove, json!({"c": group})).await;
    let direct = alice.direct("bob").await;

    let events = reader.events(15).await;
    assert_eq!(
        kinds(&events),
        [
            "ConversationCreatedEvent",
            "MessageAddedEvent",
            "MessageAddedEvent",
            "MessageEditedEvent",
            "ReactionsChangedEvent",
            "MessageDeletedEvent",
            "ParticipantAddedEvent",
            "MessageAddedEvent",
            "RoleChangedEvent",
            "MessageAddedEvent",
            "ConversationRenamedEvent",
            "MessageAddedEvent",
            "ParticipantRemovedEvent",
            "MessageAddedEvent",
            "ConversationCreatedEvent",
        ]
    );
    let of = |index: usize| &events[index]["event"];
    let added = &of(1)["messageEdge"]["node"];
    assert_eq!(added["id"], sent.id);
    assert_eq!(added["sender"]["username"], "alice");
    assert_eq!(
        events[1]["id"], sent.uuid,
        "an event of a message has its id"
    );
    assert_eq!(of(3)["message"]["body"], "Better");
    let reactions = &of(4)["message"]["reactions"];
    assert_eq!(*reactions, json!([{"emoji": "👍", "count": 1}]));
    assert_eq!(of(5)["message"]["id"], second.id);
    assert_eq!(of(5)["message"]["body"], Value::Null);
    assert_eq!(of(6)["participant"]["user"]["username"], "carol");
    assert_eq!(of(7)["messageEdge"]["node"]["kind"], "SYSTEM");
    assert_eq!(
        of(8)["participant"],
        json!({"user": {"username": "bob"}, "role": "ADMIN"})
    );
    assert_eq!(of(10)["conversation"]["name"], "We");
    assert_eq!(of(12)["user"]["username"], "carol");
    assert_eq!(of(14)["conversation"]["id"], direct);
    for (index, event) in events.iter().enumerate() {
        let conversation = if index == 14 { &direct } else { &group };
        let shown = &event["conversation"];
        assert_eq!(shown["id"], *conversation);
        assert_eq!(shown["participantCount"], 2);
        assert_eq!(shown["directPeer"], Value::Null, "the service is no peer");
        assert_eq!(shown["inboxEntry"], Value::Null);
        assert!(event["occurredAt"].as_str().unwrap().ends_with('Z'));
    }
    let ids: BTreeSet<_> = events.iter().map(|event| text(&event["id"])).collect();
    assert_eq!(ids.len(), events.len());
    assert!(events.is_sorted_by_key(|event| text(&event["occurredAt"])));
}

#[tokio::test]
async fn a_reader_resumes_from_any_cursor_without_a_gap() {
    let (world, door) = open().await;
    let (mut reader, first) = Reader::begun(&door, json!({})).await;
    let alice = world.user("alice");
    let (one, other) = (alice.direct("bob").await, alice.direct("carol").await);
    for number in 0..8 {
        let conversation = if number % 3 == 0 { &one } else { &other };
        alice.send(conversation, &number.to_string()).await;
    }
    let events = reader.events(10).await;
    let ids: Vec<_> = events.iter().map(|event| text(&event["id"])).collect();
    drop(reader);
    for (index, payload) in [first].iter().chain(&events).enumerate() {
        let after = json!({"a": payload["cursor"]});
        let (mut resumed, begun) = Reader::begun(&door, after).await;
        assert_eq!(begun["cursor"], payload["cursor"]);
        // On a cluster a reader may receive an event again, and an old one first.
        let mut rest: Vec<_> = ids[index..].to_vec();
        while !rest.is_empty() {
            let next = text(&resumed.events(1).await[0]["id"]);
            match rest.iter().position(|id| *id == next) {
                Some(0) => drop(rest.remove(0)),
                Some(later) => panic!("{next} came before {:?}", &rest[..later]),
                None => assert!(ids[..index].contains(&next), "{next} came twice"),
            }
        }
    }
}

#[tokio::test]
async fn a_deleted_message_is_shown_as_deleted_to_a_reader_that_comes_later() {
    let (world, door) = open().await;
    let (_, first) = Reader::begun(&door, json!({})).await;
    let alice = world.user("alice");
    let direct = alice.direct("bob").await;
    let sent = alice.send(&direct, "secret").await;
    let delete = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }";
    alice.data(delete, json!({"m": sent.id})).await;
    let (mut reader, _) = Reader::begun(&door, json!({"a": first["cursor"]})).await;
    let events = reader.events(3).await;
    let added = &events[1]["event"]["messageEdge"]["node"];
    assert_eq!(
        (&added["id"], &added["body"]),
        (&json!(sent.id), &Value::Null)
    );
    assert!(added["deletedAt"].is_string());
    assert!(!format!("{events:?}").contains("secret"));
}

#[tokio::test]
async fn readers_share_the_conversations_and_their_cursors() {
    const READERS: usize = 3;
    let (world, door) = open().await;
    let reader = |shard: usize, after: Value| {
        let variables = json!({"s": shard, "n": READERS, "a": after});
        Reader::begun(&door, variables)
    };
    let readers = join_all((0..READERS).map(|shard| reader(shard, Value::Null))).await;
    let (mut whole, first) = Reader::begun(&door, json!({})).await;
    let alice = world.user("alice");
    let mut expected = BTreeMap::new();
    for peer in 0..12 {
        let direct = alice.direct(&format!("peer{peer}")).await;
        let sent = [
            alice.send(&direct, "one").await,
            alice.send(&direct, "two").await,
        ];
        expected.insert(direct, sent.map(|sent| sent.uuid));
    }
    let all: Vec<_> = whole.events(36).await;
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut counts = [0; READERS];
    for (shard, (mut reader, _)) in readers.into_iter().enumerate() {
        let mut own = Vec::new();
        let (mut again, _) = Reader::begun(
            &door,
            json!({"s": shard, "n": READERS, "a": first["cursor"]}),
        )
        .await;
        // Each conversation has three events, and is whole in one reader.
        for source in [&mut reader, &mut again] {
            let share: Vec<_> = all
                .iter()
                .filter(|event| shard_of(event, READERS) == shard)
                .map(|event| text(&event["id"]))
                .collect();
            let events = source.events(share.len()).await;
            let ids: Vec<_> = events.iter().map(|event| text(&event["id"])).collect();
            assert_eq!(ids, share);
            own = events;
        }
        for event in &own {
            let conversation = text(&event["conversation"]["id"]);
            let earlier = seen.insert(conversation, shard);
            assert!(
                earlier.is_none_or(|earlier| earlier == shard),
                "two readers"
            );
            counts[shard] += 1;
        }
    }
    assert_eq!(counts.iter().sum::<usize>(), 36);
    assert_eq!(seen.len(), expected.len());
    for (conversation, uuids) in &expected {
        let own: Vec<_> = all
            .iter()
            .filter(|event| event["conversation"]["id"] == **conversation)
            .map(|event| text(&event["id"]))
            .collect();
        assert_eq!(own[1..], uuids[..]);
    }
}

/// The reader of an event's conversation, as the store spreads conversations.
fn shard_of(event: &Value, readers: usize) -> usize {
    let uuid = text(&event["conversation"]["uuid"]).parse().unwrap();
    let shard = OutboxShard::of(ConversationId(uuid));
    usize::from(shard.number()) % readers
}

#[tokio::test]
async fn a_reader_receives_the_types_that_it_asks_for() {
    let (world, door) = open().await;
    let (mut created, _) = Reader::begun(&door, json!({"t": ["CONVERSATION_CREATED"]})).await;
    let wanted = json!({"t": ["MESSAGE_DELETED", "MESSAGE_EDITED"]});
    let (mut revised, _) = Reader::begun(&door, wanted).await;
    let alice = world.user("alice");
    let direct = alice.direct("bob").await;
    let sent = alice.send(&direct, "Hello").await;
    let delete = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }";
    alice.data(delete, json!({"m": sent.id})).await;
    alice.direct("carol").await;
    assert_eq!(
        kinds(&created.events(2).await),
        ["ConversationCreatedEvent"; 2]
    );
    assert_eq!(kinds(&revised.events(1).await), ["MessageDeletedEvent"]);
}

#[tokio::test]
async fn everyone_but_a_service_is_forbidden_whatever_the_cursor() {
    let (world, door) = open().await;
    world.user("alice").direct("bob").await;
    let mut answers = BTreeSet::new();
    for badge in [door.user("alice"), door.service().acting_as("alice")] {
        for variables in [json!({}), json!({"a": "nonsense"}), json!({"t": []})] {
            let mut stream = door.subscribe(&badge, OUTBOX, &variables);
            let answer = soon(stream.next()).await.unwrap();
            assert_eq!(answer["errors"][0]["extensions"]["code"], "FORBIDDEN");
            answers.insert(answer.to_string());
            assert!(soon(stream.next()).await.is_none());
        }
    }
    assert_eq!(answers.len(), 1, "{answers:?}");
    let fields = "{ __type(name: \"Subscription\") { fields { name } } payload: __type(name: \"OutboxPayload\") { name } }";
    let shown = async |badge: Badge| {
        door.ask(&badge, fields, &json!({}))
            .await
            .text
            .contains("\"outbox\"")
    };
    assert!(shown(door.service()).await);
    assert!(!shown(door.user("alice")).await);
}

#[tokio::test]
async fn a_wrong_argument_is_refused_by_name() {
    let (world, door) = open().await;
    let direct = world.user("alice").direct("bob").await;
    let sent = world.user("alice").send(&direct, "Hello").await;
    for (variables, path) in [
        (json!({"t": []}), "types"),
        (json!({"s": 0}), "shards"),
        (json!({"n": 2}), "shard"),
        (json!({"s": 2, "n": 2}), "shard"),
        (json!({"s": -1, "n": 2}), "shard"),
        (json!({"s": 0, "n": 17}), "shards"),
        (json!({"s": 0, "n": 0}), "shards"),
        (json!({"a": "nonsense"}), "after"),
        (json!({"a": sent.cursor}), "after"),
    ] {
        let expected = ("BAD_USER_INPUT".to_owned(), json!([path]));
        assert_eq!(
            refused(&door, variables.clone()).await,
            expected,
            "{variables}"
        );
    }
}

#[tokio::test]
async fn without_an_outbox_there_is_none_and_older_cursors_expire() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    assert_eq!(refused(&door, json!({})).await.0, "UNAVAILABLE");
    let alice = world.user("alice");
    let direct = alice.direct("bob").await;
    alice.send(&direct, "before").await;
    let before = OrderKey::first_at(SystemClock.now()).encode(List::Outbox);
    switch(&world, true).await;
    assert_eq!(
        refused(&door, json!({"a": before})).await.0,
        "CURSOR_EXPIRED"
    );
    let (mut reader, first) = Reader::begun(&door, json!({})).await;
    let sent = alice.send(&direct, "after").await;
    assert_eq!(reader.events(1).await[0]["id"], sent.uuid);
    let week = 7 * 24 * 3_600 * 1_000_000;
    let old = SystemClock.now().plus_micros(-week - 1);
    let old = OrderKey::first_at(old).encode(List::Outbox);
    assert_eq!(refused(&door, json!({"a": old})).await.0, "CURSOR_EXPIRED");
    // A reader may have events that a restored copy lacks.
    let restored = World::open().await;
    switch(&restored, true).await;
    note_restored(&*restored.store, SystemClock.now().plus_micros(60_000_000))
        .await
        .unwrap();
    let restored = restored.restarted().await;
    let now = OrderKey::first_at(SystemClock.now()).encode(List::Outbox);
    let code = refused(&Door::of(&restored.chat), json!({"a": now}))
        .await
        .0;
    assert_eq!(code, "CURSOR_EXPIRED");
    switch(&world, false).await;
    assert_eq!(
        refused(&door, json!({"a": first["cursor"]})).await.0,
        "UNAVAILABLE"
    );
    switch(&world, true).await;
    assert_eq!(
        refused(&door, json!({"a": first["cursor"]})).await.0,
        "CURSOR_EXPIRED",
        "events may be missing since"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_at_once_lose_no_event_and_keep_each_conversation_in_order() {
    const CONVERSATIONS: usize = 12;
    const SENDS: usize = 25;
    let (world, door) = open().await;
    let alice = world.user("alice");
    let peers = (0..CONVERSATIONS).map(|peer| format!("peer{peer}"));
    let conversations = join_all(peers.map(async |peer| alice.direct(&peer).await)).await;
    let (mut reader, _) = Reader::begun(&door, json!({"t": ["MESSAGE_ADDED"]})).await;
    let senders = conversations.iter().map(async |conversation| {
        let mut sent = Vec::new();
        for number in 0..SENDS {
            // Two at once: they share a batch, or follow one another.
            let (one, other) = (number.to_string(), format!("{number} too"));
            let both = tokio::join!(
                alice.send(conversation, &one),
                alice.send(conversation, &other)
            );
            sent.extend([both.0.uuid, both.1.uuid]);
        }
        (conversation.clone(), sent)
    });
    let expected: BTreeMap<_, _> = join_all(senders).await.into_iter().collect();
    let mut found: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for event in reader.events(CONVERSATIONS * SENDS * 2).await {
        let conversation = text(&event["conversation"]["id"]);
        let event = (text(&event["occurredAt"]), text(&event["id"]));
        found.entry(conversation).or_default().push(event);
    }
    for (conversation, sent) in expected {
        let events = &found[&conversation];
        assert!(events.is_sorted(), "in the order of the ids");
        let ids: BTreeSet<_> = events.iter().map(|(_, id)| id.clone()).collect();
        assert_eq!(ids, sent.into_iter().collect(), "each once");
    }
}
