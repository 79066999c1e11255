//! Live messages whose writers fall silent, in virtual time: a server sends what there is, once, with all that was acknowledged.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use wideroom::chat::{
    Bounds, Draft, DraftInput, Error, HookFailureMode, LiveWriteInput, LiveWritten, Result,
};
use wideroom::model::{
    ConversationId, IdempotencyKey, LiveMessageState, LiveView, Message, MessageStep,
    MessageStepState, Viewer, WriterNumber,
};
use wideroom::store::live::LiveStore as _;

use super::before_send::hook;
use super::live::{Answering, KEY, is_conflict, messages, user};
use super::store::still;
use super::world::{Ground, QuietServer, quiet, stored_id};
use crate::delivery::directory::Dice;
use crate::support::receiver::{Receiver, Reply};
use crate::support::size::sized;

/// Time from the last write to the message.
const SETTLED_AFTER: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(130);
/// Time in which another server takes over what a dead one held.
const TAKE_OVER_MAX: Duration = Duration::from_secs(50);

pub(super) fn settler(server: &QuietServer) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(server.chat.lives.settler().run()))
}

/// An answer that is being written, on servers with settlers.
struct Settling {
    on: Answering,
    settlers: Vec<AbortOnDropHandle<()>>,
}

impl Settling {
    async fn begin(ground: Ground) -> Self {
        let on = Answering::begin(ground).await;
        let settlers = on.servers.iter().map(settler).collect();
        Self { on, settlers }
    }

    async fn write(&self, position: usize, text: &str) -> usize {
        let written = self.on.write(self.on.other(), "w", position, text).await;
        written.unwrap().next_position
    }

    async fn view(&self) -> LiveView {
        self.on.view(self.on.other(), "helper").await.unwrap()
    }

    /// The message, and the time that passed until it was there.
    async fn settled(&self) -> (Arc<Message>, Duration) {
        let began = Instant::now();
        loop {
            if let Some(message) = self.on.messages().await.pop() {
                return (message, began.elapsed());
            }
            assert!(
                began.elapsed() < Duration::from_secs(600),
                "nothing was sent"
            );
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Waits until a server has ended the list of writers, and returns which one it was.
    async fn closed(&self) -> usize {
        let servers = &self.on.servers;
        let claims = || {
            let each = servers.iter();
            each.map(|server| server.still.calls("claim_live_writer"))
        };
        let before: Vec<_> = claims().collect();
        loop {
            let mut now = claims().zip(&before);
            if let Some(closer) = now.position(|(now, before)| now > *before) {
                return closer;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The state after all that a settler does.
    async fn ended(&self) -> LiveMessageState {
        quiet(200).await;
        self.view().await.state()
    }
}

fn is_interrupted(message: &Message) -> bool {
    message.content.as_ref().unwrap().is_interrupted
}

fn body(message: &Message) -> &str {
    message.content.as_ref().unwrap().body.as_str()
}

#[tokio::test(start_paused = true)]
async fn a_writer_who_falls_silent_leaves_one_interrupted_message() {
    for second in [0, 29, 58] {
        for ground in [Ground::of_one().await, Ground::shared().await] {
            let on = Settling::begin(ground).await;
            quiet(second).await;
            let input = LiveWriteInput {
                steps: Some(vec![MessageStep {
                    key: "1".to_owned(),
                    title: "Ask the weather".to_owned(),
                    state: MessageStepState::Running,
                    detail: None,
                }]),
                ..on.on.input("w", 0, "It ")
            };
            let lives = &on.on.servers[0].chat.lives;
            lives.write(user("helper"), input).await.unwrap();
            on.write(3, "rains").await;
            let (message, after) = on.settled().await;
            assert!(SETTLED_AFTER.contains(&after), "{after:?}");
            assert_eq!(
                (body(&message), &message.sender),
                ("It rains", &user("helper"))
            );
            assert!(is_interrupted(&message));
            assert_eq!(message.client_key.as_ref().unwrap().as_str(), KEY);
            let view = on.view().await;
            assert_eq!(
                (view.state(), view.sent),
                (LiveMessageState::Sent, Some(message.id))
            );

            // The writer comes back: its text is too late, and the send of the same text is a retry.
            assert!(is_conflict(&on.on.write(on.on.other(), "w", 8, "!").await));
            assert!(is_conflict(
                &on.on.write(on.on.other(), "anew", 0, "x").await
            ));
            let other = on.on.send(on.on.other(), "It rains!").await;
            assert!(matches!(other, Err(Error::Conflict)), "{other:?}");
            quiet(200).await;
            assert_eq!(on.on.messages().await.len(), 1);
            shows_until_an_edit(&on, &message).await;
        }
    }
}

/// Every participant sees that the message is interrupted, until its sender edits it: also with the same text.
async fn shows_until_an_edit(on: &Settling, message: &Message) {
    let alice = on.on.servers[0].user("alice");
    let document =
        "{ inbox(first: 1) { edges { node { conversation { messages(first: 1) { edges { node {
        body isInterrupted steps { title state } } } } } } } } }";
    let shown = async |is_interrupted| {
        let data = alice.data(document, json!({})).await;
        let conversation = &data["inbox"]["edges"][0]["node"]["conversation"];
        let steps = json!([{"title": "Ask the weather", "state": "RUNNING"}]);
        let expected = json!({"body": "It rains", "isInterrupted": is_interrupted, "steps": steps});
        assert_eq!(conversation["messages"]["edges"][0]["node"], expected);
    };
    shown(true).await;
    let writes = &on.on.servers[0].chat.writes;
    let edited = writes.edit(user("helper"), on.on.on, message.id, "It rains".to_owned());
    let edited = edited.await.unwrap();
    assert!(edited.content.as_ref().unwrap().edited_at.is_some());
    shown(false).await;
    let again = writes.edit(user("helper"), on.on.on, message.id, "It rains".to_owned());
    assert_eq!(again.await.unwrap(), edited);
}

