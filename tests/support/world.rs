//! The chat under test, with a real store of its own, and the people who use it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_graphql::Variables;
use async_graphql::parser::types::OperationType;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Chat, GroupInput, RateBounds};
use wideroom::clock::{Clock, SystemClock};
use wideroom::graphql::{
    Api, DocumentBounds, EventContent, EventResponse, ExecutionLimits, OperationExecutor,
    SharedPayload,
};
use wideroom::model::{UserId, Viewer};
use wideroom::rate::Pace;
use wideroom::store::{Store, StoreAdmin};
use wideroom::transfer::Import;

use super::as_agent;
use super::door::{Door, SERVICE, Said};
use super::ground::{Ground, patient};

/// Set where a service acts for every actor of this process, through `Wideroom-As`.
pub(crate) const BY_SERVICE: &str = "WIDEROOM_TEST_BY_SERVICE";

/// How often a query is asked until two answers of one moment are equal.
const COMPARISONS_MAX: usize = 20;

/// How long a test waits for what must happen: longer than the busiest machine takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct World {
    pub(crate) api: Arc<Api>,
    pub(crate) chat: Chat,
    pub(crate) store: Arc<dyn StoreAdmin>,
    door: Option<Door>,
    ground: Ground,
}

pub(crate) struct Actor {
    api: Arc<Api>,
    user: Option<UserId>,
    /// The door through which a service acts for this actor.
    door: Option<Door>,
}

/// Answer to one request.
#[derive(Debug, Clone)]
pub(crate) struct Answer(pub(crate) Value);

/// Stream of the payloads of one subscription.
pub(crate) struct Stream(Payloads);

