//! Webhooks through quiet, trickles and outages, and conversations whose events the receiver does not take.

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

    /// Conversations of their own, in all shards.
    async fn groups(&self, count: usize) -> Vec<String> {
        let mut groups = Vec::new();
        for number in 0..count {
            groups.push(self.alice.group(&format!("group {number}"), &["bob"]).await);
        }
        groups
    }

    fn metric(&self, name: &str) -> f64 {
        self.server
            .metric(&format!("wideroom_webhook_{name}{{webhook=\"backend\"}}"))
    }
}

fn conversation_of(received: &Received) -> String {
    let conversation = &received.json()["data"]["outbox"]["conversation"]["id"];
    conversation.as_str().unwrap().to_owned()
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
    let before = scene.server.still.swaps();
    quiet(HOUR).await;
    let swaps = scene.server.still.swaps() - before;
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
    for (answer, longest) in away.into_iter().zip([HOUR, 301, 301, 301]) {
        for seconds in [1, 14, 31, longest] {
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
        scene.server.still.set_away(true);
        quiet(seconds).await;
        scene.server.still.set_away(false);
        quiet(2).await;
        let took = scene.deliver(&direct).await;
        assert!(took <= ALONE_MAX, "{took:?} after an outage of {seconds} s");
    }
}

/// A user sends 1,120 messages whose events the receiver does not take: it fails, it refuses, or it takes 14 s for each. The
/// events of 64 other conversations come at once.
async fn stops_no_other_one(answer: fn() -> Reply) {
    let mut scene = Scene::on(Ground::of_one().await).await;
    let groups = scene.groups(64).await;
    let direct = scene.direct.clone();
    let own = direct.clone();
    scene.receiver.answer(move |one| {
        if conversation_of(one) == own {
            answer()
        } else {
            Reply::Status(200)
        }
    });
    for _ in 0..1_120 {
        scene.alice.send(&direct, "flood").await;
    }
    quiet(60).await;
    for group in &groups {
        let took = scene.deliver(group).await;
        assert!(took <= ALONE_MAX, "{took:?}");
    }
    quiet(10).await;
    assert_eq!(scene.metric("held"), 1.0);
    assert!(
        scene.metric("waiting") <= 16.0,
        "{}",
        scene.metric("waiting")
    );
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_the_receiver_fails_on_stops_no_other_one() {
    stops_no_other_one(|| Reply::Status(500)).await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_the_receiver_refuses_stops_no_other_one() {
    stops_no_other_one(|| Reply::Status(422)).await;
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_the_receiver_is_slow_with_stops_no_other_one() {
    stops_no_other_one(|| Reply::Late(Duration::from_secs(14), Box::new(Reply::Status(200)))).await;
}

/// An event that fails for an hour while others are taken is a dead letter, the next ones of its conversation within a minute,
/// until one is delivered. Nothing is dead while the receiver fails for all.
#[tokio::test(start_paused = true)]
async fn an_event_that_alone_fails_for_an_hour_is_a_dead_letter() {
    let mut scene = Scene::on(Ground::of_one().await).await;
    let direct = scene.direct.clone();
    let group = scene.groups(1).await.remove(0);
    scene.receiver.answer(|_| Reply::Status(500));
    scene.alice.send(&direct, "for all").await;
    quiet(3 * HOUR).await;
    assert_eq!(scene.metric("dead_letters_total"), 0.0);
    let own = direct.clone();
    scene.receiver.answer(move |one| {
        Reply::Status(if conversation_of(one) == own {
            500
        } else {
            200
        })
    });
    let mut passed = 0;
    while scene.metric("dead_letters_total") < 1.0 {
        quiet(30).await;
        passed += 30;
        assert!(passed < 2 * HOUR, "it is never dead");
        scene.deliver(&group).await;
    }
    // The pause before the receiver came back counts, too.
    assert!(passed + RETRY_MAX >= HOUR, "dead after {passed} s");
    scene.alice.send(&direct, "the next one").await;
    for _ in 0..40 {
        quiet(3).await;
        scene.deliver(&group).await;
    }
    assert_eq!(scene.metric("dead_letters_total"), 2.0);
    scene.receiver.answer(|_| Reply::Status(200));
    let took = scene.deliver(&direct).await;
    assert!(took <= ALONE_MAX, "{took:?}");
}

/// A server that ends without a word leaves its leases and positions: another one begins where it was, also in a conversation that
/// was behind.
#[tokio::test(start_paused = true)]
async fn a_restart_repeats_only_what_was_under_way() {
    let ground = Ground::of_one().await;
    let server = ground.server().await;
    let receiver = Receiver::in_memory();
    let webhooks = server.webhooks(ground.webhook(&receiver)).await;
    let alice = server.user("alice");
    let (bad, good) = (alice.direct("bob").await, alice.direct("carol").await);
    let own = bad.clone();
    receiver.answer(move |one| {
        Reply::Status(if conversation_of(one) == own {
            500
        } else {
            200
        })
    });
    let mut expected = Vec::new();
    for _ in 0..50 {
        expected.push(alice.send(&bad, "held").await.uuid);
        alice.send(&good, "taken").await;
    }
    quiet(20).await;
    drop(webhooks);
    let before = receiver.received().len();
    receiver.answer(|_| Reply::Status(200));
    let metrics = wideroom::metrics::Metrics::default();
    let _again = server
        .webhooks_with(ground.webhook(&receiver), &metrics)
        .await;
    quiet(60).await;
    let received = receiver.received();
    let after: Vec<_> = received[before..].iter().map(Received::id).collect();
    assert_eq!(
        after, expected,
        "the held conversation, in order, and nothing else"
    );
}
