//! Mentions: who may mention whom, what is counted, and counts after random interleavings.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use serde_json::{Value, json};
use wideroom::model::{MessageId, OrderKey};

use crate::support::cases::length;
use crate::support::world::{Actor, Answer, Sent, World, node_texts, text};

const NAMES: [&str; 4] = ["alice", "bob", "carol", "dave"];

async fn say(actor: &Actor, conversation: &str, users: &[&str], everyone: bool) -> Sent {
    let data = try_say(actor, conversation, users, everyone).await.data();
    let edge = &data["sendMessage"]["messageEdge"];
    Sent {
        id: text(&edge["node"]["id"]),
        uuid: text(&edge["node"]["uuid"]),
        cursor: text(&edge["cursor"]),
    }
}

async fn try_say(actor: &Actor, conversation: &str, users: &[&str], everyone: bool) -> Answer {
    let input = json!({"conversationId": conversation, "body": "hello", "mentionedUsernames": users, "mentionsEveryone": everyone});
    let document = "mutation($i: SendMessageInput!) { sendMessage(input: $i) { messageEdge { cursor node { id uuid mentions { username } mentionsEveryone } } } }";
    actor.ask(document, json!({"i": input})).await
}

async fn edit(actor: &Actor, message: &str, mut input: Value) -> Answer {
    input["messageId"] = json!(message);
    if input["body"].is_null() {
        input["body"] = json!("hello");
    }
    let document = "mutation($i: EditMessageInput!) { editMessage(input: $i) { message { id mentions { username } mentionsEveryone editedAt } } }";
    actor.ask(document, json!({"i": input})).await
}

async fn delete(actor: &Actor, message: &str) -> Answer {
    let document = "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id mentions { username } mentionsEveryone } } }";
    actor.ask(document, json!({"m": message})).await
}

/// The viewer's entry of a conversation; null without one.
async fn entry(actor: &Actor, conversation: &str) -> Value {
    let document = "query($c: ID!) { conversation(id: $c) { inboxEntry { unreadCount unreadMentionCount unreadMentionCountIsCapped
        firstUnreadMention { uuid } readUpTo { uuid } notificationLevel isMuted } } }";
    actor.data(document, json!({"c": conversation})).await["conversation"]["inboxEntry"].clone()
}

async fn count(actor: &Actor, conversation: &str) -> i64 {
    let entry = entry(actor, conversation).await;
    assert_eq!(entry["unreadMentionCountIsCapped"], false);
    entry["unreadMentionCount"].as_i64().unwrap()
}

fn names(users: &Value) -> Vec<String> {
    let users = users.as_array().unwrap();
    users.iter().map(|user| text(&user["username"])).collect()
}

#[tokio::test]
async fn mentions_are_kept_as_named_and_counted_until_they_are_read() {
    let world = World::open().await;
    let (alice, bob, carol) = (world.user("alice"), world.user("bob"), world.user("carol"));
    let c = alice.group("We", &["bob", "carol"]).await;
    alice.send(&c, "plain").await;
    let data = try_say(&alice, &c, &["nobody", "bob", "bob"], false)
        .await
        .data();
    let node = &data["sendMessage"]["messageEdge"]["node"];
    assert_eq!(names(&node["mentions"]), ["bob", "nobody"]);
    assert_eq!(node["mentionsEveryone"], false);
    let everyone = say(&alice, &c, &[], true).await;
    say(&bob, &c, &["alice", "bob"], true).await;
    assert_eq!(count(&alice, &c).await, 1);
    assert_eq!(count(&carol, &c).await, 2);
    let of_carol = entry(&carol, &c).await;
    assert_eq!(of_carol["firstUnreadMention"]["uuid"], everyone.uuid);
    assert_eq!(of_carol["unreadCount"], 4);
    assert_eq!(count(&bob, &c).await, 0, "bob has read by sending");
    bob.mark_unread(&c, &text(&node["id"])).await;
    assert_eq!(count(&bob, &c).await, 2);
    carol.mark_read(&c, None).await;
    let of_carol = entry(&carol, &c).await;
    assert_eq!(of_carol["unreadMentionCount"], 0);
    assert_eq!(of_carol["firstUnreadMention"], Value::Null);
}