enum Payloads {
    Api(BoxStream<'static, EventResponse>),
    Door(BoxStream<'static, Value>),
}

/// The same bounds without rates, because tests act faster than users.
pub(crate) fn without_rates(bounds: Bounds) -> Bounds {
    let rates = RateBounds {
        is_on: false,
        ..bounds.rates
    };
    Bounds { rates, ..bounds }
}

/// A group with these users beside its creator.
pub(crate) fn group_of(name: &str, usernames: &[String], key: Option<&str>) -> GroupInput {
    GroupInput {
        name: name.to_owned(),
        usernames: usernames.to_vec(),
        idempotency_key: key.map(ToOwned::to_owned),
        ..GroupInput::default()
    }
}

/// A chat with these bounds and without rates.
pub(crate) async fn chat_on(store: Arc<dyn Store>, clock: Arc<dyn Clock>, bounds: Bounds) -> Chat {
    let chat = Chat::open(store, Bus::default(), clock, without_rates(bounds)).await;
    chat.unwrap()
}

impl World {
    pub(crate) async fn open() -> Self {
        Self::with_bounds(Bounds::default()).await
    }

    pub(crate) async fn with_bounds(bounds: Bounds) -> Self {
        Self::without_rates(Ground::new(&SystemClock).await, bounds).await
    }

    /// World with rate limits. Other worlds have none, because tests act faster than users.
    pub(crate) async fn with_rates(rates: RateBounds) -> Self {
        Self::with_rates_and_bounds(Bounds {
            rates,
            ..Bounds::default()
        })
        .await
    }

    pub(crate) async fn with_rates_and_bounds(bounds: Bounds) -> Self {
        Self::open_on(Ground::new(&SystemClock).await, bounds).await
    }

    async fn without_rates(ground: Ground, bounds: Bounds) -> Self {
        Self::open_on(ground, without_rates(bounds)).await
    }

    async fn open_on(ground: Ground, bounds: Bounds) -> Self {
        let bounds = patient(bounds);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store = ground.open(Arc::clone(&clock)).await;
        let chat = Chat::open(store.clone(), Bus::default(), clock, bounds)
            .await
            .unwrap();
        let api = Arc::new(Api::new(chat.clone(), DocumentBounds::default()));
        let door = std::env::var_os(BY_SERVICE).map(|_| Door::of(&chat));
        Self {
            api,
            chat,
            store,
            door,
            ground,
        }
    }

    /// A world that holds the tutorial's people and messages.
    pub(crate) async fn with_sample() -> Self {
        Self::with_import(include_bytes!("../../src/cli/demo.jsonl")).await
    }

    /// A world that holds what was imported, every line of it.
    pub(crate) async fn with_import(lines: &'static [u8]) -> Self {
        Self::with_import_and_bounds(lines, Bounds::default()).await
    }

    pub(crate) async fn with_import_and_bounds(lines: &'static [u8], bounds: Bounds) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let ground = Ground::new(&SystemClock).await;
        let store = ground.open(Arc::clone(&clock)).await;
        let import = Import {
            store: Arc::clone(&store),
            clock,
            dir: ground.folder().to_owned(),
            is_lossy: false,
            stop: CancellationToken::new(),
        };
        let lines = as_agent::translated(std::str::from_utf8(lines).unwrap());
        let lines = std::io::Cursor::new(lines.into_owned());
        let outcome = import.pipe(lines, &mut |_| {}).await.unwrap();
        assert_eq!(outcome.counts.broken_lines, 0);
        store.close().await.unwrap();
        drop((import, store));
        Self::without_rates(ground, bounds).await
    }

    /// The same store after the server was stopped and started again. Nobody may still hold on to the old one.
    pub(crate) async fn restarted(self) -> Self {
        self.chat.finish().await;
        self.store.close().await.unwrap();
        let Self {
            api,
            chat,
            store,
            door,
            ground,
        } = self;
        drop((api, chat, store, door));
        Self::without_rates(ground, Bounds::default()).await
    }

    pub(crate) fn user(&self, name: &str) -> Actor {
        Actor {
            api: Arc::clone(&self.api),
            user: Some(UserId::parse(as_agent::name_of(name)).unwrap()),
            door: self.door.clone(),
        }
    }

    /// Somebody without a token.
    pub(crate) fn nobody(&self) -> Actor {
        Actor {
            api: Arc::clone(&self.api),
            user: None,
            door: None,
        }
    }
}

impl Actor {
    pub(crate) fn of(api: &Arc<Api>, user: &UserId) -> Self {
        Self {
            api: Arc::clone(api),
            user: Some(user.clone()),
            door: None,
        }
    }

    pub(crate) async fn ask(&self, document: &str, variables: Value) -> Answer {
        let (document, variables) = in_api(document, variables);
        let document = document.as_ref();
        let prepared = self.api.prepare(document, None).unwrap();
        assert_ne!(prepared.operation, OperationType::Subscription);
        if let (Some(door), Some(user)) = (&self.door, &self.user) {
            let is_query = prepared.operation == OperationType::Query;
            return ask_by_service(door, user, document, variables, is_query).await;
        }
        let variables = prepared
            .coerce(Variables::from_json(variables))
            .unwrap()
            .variables;
        let response = self
            .api
            .execute(&prepared, variables, self.viewer(), Arc::default())
            .await;
        Answer::of(&response)
    }

    /// The data of an answer without errors.
    pub(crate) async fn data(&self, document: &str, variables: Value) -> Value {
        self.ask(document, variables).await.data()
    }

    /// The caller of the operations of this actor.
    fn viewer(&self) -> Option<Viewer> {
        let user = self.user.clone()?;
        Some(match &self.door {
            Some(_) => Viewer::acting(user, UserId::parse(SERVICE).unwrap()),
            None => user.into(),
        })
    }

    pub(crate) fn subscribe(&self, document: &str, variables: Value) -> Stream {
        if let (Some(door), Some(user)) = (&self.door, &self.user) {
            let badge = door.service().acting_as(user.as_str());
            return Stream(Payloads::Door(door.subscribe(&badge, document, &variables)));
        }
        self.subscribe_at(document, variables, Pace::free())
    }

    /// The same, at a pace.
    pub(crate) fn subscribe_at(&self, document: &str, variables: Value, pace: Pace) -> Stream {
        let (document, variables) = in_api(document, variables);
        let prepared = self.api.prepare(document.as_ref(), None).unwrap();
        assert_eq!(prepared.operation, OperationType::Subscription);
        let variables = prepared
            .coerce(Variables::from_json(variables))
            .unwrap()
            .variables;
        let (api, user) = (Arc::clone(&self.api), self.viewer());
        let limits = ExecutionLimits {
            budget: Arc::default(),
            pace,
        };
        Stream(Payloads::Api(
            async move { api.subscribe(&prepared, variables, user, limits).await }
                .flatten_stream()
                .boxed(),
        ))
    }

    /// Why this is not even executed.
    pub(crate) fn refused(&self, document: &str, variables: Value) -> String {
        let (document, variables) = in_api(document, variables);
        self.api
            .prepare(document.as_ref(), None)
            .unwrap()
            .coerce(Variables::from_json(variables))
            .unwrap_err()
            .to_string()
    }

    /// The id of the direct conversation with this user.
    pub(crate) async fn direct(&self, username: &str) -> String {
        let document = "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id } } }";
        let data = self.data(document, json!({"u": username})).await;
        text(&data["startDirectConversation"]["conversation"]["id"])
    }

    pub(crate) async fn group(&self, name: &str, usernames: &[&str]) -> String {
        let document = "mutation($n: String!, $u: [String!]!) {
            createGroupConversation(input: {name: $n, usernames: $u}) { conversation { id } } }";
        let data = self
            .data(document, json!({"n": name, "u": usernames}))
            .await;
        text(&data["createGroupConversation"]["conversation"]["id"])
    }

    /// Sends a text, and answers with `{id uuid cursor}` of the message.
    pub(crate) async fn send(&self, conversation: &str, body: &str) -> Sent {
        let document = "mutation($c: ID!, $b: String!) {
            sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { cursor node { id uuid } } } }";
        let data = self
            .data(document, json!({"c": conversation, "b": body}))
            .await;
        let edge = &data["sendMessage"]["messageEdge"];
        Sent {
            id: text(&edge["node"]["id"]),
            uuid: text(&edge["node"]["uuid"]),
            cursor: text(&edge["cursor"]),
        }
    }

    pub(crate) async fn mark_read(&self, conversation: &str, message: Option<&str>) {
        let document = "mutation($c: ID!, $m: ID) { markRead(input: {conversationId: $c, messageId: $m}) { inboxEntry { id } } }";
        self.data(document, json!({"c": conversation, "m": message}))
            .await;
    }

    pub(crate) async fn mark_unread(&self, conversation: &str, message: &str) {
        let document = "mutation($c: ID!, $m: ID!) { markUnread(input: {conversationId: $c, messageId: $m}) { inboxEntry { id } } }";
        self.data(document, json!({"c": conversation, "m": message}))
            .await;
    }

    /// The position from which a stream of the conversation's events begins.
    pub(crate) async fn events_cursor(&self, conversation: &str) -> String {
        let document = "query($c: ID!) { conversation(id: $c) { eventsCursor } }";
        let data = self.data(document, json!({"c": conversation})).await;
        text(&data["conversation"]["eventsCursor"])
    }

    pub(crate) async fn message_count(&self, conversation: &str) -> i64 {
        let document = "query($c: ID!) { conversation(id: $c) { messageCount } }";
        let data = self.data(document, json!({"c": conversation})).await;
        data["conversation"]["messageCount"].as_i64().unwrap()
    }

    pub(crate) async fn unread(&self, conversation: &str) -> i64 {
        let document = "query($c: ID!) { conversation(id: $c) { inboxEntry { unreadCount } } }";
        let data = self.data(document, json!({"c": conversation})).await;
        data["conversation"]["inboxEntry"]["unreadCount"]
            .as_i64()
            .unwrap()
    }
}

