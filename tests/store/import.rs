//! Import: in any order, any number of times, and what is there already stays.

use proptest::prelude::*;
use tokio::runtime::Runtime;
use wideroom::model::{
    ChangeKind, Conversation, ConversationId, ConversationKind, DirectIds, Emoji, Flags, InputHash,
    Membership, MembershipState, Message, Metadata, OrderKey, Profile, Role, Timestamp, Unread,
    UserId,
};
use wideroom::store::{Created, EarlierSend, ImportPositions, ImportRow, Imported, StoreAdmin};

use super::ask::{
    append, assert_all, assert_sound, changes, history, import, import_all, inbox, inbox_ids,
    last_message, make, message, message_count, only, participant, participant_count, participants,
    participation, row, runner, send, send_as, try_row, unread,
};
use crate::support::words::{
    HOUR, NOW, START, change, change_of, conversation, conversation_id, crowd, deleted, direct,
    group_row, id, key, message_row, new, participant_row, participant_row_at, text, user, users,
};

fn at(micros: i64) -> Timestamp {
    START.plus_micros(micros)
}

/// One of each kind, and more of some.
fn some_rows(ann: &UserId, ben: &UserId) -> Vec<ImportRow> {
    let profile = Profile {
        display_name: Some("Ann".to_owned()),
        avatar_url: None,
        metadata: None,
        last_seen_at: Some(START),
    };
    let positions = ImportPositions {
        read_up_to: Some(id(3)),
        delivered_up_to: Some(id(4)),
        ..ImportPositions::default()
    };
    let group = conversation_id(1);
    let mut rows = vec![
        ImportRow::User {
            user: ann.clone(),
            profile,
            restriction: Default::default(),
        },
        group_row(group, Some(at(900))),
        participant_row_at(group, ann, positions),
        participant_row(group, ben),
    ];
    rows.extend((1..6).map(|micros| message_row(text(group, id(micros), ben))));
    rows
}

pub async fn importing_twice_is_importing_once(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let rows = some_rows(&ann, &ben);
    import_all(store, &rows).await;
    let group = conversation_id(1);
    let before = (
        inbox(store, &ann).await,
        inbox(store, &ben).await,
        history(store, group).await,
    );
    let seen = participant(store, group, &ann).await;
    for part in [&rows[..], &rows[4..], &rows[..2]] {
        assert_all(&import(store, part).await, &Imported::Unchanged);
    }
    let doubled: Vec<_> = rows.iter().chain(&rows).cloned().collect();
    assert_all(&import(store, &doubled).await, &Imported::Unchanged);
    assert_eq!(
        (
            inbox(store, &ann).await,
            inbox(store, &ben).await,
            history(store, group).await
        ),
        before
    );
    assert_eq!(participant(store, group, &ann).await, seen);
    assert_eq!(message_count(store, group).await, 5);
    assert_eq!(participant_count(store, group).await, 2);
    // Twice in one call is once, too.
    let twice = [text(group, id(50), &ben), text(group, id(50), &ann)].map(message_row);
    assert_eq!(
        import(store, &twice).await,
        [Imported::Added, Imported::Unchanged]
    );
    assert_eq!(message_count(store, group).await, 6);
    assert_eq!(message(store, group, id(50)).await.unwrap().sender, ben);
}

