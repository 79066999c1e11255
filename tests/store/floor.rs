//! Bounds of histories: settings of a conversation, bounds of its participants, and counts above a position.

use wideroom::model::{
    ChangeKind, ConversationId, HistorySettings, HistoryVisibility, Membership, OrderKey,
    OutboxEvent, PageRequest, PostingRoles, Role, TimeUuid, UserId,
};
use wideroom::store::{
    ImportPositions, ImportRow, Imported, MembershipChange, MembershipTransition, Store,
    StoreAdmin, TransitionKind,
};

use super::ask::{exported, history, make, only, participation, send};
use super::membership::{changing, joins};
use crate::support::words::{
    START, change, change_of, conversation_id, crowd, group_row, id, users,
};

const SETTINGS: HistorySettings = HistorySettings {
    visibility: HistoryVisibility::SinceJoined,
    ttl_seconds: Some(3_600),
    floor: OrderKey::MIN,
    roles: PostingRoles {
        send: Role::Admin,
        add: Role::Owner,
        pin: Some(Role::Member),
    },
};

fn bounded() -> Membership {
    Membership {
        visible_from: id(7).order_key(),
        cleared_up_to: id(9).order_key(),
        asked_ttl_seconds: Some(60),
        ..Membership::joined(Role::Member)
    }
}

/// A change that no message announces.
fn unannounced(
    micros: i64,
    seen: Option<TimeUuid>,
    actor: &UserId,
    history: Option<HistorySettings>,
    kind: Option<ChangeKind>,
) -> MembershipChange {
    let change = |kind| change_of(id(micros), kind, id(micros), actor);
    MembershipChange {
        seen,
        transitions: Vec::new(),
        changes: kind.map(change).into_iter().collect(),
        message: None,
        version: id(micros),
        bans: Vec::new(),
        history,
    }
}

fn clears(micros: i64, seen: Option<TimeUuid>, user: &UserId) -> MembershipChange {
    let transition = MembershipTransition {
        user: user.clone(),
        kind: TransitionKind::Clears,
        membership: bounded(),
    };
    MembershipChange {
        transitions: vec![transition],
        ..unannounced(micros, seen, user, None, None)
    }
}

async fn settings(store: &dyn Store, on: ConversationId, user: &UserId) -> HistorySettings {
    let own = participation(store, on, user).await.unwrap();
    let found = only(store.conversations(&[on]).await.unwrap()).unwrap();
    let version = store.membership_version(on).await.unwrap().unwrap();
    let snapshot = store.membership_snapshot(on, &[]).await.unwrap().unwrap();
    let settings = own.conversation.history;
    assert_eq!(settings, found.history);
    assert_eq!(settings, version.conversation.history);
    assert_eq!(settings, snapshot.conversation.history);
    settings
}

async fn changed(store: &dyn Store, user: &UserId, after: i64) -> Vec<ConversationId> {
    let after = id(after).order_key();
    let rows = store
        .inbox_changes(user, after, 100)
        .await
        .unwrap()
        .unwrap();
    rows.into_iter().map(|row| row.conversation).collect()
}

pub async fn settings_of_a_history_are_changed_with_the_membership(store: &dyn StoreAdmin) {
    let people = users(["ann", "ben"]);
    for (on, people) in [
        (conversation_id(1), people.to_vec()),
        (conversation_id(2), crowd(40)),
    ] {
        let ann = &people[0];
        make(store, on, &people).await;
        assert_eq!(settings(store, on, ann).await, HistorySettings::default());
        send(store, on, 5, ann).await;
        let announced = MembershipChange {
            history: Some(SETTINGS),
            ..changing(on, 20, Some(change(0)), &[joins(&user("guest"), 20)])
        };
        for _ in 0..2 {
            let audience = store.change_membership(on, &announced).await.unwrap();
            assert!(audience.is_some());
            assert_eq!(settings(store, on, ann).await, SETTINGS);
        }
        // A floor that rises without a message shows in every inbox.
        let raised = HistorySettings {
            floor: id(5).order_key(),
            ..SETTINGS
        };
        let seen = Some(id(20));
        let kind = Some(ChangeKind::HistoryRaised);
        let raise = unannounced(30, seen, ann, Some(raised), kind);
        for _ in 0..2 {
            let audience = store.change_membership(on, &raise).await.unwrap();
            let told = audience.unwrap().users.map(|users| users.len());
            assert_eq!(told, (people.len() == 2).then_some(3));
            assert_eq!(settings(store, on, ann).await, raised);
        }
        assert_eq!(changed(store, &people[1], 25).await, [on]);
        assert_eq!(history(store, on).await, [id(20), id(5)]);
        let stale = unannounced(40, seen, ann, Some(SETTINGS), None);
        let outcome = store.change_membership(on, &stale).await.unwrap();
        assert!(outcome.is_none(), "another change came first");
        assert_eq!(settings(store, on, ann).await, raised);
        assert_eq!(exported(store, on).await.history, raised);
    }
}

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub async fn a_bound_of_one_user_changes_that_users_inbox_alone(store: &dyn StoreAdmin) {
    let people = users(["ann", "ben"]);
    for (on, people) in [
        (conversation_id(1), people.to_vec()),
        (conversation_id(2), crowd(40)),
    ] {
        let [ann, ben] = [&people[0], &people[1]];
        make(store, on, &people).await;
        send(store, on, 5, ann).await;
        let clear = clears(30, Some(change(0)), ben);
        for _ in 0..2 {
            let audience = store.change_membership(on, &clear).await.unwrap();
            assert!(
                audience
                    .unwrap()
                    .users
                    .is_some_and(|users| users.is_empty())
            );
            let own = participation(store, on, ben).await.unwrap();
            assert_eq!(own.membership, bounded());
        }
        let by_name = store.participants_by_name(&[(on, ben.clone())]).await;
        assert_eq!(only(by_name.unwrap()).unwrap().membership, bounded());
        assert_eq!(changed(store, ben, 25).await, [on]);
        let version = store.membership_version(on).await.unwrap().unwrap();
        assert_eq!(version.version, Some(id(30)));
        assert!(!version.keeps(ben, Some(change(0))), "the bound has moved");
        let counts = store.participant_counts(&[on]).await.unwrap();
        assert_eq!(counts, [people.len() as u64]);
        let listed = store.inbox(ben, &PageRequest::first(9)).await.unwrap();
        assert!(listed.items.iter().any(|row| row.conversation == on));
        let exported = store.all_participants(on, None, 100).await.unwrap();
        let exported = exported.into_iter().find(|(user, ..)| user == ben);
        assert_eq!(exported.unwrap().1, bounded());
    }
}

