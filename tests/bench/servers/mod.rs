//! The law of the cluster, measured: what a message costs with 1 to 200 servers, and what a server costs at rest.
//!
//! The servers (chat, bus and caches of each) are in this process, over one counting store; their users all have an inbox stream, which
//! asks for what an app shows. Then the same on a real Cassandra, with servers in processes of their own, by its own counters.

mod counting;
mod directory;
mod memory;
mod processes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_graphql::Variables;
use futures_util::stream::{self, StreamExt as _};
use tempfile::TempDir;
use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Chat, Draft, DraftInput, RateBounds};
use wideroom::clock::SystemClock;
use wideroom::graphql::{Api, DocumentBounds, ExecutionLimits, OperationExecutor as _};
use wideroom::model::{ConversationId, UserId};
use wideroom::rate::Pace;
use wideroom::store::Store;
use wideroom::store::embedded::{Embedded, Options};

use self::counting::{Cost, CountingStore, Meter, record};
use self::directory::Directory;
use crate::Size;
use crate::report::{self, Verdicts, number};
use crate::world::user;

const SERVERS: [usize; 5] = [1, 3, 10, 50, 200];
/// The number of servers that the others are compared with.
const COMPARED_WITH: usize = 3;
const OPEN_AT_ONCE: usize = 64;
/// Longer than a poll and everything that it causes.
const SETTLE: Duration = Duration::from_secs(6);
/// Between two messages, so that no two of them share a poll by chance alone.
const PAUSE: Duration = Duration::from_millis(50);
const AT_REST_MAX: f64 = 8.0;
const RATIO_MAX: f64 = 1.2;

/// Fields that an app needs to draw its list and its badge.
const ENTRIES: &str = "subscription { inboxUpdated { cursor event { ... on InboxEntryChangedEvent { inboxEntryEdge { cursor node {
    id unreadCount lastActivityAt lastMessage { id body sender { username } } conversation { id kind name } } } } } } }";

/// A kind of conversation.
struct Kind {
    name: &'static str,
    participants: usize,
    conversations: usize,
    messages: usize,
}

/// How much there is of it.
struct Scale {
    users: usize,
    rest: Duration,
    kinds: [Kind; 3],
}

impl Scale {
    fn of(size: &Size) -> Self {
        let is_quick = size.messages < crate::FULL.messages;
        let by = if is_quick { 10 } else { 1 };
        let kind = |name, participants, conversations: usize, messages: usize| Kind {
            name,
            participants,
            conversations: (conversations / by).max(1),
            messages: messages / by.min(4),
        };
        Self {
            users: 20_000 / by,
            // A poll crosses from one minute's mailbox into the next for some seconds of each minute.
            rest: Duration::from_secs(60),
            kinds: [
                kind("of two", 2, 2_000, 400),
                kind("of eight", 8, 500, 200),
                kind("of 500 (large)", 500, 2, 40),
            ],
        }
    }
}

/// Conversations of each kind, with their participants.
type Conversations = [Vec<(ConversationId, Vec<usize>)>; 3];

/// Costs with one number of servers: at rest for each second and server, and of a message of each kind.
struct Row {
    servers: usize,
    at_rest: Cost,
    kinds: Vec<(Cost, f64)>,
}

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    let scale = Scale::of(size);
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let conversations = converse(&store, &scale).await;
    memory::measure(&store, &conversations, &mut verdicts).await;
    report::heading(&format!(
        "{} users who are online, each on one server; statements and rows (the counting store)",
        scale.users
    ));
    println!(
        "  {:>7}  {:>16}  {}",
        "servers",
        "at rest, a second",
        scale
            .kinds
            .each_ref()
            .map(|kind| format!("{:>28}", kind.name))
            .join("  ")
    );
    let mut rows = Vec::new();
    for servers in SERVERS {
        let row = with_servers(servers, &store, &conversations, &scale).await;
        print(&row);
        rows.push(row);
    }
    judge(&rows, &scale, &mut verdicts);
    verdicts.print();
    processes::measure(size).await;
}

fn print(row: &Row) {
    let kind = |(cost, delivered): &(Cost, f64)| {
        format!(
            "{:>6} {:>7} {:>6} streams",
            number(cost.statements),
            number(cost.rows),
            number(*delivered)
        )
    };
    let kinds: Vec<_> = row.kinds.iter().map(kind).collect();
    println!(
        "  {:>7}  {:>8} {:>8}  {}",
        row.servers,
        number(row.at_rest.statements),
        number(row.at_rest.rows),
        kinds.join("  ")
    );
}