pub async fn an_import_does_not_change_existing_rows(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    import_all(store, &some_rows(&ann, &ben)).await;
    let [first, second] = [1, 2].map(conversation_id);
    let before = (
        inbox(store, &ann).await,
        participant(store, first, &ann).await,
    );
    let seat = participation(store, first, &ann).await.unwrap();
    let profile = store.profiles(std::slice::from_ref(&ann)).await.unwrap();
    let positions = ImportPositions {
        read_up_to: Some(id(5)),
        ..ImportPositions::default()
    };
    let left = Membership {
        state: MembershipState::Left,
        since: Some(NOW),
        ..Membership::joined(Role::Owner)
    };
    let others = [
        ImportRow::User {
            user: ann.clone(),
            profile: Profile::default(),
            restriction: Default::default(),
        },
        group_row(first, Some(at(5_000))),
        ImportRow::Conversation {
            conversation: conversation(first, ConversationKind::Direct, at(7)),
            last_activity: None,
            profile: Default::default(),
        },
        ImportRow::Participant {
            conversation: first,
            user: ann.clone(),
            membership: left,
            positions,
            ban: None,
        },
        message_row(deleted(first, id(2), &ann)),
    ];
    assert_eq!(
        import(store, &others).await,
        [const { Imported::Unchanged }; 5]
    );
    assert_eq!(
        (
            inbox(store, &ann).await,
            participant(store, first, &ann).await
        ),
        before
    );
    let seat_now = participation(store, first, &ann).await.unwrap();
    assert_eq!(
        (seat_now.conversation, seat_now.membership),
        (seat.conversation, seat.membership)
    );
    assert_eq!(store.profiles(&[ann]).await.unwrap(), profile);
    assert_eq!(message(store, first, id(2)).await.unwrap().sender, ben);
    // Also where it was not an import that made it.
    make(store, second, std::slice::from_ref(&ben)).await;
    send(store, second, 9, &ben).await;
    let rows = [
        group_row(second, Some(at(5_000))),
        participant_row_at(second, &ben, positions),
        message_row(deleted(second, id(9), &ben)),
    ];
    let before = inbox(store, &ben).await;
    assert_eq!(
        import(store, &rows).await,
        [const { Imported::Unchanged }; 3]
    );
    assert_eq!(inbox(store, &ben).await, before);
}

pub async fn messages_may_come_in_any_order(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    import_all(
        store,
        &[group_row(group, None), participant_row(group, &ann)],
    )
    .await;
    for micros in [5, 2, 9, 1, 7] {
        import_all(store, &[message_row(text(group, id(micros), &ben))]).await;
    }
    import_all(
        store,
        &[8, 3, 4, 6].map(|micros| message_row(text(group, id(micros), &ben))),
    )
    .await;
    assert_eq!(
        history(store, group).await,
        (1..10).rev().map(id).collect::<Vec<_>>()
    );
    let row = row(store, &ann, group).await;
    assert_eq!(
        (row.last_message, row.last_activity, row.sent_up_to),
        (Some(id(9)), at(9), None)
    );
    assert_eq!(last_message(store, group).await, Some(id(9)));
    assert_eq!(message_count(store, group).await, 9);
    // A message sent in the meantime stays the last message.
    send(store, group, 50, &ann).await;
    import_all(store, &[message_row(text(group, id(20), &ben))]).await;
    assert_eq!(last_message(store, group).await, Some(id(50)));
    assert_eq!(message_count(store, group).await, 11);
    assert_eq!(inbox(store, &ann).await.len(), 1);
    assert_eq!(history(store, group).await[..3], [50, 20, 9].map(id));
}

pub async fn participants_may_come_after_the_messages(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let [one, other] = [1, 2].map(conversation_id);
    import_all(
        store,
        &[group_row(one, None), group_row(other, Some(at(100)))],
    )
    .await;
    for number in [1, 2] {
        import_all(
            store,
            &[3, 1, 2].map(|micros| message_row(text(conversation_id(number), id(micros), &ben))),
        )
        .await;
        import_all(
            store,
            &[
                participant_row(conversation_id(number), &ann),
                participant_row(conversation_id(number), &ben),
            ],
        )
        .await;
    }
    for user in [&ann, &ben] {
        assert_eq!(inbox_ids(store, user).await, [other, one]);
        let first = row(store, user, one).await;
        assert_eq!(
            (first.last_message, first.last_activity, first.sent_up_to),
            (Some(id(3)), at(3), None),
            "an import sends nothing"
        );
        assert_eq!(row(store, user, other).await.last_activity, at(100));
    }
    let question = unread(
        store,
        &ann,
        one,
        row(store, &ann, one).await.read_up_to(),
        9,
    )
    .await;
    assert_eq!(
        question,
        Unread {
            count: 3,
            is_capped: false,
            first: Some(id(1))
        }
    );
}

