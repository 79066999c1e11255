//! Removal of history from the disk: what goes, what stays, and the list of what is due.

use wideroom::model::{
    ChangeKind, Content, ConversationId, Emoji, HistorySettings, IgnoredSenders, Mentions, Message,
    OrderKey, OutboxEvent, OutboxShard, Timestamp, UserId,
};
use wideroom::store::{
    DueQuery, DueRemoval, HistoryRemoval, ImportRow, RemovedHistory, Store, StoreAdmin,
    UnreadQuery, hour_of, removal_hour, widest_micros,
};

use super::ask::{
    append, assert_sound, changes, history, make, message, message_count, only, row, send,
};
use crate::support::words::{
    START, change, change_of, content, conversation_id, group_row, id, new, participant_row, text,
    user, users,
};

const DAY: i64 = 24 * 3_600 * 1_000_000;
/// Times of messages, in buckets of their own and two in each.
const SENT: [i64; 8] = [
    -20 * DAY,
    -20 * DAY + 10,
    -9 * DAY,
    -9 * DAY + 10,
    -5 * DAY,
    -5 * DAY + 10,
    -DAY,
    -DAY + 10,
];

fn exact(micros: i64) -> HistoryRemoval {
    HistoryRemoval {
        up_to: id(micros).order_key(),
        ttl_seconds: None,
        limit: 1_000,
    }
}

const fn done(messages: u64) -> RemovedHistory {
    RemovedHistory {
        messages,
        is_done: true,
    }
}

/// A group whose messages have all that a message can have.
async fn filled(store: &dyn Store, on: ConversationId, people: &[UserId]) {
    let [ann, ben] = people else {
        panic!("two people")
    };
    make(store, on, people).await;
    for micros in SENT {
        let message = Message {
            content: Some(Content {
                mentions: Mentions::new(vec![ben.clone()], true),
                ..content("hello")
            }),
            ..text(on, id(micros), ann)
        };
        append(store, on, &[new(message)]).await;
    }
    let emoji = Emoji::parse("👍").unwrap();
    for (number, micros) in (1..).zip(SENT) {
        let changed = |at, kind| change_of(change(at), kind, id(micros), ben);
        let reacted = changed(number * 10, ChangeKind::ReactionsChanged);
        store.react(on, &emoji, true, &reacted).await.unwrap();
        let pinned = changed(number * 10 + 1, ChangeKind::PinsChanged);
        store.pin_message(on, true, &pinned).await.unwrap();
    }
}

/// Messages of a conversation that has those after a position, with all that belongs to them, and nothing else.
async fn assert_left(store: &dyn StoreAdmin, on: ConversationId, people: &[UserId], after: i64) {
    let left: Vec<_> = SENT.into_iter().filter(|micros| *micros > after).collect();
    let ids: Vec<_> = left.iter().rev().map(|micros| id(*micros)).collect();
    let count = left.len() as u64;
    assert_eq!(history(store, on).await, ids);
    assert_eq!(message_count(store, on).await, count);
    for micros in SENT {
        let position = id(micros).order_key();
        let expected = left.iter().filter(|left| **left > micros).count() as u64;
        let counts = store.message_counts_after(&[(on, position)]).await.unwrap();
        assert_eq!(counts, [expected], "after {micros}");
        let is_left = micros > after;
        let found = message(store, on, id(micros)).await;
        assert_eq!(found.is_some(), is_left, "{micros}");
        let reactions = store.reactions(&people[0], &[(on, id(micros))]).await;
        assert_eq!(only(reactions.unwrap()).len(), usize::from(is_left));
        let all = store.all_reactions(on, id(micros), None, 9).await.unwrap();
        assert_eq!(all.len(), usize::from(is_left), "{micros}");
    }
    let pins = store.pins(on).await.unwrap();
    let mut pinned: Vec<_> = pins.into_iter().map(|(message, _)| message).collect();
    pinned.sort_unstable_by(|one, other| other.cmp(one));
    assert_eq!(pinned, ids);
    let all = UnreadQuery {
        conversation: on,
        after: OrderKey::MIN,
        up_to: None,
    };
    let ignored = IgnoredSenders::default();
    let mentions = store.mentions(&people[1], &[all], 99, &ignored).await;
    assert_eq!(u64::from(only(mentions.unwrap()).count), count);
    let unread = store.unread(&people[1], &[all], 99, &ignored).await;
    assert_eq!(u64::from(only(unread.unwrap()).count), count);
    let oldest = store.oldest_bucket(on).await.unwrap();
    assert!(oldest.is_some() || count == 0);
    // The place in inboxes does not follow from what is left.
    let listed = row(store, &people[1], on).await;
    assert_eq!(listed.last_message, Some(id(*SENT.last().unwrap())));
    assert_sound(store).await;
}

