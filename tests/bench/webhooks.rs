//! Webhooks: deliveries to a local receiver, and the memory behind one that is down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use wideroom::chat::{Draft, DraftInput, OutboxTypes, ReaderName};
use wideroom::clock::{Clock as _, SystemClock};
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
    verdicts.push(
        "deliveries a second, to 5,000",
        rate / DELIVERIES_AIM,
        "at least 1",
        rate >= DELIVERIES_AIM,
    );
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
    verdicts.push(
        "growth in the second half hour behind a receiver that is down, to 16 MB",
        grown / MEMORY_AIM_BYTES,
        "at most 1",
        grown <= MEMORY_AIM_BYTES,
    );
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

/// A receiver that reads each request and answers 204.
async fn receive(received: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let received = Arc::clone(&received);
            tokio::spawn(async move { talk(stream, &received).await });
        }
    });
    address
}

async fn talk(mut stream: TcpStream, received: &AtomicU64) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut bytes = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = end_of(&bytes) {
                break end;
            }
            let mut chunk = [0; 16 * 1_024];
            let count = stream.read(&mut chunk).await.ok()?;
            if count == 0 {
                return None;
            }
            bytes.extend_from_slice(&chunk[..count]);
        };
        bytes.drain(..end);
        received.fetch_add(1, Ordering::Relaxed);
        stream
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .ok()?;
    }
}

/// End of the first request, if it is whole.
fn end_of(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&bytes[..head]).ok()?;
    let length: usize = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))?
        .parse()
        .ok()?;
    (bytes.len() >= head + length).then_some(head + length)
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|line| {
            line.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .ok()
        });
    kilobytes.unwrap_or(0) * 1_024
}
