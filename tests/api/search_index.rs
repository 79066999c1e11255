//! Search by the index against a search of everything, while the index is built, merged, dropped and cut off.
//!
//! Segments are small here, so that a few hundred messages have all levels of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};
use uuid::Uuid;
use wideroom::analysis::{SearchQuery, find};
use wideroom::chat::{Bounds, IndexUpkeep};
use wideroom::clock::{Clock, SystemClock};
use wideroom::model::{ConversationId, TimeUuid, Timestamp};
use wideroom::store::Store;

use crate::support::cases::length;
use crate::support::world::{Actor, World, text};

const ACROSS: &str = "query($q: String, $f: MessageFilter, $n: Int, $a: String) {
    searchMessages(query: $q, filter: $f, first: $n, after: $a) {
        edges { node { id uuid body conversation { id } } } pageInfo { hasNextPage endCursor } } }";
const WITHIN: &str = "query($c: ID!, $q: String, $f: MessageFilter, $n: Int, $a: String) {
    conversation(id: $c) { searchMessages(query: $q, filter: $f, first: $n, after: $a) {
        edges { node { id uuid body } } pageInfo { hasNextPage endCursor } } } }";
const EDIT: &str = "mutation($m: ID!, $b: String!) { editMessage(input: {messageId: $m, body: $b}) { message { id } } }";
const DELETE: &str =
    "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }";
const INBOX: &str = "{ inbox(first: 10) { edges { node { conversation { id uuid } } } } }";
/// Imported messages.
const IMPORTED: usize = 260;
const CONVERSATIONS: usize = 3;
/// Messages of the segments, by level.
const SEGMENTS: [u32; 3] = [4, 12, 36];
/// Pages after which a walk that does not get on is given up.
const PAGES_MAX: usize = 3_000;
const WORDS: [&str; 22] = [
    "soup",
    "Soupe",
    "noon",
    "twelve",
    "ship",
    "it",
    "École",
    "naïve",
    "中文搜索",
    "全文",
    "汤",
    "スープ",
    "한국어",
    "ข้าวต้ม",
    "שלום",
    "مرحبا",
    "😀",
    "ﬁnal",
    "user_name",
    "3.14",
    "https://example.com/a/very/long/path/that/goes/on",
    "supercalifragilisticexpialidocious",
];
const QUERIES: [&str; 26] = [
    "soup",
    "so",
    "s",
    "noon it",
    "\"noon it\"",
    "ecole",
    "naive",
    "中文",
    "文",
    "搜索",
    "全文 soup",
    "汤",
    "スー",
    "한국",
    "ข้าว",
    "שלום",
    "مرحبا",
    "😀",
    "final",
    "user name",
    "\"user name\"",
    "3.1",
    "example",
    "supercalifragilisticexpialidocious",
    "supercalifragilisticexpialid",
    "absent",
];

/// A message as the test knows it.
#[derive(Clone)]
struct Known {
    conversation: usize,
    id: String,
    body: String,
}

/// The messages that are there, by conversation and position.
struct Oracle {
    ids: Vec<(String, ConversationId)>,
    /// Messages in the order of history.
    messages: BTreeMap<(wideroom::model::OrderKey, Uuid), Known>,
}

impl Oracle {
    fn find(&self, query: &str, conversation: Option<usize>) -> Vec<String> {
        let query = SearchQuery::parse(query).unwrap();
        let newest_first = self.messages.values().rev();
        newest_first
            .filter(|known| conversation.is_none_or(|one| one == known.conversation))
            .filter(|known| find(&query, [known.body.as_str()]).is_some())
            .map(|known| known.id.clone())
            .collect()
    }

    fn add(&mut self, conversation: usize, node: &Value) {
        let uuid: Uuid = text(&node["uuid"]).parse().unwrap();
        let position = TimeUuid::from_uuid(uuid).unwrap().order_key();
        let known = Known {
            conversation,
            id: text(&node["id"]),
            body: text(&node["body"]),
        };
        self.messages.insert((position, uuid), known);
    }
}

/// The choices of a run.
struct Choices(TestRng);

impl Choices {
    fn below(&mut self, count: usize) -> usize {
        (self.0.next_u64() % count as u64) as usize
    }

