//! What a delivery costs, beside a bare broadcast over WebSockets of the same bytes; what an idle socket weighs; and a crowd that comes back.
//!
//! The servers are processes of their own: the real program, and this one again as the bare broadcast. Only their time counts.

use std::io::BufRead as _;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{SplitStream, StreamExt as _};
use futures_util::{SinkExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};
use wideroom::auth::Auth;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::UserId;

use crate::measure::{Spread, quantile};
use crate::report::{self, Verdicts};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

const SUBSCRIBERS: [usize; 2] = [1_000, 2_000];
const RATES: [u32; 3] = [5, 20, 100];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(4);
const IDLE_SOCKETS: usize = 9_000;
const STORM: usize = 500;
const STORM_ROUNDS: usize = 5;
const CONNECT_AT_ONCE: usize = 64;
const DELIVERY_AIM: f64 = 1.3;
const IDLE_AIM_KIB: f64 = 8.0;

/// The same for all who subscribe.
const MESSAGES: &str = "subscription($c: ID!, $after: String) { messageAdded(conversationId: $c, after: $after) { messageEdge { cursor
    node { id uuid body createdAt sender { username displayName } replyTo { id } reactions { emoji count } } } } }";
const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { node { id } } } }";

/// A server in a process of its own.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once('/').unwrap().1.parse().unwrap();
        Self { child, address }
    }

    /// What its threads have spent so far, in the kernel too.
    fn cpu_micros(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let spent = |path: std::path::PathBuf| std::fs::read_to_string(path.join("schedstat")).ok();
        let nanos = tasks.flatten().filter_map(|task| spent(task.path())?.split(' ').next()?.parse::<f64>().ok());
        nanos.sum::<f64>() / 1e3
    }

    fn resident_kib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// The bare broadcast: what one socket says, all are told. It prints where it listens, and runs until it is killed.
pub async fn serve_bare() {
    use axum::extract::ws::{self, WebSocketUpgrade};
    let (sender, _) = tokio::sync::broadcast::channel::<ws::Utf8Bytes>(256);
    let upgrade = move |upgrade: WebSocketUpgrade| {
        let sender = sender.clone();
        async move {
            let upgrade = upgrade.read_buffer_size(4 * 1024).write_buffer_size(8 * 1024);
            upgrade.protocols(["graphql-transport-ws"]).on_upgrade(move |socket| async move {
                let mut heard = sender.subscribe();
                let (mut out, mut said) = futures_util::StreamExt::split(socket);
                loop {
                    tokio::select! {
                        Ok(text) = heard.recv() => if out.send(ws::Message::Text(text)).await.is_err() { return },
                        said = said.next() => match said {
                            Some(Ok(ws::Message::Text(text))) => drop(sender.send(text)),
                            Some(Ok(_)) => {}
                            Some(Err(_)) | None => return,
                        },
                    }
                }
            })
        }
    };
    let listener = wideroom::server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    println!("bare on ws://{}", listener.local_addr().unwrap());
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true)));
    let upgrade = axum::routing::any(upgrade);
    axum::serve(listener, axum::Router::new().route("/graphql/ws", upgrade)).await.unwrap();
}

/// The real program with a conversation of its own in it.
struct Ours {
    server: Server,
    auth: Auth,
    conversation: String,
    _folder: tempfile::TempDir,
}

async fn connect(address: SocketAddr) -> Socket {
    let mut request = format!("ws://{address}/graphql/ws").into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "graphql-transport-ws".parse().unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    tokio_tungstenite::client_async(request, MaybeTlsStream::Plain(stream)).await.unwrap().0
}

async fn say(socket: &mut Socket, message: Value) {
    socket.send(Message::text(message.to_string())).await.unwrap();
}

