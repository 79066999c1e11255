//! Bans and silences: states of a membership, changed with or without a SYSTEM message.

use futures_util::future::join;
use wideroom::model::{
    Ban, ChangeKind, ConversationId, Membership, MembershipState, OutboxEvent, PageRequest, Role,
    Silence, TimeUuid, Timestamp, UserId,
};
use wideroom::store::{
    BanChange, ImportPositions, ImportRow, Imported, MembershipChange, MembershipTransition, Store,
    StoreAdmin, TransitionKind,
};

use super::ask::{
    exported, findings, history, inbox, make, newest_event, only, participant, participant_count,
    participation, send,
};
use super::membership::{changing, joins};
use super::outbox::events_of;
use super::stage::Stage;
use crate::support::words::{
    START, change, change_of, conversation_id, crowd, group_row, id, users,
};

/// A moment that has passed on every clock of a test, and one that has not.
fn ended() -> Timestamp {
    START.plus_micros(1)
}

fn far() -> Timestamp {
    Timestamp::parse("2200-01-01T00:00:00Z").unwrap()
}

fn ban(user: &UserId, by: &UserId, until: Option<Timestamp>, reason: Option<&str>) -> Ban {
    Ban {
        user: user.clone(),
        by: by.clone(),
        at: START,
        until,
        reason: reason.map(str::to_owned),
    }
}

fn banned(until: Option<Timestamp>) -> Membership {
    Membership {
        state: MembershipState::Banned,
        since: Some(START),
        banned_until: until,
        ..Membership::joined(Role::Member)
    }
}

fn silenced(until: Option<Timestamp>) -> Membership {
    Membership {
        silence: Some(Silence {
            since: START,
            until,
        }),
        ..Membership::joined(Role::Member)
    }
}

/// A change of one user's membership that no message announces.
fn unannounced(
    micros: i64,
    seen: Option<TimeUuid>,
    user: &UserId,
    membership: Membership,
    bans: Vec<BanChange>,
) -> MembershipChange {
    let transition = MembershipTransition {
        user: user.clone(),
        kind: TransitionKind::Stays,
        membership,
    };
    let update = change_of(id(micros), ChangeKind::ParticipantUpdated, id(micros), user);
    MembershipChange {
        seen,
        transitions: vec![transition],
        changes: if bans.is_empty() {
            vec![update]
        } else {
            Vec::new()
        },
        message: None,
        version: id(micros),
        bans,
        history: None,
    }
}

/// Bans a participant, with the message of the removal.
fn removing(micros: i64, seen: Option<TimeUuid>, ban: &Ban) -> MembershipChange {
    let transition = MembershipTransition {
        user: ban.user.clone(),
        kind: TransitionKind::Leaves,
        membership: banned(ban.until),
    };
    MembershipChange {
        bans: vec![BanChange::Set(ban.clone())],
        ..changing(conversation_id(1), micros, seen, &[transition])
    }
}

async fn decide(store: &dyn Store, change: &MembershipChange) {
    let decided = store.change_membership(conversation_id(1), change).await;
    assert!(decided.unwrap().is_some());
}

async fn bans(store: &dyn Store) -> Vec<Ban> {
    let page = PageRequest::first(100);
    store.bans(conversation_id(1), &page).await.unwrap().items
}

async fn membership(
    store: &dyn Store,
    conversation: ConversationId,
    user: &UserId,
) -> Option<Membership> {
    let own = store.participations(user, &[conversation]).await.unwrap();
    only(own).map(|own| own.membership)
}

