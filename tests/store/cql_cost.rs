//! Cost of API operations on Cassandra, in statements: bounds, and figures with `--nocapture`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_graphql::Variables;
use serde_json::{Value, json};
use wideroom::chat::Bounds;
use wideroom::clock::SystemClock;
use wideroom::graphql::{Api, DocumentBounds, OperationExecutor as _};
use wideroom::model::UserId;
use wideroom::store::cql::Cql;

use super::stage::keyspace;
use crate::support::cost::{RUNS_MAX, least_cost};
use crate::support::words::{crowd, new_salt_among_others, user};
use crate::support::world::chat_on;

const GROUP: &str = "mutation($u: [String!]!) { createGroupConversation(input: { name: \"Us\", usernames: $u }) { conversation { id } } }";
const SEND: &str = "mutation($c: ID!, $k: String) { sendMessage(input: { conversationId: $c, body: \"Hello\", idempotencyKey: $k }) {
    messageEdge { cursor node { id } } } }";
const SEND_WITH_ENTRY: &str =
    "mutation($c: ID!) { sendMessage(input: { conversationId: $c, body: \"Hello\" }) {
    messageEdge { node { id } } inboxEntryEdge { cursor node { unreadCount } } } }";
const COUNT: &str = "query($c: ID!) { conversation(id: $c) { messageCount } }";
const PAGE: &str = "query($c: ID!, $a: String) { conversation(id: $c) {
    messages(first: 20, after: $a) { edges { node { body sender { username } } } pageInfo { endCursor hasNextPage } } } }";
const INBOX: &str = "{ inbox(first: 20) { edges { node { unreadCount lastMessage { body } conversation { name } } } } }";
const WRITE_LIVE: &str = "mutation($c: ID!, $k: String!, $p: Int!, $t: String!) {
    writeLiveMessage(input: { conversationId: $c, key: $k, writer: \"w\", position: $p, text: $t }) {
    nextPosition liveMessage { stopRequestedBy { username } } } }";
const LIVE_MESSAGES: &str =
    "query($c: ID!) { conversation(id: $c) { liveMessages { body status sender { username } } } }";
const MARK_READ: &str =
    "mutation($c: ID!) { markRead(input: { conversationId: $c }) { inboxEntry { id } } }";

struct Door {
    store: Arc<Cql>,
    api: Api,
    told: Vec<(String, u64, u64)>,
}

impl Door {
    async fn open() -> Option<Self> {
        let address = keyspace().await?;
        new_salt_among_others();
        let store = Arc::new(Cql::open(address, Arc::new(SystemClock)).await.unwrap());
        let chat = chat_on(store.clone(), Arc::new(SystemClock), Bounds::default()).await;
        Some(Self {
            store,
            api: Api::new(chat, DocumentBounds::default()),
            told: Vec::new(),
        })
    }

    async fn ask(&self, viewer: &UserId, document: &str, variables: Value) -> Value {
        let prepared = self.api.prepare(document, None).unwrap();
        let response = self
            .api
            .execute(
                &prepared,
                Variables::from_json(variables),
                Some(viewer.clone().into()),
                Arc::default(),
            )
            .await;
        assert!(response.errors.is_empty(), "{:?}", response.errors);
        response.data.into_json().unwrap()
    }