pub async fn rows_without_their_conversation_are_not_kept(store: &dyn StoreAdmin) {
    let ann = user("ann");
    let [first, second] = [1, 2].map(conversation_id);
    let rows = [
        participant_row(first, &ann),
        message_row(text(first, id(1), &ann)),
    ];
    assert_eq!(
        import(store, &rows).await,
        [const { Imported::ConversationMissing }; 2]
    );
    assert_eq!(message(store, first, id(1)).await, None);
    import_all(store, &[group_row(first, Some(at(1)))]).await;
    assert_eq!(message_count(store, first).await, 0);
    assert_eq!(participant_count(store, first).await, 0);
    assert!(inbox_ids(store, &ann).await.is_empty());
    import_all(store, &rows).await;
    assert_eq!(history(store, first).await, [id(1)]);
    // The conversation may come in the same call, but before them.
    let late = [
        participant_row(second, &ann),
        group_row(second, None),
        participant_row(second, &ann),
    ];
    assert_eq!(
        import(store, &late).await,
        [
            Imported::ConversationMissing,
            Imported::Added,
            Imported::Added
        ]
    );
}

pub async fn the_activity_that_was_given_wins_over_older_messages(store: &dyn StoreAdmin) {
    let ann = user("ann");
    let [first, second] = [1, 2].map(conversation_id);
    import_all(
        store,
        &[
            group_row(first, Some(at(500))),
            participant_row(first, &ann),
        ],
    )
    .await;
    import_all(
        store,
        &[
            group_row(second, Some(at(400))),
            participant_row(second, &ann),
        ],
    )
    .await;
    import_all(
        store,
        &[
            message_row(text(first, id(10), &ann)),
            message_row(text(second, id(450), &ann)),
        ],
    )
    .await;
    let activity = async |number| {
        row(store, &ann, conversation_id(number))
            .await
            .last_activity
    };
    assert_eq!(
        (activity(1).await, activity(2).await),
        (at(500), at(450)),
        "the later of the two"
    );
    assert_eq!(inbox_ids(store, &ann).await, [first, second]);
    send(store, second, 499, &ann).await;
    assert_eq!(inbox_ids(store, &ann).await, [first, second]);
    send(store, second, 501, &ann).await;
    assert_eq!(inbox_ids(store, &ann).await, [second, first]);
    send(store, first, 600, &ann).await;
    assert_eq!(
        activity(1).await,
        at(600),
        "a send is later than what was given"
    );
    assert_eq!(inbox_ids(store, &ann).await, [first, second]);
}

pub async fn without_one_the_last_message_is_the_activity(store: &dyn StoreAdmin) {
    let ann = user("ann");
    // As in the sample: the ids lie long before the conversation was made.
    let year = 365 * 24 * HOUR;
    for (number, micros) in [(1, 3), (2, 1), (3, 2)] {
        import_all(
            store,
            &[
                group_row(conversation_id(number), None),
                participant_row(conversation_id(number), &ann),
            ],
        )
        .await;
        import_all(
            store,
            &[message_row(text(
                conversation_id(number),
                id(micros - year),
                &ann,
            ))],
        )
        .await;
        assert_eq!(
            row(store, &ann, conversation_id(number))
                .await
                .last_activity,
            at(micros - year)
        );
    }
    assert_eq!(inbox_ids(store, &ann).await, [1, 3, 2].map(conversation_id));
}

fn direct_rows(id: ConversationId, one: &UserId, other: &UserId) -> [ImportRow; 3] {
    let made = ImportRow::Conversation {
        conversation: conversation(id, ConversationKind::Direct, START),
        last_activity: Some(START),
        profile: Default::default(),
    };
    [made, participant_row(id, one), participant_row(id, other)]
}