pub async fn a_banned_participant_is_listed_until_the_ban_is_lifted(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let on = conversation_id(1);
    make(store, on, &[ann.clone(), ben.clone()]).await;
    let one = ban(&ben, &ann, Some(far()), Some("spam"));
    for _ in 0..2 {
        decide(store, &removing(10, Some(change(0)), &one)).await;
    }
    assert_eq!(bans(store).await, std::slice::from_ref(&one));
    assert_eq!(membership(store, on, &ben).await, Some(banned(Some(far()))));
    assert!(
        !participant(store, on, &ben)
            .await
            .unwrap()
            .membership
            .is_joined()
    );
    assert_eq!(inbox(store, &ben).await, []);
    assert_eq!(participant_count(store, on).await, 1);
    assert_eq!(history(store, on).await, [id(10)]);
    let named = [ann.clone(), ben.clone()];
    let found = store.bans_of(on, &named).await.unwrap();
    assert_eq!(found, [None, Some(one.clone())]);
    // A second ban replaces the first; a retry of the lifting changes nothing.
    let other = ban(&ben, &ben, None, None);
    let again = vec![BanChange::Set(other.clone())];
    let again = unannounced(20, Some(id(10)), &ben, banned(None), again);
    decide(store, &again).await;
    assert_eq!(bans(store).await, [other]);
    let left = Membership {
        state: MembershipState::Left,
        banned_until: None,
        ..banned(None)
    };
    let lift = vec![BanChange::Lift(ben.clone())];
    let lift = unannounced(30, Some(id(20)), &ben, left, lift);
    for _ in 0..2 {
        decide(store, &lift).await;
    }
    assert_eq!(bans(store).await, []);
    assert_eq!(store.ban_count(on, 9).await.unwrap(), 0);
    assert_eq!(membership(store, on, &ben).await, Some(left));
    assert_eq!(history(store, on).await, [id(10)], "nothing announces it");
    decide(store, &changing(on, 40, Some(id(30)), &[joins(&ben, 40)])).await;
    assert!(
        participant(store, on, &ben)
            .await
            .unwrap()
            .membership
            .is_joined()
    );
}

pub async fn bans_are_pages_by_name_without_those_that_have_ended(store: &dyn Store) {
    let people = crowd(12);
    let ann = &people[11];
    make(store, conversation_id(1), std::slice::from_ref(ann)).await;
    let mut seen = Some(change(0));
    for (n, user) in people[..10].iter().enumerate() {
        let micros = 10 * (i64::try_from(n).unwrap() + 1);
        let until = [None, Some(far()), Some(ended())][n % 3];
        let set = vec![BanChange::Set(ban(user, ann, until, None))];
        decide(store, &unannounced(micros, seen, user, banned(until), set)).await;
        seen = Some(id(micros));
    }
    let expected: Vec<_> = people[..10]
        .iter()
        .enumerate()
        .filter(|(n, _)| n % 3 != 2)
        .map(|(_, user)| user.clone())
        .collect();
    assert_eq!(expected.len(), 7);
    let on = conversation_id(1);
    assert_eq!(store.ban_count(on, 100).await.unwrap(), 7);
    assert_eq!(store.ban_count(on, 3).await.unwrap(), 3);
    let names = |bans: Vec<Ban>| bans.into_iter().map(|ban| ban.user).collect::<Vec<_>>();
    let forward = store.bans(on, &PageRequest::first(3)).await.unwrap();
    assert!(forward.has_next && !forward.has_previous);
    assert_eq!(names(forward.items), expected[..3]);
    let rest = PageRequest::first(9).after(expected[2].clone());
    let rest = store.bans(on, &rest).await.unwrap();
    assert!(!rest.has_next && rest.has_previous);
    assert_eq!(names(rest.items), expected[3..]);
    let backward = PageRequest::last(2).before(expected[5].clone());
    let backward = store.bans(on, &backward).await.unwrap();
    assert!(backward.has_next && backward.has_previous);
    assert_eq!(names(backward.items), expected[3..5]);
    assert_eq!(participant_count(store, on).await, 1);
}

