//! Conversations, who is in them, and which is the direct one of two.

use futures_util::future::join_all;
use proptest::prelude::*;
use tokio::runtime::Runtime;
use wideroom::model::{
    Conversation, ConversationId, DirectIds, GroupName, IgnoredSenders, MembershipState, OrderKey,
    PageRequest, Role, UserId,
};
use wideroom::store::{
    Created, NOTE_DIRECT_SECRET, NOTE_IMPORTED_AT, NOTE_RESTORED_AT, NewConversation, Store,
    StoreAdmin, UnreadQuery,
};

use super::ask::{
    assert_healthy, assert_newest, assert_page, inbox_ids, last_message, make, message,
    message_count, only, participant, participants, participation, requests, row, runner, send_as,
    slice, try_row,
};
use super::membership::{govern, leaves};
use crate::support::words::{
    START, change, conversation_id, crowd, direct, group, id, key, longest_user, salted, user,
    users,
};

pub async fn a_new_conversation_is_there_for_its_participants(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let on = conversation_id(1);
    let mut new = group(on, &[ann.clone(), ben.clone()]);
    new.conversation.name = Some(GroupName::parse("Räder & Äpfel").unwrap());
    new.conversation.created_by = Some(ann.clone());
    assert_eq!(store.create_conversation(&new).await.unwrap(), Created::New);
    for (user, role) in [(&ann, Role::Owner), (&ben, Role::Member)] {
        let participation = participation(store, on, user).await.unwrap();
        assert_eq!(*participation.conversation, new.conversation);
        assert_eq!(
            (
                participation.membership.state,
                participation.membership.role
            ),
            (MembershipState::Joined, role)
        );
        let participant = participant(store, on, user).await.unwrap();
        assert_eq!((participant.conversation, &participant.user), (on, user));
        assert_eq!(
            (participant.membership, participant.read_up_to),
            (participation.membership, OrderKey::MIN)
        );
        assert_eq!(inbox_ids(store, user).await, [on]);
    }
    assert_eq!(participants(store, on).await, [ann, ben]);
    assert_eq!(
        store
            .participant_counts(&[on, conversation_id(2)])
            .await
            .unwrap(),
        [2, 0]
    );
}

pub async fn a_stranger_has_no_seat(store: &dyn Store) {
    let [ann, ben, stranger, ann_a] = users(["ann", "ben", "stranger", "ann a"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben]).await;
    for nobody in [&stranger, &ann_a, &user("an")] {
        assert!(
            participation(store, group, nobody).await.is_none(),
            "{nobody}"
        );
        assert_eq!(participant(store, group, nobody).await, None, "{nobody}");
    }
    assert!(
        participation(store, conversation_id(2), &ann)
            .await
            .is_none(),
        "there is no such conversation"
    );
}

pub async fn seats_come_in_the_order_of_their_keys(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for (number, people) in [(1, &ann), (2, &ben), (3, &ann)] {
        make(store, conversation_id(number), std::slice::from_ref(people)).await;
    }
    let asked = [3, 9, 1, 2, 3, 1].map(conversation_id);
    let participations = store.participations(&ann, &asked).await.unwrap();
    let there: Vec<_> = participations
        .into_iter()
        .map(|participation| participation.map(|participation| participation.conversation.id))
        .collect();
    assert_eq!(
        there,
        [
            Some(conversation_id(3)),
            None,
            Some(conversation_id(1)),
            None,
            Some(conversation_id(3)),
            Some(conversation_id(1))
        ]
    );
    assert_eq!(
        store.participant_counts(&asked).await.unwrap(),
        [1, 0, 1, 1, 1, 1]
    );
    assert!(store.participations(&ann, &[]).await.unwrap().is_empty());
}

pub async fn making_it_again_changes_nothing(store: &dyn Store) {
    let [ann, ben, eve] = users(["ann", "ben", "eve"]);
    let on = conversation_id(1);
    let first = group(on, &[ann.clone(), ben.clone()]);
    assert_eq!(
        store.create_conversation(&first).await.unwrap(),
        Created::New
    );
    let sent = send_as(store, on, id(5), &ann).await;
    assert_eq!(sent.users.unwrap().len(), 2);
    let before = row(store, &ben, on).await;

    let mut second = group(on, &[eve.clone(), ann.clone()]);
    second.conversation.name = Some(GroupName::parse("another").unwrap());
    second.conversation.created_at = START.plus_micros(900);
    second.change = change(900);
    let Created::Existing(there) = store.create_conversation(&second).await.unwrap() else {
        panic!("the id is taken")
    };
    assert_eq!(*there, first.conversation);
    assert_eq!(participants(store, on).await, [ann.clone(), ben.clone()]);
    assert_eq!(row(store, &ben, on).await, before);
    assert_eq!(try_row(store, &eve, on).await, None);
    assert!(inbox_ids(store, &eve).await.is_empty());
    // Nothing of the second was kept.
    assert_newest(store.newest_id().await.unwrap(), Some(id(5)));
    assert_eq!(
        participation(store, on, &ann)
            .await
            .unwrap()
            .membership
            .role,
        Role::Owner
    );
}