pub async fn a_pair_that_is_taken_refuses_another(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    store
        .create_conversation(&direct(&ann, &ben))
        .await
        .unwrap();
    let there = ConversationId::direct(&ann, &ben);
    let fates = import(store, &direct_rows(conversation_id(7), &ben, &ann)).await;
    assert!(
        matches!(fates.last(), Some(Imported::Refused(_))),
        "{fates:?}"
    );
    assert_eq!(
        store.direct_conversation(&ann, &ben).await.unwrap(),
        Some(there)
    );
    assert_eq!(inbox_ids(store, &ann).await, [there]);
}

pub async fn an_imported_pair_is_found_and_made_no_second_time(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    import_all(store, &direct_rows(conversation_id(7), &ann, &ben)).await;
    assert_eq!(
        store.direct_conversation(&ben, &ann).await.unwrap(),
        Some(conversation_id(7))
    );
    let again = store
        .create_conversation(&direct(&ann, &ben))
        .await
        .unwrap();
    assert!(matches!(again, Created::Existing(there) if there.id == conversation_id(7)));
    assert_eq!(inbox_ids(store, &ann).await, [conversation_id(7)]);
    // With oneself, as an export of ours brings it.
    let own = ConversationId::direct(&ann, &ann);
    import_all(store, &direct_rows(own, &ann, &ann)[..2]).await;
    assert_eq!(
        store.direct_conversation(&ann, &ann).await.unwrap(),
        Some(own)
    );
}

pub async fn a_lone_participant_is_with_oneself_if_the_id_says_so(store: &dyn StoreAdmin) {
    let [ann, ben, cat, dan] = users(["ann", "ben", "cat", "dan"]);
    let ids = DirectIds::new([7; DirectIds::SECRET_BYTES]);
    let (given, own, of_dan) = (conversation_id(7), ids.id(&ann, &ann), ids.id(&dan, &dan));
    let found = async |one, other| store.direct_conversation(one, other).await.unwrap();
    // The second participant may come with a later call.
    import_all(store, &direct_rows(given, &ann, &ben)[..2]).await;
    assert_eq!(found(&ann, &ann).await, None);
    import_all(store, &direct_rows(own, &ann, &ann)[..2]).await;
    assert_eq!(found(&ann, &ann).await, Some(own));
    import_all(store, &[participant_row(given, &ben)]).await;
    assert_eq!(found(&ann, &ben).await, Some(given));
    assert_eq!(found(&ann, &ann).await, Some(own));
    // Nobody comes into a conversation with oneself, in whichever order.
    import_all(store, &direct_rows(of_dan, &ben, &dan)[..2]).await;
    for (conversation, user, reason) in [
        (own, &ben, "the id is of a conversation with oneself"),
        (of_dan, &dan, "the id is of a conversation with oneself"),
        (
            given,
            &cat,
            "a direct conversation has at most two participants",
        ),
    ] {
        let fates = import(store, &[participant_row(conversation, user)]).await;
        assert_eq!(fates, [Imported::Refused(reason)]);
    }
    assert_eq!(found(&ben, &dan).await, None);
    assert_eq!(found(&dan, &dan).await, None);
    assert_sound(store).await;
}

