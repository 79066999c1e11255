//! Sends: what one of them changes all at once, who is told, and how a retry is recognised.

use wideroom::model::{
    Attachment, Body, Content, Conversation, ConversationId, Cut, IdempotencyKey, InputHash,
    Mentions, Message, Metadata, OrderKey, PageRequest, Timestamp, UserId,
};
use wideroom::store::{EarlierSend, Error, NewMessage, Store};

use super::Stage;
use super::ask::{
    append, assert_healthy, history, inbox, inbox_ids, make, message, message_count, only, row,
    send, send_as, unread,
};
use crate::support::words::{
    HOUR, NOW, START, content, conversation_id, crowd, id, key, new, text, user, users,
};

pub async fn a_send_raises_the_conversation_for_everyone(store: &dyn Store) {
    let people = users(["ann", "ben", "cat"]);
    for number in 1..=3 {
        make(store, conversation_id(number), &people).await;
    }
    for (micros, number, order) in [
        (10, 1, [1, 3, 2]),
        (20, 2, [2, 1, 3]),
        (30, 2, [2, 1, 3]),
        (40, 1, [1, 2, 3]),
    ] {
        send(
            store,
            conversation_id(number),
            micros,
            &people[usize::from(number)],
        )
        .await;
        for user in &people {
            let inbox = inbox(store, user).await;
            assert_eq!(
                inbox.iter().map(|row| row.conversation).collect::<Vec<_>>(),
                order.map(conversation_id),
                "{user} at {micros}"
            );
            assert_eq!(inbox[0].last_message, Some(id(micros)));
            assert_eq!(inbox[0].last_activity, START.plus_micros(micros));
            assert_eq!(row(store, user, conversation_id(number)).await, inbox[0]);
        }
    }
}

pub async fn the_audience_is_who_is_in_it_now(store: &dyn Store) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    make(
        store,
        conversation_id(1),
        &[cat.clone(), ann.clone(), ben.clone()],
    )
    .await;
    make(store, conversation_id(2), std::slice::from_ref(&ben)).await;
    let sorted = |users: Option<std::sync::Arc<[UserId]>>| {
        let mut users = users.expect("it is not large").to_vec();
        users.sort();
        users
    };
    assert_eq!(
        sorted(send_as(store, conversation_id(1), id(1), &ann).await.users),
        [ann, ben.clone(), cat]
    );
    assert_eq!(
        sorted(send_as(store, conversation_id(2), id(1), &ben).await.users),
        [ben]
    );
    let people = crowd(33);
    make(store, conversation_id(3), &people).await;
    assert!(
        send_as(store, conversation_id(3), id(1), &people[0])
            .await
            .users
            .is_none()
    );
}

pub async fn sending_reads_ones_own(store: &dyn Store) {
    let people = crowd(33);
    for (number, people) in [(1, &people[..2]), (2, &people[..])] {
        make(store, conversation_id(number), people).await;
        let (sender, other) = (&people[0], &people[1]);
        send(store, conversation_id(number), 1, other).await;
        send(store, conversation_id(number), 2, sender).await;
        let of_sender = row(store, sender, conversation_id(number)).await;
        assert_eq!(of_sender.sent_up_to, Some(id(2)));
        assert_eq!(of_sender.read_up_to(), id(2).order_key());
        assert!(!of_sender.may_be_unread());
        let of_other = row(store, other, conversation_id(number)).await;
        assert_eq!(of_other.sent_up_to, Some(id(1)));
        assert!(of_other.may_be_unread());
        assert_eq!(
            unread(
                store,
                other,
                conversation_id(number),
                of_other.read_up_to(),
                9
            )
            .await
            .first,
            Some(id(2))
        );
        send(store, conversation_id(number), 3, other).await;
        assert_eq!(
            row(store, sender, conversation_id(number)).await.sent_up_to,
            Some(id(2)),
            "another's send is not one's own"
        );
    }
}

pub async fn a_batch_is_kept_whole(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    let sender = |micros: i64| if micros % 3 == 0 { &ben } else { &ann };
    let batch: Vec<_> = (1..=64)
        .map(|micros| new(text(group, id(micros), sender(micros))))
        .collect();
    append(store, group, &batch).await;
    assert_eq!(
        history(store, group).await,
        (1..=64).rev().map(id).collect::<Vec<_>>()
    );
    for (user, sent) in [(&ann, 64), (&ben, 63)] {
        let row = row(store, user, group).await;
        assert_eq!(
            (row.last_message, row.sent_up_to),
            (Some(id(64)), Some(id(sent)))
        );
        assert_eq!(
            inbox(store, user).await,
            [row],
            "one entry, for the newest message"
        );
    }
    assert_eq!(message_count(store, group).await, 64);
}