/// The send of the same text by the writer who comes back is answered with the message that the server has sent.
#[tokio::test(start_paused = true)]
async fn a_late_send_of_the_same_text_is_a_retry() {
    let on = Settling::begin(Ground::of_one().await).await;
    on.write(0, "It rains").await;
    on.settled().await;
    on.on.send(&on.on.servers[0], "It rains").await.unwrap();
    assert_eq!(on.on.messages().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_server_settles_what_a_dead_one_has_begun() {
    for _ in 0..sized(4, 20) {
        let mut on = Settling::begin(Ground::shared().await).await;
        // The leases are spread over both.
        quiet(30).await;
        let began = Instant::now();
        on.write(0, "It rains").await;
        let dead = on.closed().await;
        drop(on.settlers.swap_remove(dead));
        drop(on.on.servers.swap_remove(dead));
        assert_eq!(on.on.messages().await.len(), 0);
        let (message, _) = on.settled().await;
        let after = began.elapsed();
        assert!(after <= *SETTLED_AFTER.end() + TAKE_OVER_MAX, "{after:?}");
        assert!(is_interrupted(&message) && body(&message) == "It rains");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_started_again_settles_what_it_has_begun() {
    let mut on = Settling::begin(Ground::of_one().await).await;
    on.write(0, "It rains").await;
    on.closed().await;
    on.settlers.clear();
    quiet(1_200).await;
    assert_eq!(on.on.messages().await.len(), 0);
    on.on.servers[0] = on.on.ground.server().await;
    on.settlers.push(settler(&on.on.servers[0]));
    let (message, after) = on.settled().await;
    assert!(
        is_interrupted(&message) && after <= Duration::from_secs(10),
        "{after:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_silent_for_ten_minutes_is_waited_for() {
    for ground in [Ground::of_one().await, Ground::shared().await] {
        let on = Settling::begin(ground).await;
        on.write(0, "Looking it up").await;
        for _ in 0..30 {
            quiet(20).await;
            on.write(13, "").await;
        }
        assert_eq!(on.on.messages().await.len(), 0);
        let (_, after) = on.settled().await;
        assert!(SETTLED_AFTER.contains(&after), "{after:?}");
    }
}

/// A writer who has claimed the live message and died before its first text leaves nothing.
#[tokio::test(start_paused = true)]
async fn a_live_message_without_a_text_is_discarded() {
    for text in ["", " \n"] {
        let on = Settling::begin(Ground::of_one().await).await;
        on.write(0, text).await;
        assert_eq!(on.ended().await, LiveMessageState::Discarded);
        assert_eq!(on.on.messages().await.len(), 0);
    }
}

/// A second writer dies right after its claim: what the first one wrote is not shown any more, and is not sent.
#[tokio::test(start_paused = true)]
async fn a_writer_who_dies_with_its_claim_is_settled_too() {
    let on = Settling::begin(Ground::of_one().await).await;
    let server = &on.on.servers[0];
    on.write(0, "The first").await;
    quiet(55).await;
    for method in ["list_live", "write_live"] {
        server.still.refuse(method, true);
    }
    assert!(on.on.write(server, "second", 0, "Another").await.is_err());
    for method in ["list_live", "write_live"] {
        server.still.refuse(method, false);
    }
    assert_eq!(
        on.view().await.message.writers.shown(),
        WriterNumber::new(2)
    );
    assert_eq!(on.ended().await, LiveMessageState::Discarded);
    assert_eq!(on.on.messages().await.len(), 0);
}

/// A writer who may not send any more, for whatever reason, leaves no message.
#[tokio::test(start_paused = true)]
async fn what_its_writer_may_not_send_is_discarded() {
    let (backend, helper) = (Viewer::service(user("backend")), user("helper"));
    for case in [
        "blocks",
        "suspended",
        "removed",
        "banned",
        "silenced",
        "closed",
        "rejected",
    ] {
        let mut on = Answering::begin(Ground::of_one().await).await;
        let alice = on.servers[0].user("alice");
        let group = alice.group("a group", &["helper"]).await;
        if ["removed", "banned", "silenced", "closed"].contains(&case) {
            on.on = stored_id(&alice, &group).await;
            let key = IdempotencyKey::parse(KEY).unwrap();
            let live = on.servers[0].chat.lives.key_of(on.on, &helper, &key);
            on.live = live.await.unwrap();
        }
        let (settlers, receiver) = (vec![settler(&on.servers[0])], Receiver::in_memory());
        let on = Settling { on, settlers };
        on.write(0, "It rains").await;
        let chat = &on.on.servers[0].chat;
        match case {
            "blocks" => drop(chat.blocks.block(&user("helper"), "alice").await.unwrap()),
            "suspended" => {
                let suspended = chat.restrictions.suspend(&backend, &helper, None, None);
                suspended.await.unwrap();
            }
            "removed" => {
                let removed = chat
                    .writes
                    .remove_participant(user("alice"), on.on.on, "helper");
                removed.await.unwrap();
            }
            "banned" => {
                let document = "mutation($c: ID!) { banParticipant(input: {conversationId: $c, username: \"helper\"}) { __typename } }";
                alice.data(document, json!({ "c": group })).await;
            }
            "closed" => {
                let document = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, sendRole: ADMIN}) { __typename } }";
                alice.data(document, json!({ "c": group })).await;
            }
            "silenced" => {
                let silenced = chat.writes.silence(user("alice"), on.on.on, "helper", None);
                silenced.await.unwrap();
            }
            _ => {
                let answer = json!({"decision": "reject"}).to_string();
                receiver.answer(move |_| Reply::Json(200, answer.clone()));
                let hook = hook(&on.on.ground, &receiver, HookFailureMode::Refuse);
                chat.writes.set_hook(hook);
            }
        }
        quiet(200).await;
        let live = still(on.on.ground.embedded().live_messages(&[on.on.live])).await;
        let live = live.unwrap().pop().flatten().unwrap();
        assert!(live.discarded_at.is_some(), "{case}");
        let texts = on.on.messages().await;
        let texts = texts.iter().filter(|message| body(message) == "It rains");
        assert_eq!(texts.count(), 0, "{case}");
    }
}

/// In slow mode live text takes no turn of its writer, and what the server sends for a silent one waits for its turn.
#[tokio::test(start_paused = true)]
async fn what_a_silent_writer_left_waits_for_its_turn_in_slow_mode() {
    let mut on = Answering::begin_in_group(Ground::of_one().await).await;
    let settler = settler(&on.servers[0]);
    let alice = on.servers[0].user("alice");
    let document = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, slowModeSeconds: 300}) { __typename } }";
    alice.data(document, json!({ "c": on.conversation })).await;
    let helper = on.servers[0].user("helper");
    on.write(&on.servers[0], "w", 0, "It rains").await.unwrap();
    helper.send(&on.conversation, "A moment, please").await;
    let began = Instant::now();
    // A live message does not begin where a send would come too early. The one that has begun goes on.
    let input = LiveWriteInput {
        key: "answer 2".to_owned(),
        ..on.input("w", 0, "x")
    };
    let early = on.servers[0].chat.lives.write(user("helper"), input).await;
    assert!(matches!(early, Err(Error::TooFast { .. })), "{early:?}");
    on.write(&on.servers[0], "w", 8, " cats").await.unwrap();
    quiet(280).await;
    let interrupted = |messages: Vec<Arc<Message>>| {
        let texts = messages.into_iter().filter(|one| is_interrupted(one));
        texts.map(|one| body(&one).to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(interrupted(texts_of(&on).await), [""; 0]);
    quiet(220).await;
    assert_eq!(interrupted(texts_of(&on).await), ["It rains cats"]);
    assert!(began.elapsed() < Duration::from_secs(600));
    // It was a send, and has taken the turn.
    let send = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"again\"}) { __typename } }";
    let again = helper.ask(send, json!({ "c": on.conversation })).await;
    assert_eq!(again.code(), "RATE_LIMITED");
    drop((settler, on.servers.pop()));
}

/// Messages of users.
async fn texts_of(on: &Answering) -> Vec<Arc<Message>> {
    let mut messages = on.messages().await;
    messages.retain(|message| message.content.is_some() && message.sender == user("helper"));
    messages
}

/// A failure that may pass is waited for: of the store, and of the hook.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_for_a_while_is_sent_later() {
    for case in ["append", "away", "hook"] {
        let on = Settling::begin(Ground::of_one().await).await;
        let (server, receiver) = (&on.on.servers[0], Receiver::in_memory());
        on.write(0, "It rains").await;
        receiver.answer(|_| Reply::Status(500));
        match case {
            "append" => server.still.refuse("append_messages", true),
            "away" => server.still.set_away(true),
            _ => {
                let hook = hook(&on.on.ground, &receiver, HookFailureMode::Refuse);
                server.chat.writes.set_hook(hook);
            }
        }
        quiet(900).await;
        assert_eq!(on.on.messages().await.len(), 0, "{case}");
        server.still.refuse("append_messages", false);
        server.still.set_away(false);
        let answer = json!({"decision": "allow"}).to_string();
        receiver.answer(move |_| Reply::Json(200, answer.clone()));
        let (message, after) = on.settled().await;
        assert!(is_interrupted(&message), "{case}");
        assert!(after <= Duration::from_secs(140), "{case}: {after:?}");
    }
}