pub async fn markers_and_flags_are_kept(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let flags = Flags {
        is_muted: true,
        is_pinned: true,
        archived_at: Some(at(77)),
        level: None,
    };
    let positions = ImportPositions {
        read_up_to: Some(id(3)),
        delivered_up_to: Some(id(4)),
        flags,
        ..ImportPositions::default()
    };
    let owner = Membership {
        state: MembershipState::Joined,
        since: Some(at(2)),
        ..Membership::joined(Role::Owner)
    };
    let group = conversation_id(1);
    import_all(
        store,
        &[
            group_row(group, None),
            ImportRow::Participant {
                conversation: group,
                user: ann.clone(),
                membership: owner,
                positions,
                ban: None,
            },
            participant_row(group, &ben),
        ],
    )
    .await;
    import_all(
        store,
        &(1..7)
            .map(|micros| message_row(text(group, id(micros), &ben)))
            .collect::<Vec<_>>(),
    )
    .await;
    let row_of_ann = row(store, &ann, group).await;
    assert_eq!(
        (row_of_ann.read_up_to(), row_of_ann.flags),
        (id(3).order_key(), flags)
    );
    let of_ann = participant(store, group, &ann).await.unwrap();
    assert_eq!(
        (of_ann.read_up_to, of_ann.delivered_up_to),
        (id(3).order_key(), id(4).order_key())
    );
    assert_eq!(of_ann.membership, owner);
    let row_of_ben = row(store, &ben, group).await;
    assert_eq!(
        (row_of_ben.read_up_to(), row_of_ben.flags),
        (OrderKey::MIN, Flags::default())
    );
    assert_eq!(
        unread(store, &ann, group, row_of_ann.read_up_to(), 9)
            .await
            .first,
        Some(id(4))
    );
    send(store, group, 99, &ben).await;
    assert_eq!(
        row(store, &ann, group).await.flags,
        flags,
        "a send leaves flags alone"
    );
}

pub async fn a_mark_of_unread_puts_the_marker_before_its_message(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let positions = ImportPositions {
        read_up_to: Some(id(5)),
        unread_from: Some(id(3)),
        ..ImportPositions::default()
    };
    let group = conversation_id(1);
    import_all(
        store,
        &[
            group_row(group, None),
            participant_row_at(group, &ann, positions),
        ],
    )
    .await;
    import_all(
        store,
        &(1..7)
            .map(|micros| message_row(text(group, id(micros), &ben)))
            .collect::<Vec<_>>(),
    )
    .await;
    let marker = row(store, &ann, group).await;
    let question = unread(store, &ann, group, marker.read_up_to(), 9).await;
    assert_eq!(
        question,
        Unread {
            count: 4,
            is_capped: false,
            first: Some(id(3))
        }
    );
    assert_eq!(
        participant(store, group, &ann).await.unwrap().read_up_to,
        id(5).order_key(),
        "the receipt stays"
    );
    assert!(
        marker.marker.epoch > 0,
        "an import that is read again after it, of an earlier epoch, comes too late"
    );
}

pub async fn an_imported_participant_who_left_has_no_inbox_entry(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let left = Membership {
        state: MembershipState::Left,
        since: Some(at(4)),
        ..Membership::joined(Role::Member)
    };
    let group = conversation_id(1);
    let row_of_ben = ImportRow::Participant {
        conversation: group,
        user: ben.clone(),
        membership: left,
        positions: ImportPositions::default(),
        ban: None,
    };
    import_all(
        store,
        &[
            group_row(group, Some(START)),
            participant_row(group, &ann),
            row_of_ben,
        ],
    )
    .await;
    import_all(store, &[message_row(text(group, id(3), &ben))]).await;
    let check = async |last: i64| {
        assert_eq!(
            participation(store, group, &ben).await.unwrap().membership,
            left
        );
        assert_eq!(
            participant(store, group, &ben).await.unwrap().membership,
            left
        );
        assert_eq!(participants(store, group).await, std::slice::from_ref(&ann));
        assert_eq!(participant_count(store, group).await, 1);
        assert_eq!(try_row(store, &ben, group).await, None);
        assert!(inbox_ids(store, &ben).await.is_empty());
        assert_eq!(
            store.inbox_changes(&ben, OrderKey::MIN, 9).await.unwrap(),
            Some(Vec::new())
        );
        assert_eq!(row(store, &ann, group).await.last_message, Some(id(last)));
    };
    check(3).await;
    let audience = send_as(store, group, id(10), &ann).await;
    assert_eq!(audience.users.as_deref(), Some(std::slice::from_ref(&ann)));
    check(10).await;
}