pub async fn bounds_of_an_import_are_read_back(store: &dyn StoreAdmin) {
    let on = conversation_id(1);
    let ImportRow::Conversation {
        conversation,
        last_activity,
        profile,
    } = group_row(on, None)
    else {
        panic!("a row of a group")
    };
    let history = HistorySettings {
        floor: id(3).order_key(),
        ..SETTINGS
    };
    let rows = [
        ImportRow::Conversation {
            conversation: wideroom::model::Conversation {
                history,
                ..conversation
            },
            last_activity,
            profile,
        },
        ImportRow::Participant {
            conversation: on,
            user: user("ann"),
            membership: bounded(),
            positions: ImportPositions::default(),
            ban: None,
        },
    ];
    let imported = store.import(&rows).await.unwrap();
    assert_eq!(imported, [Imported::Added, Imported::Added]);
    assert_eq!(settings(store, on, &user("ann")).await, history);
    let own = participation(store, on, &user("ann")).await;
    let owner = Membership {
        role: Role::Owner,
        ..bounded()
    };
    assert_eq!(own.unwrap().membership, owner);
}

pub async fn a_rising_floor_is_an_event_of_the_outbox(store: &dyn StoreAdmin) {
    let [ann] = users(["ann"]);
    let on = conversation_id(1);
    store.set_outbox(Some(START)).await.unwrap();
    store.outbox_since().await.unwrap();
    make(store, on, std::slice::from_ref(&ann)).await;
    let kind = Some(ChangeKind::HistoryRaised);
    let raise = unannounced(30, Some(change(0)), &ann, Some(SETTINGS), kind);
    store.change_membership(on, &raise).await.unwrap();
    let events = super::outbox::events_of(store, on).await;
    assert_eq!(
        events.last(),
        Some(&OutboxEvent::of_change(&raise.changes[0]))
    );
}

pub async fn messages_after_a_position_are_counted(store: &dyn StoreAdmin) {
    let people = users(["ann", "ben"]);
    let [on, other] = [conversation_id(1), conversation_id(2)];
    for conversation in [on, other] {
        make(store, conversation, &people).await;
    }
    // In several buckets, and in one.
    let day = 86_400_000_000;
    let sent: Vec<i64> = (0..4)
        .flat_map(|n| [n * 11 * day + 10, n * 11 * day + 20])
        .collect();
    for micros in &sent {
        send(store, on, *micros, &people[0]).await;
    }
    send(store, other, 5, &people[0]).await;
    let count = async |position: OrderKey| {
        only(store.message_counts_after(&[(on, position)]).await.unwrap())
    };
    let ascending = sent.iter().chain(&sent);
    for (index, micros) in ascending.enumerate() {
        let left = (sent.len() - 1 - index % sent.len()) as u64;
        assert_eq!(count(id(*micros).order_key()).await, left);
        assert_eq!(count(id(*micros).order_key().before()).await, left + 1);
    }
    assert_eq!(count(OrderKey::MIN).await, sent.len() as u64);
    assert_eq!(count(OrderKey::MAX.before()).await, 0);
    send(store, on, 50 * day, &people[1]).await;
    assert_eq!(count(id(sent[6]).order_key()).await, 2);
    let nowhere = conversation_id(9);
    let all = [(other, OrderKey::MIN), (nowhere, OrderKey::MIN)];
    assert_eq!(store.message_counts_after(&all).await.unwrap(), [1, 0]);
}
