//! Receipts: what was delivered to whom, and whom a message was sent to.

use futures_util::future::join_all;
use proptest::prelude::*;
use tokio::runtime::Runtime;
use wideroom::model::{
    Membership, MembershipState, OrderKey, PageRequest, ReadMarker, Role, UserId,
};
use wideroom::store::{ImportPositions, ImportRow, MarkerMove, NewMessage, Store, StoreAdmin};

use super::ask::{
    append, assert_newest, assert_page, make, participant, requests, row, runner, send_all, slice,
};
use crate::support::words::{
    START, change, conversation_id, crowd, group_row, id, new, text, user, users,
};

pub async fn a_delivery_is_a_maximum_in_any_order_of_arrival(store: &dyn Store) {
    let people = crowd(33);
    // The second one is large.
    for (number, people) in [(1, &people[..2]), (2, &people[..])] {
        make(store, conversation_id(number), people).await;
        send_all(store, conversation_id(number), 1..10, &people[1]).await;
        let mut greatest = 0;
        for micros in [3, 1, 7, 5, 7] {
            store
                .mark_delivered(&people[0], conversation_id(number), id(micros).order_key())
                .await
                .unwrap();
            greatest = greatest.max(micros);
            let place = participant(store, conversation_id(number), &people[0])
                .await
                .unwrap();
            assert_eq!(
                (place.delivered_up_to, place.read_up_to),
                (id(greatest).order_key(), OrderKey::MIN)
            );
        }
        // From many devices at once.
        let marks = [8, 4, 9, 6].map(async |micros| {
            store
                .mark_delivered(&people[0], conversation_id(number), id(micros).order_key())
                .await
                .unwrap()
        });
        join_all(marks).await;
        let page = store
            .participants(conversation_id(number), &PageRequest::first(2))
            .await
            .unwrap();
        assert_eq!(
            page.items[0].delivered_up_to,
            id(9).order_key(),
            "lists say the same"
        );
        assert_eq!(
            page.items[1].delivered_up_to,
            OrderKey::MIN,
            "it is their own"
        );
    }
}

pub async fn a_delivery_changes_no_inbox(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    send_all(store, group, 1..5, &ben).await;
    let before = row(store, &ann, group).await;
    store
        .mark_delivered(&ann, group, id(4).order_key())
        .await
        .unwrap();
    assert_eq!(row(store, &ann, group).await, before);
    assert_eq!(
        store
            .inbox_changes(&ann, id(4).order_key(), 9)
            .await
            .unwrap(),
        Some(Vec::new())
    );
}

/// One who came at a time, or was there from the beginning.
fn came(number: u8, user: &UserId, state: MembershipState, since: Option<i64>) -> ImportRow {
    let since = since.map(|micros| START.plus_micros(micros));
    let membership = Membership {
        state,
        since,
        ..Membership::joined(Role::Member)
    };
    ImportRow::Participant {
        conversation: conversation_id(number),
        user: user.clone(),
        membership,
        positions: ImportPositions::default(),
        ban: None,
    }
}