pub async fn the_33rd_participant_makes_it_large(store: &dyn StoreAdmin) {
    let people = crowd(35);
    let [first, second] = [1, 2].map(conversation_id);
    make(store, second, &people[..1]).await;
    import_all(store, &[group_row(first, Some(at(2)))]).await;
    let is_large = async || {
        participation(store, first, &people[0])
            .await
            .unwrap()
            .conversation
            .is_large
    };
    let fan_out = Conversation::FAN_OUT_MAX;
    import_all(
        store,
        &people[..fan_out]
            .iter()
            .map(|user| participant_row(first, user))
            .collect::<Vec<_>>(),
    )
    .await;
    send(store, first, 10, &people[3]).await;
    assert!(!is_large().await);
    assert!(
        store
            .large_conversations(&people[0])
            .await
            .unwrap()
            .is_empty()
    );
    send(store, second, 15, &people[0]).await;
    import_all(store, &[participant_row(first, &people[fan_out])]).await;
    assert!(is_large().await);
    assert_eq!(
        inbox_ids(store, &people[0]).await,
        [second, first],
        "its position is what it was"
    );
    for micros in [20, 30] {
        assert!(
            send_as(store, first, id(micros), &people[7])
                .await
                .users
                .is_none()
        );
        import(
            store,
            &[
                participant_row(first, &people[33]),
                participant_row(first, &people[34]),
            ],
        )
        .await;
        for user in [&people[0], &people[7], &people[32], &people[34]] {
            assert_eq!(store.large_conversations(user).await.unwrap(), [first]);
            let inbox = inbox(store, user).await;
            assert_eq!(
                (
                    inbox[0].conversation,
                    inbox[0].last_message,
                    inbox[0].last_activity
                ),
                (first, Some(id(micros)), at(micros))
            );
            assert_eq!(
                inbox.iter().filter(|row| row.conversation == first).count(),
                1
            );
        }
    }
    assert_eq!(row(store, &people[3], first).await.sent_up_to, Some(id(10)));
    assert_eq!(participant_count(store, first).await, 35);
}

pub async fn a_deleted_message_is_counted_but_has_no_content(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    let gone = deleted(group, id(9), &ben);
    import_all(
        store,
        &[
            message_row(text(group, id(5), &ben)),
            message_row(gone.clone()),
        ],
    )
    .await;
    assert_eq!(message(store, group, id(9)).await.as_deref(), Some(&gone));
    assert_eq!(
        only(store.messages_at(&[(group, OrderKey::MAX)]).await.unwrap()).as_deref(),
        Some(&gone)
    );
    assert_eq!(last_message(store, group).await, Some(id(9)));
    assert_eq!(message_count(store, group).await, 2);
    assert_eq!(history(store, group).await, [id(9), id(5)]);
    let unread = unread(store, &ann, group, OrderKey::MIN, 9).await;
    assert_eq!(
        unread,
        Unread {
            count: 1,
            is_capped: false,
            first: Some(id(5))
        }
    );
}

pub async fn the_sends_of_the_last_day_are_recognised(store: &dyn StoreAdmin) {
    let ann = user("ann");
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    let message = |micros, text_of_key: &str| Message {
        client_key: Some(key(text_of_key)),
        ..text(group, id(micros), &ann)
    };
    let (old, young) = (
        message(-25 * HOUR, "old"),
        Message {
            reply_to: Some(id(1)),
            ..message(-20 * HOUR, "young")
        },
    );
    let gone = Message {
        client_key: Some(key("gone")),
        ..deleted(group, id(-HOUR), &ann)
    };
    import_all(store, &[old, young.clone(), gone].map(message_row)).await;
    let keys = ["old", "young", "other"].map(|text| (ann.clone(), key(text)));
    let input_hash = InputHash::of_send(young.content.as_ref().unwrap(), young.reply_to);
    let recognised = Some(EarlierSend {
        message: young.id,
        input_hash,
        is_delivered: false,
    });
    assert_eq!(
        store.earlier_sends(group, &keys).await.unwrap(),
        [None, recognised, None]
    );
    // A retry of a deleted message creates no second message either, because no input has its hash.
    let deleted = only(
        store
            .earlier_sends(group, &[(ann.clone(), key("gone"))])
            .await
            .unwrap(),
    );
    assert_eq!(deleted.map(|send| send.message), Some(id(-HOUR)));
    // An older import does not overwrite the idempotency record of a live send.
    let live = message(7, "live");
    let kept = new(live.clone());
    append(store, group, std::slice::from_ref(&kept)).await;
    import(store, &[message_row(message(3, "live"))]).await;
    let found = only(
        store
            .earlier_sends(group, &[(ann.clone(), key("live"))])
            .await
            .unwrap(),
    );
    assert_eq!(found.unwrap().message, live.id);
}

