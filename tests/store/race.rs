//! Concurrent operations: no write is lost between writers, and a reader sees each write as a whole.

use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use wideroom::model::{Cut, OrderKey, PageRequest, ReadMarker, Revision};
use wideroom::store::{Error, FlagsChange, Imported, MarkerMove, Result, Store, StoreAdmin};

use super::ask::{
    MarkTo, history, inbox, make, mark, message, message_count, participant, participant_count,
    row, send,
};
use crate::support::words::{
    START, change, change_of, content, conversation_id, crowd, flags_change, group_row, id, new,
    participant_row, text, users,
};

pub async fn marks_and_sends_at_once_lose_nothing(store: &dyn Store) {
    let people = users(["ann", "ben"]);
    for number in 1..=4 {
        make(store, conversation_id(number), &people).await;
    }
    let conversations = (1..=4).map(async |number| {
        let sends = async {
            for micros in 1..=40 {
                send(store, conversation_id(number), micros, &people[0]).await;
            }
        };
        // From two devices, one of which lies behind the other.
        let marks = [0, 7].map(async |behind| {
            for micros in 1..=40 {
                let up_to = id(micros - behind).order_key();
                let to = MarkTo {
                    epoch: 0,
                    up_to,
                    receipt: true,
                    change: change(1_000 + micros),
                };
                join(
                    mark(store, &people[0], conversation_id(number), to),
                    mark(store, &people[1], conversation_id(number), to),
                )
                .await;
            }
        });
        let back = async {
            let marker = ReadMarker {
                epoch: START.micros().cast_unsigned(),
                up_to: OrderKey::MIN,
            };
            let to = MarkerMove {
                conversation: conversation_id(number),
                marker,
                read_up_to: None,
                is_by_service: false,
                change: change(500),
            };
            store.move_read_marker(&people[1], &to).await.unwrap();
        };
        join(sends, join(join_all(marks), back)).await;
    });
    join_all(conversations).await;
    for number in 1..=4 {
        let [ann, ben] = [
            row(store, &people[0], conversation_id(number)).await,
            row(store, &people[1], conversation_id(number)).await,
        ];
        assert_eq!(
            (ann.sent_up_to, ann.last_message, ann.last_activity),
            (Some(id(40)), Some(id(40)), START.plus_micros(40))
        );
        assert_eq!(
            ann.marker,
            ReadMarker {
                epoch: 0,
                up_to: id(40).order_key()
            }
        );
        assert_eq!(
            ben.marker,
            ReadMarker {
                epoch: START.micros().cast_unsigned(),
                up_to: OrderKey::MIN
            }
        );
        for user in &people {
            assert_eq!(
                participant(store, conversation_id(number), user)
                    .await
                    .unwrap()
                    .read_up_to,
                id(40).order_key()
            );
        }
    }
}

pub async fn a_reader_sees_each_send_as_a_whole(store: &dyn Store) {
    let people = crowd(33);
    // The last one is large.
    for number in 1..=6 {
        make(
            store,
            conversation_id(number),
            &people[..if number == 6 { 33 } else { 3 }],
        )
        .await;
    }
    let writer = async {
        for micros in 1..=180_i64 {
            let number = u8::try_from(micros * 5 % 6).unwrap() + 1;
            send(
                store,
                conversation_id(number),
                micros,
                &people[usize::from(number) % 3],
            )
            .await;
        }
    };
    let readers = people[..3].iter().map(async |user| {
        let mut newest = None;
        for count in (6..=12).cycle().take(70) {
            let page = store.inbox(user, &PageRequest::first(count)).await.unwrap();
            let conversations: BTreeSet<_> =
                page.items.iter().map(|row| row.conversation).collect();
            assert_eq!(
                (conversations.len(), page.items.len(), page.has_next),
                (6, 6, false),
                "each conversation stands once"
            );
            assert!(
                page.items.is_sorted_by_key(|row| row.key()),
                "in the order of the list"
            );
            assert!(page.items[0].last_message >= newest, "what was seen stays");
            newest = page.items[0].last_message;
            for row in &page.items {
                assert!(
                    row.last_message
                        .is_none_or(|last| last.moment() == row.last_activity),
                    "message and activity are of one send"
                );
                let newest = store
                    .history(row.conversation, &Cut::default(), &PageRequest::first(1))
                    .await
                    .unwrap()
                    .items;
                assert!(
                    newest.first().map(|message| message.id) >= row.last_message,
                    "what an entry shows is in the history"
                );
            }
        }
    });
    join(writer, join_all(readers)).await;
}