pub async fn one_of_many_concurrent_creations_succeeds(store: &dyn Store) {
    for round in 1..=20 {
        let people = [user(&format!("a{round}")), user(&format!("b{round}"))];
        let (same, other) = (
            group(conversation_id(round), &people),
            direct(&people[0], &people[1]),
        );
        for new in [same, other] {
            let tries: Vec<NewConversation> = (0..4)
                .map(|n| NewConversation {
                    change: change(n),
                    ..new.clone()
                })
                .collect();
            let answers = futures_util::future::join_all(
                tries.iter().map(|new| store.create_conversation(new)),
            )
            .await;
            let answers: Vec<_> = answers.into_iter().map(Result::unwrap).collect();
            assert_eq!(
                answers
                    .iter()
                    .filter(|answer| **answer == Created::New)
                    .count(),
                1,
                "{answers:?}"
            );
            let id = new.conversation.id;
            assert!(
                answers
                    .iter()
                    .all(|answer| matches!(answer, Created::New) || is_existing(answer, id))
            );
        }
        assert_eq!(inbox_ids(store, &people[0]).await.len(), 2);
    }
}

fn is_existing(answer: &Created, id: ConversationId) -> bool {
    matches!(answer, Created::Existing(there) if there.id == id)
}

pub async fn a_pair_that_is_taken_stays_as_it_is(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let mut first = direct(&ann, &ben);
    // As an import may have brought one: with an id that does not follow from the names.
    first.conversation.id = conversation_id(7);
    assert_eq!(
        store.create_conversation(&first).await.unwrap(),
        Created::New
    );
    assert_eq!(
        store.direct_conversation(&ann, &ben).await.unwrap(),
        Some(conversation_id(7))
    );
    assert_eq!(
        store.direct_conversation(&ben, &ann).await.unwrap(),
        Some(conversation_id(7))
    );

    let second = direct(&ben, &ann);
    assert!(is_existing(
        &store.create_conversation(&second).await.unwrap(),
        conversation_id(7)
    ));
    assert_eq!(
        store.direct_conversation(&ann, &ben).await.unwrap(),
        Some(conversation_id(7))
    );
    assert_eq!(inbox_ids(store, &ann).await, [conversation_id(7)]);
    assert!(
        participation(store, second.conversation.id, &ann)
            .await
            .is_none()
    );
}

pub async fn a_direct_conversation_with_oneself_has_one_participant(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    assert_eq!(store.direct_conversation(&ann, &ann).await.unwrap(), None);
    assert_eq!(
        store
            .create_conversation(&direct(&ann, &ann))
            .await
            .unwrap(),
        Created::New
    );
    let id = ConversationId::direct(&ann, &ann);
    assert_eq!(
        store.direct_conversation(&ann, &ann).await.unwrap(),
        Some(id)
    );
    assert_eq!(store.direct_conversation(&ann, &ben).await.unwrap(), None);
    assert_eq!(participants(store, id).await, std::slice::from_ref(&ann));
    assert!(is_existing(
        &store
            .create_conversation(&direct(&ann, &ann))
            .await
            .unwrap(),
        id
    ));
    assert_eq!(inbox_ids(store, &ann).await, [id]);
}

pub async fn names_that_concatenate_alike_are_different_pairs(store: &dyn Store) {
    let names = ["a", "b", "ab", "ba", "aa", "a\u{a0}b", "ä", "a'b"].map(user);
    let pairs: Vec<(&UserId, &UserId)> = names
        .iter()
        .enumerate()
        .flat_map(|(n, one)| names[n..].iter().map(move |other| (one, other)))
        .collect();
    for (one, other) in &pairs {
        assert_eq!(
            store
                .create_conversation(&direct(one, other))
                .await
                .unwrap(),
            Created::New,
            "{one} and {other}"
        );
    }
    for (one, other) in pairs {
        assert_eq!(
            store.direct_conversation(other, one).await.unwrap(),
            Some(ConversationId::direct(one, other))
        );
    }
}

/// Names that a careless key would sort otherwise, or mix up: prefixes of each other, case, several bytes a letter, separators.
fn hard_names() -> Vec<UserId> {
    let names = [
        "a", "aa", "ab", "a b", "a!", "B", "Z", "z", "zz", "é", "é ", "ee", "ÿ", "Ā", "日", "日本",
        "\u{ff5e}", "🚑", "~", " ", "a/b", "a\u{301}",
    ];
    let mut names = names.map(user).to_vec();
    names.extend(['a', 'é'].map(longest_user));
    names
}