pub async fn the_send_of_a_changed_message_is_recognised(store: &dyn StoreAdmin) {
    let ann = user("ann");
    let hash = wideroom::model::InputHash([7; 32]);
    let group = conversation_id(1);
    let keyed = Message {
        client_key: Some(key("k")),
        ..text(group, id(-HOUR), &ann)
    };
    let id = keyed.id;
    let row = ImportRow::ChangedMessage(keyed.into(), hash);
    store.import(&[group_row(group, None), row]).await.unwrap();
    let sends = store
        .earlier_sends(group, &[(ann, key("k"))])
        .await
        .unwrap();
    let send = only(sends).expect("the key is young");
    assert_eq!((send.message, send.input_hash), (id, hash));
}

pub async fn profiles_are_kept(store: &dyn StoreAdmin) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let full = Profile {
        display_name: Some("Ann Ü".to_owned()),
        avatar_url: Some("https://example.org/a".to_owned()),
        metadata: Metadata::parse(r#"{"team":7}"#, 100).ok(),
        last_seen_at: Some(NOW),
    };
    let rows = [(&ann, &full), (&cat, &Profile::default())];
    import_all(
        store,
        &rows.map(|(user, profile)| ImportRow::User {
            user: user.clone(),
            profile: profile.clone(),
            restriction: Default::default(),
        }),
    )
    .await;
    let found = store.profiles(&[cat, ben, ann.clone(), ann]).await.unwrap();
    assert_eq!(
        found,
        [
            Some(Profile::default()),
            None,
            Some(full.clone()),
            Some(full)
        ]
    );
}

pub async fn each_row_has_its_own_fate(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    import_all(store, &direct_rows(conversation_id(7), &ann, &ben)).await;
    let [made, first, second] = direct_rows(conversation_id(8), &ann, &ben);
    let mut rows = vec![
        participant_row(conversation_id(9), &ann),
        made,
        first,
        second,
    ];
    let group = conversation_id(1);
    rows.extend([
        group_row(group, None),
        participant_row(group, &ann),
        message_row(text(group, id(4), &ann)),
    ]);
    rows.push(participant_row(group, &ann));
    let fates = import(store, &rows).await;
    assert_eq!(fates[0], Imported::ConversationMissing);
    assert!(matches!(fates[3], Imported::Refused(_)), "{fates:?}");
    assert_eq!(
        fates[4..],
        [
            Imported::Added,
            Imported::Added,
            Imported::Added,
            Imported::Unchanged
        ]
    );
    assert_eq!(
        history(store, group).await,
        [id(4)],
        "what follows a refused row is kept"
    );
    assert!(import(store, &[]).await.is_empty());
}

fn reaction_row(message: i64, emoji: &str, user: &UserId) -> ImportRow {
    ImportRow::Reaction {
        conversation: conversation_id(1),
        message: id(message),
        emoji: Emoji::parse(emoji).unwrap(),
        user: user.clone(),
    }
}

async fn reactions(store: &dyn StoreAdmin, micros: i64) -> Vec<(String, Vec<UserId>)> {
    let read = only(
        store
            .reactions(&user("nobody"), &[(conversation_id(1), id(micros))])
            .await
            .unwrap(),
    );
    read.into_iter()
        .filter(|one| one.count > 0)
        .map(|one| (one.emoji.to_string(), one.users))
        .collect()
}

