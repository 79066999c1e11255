//! Tests of the sweep: what it deletes, and what it leaves.

use super::*;
use crate::clock::{Clock as _, ManualClock};
use crate::model::{
    Ban, Change, ChangeKind, Content, Conversation, ConversationId, ConversationKind, Emoji,
    Mentions, Message, MessageKind, OrderKey, OutboxEvent, PageRequest, ReadMarker, Report,
    ReportReason, Role, TimeUuid, Timestamp, UserId,
};
use crate::store::embedded::{Embedded, Options};
use crate::store::{MarkerMove, NewConversation, NewMessage, Store};

const DAY_MICROS: i64 = 24 * 3_600 * 1_000_000;

/// A direct conversation of two users.
fn conversation_of(one: &UserId, other: &UserId, change: TimeUuid) -> NewConversation {
    NewConversation {
        conversation: Conversation {
            id: ConversationId::direct(one, other),
            kind: ConversationKind::Direct,
            name: None,
            created_at: change.moment(),
            created_by: None,
            input_hash: None,
            slow_mode_seconds: 0,
            history: Default::default(),
            is_large: false,
        },
        participants: vec![(one.clone(), Role::Member), (other.clone(), Role::Member)],
        change,
        profile: Default::default(),
    }
}

fn message(conversation: ConversationId, sender: &UserId, id: TimeUuid) -> Message {
    Message::new(
        conversation,
        id,
        sender.clone(),
        MessageKind::Text,
        Content::default(),
    )
}

async fn append(store: &Embedded, message: &Message) {
    let new = NewMessage {
        message: Arc::new(message.clone()),
        input_hash: None,
        is_by_service: false,
    };
    store
        .append_messages(message.conversation, &[new])
        .await
        .unwrap();
}

/// An empty store, with a clock that the test moves.
async fn open() -> (tempfile::TempDir, Arc<ManualClock>, Embedded) {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(Timestamp::from_micros(
        1_767_225_600_000_000,
    )));
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    };
    let store = Embedded::open(options, clock.clone()).await.unwrap();
    (folder, clock, store)
}

fn rows(context: &ReadContext, span: key::Span) -> usize {
    context.view().scan(span, Direction::Forward).count()
}

#[tokio::test]
async fn what_has_expired_is_swept_and_nothing_else() {
    let (_folder, clock, store) = open().await;
    let start = clock.now();
    let user = UserId::parse("ann").unwrap();
    let conversation = ConversationId::random();
    for day in [0, 10] {
        let change = TimeUuid::new(start.plus_micros(day * DAY_MICROS), [0; 8]);
        let to = MarkerMove {
            conversation,
            marker: ReadMarker::default(),
            read_up_to: None,
            is_by_service: false,
            change,
        };
        store.move_read_marker(&user, &to).await.unwrap();
    }
    let context = store.inner.context.clone();
    let changes = || rows(&context, key::changes_of_user_after(&user, OrderKey::MIN));
    let all = || rows(&context, key::expired(Timestamp::MAX));
    let mut sweep = Sweep::default();
    for (day, left) in [(34, 2), (36, 1), (36, 1), (50, 0)] {
        clock.set(start.plus_micros(day * DAY_MICROS));
        sweep.run(&store.inner).await.unwrap();
        assert_eq!((changes(), all()), (left, left), "on day {day}");
    }
    store.close().await.unwrap();
}

