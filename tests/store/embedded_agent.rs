//! Cost of an agent on the embedded store, through the chat: however many conversations it has, no table grows under its name, and a send
//! asks of the store what a send to a person asks.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use fjall::{Database, KeyspaceCreateOptions};
use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use tempfile::TempDir;
use wideroom::chat::{Bounds, Chat, Draft, DraftInput, Error};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::metrics::Metrics;
use wideroom::model::{ConversationId, PageRequest, UserId};
use wideroom::store::embedded::{Embedded, Options};
use wideroom::store::{InstrumentedStore, Store as _, StoreAdmin};

use crate::support::ground::opened;
use crate::support::size::sized;
use crate::support::world::chat_on;

const AGENT: &str = "agent:helper";
/// Conversations that are begun at once, by so many tasks.
const AT_ONCE: usize = 64;
const TASKS: usize = 4;
/// An attempt looks at the folder's files: so many take minutes.
const OPENINGS_MAX: usize = 1_000_000;
/// The least of so many sends: background work falls into none or some of them.
const TRIES: usize = 6;

/// Rows under the name of a user, by table, and by tag where several kinds share one.
type Rows = BTreeMap<String, usize>;

/// Operations of the store, by name, and the rows that its scans returned.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cost {
    operations: BTreeMap<String, u64>,
    rows_scanned: u64,
}

/// The chat on the store of a folder.
struct Place {
    chat: Chat,
    store: Arc<Embedded>,
    operations: Metrics,
}

impl Place {
    /// Everybody may take part in one conversation: an agent is not counted.
    async fn open(folder: &TempDir) -> Self {
        let clock = Arc::new(SystemClock);
        let options = Options {
            free_bytes_min: 0,
            ..Options::new(folder.path())
        };
        let store = Arc::new(opened(options, clock.clone()).await);
        let measured = InstrumentedStore::new(Arc::clone(&store) as Arc<dyn StoreAdmin>);
        let operations = Metrics::default();
        measured.register(&operations);
        let bounds = Bounds {
            conversations_max: 1,
            ..Bounds::default()
        };
        let chat = chat_on(Arc::new(measured), clock, bounds);
        Self {
            chat: chat.await,
            store,
            operations,
        }
    }

    async fn close(self) {
        self.chat.finish().await;
        self.store.close().await.unwrap();
    }

    async fn send(&self, sender: &UserId, conversation: ConversationId) {
        let input = DraftInput {
            body: "Where is my order?".to_owned(),
            ..DraftInput::default()
        };
        let draft = Draft::parse(input, self.chat.bounds()).unwrap();
        let sent = self.chat.writes.send(sender, conversation, draft).await;
        sent.unwrap();
    }

    /// Both say something, and the agent has read it.
    async fn talk(&self, number: usize) -> ConversationId {
        let (person, agent) = (person(number), agent());
        let made = self.chat.writes.start_direct(&person, AGENT).await;
        let id = made.unwrap().id;
        self.send(&person, id).await;
        self.send(&agent, id).await;
        let read = self.chat.inbox.mark_read(&agent, id, None).await;
        read.unwrap();
        id
    }

    /// The same between two people.
    async fn cost_among_people(&self) -> Cost {
        let ann = UserId::parse("ann").unwrap();
        let made = self.chat.writes.start_direct(&ann, "ben").await;
        self.cost_of_send(&ann, made.unwrap().id).await
    }

    fn counts(&self) -> Cost {
        let text = self.operations.text();
        let counts = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("wideroom_store_operation_seconds_count{operation=\"")?;
            let (name, count) = rest.split_once("\"} ")?;
            Some((name.to_owned(), count.parse().unwrap()))
        });
        Cost {
            operations: counts.collect(),
            rows_scanned: self.store.rows_scanned(),
        }
    }

    /// The least that a send asks of the store.
    async fn cost_of_send(&self, sender: &UserId, conversation: ConversationId) -> Cost {
        let mut costs = Vec::new();
        for _ in 0..TRIES {
            let before = self.counts();
            self.send(sender, conversation).await;
            let mut cost = self.counts();
            cost.rows_scanned -= before.rows_scanned;
            for (name, count) in &mut cost.operations {
                *count -= before.operations[name];
            }
            cost.operations.retain(|_, count| *count > 0);
            costs.push(cost);
        }
        let spent = |cost: &Cost| (cost.operations.values().sum::<u64>(), cost.rows_scanned);
        costs.into_iter().min_by_key(spent).unwrap()
    }
}

fn agent() -> UserId {
    UserId::parse(AGENT).unwrap()
}

