//! A chat over the real store, filled by import, and asked as the HTTP door asks it: a document and variables to a text of JSON.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use async_graphql::Variables;
use async_graphql::parser::types::OperationType;
use serde_json::Value;
use tempfile::TempDir;
use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Chat, RateBounds};
use wideroom::clock::{Clock, SystemClock};
use wideroom::graphql::{Api, DocumentBounds, ExecutionLimits, OperationExecutor};
use wideroom::model::{
    Body, Content, Conversation, ConversationId, ConversationKind, GroupName, IdempotencyKey,
    Membership, Message, MessageId, MessageKind, Profile, Role, Timestamp, UserId,
};
use wideroom::rate::Pace;
use wideroom::store::embedded::{Embedded, Options};
use wideroom::store::{ImportPositions, ImportRow, Imported, Store as _, StoreAdmin};

/// Those in the conversation that is measured: who asks, whose marker is moved, who has read nothing, and one more.
const PEOPLE: [&str; 4] = ["vera", "rita", "ida", "adam"];

/// Between two messages of the long conversation, and between the last ones of two others.
const STEP_MICROS: i64 = 2_000_000;
const OTHERS_MESSAGES: u64 = 10;
/// Unread messages of the viewer in each conversation.
const UNREAD: u64 = 5;
const IMPORT_ROWS: usize = 1_000;
const OPEN_MAX: Duration = Duration::from_secs(10);

/// How much there is of what is measured.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// In one conversation.
    pub messages: u64,
    /// Conversations of the viewer, including the measured one. The others have ten messages each.
    pub conversations: usize,
}

/// A viewer with all that is theirs. Others in the same store have no part in it.
#[derive(Debug, Clone)]
pub struct Place {
    pub shape: Shape,
    pub people: [UserId; PEOPLE.len()],
    /// The conversation that is measured, which is the first in the inbox.
    pub conversation: ConversationId,
    /// Its first and its last moment.
    pub span: (Timestamp, Timestamp),
}

impl Place {
    /// A moment with as much before it as behind it.
    pub fn middle(&self) -> Timestamp {
        let (first, last) = self.span;
        first.plus_micros((last.micros() - first.micros()) / 2)
    }
}

pub struct World {
    pub bus: Bus,
    pub places: Vec<Place>,
    pub chat: Chat,
    pub api: Arc<Api>,
    store: Arc<dyn StoreAdmin>,
    folder: TempDir,
}

pub fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

/// A text of some 60 bytes, and not always the same one.
pub fn body(number: u64) -> String {
    const WORDS: [&str; 8] = [
        "tomorrow",
        "the harbour",
        "at noon",
        "with Jonas",
        "if it rains",
        "again",
        "by train",
        "for two days",
    ];
    let word = |shift: u64| WORDS[(number >> shift) as usize % WORDS.len()];
    format!(
        "{number}: we could go {}, {} or {}, {}",
        word(0),
        word(3),
        word(6),
        word(9)
    )
}

/// A TEXT message with the [`body`] of a number.
pub fn text_message(
    conversation: ConversationId,
    id: MessageId,
    sender: &UserId,
    number: u64,
) -> Message {
    let content = Content {
        body: Body::parse(body(number), Body::BYTES_MAX, false).unwrap(),
        ..Content::default()
    };
    Message::new(conversation, id, sender.clone(), MessageKind::Text, content)
}

/// As long as the UUIDs that clients use.
pub fn client_key(number: u64) -> String {
    format!("{number:036}")
}

impl World {
    /// A store that was filled, closed and opened again, and has nothing more to do. What is loaded first lies deepest.
    pub async fn load(shapes: &[Shape]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let store = open_store(folder.path()).await;
        let mut loader = Loader {
            store: &*store,
            rows: Vec::new(),
        };
        let mut places = Vec::with_capacity(shapes.len());
        for (number, shape) in shapes.iter().enumerate() {
            places.push(loader.place(number, *shape).await);
        }
        loader.flush().await;
        let took = start.elapsed();
        store.close().await.unwrap();
        drop(store);
        let world = Self::open(folder, places).await;
        println!(
            "Loaded {} messages in {:.1} s.",
            world.message_count(),
            took.as_secs_f64()
        );
        crate::measure::idle().await;
        world
    }