#[tokio::test]
async fn an_edit_keeps_replaces_or_clears_mentions() {
    let world = World::open().await;
    let (alice, bob, carol) = (world.user("alice"), world.user("bob"), world.user("carol"));
    let c = alice.group("We", &["bob", "carol"]).await;
    let sent = say(&alice, &c, &["bob"], false).await;
    let edited = edit(&alice, &sent.id, json!({"body": "other"}))
        .await
        .data();
    let message = &edited["editMessage"]["message"];
    assert_eq!(
        names(&message["mentions"]),
        ["bob"],
        "what is left out stays"
    );
    assert_eq!(count(&bob, &c).await, 1);
    let same = json!({"body": "other", "mentionedUsernames": ["bob"], "mentionsEveryone": false});
    let again = edit(&alice, &sent.id, same).await.data();
    assert_eq!(again, edited, "the same changes nothing");
    edit(&alice, &sent.id, json!({"mentionedUsernames": ["carol"]}))
        .await
        .data();
    assert_eq!((count(&bob, &c).await, count(&carol, &c).await), (0, 1));
    edit(&alice, &sent.id, json!({"mentionsEveryone": true}))
        .await
        .data();
    assert_eq!((count(&bob, &c).await, count(&carol, &c).await), (1, 1));
    let cleared = json!({"mentionedUsernames": [], "mentionsEveryone": false});
    let message = edit(&alice, &sent.id, cleared).await.data()["editMessage"]["message"].clone();
    assert_eq!(
        (names(&message["mentions"]), &message["mentionsEveryone"]),
        (vec![], &json!(false))
    );
    assert_eq!((count(&bob, &c).await, count(&carol, &c).await), (0, 0));
    edit(&alice, &sent.id, json!({"mentionedUsernames": ["bob"]}))
        .await
        .data();
    let deleted = delete(&alice, &sent.id).await.data()["deleteMessage"]["message"].clone();
    assert_eq!(names(&deleted["mentions"]), [""; 0]);
    assert_eq!(count(&bob, &c).await, 0);
}

#[tokio::test]
async fn mentions_are_within_their_bounds() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let many: Vec<_> = (0..51).map(|n| format!("user-{n}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let long: Vec<_> = (0..17).map(|n| format!("{n:0128}")).collect();
    let long: Vec<_> = long.iter().map(String::as_str).collect();
    let path = json!(["input", "mentionedUsernames"]);
    for users in [&many[..], &long[..], &[""], &["a\u{0}"]] {
        let refused = try_say(&alice, &c, users, false).await;
        assert_eq!(
            (refused.code().as_str(), &refused.extensions()["inputPath"]),
            ("BAD_USER_INPUT", &path)
        );
    }
    let sent = say(&alice, &c, &many[..50], true).await;
    say(&alice, &c, &long[..16], false).await;
    let refused = edit(&alice, &sent.id, json!({"mentionedUsernames": many})).await;
    assert_eq!(
        (refused.code().as_str(), &refused.extensions()["inputPath"]),
        ("BAD_USER_INPUT", &path)
    );
}

#[tokio::test]
async fn members_of_large_conversations_do_not_mention_everyone() {
    let world = World::open().await;
    let alice = world.user("alice");
    let users: Vec<_> = (0..40).map(|i| format!("user-{i:02}")).collect();
    let users: Vec<_> = users.iter().map(String::as_str).collect();
    let c = alice.group("large", &users).await;
    let (member, other) = (world.user("user-07"), world.user("user-08"));
    assert_eq!(try_say(&member, &c, &[], true).await.code(), "FORBIDDEN");
    let sent = say(&member, &c, &["user-08"], false).await;
    let refused = edit(&member, &sent.id, json!({"mentionsEveryone": true})).await;
    assert_eq!(refused.code(), "FORBIDDEN");
    say(&alice, &c, &[], true).await;
    assert_eq!(count(&other, &c).await, 2);
    assert_eq!(entry(&other, &c).await["notificationLevel"], "MENTIONS");
}

#[tokio::test]
async fn the_key_of_a_send_covers_its_mentions() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let document = "mutation($i: SendMessageInput!) { sendMessage(input: $i) { messageEdge { node { id } } } }";
    let send = async |users: &[&str], everyone: bool| {
        let input = json!({"conversationId": c, "body": "x", "idempotencyKey": "k", "mentionedUsernames": users, "mentionsEveryone": everyone});
        alice.ask(document, json!({"i": input})).await
    };
    let first = send(&["bob"], false).await.data();
    assert_eq!(send(&["bob", "bob"], false).await.data(), first);
    for (users, everyone) in [(&[][..], false), (&["bob"], true), (&["carol"], false)] {
        assert_eq!(send(users, everyone).await.code(), "CONFLICT");
    }
}