    fn body(&mut self) -> String {
        let count = 1 + self.below(5);
        let words: Vec<_> = (0..count).map(|_| WORDS[self.below(WORDS.len())]).collect();
        words.join(" ")
    }
}

/// A line of an import, which begins with its type.
fn line(kind: &str, fields: &Value) -> String {
    let fields = fields.to_string();
    format!("{{\"type\":\"{kind}\",{}\n", &fields[1..])
}

/// Conversations of alice with messages of last year.
fn lines(choices: &mut Choices) -> &'static [u8] {
    let mut lines = Vec::new();
    let ids: Vec<_> = (0..CONVERSATIONS).map(|_| Uuid::new_v4()).collect();
    for name in ["alice", "bob"] {
        lines.push(line("user", &json!({"username": name})));
    }
    for (number, id) in ids.iter().enumerate() {
        lines.push(line(
            "conversation",
            &json!({
                "id": id, "kind": "GROUP", "name": format!("Group {number}"),
                "createdAt": "2025-01-01T00:00:00Z",
                "participants": [{"username": "alice", "role": "OWNER"}, {"username": "bob"}],
            }),
        ));
    }
    let begin = 1_750_000_000_000_000;
    for number in 0..IMPORTED {
        let moment = Timestamp::from_micros(begin + number as i64 * 1_000_003);
        let id = TimeUuid::new(moment, [9; 8]).uuid();
        let sender = ["alice", "bob"][choices.below(2)];
        let conversation = ids[choices.below(CONVERSATIONS)];
        lines.push(line("message", &json!({"conversationId": conversation, "id": id, "sender": sender, "body": choices.body()})));
    }
    Vec::leak(lines.concat().into_bytes())
}

async fn oracle(alice: &Actor) -> Oracle {
    let inbox = alice.data(INBOX, json!({})).await;
    let edges = inbox["inbox"]["edges"].as_array().unwrap().iter();
    let ids = edges.map(|edge| {
        let conversation = &edge["node"]["conversation"];
        let uuid = text(&conversation["uuid"]).parse().unwrap();
        (text(&conversation["id"]), ConversationId(uuid))
    });
    let mut oracle = Oracle {
        ids: ids.collect(),
        messages: BTreeMap::new(),
    };
    let page =
        "query($c: ID!, $a: String) { conversation(id: $c) { messages(first: 100, after: $a) {
        edges { node { id uuid body } } pageInfo { hasNextPage endCursor } } } }";
    for (number, (id, _)) in oracle.ids.clone().into_iter().enumerate() {
        let mut after = Value::Null;
        loop {
            let data = alice.data(page, json!({"c": id, "a": after})).await;
            let messages = &data["conversation"]["messages"];
            for edge in messages["edges"].as_array().unwrap() {
                oracle.add(number, &edge["node"]);
            }
            if messages["pageInfo"]["hasNextPage"] == false {
                break;
            }
            after = messages["pageInfo"]["endCursor"].clone();
        }
    }
    oracle
}

/// The ids of all matches, page by page. Each page is further on.
async fn search(
    alice: &Actor,
    query: &str,
    conversation: Option<&str>,
    count: usize,
) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), Value::Null);
    for _ in 0..PAGES_MAX {
        let variables = json!({"q": query, "n": count, "a": after, "c": conversation});
        let page = match conversation {
            Some(_) => {
                alice.data(WITHIN, variables).await["conversation"]["searchMessages"].clone()
            }
            None => alice.data(ACROSS, variables).await["searchMessages"].clone(),
        };
        let edges = page["edges"].as_array().unwrap().iter();
        found.extend(edges.map(|edge| text(&edge["node"]["id"])));
        let end = page["pageInfo"]["endCursor"].clone();
        if page["pageInfo"]["hasNextPage"] == false {
            return found;
        }
        assert!(
            end.is_string() && end != after,
            "the next page is further on"
        );
        after = end;
    }
    panic!("the search does not end");
}

async fn compare(alice: &Actor, oracle: &Oracle, choices: &mut Choices) {
    let query = QUERIES[choices.below(QUERIES.len())];
    let count = [1, 3, 20, 100][choices.below(4)];
    let within = choices.below(CONVERSATIONS + 1);
    let conversation = oracle.ids.get(within).map(|(id, _)| id.as_str());
    let number = conversation.map(|_| within);
    let expected = oracle.find(query, number);
    let found = search(alice, query, conversation, count).await;
    assert_eq!(found, expected, "{query} in {number:?}, {count} a page");
}

