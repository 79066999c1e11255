//! Webhooks: deliveries to a local receiver, and the memory behind one that is down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;
use wideroom::chat::{Draft, DraftInput, OutboxTypes, ReaderName};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::load::{Process, UsageMeter};
use wideroom::metrics::Metrics;
use wideroom::signed_post::PostTarget;
use wideroom::webhook::{RetryPolicy, WebhookSettings, Webhooks};

use crate::Size;
use crate::measure::cpu_micros;
use crate::report::{self, Verdicts};
use crate::world::{World, user};

const DELIVERIES_AIM: f64 = 5_000.0;
/// Growth behind a receiver that is down, while the second half of an hour's events are sent: the first half fills
/// the caches of the sends themselves.
const MEMORY_AIM_BYTES: f64 = 16e6;
/// An hour of 100 messages a second.
const HOUR_EVENTS: usize = 360_000;
/// Longest wait for the deliveries.
const PATIENCE: Duration = Duration::from_secs(600);
const CONVERSATIONS: usize = 256;
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    let world = Arc::new(World::empty().await);
    world
        .store()
        .set_outbox(Some(SystemClock.now()))
        .await
        .unwrap();
    let count = usize::try_from(size.messages).unwrap().min(100_000);
    let secret = std::env::temp_dir().join(format!("wideroom-bench-secret-{}", std::process::id()));
    std::fs::write(&secret, SECRET).unwrap();
    let settings = |name: &str, address: SocketAddr| {
        let url = format!("http://{address}/hook");
        WebhookSettings {
            name: ReaderName::parse(name).unwrap(),
            target: PostTarget::parse(&url, true).unwrap(),
            url,
            allow_http: true,
            secret_file: secret.clone(),
            types: OutboxTypes::parse(&["MESSAGE_ADDED".to_owned()]).unwrap(),
            document: None,
        }
    };
    // Opened and closed, so that their positions lie before the events.
    let nobody = SocketAddr::from(([127, 0, 0, 1], 9));
    open(
        &world,
        &[settings("fast", nobody), settings("down", nobody)],
    )
    .await
    .finish()
    .await;
    send(&world, count).await;

    report::heading("Webhooks: the default document to a receiver in this process");
    let received = Arc::new(AtomicU64::new(0));
    let address = receive(Arc::clone(&received)).await;
    let (began, before) = (Instant::now(), cpu_micros());
    let webhooks = open(&world, &[settings("fast", address)]).await;
    while received.load(Ordering::Relaxed) < count as u64 {
        assert!(began.elapsed() < PATIENCE, "the deliveries do not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let micros = (cpu_micros() - before) / count as f64;
    println!(
        "  {count} events, {rate:.0} a second, {micros:.0} µs of each on the processor, the receiver's included"
    );
    verdicts.at_least("deliveries a second, to 5,000", rate / DELIVERIES_AIM, 1.0);
    webhooks.finish().await;

    report::heading("Memory behind a receiver that is down, while messages are sent");
    let webhooks = open(&world, &[settings("down", nobody)]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let at_first = resident_bytes();
    let mut at_half = at_first;
    for round in 1..=4 {
        send(&world, HOUR_EVENTS / 4).await;
        let present = resident_bytes();
        if round == 2 {
            at_half = present;
        }
        println!(
            "  after {} events more: {:+.1} MB",
            round * (HOUR_EVENTS / 4),
            (present as f64 - at_first as f64) / 1e6
        );
    }
    let grown = resident_bytes() as f64 - at_half as f64;
    let what = "growth in the second half hour behind a receiver that is down, to 16 MB";
    verdicts.at_most(what, grown / MEMORY_AIM_BYTES, 1.0);
    webhooks.finish().await;
    let _ = std::fs::remove_file(secret);
    verdicts.print();
}

async fn open(world: &World, all: &[WebhookSettings]) -> Webhooks {
    let metrics = Metrics::default();
    Webhooks::open(
        all,
        RetryPolicy::default(),
        &world.chat,
        &world.api,
        &metrics,
    )
    .await
    .unwrap()
}

/// Sends so many messages, in conversations of their own, all at once.
async fn send(world: &Arc<World>, count: usize) {
    let mut senders = tokio::task::JoinSet::new();
    for number in 0..CONVERSATIONS {
        let world = Arc::clone(world);
        let share = count / CONVERSATIONS + usize::from(number < count % CONVERSATIONS);
        senders.spawn(async move {
            let sender = user(&format!("hook{number}"));
            let writes = &world.chat.writes;
            let conversation = writes
                .start_direct(&sender, &format!("peer{number}"))
                .await
                .unwrap()
                .id;
            for _ in 0..share {
                let input = DraftInput {
                    body: "A message of a usual length, as people write to one another.".to_owned(),
                    ..DraftInput::default()
                };
                let draft = Draft::parse(input, world.chat.bounds()).unwrap();
                writes.send(&sender, conversation, draft).await.unwrap();
            }
        });
    }
    while let Some(done) = senders.join_next().await {
        done.unwrap();
    }
}

/// A receiver that counts the requests, and answers 204.
async fn receive(received: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let count = async move |_: Bytes| {
        received.fetch_add(1, Ordering::Relaxed);
        StatusCode::NO_CONTENT
    };
    let router = Router::new().route("/hook", post(count));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

fn resident_bytes() -> u64 {
    let process = Process::new(std::process::id()).unwrap();
    let usage = UsageMeter::start(Some(process)).usage();
    usage.resident_bytes.unwrap()
}
