//! Viewers of live messages in virtual time: on the server of the writer, and on another one.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};
use wideroom::chat::{Error, LiveWriteInput};
use wideroom::model::{LiveCursor, LiveMessageState, LiveStatus};

use super::live::{Answering, user};
use super::screen::{Received, Screen};
use super::world::{Ground, QuietServer, quiet};

/// Pause after which all that was published on a server has been received there.
const SOON: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// Time within which another server finds the start of a live message: a poll of its mailbox.
const START_MAX: Duration = Duration::from_millis(2_100);

/// Text of an answer of 20 characters a second.
fn token(number: usize) -> String {
    format!("tökens {number:04} ")
}

async fn grounds() -> [Ground; 2] {
    [Ground::of_one().await, Ground::shared().await]
}

/// Writes an answer of so many texts, one each 500 ms.
async fn answer(on: &Answering, server: &QuietServer, texts: usize) -> String {
    let mut text = String::new();
    for number in 0..texts {
        let part = token(number);
        on.write(server, "w", text.len(), &part).await.unwrap();
        text.push_str(&part);
        sleep(Duration::from_millis(500)).await;
    }
    text
}

#[tokio::test(start_paused = true)]
async fn a_viewer_is_sent_the_text_once() {
    for ground in grounds().await {
        let on = Answering::begin(ground).await;
        let mut here = Screen::open(&on.servers[0], "alice", on.on).await;
        let mut there = Screen::open(on.other(), "alice", on.on).await;
        let mut own = Screen::open(&on.servers[0], "helper", on.on).await;
        let text = answer(&on, &on.servers[0], 40).await;
        for screen in [&mut here, &mut there, &mut own] {
            screen.watch(SECOND).await;
            assert_eq!(screen.text(), text);
            let Received {
                updates,
                bytes,
                wholes,
            } = screen.received;
            assert_eq!((bytes, wholes), (text.len(), 1));
            assert!(updates <= 40, "{updates}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_viewer_that_is_cut_50_times_is_sent_the_text_once() {
    for ground in grounds().await {
        let on = Answering::begin(ground).await;
        let mut screen = Screen::open(on.other(), "alice", on.on).await;
        let mut text = String::new();
        for round in 0..50 {
            let part = token(round);
            let server = &on.servers[round % on.servers.len()];
            on.write(server, "w", text.len(), &part).await.unwrap();
            text.push_str(&part);
            if round % 3 == 0 {
                screen.watch(SOON).await;
            }
            screen.resume(on.other()).await.unwrap();
            screen.watch(SOON).await;
            // Elsewhere it continues from the same byte.
            screen
                .resume(&on.servers[round % on.servers.len()])
                .await
                .unwrap();
            screen.watch(SOON).await;
            assert!(text.starts_with(screen.text()));
        }
        screen.watch(2 * SECOND).await;
        assert_eq!(screen.text(), text);
        assert_eq!(
            (screen.received.bytes, screen.received.wholes),
            (text.len(), 1)
        );
        let updates = screen.received.updates;
        println!("{updates} updates of 50 writes and 100 resumes");
        assert!(updates <= 50 + 100 + 1, "{updates}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_server_shows_a_text_within_a_second() {
    let on = Answering::begin(Ground::shared().await).await;
    let mut screen = Screen::open(on.other(), "alice", on.on).await;
    quiet(10).await;
    let mut text = String::new();
    let mut longest = Duration::ZERO;
    for pause_ms in [0, 300, 300, 300, 2_000, 5_000, 20_000, 50_000, 250] {
        sleep(Duration::from_millis(pause_ms)).await;
        let part = format!("after {pause_ms} ms ");
        on.write(&on.servers[0], "w", text.len(), &part)
            .await
            .unwrap();
        let (began, is_start) = (Instant::now(), text.is_empty());
        text.push_str(&part);
        while screen.text() != text {
            screen.next(Duration::from_secs(60)).await.unwrap();
        }
        let took = began.elapsed();
        assert!(
            took <= if is_start { START_MAX } else { SECOND },
            "{took:?}"
        );
        longest = longest.max(if is_start { Duration::ZERO } else { took });
        println!("{took:?} after a pause of {pause_ms} ms");
    }
    assert!(longest > Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_take_over_is_whole_everywhere() {
    for ground in grounds().await {
        let on = Answering::begin(ground).await;
        let mut screens = Vec::new();
        for server in &on.servers {
            screens.push(Screen::open(server, "alice", on.on).await);
        }
        on.write(&on.servers[0], "first", 0, "The first")
            .await
            .unwrap();
        quiet(3).await;
        on.write(on.other(), "second", 0, "Another").await.unwrap();
        let _ = on.write(&on.servers[0], "first", 9, " answer").await;
        on.write(on.other(), "second", 7, " one").await.unwrap();
        for screen in &mut screens {
            screen.watch(2 * SECOND).await;
            assert_eq!(screen.text(), "Another one");
            assert_eq!(screen.received.wholes, 2);
            let bytes = "The first answer".len() + "Another one".len();
            assert!(screen.received.bytes <= bytes, "{:?}", screen.received);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_ends_its_bubble_everywhere() {
    for ground in grounds().await {
        let on = Answering::begin(ground).await;
        let mut screens = Vec::new();
        for server in &on.servers {
            screens.push(Screen::open(server, "alice", on.on).await);
        }
        answer(&on, &on.servers[0], 4).await;
        on.send(on.other(), "The answer").await.unwrap();
        for screen in &mut screens {
            screen.watch(START_MAX).await;
            assert!(screen.bubbles.is_empty());
            let states: Vec<_> = screen.ended.iter().map(|view| view.state()).collect();
            assert_eq!(states, [LiveMessageState::Sent]);
            assert_eq!(screen.cursor.as_ref().unwrap().lives, []);
        }
        let late = Screen::open(on.other(), "alice", on.on).await;
        assert!(late.bubbles.is_empty() && late.received == Received::default());
    }
}

/// The text reaches the other servers by their polls, and the end by the message itself, however long the poll has rested.
#[tokio::test(start_paused = true)]
async fn a_message_ends_the_bubble_of_a_silent_writer() {
    for ground in grounds().await {
        let on = Answering::begin(ground).await;
        let mut screen = Screen::open(on.other(), "alice", on.on).await;
        answer(&on, &on.servers[0], 4).await;
        screen.watch(Duration::from_secs(110)).await;
        assert!(!screen.bubbles.is_empty());
        on.send(&on.servers[0], "The answer").await.unwrap();
        screen.watch(START_MAX).await;
        assert!(screen.bubbles.is_empty() && screen.ended.len() == 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_discarded_live_message_disappears_everywhere() {
    for silence in [1, 100] {
        for ground in grounds().await {
            let on = Answering::begin(ground).await;
            let mut screens = Vec::new();
            for server in &on.servers {
                screens.push(Screen::open(server, "alice", on.on).await);
            }
            answer(&on, &on.servers[0], 4).await;
            quiet(silence).await;
            let lives = &on.servers[0].chat.lives;
            lives.discard(user("helper"), on.live).await.unwrap();
            for screen in &mut screens {
                screen.watch(START_MAX).await;
                assert!(screen.bubbles.is_empty(), "after {silence} s");
                let states: Vec<_> = screen.ended.iter().map(|view| view.state()).collect();
                assert_eq!(states, [LiveMessageState::Discarded]);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn status_steps_and_a_stop_come_without_text() {
    for ground in grounds().await {
        let on = Answering::begin(ground).await;
        let mut screen = Screen::open(on.other(), "alice", on.on).await;
        on.write(&on.servers[0], "w", 0, "The answer")
            .await
            .unwrap();
        screen.watch(START_MAX).await;
        let input = LiveWriteInput {
            status: Some(Some("thinking".to_owned())),
            ..on.input("w", 10, "")
        };
        let lives = &on.servers[0].chat.lives;
        lives.write(user("helper"), input).await.unwrap();
        let thinking = screen.next(2 * SECOND).await.unwrap();
        let change = thinking.change.unwrap();
        let status = change.step.view.message.status.as_ref();
        assert_eq!(status.map(LiveStatus::as_str), Some("thinking"));
        assert_eq!((change.text(), change.is_whole), ("", false));
        lives.stop(user("alice"), on.live).await.unwrap();
        let stopped = screen.next(2 * SECOND).await.unwrap().change.unwrap();
        assert_eq!(
            stopped.step.view.message.stop.as_ref().unwrap().by,
            user("alice")
        );
        assert_eq!((stopped.text(), stopped.is_whole), ("", false));
        // A writer that is only still at work changes nothing on the screen.
        on.write(&on.servers[0], "w", 10, "").await.unwrap();
        assert!(screen.next(5 * SECOND).await.is_none());
        assert_eq!(screen.text(), "The answer");
    }
}

#[tokio::test(start_paused = true)]
async fn a_block_ends_the_stream_of_a_direct_conversation() {
    for ground in grounds().await {
        let on = Answering::begin(ground).await;
        let mut screen = Screen::open(on.other(), "alice", on.on).await;
        let mut other = Screen::open(on.other(), "helper", on.on).await;
        answer(&on, &on.servers[0], 4).await;
        screen.watch(SECOND).await;
        let blocks = &on.other().chat.blocks;
        blocks.block(&user("alice"), "helper").await.unwrap();
        assert!(screen.next(SECOND).await.is_none() && screen.has_ended);
        let refused = screen.resume(on.other()).await;
        assert!(matches!(refused, Err(Error::Forbidden(_))));
        on.write(&on.servers[0], "w", 4 * token(0).len(), "x")
            .await
            .unwrap();
        other.watch(SECOND).await;
        assert!(!other.has_ended && other.text().ends_with('x'));
        // The unblocked writer continues where the viewer was.
        blocks.unblock(&user("alice"), "helper").await.unwrap();
        screen.resume(on.other()).await.unwrap();
        screen.watch(SECOND).await;
        assert_eq!(screen.text(), other.text());
        assert_eq!(screen.received.bytes, screen.text().len());
    }
}

#[tokio::test(start_paused = true)]
async fn live_messages_of_blocked_senders_are_left_out_of_a_group() {
    let on = Answering::begin_in_group(Ground::shared().await).await;
    let mut screen = Screen::open(on.other(), "alice", on.on).await;
    let blocks = &on.other().chat.blocks;
    on.write(&on.servers[0], "w", 0, "Seen").await.unwrap();
    screen.watch(START_MAX).await;
    blocks.block(&user("alice"), "helper").await.unwrap();
    on.write(&on.servers[0], "w", 4, ", and not seen")
        .await
        .unwrap();
    screen.watch(2 * SECOND).await;
    assert_eq!(screen.text(), "Seen");
    let mut fresh = Screen::open(on.other(), "alice", on.on).await;
    fresh.watch(SECOND).await;
    assert!(fresh.bubbles.is_empty() && !screen.has_ended);
    let mut bob = Screen::open(on.other(), "bob", on.on).await;
    bob.watch(SECOND).await;
    assert_eq!(bob.text(), "Seen, and not seen");
}

#[tokio::test(start_paused = true)]
async fn a_participant_who_is_removed_sees_nothing_more() {
    for ground in grounds().await {
        let on = Answering::begin_in_group(ground).await;
        let mut screen = Screen::open(on.other(), "bob", on.on).await;
        on.write(&on.servers[0], "w", 0, "Seen").await.unwrap();
        screen.watch(START_MAX).await;
        assert_eq!(screen.text(), "Seen");
        let alice = on.servers[0].user("alice");
        let document = "mutation($c: ID!) { removeParticipant(input: {conversationId: $c, username: \"bob\"}) { conversation { id } } }";
        alice.data(document, json!({"c": on.conversation})).await;
        // A membership that another server has read lives a second.
        quiet(2).await;
        on.write(&on.servers[0], "w", 4, ", and not seen")
            .await
            .unwrap();
        screen.watch(2 * SECOND).await;
        assert!(screen.has_ended);
        assert_eq!(screen.text(), "Seen");
        let refused = screen.resume(on.other()).await;
        assert!(matches!(refused, Err(Error::NotFound(_))));
    }
}

/// Ten viewers of a server cost the reads of one, and a silent writer costs none.
#[tokio::test(start_paused = true)]
async fn the_reads_of_a_server_do_not_grow_with_its_viewers_and_end_with_the_text() {
    let mut counts = [([0; 4], [0; 4]); 2];
    for (count, viewers) in counts.iter_mut().zip([1, 10]) {
        let on = Answering::begin(Ground::shared().await).await;
        let mut screens = Vec::new();
        for _ in 0..viewers {
            screens.push(Screen::open(on.other(), "alice", on.on).await);
        }
        let reads = || {
            let still = &on.other().still;
            let names = [
                "live_messages",
                "live_texts",
                "listed_lives",
                "earlier_sends",
            ];
            names.map(|name| still.calls(name))
        };
        let text = answer(&on, &on.servers[0], 60).await;
        quiet(1).await;
        let growing = reads();
        quiet(62).await;
        let silent = reads();
        quiet(3_600).await;
        assert_eq!(reads(), silent, "a silent writer is read");
        println!("{viewers} viewers: {growing:?} in 30 s, then {silent:?}");
        for screen in &mut screens {
            screen.watch(SOON).await;
            assert_eq!(screen.text(), text);
        }
        // Text at most four times a second and registers once, while the text grows; both once a second for another minute.
        let [registers, texts, ..] = growing;
        assert!(texts <= 31 * 4 + 4 && registers <= 36, "{growing:?}");
        assert!(silent[1] - texts <= 65, "{silent:?}");
        *count = (growing, silent);
    }
    let sums = counts.map(|(growing, silent)| [growing, silent].map(|reads| reads.iter().sum()));
    for (one, ten) in sums[0].iter().zip(&sums[1]) {
        assert!(usize::abs_diff(*one, *ten) <= 2, "{sums:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_viewer_on_the_only_server_reads_nothing_but_the_list() {
    let on = Answering::begin(Ground::of_one().await).await;
    let mut screen = Screen::open(on.other(), "alice", on.on).await;
    let still = &on.servers[0].still;
    let before = still.calls("live_texts");
    let text = answer(&on, &on.servers[0], 20).await;
    screen.watch(SOON).await;
    assert_eq!(screen.text(), text);
    quiet(600).await;
    assert_eq!(still.calls("live_texts") - before, 1, "the writer's own");
    assert_eq!(
        still.calls("listed_lives"),
        2,
        "of the viewer, and of the start"
    );
}

/// A large conversation has one step a second, the same for all of its viewers.
#[tokio::test(start_paused = true)]
async fn viewers_of_a_large_conversation_take_one_step_a_second_together() {
    let on = Answering::begin_in_large_group(Ground::of_one().await).await;
    let server = &on.servers[0];
    let mut alice = Screen::open(server, "alice", on.on).await;
    let mut bob = Screen::open(server, "bob", on.on).await;
    let mut text = String::new();
    let began = Instant::now();
    let mut cursors = [Vec::new(), Vec::new()];
    for number in 0..40 {
        on.write(server, "w", text.len(), &token(number))
            .await
            .unwrap();
        text.push_str(&token(number));
        for (screen, cursors) in [&mut alice, &mut bob].into_iter().zip(&mut cursors) {
            while let Some(update) = screen.next(SOON).await {
                cursors.push(update.cursor);
            }
        }
    }
    let seconds = began.elapsed().as_secs();
    assert!((9..=11).contains(&seconds), "{seconds}");
    let steps = cursors[0].len() as u64;
    assert!((seconds..=seconds + 2).contains(&steps), "{steps}");
    assert_eq!(cursors[0], cursors[1]);
    alice.watch(SECOND).await;
    assert_eq!(alice.text(), text);
    assert_eq!(alice.received.bytes, text.len());
    on.send(server, "The answer").await.unwrap();
    alice.watch(SOON).await;
    assert!(alice.bubbles.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_viewer_who_comes_back_learns_how_a_live_message_ended() {
    for ground in grounds().await {
        let on = Answering::begin(ground).await;
        let mut screen = Screen::open(on.other(), "alice", on.on).await;
        answer(&on, &on.servers[0], 4).await;
        screen.watch(SECOND).await;
        screen.cut();
        on.send(&on.servers[0], "The answer").await.unwrap();
        quiet(200).await;
        screen.resume(on.other()).await.unwrap();
        screen.watch(SOON).await;
        assert!(screen.bubbles.is_empty() && screen.ended.len() == 1);
        // The texts of yesterday are gone.
        let cursor = screen.cursor.as_mut().unwrap();
        cursor.at = cursor.at.plus_micros(-LiveCursor::LIFETIME_MICROS);
        let expired = screen.resume(on.other()).await;
        assert!(matches!(expired, Err(Error::CursorExpired)));
        screen.cursor = None;
        screen.resume(on.other()).await.unwrap();
    }
}

/// A stream that stays open repeats its position, so its cursor does not expire while nothing is written.
#[tokio::test(start_paused = true)]
async fn a_stream_that_was_quiet_for_a_day_resumes() {
    let on = Answering::begin(Ground::of_one().await).await;
    on.write(&on.servers[0], "old", 0, "Of yesterday")
        .await
        .unwrap();
    let mut screen = Screen::open(&on.servers[0], "alice", on.on).await;
    screen.watch(SECOND).await;
    assert_eq!(screen.text(), "Of yesterday");
    for _ in 0..25 {
        let before = screen.cursor.clone().unwrap();
        screen.watch(3_600 * SECOND).await;
        let after = screen.cursor.as_ref().unwrap();
        assert!(after.at > before.at && after.lives == before.lives);
    }
    let received = screen.received;
    assert_eq!(
        (received.updates, received.bytes),
        (1, "Of yesterday".len())
    );
    screen.cut();
    quiet(82_000).await;
    screen.bubbles.clear();
    screen.resume(&on.servers[0]).await.unwrap();
    let input = LiveWriteInput {
        key: "answer 2".to_owned(),
        ..on.input("w", 0, "Of today")
    };
    let lives = &on.servers[0].chat.lives;
    lives.write(user("helper"), input).await.unwrap();
    screen.watch(SECOND).await;
    assert_eq!(screen.text(), "Of today");
}

/// A write without an answer may be stored. Then viewers get it, whether or not the writer comes back.
#[tokio::test(start_paused = true)]
async fn viewers_get_a_text_whose_writer_had_no_answer() {
    for ground in grounds().await {
        let on = Answering::begin(ground).await;
        let mut screen = Screen::open(&on.servers[0], "alice", on.on).await;
        on.write(&on.servers[0], "w", 0, "The ").await.unwrap();
        on.servers[0].still.lose_next_answer("write_live");
        let outcome = on.write(&on.servers[0], "w", 4, "answer").await;
        assert!(outcome.is_err());
        screen.watch(2 * SECOND).await;
        assert_eq!(screen.text(), "The answer");
    }
}