pub async fn removed_messages_are_gone_with_all_that_belongs_to_them(store: &dyn StoreAdmin) {
    let people = users(["ann", "ben"]);
    let [on, other] = [conversation_id(1), conversation_id(2)];
    filled(store, on, &people).await;
    filled(store, other, &people).await;
    assert_left(store, on, &people, -30 * DAY).await;
    // The last one is cut out of its bucket.
    for (up_to, messages) in [(SENT[2], 3), (SENT[2], 0), (SENT[3], 1), (SENT[4], 1)] {
        let removed = store.remove_history(on, &exact(up_to)).await.unwrap();
        assert_eq!(removed, done(messages), "up to {up_to}");
        assert_left(store, on, &people, up_to).await;
    }
    assert_left(store, other, &people, -30 * DAY).await;
    let removed = store.remove_history(on, &exact(-DAY + 99)).await.unwrap();
    assert_eq!(removed, done(3));
    assert_left(store, on, &people, -DAY + 99).await;
    assert_left(store, other, &people, -30 * DAY).await;
    // A conversation whose history is gone goes on.
    send(store, on, 500, &people[0]).await;
    assert_eq!(history(store, on).await, [id(500)]);
    assert_eq!(message_count(store, on).await, 1);
    assert_sound(store).await;
}

pub async fn a_removal_goes_on_in_steps_from_the_oldest_on(store: &dyn StoreAdmin) {
    let people = users(["ann", "ben"]);
    let on = conversation_id(1);
    filled(store, on, &people).await;
    let step = HistoryRemoval {
        limit: 1,
        ..exact(SENT[5])
    };
    let (mut messages, mut steps) = (0, 0);
    loop {
        let left = history(store, on).await;
        let removed = store.remove_history(on, &step).await.unwrap();
        messages += removed.messages;
        steps += 1;
        let after = history(store, on).await;
        assert_eq!(after, left[..after.len()], "the oldest go first");
        if removed.is_done {
            break;
        }
        assert_sound(store).await;
    }
    assert_eq!(messages, 6);
    assert!(steps <= 8, "{steps} steps");
    assert_left(store, on, &people, SENT[5]).await;
}

pub async fn a_late_write_brings_nothing_back(store: &dyn StoreAdmin) {
    let people = users(["ann", "ben"]);
    let on = conversation_id(1);
    filled(store, on, &people).await;
    store.remove_history(on, &exact(SENT[3])).await.unwrap();
    assert_left(store, on, &people, SENT[3]).await;
    // A retry of a write of unknown outcome, and changes of removed messages.
    let late = |micros: i64| new(text(on, id(micros), &people[0]));
    for micros in [SENT[0], SENT[3]] {
        append(store, on, &[late(micros)]).await;
        let emoji = Emoji::parse("👍").unwrap();
        let reacted = change_of(
            change(700),
            ChangeKind::ReactionsChanged,
            id(micros),
            &people[1],
        );
        store.react(on, &emoji, true, &reacted).await.unwrap();
    }
    store.remove_history(on, &exact(SENT[3])).await.unwrap();
    let left: Vec<_> = SENT[4..].iter().rev().map(|micros| id(*micros)).collect();
    assert_eq!(history(store, on).await, left);
    assert_eq!(message_count(store, on).await, 4);
    assert_sound(store).await;
}

/// A group with an expiry, as an import brings it.
async fn expiring(store: &dyn StoreAdmin, on: ConversationId, ttl_seconds: u32) {
    let mut row = group_row(on, None);
    if let ImportRow::Conversation { conversation, .. } = &mut row {
        conversation.history = HistorySettings {
            ttl_seconds: Some(ttl_seconds),
            ..HistorySettings::default()
        };
    }
    let rows = [row, participant_row(on, &user("ann"))];
    store.import(&rows).await.unwrap();
}

pub async fn only_whole_buckets_go_where_they_are_narrow(store: &dyn StoreAdmin) {
    const TTL: u32 = 86_400;
    let on = conversation_id(1);
    expiring(store, on, TTL).await;
    let width = widest_micros(TTL);
    let mut expected = Vec::new();
    for hour in 0..6 {
        for minute in [1, 30, 59] {
            let micros = -3 * DAY + hour * width + minute * 60_000_000;
            expected.push(send(store, on, micros, &user("ann")).await);
        }
    }
    let oldest = store.oldest_bucket(on).await.unwrap().unwrap();
    let micros = oldest.last.moment().micros() - oldest.first.moment().micros();
    assert!(micros <= width, "{micros} is too wide");
    assert!(oldest.first <= expected[0].order_key() && expected[0].order_key() <= oldest.last);
    for hour in 1..=6_i64 {
        let end = START.plus_micros(-3 * DAY + hour * width);
        let removal = HistoryRemoval {
            up_to: OrderKey::first_at(end).before(),
            ttl_seconds: Some(TTL),
            limit: 1_000,
        };
        let removed = store.remove_history(on, &removal).await.unwrap();
        assert_eq!(removed, done(3));
        let mut left = expected[3 * hour as usize..].to_vec();
        left.reverse();
        assert_eq!(history(store, on).await, left);
    }
    assert_sound(store).await;
}

