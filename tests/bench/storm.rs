//! A crowd whose sockets are cut at one moment, and which comes back with its cursors while others go on sending; and what a socket weighs
//! that is told nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt as _};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::measure::Spread;
use crate::report::{self, Verdicts};
use crate::sockets::{CONNECT_AT_ONCE, Ours, SEND, Socket, ask};

const IDLE_SOCKETS: usize = 10_000;
const IDLE_AIM_KIB: f64 = 8.0;

/// Of how many, and how often.
const CROWDS: [(usize, usize); 2] = [(500, 7), (5_000, 3)];
/// Sent while they are away, and how often while they come back.
const MISSED: [usize; 2] = [1, 50];
const SENDS_PER_SECOND: u32 = 20;
/// As long as the whole takes at most.
const PATIENCE: Duration = Duration::from_secs(60);
const AIM: (usize, f64) = (500, 100.0);
const COST_AIM_MICROS: f64 = 640.0;

/// Where the crowd is when the clock starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    /// Nothing is connected: each connects, signs in and subscribes.
    Away,
    /// They are signed in, and subscribe.
    Connected,
}

pub async fn measure(verdicts: &mut Verdicts) {
    idle(verdicts).await;
    report::heading("A crowd that comes back with its cursors while 20 messages a second are sent (embedded store)");
    println!("  {:<52} {:>26}  {:>26}  {:>12}", "", "ms until all are current", "CPU µs of each", "store reads");
    for (count, rounds) in CROWDS {
        for from in [From::Connected, From::Away] {
            for missed in MISSED {
                storm(count, rounds, from, missed, verdicts).await;
            }
        }
    }
}

async fn idle(verdicts: &mut Verdicts) {
    let ours = Ours::start().await;
    // What the first of them makes is not theirs.
    drop(ours.crowd(100, None).await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = ours.server.resident_kib();
    let cursor = ours.cursor().await;
    let sockets = ours.crowd(IDLE_SOCKETS, Some(&cursor)).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let each = (ours.server.resident_kib() - before) / IDLE_SOCKETS as f64;
    report::heading("Sockets with one subscription that are told nothing");
    println!("  {IDLE_SOCKETS} sockets: {each:.1} KiB of resident memory each");
    verdicts.push("KiB of resident memory of an idle socket", each, "below 8", each < IDLE_AIM_KIB);
    drop(sockets);
}

async fn storm(count: usize, rounds: usize, from: From, missed: usize, verdicts: &mut Verdicts) {
    let ours = Arc::new(Ours::start().await);
    let mut sender = ours.sign_in("vera").await;
    let (mut took, mut cost, mut reads) = (Spread::default(), Spread::default(), Spread::default());
    for counted in (0..=rounds).map(|round| round > 0) {
        let after: Arc<str> = ours.cursor().await.into();
        // They listen, and are cut.
        drop(ours.crowd(count, Some(&after)).await);
        for number in 0..missed {
            send(&ours, &mut sender, number).await;
        }
        let mut sockets: Vec<Option<Socket>> = if from == From::Connected {
            stream::iter(0..count)
                .map(|_| ours.sign_in("adam"))
                .map(async |socket| Some(socket.await))
                .buffer_unordered(CONNECT_AT_ONCE)
                .collect()
                .await
        } else {
            (0..count).map(|_| None).collect()
        };
        let asked: f64 = ours.store_operations().values().sum();
        let (start, before) = (Instant::now(), ours.server.cpu_micros());
        let back = sockets.drain(..).enumerate().map(|(number, socket)| {
            let (ours, after) = (Arc::clone(&ours), Arc::clone(&after));
            tokio::spawn(async move {
                let mut socket = match socket {
                    Some(socket) => socket,
                    None => ours.sign_in("adam").await,
                };
                ours.subscribe_on(&mut socket, number, Some(&after)).await;
                expect(&mut socket, 0..missed).await;
                (start.elapsed(), socket)
            })
        });
        let back = tokio::spawn(join_all(back.collect::<Vec<_>>()));
        let mut tick = tokio::time::interval(Duration::from_secs(1) / SENDS_PER_SECOND);
        let mut sent = missed;
        while !back.is_finished() {
            assert!(start.elapsed() < PATIENCE, "they are not back after {PATIENCE:?}");
            tick.tick().await;
            send(&ours, &mut sender, sent).await;
            sent += 1;
        }
        let (spent, asked) = (ours.server.cpu_micros() - before, ours.store_operations().values().sum::<f64>() - asked);
        let back: Vec<_> = back.await.unwrap().into_iter().map(Result::unwrap).collect();
        let all = back.iter().map(|(took, _)| *took).max().unwrap();
        // Nothing is lost and nothing comes twice: also not of what was sent meanwhile.
        join_all(back.into_iter().map(|(_, mut socket)| async move { expect(&mut socket, missed..sent).await })).await;
        if counted {
            took.push(all.as_secs_f64() * 1e3);
            cost.push(spent / count as f64);
            reads.push(asked);
        }
    }
    let how = if from == From::Away { "connect, sign in and subscribe" } else { "subscribe" };
    let what = format!("{count} {how}, {missed} missed");
    println!("  {what:<52} {}  {}  {:>12}", report::spread(&took), report::spread(&cost), report::number(reads.median()));
    if (count, from) == (AIM.0, From::Connected) {
        let ratio = took.median() / AIM.1;
        verdicts.push(&format!("{what}: until all are current, to 100 ms"), ratio, "at most 1", ratio <= 1.0);
    }
    let ratio = cost.median() / COST_AIM_MICROS;
    verdicts.push(&format!("{what}: CPU of each, to 640 µs"), ratio, "at most 1", ratio <= 1.0);
}

async fn send(ours: &Ours, sender: &mut Socket, number: usize) {
    ask(sender, SEND, json!({"c": ours.conversation, "b": format!("number {number} of those")})).await;
}

/// In order, nothing lost, nothing twice.
async fn expect(socket: &mut Socket, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let told = socket.next().await.unwrap().unwrap();
        let Message::Text(text) = told else { panic!("{told:?}") };
        assert!(text.contains(&format!("number {number} of those")), "not number {number}: {text}");
    }
}