/// A dead letter lives 30 days from its last death, a report and a mention 400 days.
#[tokio::test]
async fn dead_letters_reports_and_mentions_are_swept_when_their_time_is_over() {
    let (_folder, clock, store) = open().await;
    let start = clock.now();
    let day = |day: i64| start.plus_micros(day * DAY_MICROS);
    let user = UserId::parse("ann").unwrap();
    for died_at in [day(0), day(10)] {
        let letter = DeadLetter {
            conversation: ConversationId::random(),
            event: OutboxEvent::message_added(TimeUuid::new(start, [0; 8])),
            part: String::new(),
            died_at,
            tries: 3,
            reason: "it answers 404".to_owned(),
        };
        store.put_dead_letter("crm", &letter).await.unwrap();
    }
    let report = Report {
        id: TimeUuid::new(start, [1; 8]),
        reporter: user.clone(),
        user: user.clone(),
        reason: ReportReason::Spam,
        note: None,
        conversation: None,
        message: None,
        body: None,
        attachments: Vec::new(),
        resolution: None,
    };
    store.add_report(&report, report.id).await.unwrap();
    let mention = key::mention(
        &user,
        ConversationId::random(),
        TimeUuid::new(start, [2; 8]).order_key(),
    );
    let ops = vec![
        Op::Put(key::expiry(&mention, day(400)), Vec::new()),
        Op::Put(mention, record::encode(&user)),
    ];
    store
        .write(Write {
            ops,
            ..Write::default()
        })
        .await
        .unwrap();
    let context = store.inner.context.clone();
    let mut sweep = Sweep::default();
    for (at, left) in [
        (29, (1, 1, 1)),
        (31, (1, 1, 1)),
        (41, (0, 1, 1)),
        (399, (0, 1, 1)),
        (402, (0, 0, 0)),
    ] {
        clock.set(day(at));
        sweep.run(&store.inner).await.unwrap();
        let found = (
            rows(&context, key::dead_letters("crm")),
            rows(&context, key::all_reports()),
            rows(&context, key::all_mentions()),
        );
        assert_eq!(found, left, "on day {at}");
    }
    assert_eq!(rows(&context, key::expired(Timestamp::MAX)), 0);
    store.close().await.unwrap();
}