async fn hear(socket: &mut Socket) -> Value {
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
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_wideroom"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--rates", "off", "--socket-ping-every", "1h", "--log", "error", "--data"])
            .arg(folder.path());
        command.env("WIDEROOM_FREE_DISK_MIN", "1MiB");
        let server = Server::start(command);
        let auth = Auth::open(folder.path()).unwrap();
        let mut ours = Self { server, auth, conversation: String::new(), _folder: folder };
        let mut socket = ours.sign_in("vera").await;
        let document = "mutation { startDirectConversation(input: {username: \"adam\"}) { conversation { id } } }";
        let made = ask(&mut socket, document, json!({})).await;
        made["startDirectConversation"]["conversation"]["id"].as_str().unwrap().clone_into(&mut ours.conversation);
        ours
    }

    async fn sign_in(&self, name: &str) -> Socket {
        let token = self.auth.issue(&UserId::parse(name).unwrap(), Duration::from_secs(36_000), SystemClock.now());
        let mut socket = connect(self.server.address).await;
        say(&mut socket, json!({"type": "connection_init", "payload": {"Authorization": format!("Bearer {token}")}})).await;
        assert_eq!(hear(&mut socket).await["type"], "connection_ack");
        socket
    }

    async fn subscribe(&self, number: usize, after: Option<&str>) -> Socket {
        let mut socket = self.sign_in(["vera", "adam"][number % 2]).await;
        let variables = json!({"c": self.conversation, "after": after});
        // As clients do, each with an id of its own.
        let id = format!("6f1c2b7e-0000-4000-8000-{number:012}");
        say(&mut socket, json!({"type": "subscribe", "id": id, "payload": {"query": MESSAGES, "variables": variables}})).await;
        socket
    }

    async fn crowd(&self, count: usize, after: Option<&str>) -> Vec<Socket> {
        let mut sockets: Vec<_> =
            stream::iter(0..count).map(|number| self.subscribe(number, after)).buffer_unordered(CONNECT_AT_ONCE).collect().await;
        // Each listens once it is told something.
        if after.is_none() {
            let mut sender = self.sign_in("vera").await;
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
async fn ask(socket: &mut Socket, document: &str, variables: Value) -> Value {
    say(socket, json!({"type": "subscribe", "id": "ask", "payload": {"query": document, "variables": variables}})).await;
    let mut answer = hear(socket).await;
    assert!(answer["payload"].get("errors").is_none(), "{answer}");
    assert_eq!(hear(socket).await["type"], "complete");
    answer["payload"]["data"].take()
}

/// Counts what comes, and how long after the moment that stands in it.
async fn listen(mut socket: SplitStream<Socket>, start: Instant, heard: Arc<AtomicUsize>) -> Vec<f64> {
    let mut late = Vec::new();
    while let Some(Ok(Message::Text(text))) = socket.next().await {
        let Some((_, rest)) = text.split_once("sent at ") else { continue };
        let at: u64 = rest.split(' ').next().and_then(|at| at.parse().ok()).unwrap();
        late.push((start.elapsed().as_micros() as u64 - at) as f64 / 1e3);
        heard.fetch_add(1, Ordering::Relaxed);
    }
    late
}

/// Sends at a rate for a while, and waits until all of it was heard.
async fn round(rate: u32, heard: &AtomicUsize, subscribers: usize, start: Instant, mut send: impl AsyncFnMut(String)) -> f64 {
    let before = heard.load(Ordering::Relaxed);
    let mut tick = tokio::time::interval(Duration::from_secs(1) / rate);
    let sends = (ROUND.as_secs_f64() * f64::from(rate)) as usize;
    for _ in 0..sends {
        tick.tick().await;
        send(format!("sent at {} and as long as what people write to each other", start.elapsed().as_micros())).await;
    }
    let until = Instant::now() + Duration::from_secs(10);
    while heard.load(Ordering::Relaxed) < before + sends * subscribers {
        assert!(Instant::now() < until, "{} of {} came", heard.load(Ordering::Relaxed) - before, sends * subscribers);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (sends * subscribers) as f64
}

pub async fn measure() {
    let mut verdicts = Verdicts::default();
    deliveries(&mut verdicts).await;
    idle(&mut verdicts).await;
    storm(&mut verdicts).await;
    verdicts.print();
}

async fn deliveries(verdicts: &mut Verdicts) {
    report::heading("Deliveries to all who subscribe to one conversation: µs of each on the server's processor, beside a bare broadcast");
    println!("  {:<34} {:>26}  {:>26}  {:>7}  {:>10}", "", "ours", "bare", "ratio", "p99 ms");
    for subscribers in SUBSCRIBERS {
        let ours = Ours::start().await;
        let mut bare = Command::new(std::env::current_exe().unwrap());
        bare.args(["--bench", "bare-sockets"]);
        let bare = Server::start(bare);
        let start = Instant::now();
        let heard = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let mut listeners = Vec::new();
        for socket in ours.crowd(subscribers, None).await {
            listeners.push(spawn_listener(socket, start, &heard[0]));
        }
        let bare_sockets: Vec<_> =
            stream::iter(0..subscribers).map(|_| connect(bare.address)).buffer_unordered(CONNECT_AT_ONCE).collect().await;
        for socket in bare_sockets {
            spawn_listener(socket, start, &heard[1]);
        }
        let (mut sender, mut bare_sender) = (ours.sign_in("vera").await, connect(bare.address).await);
        // What ours sends around a text, so that the bare one sends the same bytes.
        let around = frame_around(&ours, &mut sender).await;
        for rate in RATES {
            let (mut of_ours, mut of_bare) = (Spread::default(), Spread::default());
            for counted in (0..=ROUNDS).map(|round| round > 0) {
                let before = ours.server.cpu_micros();
                let told = round(rate, &heard[0], subscribers, start, async |body| {
                    ask(&mut sender, SEND, json!({"c": ours.conversation, "b": body})).await;
                })
                .await;
                let our_cost = (ours.server.cpu_micros() - before) / told;
                let before = bare.cpu_micros();
                let told = round(rate, &heard[1], subscribers, start, async |body| {
                    bare_sender.send(Message::text(around.replace("BODY", &body))).await.unwrap();
                })
                .await;
                if counted {
                    of_ours.push(our_cost);
                    of_bare.push((bare.cpu_micros() - before) / told);
                }
            }
            let ratio = of_ours.median() / of_bare.median();
            let what = format!("{subscribers} subscribers, {rate} sends/s");
            println!("  {what:<34} {}  {}  {ratio:>7.2}", report::spread(&of_ours), report::spread(&of_bare));
            verdicts.push(&format!("delivery to {what}, to a bare one"), ratio, "at most 1.3", ratio <= DELIVERY_AIM);
        }
        drop(ours);
        let mut late = Vec::new();
        for listener in listeners {
            late.extend(listener.await.unwrap());
        }
        late.sort_unstable_by(f64::total_cmp);
        println!(
            "  {subscribers} subscribers, all rates: ms from the send to the client p50 {:.1}, p99 {:.1}",
            quantile(&late, 0.5),
            quantile(&late, 0.99)
        );
    }
}

fn spawn_listener(socket: Socket, start: Instant, heard: &Arc<AtomicUsize>) -> tokio::task::JoinHandle<Vec<f64>> {
    let (sink, stream) = futures_util::StreamExt::split(socket);
    let heard = Arc::clone(heard);
    tokio::spawn(async move {
        let _sink = sink;
        listen(stream, start, heard).await
    })
}

async fn frame_around(ours: &Ours, sender: &mut Socket) -> String {
    let mut socket = ours.crowd(1, None).await.pop().unwrap();
    ask(sender, SEND, json!({"c": ours.conversation, "b": "BODY"})).await;
    loop {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap()
            && text.contains("BODY")
        {
            return text.to_string();
        }
    }
}

async fn idle(verdicts: &mut Verdicts) {
    let ours = Ours::start().await;
    drop(ours.crowd(100, None).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = ours.server.resident_kib();
    let cursor = cursor(&ours).await;
    let sockets = ours.crowd(IDLE_SOCKETS, Some(&cursor)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let each = (ours.server.resident_kib() - before) / IDLE_SOCKETS as f64;
    report::heading("Sockets with one subscription that are told nothing");
    println!("  {IDLE_SOCKETS} sockets: {each:.1} KiB of resident memory each");
    verdicts.push("KiB of resident memory of an idle socket", each, "below 8", each < IDLE_AIM_KIB);
    drop(sockets);
}

async fn cursor(ours: &Ours) -> String {
    let mut socket = ours.sign_in("vera").await;
    let data = ask(&mut socket, "query($c: ID!) { conversation(id: $c) { eventsCursor } }", json!({"c": ours.conversation})).await;
    data["conversation"]["eventsCursor"].as_str().unwrap().to_owned()
}

/// All are cut at once, 50 messages are sent, and all come back with their cursors.
async fn storm(verdicts: &mut Verdicts) {
    const MISSED: usize = 50;
    let ours = Ours::start().await;
    let mut sender = ours.sign_in("vera").await;
    let (mut took, mut cost) = (Spread::default(), Spread::default());
    for counted in (0..=STORM_ROUNDS).map(|round| round > 0) {
        let after = cursor(&ours).await;
        for number in 0..MISSED {
            ask(&mut sender, SEND, json!({"c": ours.conversation, "b": format!("missed {number}")})).await;
        }
        // They are connected, and come back with their subscriptions at one moment.
        let sockets: Vec<_> = stream::iter(0..STORM)
            .map(|number| ours.sign_in(["vera", "adam"][number % 2]))
            .buffer_unordered(CONNECT_AT_ONCE)
            .collect()
            .await;
        let (start, before) = (Instant::now(), ours.server.cpu_micros());
        let back = sockets.into_iter().enumerate().map(|(number, mut socket)| {
            let variables = json!({"c": ours.conversation, "after": after});
            tokio::spawn(async move {
                let request =
                    json!({"type": "subscribe", "id": number.to_string(), "payload": {"query": MESSAGES, "variables": variables}});
                say(&mut socket, request).await;
                for number in 0..MISSED {
                    let told = hear(&mut socket).await;
                    let body = &told["payload"]["data"]["messageAdded"]["messageEdge"]["node"]["body"];
                    assert_eq!(*body, format!("missed {number}"), "in order, nothing lost, nothing twice");
                }
                start.elapsed()
            })
        });
        let all = join_all(back).await.into_iter().map(Result::unwrap).max().unwrap();
        if counted {
            took.push(all.as_secs_f64() * 1e3);
            cost.push((ours.server.cpu_micros() - before) / STORM as f64);
        }
    }
    report::heading("A crowd that comes back");
    println!("  {STORM} sockets, {MISSED} messages missed: ms until all are current {}", report::spread(&took));
    println!("  µs on the server's processor for each of them {}", report::spread(&cost));
    let ratio = took.median() / 100.0;
    verdicts.push("a storm of 500, to 100 ms", ratio, "at most 1", ratio <= 1.0);
}
