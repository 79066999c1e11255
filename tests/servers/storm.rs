//! A crowd that is cut off at once and comes back with its cursors, through the real server, while sends go on: nothing is lost, nothing
//! comes twice, and it costs reads for the conversation, not for each client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wideroom::auth::Auth;
use wideroom::chat::{Bounds, Chat, Draft, DraftInput};
use wideroom::clock::{Clock, SystemClock};
use wideroom::graphql::{Api, DocumentBounds};
use wideroom::model::{ConversationId, UserId};
use wideroom::server::{self, ServerBounds};
use wideroom::store::embedded::{Embedded, Options};

use super::slow::Slow;
use crate::support::client::Socket;
use crate::support::world::{Actor, chat_on, group_of};

const PEOPLE: usize = 30;
const SOCKETS_EACH: usize = 5;
const SENDS: usize = 60;
const SECRET: &[u8] = b"thirty-two bytes for a test key.";
const EVENTS: &str = "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { cursor event {
    __typename ... on MessageAddedEvent { messageEdge { node { uuid body sender { username } } } }
    ... on MarkerMovedEvent { participant { user { username } readUpTo { uuid } } } } } }";

/// A server on a store that counts, and a group of people who are all there.
struct Server {
    address: SocketAddr,
    store: Arc<Slow>,
    chat: Chat,
    api: Arc<Api>,
    people: Vec<UserId>,
    conversation: ConversationId,
    /// Its global id.
    id: String,
    stop: CancellationToken,
    _folder: tempfile::TempDir,
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let options = Options {
            free_bytes_min: 0,
            ..Options::new(folder.path())
        };
        let embedded = Embedded::open(options, Arc::clone(&clock)).await.unwrap();
        let (slow, store) = Slow::before(Arc::new(embedded));
        let chat = chat_on(store, Arc::clone(&clock), Bounds::default()).await;
        let api = Arc::new(Api::new(chat.clone(), DocumentBounds::default()));
        let people: Vec<_> = (0..PEOPLE)
            .map(|number| UserId::parse(&format!("user{number:02}")).unwrap())
            .collect();
        let names: Vec<_> = people[1..]
            .iter()
            .map(|user| user.as_str().to_owned())
            .collect();
        let conversation = chat
            .writes
            .create_group(&people[0], group_of("a crowd", &names, None))
            .await
            .unwrap()
            .id;
        let data = Actor::of(&api, &people[0])
            .data(
                "{ inbox { edges { node { conversation { id } } } } }",
                json!({}),
            )
            .await;
        let id = data["inbox"]["edges"][0]["node"]["conversation"]["id"]
            .as_str()
            .unwrap()
            .to_owned();
        let bounds = ServerBounds {
            rates: server::AdmissionBounds {
                is_on: false,
                ..server::AdmissionBounds::default()
            },
            ..ServerBounds::default()
        };
        let server = Arc::new(server::Server::new(
            Arc::clone(&api) as Arc<_>,
            Arc::new(Auth::with_secret(SECRET)),
            clock,
            bounds,
        ));
        let listener = server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        tokio::spawn(server::run(
            listener,
            server,
            Router::new(),
            stop.clone().cancelled_owned(),
        ));
        Self {
            address,
            store: slow,
            chat,
            api,
            people,
            conversation,
            id,
            stop,
            _folder: folder,
        }
    }

    async fn send(&self, number: usize) -> String {
        let input = DraftInput {
            body: number.to_string(),
            ..DraftInput::default()
        };
        let draft = Draft::parse(input, self.chat.bounds()).unwrap();
        self.chat
            .writes
            .send(&self.people[number % PEOPLE], self.conversation, draft)
            .await
            .unwrap()
            .id
            .uuid()
            .to_string()
    }

    async fn connect(&self, number: usize, after: &str) -> Client {
        let user = &self.people[number % PEOPLE];
        let token =
            Auth::with_secret(SECRET).issue(user, Duration::from_secs(3_600), SystemClock.now());
        let mut socket = Socket::connect(self.address, &token).await;
        let variables = json!({"c": self.id, "after": after});
        socket.say(&json!({"type": "subscribe", "id": format!("op-{number}"), "payload": {"query": EVENTS, "variables": variables}})).await;
        Client {
            socket,
            number,
            cursor: after.to_owned(),
            seen: Vec::new(),
            markers: 0,
        }
    }

    async fn cursor(&self) -> String {
        let actor = Actor::of(&self.api, &self.people[0]);
        actor.events_cursor(&self.id).await
    }
}

struct Client {
    socket: Socket,
    number: usize,
    cursor: String,
    seen: Vec<String>,
    markers: usize,
}

impl Client {
    /// Listens until it has seen so many messages in all.
    async fn hear(&mut self, count: usize) {
        while self.seen.len() < count {
            let told = self.socket.hear().await;
            assert_eq!(
                (&told["type"], &told["id"]),
                (&json!("next"), &json!(format!("op-{}", self.number))),
                "{told}"
            );
            let payload = &told["payload"]["data"]["conversationEvents"];
            assert!(payload.is_object(), "{told}");
            payload["cursor"]
                .as_str()
                .unwrap()
                .clone_into(&mut self.cursor);
            let event = &payload["event"];
            match event["__typename"].as_str() {
                Some("MessageAddedEvent") => {
                    self.seen.push(text(&event["messageEdge"]["node"]["uuid"]))
                }
                Some("MarkerMovedEvent") => self.markers += 1,
                Some(other) => panic!("{other}"),
                None => {}
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_that_comes_back_costs_reads_for_the_conversation_and_loses_nothing() {
    let server = Server::start().await;
    let start = server.cursor().await;
    let clients = PEOPLE * SOCKETS_EACH;
    let mut sent = Vec::new();
    for number in 0..SENDS / 3 {
        sent.push(server.send(number).await);
    }
    let mut crowd = join_all((0..clients).map(|number| server.connect(number, &start))).await;
    join_all(crowd.iter_mut().map(|client| client.hear(SENDS / 3))).await;
    // All are cut, and what is sent now nobody hears.
    let crowd: Vec<_> = crowd
        .into_iter()
        .map(|client| (client.number, client.cursor, client.seen))
        .collect();
    for number in SENDS / 3..SENDS * 2 / 3 {
        sent.push(server.send(number).await);
    }
    let (reads, began) = (server.store.reads(), Instant::now());
    let back = join_all(crowd.into_iter().map(async |(number, cursor, seen)| {
        let mut client = server.connect(number, &cursor).await;
        client.seen = seen;
        client.hear(SENDS).await;
        client
    }));
    let sends = async {
        let mut sent = Vec::new();
        for number in SENDS * 2 / 3..SENDS {
            sent.push(server.send(number).await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        sent
    };
    let (crowd, more) = tokio::join!(back, sends);
    sent.extend(more);
    let (reads, took) = (server.store.reads() - reads, began.elapsed());
    println!("{clients} clients were back after {took:?}, with {reads} reads");
    for client in &crowd {
        assert_eq!(
            client.seen, sent,
            "client {}: all of it, in order, nothing twice",
            client.number
        );
    }
    // Each send ends what may be shared: then a piece is read anew, with the markers, and each send itself reads its sender's place. A client
    // may share only what was read after it came, so the fewer come at once on a busy machine, the more reads there are: seven a send, or
    // somewhat more. Once a second it is looked at who is there. 150 clients that share nothing would read several times each.
    let seconds = usize::try_from(took.as_secs()).unwrap() + 1;
    let most = 12 * (SENDS / 3 + 2) + 3 * seconds + 20;
    assert!(reads <= most, "{reads} reads, more than {most}");
    server.stop.cancel();
}