pub async fn a_silence_is_logged_and_shows_in_no_inbox(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let on = conversation_id(1);
    store.set_outbox(Some(START)).await.unwrap();
    make(store, on, &[ann.clone(), ben.clone()]).await;
    send(store, on, 5, &ann).await;
    let before = inbox(store, &ben).await;
    let silence = unannounced(10, Some(change(0)), &ben, silenced(None), Vec::new());
    for _ in 0..2 {
        decide(store, &silence).await;
    }
    let users = store.change_membership(on, &silence).await.unwrap();
    assert_eq!(users.unwrap().users.as_deref(), Some(&[][..]), "nobody");
    assert_eq!(membership(store, on, &ben).await, Some(silenced(None)));
    assert_eq!(
        participant(store, on, &ben).await.unwrap().membership,
        silenced(None)
    );
    assert_eq!(inbox(store, &ben).await, before);
    assert_eq!(history(store, on).await, [id(5)]);
    let position = id(5).order_key();
    assert_eq!(
        store.changes(on, position, 9).await.unwrap(),
        silence.changes
    );
    assert_eq!(newest_event(store, on).await, Some(id(10)));
    let events = events_of(store, on).await;
    assert_eq!(
        events.last(),
        Some(&OutboxEvent::of_change(&silence.changes[0]))
    );
    assert_eq!(events.len(), 3);
    // A change that was decided on the membership before is not persisted.
    let stale = unannounced(20, Some(change(0)), &ben, silenced(Some(far())), Vec::new());
    assert!(store.change_membership(on, &stale).await.unwrap().is_none());
    // The next sends and changes go on from there.
    send(store, on, 15, &ben).await;
    let lift = Membership::joined(Role::Member);
    let lift = unannounced(20, Some(id(10)), &ben, lift, Vec::new());
    decide(store, &lift).await;
    assert_eq!(
        membership(store, on, &ben).await,
        Some(Membership::joined(Role::Member))
    );
    assert_eq!(history(store, on).await, [id(15), id(5)]);
    let version = store.membership_version(on).await.unwrap().unwrap();
    assert_eq!(version.version, Some(id(20)));
    assert!(version.keeps(&ben, Some(id(20))));
}

/// In a large conversation too, and for the successor of an OWNER.
pub async fn a_silence_stays_with_a_successor_and_in_a_large_conversation(store: &dyn Store) {
    let people = crowd(40);
    for (number, count) in [(1, 3), (2, 40)] {
        let on = conversation_id(number);
        make(store, on, &people[..count]).await;
        let user = &people[1];
        let silence = unannounced(10, Some(change(0)), user, silenced(Some(far())), Vec::new());
        let decided = store.change_membership(on, &silence).await.unwrap();
        assert!(decided.is_some());
        let owner = &people[..1];
        let snapshot = store.membership_snapshot(on, owner).await.unwrap().unwrap();
        assert_eq!(snapshot.version, Some(id(10)));
        let (successor, membership) = snapshot.successor.unwrap();
        if successor == *user {
            assert_eq!(membership, silenced(Some(far())));
        }
        let found = participant(store, on, user).await.unwrap();
        assert_eq!(found.membership.silence, silenced(Some(far())).silence);
    }
}

pub async fn participants_are_paged_by_the_beginning_of_their_names(store: &dyn Store) {
    let people = users(["ann", "anna", "annb", "an", "b", "ann\u{10ffff}", "zoë"]);
    let on = conversation_id(1);
    make(store, on, &people).await;
    let prefix = people[0].as_str();
    let names = |items: Vec<wideroom::model::Participant>| {
        items.into_iter().map(|one| one.user).collect::<Vec<_>>()
    };
    let [ann, anna, annb, _, _, last, _] = people.clone();
    let page = PageRequest::first(3);
    let found = store.participants_with_prefix(on, prefix, &page).await;
    let found = found.unwrap();
    assert!(found.has_next && !found.has_previous);
    assert_eq!(
        names(found.items),
        [ann.clone(), anna.clone(), annb.clone()]
    );
    let page = PageRequest::first(3).after(annb.clone());
    let found = store.participants_with_prefix(on, prefix, &page).await;
    let found = found.unwrap();
    assert!(!found.has_next && found.has_previous);
    assert_eq!(names(found.items), std::slice::from_ref(&last));
    let page = PageRequest::last(2);
    let found = store.participants_with_prefix(on, prefix, &page).await;
    let found = found.unwrap();
    assert!(!found.has_next && found.has_previous);
    assert_eq!(names(found.items), [annb.clone(), last.clone()]);
    // No page has a name outside the prefix on its other side.
    let page = PageRequest::last(9).before(anna.clone());
    let found = store.participants_with_prefix(on, prefix, &page).await;
    let found = found.unwrap();
    assert!(found.has_next && !found.has_previous);
    assert_eq!(names(found.items), [ann]);
    let nobody = format!("{prefix}x");
    let page = PageRequest::first(3);
    let found = store.participants_with_prefix(on, &nobody, &page).await;
    assert_eq!(names(found.unwrap().items), []);
}