pub async fn receivers_were_there_and_still_are(store: &dyn StoreAdmin) {
    use MembershipState::{Joined, Left};
    let [ann, ben, cat, dan, eve] = users(["ann", "ben", "cat", "dan", "eve"]);
    let rows = [
        group_row(conversation_id(1), None),
        came(1, &ann, Joined, None),
        came(1, &ben, Joined, Some(10)),
        came(1, &cat, Left, Some(5)),
        came(1, &dan, Joined, Some(20)),
        came(1, &eve, Left, None),
    ];
    store.import(&rows).await.unwrap();
    let names = async |micros: i64, sender: &UserId| {
        let page = store
            .receivers(
                conversation_id(1),
                id(micros),
                sender,
                &PageRequest::first(9),
            )
            .await
            .unwrap();
        page.items
            .into_iter()
            .map(|one| one.user)
            .collect::<Vec<_>>()
    };
    assert_eq!(names(9, &eve).await, std::slice::from_ref(&ann));
    assert_eq!(
        names(10, &eve).await,
        [ann.clone(), ben.clone()],
        "one who came at that moment was there"
    );
    assert_eq!(names(19, &ann).await, std::slice::from_ref(&ben));
    assert_eq!(names(30, &ben).await, [ann, dan]);
    assert!(
        store
            .receivers(conversation_id(2), id(9), &ben, &PageRequest::first(9))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert_newest(
        store
            .newest_id()
            .await
            .unwrap()
            .filter(|newest| *newest > change(0)),
        None,
    );
}

pub fn a_page_of_receivers_is_the_slice_of_its_list(runtime: &Runtime, store: &dyn StoreAdmin) {
    let names: Vec<_> = (0..40)
        .map(|n| user(&format!("{}{n}", ["a", "é", "Z", "aa"][n % 4])))
        .collect();
    let group = conversation_id(1);
    let list = runtime.block_on(async {
        store.import(&[group_row(group, None)]).await.unwrap();
        let mut there = Vec::new();
        // In runs of some who came later, so that a page has much to step over.
        for (n, name) in (0..).zip(&names) {
            let (state, is_late) = (
                if n % 11 == 3 {
                    MembershipState::Left
                } else {
                    MembershipState::Joined
                },
                n / 5 % 2 == 1,
            );
            store
                .import(&[came(1, name, state, is_late.then_some(60))])
                .await
                .unwrap();
            if state == MembershipState::Joined && !is_late && *name != names[1] {
                there.push(name);
            }
        }
        // Once all have come: who counts as OWNER follows from all of them.
        let mut list = Vec::new();
        for name in there {
            list.push(participant(store, group, name).await.unwrap());
        }
        list.sort_by(|one, other| one.user.as_str().cmp(other.user.as_str()));
        list
    });
    let mut cursors = names.clone();
    cursors.extend([user("a"), user("\u{10ffff}"), user("!")]);
    let outcome = runner(200).run(&requests(prop::sample::select(cursors)), |request| {
        let answer = runtime
            .block_on(store.receivers(group, id(50), &names[1], &request))
            .unwrap();
        let expected = slice(
            &list,
            |one| one.user.as_str().to_owned(),
            |user: &UserId| user.as_str().to_owned(),
            &request,
        );
        assert_page(&request, &answer, &expected);
        Ok(())
    });
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}

/// The register of each act says whether only a service acted: the act of a service shows in markers and
/// receipts, and the user's own act at the same position replaces it, in any order of arrival.
pub async fn an_act_of_a_service_is_marked_until_the_user_acts(store: &dyn Store) {
    let people = users(["ann", "ben"]);
    let (ann, conversation) = (&people[0], conversation_id(1));
    make(store, conversation, &people).await;
    let send = async |micros: i64, is_by_service: bool| {
        let new = NewMessage {
            is_by_service,
            ..new(text(conversation, id(micros), ann))
        };
        append(store, conversation, &[new]).await;
        let row = row(store, ann, conversation).await;
        (row.sent_up_to, row.is_sent_by_service)
    };
    assert_eq!(send(10, true).await, (Some(id(10)), true));
    assert_eq!(send(11, false).await, (Some(id(11)), false));
    assert_eq!(send(12, true).await, (Some(id(12)), true));
    let mark = async |micros: i64, is_by_service: bool| {
        let up_to = id(micros).order_key();
        let to = MarkerMove {
            conversation,
            marker: ReadMarker { epoch: 0, up_to },
            read_up_to: Some(up_to),
            is_by_service,
            change: change(20 + micros),
        };
        store.move_read_marker(ann, &to).await.unwrap();
        let participant = participant(store, conversation, ann).await.unwrap();
        (participant.read_up_to, participant.is_read_by_service)
    };
    let position = |micros: i64| id(micros).order_key();
    assert_eq!(mark(10, true).await, (position(10), true));
    assert_eq!(mark(10, false).await, (position(10), false));
    assert_eq!(
        mark(10, true).await,
        (position(10), false),
        "the user's own act stays"
    );
    assert_eq!(mark(12, true).await, (position(12), true));
    assert_eq!(mark(11, false).await, (position(12), true));
    let page = store
        .participants(conversation, &PageRequest::first(1))
        .await
        .unwrap();
    assert!(page.items[0].is_read_by_service, "lists say the same");
}