#[tokio::test]
async fn a_filter_and_the_summary_find_conversations_with_mentions() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let (one, two) = (
        alice.group("one", &["bob"]).await,
        alice.group("two", &["bob"]).await,
    );
    alice.send(&alice.direct("bob").await, "hello").await;
    say(&alice, &one, &["bob"], false).await;
    alice.send(&two, "hello").await;
    let summary =
        "{ inboxSummary { unreadConversationCount mentionedConversationCount isCapped } }";
    let expected =
        json!({"unreadConversationCount": 3, "mentionedConversationCount": 1, "isCapped": false});
    assert_eq!(bob.data(summary, json!({})).await["inboxSummary"], expected);
    let found = async || {
        let document = "{ inbox(filter: {mentionedOnly: true}) { edges { node { conversation { id } unreadMentionCount } } } }";
        let data = bob.data(document, json!({})).await;
        node_texts(&data["inbox"]["edges"], "/conversation/id")
    };
    assert_eq!(found().await, [one.as_str()]);
    bob.mark_read(&one, None).await;
    assert_eq!(found().await, [""; 0]);
    say(&alice, &two, &[], true).await;
    assert_eq!(found().await, [two.as_str()]);
    let mute = "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, muted: true}) { inboxEntry { isMuted } } }";
    bob.data(mute, json!({"c": two})).await;
    let expected =
        json!({"unreadConversationCount": 1, "mentionedConversationCount": 0, "isCapped": false});
    assert_eq!(bob.data(summary, json!({})).await["inboxSummary"], expected);
}

#[tokio::test]
async fn a_level_is_the_default_until_it_is_set_and_again_with_null() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let level = async || text(&entry(&bob, &c).await["notificationLevel"]);
    let set = async |level: Value| {
        let document = "mutation($i: UpdateInboxEntryInput!) { updateInboxEntry(input: $i) { inboxEntry { notificationLevel isMuted } } }";
        let input = json!({"conversationId": c, "notificationLevel": level});
        bob.data(document, json!({"i": input})).await["updateInboxEntry"]["inboxEntry"].clone()
    };
    assert_eq!(level().await, "ALL");
    for one in ["NONE", "MENTIONS", "ALL"] {
        assert_eq!(set(json!(one)).await["notificationLevel"], one);
        assert_eq!(level().await, one);
    }
    set(json!("NONE")).await;
    let mute = "mutation($c: ID!) { updateInboxEntry(input: {conversationId: $c, muted: true}) { inboxEntry { isMuted notificationLevel } } }";
    let muted = bob.data(mute, json!({"c": c})).await["updateInboxEntry"]["inboxEntry"].clone();
    assert_eq!(muted, json!({"isMuted": true, "notificationLevel": "NONE"}));
    // Left out is a variable without a value too, in the first execution of a document and in later ones.
    let open = "mutation($c: ID!, $l: NotificationLevel, $m: Boolean) { ...F } fragment F on Mutation {
        updateInboxEntry(input: {conversationId: $c, notificationLevel: $l, muted: $m}) { inboxEntry { isMuted notificationLevel } } }";
    for (given, expected) in [
        (json!({"c": c}), "NONE"),
        (json!({"c": c}), "NONE"),
        (json!({"c": c, "l": "MENTIONS"}), "MENTIONS"),
        (json!({"c": c, "m": true}), "MENTIONS"),
        (json!({"c": c, "l": null}), "ALL"),
    ] {
        let changed = bob.data(open, given.clone()).await;
        let entry = &changed["updateInboxEntry"]["inboxEntry"];
        let expected = json!({"isMuted": true, "notificationLevel": expected});
        assert_eq!(*entry, expected, "{given}");
    }
    set(json!("NONE")).await;
    assert_eq!(set(Value::Null).await["notificationLevel"], "ALL");
    assert_eq!(entry(&alice, &c).await["notificationLevel"], "ALL");
}