    pub async fn open(folder: TempDir, places: Vec<Place>) -> Self {
        let store = open_store(folder.path()).await;
        Self::over(store, folder, places).await
    }

    /// Over a store that is there. What lies in the folder is the embedded one's.
    pub async fn over(store: Arc<dyn StoreAdmin>, folder: TempDir, places: Vec<Place>) -> Self {
        Self::bounded(store, folder, places, without_rates()).await
    }

    async fn bounded(
        store: Arc<dyn StoreAdmin>,
        folder: TempDir,
        places: Vec<Place>,
        bounds: Bounds,
    ) -> Self {
        let bus = Bus::default();
        let chat = Chat::open(store.clone(), bus.clone(), Arc::new(SystemClock), bounds)
            .await
            .unwrap();
        let api = Arc::new(Api::new(chat.clone(), DocumentBounds::default()));
        Self {
            bus,
            places,
            chat,
            api,
            store,
            folder,
        }
    }

    pub fn message_count(&self) -> u64 {
        self.places
            .iter()
            .map(|Place { shape, .. }| {
                shape.messages + OTHERS_MESSAGES * (shape.conversations as u64 - 1)
            })
            .sum()
    }

    pub fn store(&self) -> &Arc<dyn StoreAdmin> {
        &self.store
    }

    /// A world without anything in it.
    pub async fn empty() -> Self {
        Self::open(tempfile::tempdir().unwrap(), Vec::new()).await
    }

    /// The same without a search index, whose work in the background falls on whatever is measured then.
    pub async fn empty_without_index() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = open_store(folder.path()).await;
        let bounds = Bounds {
            is_search_indexed: false,
            ..without_rates()
        };
        Self::bounded(store, folder, Vec::new(), bounds).await
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends it in order, and leaves the folder.
    pub async fn close(self) -> Closed {
        self.chat.finish().await;
        self.store.close().await.unwrap();
        let Self { places, folder, .. } = self;
        Closed { places, folder }
    }

    /// The text that the HTTP door would answer with.
    pub async fn ask(&self, viewer: &UserId, document: &str, variables: Value) -> String {
        let prepared = self.api.prepare(document, None).unwrap();
        debug_assert_ne!(prepared.operation, OperationType::Subscription);
        let response = self
            .api
            .execute(
                &prepared,
                Variables::from_json(variables),
                Some(viewer.clone().into()),
                Arc::default(),
            )
            .await;
        // A refused request is cheap and would falsify the figure.
        assert!(response.errors.is_empty(), "{:?}", response.errors);
        serde_json::to_string(&response).unwrap()
    }

    pub async fn data(&self, viewer: &UserId, document: &str, variables: Value) -> Value {
        let mut answer: Value =
            serde_json::from_str(&self.ask(viewer, document, variables).await).unwrap();
        answer["data"].take()
    }

    pub async fn subscribe(
        &self,
        viewer: &UserId,
        document: &str,
        variables: Value,
    ) -> futures_util::stream::BoxStream<'static, wideroom::graphql::EventResponse> {
        let prepared = self.api.prepare(document, None).unwrap();
        let limits = ExecutionLimits {
            budget: Arc::default(),
            pace: Pace::free(),
        };
        self.api
            .subscribe(
                &prepared,
                Variables::from_json(variables),
                Some(viewer.clone().into()),
                limits,
            )
            .await
    }
}

/// A world that was closed in order.
pub struct Closed {
    places: Vec<Place>,
    folder: TempDir,
}

impl Closed {
    /// For another process.
    pub fn into_parts(self) -> (Vec<Place>, TempDir) {
        (self.places, self.folder)
    }

    pub async fn open(self) -> World {
        World::open(self.folder, self.places).await
    }
}

pub fn without_rates() -> Bounds {
    Bounds {
        rates: RateBounds {
            is_on: false,
            ..RateBounds::default()
        },
        ..Bounds::default()
    }
}