/// The entries of a conversation in the list, in these hours.
async fn due_in(store: &dyn Store, on: ConversationId, from: u32, up_to: u32) -> Vec<u32> {
    let mut query = DueQuery {
        shard: OutboxShard::of(on),
        from,
        up_to,
        after: None,
        limit: 2,
    };
    let mut hours = Vec::new();
    loop {
        let page = store.due_removals(&query).await.unwrap();
        let own = page.iter().filter(|due| due.conversation == on);
        hours.extend(own.map(|due| due.hour));
        if page.len() < query.limit {
            return hours;
        }
        query.after = page.last().copied();
    }
}

pub async fn due_removals_are_listed_by_hour(store: &dyn StoreAdmin) {
    let hour = hour_of(START);
    let ids: Vec<_> = (1..=9).map(conversation_id).collect();
    for (index, on) in (0..).zip(&ids) {
        for hour in [hour + index, hour + 40, hour + 40] {
            let conversation = *on;
            let due = DueRemoval { hour, conversation };
            store.schedule_removal(due).await.unwrap();
        }
    }
    for (index, on) in (0..).zip(&ids) {
        let listed = due_in(store, *on, hour, hour + 40).await;
        assert_eq!(listed, [hour + index, hour + 40]);
        let listed = due_in(store, *on, hour, hour + 39).await;
        assert_eq!(listed, [hour + index]);
        let due = DueRemoval {
            hour: hour + index,
            conversation: *on,
        };
        store.end_removal(due).await.unwrap();
        assert_eq!(due_in(store, *on, hour - 24, hour + 39).await, [0; 0]);
        assert_eq!(due_in(store, *on, hour + 40, hour + 40).await, [hour + 40]);
    }
}

pub async fn a_message_that_opens_a_bucket_lists_its_conversation(store: &dyn StoreAdmin) {
    const TTL: u32 = 86_400;
    let [on, other] = [conversation_id(1), conversation_id(2)];
    expiring(store, on, TTL).await;
    make(store, other, &users(["ann"])).await;
    let from = hour_of(START) - 24;
    for micros in [-DAY / 2, -DAY / 2 + 1, 10, 20] {
        send(store, on, micros, &user("ann")).await;
        send(store, other, micros, &user("ann")).await;
    }
    let due = |micros: i64| {
        let width = widest_micros(TTL);
        let start = START.plus_micros(micros).micros() / width * width;
        removal_hour(Timestamp::from_micros(start + width), TTL)
    };
    let expected = [due(-DAY / 2), due(10)];
    assert_eq!(due_in(store, on, from, from + 100).await, expected);
    assert_eq!(due_in(store, other, from, from + 100).await, [0; 0]);
    // An expiry of the deployment counts for all.
    store.set_retention(Some(TTL));
    let third = conversation_id(3);
    make(store, third, &users(["ann"])).await;
    send(store, third, 10, &user("ann")).await;
    store.set_retention(None);
    assert_eq!(due_in(store, third, from, from + 100).await, [due(10)]);
    let noted = Some(4_711);
    store.note_scheduled_retention(noted).await.unwrap();
    assert_eq!(store.scheduled_retention().await.unwrap(), noted);
    store.note_scheduled_retention(None).await.unwrap();
    assert_eq!(store.scheduled_retention().await.unwrap(), None);
    let mut after = None;
    let mut found = Vec::new();
    loop {
        let page = store.all_conversations(after, 200).await.unwrap();
        found.extend(page.iter().map(|(one, _)| (one.id, one.history)));
        if page.len() < 200 {
            break;
        }
        after = page.last().map(|(one, _)| one.id);
    }
    let of = |id| found.iter().find(|(one, _)| *one == id).unwrap().1;
    assert_eq!(of(on).ttl_seconds, Some(TTL));
    assert_eq!(of(other), HistorySettings::default());
}

pub async fn an_expiry_is_an_event_of_the_outbox(store: &dyn StoreAdmin) {
    let on = conversation_id(1);
    store.set_outbox(Some(START)).await.unwrap();
    store.outbox_since().await.unwrap();
    make(store, on, &users(["ann"])).await;
    let logged = changes(store, on).await;
    store.log_expiry(on, change(30)).await.unwrap();
    store.log_expiry(on, change(30)).await.unwrap();
    let events = super::outbox::events_of(store, on).await;
    assert_eq!(
        events,
        [
            OutboxEvent::conversation_created(change(0)),
            OutboxEvent::history_expired(change(30))
        ]
    );
    // No stream of the conversation repeats it.
    assert_eq!(changes(store, on).await, logged);
}