#[tokio::test]
async fn an_edit_of_mentions_reaches_an_inbox_stream() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "one").await;
    alice.send(&c, "two").await;
    let mut inbox = bob.subscribe(
        "subscription { inboxUpdated { event { ... on InboxEntryChangedEvent { inboxEntryEdge { node { unreadMentionCount firstUnreadMention { id } } } } } } }",
        json!({}),
    );
    assert_eq!(inbox.next().await["inboxUpdated"]["event"], Value::Null);
    edit(&alice, &sent.id, json!({"mentionedUsernames": ["bob"]}))
        .await
        .data();
    let event = inbox.next().await["inboxUpdated"]["event"].clone();
    let node = &event["inboxEntryEdge"]["node"];
    assert_eq!(
        *node,
        json!({"unreadMentionCount": 1, "firstUnreadMention": {"id": sent.id}})
    );
}

/// Random numbers of one run (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % sides as u64).unwrap()
    }

    fn users(&mut self) -> Vec<&'static str> {
        let kept = self.roll(16);
        let named = (0..4).filter(|bit| kept >> bit & 1 == 1);
        named.map(|index| NAMES[index]).collect()
    }
}

/// A message as the oracle knows it.
#[derive(Debug, Clone)]
struct Known {
    id: String,
    sender: usize,
    mentioned: BTreeSet<String>,
    everyone: bool,
    is_deleted: bool,
}

/// One conversation, and what is known of its messages.
struct Oracle<'a> {
    world: &'a World,
    conversation: String,
    messages: BTreeMap<OrderKey, Known>,
    blocks: &'a mut BTreeSet<(usize, usize)>,
}

