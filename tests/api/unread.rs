//! Unread is a question: whatever order sends and marks come in, the answer is what a count by hand gives.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::cases::length;
use crate::support::world::{Actor, Sent, World, text};

const USERS: [&str; 3] = ["alice", "bob", "carol"];

#[derive(Debug, Clone)]
enum Step {
    Send { user: usize },
    Read { user: usize, message: usize },
    ReadAll { user: usize },
    Unread { user: usize, message: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let user = 0..USERS.len();
    prop_oneof![
        3 => user.clone().prop_map(|user| Step::Send { user }),
        2 => (user.clone(), any::<prop::sample::Index>()).prop_map(|(user, message)| Step::Read { user, message: message.index(64) }),
        1 => user.clone().prop_map(|user| Step::ReadAll { user }),
        2 => (user, any::<prop::sample::Index>()).prop_map(|(user, message)| Step::Unread { user, message: message.index(64) }),
    ]
}

/// Counted by hand: the messages in order, and for each user the first one that is not read.
#[derive(Default)]
struct ByHand {
    senders: Vec<usize>,
    read: [usize; USERS.len()],
}

impl ByHand {
    fn apply(&mut self, step: &Step) {
        let count = self.senders.len();
        match *step {
            Step::Send { user } => {
                self.senders.push(user);
                self.read[user] = count + 1;
            }
            Step::ReadAll { user } => self.read[user] = count,
            Step::Read { user, message } if count > 0 => {
                self.read[user] = self.read[user].max(message % count + 1)
            }
            Step::Unread { user, message } if count > 0 => {
                self.read[user] = self.read[user].min(message % count)
            }
            Step::Read { .. } | Step::Unread { .. } => {}
        }
    }

    fn unread(&self, user: usize) -> Vec<usize> {
        (self.read[user]..self.senders.len())
            .filter(|i| self.senders[*i] != user)
            .collect()
    }
}

async fn apply(actors: &[Actor], conversation: &str, sent: &mut Vec<Sent>, step: &Step) {
    match *step {
        Step::Send { user } => sent.push(actors[user].send(conversation, "hello").await),
        Step::ReadAll { user } => actors[user].mark_read(conversation, None).await,
        Step::Read { user, message } if !sent.is_empty() => {
            actors[user]
                .mark_read(conversation, Some(&sent[message % sent.len()].id))
                .await;
        }
        Step::Unread { user, message } if !sent.is_empty() => {
            actors[user]
                .mark_unread(conversation, &sent[message % sent.len()].id)
                .await;
        }
        Step::Read { .. } | Step::Unread { .. } => {}
    }
}

async fn answer(actor: &Actor, conversation: &str) -> (usize, Option<String>) {
    let document = "query($c: ID!) { conversation(id: $c) { inboxEntry { unreadCount unreadCountIsCapped firstUnreadMessage { uuid } } } }";
    let data = actor.data(document, json!({"c": conversation})).await;
    let entry = &data["conversation"]["inboxEntry"];
    assert_eq!(entry["unreadCountIsCapped"], false);
    let count = usize::try_from(entry["unreadCount"].as_u64().unwrap()).unwrap();
    (
        count,
        entry["firstUnreadMessage"]["uuid"]
            .as_str()
            .map(str::to_owned),
    )
}

/// Each in a conversation of its own.
#[test]
fn unread_is_what_a_count_by_hand_gives() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let world = runtime.block_on(World::open());
    let actors = USERS.map(|name| world.user(name));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: length(24, 8),
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let counted = runner.run(&prop::collection::vec(step(), 1..40), |steps| {
        runtime.block_on(count_after(&actors, &steps));
        Ok(())
    });
    counted.unwrap_or_else(|fault| panic!("{fault}"));
    let _inside = runtime.enter();
    drop((actors, world));
}

async fn count_after(actors: &[Actor; USERS.len()], steps: &[Step]) {
    let conversation = actors[0].group("by hand", &USERS[1..]).await;
    let (mut by_hand, mut sent) = (ByHand::default(), Vec::new());
    for step in steps {
        apply(actors, &conversation, &mut sent, step).await;
        by_hand.apply(step);
        for (user, actor) in actors.iter().enumerate() {
            let expected = by_hand.unread(user);
            let first = expected.first().map(|i| sent[*i].uuid.clone());
            assert_eq!(
                answer(actor, &conversation).await,
                (expected.len(), first),
                "{} after {step:?}",
                USERS[user]
            );
        }
    }
}