/// A message of which each part is as long as the model allows, to the most participants whose entries a send writes.
pub async fn the_largest_message_fits_into_one_write(store: &dyn Store) {
    let salt = user("x").as_str().len() - 1;
    let longest = |number: usize| user(&format!("{number:00$}", UserId::BYTES_MAX - salt));
    let people: Vec<_> = (0..Conversation::FAN_OUT_MAX).map(longest).collect();
    let group = conversation_id(1);
    make(store, group, &people).await;
    let url = "u".repeat(Attachment::BYTES_MAX / 4 - "image/png".len() - 32);
    let attachment = Attachment {
        url,
        mime_type: "image/png".to_owned(),
        name: None,
        size_bytes: None,
        width: None,
        height: None,
        duration_ms: None,
        thumbnail_url: None,
    };
    let mentioned = people[..Mentions::BYTES_MAX / UserId::BYTES_MAX].to_vec();
    let filler = "m".repeat(Metadata::BYTES_MAX - r#"{"k":""}"#.len());
    let metadata = Metadata::new(&serde_json::json!({ "k": filler }), Metadata::BYTES_MAX);
    let largest = Content {
        body: Body::parse("ж".repeat(Body::BYTES_MAX / 2), Body::BYTES_MAX, false).unwrap(),
        attachments: vec![attachment; 4],
        metadata: Some(metadata.unwrap()),
        edited_at: Some(NOW),
        mentions: Mentions::new(mentioned, true),
        ..Content::default()
    };
    // The second one is in another hour, so that it moves the entries of all.
    for micros in [1, HOUR + 1] {
        let sent = Message {
            reply_to: Some(id(1)),
            client_key: Some(key(&format!("{micros:00$}", IdempotencyKey::BYTES_MAX))),
            content: Some(largest.clone()),
            ..text(group, id(micros), &people[0])
        };
        append(store, group, &[new(sent.clone())]).await;
        let read = message(store, group, sent.id).await;
        assert_eq!(read.as_deref(), Some(&sent));
        assert_eq!(
            inbox(store, &people[31]).await[0].last_message,
            Some(sent.id)
        );
    }
}

pub async fn an_append_to_nowhere_is_refused(store: &dyn Store) {
    let ann = user("ann");
    let [first, second] = [1, 2].map(conversation_id);
    make(store, first, std::slice::from_ref(&ann)).await;
    let refused = store
        .append_messages(second, &[new(text(second, id(1), &ann))])
        .await;
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert_eq!(message(store, second, id(1)).await, None);
    assert_eq!(message_count(store, second).await, 0);
    assert_eq!(inbox_ids(store, &ann).await, [first]);
    assert_healthy(store);
    send(store, first, 2, &ann).await;
}

fn with_key(message: Message, text: &str) -> NewMessage {
    new(Message {
        client_key: Some(key(text)),
        ..message
    })
}

fn earlier(message: &NewMessage) -> Option<EarlierSend> {
    Some(EarlierSend {
        message: message.message.id,
        input_hash: message.input_hash.unwrap(),
        is_delivered: false,
    })
}

async fn find(
    store: &dyn Store,
    conversation: ConversationId,
    user: &UserId,
    text: &str,
) -> Option<EarlierSend> {
    only(
        store
            .earlier_sends(conversation, &[(user.clone(), key(text))])
            .await
            .unwrap(),
    )
}

pub async fn an_earlier_send_is_found_by_its_key(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let longest = "k".repeat(IdempotencyKey::BYTES_MAX);
    for number in [1, 2] {
        make(store, conversation_id(number), &[ann.clone(), ben.clone()]).await;
    }
    let [one, other] = [1, 2].map(conversation_id);
    let first = with_key(text(one, id(1), &ann), "key");
    let second = with_key(text(one, id(2), &ann), "key2");
    let third = with_key(text(one, id(3), &ben), &longest);
    append(store, one, &[first.clone(), second.clone(), third.clone()]).await;
    let elsewhere = with_key(text(other, id(4), &ann), "key2");
    append(store, other, std::slice::from_ref(&elsewhere)).await;

    let keys = [
        (&ann, "key2"),
        (&ann, "none"),
        (&ben, "key"),
        (&ann, "key"),
        (&ben, &*longest),
        (&ann, "key2"),
        (&ann, "ke"),
    ];
    let keys = keys.map(|(user, text)| (user.clone(), key(text)));
    let found = store.earlier_sends(one, &keys).await.unwrap();
    assert_eq!(
        found,
        [
            earlier(&second),
            None,
            None,
            earlier(&first),
            earlier(&third),
            earlier(&second),
            None
        ]
    );
    assert_eq!(
        find(store, other, &ann, "key2").await,
        earlier(&elsewhere),
        "each conversation has its own keys"
    );
    assert_eq!(find(store, other, &ann, "key").await, None);
    assert_ne!(
        first.input_hash,
        Some(InputHash::of_send(&content("something else"), None))
    );
}

pub async fn a_second_message_under_a_key_is_not_kept(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    let first = with_key(text(group, id(1), &ann), "key");
    assert_eq!(keys_taken(store, std::slice::from_ref(&first)).await, []);
    let [second, other] = [
        with_key(text(group, id(2), &ann), "key"),
        with_key(text(group, id(3), &ben), "key"),
    ];
    let taken = keys_taken(store, &[new(text(group, id(1_000), &ann)), second, other]).await;
    assert_eq!(taken, [(1, earlier(&first).unwrap())]);
    assert_eq!(
        history(store, group).await,
        [id(1_000), id(3), id(1)],
        "the others are kept"
    );
    assert_eq!(find(store, group, &ann, "key").await, earlier(&first));
}

pub async fn the_same_messages_again_change_nothing(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    let batch = [
        with_key(text(group, id(1), &ann), "key"),
        new(text(group, id(2), &ben)),
    ];
    assert_eq!(keys_taken(store, &batch).await, []);
    assert_eq!(keys_taken(store, &batch).await, []);
    assert_eq!(history(store, group).await, [id(2), id(1)]);
    assert_eq!(message_count(store, group).await, 2);
}

/// Keys in the first conversation that an earlier send has taken.
async fn keys_taken(store: &dyn Store, messages: &[NewMessage]) -> Vec<(usize, EarlierSend)> {
    append(store, conversation_id(1), messages).await.taken
}

pub async fn a_send_is_forgotten_as_a_retry_after_a_day(stage: &Stage) {
    let (store, ann) = (stage.store(), user("ann"));
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    let now = NOW.micros() - START.micros();
    let first = with_key(text(group, id(now), &ann), "key");
    append(store, group, std::slice::from_ref(&first)).await;
    stage.clock.set(NOW.plus_micros(23 * HOUR));
    assert_eq!(find(store, group, &ann, "key").await, earlier(&first));
    let second = with_key(text(group, id(now + 23 * HOUR), &ann), "other");
    append(store, group, std::slice::from_ref(&second)).await;
    stage.clock.set(NOW.plus_micros(25 * HOUR));
    assert_eq!(find(store, group, &ann, "key").await, None);
    assert_eq!(find(store, group, &ann, "other").await, earlier(&second));
    let again = with_key(text(group, id(now + 25 * HOUR), &ann), "key");
    append(store, group, std::slice::from_ref(&again)).await;
    assert_eq!(
        find(store, group, &ann, "key").await,
        earlier(&again),
        "a forgotten key can be used again"
    );
    assert_eq!(
        history(store, group).await.len(),
        3,
        "the message itself is never forgotten"
    );
}

/// So many conversations, tasks and sends, all at the same time.
const TASKS: i64 = 24;
const SENDS: i64 = 30;

pub async fn appends_to_many_conversations_at_once_lose_nothing(store: &dyn Store) {
    let people = crowd(6);
    let conversations: Vec<_> = (1..=TASKS)
        .map(|n| conversation_id(u8::try_from(n).unwrap()))
        .collect();
    let members =
        |n: usize| [&people[n % 6], &people[(n + 1) % 6], &people[(n + 3) % 6]].map(Clone::clone);
    for (n, conversation) in conversations.iter().enumerate() {
        make(store, *conversation, &members(n)).await;
    }
    // The ids of different conversations are mixed in time, so that the inboxes are reordered all along.
    let at = |task: usize, send: i64| 1 + send * TASKS + (task as i64 * 7) % TASKS;
    let tasks = conversations
        .iter()
        .enumerate()
        .map(async |(task, conversation)| {
            for n in 0..SENDS {
                let sender = &members(task)[usize::try_from(n).unwrap() % 3];
                send(store, *conversation, at(task, n), sender).await;
                assert_eq!(
                    row(store, sender, *conversation).await.last_message,
                    Some(id(at(task, n))),
                    "what was kept is seen"
                );
            }
        });
    futures_util::future::join_all(tasks).await;
    for (task, conversation) in conversations.iter().enumerate() {
        let expected: Vec<_> = (0..SENDS).rev().map(|n| id(at(task, n))).collect();
        assert_eq!(history(store, *conversation).await, expected);
    }
    assert!(
        store
            .message_counts(&conversations)
            .await
            .unwrap()
            .iter()
            .all(|count| *count == SENDS.cast_unsigned())
    );
    for user in &people {
        let mut expected: Vec<(Timestamp, ConversationId)> = Vec::new();
        for (task, conversation) in conversations
            .iter()
            .enumerate()
            .filter(|(task, _)| members(*task).contains(user))
        {
            expected.push((START.plus_micros(at(task, SENDS - 1)), *conversation));
        }
        expected.sort_unstable_by(|one, other| other.cmp(one));
        let inbox: Vec<_> = inbox(store, user)
            .await
            .iter()
            .map(|row| (row.last_activity, row.conversation))
            .collect();
        assert_eq!(inbox, expected);
    }
    let page = store
        .history(
            conversations[0],
            &Cut::<OrderKey>::default(),
            &PageRequest::first(5),
        )
        .await
        .unwrap();
    assert!(page.has_next && !page.has_previous);
}
