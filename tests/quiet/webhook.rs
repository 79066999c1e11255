//! Webhooks through quiet, trickles and outages.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use wideroom::webhook::Webhooks;

use super::world::{Ground, QuietServer, around, quiet};
use crate::support::receiver::{Received, Receiver, Reply};
use crate::support::world::Actor;

/// Seconds that the parts of a webhook count in: positions, looks at leases, renewals, waits for rows, leases, retries, and the
/// positions of quiet shards.
const CONSTANTS: &[u64] = &[2, 3, 5, 10, 13, 15, 30, 60, 300];
/// Longest time from a send to its delivery where one server has the store.
const ALONE_MAX: Duration = Duration::from_secs(1);
/// The same where several servers share it: a quiet reader polls every five seconds.
const SHARED_MAX: Duration = Duration::from_secs(7);
/// Longest pause between two tries, with its jitter and the deadline of a try.
const RETRY_MAX: u64 = 300 + 15;
const HOUR: u64 = 3_600;

struct Scene {
    server: QuietServer,
    receiver: Receiver,
    alice: Actor,
    direct: String,
    /// Messages that were sent.
    sent: BTreeSet<String>,
    _webhooks: Webhooks,
    _ground: Ground,
}

impl Scene {
    async fn on(ground: Ground) -> Self {
        let server = ground.server().await;
        let receiver = Receiver::in_memory();
        let webhooks = server.webhooks(ground.webhook(&receiver)).await;
        let alice = server.user("alice");
        let direct = alice.direct("bob").await;
        quiet(10).await;
        Self {
            direct,
            alice,
            server,
            receiver,
            sent: BTreeSet::new(),
            _webhooks: webhooks,
            _ground: ground,
        }
    }

    async fn send_to(&mut self, conversation: &str) -> String {
        let sent = self.alice.send(conversation, "hello").await;
        self.sent.insert(sent.uuid.clone());
        sent.uuid
    }

    /// Sends a message, and waits for its delivery. How long that took.
    async fn deliver(&mut self, conversation: &str) -> Duration {
        let began = Instant::now();
        let id = self.send_to(conversation).await;
        self.until_received(&id).await - began
    }

    /// Waits until the receiver has got an event, for the last time.
    async fn until_received(&self, id: &str) -> Instant {
        let has = |all: &[Received]| all.iter().any(|one| one.id() == id);
        let all = self
            .receiver
            .until_within(Duration::from_secs(2 * HOUR), has)
            .await;
        all.iter().rfind(|one| one.id() == id).unwrap().at
    }

    /// Waits until the receiver has got every event that was sent.
    async fn until_all_received(&self, within: u64) {
        let has_all = |all: &[Received]| {
            let ids: BTreeSet<_> = all.iter().map(Received::id).collect();
            self.sent.iter().all(|id| ids.contains(id.as_str()))
        };
        let within = Duration::from_secs(within);
        self.receiver.until_within(within, has_all).await;
    }
}

/// An event after k seconds of nothing comes as if it were the first, for each k around each constant, and after an hour.
async fn comes_after_any_quiet(ground: Ground, longest: Duration) -> Scene {
    let mut scene = Scene::on(ground).await;
    let direct = scene.direct.clone();
    for seconds in [around(CONSTANTS), vec![HOUR]].concat() {
        quiet(seconds).await;
        let took = scene.deliver(&direct).await;
        assert!(took <= longest, "{took:?} after {seconds} s of quiet");
    }
    scene
}

#[tokio::test(start_paused = true)]
async fn an_event_after_any_quiet_comes_as_if_it_were_the_first() {
    let scene = comes_after_any_quiet(Ground::of_one().await, ALONE_MAX).await;
    let before = scene.server.store.swaps();
    quiet(HOUR).await;
    let swaps = scene.server.store.swaps() - before;
    assert!(swaps <= 16 * 12, "an idle hour writes {swaps} positions");
}

#[tokio::test(start_paused = true)]
async fn an_event_on_a_cluster_after_any_quiet_comes_as_if_it_were_the_first() {
    comes_after_any_quiet(Ground::shared().await, SHARED_MAX).await;
}

#[tokio::test(start_paused = true)]
async fn each_event_of_a_trickle_comes_as_if_it_were_the_first() {
    let mut scene = Scene::on(Ground::of_one().await).await;
    let direct = scene.direct.clone();
    for seconds in [1, 4, 12, 14, 59, 299] {
        for _ in 0..(HOUR / seconds).min(20) {
            quiet(seconds).await;
            let took = scene.deliver(&direct).await;
            assert!(took <= ALONE_MAX, "{took:?} in a trickle of {seconds} s");
        }
    }
}

/// The receiver is away for k seconds, whatever it does meanwhile. What was sent comes with the next try, and what is sent then at
/// once.
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_receiver_delays_what_was_sent_and_nothing_later() {
    let mut scene = Scene::on(Ground::of_one().await).await;
    let direct = scene.direct.clone();
    let away: [fn(&Received) -> Reply; 4] = [
        |_| Reply::Status(500),
        |_| Reply::Close,
        |_| Reply::Hang,
        |one| Reply::Status(if one.tries < 2 { 404 } else { 200 }),
    ];
    for answer in away {
        for seconds in [1, 14, 31, 301, HOUR] {
            scene.receiver.answer(answer);
            let missed = scene.send_to(&direct).await;
            quiet(seconds).await;
            scene.receiver.answer(|_| Reply::Status(200));
            let back = Instant::now();
            scene.until_all_received(RETRY_MAX).await;
            // The last try of the missed event may still be one that hangs.
            let settled = scene.deliver(&direct).await;
            let took = Instant::now() - back;
            let most = Duration::from_secs(RETRY_MAX.min(2 * seconds + 50) + 2);
            assert!(took <= most, "{took:?} after {seconds} s: {missed}");
            assert!(settled <= most, "{settled:?}");
            let took = scene.deliver(&direct).await;
            assert!(took <= ALONE_MAX, "{took:?} after an outage of {seconds} s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_ends_with_it() {
    let mut scene = Scene::on(Ground::of_one().await).await;
    let direct = scene.direct.clone();
    for seconds in [1, 6, 14, 61, 301, HOUR] {
        scene.server.store.set_away(true);
        quiet(seconds).await;
        scene.server.store.set_away(false);
        quiet(2).await;
        let took = scene.deliver(&direct).await;
        assert!(took <= ALONE_MAX, "{took:?} after an outage of {seconds} s");
    }
}
