//! Cost of a delivery, next to a bare WebSocket broadcast of the same bytes, and to the library's own handlers over our API.
//!
//! Both are this program again, in processes of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{SplitStream, StreamExt as _};
use futures_util::{SinkExt as _, stream};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;

use crate::measure::{Spread, quantile};
use crate::report::{self, Verdicts};
use crate::server::{self, Server};
use crate::sockets::{CONNECT_AT_ONCE, Host, SEND, Socket, ask, connect};

const SUBSCRIBERS: [usize; 2] = [1_000, 2_000];
const RATES: [u32; 3] = [5, 20, 100];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(4);
const DELIVERY_AIM: f64 = 1.25;

/// The bare broadcast: what one socket says, all are told. It prints where it listens, and runs until it is killed.
pub async fn serve_bare() {
    use axum::extract::ws::{self, WebSocketUpgrade};
    let (sender, _) = tokio::sync::broadcast::channel::<ws::Utf8Bytes>(256);
    let upgrade = move |upgrade: WebSocketUpgrade| {
        let sender = sender.clone();
        async move {
            let upgrade = upgrade
                .read_buffer_size(4 * 1024)
                .write_buffer_size(8 * 1024);
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
    let upgrade = axum::routing::any(upgrade);
    axum::serve(
        server::listener(),
        axum::Router::new().route("/graphql/ws", upgrade),
    )
    .await
    .unwrap();
}

/// Counts what comes, and how long after the moment that stands in it.
async fn listen(
    mut socket: SplitStream<Socket>,
    start: Instant,
    heard: Arc<AtomicUsize>,
) -> Vec<f64> {
    let mut late = Vec::new();
    while let Some(Ok(Message::Text(text))) = socket.next().await {
        let Some((_, rest)) = text.split_once("sent at ") else {
            continue;
        };
        let at: u64 = rest
            .split(' ')
            .next()
            .and_then(|at| at.parse().ok())
            .unwrap();
        late.push((start.elapsed().as_micros() as u64 - at) as f64 / 1e3);
        heard.fetch_add(1, Ordering::Relaxed);
    }
    late
}

/// Sends at a rate for a while, and waits until all of it was heard.
async fn round(
    rate: u32,
    heard: &AtomicUsize,
    subscribers: usize,
    start: Instant,
    mut send: impl AsyncFnMut(String),
) -> f64 {
    let before = heard.load(Ordering::Relaxed);
    let mut tick = tokio::time::interval(Duration::from_secs(1) / rate);
    let sends = (ROUND.as_secs_f64() * f64::from(rate)) as usize;
    for _ in 0..sends {
        tick.tick().await;
        send(format!(
            "sent at {} and as long as what people write to each other",
            start.elapsed().as_micros()
        ))
        .await;
    }
    let until = Instant::now() + Duration::from_secs(10);
    while heard.load(Ordering::Relaxed) < before + sends * subscribers {
        assert!(
            Instant::now() < until,
            "{} of {} came",
            heard.load(Ordering::Relaxed) - before,
            sends * subscribers
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (sends * subscribers) as f64
}

/// Server under measurement, with its subscribers.
struct Crowd {
    kind: Kind,
    sender: Socket,
    heard: Arc<AtomicUsize>,
    cost: Spread,
}

enum Kind {
    /// A chat: the real program, or the library's handlers.
    Chat(Box<Host>),
    /// The bare broadcast, and the text around a body that the real program sends.
    Bare(Server, String),
}

impl Crowd {
    /// A chat with its subscribers, and the tasks that read for them.
    async fn chat(
        host: Host,
        subscribers: usize,
        start: Instant,
    ) -> (Self, Vec<JoinHandle<Vec<f64>>>) {
        let heard = Arc::default();
        let listeners = host
            .crowd(subscribers)
            .await
            .into_iter()
            .map(|socket| spawn_listener(socket, start, &heard))
            .collect();
        let crowd = Self {
            sender: host.sign_in("vera").await,
            kind: Kind::Chat(Box::new(host)),
            heard,
            cost: Spread::default(),
        };
        (crowd, listeners)
    }

    async fn bare(around: String, subscribers: usize, start: Instant) -> Self {
        let server = Server::bare(&[crate::BARE]);
        let sockets: Vec<_> = stream::iter(0..subscribers)
            .map(|_| connect(server.address))
            .buffer_unordered(CONNECT_AT_ONCE)
            .collect()
            .await;
        let heard = Arc::default();
        for socket in sockets {
            spawn_listener(socket, start, &heard);
        }
        Self {
            sender: connect(server.address).await,
            kind: Kind::Bare(server, around),
            heard,
            cost: Spread::default(),
        }
    }

    fn server(&self) -> &Server {
        match &self.kind {
            Kind::Chat(host) => &host.server,
            Kind::Bare(server, _) => server,
        }
    }

    async fn round(&mut self, rate: u32, subscribers: usize, start: Instant, is_counted: bool) {
        let before = self.server().cpu_micros();
        let (kind, sender) = (&self.kind, &mut self.sender);
        let delivered = round(
            rate,
            &self.heard,
            subscribers,
            start,
            async |body| match kind {
                Kind::Chat(host) => {
                    ask(sender, SEND, json!({"c": host.conversation, "b": body})).await;
                }
                Kind::Bare(_, around) => {
                    let text = around.replace("BODY", &body);
                    sender.send(Message::text(text)).await.unwrap();
                }
            },
        )
        .await;
        if is_counted {
            let spent = self.server().cpu_micros() - before;
            self.cost.push(spent / delivered);
        }
    }
}

pub async fn measure() {
    let mut verdicts = Verdicts::default();
    report::heading(
        "Deliveries to all who subscribe to one conversation: µs of each on the server's processor, beside a bare broadcast and the library's handlers",
    );
    println!(
        "  {:<34} {:>26}  {:>26}  {:>7}  {:>26}  {:>7}",
        "", "ours", "bare", "ratio", "library", "ratio"
    );
    for subscribers in SUBSCRIBERS {
        measure_crowds(subscribers, &mut verdicts).await;
    }
    verdicts.print();
}

async fn measure_crowds(subscribers: usize, verdicts: &mut Verdicts) {
    let start = Instant::now();
    let host = Host::wideroom().await;
    // Bytes that Wideroom sends around a text, so that the bare broadcast sends the same.
    let around = frame_around(&host).await;
    let (ours, listeners) = Crowd::chat(host, subscribers, start).await;
    let bare = Crowd::bare(around, subscribers, start).await;
    let (library, _) = Crowd::chat(Host::library().await, subscribers, start).await;
    let mut crowds = [ours, bare, library];
    for rate in RATES {
        for crowd in &mut crowds {
            crowd.cost = Spread::default();
        }
        for is_counted in (0..=ROUNDS).map(|round| round > 0) {
            for crowd in &mut crowds {
                crowd.round(rate, subscribers, start, is_counted).await;
            }
        }
        let [ours, bare, library] = crowds.each_ref().map(|crowd| &crowd.cost);
        let [to_bare, to_library] = [bare, library].map(|other| ours.median() / other.median());
        let what = format!("{subscribers} subscribers, {rate} sends/s");
        println!(
            "  {what:<34} {}  {}  {to_bare:>7.2}  {}  {to_library:>7.2}",
            report::spread(ours),
            report::spread(bare),
            report::spread(library)
        );
        verdicts.push(
            &format!("delivery to {what}, to a bare one"),
            to_bare,
            "at most 1.25",
            to_bare <= DELIVERY_AIM,
        );
        verdicts.push(
            &format!("delivery to {what}, to the library's handlers"),
            to_library,
            "at most 1",
            to_library <= 1.0,
        );
    }
    drop(crowds);
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

fn spawn_listener(
    socket: Socket,
    start: Instant,
    heard: &Arc<AtomicUsize>,
) -> JoinHandle<Vec<f64>> {
    let (sink, stream) = futures_util::StreamExt::split(socket);
    let heard = Arc::clone(heard);
    tokio::spawn(async move {
        let _sink = sink;
        listen(stream, start, heard).await
    })
}

async fn frame_around(host: &Host) -> String {
    let mut sender = host.sign_in("vera").await;
    let mut socket = host.crowd(1).await.pop().unwrap();
    ask(
        &mut sender,
        SEND,
        json!({"c": host.conversation, "b": "BODY"}),
    )
    .await;
    loop {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap()
            && text.contains("BODY")
        {
            return text.to_string();
        }
    }
}
