//! A server with a conversation of its own in it, and the sockets of its subscribers.
//!
//! The servers are processes of their own: only their time counts, and only their memory.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::StreamExt as _;
use futures_util::{SinkExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use wideroom::auth::Auth;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::UserId;

use crate::server::Server;

pub type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Participants of the conversation.
const PEOPLE: [&str; 2] = ["vera", "adam"];
pub const CONNECT_AT_ONCE: usize = 64;
/// How long a message may take to all of them.
const ROUND_MAX: Duration = Duration::from_millis(500);

/// The same for all who subscribe.
pub const MESSAGES: &str = "subscription($c: ID!, $after: String) { messageAdded(conversationId: $c, after: $after) { messageEdge { cursor
    node { id uuid body createdAt sender { username displayName } replyTo { id } reactions { emoji count } } } } }";
pub const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { id } } } }";

/// A server with a conversation of its own in it.
pub struct Host {
    pub server: Server,
    pub conversation: String,
    auth: Auth,
    _folder: tempfile::TempDir,
}

pub async fn connect(address: SocketAddr) -> Socket {
    let mut request = format!("ws://{address}/graphql/ws")
        .into_client_request()
        .unwrap();
    request.headers_mut().insert(
        "sec-websocket-protocol",
        "graphql-transport-ws".parse().unwrap(),
    );
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    // The library would take 128 KiB for each.
    let config = WebSocketConfig::default()
        .read_buffer_size(4 * 1024)
        .write_buffer_size(4 * 1024);
    tokio_tungstenite::client_async_with_config(
        request,
        MaybeTlsStream::Plain(stream),
        Some(config),
    )
    .await
    .unwrap()
    .0
}

pub async fn say(socket: &mut Socket, message: Value) {
    socket
        .send(Message::text(message.to_string()))
        .await
        .unwrap();
}

pub async fn hear(socket: &mut Socket) -> Value {
    hear_until_end(socket).await.unwrap()
}

/// The next message. `None` once the server has ended.
pub async fn hear_until_end(socket: &mut Socket) -> Option<Value> {
    loop {
        // The library answers pings as it reads on.
        if let Message::Text(text) = socket.next().await?.ok()? {
            return serde_json::from_str(&text).ok();
        }
    }
}

impl Host {
    /// The real program.
    pub async fn wideroom() -> Self {
        // One socket sends all, and the subscribers send nothing.
        let options = [
            "--log",
            "error",
            "--socket-rate",
            "1000",
            "--socket-ping-every",
            "1h",
        ];
        Self::start(|folder| Server::wideroom(folder, &options)).await
    }

    /// The library's own handlers over the same API.
    pub async fn library() -> Self {
        Self::start(Server::library).await
    }

    async fn start(serve: impl FnOnce(&Path) -> Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = serve(folder.path());
        let auth = Auth::open(folder.path()).unwrap();
        let mut host = Self {
            server,
            auth,
            conversation: String::new(),
            _folder: folder,
        };
        let mut socket = host.sign_in(PEOPLE[0]).await;
        let document = "mutation { startDirectConversation(input: {username: \"adam\"}) { conversation { id } } }";
        let made = ask(&mut socket, document, json!({})).await;
        made["startDirectConversation"]["conversation"]["id"]
            .as_str()
            .unwrap()
            .clone_into(&mut host.conversation);
        host
    }

    pub async fn sign_in(&self, name: &str) -> Socket {
        let token = self.auth.issue(
            &UserId::parse(name).unwrap(),
            Duration::from_secs(36_000),
            SystemClock.now(),
        );
        let mut socket = connect(self.server.address).await;
        say(&mut socket, json!({"type": "connection_init", "payload": {"Authorization": format!("Bearer {token}")}})).await;
        assert_eq!(hear(&mut socket).await["type"], "connection_ack");
        socket
    }

    async fn subscribe(&self, number: usize) -> Socket {
        let mut socket = self.sign_in(PEOPLE[number % 2]).await;
        // As clients do, each with an id of its own.
        let id = format!("6f1c2b7e-0000-4000-8000-{number:012}");
        let payload = json!({"query": MESSAGES, "variables": {"c": self.conversation}});
        say(
            &mut socket,
            json!({"type": "subscribe", "id": id, "payload": payload}),
        )
        .await;
        socket
    }

    /// So many who listen.
    pub async fn crowd(&self, count: usize) -> Vec<Socket> {
        let mut sockets: Vec<_> = stream::iter(0..count)
            .map(|number| self.subscribe(number))
            .buffer_unordered(CONNECT_AT_ONCE)
            .collect()
            .await;
        let mut sender = self.sign_in(PEOPLE[0]).await;
        // Each listens once it is told something.
        while join_all(
            sockets
                .iter_mut()
                .map(|socket| tokio::time::timeout(ROUND_MAX, hear(socket))),
        )
        .await
        .iter()
        .any(Result::is_err)
        {
            ask(
                &mut sender,
                SEND,
                json!({"c": self.conversation, "b": "is everybody there?"}),
            )
            .await;
        }
        tokio::time::sleep(ROUND_MAX).await;
        sockets
    }
}

/// One operation of a socket that has no other.
pub async fn ask(socket: &mut Socket, document: &str, variables: Value) -> Value {
    say(socket, json!({"type": "subscribe", "id": "ask", "payload": {"query": document, "variables": variables}})).await;
    let mut answer = hear(socket).await;
    assert!(answer["payload"].get("errors").is_none(), "{answer}");
    assert_eq!(hear(socket).await["type"], "complete");
    answer["payload"]["data"].take()
}