/// A live message may last half a day. The writes after that are refused, and what there is becomes a message.
#[tokio::test(start_paused = true)]
async fn half_a_day_is_all_the_time_that_a_writer_has() {
    let on = Settling::begin(Ground::of_one().await).await;
    let (began, mut position) = (Instant::now(), 0);
    let day = Duration::from_secs(12 * 3_600);
    while began.elapsed() < day {
        position = on.write(position, ".").await;
        quiet(55).await;
    }
    let late = on.on.write(&on.on.servers[0], "w", position, ".").await;
    assert!(is_conflict(&late));
    let (message, after) = on.settled().await;
    assert_eq!(body(&message).len(), position);
    assert!(after <= *SETTLED_AFTER.end(), "{after:?}");
}

/// An append that was under way while the list of writers was ended is in the message if it was acknowledged.
#[tokio::test(start_paused = true)]
async fn an_append_that_a_settlement_overtakes_is_in_the_message() {
    let mut overtaken = 0;
    for half_second in 0..14_u32 {
        let on = Settling::begin(Ground::of_one().await).await;
        let server = &on.on.servers[0];
        on.write(0, "It rains").await;
        // The last write is due with the begin of the next minute but one.
        let now = on.on.ground.clock.now().micros();
        let due = (now.div_euclid(60_000_000) + 2) * 60_000_000 - now;
        let before = Duration::from_millis(1_500);
        let due = Duration::from_micros(due.unsigned_abs()) - before;
        sleep(due + Duration::from_millis(500) * half_second).await;
        server
            .still
            .slow("write_live", Duration::from_millis(1_800));
        let acknowledged = on.on.write(server, "w", 8, " cats").await.is_ok();
        let closed = still(on.on.ground.embedded().live_messages(&[on.on.live])).await;
        let closed = closed.unwrap().pop().flatten().unwrap().writers.is_closed();
        overtaken += usize::from(acknowledged && closed);
        let (message, _) = on.settled().await;
        let is_whole = body(&message) == "It rains cats";
        assert!(
            is_whole || !acknowledged,
            "{half_second}: {}",
            body(&message)
        );
    }
    assert!(overtaken > 0, "no settlement has overtaken a write");
}