#[derive(Debug, Clone)]
enum Step {
    Send(usize, Vec<&'static str>, bool),
    Edit(OrderKey, Option<Vec<&'static str>>, Option<bool>),
    Delete(OrderKey),
    Read(usize, Option<OrderKey>),
    Unread(usize, OrderKey),
    Block(usize, usize, bool),
    Leave(usize),
    Rejoin(usize),
}

impl Oracle<'_> {
    fn any_message(&self, dice: &mut Dice) -> Option<OrderKey> {
        let index = dice.roll(self.messages.len().max(1));
        self.messages.keys().nth(index).copied()
    }

    fn step(&self, dice: &mut Dice) -> Step {
        let user = dice.roll(4);
        let other = (user + 1 + dice.roll(3)) % 4;
        let send = Step::Send(user, dice.users(), dice.roll(5) == 0);
        let Some(message) = self.any_message(dice) else {
            return send;
        };
        match dice.roll(16) {
            0..=5 => send,
            6..=8 => {
                let users = (dice.roll(3) > 0).then(|| dice.users());
                Step::Edit(
                    message,
                    users,
                    [None, Some(true), Some(false)][dice.roll(3)],
                )
            }
            9 => Step::Delete(message),
            10 => Step::Read(user, (dice.roll(3) > 0).then_some(message)),
            11 | 12 => Step::Unread(user, message),
            13 => Step::Block(user, other, dice.roll(2) == 0),
            14 => Step::Leave(1 + dice.roll(3)),
            _ => Step::Rejoin(1 + dice.roll(3)),
        }
    }

    fn actor(&self, user: usize) -> Actor {
        self.world.user(NAMES[user])
    }

    /// Takes a step. One that is refused changes nothing.
    async fn take(&self, step: &Step) -> Option<(OrderKey, Known)> {
        let c = self.conversation.as_str();
        let id = |message: &OrderKey| self.messages[message].id.clone();
        match step {
            Step::Send(user, users, everyone) => {
                let answer = try_say(&self.actor(*user), c, users, *everyone).await;
                if answer.is_refused() || !answer.has_data() {
                    return None;
                }
                let data = answer.data_beside_errors();
                let node = &data["sendMessage"]["messageEdge"]["node"];
                let uuid = node["uuid"].as_str()?;
                let known = Known {
                    id: text(&node["id"]),
                    sender: *user,
                    mentioned: users.iter().map(|name| (*name).to_owned()).collect(),
                    everyone: *everyone,
                    is_deleted: false,
                };
                return Some((MessageId::parse(uuid).unwrap().order_key(), known));
            }
            Step::Edit(message, users, everyone) => {
                let mut input = json!({});
                if let Some(users) = users {
                    input["mentionedUsernames"] = json!(users);
                }
                if let Some(everyone) = everyone {
                    input["mentionsEveryone"] = json!(everyone);
                }
                let sender = self.messages[message].sender;
                edit(&self.actor(sender), &id(message), input).await;
            }
            Step::Delete(message) => {
                let sender = self.messages[message].sender;
                delete(&self.actor(sender), &id(message)).await;
            }
            Step::Read(user, message) => {
                let document = "mutation($c: ID!, $m: ID) { markRead(input: {conversationId: $c, messageId: $m}) { inboxEntry { id } } }";
                let message = message.as_ref().map(id);
                self.actor(*user)
                    .ask(document, json!({"c": c, "m": message}))
                    .await;
            }
            Step::Unread(user, message) => {
                let document = "mutation($c: ID!, $m: ID!) { markUnread(input: {conversationId: $c, messageId: $m}) { inboxEntry { id } } }";
                self.actor(*user)
                    .ask(document, json!({"c": c, "m": id(message)}))
                    .await;
            }
            Step::Block(user, other, is_on) => {
                let field = if *is_on { "blockUser" } else { "unblockUser" };
                let document = format!(
                    "mutation($u: String!) {{ {field}(input: {{username: $u}}) {{ user {{ id }} }} }}"
                );
                self.actor(*user)
                    .data(&document, json!({"u": NAMES[*other]}))
                    .await;
            }
            Step::Leave(user) => {
                let document = "mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { leftConversationId } }";
                self.actor(*user).ask(document, json!({"c": c})).await;
            }
            Step::Rejoin(user) => {
                let document = "mutation($c: ID!, $u: [String!]!) { addParticipants(input: {conversationId: $c, usernames: $u}) { conversation { id } } }";
                self.actor(0)
                    .ask(document, json!({"c": c, "u": [NAMES[*user]]}))
                    .await;
            }
        }
        None
    }

    /// Takes steps at once, and then reads the messages that they may have changed.
    async fn take_at_once(&mut self, steps: &[Step]) {
        let sent = join_all(steps.iter().map(|step| self.take(step))).await;
        self.messages.extend(sent.into_iter().flatten());
        for step in steps {
            match step {
                Step::Edit(message, ..) | Step::Delete(message) => self.read(*message).await,
                Step::Block(user, other, true) => drop(self.blocks.insert((*user, *other))),
                Step::Block(user, other, false) => drop(self.blocks.remove(&(*user, *other))),
                Step::Send(..)
                | Step::Read(..)
                | Step::Unread(..)
                | Step::Leave(_)
                | Step::Rejoin(_) => {}
            }
        }
    }

    async fn read(&mut self, message: OrderKey) {
        let document = "query($m: ID!) { node(id: $m) { ... on Message { mentions { username } mentionsEveryone deletedAt } } }";
        let known = self.messages.get_mut(&message).unwrap();
        let data = self
            .world
            .user(NAMES[0])
            .data(document, json!({"m": known.id}))
            .await;
        let node = &data["node"];
        known.mentioned = names(&node["mentions"]).into_iter().collect();
        known.everyone = node["mentionsEveryone"] == true;
        known.is_deleted = !node["deletedAt"].is_null();
    }

    /// Compares the counts of all who take part with those of the naive look at every message.
    async fn compare(&self, steps: &[Step]) {
        for (user, name) in NAMES.into_iter().enumerate() {
            let entry = entry(&self.actor(user), &self.conversation).await;
            if entry.is_null() {
                continue;
            }
            let read = entry["readUpTo"]["uuid"].as_str();
            let read = read.map_or(OrderKey::MIN, |uuid| {
                MessageId::parse(uuid).unwrap().order_key()
            });
            let is_mention = |known: &Known| {
                known.sender != user
                    && !known.is_deleted
                    && (known.everyone || known.mentioned.contains(name))
                    && !self.blocks.contains(&(user, known.sender))
            };
            let unread = self.messages.iter().filter(|(at, _)| **at > read);
            let expected: Vec<_> = unread.filter(|(_, known)| is_mention(known)).collect();
            let what = format!("{name} after {steps:?}, read up to {read:?}");
            assert_eq!(
                entry["unreadMentionCount"],
                expected.len().min(99),
                "{what}"
            );
            assert_eq!(
                entry["unreadMentionCountIsCapped"],
                expected.len() > 99,
                "{what}"
            );
            let first = entry["firstUnreadMention"]["uuid"].as_str();
            let first = first.map(|uuid| MessageId::parse(uuid).unwrap().order_key());
            assert_eq!(first, expected.first().map(|(at, _)| **at), "{what}");
        }
    }
}

/// Steps of one conversation.
const STEPS_OF_ONE: usize = 250;

/// `WIDEROOM_INTERLEAVINGS` sets the number of steps, and `WIDEROOM_SEED` where they begin.
#[tokio::test]
async fn counts_are_those_of_a_naive_look_after_random_interleavings() {
    let number = |name: &str, default: usize| {
        std::env::var(name).map_or(default, |text| text.parse().expect("it is a number"))
    };
    let mut left = number("WIDEROOM_INTERLEAVINGS", length(400, 100));
    let mut dice = Dice(number("WIDEROOM_SEED", 42) as u64 | 1 << 40);
    let world = World::open().await;
    let mut blocks = BTreeSet::new();
    while left > 0 {
        let conversation = world.user(NAMES[0]).group("We", &NAMES[1..]).await;
        let mut oracle = Oracle {
            world: &world,
            conversation,
            messages: BTreeMap::new(),
            blocks: &mut blocks,
        };
        let mut of_one = STEPS_OF_ONE.min(left);
        while of_one > 0 {
            // Most steps alone, some at once.
            let count = [1, 1, 2, 3][dice.roll(4)].min(of_one);
            let mut steps: Vec<_> = (0..count).map(|_| oracle.step(&mut dice)).collect();
            // The test does not know the order of two changes of one block.
            let mut has_block = false;
            steps.retain(|step| {
                !matches!(step, Step::Block(..)) || !std::mem::replace(&mut has_block, true)
            });
            oracle.take_at_once(&steps).await;
            oracle.compare(&steps).await;
            of_one -= count;
            left -= count;
        }
    }
}