/// The badge says "99" where there are 99, and "99+" from the hundredth on.
#[tokio::test]
async fn as_many_unread_as_the_cap_are_no_more_than_it() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let mut all = Vec::new();
    for _ in 0..99 {
        all.push(bob.send(&c, "x").await);
    }
    let document = "query($c: ID!) { conversation(id: $c) { inboxEntry { unreadCount unreadCountIsCapped firstUnreadMessage { id } } }
        inbox(first: 1, filter: {unreadOnly: true}) { edges { node { unreadCount unreadCountIsCapped } } } }";
    let shown = async || {
        let data = alice.data(document, json!({"c": c})).await;
        let (entry, listed) = (
            data["conversation"]["inboxEntry"].clone(),
            &data["inbox"]["edges"][0]["node"],
        );
        assert_eq!(
            (&entry["unreadCount"], &entry["unreadCountIsCapped"]),
            (&listed["unreadCount"], &listed["unreadCountIsCapped"])
        );
        entry
    };
    let first = json!({"id": all[0].id});
    assert_eq!(
        shown().await,
        json!({"unreadCount": 99, "unreadCountIsCapped": false, "firstUnreadMessage": first})
    );
    bob.send(&c, "x").await;
    assert_eq!(
        shown().await,
        json!({"unreadCount": 99, "unreadCountIsCapped": true, "firstUnreadMessage": first})
    );
    alice.mark_read(&c, Some(&all[0].id)).await;
    let second = json!({"id": all[1].id});
    assert_eq!(
        shown().await,
        json!({"unreadCount": 99, "unreadCountIsCapped": false, "firstUnreadMessage": second})
    );
}

/// Devices and senders at the same moment: when all is quiet, the count agrees with the marker and the history, for everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_does_not_drift_when_sends_race_marks() {
    let world = World::open().await;
    let actors = USERS.map(|name| world.user(name));
    let conversation = actors[0].group("race", &USERS[1..]).await;
    let work = (0..12).map(|worker| {
        let (actors, conversation) = (&actors, &conversation);
        async move {
            let mut own: Vec<Sent> = Vec::new();
            for round in 0..12_usize {
                let user = (worker + round) % USERS.len();
                match (worker * 7 + round * 5) % 4 {
                    0 | 1 => own.push(actors[user].send(conversation, "x").await),
                    2 => {
                        actors[user]
                            .mark_read(conversation, own.last().map(|sent| sent.id.as_str()))
                            .await
                    }
                    _ => match own.first() {
                        Some(sent) => actors[user].mark_unread(conversation, &sent.id).await,
                        None => actors[user].mark_read(conversation, None).await,
                    },
                }
            }
        }
    });
    futures_util::future::join_all(work).await;
    for (user, actor) in actors.iter().enumerate() {
        let document = "query($c: ID!) { conversation(id: $c) { inboxEntry { readUpTo { uuid } }
            newest: messages(first: 100) { edges { node { uuid sender { username } } } pageInfo { hasNextPage } } } }";
        let data = actor.data(document, json!({"c": conversation})).await;
        let newest = &data["conversation"]["newest"];
        assert_eq!(newest["pageInfo"]["hasNextPage"], false);
        let read_up_to = &data["conversation"]["inboxEntry"]["readUpTo"]["uuid"];
        let after_marker = newest["edges"]
            .as_array()
            .unwrap()
            .iter()
            .map(|edge| &edge["node"])
            .take_while(|node| node["uuid"] != *read_up_to);
        let expected: Vec<_> = after_marker
            .filter(|node| node["sender"]["username"] != USERS[user])
            .map(|node| text(&node["uuid"]))
            .collect();
        assert_eq!(
            answer(actor, &conversation).await,
            (expected.len(), expected.last().cloned())
        );
    }
}

#[tokio::test]
async fn a_count_stops_at_its_cap() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let conversation = alice.direct("bob").await;
    let sends = (0..120).map(|i| {
        let (alice, conversation) = (&alice, &conversation);
        async move { alice.send(conversation, &i.to_string()).await }
    });
    futures_util::future::join_all(sends).await;
    let document = "query($c: ID!) { conversation(id: $c) { inboxEntry { unreadCount unreadCountIsCapped } } }";
    let data = bob.data(document, json!({"c": conversation})).await;
    assert_eq!(
        data["conversation"]["inboxEntry"],
        json!({"unreadCount": 99, "unreadCountIsCapped": true})
    );
    bob.mark_read(&conversation, None).await;
    let data = bob.data(document, json!({"c": conversation})).await;
    assert_eq!(
        data["conversation"]["inboxEntry"],
        json!({"unreadCount": 0, "unreadCountIsCapped": false})
    );
}