pub async fn an_import_brings_bans_and_silences(store: &dyn StoreAdmin) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let on = conversation_id(1);
    let row = |user: &UserId, membership: Membership, ban: Option<Ban>| ImportRow::Participant {
        conversation: on,
        user: user.clone(),
        membership,
        positions: ImportPositions::default(),
        ban,
    };
    let one = ban(&ben, &ann, Some(far()), Some("spam"));
    let rows = [
        group_row(on, None),
        row(&ann, Membership::joined(Role::Owner), None),
        row(&ben, banned(Some(far())), Some(one.clone())),
        row(&cat, silenced(None), None),
    ];
    let fates = store.import(&rows).await.unwrap();
    assert_eq!(fates, [const { Imported::Added }; 4]);
    let other = ban(&ben, &cat, None, None);
    let again = [row(&ben, banned(None), Some(other))];
    assert_eq!(store.import(&again).await.unwrap(), [Imported::Unchanged]);
    assert_eq!(bans(store).await, std::slice::from_ref(&one));
    assert_eq!(inbox(store, &ben).await, []);
    let all = store.all_participants(on, None, 9).await.unwrap();
    let memberships: Vec<_> = all.into_iter().map(|(_, one, _)| one).collect();
    assert_eq!(
        memberships,
        [
            Membership::joined(Role::Owner),
            banned(Some(far())),
            silenced(None)
        ]
    );
    let seen = store.membership_snapshot(on, &[]).await.unwrap().unwrap();
    let left = Membership {
        state: MembershipState::Left,
        banned_until: None,
        ..banned(None)
    };
    let lift = vec![BanChange::Lift(ben.clone())];
    decide(store, &unannounced(10, seen.version, &ben, left, lift)).await;
    assert_eq!(bans(store).await, [], "a later change wins");
}

/// A user who is banned and added at once is in the end one of both, as the last decision says.
pub async fn one_of_a_ban_and_a_joining_at_once_is_decided_first(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let on = conversation_id(1);
    make(store, on, std::slice::from_ref(&ann)).await;
    let joining = changing(on, 10, Some(change(0)), &[joins(&ben, 10)]);
    let set = vec![BanChange::Set(ban(&ben, &ann, None, None))];
    let banning = unannounced(20, Some(change(0)), &ben, banned(None), set);
    let (joined, is_banned) = join(
        store.change_membership(on, &joining),
        store.change_membership(on, &banning),
    )
    .await;
    let (joined, is_banned) = (joined.unwrap().is_some(), is_banned.unwrap().is_some());
    assert!(joined != is_banned, "one was decided on the other's state");
    let state = participant(store, on, &ben).await.unwrap().membership.state;
    let expected = if joined {
        MembershipState::Joined
    } else {
        MembershipState::Banned
    };
    assert_eq!(state, expected);
    assert_eq!(bans(store).await.len(), usize::from(is_banned));
    // Decided again on what is there now, the ban wins.
    if joined {
        let one = ban(&ben, &ann, None, None);
        decide(store, &removing(30, Some(id(10)), &one)).await;
        assert_eq!(bans(store).await, [one]);
        assert_eq!(inbox(store, &ben).await, []);
    }
}