/// The texts at a path of each node, by the edges of a list.
pub(crate) fn node_texts(edges: &Value, path: &str) -> Vec<String> {
    let edges = edges.as_array().unwrap().iter();
    edges
        .map(|edge| text(edge["node"].pointer(path).unwrap()))
        .collect()
}

/// A message that was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) uuid: String,
    pub(crate) cursor: String,
}

/// A document and its variables as the API receives them.
fn in_api(document: &str, variables: Value) -> (Cow<'_, str>, Value) {
    let document = as_agent::translated(document);
    (document, as_agent::variables(variables))
}

impl Answer {
    fn of(response: &impl serde::Serialize) -> Self {
        Self(as_agent::answer(serde_json::to_value(response).unwrap()))
    }

    pub(crate) fn data(self) -> Value {
        assert!(self.0.get("errors").is_none(), "{}", self.0);
        self.0["data"].clone()
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.0.get("errors").is_some()
    }

    pub(crate) fn has_data(&self) -> bool {
        self.0.get("errors").is_none()
    }

    /// Partial data of an answer with errors.
    pub(crate) fn data_beside_errors(self) -> Value {
        self.0["data"].clone()
    }

    /// The code of the only error.
    pub(crate) fn code(&self) -> String {
        text(&self.extensions()["code"])
    }