    async fn group(&self, people: &[UserId]) -> String {
        let names: Vec<_> = people[1..].iter().map(UserId::as_str).collect();
        let made = self.ask(&people[0], GROUP, json!({"u": names})).await;
        made["createGroupConversation"]["conversation"]["id"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Notes what this takes, and what it may take.
    async fn note(&mut self, what: &str, most: u64, operation: impl AsyncFn(&Self, usize)) {
        let statements = || self.store.statements_sent();
        let least = least_cost(statements, most, async |number| {
            operation(self, number).await;
        });
        let least = least.await;
        self.told.push((what.to_owned(), least, most));
    }

    fn judge(&self) {
        for (what, least, most) in &self.told {
            println!("{what}: {least} statements, at most {most}");
        }
        assert!(
            self.told.iter().all(|(_, least, most)| least <= most),
            "{:?}",
            self.told
        );
    }
}

#[tokio::test]
async fn a_send_costs_as_many_statements_however_many_take_part() {
    let Some(mut door) = Door::open().await else {
        return;
    };
    let people = crowd(40);
    let viewer = &people[0];
    for count in [2, 8, 32, 33, 40] {
        // One statement reads the sessions of at most 16 participants; a large conversation has
        // listeners instead.
        let more = u64::from((17..=32).contains(&count));
        let conversation = door.group(&people[..count]).await;
        let conversation = conversation.as_str();
        // The first one reads who takes part.
        door.ask(viewer, SEND, json!({"c": conversation})).await;
        let unkeyed =
            async |door: &Door, _| drop(door.ask(viewer, SEND, json!({"c": conversation})).await);
        door.note(&format!("a send, {count} people"), 5 + more, unkeyed)
            .await;
        let keyed = async |door: &Door, number| {
            drop(
                door.ask(
                    viewer,
                    SEND,
                    json!({"c": conversation, "k": format!("key {number}")}),
                )
                .await,
            )
        };
        door.note(
            &format!("a send with a key, {count} people"),
            6 + more,
            keyed,
        )
        .await;
        let with_entry = async |door: &Door, _| {
            drop(
                door.ask(viewer, SEND_WITH_ENTRY, json!({"c": conversation}))
                    .await,
            )
        };
        // The entry is shown beside its conversation alone, which is read again as the viewer sees it now.
        door.note(
            &format!("a send with its entry, {count} people"),
            8 + more,
            with_entry,
        )
        .await;
    }
    door.judge();
}

#[tokio::test]
async fn a_send_to_an_agent_takes_the_statements_of_one_to_a_person() {
    let Some(mut door) = Door::open().await else {
        return;
    };
    let [ann, ben, agent] = ["ann", "ben", "agent:helper"].map(user);
    let with_ben = door.group(&[ann.clone(), ben]).await;
    let with_agent = door.group(&[ann.clone(), agent.clone()]).await;
    for (what, sender, conversation) in [
        ("a person", &ann, &with_ben),
        ("an agent", &ann, &with_agent),
        ("of an agent", &agent, &with_agent),
    ] {
        door.ask(sender, SEND, json!({"c": conversation})).await;
        let sent =
            async |door: &Door, _| drop(door.ask(sender, SEND, json!({"c": conversation})).await);
        door.note(what, 5, sent).await;
        let with_entry = async |door: &Door, _| {
            drop(
                door.ask(sender, SEND_WITH_ENTRY, json!({"c": conversation}))
                    .await,
            )
        };
        door.note(&format!("{what}, with its entry"), 8, with_entry)
            .await;
    }
    let read = json!({"c": with_agent});
    let mark = async |door: &Door, _| drop(door.ask(&agent, MARK_READ, read.clone()).await);
    door.note("a mark of an agent", 4, mark).await;
    door.judge();
}

#[tokio::test]
async fn a_page_and_a_marker_cost_few_statements() {
    let Some(mut door) = Door::open().await else {
        return;
    };
    let [ann, ben] = crowd(2).try_into().unwrap();
    let conversation = door.group(&[ann.clone(), ben.clone()]).await;
    let conversation = conversation.as_str();
    for _ in 0..60 {
        door.ask(&ben, SEND, json!({"c": conversation})).await;
    }
    let newest = door.ask(&ann, PAGE, json!({"c": conversation})).await;
    let cursor = newest["conversation"]["messages"]["pageInfo"]["endCursor"].clone();
    door.note("the newest page", 3, async |door: &Door, _| {
        drop(door.ask(&ann, PAGE, json!({"c": conversation})).await)
    })
    .await;
    door.note("a page further back", 3, async |door: &Door, _| {
        drop(
            door.ask(&ann, PAGE, json!({"c": conversation, "a": cursor}))
                .await,
        )
    })
    .await;
    // The first one has read its whole index. Later ones read the young rows, and the messages.
    door.note("a count of a young history", 3, async |door: &Door, _| {
        drop(door.ask(&ann, COUNT, json!({"c": conversation})).await)
    })
    .await;
    // Each time there is something to read.
    let read = async |door: &Door, _| {
        door.ask(&ben, SEND, json!({"c": conversation})).await;
        door.ask(&ann, MARK_READ, json!({"c": conversation})).await;
    };
    // The marker is delivered to the viewer's devices, and to the other participants by notices that the answer does not wait for: their
    // last statement may count in the next turn.
    door.note("a send and markRead", 5 + 7, read).await;
    door.judge();
}

#[tokio::test]
async fn a_page_of_the_inbox_costs_a_few_statements_an_entry() {
    let Some(mut door) = Door::open().await else {
        return;
    };
    let people = crowd(21);
    for other in &people[1..] {
        let conversation = door.group(&[other.clone(), people[0].clone()]).await;
        door.ask(other, SEND, json!({"c": conversation})).await;
    }
    let page = async |door: &Door, _| {
        let page = door.ask(&people[0], INBOX, json!({})).await;
        let edges = page["inbox"]["edges"].as_array().unwrap();
        assert!(edges.len() == 20 && edges.iter().all(|edge| edge["node"]["unreadCount"] == 1));
    };
    // The rows and the list of large conversations; 21 memberships and 20 bucket indexes, each 16 to a statement; the newest messages of each
    // conversation, which are the unread ones and the last one.
    door.note("a page of the inbox", 2 + 2 + 2 + 20, page).await;
    for other in &people[1..] {
        let conversation = door.group(&[other.clone(), people[0].clone()]).await;
        for _ in 0..12 {
            door.ask(other, SEND, json!({"c": conversation})).await;
        }
    }
    let page = async |door: &Door, _| {
        let page = door.ask(&people[0], INBOX, json!({})).await;
        let edges = page["inbox"]["edges"].as_array().unwrap();
        assert!(edges.len() == 20 && edges.iter().all(|edge| edge["node"]["unreadCount"] == 12));
    };
    // More than the newest messages are unread: they are counted by another read.
    door.note("a page of the inbox, 12 unread each", 2 + 2 + 2 + 40, page)
        .await;
    door.judge();
}

/// Text of one write that gathers more than a hundred tokens of a model.
const GATHERED_BYTES: usize = 600;

#[tokio::test]
async fn a_write_to_a_live_message_is_one_statement_and_its_end_an_ordinary_send() {
    let Some(mut door) = Door::open().await else {
        return;
    };
    let [ann, agent] = ["ann", "agent:helper"].map(user);
    let mut conversations = Vec::new();
    for _ in 0..RUNS_MAX {
        let conversation = door.group(&[ann.clone(), agent.clone()]).await;
        door.ask(&agent, SEND, json!({"c": conversation})).await;
        conversations.push(conversation);
    }
    let write = async |door: &Door, conversation: &str, key: &str, position: usize, text: &str| {
        let variables = json!({"c": conversation, "k": key, "p": position, "t": text});
        drop(door.ask(&agent, WRITE_LIVE, variables).await);
    };
    // The membership, the list of the conversation's live messages; of this one the row and whether its key was sent, before and after the
    // conditional write, and its text; two listings, and the text.
    door.note("a start", 10, async |door: &Door, number| {
        write(door, conversations[number].as_str(), "first", 0, "It rains").await;
    })
    .await;
    let position = AtomicUsize::new("It rains".len());
    let append = async |door: &Door, bytes: usize| {
        let position = position.fetch_add(bytes, Ordering::Relaxed);
        let text = "x".repeat(bytes);
        write(
            door,
            conversations[0].as_str(),
            "first",
            position,
            text.as_str(),
        )
        .await;
    };
    for bytes in [1, GATHERED_BYTES] {
        let what = format!("an append of {bytes} bytes");
        door.note(&what, 1, async |door: &Door, _| append(door, bytes).await)
            .await;
    }
    // The list of writers is read once a second, and the rights of the writer every two, in two statements.
    door.note(
        "two seconds of writing",
        8 + 2 + 2,
        async |door: &Door, _| {
            for _ in 0..8 {
                append(door, 4).await;
            }
        },
    )
    .await;
    let read = json!({"c": conversations[0]});
    door.note(
        "the live messages of a conversation",
        6,
        async |door: &Door, _| {
            drop(door.ask(&ann, LIVE_MESSAGES, read.clone()).await);
        },
    )
    .await;
    door.note("a send beside one", 5, async |door: &Door, _| {
        drop(door.ask(&ann, SEND, read.clone()).await);
    })
    .await;
    // As many as a user writes in one conversation at once. A key without a live message is that of an ordinary send.
    let keys = ["first", "second", "third", "fourth"];
    for key in &keys[1..] {
        write(&door, conversations[0].as_str(), key, 0, "It rains").await;
    }
    door.note("an end", 6, async |door: &Door, number| {
        let key = keys
            .get(number)
            .map_or_else(|| number.to_string(), |key| (*key).to_owned());
        let variables = json!({"c": conversations[0], "k": key});
        drop(door.ask(&agent, SEND, variables).await);
    })
    .await;
    door.judge();
}