fn person(number: usize) -> UserId {
    UserId::parse(&format!("person{number:07}")).unwrap()
}

/// Has these people talk to the agent. Each has one conversation with it.
async fn talk_all(place: &Arc<Place>, numbers: Range<usize>) {
    let tasks = (0..TASKS).map(|task| {
        let (place, numbers) = (Arc::clone(place), numbers.clone());
        tokio::spawn(async move {
            let own = numbers.skip(task).step_by(TASKS);
            let talks = stream::iter(own).for_each_concurrent(AT_ONCE, async |number| {
                place.talk(number).await;
            });
            talks.await;
        })
    });
    for ended in join_all(tasks).await {
        ended.unwrap();
    }
}

/// Reads the engine's own files, of a store that is closed.
fn rows_of(folder: &Path, user: &UserId) -> Rows {
    let opened =
        (0..OPENINGS_MAX).find_map(|_| match Database::builder(folder.join("db")).open() {
            // A read of the store may end a moment after it was closed.
            Err(fjall::Error::Locked) => {
                std::thread::yield_now();
                None
            }
            opened => Some(opened.unwrap()),
        });
    let database = opened.expect("nobody has it open");
    let mut rows = Rows::new();
    for name in database.list_keyspace_names() {
        let keyspace = database.keyspace(&name, KeyspaceCreateOptions::default);
        let keyspace = keyspace.unwrap();
        let mut count = |kind: String, prefix: &[u8]| {
            let count = keyspace.prefix(prefix).count();
            if count > 0 {
                rows.insert(kind, count);
            }
        };
        count(name.to_string(), user.as_str().as_bytes());
        for tag in 0..=u8::MAX {
            let prefix = [&[tag], user.as_str().as_bytes()].concat();
            count(format!("{}/{tag}", &*name), &prefix);
        }
    }
    rows
}

/// Counts after the first conversation, after as many as the second number says, and after the third.
async fn an_agent_talks_to_everybody(milestones: [usize; 3]) {
    let folder = tempfile::tempdir().unwrap();
    let [_, some, all] = milestones;
    let (mut begun, mut costs) = (0, Vec::new());
    for milestone in milestones {
        let place = Arc::new(Place::open(&folder).await);
        let began = SystemClock.now();
        talk_all(&place, begun..milestone).await;
        let took = (SystemClock.now().micros() - began.micros()) / 1_000;
        println!("{} conversations in {took} ms", milestone - begun);
        begun = milestone;
        let last = person(milestone - 1);
        let id = place.store.direct_conversation(&last, &agent()).await;
        let id = id.unwrap().unwrap();
        if costs.is_empty() {
            costs.push(place.cost_among_people().await);
        }
        costs.push(place.cost_of_send(&last, id).await);
        costs.push(place.cost_of_send(&agent(), id).await);
        if milestone == all {
            assert_bounds(&place, some).await;
        }
        Arc::into_inner(place).unwrap().close().await;
        let of = |user| rows_of(folder.path(), user);
        let (of_agent, of_first, of_last) = (of(&agent()), of(&person(0)), of(&last));
        println!("{milestone} conversations: {of_agent:?} of the agent, {of_last:?} of a person");
        assert_eq!(of_agent, Rows::new(), "{milestone}");
        assert!(of_last.len() > 2, "those of a person are found");
        assert_eq!(of_last, of_first, "{milestone}");
    }
    println!("a send: {:?}", costs[0]);
    assert!(costs[0].operations.contains_key("append_messages"));
    assert!(costs.iter().all(|cost| *cost == costs[0]), "{costs:?}");
}

/// The lists of the agent are empty; a person is in one conversation, which is the most, and stays the most.
async fn assert_bounds(place: &Place, number: usize) {
    let (store, person) = (&place.store, person(number));
    let page = PageRequest::first(9);
    assert_eq!(store.conversation_count(&agent(), 9).await.unwrap(), 0);
    assert!(store.inbox(&agent(), &page).await.unwrap().items.is_empty());
    assert_eq!(store.conversation_count(&person, 9).await.unwrap(), 1);
    assert_eq!(store.inbox(&person, &page).await.unwrap().items.len(), 1);
    let refused = place.chat.writes.start_direct(&person, "agent:other").await;
    assert!(matches!(refused, Err(Error::BadInput { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_conversations_an_agent_has_a_send_costs_the_same() {
    an_agent_talks_to_everybody(sized([1, 20, 200], [1, 100, 10_000])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: a million conversations take most of an hour in a debug build"]
async fn nightly_an_agent_has_a_million_conversations() {
    an_agent_talks_to_everybody([1, 1_000, 1_000_000]).await;
}