pub async fn a_slow_mode_is_logged_and_shows_in_no_inbox(store: &dyn StoreAdmin) {
    let people = crowd(40);
    store.set_outbox(Some(START)).await.unwrap();
    for (number, count) in [(1, 2), (2, 40)] {
        let (on, ann) = (conversation_id(number), &people[0]);
        make(store, on, &people[..count]).await;
        send(store, on, 5, ann).await;
        let before = inbox(store, &people[1]).await;
        let update =
            |micros| change_of(id(micros), ChangeKind::ConversationUpdated, id(micros), ann);
        for (micros, seconds) in [(10, 30), (20, 0), (30, 21_600)] {
            for _ in 0..2 {
                let update = update(micros);
                let set = store.set_slow_mode(on, seconds, &update).await;
                set.unwrap();
            }
            let own = participation(store, on, ann).await;
            assert_eq!(own.unwrap().conversation.slow_mode_seconds, seconds);
            let found = only(store.conversations(&[on]).await.unwrap()).unwrap();
            assert_eq!(found.slow_mode_seconds, seconds);
            let version = store.membership_version(on).await.unwrap().unwrap();
            assert_eq!(version.conversation.slow_mode_seconds, seconds);
        }
        assert_eq!(inbox(store, &people[1]).await, before);
        assert_eq!(history(store, on).await, [id(5)]);
        let logged = store.changes(on, id(5).order_key(), 9).await.unwrap();
        let expected = [10, 20, 30].map(update);
        assert_eq!(logged, expected);
        let events = events_of(store, on).await;
        assert_eq!(
            events[2..],
            expected.map(|one| OutboxEvent::of_change(&one))
        );
        // It stays with what changes later.
        send(store, on, 35, ann).await;
        decide_on(store, on, 40, &people[1]).await;
        assert_eq!(exported(store, on).await.slow_mode_seconds, 21_600);
    }
}

/// Silences a user in any conversation.
async fn decide_on(store: &dyn Store, on: ConversationId, micros: i64, user: &UserId) {
    let change = unannounced(micros, Some(change(0)), user, silenced(None), Vec::new());
    let decided = store.change_membership(on, &change).await.unwrap();
    assert!(decided.is_some());
}

#[tokio::test]
async fn bans_that_disagree_with_memberships_are_found_in_a_folder() {
    let stage = Stage::embedded().await.unwrap();
    bans_that_disagree_with_memberships_are_found(stage.store()).await;
    stage.close().await;
}

#[tokio::test]
async fn bans_that_disagree_with_memberships_are_found_on_a_cluster() {
    if let Some((stage, _alone)) = Stage::cassandra_alone().await {
        bans_that_disagree_with_memberships_are_found(stage.store()).await;
        stage.close().await;
    }
}

/// Nothing follows from anything in the naive store.
async fn bans_that_disagree_with_memberships_are_found(store: &dyn StoreAdmin) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let group = conversation_id(1);
    let on = group;
    let row = |user: &UserId, membership: Membership, ban: Option<Ban>| ImportRow::Participant {
        conversation: on,
        user: user.clone(),
        membership,
        positions: ImportPositions::default(),
        ban,
    };
    let rows = [
        group_row(on, None),
        row(&ann, Membership::joined(Role::Owner), None),
        row(
            &ben,
            Membership::joined(Role::Member),
            Some(ban(&ben, &ann, None, None)),
        ),
        row(&cat, banned(None), None),
    ];
    store.import(&rows).await.unwrap();
    let (stray, missing) = (
        "a ban of a user who is not banned",
        "a banned user whom no list of bans names",
    );
    let found = findings(store, group, "ban", false).await;
    assert_eq!(found, [(stray, false), (missing, false)]);
    let repaired = findings(store, group, "ban", true).await;
    assert_eq!(repaired, [(stray, true), (missing, false)]);
    assert_eq!(
        findings(store, group, "ban", false).await,
        [(missing, false)]
    );
    assert_eq!(bans(store).await, []);
}