/// Toggling begins the 35 days anew, and leaves one row behind.
#[tokio::test]
async fn an_ended_reaction_is_kept_for_35_days_and_one_that_is_on_stays() {
    let (_folder, clock, store) = open().await;
    let start = clock.now();
    let [ann, ben] = ["ann", "ben"].map(|name| UserId::parse(name).unwrap());
    let id = |micros| TimeUuid::new(start.plus_micros(micros), [0; 8]);
    let new = conversation_of(&ann, &ben, id(0));
    store.create_conversation(&new).await.unwrap();
    let message = message(new.conversation.id, &ann, id(1));
    append(&store, &message).await;
    let react = async |day: i64, user: &UserId, emoji: &str, is_on: bool| {
        let change = Change {
            id: id(day * DAY_MICROS + 2),
            kind: ChangeKind::ReactionsChanged,
            message: message.id,
            user: user.clone(),
        };
        let emoji = Emoji::parse(emoji).unwrap();
        let reacted = store.react(message.conversation, &emoji, is_on, &change);
        reacted.await.unwrap().unwrap();
    };
    for (day, is_on) in [(0, true), (1, false), (2, true), (10, false)] {
        react(day, &ann, "👍", is_on).await;
    }
    react(11, &ben, "👍", false).await;
    react(12, &ben, "👍", true).await;
    let context = store.inner.context.clone();
    let mut sweep = Sweep::default();
    for (day, left) in [(12, 1), (44, 1), (46, 0), (90, 0)] {
        clock.set(start.plus_micros(day * DAY_MICROS));
        sweep.run(&store.inner).await.unwrap();
        let ended = key::ended_reactions_of(message.conversation, message.id, &ann);
        let on = key::reactions(message.conversation, message.id);
        let found = (rows(&context, on), rows(&context, ended));
        assert_eq!(found, (1, left), "on day {day}");
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn the_mentions_of_a_message_expire_together() {
    let (_folder, clock, store) = open().await;
    let start = clock.now();
    let users = ["ann", "ben", "cem"].map(|name| UserId::parse(name).unwrap());
    let id = |micros| TimeUuid::new(start.plus_micros(micros), [0; 8]);
    let new = conversation_of(&users[0], &users[1], id(0));
    store.create_conversation(&new).await.unwrap();
    let mut message = message(new.conversation.id, &users[0], id(1));
    message.content = Some(Content {
        mentions: Mentions::new(users[1..].to_vec(), true),
        ..Content::default()
    });
    append(&store, &message).await;
    let context = store.inner.context.clone();
    let mut sweep = Sweep::default();
    for (day, left) in [(1, (2, 1)), (399, (2, 1)), (402, (0, 0))] {
        clock.set(start.plus_micros(day * DAY_MICROS));
        sweep.run(&store.inner).await.unwrap();
        let named = rows(&context, key::all_mentions());
        let everyone = rows(&context, key::all_everyones());
        assert_eq!((named, everyone), left, "on day {day}");
    }
    store.close().await.unwrap();
}

/// Rows of the conversation in ann's inbox: in the activity index, and in the busy list.
fn found(context: &ReadContext, ann: &UserId) -> (usize, usize) {
    (
        rows(context, key::activities(ann)),
        rows(context, key::busy(ann)),
    )
}

#[tokio::test]
async fn a_conversation_is_busy_from_one_send_to_a_quiet_while_later() {
    const HOUR: i64 = 3_600 * 1_000_000;
    let (_folder, clock, store) = open().await;
    let start = clock.now();
    let (ann, ben) = (UserId::parse("ann").unwrap(), UserId::parse("ben").unwrap());
    let id = |micros| TimeUuid::new(start.plus_micros(micros), [0; 8]);
    let new = conversation_of(&ann, &ben, id(0));
    store.create_conversation(&new).await.unwrap();
    let conversation = new.conversation.id;
    let context = store.inner.context.clone();
    let mut sweep = Sweep::default();
    // Each step: hours until a send, rows then, and rows after the sweep of that time.
    let steps = [
        (Some(0), (0, 1), (0, 1)),
        (Some(1), (0, 1), (0, 1)),
        (None, (0, 1), (0, 1)),
        (None, (0, 1), (1, 0)),
        (None, (1, 0), (1, 0)),
        (Some(5), (1, 0), (1, 0)),
        (Some(6), (1, 0), (1, 0)),
    ];
    for (hour, (sent, before, after)) in (0_i64..).zip(steps) {
        clock.set(start.plus_micros(hour * HOUR + HOUR / 2));
        if sent.is_some() {
            append(&store, &message(conversation, &ann, id(hour * HOUR + 1))).await;
        }
        assert_eq!(found(&context, &ann), before, "in hour {hour}");
        sweep.run(&store.inner).await.unwrap();
        assert_eq!(
            found(&context, &ann),
            after,
            "after the sweep of hour {hour}"
        );
        let page = store.inbox(&ben, &PageRequest::first(9)).await.unwrap();
        assert_eq!(page.items.len(), 1, "it is listed once, whatever it is");
    }
    store.close().await.unwrap();
}

/// Bans that have ended leave the list with the next sweep, also those of an earlier version.
#[tokio::test]
async fn bans_that_have_ended_are_swept_and_no_list_reads_them() {
    let (_folder, clock, store) = open().await;
    let (id, ann) = (ConversationId::random(), UserId::parse("ann").unwrap());
    let ban = |name: String, hours: Option<i64>| Ban {
        user: UserId::parse(&name).unwrap(),
        by: ann.clone(),
        at: clock.now(),
        until: hours.map(|hours| clock.now().plus_micros(hours * DAY_MICROS / 24)),
        reason: None,
    };
    let ended = (0..10_000).map(|number| ban(format!("made-up-{number}"), Some(1)));
    let bans: Vec<_> = ended
        .chain([ban("ben".to_owned(), None), ban("zoe".to_owned(), Some(3))])
        .collect();
    let put = |ban: &Ban| Op::Put(key::ban(id, &ban.user), rules::ban::encode(ban));
    let write = Write {
        ops: bans.iter().map(put).collect(),
        ..Write::default()
    };
    store.inner.committer.commit(write).await.unwrap();
    clock.set(clock.now().plus_micros(DAY_MICROS / 12));
    let page = async || {
        let before = store.rows_scanned();
        let page = store.bans(id, &PageRequest::first(10)).await.unwrap();
        assert_eq!(page.items.len(), 2);
        assert_eq!(store.ban_count(id, 10_000).await.unwrap(), 2);
        store.rows_scanned() - before
    };
    let before = page().await;
    Sweep::default().run(&store.inner).await.unwrap();
    let after = page().await;
    assert!(before > 10_000 && after <= 4, "{before}, then {after}");
    store.close().await.unwrap();
}
