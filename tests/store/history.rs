//! Histories: their order, their pages, and single messages out of them.

use std::cmp::Reverse;
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;
use tokio::runtime::Runtime;
use wideroom::model::{
    Attachment, Body, Content, ConversationId, Cut, Direction, Message, MessageId, MessageKind,
    MessageStep, MessageStepState, MessageSteps, Metadata, OrderKey, PageRequest, Parts, UserId,
};
use wideroom::store::{ImportRow, Store, StoreAdmin};

use super::ask::{
    append, assert_newest, assert_page, history, is_in, last_message, make, message, message_count,
    only, requests, runner, send, send_all, slice, walk,
};
use crate::support::words::{
    NOW, START, change, conversation_id, id, id_with, key, message_row, new, system, text, user,
    users,
};

fn steps() -> MessageSteps {
    let step = |number: u8| MessageStep {
        key: number.to_string(),
        title: "Ask the registry".to_owned(),
        state: MessageStepState::Failed,
        detail: (number == 1).then(|| "no answer\nafter 20 s".to_owned()),
    };
    MessageSteps::parse((0..MessageSteps::COUNT_MAX as u8).map(step).collect()).unwrap()
}

pub async fn appended_messages_are_read_back_whole(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    let attachment = Attachment {
        url: "https://example.org/ü.png".to_owned(),
        mime_type: "image/png".to_owned(),
        name: Some("a name".to_owned()),
        size_bytes: Some(Attachment::SIZE_BYTES_MAX),
        width: Some(640),
        height: None,
        duration_ms: Some(61_000),
        thumbnail_url: Some("https://example.org/ü-small.png".to_owned()),
    };
    let plain = text(group, id(1), &ann);
    let long = Content {
        body: Body::parse("ж".repeat(Body::BYTES_MAX / 2), Body::BYTES_MAX, false).unwrap(),
        ..Content::default()
    };
    let mut unknown_parts = Parts::default();
    unknown_parts.put(4_000, vec![0, 255]);
    let full = Content {
        body: Body::default(),
        attachments: vec![attachment; Attachment::COUNT_MAX],
        metadata: Some(
            Metadata::new(
                &serde_json::json!({ "z": 1, "a": [null, 0.5] }),
                Metadata::BYTES_MAX,
            )
            .unwrap(),
        ),
        edited_at: Some(NOW),
        mentions: wideroom::model::Mentions::new(crate::support::words::crowd(3), true),
        steps: steps(),
        is_interrupted: true,
        unknown_parts,
    };
    let answer = Message {
        reply_to: Some(id(1)),
        client_key: Some(key("~ key 1")),
        content: Some(full),
        ..text(group, id(2), &ben)
    };
    let kinds = [
        plain,
        answer,
        Message {
            content: Some(long),
            ..text(group, id(3), &ann)
        },
        system(group, id(4), &ann),
    ];
    append(store, group, &kinds.clone().map(new)).await;
    let page = store
        .history(group, &Cut::default(), &PageRequest::last(4))
        .await
        .unwrap();
    assert_eq!(
        page.items
            .iter()
            .rev()
            .map(|message| (**message).clone())
            .collect::<Vec<_>>(),
        kinds
    );
    for sent in kinds {
        let read = message(store, group, sent.id).await;
        assert_eq!(read.as_deref(), Some(&sent));
    }
}

pub async fn history_is_read_newest_first(store: &dyn Store) {
    let ann = user("ann");
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    send_all(store, group, 1..8, &ann).await;
    let read = async |request: PageRequest<OrderKey>| {
        let page = store
            .history(group, &Cut::default(), &request)
            .await
            .unwrap();
        (
            page.items
                .iter()
                .map(|message| message.id)
                .collect::<Vec<_>>(),
            page.has_previous,
            page.has_next,
        )
    };
    let at = |micros| id(micros).order_key();
    assert_eq!(
        read(PageRequest::first(3)).await,
        ([7, 6, 5].map(id).to_vec(), false, true)
    );
    assert_eq!(
        read(PageRequest::first(3).after(at(5))).await,
        ([4, 3, 2].map(id).to_vec(), true, true)
    );
    assert_eq!(
        read(PageRequest::first(3).after(at(2))).await,
        ([id(1)].to_vec(), true, false)
    );
    assert_eq!(
        read(PageRequest::last(3)).await,
        ([3, 2, 1].map(id).to_vec(), true, false)
    );
    assert_eq!(
        read(PageRequest::last(3).before(at(3))).await,
        ([6, 5, 4].map(id).to_vec(), true, true)
    );
    assert_eq!(
        read(PageRequest::last(9).before(at(3))).await,
        ([7, 6, 5, 4].map(id).to_vec(), false, true)
    );
    let window = PageRequest::first(2).after(at(6)).before(at(2));
    assert_eq!(
        read(window).await,
        ([5, 4].map(id).to_vec(), false, true),
        "the flags speak of the window"
    );
}

