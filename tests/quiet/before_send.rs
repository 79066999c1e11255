//! The hook before a send under crowds: no user passes it by asking much, and none keeps it from the others.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::Instant;
use wideroom::chat::{HookFailureMode, LiveTextMode, SendHook, SendHookSettings};
use wideroom::metrics::Metrics;

use super::world::{Ground, QuietServer};
use crate::support::receiver::{Receiver, Reply};
use crate::support::world::Answer;

const TIMEOUT: Duration = SendHookSettings::TIMEOUT_DEFAULT;
/// Questions at once, of a user and of all, and the longest wait for one.
const USER_AT_ONCE: usize = 8;
const AT_ONCE: usize = 64;
const WAIT_MAX: Duration = Duration::from_secs(2);
const SEND: &str = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b}) { messageEdge { cursor } } }";

/// A hook that asks a receiver.
pub(super) fn hook(ground: &Ground, receiver: &Receiver, on_failure: HookFailureMode) -> SendHook {
    let webhook = ground.webhook(receiver);
    let settings = SendHookSettings {
        target: webhook.target,
        url: webhook.url,
        allow_http: true,
        secret_file: webhook.secret_file,
        timeout: TIMEOUT,
        on_failure,
        live: LiveTextMode::Refuse,
    };
    SendHook::open(&settings).unwrap()
}

struct Scene {
    server: QuietServer,
    receiver: Receiver,
    metrics: Metrics,
    _ground: Ground,
}

impl Scene {
    /// A hook that lets messages pass if it fails, and answers by the body.
    async fn new() -> Self {
        let ground = Ground::of_one().await;
        let (server, receiver) = (ground.server().await, Receiver::in_memory());
        let hook = hook(&ground, &receiver, HookFailureMode::Allow);
        let metrics = Metrics::default();
        hook.register(&metrics);
        server.chat.writes.set_hook(hook);
        receiver.answer(|received| {
            let decision = |decision| Reply::Json(200, json!({"decision": decision}).to_string());
            match received.json()["body"].as_str().unwrap() {
                "hang" => Reply::Hang,
                "late" => Reply::Late(
                    TIMEOUT - Duration::from_millis(100),
                    Box::new(decision("allow")),
                ),
                "break" => Reply::Status(500),
                "bad" => decision("reject"),
                _ => decision("allow"),
            }
        });
        Self {
            server,
            receiver,
            metrics,
            _ground: ground,
        }
    }

    /// Sends so many messages of one user at once.
    async fn send(&self, user: &str, body: &str, count: usize) -> Vec<Answer> {
        let user = self.server.user(user);
        let direct = user.direct("bob").await;
        join_all((0..count).map(|_| user.ask(SEND, json!({"c": direct, "b": body})))).await
    }

    fn unchecked(&self) -> f64 {
        let text = self.metrics.text();
        let series = "wideroom_before_send_unchecked_total ";
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap().parse().unwrap()
    }
}

fn refused(answers: &[Answer], code: &str) -> usize {
    let refused = answers.iter().filter(|one| one.is_refused());
    refused.filter(|one| one.code() == code).count()
}

#[tokio::test(start_paused = true)]
async fn a_user_who_crowds_the_hook_is_slowed_and_nobody_else() {
    let scene = Scene::new().await;
    let began = Instant::now();
    let crowd = scene.send("mallory", "hang", 100);
    let others = async {
        scene.receiver.until(|all| all.len() == USER_AT_ONCE).await;
        let began = Instant::now();
        assert_eq!(
            refused(&scene.send("alice", "bad", 1).await, "FORBIDDEN"),
            1
        );
        assert!(scene.send("alice", "fine", 1).await[0].has_data());
        assert!(began.elapsed() < Duration::from_millis(100));
    };
    let (crowd, ()) = tokio::join!(crowd, others);
    // Those that were asked about passed unchecked, as the configuration says.
    let passed = crowd.iter().filter(|one| one.has_data()).count();
    assert_eq!(scene.unchecked(), passed as f64);
    assert!(passed <= 2 * USER_AT_ONCE, "{passed}");
    assert_eq!(refused(&crowd, "RATE_LIMITED"), 100 - passed);
    assert!(began.elapsed() <= WAIT_MAX + TIMEOUT + Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_message_without_room_never_passes() {
    let scene = Scene::new().await;
    // Twice as many as are asked about at once: the second half waits before alice.
    let users: Vec<_> = (0..2 * AT_ONCE / USER_AT_ONCE)
        .map(|one| format!("user{one}"))
        .collect();
    let crowd = join_all(
        users
            .iter()
            .map(|user| scene.send(user, "late", USER_AT_ONCE)),
    );
    let last = async {
        scene.receiver.until(|all| all.len() == AT_ONCE).await;
        scene.send("alice", "bad", 1).await
    };
    let (_, last) = tokio::join!(crowd, last);
    assert_eq!(refused(&last, "RATE_LIMITED"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_begins_with_the_question() {
    let scene = Scene::new().await;
    let late = scene.send("alice", "late", 2 * USER_AT_ONCE).await;
    assert!(late.iter().all(Answer::has_data));
    assert_eq!(scene.unchecked(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_user_whose_messages_break_the_hook_leaves_it_to_the_others() {
    let scene = Scene::new().await;
    for _ in 0..50 {
        scene.send("mallory", "break", 1).await;
        assert_eq!(
            refused(&scene.send("alice", "bad", 1).await, "FORBIDDEN"),
            1
        );
    }
    for _ in 0..40 {
        scene.send("mallory", "break", 1).await;
    }
    assert_eq!(
        refused(&scene.send("alice", "bad", 1).await, "FORBIDDEN"),
        1
    );
    assert_eq!(scene.unchecked(), 90.0);
}