fn judge(rows: &[Row], scale: &Scale, verdicts: &mut Verdicts) {
    let compared = rows
        .iter()
        .find(|row| row.servers == COMPARED_WITH)
        .unwrap();
    let last = rows.last().unwrap();
    for (index, kind) in scale.kinds.iter().enumerate() {
        let ratio = last.kinds[index].0.statements / compared.kinds[index].0.statements;
        let what = format!(
            "statements of a message {}, with {} servers to {COMPARED_WITH}",
            kind.name, last.servers
        );
        verdicts.push(&what, ratio, "at most 1.2", ratio <= RATIO_MAX);
    }
    let sum = |row: &Row| -> f64 {
        let weighed = row.kinds.iter().zip(&scale.kinds);
        weighed
            .map(|((cost, _), kind)| cost.statements * kind.messages as f64)
            .sum()
    };
    let delivered = |row: &Row| -> f64 {
        let weighed = row.kinds.iter().zip(&scale.kinds);
        weighed
            .map(|((_, delivered), kind)| delivered * kind.messages as f64)
            .sum()
    };
    let ratio = (sum(last) / delivered(last)) / (sum(compared) / delivered(compared));
    let what = "statements for each delivery, of all messages together";
    verdicts.push(what, ratio, "at most 1.2", ratio <= RATIO_MAX);
    let most = rows
        .iter()
        .map(|row| row.at_rest.statements)
        .fold(0.0, f64::max);
    let what = "statements a second of a server at rest, the most";
    verdicts.push(what, most, "at most 8", most <= AT_REST_MAX);
}

async fn open(folder: &TempDir) -> Arc<Embedded> {
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    };
    Arc::new(
        Embedded::open(options, Arc::new(SystemClock))
            .await
            .unwrap(),
    )
}

fn name(number: usize) -> UserId {
    user(&format!("user{number:05}"))
}

/// Pseudo-random numbers of a seed (SplitMix64): the same conversations in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % bound as u64) as usize
    }

    /// Different numbers.
    fn some(&mut self, count: usize, bound: usize) -> Vec<usize> {
        let mut some = Vec::with_capacity(count);
        while some.len() < count {
            let one = self.below(bound);
            if !some.contains(&one) {
                some.push(one);
            }
        }
        some
    }
}

fn bounds() -> Bounds {
    Bounds {
        rates: RateBounds {
            is_on: false,
            ..RateBounds::default()
        },
        ..Bounds::default()
    }
}

/// Conversations of random users, who are on random servers therefore.
async fn converse(store: &Arc<Embedded>, scale: &Scale) -> Conversations {
    let chat = Chat::open(
        Arc::clone(store) as Arc<dyn Store>,
        Bus::default(),
        Arc::new(SystemClock),
        bounds(),
    )
    .await
    .unwrap();
    let mut dice = Dice(7);
    let mut made: Conversations = Default::default();
    for (kind, made) in scale.kinds.iter().zip(&mut made) {
        for _ in 0..kind.conversations {
            let people = dice.some(kind.participants, scale.users);
            let names: Vec<_> = people[1..]
                .iter()
                .map(|one| name(*one).as_str().to_owned())
                .collect();
            // A call names at most 50.
            let (first, rest) = names.split_at(names.len().min(50));
            let owner = name(people[0]);
            let group = chat.writes.create_group(&owner, "a group", first, None);
            let id = group.await.unwrap().id;
            for some in rest.chunks(50) {
                let added = chat.writes.add_participants(&owner, id, some);
                added.await.unwrap();
            }
            made.push((id, people));
        }
    }
    chat.finish().await;
    made
}

/// Servers over one store, with the streams of all users.
struct Fleet {
    meter: Arc<Meter>,
    servers: Vec<(Chat, Arc<Api>)>,
    delivered: Arc<AtomicU64>,
    readers: Vec<tokio::task::AbortHandle>,
}