/// Ids of one microsecond in Cassandra's order, which compares signed bytes.
fn ids_of_one_tick(micros: i64) -> [MessageId; 7] {
    [
        [0x80, 0x80, 0, 0, 0, 0, 0, 0],
        [0x80, 0xff, 0, 0, 0, 0, 0, 0x7f],
        [0x80, 0x00, 0, 0, 0, 0, 0, 0x80],
        [0x80, 0x00, 0, 0, 0, 0, 0, 0x01],
        [0x80, 0x7f, 0, 0, 0, 0, 0, 0x01],
        [0xbf, 0x80, 0, 0, 0, 0, 0, 0x80],
        [0xbf, 0x7f, 0, 0, 0, 0, 0, 0x7f],
    ]
    .map(|rest| id_with(micros, rest))
}

pub async fn ids_of_one_tick_are_in_the_order_of_signed_bytes(store: &dyn Store) {
    let ann = user("ann");
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    let ids = ids_of_one_tick(5);
    append(store, group, &ids.map(|id| new(text(group, id, &ann)))).await;
    let mut newest_first = ids.to_vec();
    newest_first.reverse();
    assert_eq!(history(store, group).await, newest_first);
    assert_eq!(last_message(store, group).await, Some(ids[6]));
    for pair in ids.windows(2) {
        let request = PageRequest::first(1).after(pair[1].order_key());
        let page = store
            .history(group, &Cut::default(), &request)
            .await
            .unwrap();
        assert_eq!(page.items[0].id, pair[0]);
        let before = store
            .messages_at(&[(group, pair[1].order_key().before())])
            .await
            .unwrap();
        assert_eq!(only(before).unwrap().id, pair[0]);
    }
}