/// Retries, because the previous owner may still be closing the store.
pub async fn open_store(folder: &Path) -> Arc<Embedded> {
    let start = Instant::now();
    loop {
        let options = Options {
            free_bytes_min: 0,
            ..Options::new(folder)
        };
        match Embedded::open(options, Arc::new(SystemClock)).await {
            Ok(store) => return Arc::new(store),
            Err(error) => assert!(start.elapsed() < OPEN_MAX, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Gathers rows into batches.
pub struct Loader<'a> {
    pub store: &'a dyn StoreAdmin,
    pub rows: Vec<ImportRow>,
}

impl Loader<'_> {
    pub async fn push(&mut self, row: ImportRow) {
        self.rows.push(row);
        if self.rows.len() == IMPORT_ROWS {
            self.flush().await;
        }
    }

    pub async fn flush(&mut self) {
        let fates = self.store.import(&self.rows).await.unwrap();
        assert!(
            fates.iter().all(|fate| *fate == Imported::Added),
            "everything is new"
        );
        self.rows.clear();
    }

    pub async fn place(&mut self, number: usize, shape: Shape) -> Place {
        let names = PEOPLE.map(|name| format!("{name}{number}"));
        let people: Vec<&str> = names.iter().map(String::as_str).collect();
        for name in &people {
            let profile = Profile {
                display_name: Some(name.to_uppercase()),
                ..Profile::default()
            };
            self.push(ImportRow::User {
                user: user(name),
                profile,
                restriction: Default::default(),
            })
            .await;
        }
        let last = SystemClock.now().plus_micros(-60_000_000);
        let first = last.plus_micros(-STEP_MICROS * (shape.messages as i64 - 1));
        for back in (1..shape.conversations).rev() {
            let last = last.plus_micros(-STEP_MICROS * back as i64);
            self.conversation(
                &format!("Group {back}"),
                &[people[0], people[3]],
                last,
                OTHERS_MESSAGES,
            )
            .await;
        }
        let conversation = self
            .conversation("The long one", &people, last, shape.messages)
            .await;
        Place {
            shape,
            people: names.map(|name| user(&name)),
            conversation,
            span: (first, last),
        }
    }

    /// A group with so many messages up to this moment. The first of its people has read all but the last few, the third nothing.
    pub async fn conversation(
        &mut self,
        name: &str,
        people: &[&str],
        last: Timestamp,
        messages: u64,
    ) -> ConversationId {
        static SERIAL: AtomicI64 = AtomicI64::new(1);
        let id = ConversationId::random();
        let moment = |back: u64| last.plus_micros(-STEP_MICROS * back as i64);
        // No two conversations share an id, as in a running server.
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let message_id = |back: u64| MessageId::new(moment(back), serial);
        let conversation = Conversation {
            id,
            kind: ConversationKind::Group,
            name: Some(GroupName::parse(name).unwrap()),
            created_at: moment(messages),
            created_by: Some(user(people[0])),
            input_hash: None,
            slow_mode_seconds: 0,
            history: Default::default(),
            is_large: false,
        };
        self.push(ImportRow::Conversation {
            conversation,
            last_activity: None,
            profile: Default::default(),
        })
        .await;
        for (place, name) in people.iter().enumerate() {
            let read_up_to = (place == 0 && messages > UNREAD).then(|| message_id(UNREAD));
            let positions = ImportPositions {
                read_up_to,
                ..ImportPositions::default()
            };
            let role = if place == 0 {
                Role::Owner
            } else {
                Role::Member
            };
            let membership = Membership::joined(role);
            self.push(ImportRow::Participant {
                conversation: id,
                user: user(name),
                membership,
                positions,
                ban: None,
            })
            .await;
        }
        let others: Vec<_> = people.iter().skip(1).map(|name| user(name)).collect();
        for back in (0..messages).rev() {
            let sender = &others[back as usize % others.len()];
            let message = Message {
                client_key: Some(IdempotencyKey::parse(&client_key(back)).unwrap()),
                ..text_message(id, message_id(back), sender, back)
            };
            self.push(ImportRow::Message(Arc::new(message))).await;
        }
        id
    }
}