/// Agents come back just when a server settles what they left: each key has one message, with all that was acknowledged.
#[tokio::test(start_paused = true)]
async fn a_hundred_races_of_agent_and_settler_have_one_winner_each() {
    for ground in [Ground::of_one().await, Ground::shared().await] {
        let dice = Dice::new(7);
        let on = Settling::begin(ground).await;
        let servers = &on.on.servers;
        let mut answers = Vec::new();
        for number in 0..100 {
            let asker = servers[0].user(&format!("asker{number}"));
            let direct = asker.direct("helper").await;
            let conversation = stored_id(&asker, &direct).await;
            let people = [user(&format!("asker{number}")), user("helper")];
            on.on.ground.place(conversation, people.into());
            answers.push(conversation);
        }
        let due = Duration::from_secs(110);
        let races = answers.iter().map(async |answer| {
            let server = &servers[number(&dice, servers.len())];
            let text = "It rains";
            write_in(server, *answer, 0, text).await.unwrap();
            // Silence until about when the server settles it.
            sleep(due / 2 + dice.millis(75_000)).await;
            let more = write_in(server, *answer, 8, ", and pours").await;
            let acknowledged = if more.is_ok() {
                "It rains, and pours"
            } else {
                text
            };
            let sent = match dice.below(3) {
                0 => Ok(()),
                1 => send_in(server, *answer, acknowledged).await,
                _ => send_in(server, *answer, "It rains, and pours. Stay.").await,
            };
            assert!(matches!(sent, Ok(()) | Err(Error::Conflict)), "{sent:?}");
            acknowledged
        });
        let acknowledged = join_all(races).await;
        quiet(200).await;
        let mut interrupted = 0;
        for (answer, acknowledged) in answers.iter().zip(acknowledged) {
            let sent = messages(&on.on.ground, *answer).await;
            let [message] = &sent[..] else {
                panic!("one message for a key: {sent:?}")
            };
            assert!(body(message).starts_with(acknowledged), "{}", body(message));
            interrupted += usize::from(is_interrupted(message));
        }
        assert!((10..90).contains(&interrupted), "{interrupted}");
    }
}

/// A write of the helper in a conversation.
async fn write_in(
    server: &QuietServer,
    conversation: ConversationId,
    position: i32,
    text: &str,
) -> Result<LiveWritten> {
    let input = LiveWriteInput {
        conversation,
        key: KEY.to_owned(),
        writer: "w".to_owned(),
        position,
        text: text.to_owned(),
        status: None,
        steps: None,
        reply_to: None,
    };
    server.chat.lives.write(user("helper"), input).await
}

async fn send_in(server: &QuietServer, conversation: ConversationId, body: &str) -> Result<()> {
    let input = DraftInput {
        body: body.to_owned(),
        idempotency_key: Some(KEY.to_owned()),
        ..DraftInput::default()
    };
    let draft = Draft::parse(input, &Bounds::default()).unwrap();
    let sent = server.chat.writes.send(user("helper"), conversation, draft);
    sent.await.map(drop)
}

fn number(dice: &Dice, bound: usize) -> usize {
    usize::try_from(dice.below(1 << 20)).unwrap() % bound
}