pub async fn a_page_of_none_is_empty(store: &dyn Store) {
    let ann = user("ann");
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    send_all(store, group, 1..4, &ann).await;
    for request in [
        PageRequest::first(0),
        PageRequest::last(0),
        PageRequest::first(0).after(id(2).order_key()),
    ] {
        assert!(
            store
                .history(group, &Cut::default(), &request)
                .await
                .unwrap()
                .items
                .is_empty()
        );
    }
    for request in [PageRequest::first(0), PageRequest::last(0)] {
        assert!(store.inbox(&ann, &request).await.unwrap().items.is_empty());
    }
    assert!(
        store
            .participants(group, &PageRequest::first(0))
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

pub async fn histories_of_neighbours_do_not_mix(store: &dyn Store) {
    let ann = user("ann");
    let conversations: Vec<ConversationId> = [0, 1, 2, 0xfe, 0xff].map(conversation_id).to_vec();
    for (n, conversation) in conversations.iter().enumerate() {
        make(store, *conversation, std::slice::from_ref(&ann)).await;
        send_all(store, *conversation, 1..n as i64 + 2, &ann).await;
    }
    for (n, conversation) in conversations.iter().enumerate() {
        let expected: Vec<_> = (1..n as i64 + 2).rev().map(id).collect();
        assert_eq!(history(store, *conversation).await, expected);
        let page = store
            .history(*conversation, &Cut::default(), &PageRequest::last(100))
            .await
            .unwrap();
        assert_eq!(
            (page.items.len(), page.has_previous, page.has_next),
            (n + 1, false, false)
        );
        assert_eq!(
            only(
                store
                    .messages_at(&[(*conversation, OrderKey::MIN)])
                    .await
                    .unwrap()
            ),
            None
        );
        assert_eq!(
            only(
                store
                    .messages_at(&[(*conversation, OrderKey::MAX)])
                    .await
                    .unwrap()
            )
            .unwrap()
            .id,
            expected[0]
        );
    }
}

pub async fn the_message_at_a_place_is_the_newest_at_or_before_it(store: &dyn Store) {
    let ann = user("ann");
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    for micros in [10, 20, 30] {
        send(store, group, micros, &ann).await;
    }
    let positions = [
        id(20).order_key(),
        id(20).order_key().before(),
        id(29).order_key(),
        id(9).order_key(),
        OrderKey::MAX,
        OrderKey::MIN,
    ];
    let at = store
        .messages_at(&positions.map(|place| (group, place)))
        .await
        .unwrap();
    let at: Vec<_> = at
        .into_iter()
        .map(|message| message.map(|message| message.id))
        .collect();
    assert_eq!(
        at,
        [
            Some(id(20)),
            Some(id(10)),
            Some(id(20)),
            None,
            Some(id(30)),
            None
        ]
    );
}

pub async fn messages_come_in_the_order_of_their_keys(store: &dyn Store) {
    let ann = user("ann");
    for number in [1, 2] {
        make(store, conversation_id(number), std::slice::from_ref(&ann)).await;
        send_all(store, conversation_id(number), 1..4, &ann).await;
    }
    send(store, conversation_id(2), 9, &ann).await;
    let keys = [(2, 3), (1, 9), (1, 1), (2, 9), (3, 1), (2, 3)]
        .map(|(number, micros)| (conversation_id(number), id(micros)));
    let answers = store.messages(&keys).await.unwrap();
    let there: Vec<_> = answers
        .iter()
        .map(|message| {
            message
                .as_ref()
                .map(|message| (message.conversation, message.id))
        })
        .collect();
    assert_eq!(
        there,
        [
            Some(keys[0]),
            None,
            Some(keys[2]),
            Some(keys[3]),
            None,
            Some(keys[5])
        ]
    );
}

pub async fn the_last_message_and_the_count_follow_each_send(store: &dyn Store) {
    let ann = user("ann");
    let [first, second] = [1, 2].map(conversation_id);
    make(store, first, std::slice::from_ref(&ann)).await;
    make(store, second, std::slice::from_ref(&ann)).await;
    assert_eq!(message_count(store, first).await, 0);
    for micros in 1..=5 {
        send(store, first, micros, &ann).await;
        let asked = [second, first, conversation_id(3), first];
        assert_eq!(
            store.last_messages(&asked).await.unwrap(),
            [None, Some(id(micros)), None, Some(id(micros))]
        );
        assert_eq!(
            store.message_counts(&asked).await.unwrap(),
            [0, micros, 0, micros].map(i64::cast_unsigned)
        );
    }
    append(store, first, &[new(system(first, id(6), &ann))]).await;
    assert_eq!(
        message_count(store, first).await,
        6,
        "a SYSTEM message counts"
    );
    send_all(store, second, 1..3_001, &ann).await;
    assert_eq!(message_count(store, second).await, 3_000);
}

pub async fn the_newest_id_is_the_greatest_kept(store: &dyn StoreAdmin) {
    let ann = user("ann");
    let [first, second] = [1, 2].map(conversation_id);
    make(store, first, std::slice::from_ref(&ann)).await;
    assert_newest(store.newest_id().await.unwrap(), Some(change(0)));
    make(store, second, std::slice::from_ref(&ann)).await;
    send(store, first, 50, &ann).await;
    send(store, second, 20, &ann).await;
    // The newest id over all conversations.
    assert_newest(store.newest_id().await.unwrap(), Some(id(50)));
    let to = super::ask::MarkTo::read(20, change(60));
    super::ask::mark(store, &ann, second, to).await;
    // Changes have ids too.
    assert_newest(store.newest_id().await.unwrap(), Some(change(60)));
    store
        .import(&[message_row(text(first, id(55), &ann))])
        .await
        .unwrap();
    assert_newest(store.newest_id().await.unwrap(), Some(change(60)));
    store
        .import(&[message_row(text(first, id(70), &ann))])
        .await
        .unwrap();
    // And what is imported.
    assert_newest(store.newest_id().await.unwrap(), Some(id(70)));
}

/// Ids of few ticks, so that many share one.
fn any_id() -> impl Strategy<Value = MessageId> + Clone {
    let byte = prop::sample::select(vec![0_u8, 1, 0x7f, 0x80, 0xff]);
    (0..6_i64, byte.clone(), byte.clone(), byte)
        .prop_map(|(tick, a, b, c)| id_with(tick, [a, b, 0, 0, 0, 0, 0, c]))
}

/// A place that is an id, or lies just before one, or where a tick begins.
fn any_place() -> impl Strategy<Value = OrderKey> + Clone {
    prop_oneof![
        4 => any_id().prop_map(MessageId::order_key),
        1 => any_id().prop_map(|id| id.order_key().before()),
        1 => (0..7_i64).prop_map(|tick| OrderKey::first_at(START.plus_micros(tick))),
        1 => prop::sample::select(vec![OrderKey::MIN, OrderKey::MAX]),
    ]
}

fn any_cut() -> impl Strategy<Value = Cut<OrderKey>> {
    let bound = || {
        prop_oneof![
            2 => Just(Bound::Unbounded),
            1 => any_place().prop_map(Bound::Included),
            1 => any_place().prop_map(Bound::Excluded),
        ]
    };
    (bound(), bound()).prop_map(|(start, end)| Cut { start, end })
}

fn any_history() -> impl Strategy<Value = Vec<MessageId>> {
    prop::collection::btree_set(any_id(), 0..40).prop_map(|ids| ids.into_iter().collect())
}

/// A conversation of its own for each case, with these messages. Every other one is imported, in no order.
async fn prepare(
    store: &dyn StoreAdmin,
    number: u32,
    ids: &[MessageId],
) -> (ConversationId, Vec<Arc<Message>>) {
    let ann: UserId = user("ann");
    let conversation = ConversationId(uuid::Uuid::new_v4());
    make(store, conversation, std::slice::from_ref(&ann)).await;
    let messages: Vec<_> = ids.iter().map(|id| text(conversation, *id, &ann)).collect();
    if number.is_multiple_of(2) {
        let rows: Vec<ImportRow> = messages.iter().cloned().rev().map(message_row).collect();
        store.import(&rows).await.unwrap();
    } else if !ids.is_empty() {
        append(
            store,
            conversation,
            &messages.iter().cloned().map(new).collect::<Vec<_>>(),
        )
        .await;
    }
    (
        conversation,
        messages.into_iter().rev().map(Arc::new).collect(),
    )
}

pub fn pages_tile_the_history(runtime: &Runtime, store: &dyn StoreAdmin) {
    let sizes = prop::collection::vec(1..9_usize, 1..5);
    let number = std::cell::Cell::new(0);
    let outcome = runner(48).run(&(any_history(), any_cut(), sizes), |(ids, cut, sizes)| {
        number.set(number.get() + 1);
        runtime.block_on(async {
            let (conversation, all) = prepare(store, number.get(), &ids).await;
            let expected: Vec<_> = all
                .iter()
                .filter(|message| is_in(&cut, &message.id.order_key()))
                .cloned()
                .collect();
            let page = async |request: &PageRequest<OrderKey>| {
                store.history(conversation, &cut, request).await.unwrap()
            };
            let key = |message: &Arc<Message>| message.id.order_key();
            assert_eq!(
                walk(Direction::Forward, &sizes, key, page).await,
                expected,
                "forward"
            );
            assert_eq!(
                walk(Direction::Backward, &sizes, key, page).await,
                expected,
                "backward"
            );
        });
        Ok(())
    });
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}

pub fn a_page_is_the_slice_of_its_list(runtime: &Runtime, store: &dyn StoreAdmin) {
    let asked = prop::collection::vec((any_cut(), requests(any_place())), 1..12);
    let number = std::cell::Cell::new(0);
    let outcome = runner(48).run(&(any_history(), asked), |(ids, asked)| {
        number.set(number.get() + 1);
        runtime.block_on(async {
            let (conversation, all) = prepare(store, number.get(), &ids).await;
            for (cut, request) in asked {
                let list: Vec<_> = all
                    .iter()
                    .filter(|message| is_in(&cut, &message.id.order_key()))
                    .cloned()
                    .collect();
                let answer = store.history(conversation, &cut, &request).await.unwrap();
                let expected = slice(
                    &list,
                    |message| Reverse(message.id.order_key()),
                    |key| Reverse(*key),
                    &request,
                );
                assert!(
                    answer
                        .items
                        .iter()
                        .all(|message| message.kind == MessageKind::Text)
                );
                assert_page(&request, &answer, &expected);
            }
        });
        Ok(())
    });
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}