    pub(crate) fn extensions(&self) -> &Value {
        let errors = self.0["errors"]
            .as_array()
            .unwrap_or_else(|| panic!("no error: {}", self.0));
        assert_eq!(errors.len(), 1, "{}", self.0);
        assert!(!text(&errors[0]["message"]).is_empty());
        &errors[0]["extensions"]
    }
}

impl Stream {
    /// Data of the next payload, which must have no errors.
    pub(crate) async fn next(&mut self) -> Value {
        self.answer().await.data()
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        self.told().await.0
    }

    /// The same, and whether its bytes are shared with others.
    pub(crate) async fn told(&mut self) -> (Answer, bool) {
        let told = tokio::time::timeout(PATIENCE, self.0.next())
            .await
            .expect("nothing came");
        told.expect("the stream ended")
    }

    /// The bytes that come next, which are shared with others.
    pub(crate) async fn payload(&mut self) -> SharedPayload {
        let Payloads::Api(payloads) = &mut self.0 else {
            panic!("a door shows no shared bytes")
        };
        match tokio::time::timeout(PATIENCE, payloads.next())
            .await
            .expect("nothing came")
        {
            Some(EventResponse {
                content: EventContent::Shared(payload),
                ..
            }) => payload,
            other => panic!("{other:?} is shared with nobody"),
        }
    }

    /// Whether it ends, with nothing before.
    pub(crate) async fn has_ended(&mut self) -> bool {
        tokio::time::timeout(PATIENCE, self.0.next())
            .await
            .expect("it goes on")
            .is_none()
    }

    /// Whether nothing is there now: asked only after something that would have been told before.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.0.next().now_or_never().is_none()
    }
}

impl Payloads {
    async fn next(&mut self) -> Option<(Answer, bool)> {
        match self {
            Self::Api(responses) => responses.next().await.map(|told| {
                let is_shared = matches!(told.content, EventContent::Shared(_));
                (Answer::of(&told.content), is_shared)
            }),
            Self::Door(payloads) => payloads.next().await.map(|told| (Answer(told), false)),
        }
    }
}

/// The bytes of an answer without its positions of streams and its times to wait, which move with the
/// clock.
fn at_rest(said: &Said) -> (u16, String) {
    let mut text = said.text.clone();
    for (name, end) in [
        ("\"eventsCursor\":\"", '"'),
        ("\"updatesCursor\":\"", '"'),
        ("\"retryAfterMs\":", '}'),
    ] {
        let mut from = 0;
        while let Some(found) = text[from..].find(name) {
            from += found + name.len();
            let length = text[from..].find(end).unwrap();
            text.replace_range(from..from + length, "");
        }
    }
    (said.status, text)
}

/// Asks through `Wideroom-As`. A query gives the same bytes as with the user's own token; it is asked
/// again where something changed between the two.
async fn ask_by_service(
    door: &Door,
    user: &UserId,
    document: &str,
    variables: Value,
    is_query: bool,
) -> Answer {
    let acting = door.service().acting_as(user.as_str());
    let mut by_service = door.ask(&acting, document, &variables).await;
    if is_query {
        let own = door.user(user.as_str());
        let mut tries = 0;
        loop {
            let by_user = door.ask(&own, document, &variables).await;
            if at_rest(&by_user) == at_rest(&by_service) {
                break;
            }
            tries += 1;
            assert!(
                tries < COMPARISONS_MAX,
                "by a service: {by_service:?}, by the user: {by_user:?}"
            );
            by_service = door.ask(&acting, document, &variables).await;
        }
    }
    Answer(by_service.json())
}

pub(crate) fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a text: {value}"))
        .to_owned()
}
