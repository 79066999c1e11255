//! The real program with a conversation of its own in it, and the sockets of those who listen to it.
//!
//! The servers are processes of their own: only their time counts, and only their memory.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
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

pub type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Who takes part.
const PEOPLE: [&str; 2] = ["vera", "adam"];
pub const CONNECT_AT_ONCE: usize = 64;

/// The same for all who subscribe.
pub const MESSAGES: &str = "subscription($c: ID!, $after: String) { messageAdded(conversationId: $c, after: $after) { messageEdge { cursor
    node { id uuid body createdAt sender { username displayName } replyTo { id } reactions { emoji count } } } } }";
pub const SEND: &str =
    "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { id } } } }";

/// A server in a process of its own.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once('/').unwrap().1.parse().unwrap();
        Self { child, address }
    }

    /// What its threads have spent so far, in the kernel too.
    pub fn cpu_micros(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let spent = |path: std::path::PathBuf| std::fs::read_to_string(path.join("schedstat")).ok();
        let nanos = tasks.flatten().filter_map(|task| spent(task.path())?.split(' ').next()?.parse::<f64>().ok());
        nanos.sum::<f64>() / 1e3
    }

    pub fn resident_kib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// The real program with a conversation of its own in it.
pub struct Ours {
    pub server: Server,
    pub conversation: String,
    auth: Auth,
    admin: SocketAddr,
    _folder: tempfile::TempDir,
}

pub async fn connect(address: SocketAddr) -> Socket {
    let mut request = format!("ws://{address}/graphql/ws").into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "graphql-transport-ws".parse().unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    // The library would take 128 KiB for each.
    let config = WebSocketConfig::default().read_buffer_size(4 * 1024).write_buffer_size(4 * 1024);
    tokio_tungstenite::client_async_with_config(request, MaybeTlsStream::Plain(stream), Some(config)).await.unwrap().0
}

pub async fn say(socket: &mut Socket, message: Value) {
    socket.send(Message::text(message.to_string())).await.unwrap();
}

pub async fn hear(socket: &mut Socket) -> Value {
    loop {
        let message = socket.next().await.unwrap().unwrap();
        let message: Value = serde_json::from_str(message.to_text().unwrap()).unwrap();
        if message["type"] != "ping" {
            return message;
        }
        say(socket, json!({"type": "pong"})).await;
    }
}

impl Ours {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let admin = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_wideroom"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--rates", "off", "--log", "error"])
            // One socket sends all, and the listeners say nothing.
            .args(["--socket-rate", "1000", "--socket-ping-every", "1h"])
            .args(["--admin-listen", &admin.to_string(), "--data"])
            .arg(folder.path());
        command.env("WIDEROOM_FREE_DISK_MIN", "1MiB");
        let server = Server::start(command);
        let auth = Auth::open(folder.path()).unwrap();
        let mut ours = Self { server, auth, admin, conversation: String::new(), _folder: folder };
        let mut socket = ours.sign_in(PEOPLE[0]).await;
        let document = "mutation { startDirectConversation(input: {username: \"adam\"}) { conversation { id } } }";
        let made = ask(&mut socket, document, json!({})).await;
        made["startDirectConversation"]["conversation"]["id"].as_str().unwrap().clone_into(&mut ours.conversation);
        ours
    }

    pub async fn sign_in(&self, name: &str) -> Socket {
        let token = self.auth.issue(&UserId::parse(name).unwrap(), Duration::from_secs(36_000), SystemClock.now());
        let mut socket = connect(self.server.address).await;
        say(&mut socket, json!({"type": "connection_init", "payload": {"Authorization": format!("Bearer {token}")}})).await;
        assert_eq!(hear(&mut socket).await["type"], "connection_ack");
        socket
    }

    pub async fn subscribe(&self, number: usize, after: Option<&str>) -> Socket {
        let mut socket = self.sign_in(PEOPLE[number % 2]).await;
        self.subscribe_on(&mut socket, number, after).await;
        socket
    }

    pub async fn subscribe_on(&self, socket: &mut Socket, number: usize, after: Option<&str>) {
        let variables = json!({"c": self.conversation, "after": after});
        // As clients do, each with an id of its own.
        let id = format!("6f1c2b7e-0000-4000-8000-{number:012}");
        say(socket, json!({"type": "subscribe", "id": id, "payload": {"query": MESSAGES, "variables": variables}})).await;
    }

    /// The place in the conversation after all that is there.
    pub async fn cursor(&self) -> String {
        let mut socket = self.sign_in(PEOPLE[0]).await;
        let document = "query($c: ID!) { conversation(id: $c) { eventsCursor } }";
        let data = ask(&mut socket, document, json!({"c": self.conversation})).await;
        data["conversation"]["eventsCursor"].as_str().unwrap().to_owned()
    }

    /// How often the store was asked something, by what it was asked.
    pub fn store_operations(&self) -> BTreeMap<String, f64> {
        let mut stream = std::net::TcpStream::connect(self.admin).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let count = |line: &str| {
            let (name, count) = line.strip_prefix("wideroom_store_operation_seconds_count{operation=\"")?.split_once("\"} ")?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        answer.lines().filter_map(count).collect()
    }

    pub async fn crowd(&self, count: usize, after: Option<&str>) -> Vec<Socket> {
        let mut sockets: Vec<_> =
            stream::iter(0..count).map(|number| self.subscribe(number, after)).buffer_unordered(CONNECT_AT_ONCE).collect().await;
        // Each listens once it is told something.
        if after.is_none() {
            let mut sender = self.sign_in(PEOPLE[0]).await;
            while join_all(sockets.iter_mut().map(|socket| tokio::time::timeout(Duration::from_millis(500), hear(socket))))
                .await
                .iter()
                .any(Result::is_err)
            {
                ask(&mut sender, SEND, json!({"c": self.conversation, "b": "is everybody there?"})).await;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
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
