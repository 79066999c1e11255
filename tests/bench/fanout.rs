//! Cost of a delivery, next to a bare WebSocket broadcast of the same bytes.
//!
//! The bare one is this program again, in a process of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{SplitStream, StreamExt as _};
use futures_util::{SinkExt as _, stream};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::measure::{Spread, quantile};
use crate::report::{self, Verdicts};
use crate::server::{self, Server};
use crate::sockets::{CONNECT_AT_ONCE, Ours, SEND, Socket, ask, connect};

const SUBSCRIBERS: [usize; 2] = [1_000, 2_000];
const RATES: [u32; 3] = [5, 20, 100];
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(4);
const DELIVERY_AIM: f64 = 1.3;

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

pub async fn measure() {
    let mut verdicts = Verdicts::default();
    report::heading(
        "Deliveries to all who subscribe to one conversation: µs of each on the server's processor, beside a bare broadcast",
    );
    println!(
        "  {:<34} {:>26}  {:>26}  {:>7}  {:>10}",
        "", "ours", "bare", "ratio", "p99 ms"
    );
    for subscribers in SUBSCRIBERS {
        let ours = Ours::start().await;
        let bare = Server::bare(&["bare-sockets"]);
        let start = Instant::now();
        let heard = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let mut listeners = Vec::new();
        for socket in ours.crowd(subscribers).await {
            listeners.push(spawn_listener(socket, start, &heard[0]));
        }
        let bare_sockets: Vec<_> = stream::iter(0..subscribers)
            .map(|_| connect(bare.address))
            .buffer_unordered(CONNECT_AT_ONCE)
            .collect()
            .await;
        for socket in bare_sockets {
            spawn_listener(socket, start, &heard[1]);
        }
        let (mut sender, mut bare_sender) =
            (ours.sign_in("vera").await, connect(bare.address).await);
        // Bytes that Wideroom sends around a text, so that the bare broadcast sends the same.
        let around = frame_around(&ours, &mut sender).await;
        for rate in RATES {
            let (mut of_ours, mut of_bare) = (Spread::default(), Spread::default());
            for counted in (0..=ROUNDS).map(|round| round > 0) {
                let before = ours.server.cpu_micros();
                let told = round(rate, &heard[0], subscribers, start, async |body| {
                    ask(
                        &mut sender,
                        SEND,
                        json!({"c": ours.conversation, "b": body}),
                    )
                    .await;
                })
                .await;
                let our_cost = (ours.server.cpu_micros() - before) / told;
                let before = bare.cpu_micros();
                let told = round(rate, &heard[1], subscribers, start, async |body| {
                    bare_sender
                        .send(Message::text(around.replace("BODY", &body)))
                        .await
                        .unwrap();
                })
                .await;
                if counted {
                    of_ours.push(our_cost);
                    of_bare.push((bare.cpu_micros() - before) / told);
                }
            }
            let ratio = of_ours.median() / of_bare.median();
            let what = format!("{subscribers} subscribers, {rate} sends/s");
            println!(
                "  {what:<34} {}  {}  {ratio:>7.2}",
                report::spread(&of_ours),
                report::spread(&of_bare)
            );
            verdicts.push(
                &format!("delivery to {what}, to a bare one"),
                ratio,
                "at most 1.3",
                ratio <= DELIVERY_AIM,
            );
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
    verdicts.print();
}

fn spawn_listener(
    socket: Socket,
    start: Instant,
    heard: &Arc<AtomicUsize>,
) -> tokio::task::JoinHandle<Vec<f64>> {
    let (sink, stream) = futures_util::StreamExt::split(socket);
    let heard = Arc::clone(heard);
    tokio::spawn(async move {
        let _sink = sink;
        listen(stream, start, heard).await
    })
}

async fn frame_around(ours: &Ours, sender: &mut Socket) -> String {
    let mut socket = ours.crowd(1).await.pop().unwrap();
    ask(sender, SEND, json!({"c": ours.conversation, "b": "BODY"})).await;
    loop {
        if let Message::Text(text) = socket.next().await.unwrap().unwrap()
            && text.contains("BODY")
        {
            return text.to_string();
        }
    }
}