impl Fleet {
    async fn open(servers: usize, store: &Arc<Embedded>, conversations: &Conversations) -> Self {
        let meter = Arc::new(Meter::default());
        let directory = Directory::new(&meter);
        for (id, people) in conversations.iter().flatten() {
            let viewer = name(people[0]);
            let found = store.participations(&viewer, &[*id]).await.unwrap().pop();
            let conversation = found.flatten().unwrap().conversation;
            record(&directory, store, &conversation).await;
        }
        let mut opened = Vec::new();
        for _ in 0..servers {
            let store: Arc<dyn Store> = Arc::new(CountingStore::new(store, &directory, &meter));
            let chat = Chat::open(store, Bus::default(), Arc::new(SystemClock), bounds());
            let chat = chat.await.unwrap();
            let api = Arc::new(Api::new(chat.clone(), DocumentBounds::default()));
            opened.push((chat, api));
        }
        Self {
            meter,
            servers: opened,
            delivered: Arc::default(),
            readers: Vec::new(),
        }
    }

    fn of_user(&self, number: usize) -> &(Chat, Arc<Api>) {
        &self.servers[number % self.servers.len()]
    }

    /// Opens the stream of each user, and reads it from now on.
    async fn read(&mut self, users: usize) {
        let opened = stream::iter(0..users).map(|number| {
            let (_, api) = self.of_user(number);
            let (api, viewer) = (Arc::clone(api), name(number));
            let delivered = Arc::clone(&self.delivered);
            async move {
                let prepared = api.prepare(ENTRIES, None).unwrap();
                let limits = ExecutionLimits {
                    budget: Arc::default(),
                    pace: Pace::free(),
                };
                let viewer = Some(viewer.into());
                let mut events = api
                    .subscribe(&prepared, Variables::default(), viewer, limits)
                    .await;
                events.next().await.unwrap();
                let reader = async move {
                    while events.next().await.is_some() {
                        delivered.fetch_add(1, Ordering::Relaxed);
                    }
                };
                tokio::spawn(reader).abort_handle()
            }
        });
        self.readers = opened.buffer_unordered(OPEN_AT_ONCE).collect().await;
    }

    async fn send(&self, (id, people): &(ConversationId, Vec<usize>), sender: usize) {
        let number = people[sender % people.len()];
        let (chat, _) = self.of_user(number);
        let input = DraftInput {
            body: "tomorrow at noon, by train".to_owned(),
            ..DraftInput::default()
        };
        let draft = Draft::parse(input, chat.bounds()).unwrap();
        let sender = name(number);
        chat.writes.send(&sender, *id, draft).await.unwrap();
    }
}

async fn with_servers(
    servers: usize,
    store: &Arc<Embedded>,
    conversations: &Conversations,
    scale: &Scale,
) -> Row {
    let mut fleet = Fleet::open(servers, store, conversations).await;
    fleet.read(scale.users).await;
    // Every server and every stream has met each conversation once.
    for (kind, of_kind) in scale.kinds.iter().zip(conversations) {
        for conversation in of_kind.iter().take(kind.messages) {
            fleet.send(conversation, 0).await;
        }
    }
    tokio::time::sleep(2 * SETTLE).await;
    let (before, began) = (fleet.meter.read_resting(), Instant::now());
    let others = fleet.meter.read();
    tokio::time::sleep(scale.rest).await;
    let resting = fleet.meter.read_resting().since(before);
    let others = fleet.meter.read().since(others);
    let other_a_second = others.per(began.elapsed().as_secs_f64());
    let a_second = resting.per(began.elapsed().as_secs_f64());
    let mut kinds = Vec::new();
    for (kind, of_kind) in scale.kinds.iter().zip(conversations) {
        let (before, began) = (fleet.meter.read(), Instant::now());
        let delivered = fleet.delivered.load(Ordering::Relaxed);
        for number in 0..kind.messages {
            let conversation = &of_kind[number % of_kind.len()];
            fleet.send(conversation, 1 + number / of_kind.len()).await;
            tokio::time::sleep(PAUSE).await;
        }
        tokio::time::sleep(SETTLE).await;
        let spent = fleet.meter.read().since(before);
        // Reads of restrictions, which are few and steady.
        let spent = spent.less(other_a_second, began.elapsed().as_secs_f64());
        let delivered = fleet.delivered.load(Ordering::Relaxed) - delivered;
        let messages = kind.messages as f64;
        kinds.push((spent.per(messages), delivered as f64 / messages));
    }
    fleet.readers.iter().for_each(|reader| reader.abort());
    for (chat, _) in &fleet.servers {
        chat.finish().await;
    }
    Row {
        servers,
        at_rest: a_second.less(other_a_second, -1.0).per(servers as f64),
        kinds,
    }
}