pub async fn a_reaction_is_imported_once_and_waits_for_its_message(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let row = || reaction_row(1, "👍", &ben);
    assert_eq!(
        import(store, &[row()]).await,
        [Imported::ConversationMissing]
    );
    let group = conversation_id(1);
    import_all(
        store,
        &[group_row(group, None), participant_row(group, &ann)],
    )
    .await;
    assert_eq!(import(store, &[row()]).await, [Imported::MessageMissing]);
    let said = message_row(text(group, id(1), &ann));
    assert_eq!(
        import(store, &[row(), said, row(), row()]).await[2..],
        [Imported::Added, Imported::Unchanged]
    );
    import_all(
        store,
        &[reaction_row(1, "👍", &ann), reaction_row(1, "🚀", &ann)],
    )
    .await;
    assert_eq!(
        import(store, &[row(), reaction_row(2, "👍", &ann)]).await,
        [Imported::Unchanged, Imported::MessageMissing]
    );
    let [thumb, rocket] = [
        ("👍".to_owned(), vec![ann.clone(), ben]),
        ("🚀".to_owned(), vec![ann]),
    ];
    let mut expected = vec![thumb, rocket];
    expected.sort();
    assert_eq!(reactions(store, 1).await, expected);
    let message = message(store, group, id(1)).await.unwrap();
    assert!(message.has_reactions && message.content.is_some());
    assert_eq!(changes(store, group).await, [], "an import is no event");
}

pub async fn a_reaction_that_was_taken_back_stays_so(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    send(store, group, 1, &ann).await;
    for (micros, is_on) in [(2, true), (3, false)] {
        let react = change_of(change(micros), ChangeKind::ReactionsChanged, id(1), &ben);
        store
            .react(group, &Emoji::parse("👍").unwrap(), is_on, &react)
            .await
            .unwrap();
    }
    assert_eq!(
        import(store, &[reaction_row(1, "👍", &ben)]).await,
        [Imported::Unchanged]
    );
    assert_eq!(reactions(store, 1).await, []);
}

pub fn the_order_of_an_import_does_not_matter(runtime: &Runtime, store: &dyn StoreAdmin) {
    let people = users(["ann", "ben", "cat"]);
    // Conversations come first; then all others in any order and in any pieces.
    let shuffled = Just((0..14_usize).collect::<Vec<_>>()).prop_shuffle();
    let case = (shuffled, 1..15_usize, proptest::option::of(0..9_i64));
    let outcome = runner(40).run(&case, |(order, piece, given)| {
        runtime.block_on(async {
            let conversation = ConversationId(uuid::Uuid::new_v4());
            let mut rows: Vec<ImportRow> = Vec::new();
            let positions = ImportPositions {
                read_up_to: Some(id(2)),
                ..ImportPositions::default()
            };
            rows.extend(
                people
                    .iter()
                    .map(|user| participant_row_at(conversation, user, positions)),
            );
            rows.extend((0..6).map(|n| message_row(text(conversation, id(n), &people[0]))));
            rows.extend((1..6).map(|n| message_row(text(conversation, id(n), &people[0]))));
            import_all(store, &[group_row(conversation, given.map(at))]).await;
            let rows: Vec<_> = order.iter().map(|n| rows[*n].clone()).collect();
            for rows in rows.chunks(piece) {
                import(store, rows).await;
            }
            assert_eq!(
                history(store, conversation).await,
                (0..6).rev().map(id).collect::<Vec<_>>()
            );
            assert_eq!(message_count(store, conversation).await, 6);
            for user in &people {
                let row = row(store, user, conversation).await;
                assert_eq!(
                    (row.last_message, row.last_activity),
                    (Some(id(5)), at(given.unwrap_or(0).max(5)))
                );
                assert_eq!(row.read_up_to(), id(2).order_key());
                assert_eq!(
                    inbox(store, user)
                        .await
                        .iter()
                        .filter(|row| row.conversation == conversation)
                        .count(),
                    1
                );
            }
        });
        Ok(())
    });
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}