pub async fn participants_are_in_the_order_of_their_names_bytes(store: &dyn Store) {
    let names = hard_names();
    let group = conversation_id(1);
    make(store, group, &names).await;
    make(store, conversation_id(2), &names[3..5]).await;
    let mut sorted = names;
    sorted.sort_by(|one, other| one.as_str().as_bytes().cmp(other.as_str().as_bytes()));
    assert_eq!(participants(store, group).await, sorted);
    for name in &sorted {
        assert!(participation(store, group, name).await.is_some(), "{name}");
        assert!(inbox_ids(store, name).await.contains(&group), "{name}");
    }
}

pub fn a_page_of_participants_is_the_slice_of_its_list(runtime: &Runtime, store: &dyn Store) {
    let names = hard_names();
    let group = conversation_id(1);
    let list = runtime.block_on(async {
        make(store, group, &names).await;
        let mut list = Vec::new();
        for name in &names {
            list.push(participant(store, group, name).await.unwrap());
        }
        list.sort_by(|one, other| one.user.as_str().cmp(other.user.as_str()));
        list
    });
    let mut cursors = names;
    cursors.extend(["!", "a ", "b", "é!", "\u{10ffff}"].map(user));
    // Before all of them, and after.
    cursors.extend(["!", "\u{10ffff}"].map(|name| UserId::parse(name).unwrap()));
    let case = requests(prop::sample::select(cursors));
    let outcome = runner(200).run(&case, |request| {
        let answer = runtime
            .block_on(store.participants(group, &request))
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

pub async fn participants_by_name_come_in_the_order_of_their_keys(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    make(store, conversation_id(1), &[ann.clone(), ben.clone()]).await;
    make(store, conversation_id(2), std::slice::from_ref(&ben)).await;
    let keys = [
        (conversation_id(2), ben.clone()),
        (conversation_id(2), ann.clone()),
        (conversation_id(1), ann.clone()),
        (conversation_id(3), ann),
        (conversation_id(2), ben),
    ];
    let answers = store.participants_by_name(&keys).await.unwrap();
    let there: Vec<_> = answers
        .into_iter()
        .map(|answer| answer.map(|one| (one.conversation, one.user)))
        .collect();
    let [first, _, third, _, fifth] = keys;
    assert_eq!(there, [Some(first), None, Some(third), None, Some(fifth)]);
}

pub async fn more_than_the_fan_out_make_a_conversation_large(store: &dyn Store) {
    let people = crowd(60);
    for (number, count) in [
        (1, Conversation::FAN_OUT_MAX),
        (2, Conversation::FAN_OUT_MAX + 1),
        (3, 60),
    ] {
        make(store, conversation_id(number), &people[..count]).await;
        let is_large = count > Conversation::FAN_OUT_MAX;
        let participation = participation(store, conversation_id(number), &people[0])
            .await
            .unwrap();
        assert_eq!(
            participation.conversation.is_large, is_large,
            "{count} participants"
        );
        assert_eq!(
            participants(store, conversation_id(number)).await,
            people[..count]
        );
        let audience = send_as(
            store,
            conversation_id(number),
            id(number.into()),
            &people[0],
        )
        .await;
        assert_eq!(audience.users.is_none(), is_large, "{count} participants");
    }
    let mut large = store.large_conversations(&people[7]).await.unwrap();
    large.sort_unstable();
    assert_eq!(large, [conversation_id(2), conversation_id(3)]);
    assert_eq!(
        store.large_conversations(&people[50]).await.unwrap(),
        [conversation_id(3)]
    );
    assert!(
        store
            .large_conversations(&user("stranger"))
            .await
            .unwrap()
            .is_empty()
    );
}

pub async fn notes_are_found_again(store: &dyn StoreAdmin) {
    let [import, imports] = ["import", "imports"].map(salted);
    assert_eq!(store.note(&import).await.unwrap(), None);
    store.set_note(&import, Some("line 7")).await.unwrap();
    store.set_note(&imports, Some("")).await.unwrap();
    assert_eq!(
        store.note(&import).await.unwrap().as_deref(),
        Some("line 7")
    );
    store.set_note(&import, Some("line 8 ä")).await.unwrap();
    assert_eq!(
        store.note(&import).await.unwrap().as_deref(),
        Some("line 8 ä")
    );
    store.set_note(&import, None).await.unwrap();
    assert_eq!(store.note(&import).await.unwrap(), None);
    assert_eq!(
        store.note(&imports).await.unwrap().as_deref(),
        Some(""),
        "another note stays"
    );
}

pub async fn of_all_who_keep_a_note_once_everyone_gets_the_same(store: &dyn StoreAdmin) {
    let [secret, other] = ["secret", "other"].map(salted);
    let values: Vec<_> = (0..8).map(|n| format!("value {n}")).collect();
    let got = join_all(values.iter().map(|value| store.note_once(&secret, value))).await;
    let got: Vec<_> = got.into_iter().map(Result::unwrap).collect();
    assert!(
        values.contains(&got[0]) && got.iter().all(|one| *one == got[0]),
        "{got:?}"
    );
    assert_eq!(store.note(&secret).await.unwrap(), Some(got[0].clone()));
    assert_eq!(store.note_once(&secret, "later").await.unwrap(), got[0]);
    assert_eq!(
        store.note_once(&other, "").await.unwrap(),
        "",
        "each name has its own"
    );
}

pub async fn concurrent_callers_get_the_same_direct_ids(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let got = join_all((0..4).map(|_| store.direct_ids())).await;
    let ids: Vec<_> = got
        .into_iter()
        .map(|ids| ids.unwrap().id(&ann, &ben))
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let secret = store.note(NOTE_DIRECT_SECRET).await.unwrap().unwrap();
    let kept = DirectIds::parse(&secret).unwrap();
    assert_eq!(kept.id(&ben, &ann), ids[0], "the note holds the secret");
}

pub async fn the_times_of_the_newest_import_and_restoration_are_read_back(store: &dyn StoreAdmin) {
    for (note, time) in [
        (None, None),
        (Some(START.to_string()), Some(START)),
        (Some("yesterday".to_owned()), None),
    ] {
        let (name, note) = (NOTE_IMPORTED_AT, note.as_deref());
        store.set_note(name, note).await.unwrap();
        assert_eq!(store.imported_at().await.unwrap(), time, "{note:?}");
        store.set_note(NOTE_RESTORED_AT, note).await.unwrap();
        assert_eq!(store.restored_at().await.unwrap(), time, "{note:?}");
    }
}

pub async fn conversations_are_counted_where_a_user_is_in_them_now(store: &dyn Store) {
    let people = crowd(40);
    let ann = &people[0];
    assert_eq!(store.conversation_count(ann, 9).await.unwrap(), 0);
    for (number, count) in (1..).zip([1, 2, 33, 40, 5]) {
        make(store, conversation_id(number), &people[..count]).await;
    }
    // One that is active, and one that is busy.
    send_as(store, conversation_id(2), id(9), ann).await;
    send_as(store, conversation_id(5), id(10), ann).await;
    send_as(store, conversation_id(5), id(11), ann).await;
    let counts = async |user: &UserId| store.conversation_count(user, 9).await.unwrap();
    assert_eq!(
        (
            counts(ann).await,
            counts(&people[2]).await,
            counts(&people[39]).await
        ),
        (5, 3, 1)
    );
    assert_eq!(
        store.conversation_count(ann, 3).await.unwrap(),
        3,
        "up to the limit"
    );
    govern(store, conversation_id(5), 20, &[leaves(ann, 20)]).await;
    assert_eq!(counts(ann).await, 4);
    assert_eq!(counts(&user("stranger")).await, 0);
}

pub async fn an_empty_store_answers_everything(store: &dyn Store) {
    let ann = user("ann");
    assert_newest(store.newest_id().await.unwrap(), None);
    assert!(inbox_ids(store, &ann).await.is_empty());
    let group = conversation_id(1);
    assert!(
        store
            .participants(group, &PageRequest::first(5))
            .await
            .unwrap()
            .items
            .is_empty()
    );
    let page = store
        .history(
            group,
            &wideroom::model::Cut::default(),
            &PageRequest::last(5),
        )
        .await
        .unwrap();
    assert!(page.items.is_empty() && !page.has_previous && !page.has_next);
    assert_eq!(message(store, group, id(1)).await, None);
    assert_eq!(
        store.messages_at(&[(group, OrderKey::MAX)]).await.unwrap(),
        [None]
    );
    assert_eq!(last_message(store, group).await, None);
    assert_eq!(message_count(store, group).await, 0);
    assert_eq!(
        store.inbox_changes(&ann, OrderKey::MIN, 5).await.unwrap(),
        Some(Vec::new())
    );
    assert_eq!(
        store
            .earlier_sends(group, &[(ann.clone(), key("k"))])
            .await
            .unwrap(),
        [None]
    );
    assert_eq!(
        store.profiles(std::slice::from_ref(&ann)).await.unwrap(),
        [None]
    );
    let question = UnreadQuery {
        conversation: group,
        after: OrderKey::MIN,
        up_to: None,
    };
    assert_eq!(
        only(
            store
                .unread(&ann, &[question], 9, &IgnoredSenders::default())
                .await
                .unwrap()
        )
        .count,
        0
    );
    assert_healthy(store);
    assert!(!store.to_string().is_empty());
}