#[tokio::test]
async fn receipts_do_not_go_back_when_a_marker_does() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let conversation = alice.direct("bob").await;
    let (one, two) = (
        alice.send(&conversation, "one").await,
        alice.send(&conversation, "two").await,
    );
    bob.mark_read(&conversation, Some(&two.id)).await;
    bob.mark_unread(&conversation, &one.id).await;
    assert_eq!(bob.unread(&conversation).await, 2);
    let document = "query($c: ID!) { conversation(id: $c) { inboxEntry { readUpTo { uuid } }
        participants { edges { node { user { username } readUpTo { uuid } deliveredUpTo { uuid } } } } } }";
    let data = bob.data(document, json!({"c": conversation})).await;
    assert_eq!(data["conversation"]["inboxEntry"]["readUpTo"], Value::Null);
    let people: HashMap<_, _> = data["conversation"]["participants"]["edges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| {
            (
                text(&edge["node"]["user"]["username"]),
                edge["node"].clone(),
            )
        })
        .collect();
    assert_eq!(people["bob"]["readUpTo"]["uuid"], json!(two.uuid));
    assert_eq!(people["bob"]["deliveredUpTo"]["uuid"], json!(two.uuid));
    assert_eq!(people["alice"]["readUpTo"], Value::Null);
}

/// A user who replies has read up to the reply. A later `markRead` also publishes the receipt to the others.
#[tokio::test]
async fn marking_read_after_an_answer_moves_the_receipt() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let asked = alice.send(&c, "are you there?").await;
    bob.send(&c, "yes").await;
    bob.mark_read(&c, Some(&asked.id)).await;
    let people = "query($c: ID!) { conversation(id: $c) { participants { edges { node { readUpTo { id } } } } } }";
    let data = alice.data(people, json!({"c": c})).await;
    assert_eq!(
        data["conversation"]["participants"]["edges"][1]["node"]["readUpTo"]["id"],
        json!(asked.id)
    );
    assert_eq!(bob.unread(&c).await, 0);
}

/// A group in which more messages than one read takes are unread for ann, and deleted.
fn deleted_messages() -> &'static [u8] {
    const ID: &str = "22499111-0000-4000-8000-000022499111";
    let people = r#"[{"username": "ann"}, {"username": "ben"}]"#;
    let head = format!(
        r#"{{"type": "conversation", "id": "{ID}", "kind": "GROUP", "name": "us", "createdAt": "1970-05-23T21:21:18Z", "createdBy": "ann", "participants": {people}}}"#
    );
    let messages = (0..1_010).map(|number| {
        let time = 0x9905_9b00_u32 + 10 * number;
        format!(
            r#"{{"type": "message", "conversationId": "{ID}", "id": "{time:08x}-8e1a-11b2-8001-0249c2249001", "sender": "ben", "deletedAt": "1970-05-24T00:00:00Z"}}"#
        )
    });
    let lines: Vec<_> = std::iter::once(head).chain(messages).collect();
    lines.join("\n").leak().as_bytes()
}

#[tokio::test]
async fn a_count_behind_a_thousand_deleted_messages_is_exact_at_the_second_look() {
    let world = World::with_import(deleted_messages()).await;
    let (ann, ben) = (world.user("ann"), world.user("ben"));
    let inbox =
        "{ inbox { edges { node { conversation { id } unreadCount unreadCountIsCapped } } } }";
    let mut entry = Value::Null;
    for is_capped in [true, false] {
        let data = ann.data(inbox, json!({})).await;
        entry = data["inbox"]["edges"][0]["node"].clone();
        assert_eq!(entry["unreadCount"], 0);
        assert_eq!(entry["unreadCountIsCapped"], is_capped);
    }
    let c = text(&entry["conversation"]["id"]);
    let unread = "query($c: ID!) { conversation(id: $c) { inboxEntry { unreadCount unreadCountIsCapped firstUnreadMessage { id } } }
        inbox(filter: {unreadOnly: true}) { edges { cursor } } inboxSummary { unreadConversationCount } }";
    let mut first = Value::Null;
    for count in 0..3 {
        let data = ann.data(unread, json!({"c": c})).await;
        let entry = &data["conversation"]["inboxEntry"];
        assert_eq!(
            *entry,
            json!({"unreadCount": count, "unreadCountIsCapped": false, "firstUnreadMessage": first})
        );
        let is_unread = usize::from(count > 0);
        assert_eq!(data["inbox"]["edges"].as_array().unwrap().len(), is_unread);
        assert_eq!(data["inboxSummary"]["unreadConversationCount"], is_unread);
        let sent = ben.send(&c, "hello").await;
        if count == 0 {
            first = json!({"id": sent.id});
        }
    }
}

#[tokio::test]
async fn own_messages_are_never_unread_also_not_from_a_mark_on() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let first = alice.send(&c, "mine").await;
    bob.send(&c, "yours").await;
    let last = alice.send(&c, "mine again").await;
    alice.mark_unread(&c, &last.id).await;
    assert_eq!(alice.unread(&c).await, 0);
    bob.send(&c, "yours again").await;
    assert_eq!(alice.unread(&c).await, 1);
    alice.mark_unread(&c, &first.id).await;
    assert_eq!(alice.unread(&c).await, 2);
}