/// One change, or one step of the index.
async fn act(world: &World, other: &IndexUpkeep, oracle: &mut Oracle, choices: &mut Choices) {
    let alice = world.user("alice");
    let number = choices.below(CONVERSATIONS);
    let (id, conversation) = oracle.ids[number].clone();
    let chosen = oracle
        .messages
        .keys()
        .nth(choices.below(oracle.messages.len()));
    let chosen = *chosen.unwrap();
    let is_own = "query($m: ID!) { node(id: $m) { ... on Message { viewerIsSender: sender { username } } } }";
    match choices.below(9) {
        0 | 1 => {
            let send = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) {
                messageEdge { node { id uuid body } } } }";
            let variables = json!({"c": id, "b": choices.body()});
            let sent = alice.data(send, variables).await;
            oracle.add(number, &sent["sendMessage"]["messageEdge"]["node"]);
        }
        2 => {
            let known = oracle.messages.get_mut(&chosen).unwrap();
            let data = alice.data(is_own, json!({"m": known.id})).await;
            if data["node"]["viewerIsSender"]["username"] == "alice" {
                known.body = choices.body();
                let variables = json!({"m": known.id, "b": known.body});
                alice.data(EDIT, variables).await;
            }
        }
        3 => {
            let known = oracle.messages.remove(&chosen).unwrap();
            alice.data(DELETE, json!({"m": known.id})).await;
        }
        4 | 5 => {
            world.chat.index.advance(conversation).await.unwrap();
        }
        // Two servers at once.
        6 => {
            let own = world.chat.index.advance(conversation);
            let (own, other) = tokio::join!(own, other.advance(conversation));
            own.and(other).unwrap();
        }
        // A server that ends half-way.
        7 => {
            let patience = Duration::from_micros(choices.below(4_000) as u64);
            let _ = tokio::time::timeout(patience, other.advance(conversation)).await;
        }
        _ => match choices.below(3) {
            0 => other.refresh(conversation).await.unwrap(),
            1 => drop(other.rebuild(conversation).await.unwrap()),
            _ => assert_eq!(other.missing(conversation).await.unwrap(), 0),
        },
    }
}

/// `messages_max`: the bound of a page.
async fn an_index_changes_no_answer(messages_max: usize, acts: usize) {
    let mut choices = Choices(TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    for _ in 0..messages_max {
        choices.below(2);
    }
    let bounds = Bounds {
        search_messages_max: messages_max,
        search_segments: SEGMENTS,
        ..Bounds::default()
    };
    let world = World::with_import_and_bounds(lines(&mut choices), bounds.clone()).await;
    let alice = world.user("alice");
    let mut oracle = oracle(&alice).await;
    assert_eq!(oracle.messages.len(), IMPORTED);
    let store: Arc<dyn Store> = world.store.clone();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let other = IndexUpkeep::open(store, clock, &bounds).await.unwrap();
    compare(&alice, &oracle, &mut choices).await;
    for (_, conversation) in &oracle.ids {
        let indexed = other.rebuild(*conversation).await.unwrap();
        assert!(indexed > 36, "{indexed} messages are indexed");
    }
    for round in 0..acts {
        act(&world, &other, &mut oracle, &mut choices).await;
        if round % 3 == 0 {
            // A reader while segments are replaced.
            let (_, conversation) = oracle.ids[choices.below(CONVERSATIONS)].clone();
            let compared = compare(&alice, &oracle, &mut choices);
            let ((), advanced) = tokio::join!(compared, other.advance(conversation));
            advanced.unwrap();
        }
    }
    for (_, conversation) in &oracle.ids {
        assert_eq!(other.missing(*conversation).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_index_changes_no_answer_with_the_usual_bound() {
    an_index_changes_no_answer(1_000, length(240, 60)).await;
}

#[tokio::test]
async fn an_index_changes_no_answer_of_very_short_pages() {
    for messages_max in [0, 1] {
        an_index_changes_no_answer(messages_max, length(36, 12)).await;
    }
}

#[tokio::test]
async fn an_index_changes_no_answer_of_short_pages() {
    for messages_max in [2, 3, 50] {
        an_index_changes_no_answer(messages_max, length(36, 12)).await;
    }
}