/// Whatever an engine remembers of what others read meanwhile.
pub async fn acknowledged_writes_are_in_every_later_read(store: &dyn Store) {
    let people = users(["ann", "ben"]);
    let [ann, ben] = &people;
    let group = conversation_id(1);
    make(store, group, &people).await;
    for micros in 1..=40 {
        send(store, group, micros, ann).await;
    }
    let first = async || message(store, group, id(1)).await.unwrap();
    let marks = async {
        for micros in 1..=40 {
            let to = MarkTo::read(micros, change(1_000 + micros));
            mark(store, ben, group, to).await;
            assert_eq!(row(store, ben, group).await.marker.up_to, to.up_to);
        }
    };
    let flags = async {
        for micros in 1..=40 {
            let muted = Some(micros % 2 == 1);
            let to = FlagsChange {
                muted,
                ..flags_change(group, change(2_000 + micros))
            };
            until_available(async || store.set_flags(ben, &to).await).await;
            assert_eq!(Some(row(store, ben, group).await.flags.is_muted), muted);
        }
    };
    let sends = async {
        for micros in 41..=80 {
            let sent = [new(text(group, id(micros), ben))];
            until_available(async || store.append_messages(group, &sent).await).await;
            let read = row(store, ben, group).await;
            assert_eq!(
                (read.sent_up_to, read.last_message),
                (Some(id(micros)), Some(id(micros)))
            );
            assert!(message(store, group, id(micros)).await.is_some());
        }
    };
    let edits = async {
        for micros in 1..=40 {
            let edited = content(&format!("the {micros}th"));
            let (revision, to) = (Revision::edit(edited.clone()), change(3_000 + micros));
            let to = change_of(to, revision.kind(), id(1), ann);
            until_available(async || store.revise_message(group, &revision, &to).await).await;
            assert_eq!(first().await.content, Some(edited));
        }
    };
    let readers = (0..4).map(async |_| {
        for _ in 0..80 {
            join(row(store, ben, group), first()).await;
            store.inbox(ben, &PageRequest::first(1)).await.unwrap();
        }
    });
    join(
        join(marks, flags),
        join(join(sends, edits), join_all(readers)),
    )
    .await;
}

/// An engine may say that it could not, and has done nothing: then one tries again.
pub(super) async fn until_available<T>(mut write: impl AsyncFnMut() -> Result<T>) -> T {
    for _ in 0..1_000 {
        match write().await {
            Err(Error::Unavailable(_)) => tokio::task::yield_now().await,
            outcome => return outcome.unwrap(),
        }
    }
    panic!("a store that is never available");
}

pub async fn growing_large_between_sends_loses_nothing(store: &dyn StoreAdmin) {
    let people = crowd(45);
    let group = conversation_id(1);
    store
        .import(&[group_row(group, Some(START))])
        .await
        .unwrap();
    let rows = people
        .iter()
        .map(|user| participant_row(group, user))
        .collect::<Vec<_>>();
    store.import(&rows[..25]).await.unwrap();
    let sends = async {
        for micros in 1..=60 {
            let message = [new(text(group, id(micros), &people[0]))];
            until_available(async || store.append_messages(group, &message).await).await;
        }
    };
    let joins = async {
        for row in &rows[25..] {
            assert_eq!(
                until_available(async || store.import(std::slice::from_ref(row)).await).await,
                [Imported::Added]
            );
        }
    };
    join(sends, joins).await;
    assert_eq!(participant_count(store, group).await, 45);
    assert_eq!(history(store, group).await.len(), 60);
    assert_eq!(message_count(store, group).await, 60);
    for user in &people {
        let inbox = inbox(store, user).await;
        assert_eq!(
            inbox.iter().map(|row| row.last_message).collect::<Vec<_>>(),
            [Some(id(60))],
            "{user}"
        );
        assert_eq!(store.large_conversations(user).await.unwrap(), [group]);
    }
}
