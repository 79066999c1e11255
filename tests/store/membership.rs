//! Membership, roles and name of a conversation: persisted atomically with the SYSTEM message, and decided on the current state.

use futures_util::future::{join, join_all};
use wideroom::model::{
    ChangeKind, Conversation, ConversationId, Flags, GroupName, Membership, MembershipState,
    Message, MessageKind, OrderKey, PageRequest, ReadMarker, Role, TimeUuid, UserId,
};
use wideroom::store::{
    Audience, FlagsChange, ImportRow, MembershipChange, MembershipTransition, Renaming, Store,
    StoreAdmin, TransitionKind,
};

use super::ask::{
    MarkTo, assert_newest, changes, history, inbox, inbox_ids, make, mark, message, message_count,
    newest_event, participant, participant_count, participants, participation, row, send, send_as,
    try_row, unread,
};
use super::race::until_available;
use crate::support::words::{
    START, change, change_of, conversation_id, crowd, flags_change, group_row, id, new, system,
    text, users,
};

fn membership(state: MembershipState, role: Role, since: Option<i64>) -> Membership {
    Membership {
        state,
        since: since.map(|micros| START.plus_micros(micros)),
        ..Membership::joined(role)
    }
}

pub fn joins(user: &UserId, micros: i64) -> MembershipTransition {
    let membership = membership(MembershipState::Joined, Role::Member, Some(micros));
    MembershipTransition {
        user: user.clone(),
        kind: TransitionKind::Joins,
        membership,
    }
}

pub fn leaves(user: &UserId, micros: i64) -> MembershipTransition {
    let membership = membership(MembershipState::Left, Role::Member, Some(micros));
    MembershipTransition {
        user: user.clone(),
        kind: TransitionKind::Leaves,
        membership,
    }
}

/// Transition that keeps the membership of a participant since the creation.
fn stays(user: &UserId, role: Role) -> MembershipTransition {
    MembershipTransition {
        user: user.clone(),
        kind: TransitionKind::Stays,
        membership: membership(MembershipState::Joined, role, None),
    }
}

/// A change whose message is of this microsecond, and whose changes lie just before.
pub fn changing(
    conversation: ConversationId,
    micros: i64,
    seen: Option<TimeUuid>,
    transitions: &[MembershipTransition],
) -> MembershipChange {
    let message = system(conversation, id(micros), &transitions[0].user);
    let kind = |kind: TransitionKind| match kind {
        TransitionKind::Joins => ChangeKind::ParticipantAdded,
        TransitionKind::Leaves => ChangeKind::ParticipantRemoved,
        TransitionKind::Stays | TransitionKind::Clears => ChangeKind::RoleChanged,
    };
    let first = micros - i64::try_from(transitions.len()).unwrap();
    let change = |(at, transition): (i64, &MembershipTransition)| {
        change_of(id(at), kind(transition.kind), message.id, &transition.user)
    };
    let changes = (first..).zip(transitions).map(change).collect();
    MembershipChange::announced(seen, transitions.to_vec(), changes, message.into())
}

async fn version(store: &dyn Store, conversation: ConversationId) -> Option<TimeUuid> {
    let snapshot = store.membership_snapshot(conversation, &[]).await;
    let snapshot = snapshot.unwrap().unwrap();
    let version = store.membership_version(conversation).await;
    let version = version.unwrap().unwrap();
    assert_eq!(
        (version.version, version.participant_count),
        (snapshot.version, snapshot.participant_count)
    );
    assert_eq!(version.conversation, snapshot.conversation);
    version.version
}

/// The version after a change keeps nobody whom the change has moved.
async fn assert_moved(
    store: &dyn Store,
    conversation: ConversationId,
    seen: Option<TimeUuid>,
    transitions: &[MembershipTransition],
) {
    let version = store.membership_version(conversation).await;
    let version = version.unwrap().unwrap();
    let moves = |transition: &&MembershipTransition| transition.kind != TransitionKind::Stays;
    for transition in transitions.iter().filter(moves) {
        assert!(!version.keeps(&transition.user, seen));
        assert!(version.keeps(&transition.user, version.version));
    }
}

/// Changes the membership as it is now.
pub async fn govern(
    store: &dyn Store,
    conversation: ConversationId,
    micros: i64,
    transitions: &[MembershipTransition],
) -> Audience {
    let seen = version(store, conversation).await;
    let kept = store
        .change_membership(
            conversation,
            &changing(conversation, micros, seen, transitions),
        )
        .await
        .unwrap();
    assert_moved(store, conversation, seen, transitions).await;
    kept.expect("nobody was faster")
}

async fn changed(
    store: &dyn Store,
    user: &UserId,
    after: i64,
) -> Vec<(TimeUuid, ConversationId, bool)> {
    let changed = store
        .inbox_changes(user, id(after).order_key(), 9)
        .await
        .unwrap()
        .unwrap();
    changed
        .into_iter()
        .map(|changed| {
            (
                changed.newest_change,
                changed.conversation,
                changed.row.is_some(),
            )
        })
        .collect()
}

pub async fn a_user_who_joins_sees_the_history_and_has_nothing_unread(store: &dyn Store) {
    let [ann, ben, eve] = users(["ann", "ben", "eve"]);
    let [first, second] = [1, 2].map(conversation_id);
    make(store, first, &[ann.clone(), ben.clone()]).await;
    make(store, second, std::slice::from_ref(&eve)).await;
    send(store, first, 10, &ann).await;
    send(store, second, 15, &eve).await;
    let audience = govern(store, first, 20, &[joins(&eve, 20)]).await;
    assert_eq!(
        audience.users.unwrap().to_vec(),
        [ann.clone(), ben.clone(), eve.clone()]
    );
    assert_eq!(
        participants(store, first).await,
        [ann.clone(), ben.clone(), eve.clone()]
    );
    assert_eq!(participant_count(store, first).await, 3);
    assert_eq!(history(store, first).await, [id(20), id(10)]);
    assert_eq!(message_count(store, first).await, 2);
    assert_eq!(inbox_ids(store, &eve).await, [first, second]);
    let entry = row(store, &eve, first).await;
    assert_eq!(
        (entry.last_message, entry.last_activity),
        (Some(id(20)), START.plus_micros(20))
    );
    assert_eq!(
        (entry.marker, entry.sent_up_to),
        (ReadMarker::at_joining(id(20)), None)
    );
    assert!(!entry.may_be_unread());
    let there = participant(store, first, &eve).await.unwrap();
    assert_eq!(
        there.membership,
        membership(MembershipState::Joined, Role::Member, Some(20))
    );
    assert_eq!(
        (there.read_up_to, there.delivered_up_to),
        (OrderKey::MIN, OrderKey::MIN),
        "they have read nothing of it"
    );
    assert_eq!(changed(store, &eve, 15).await, [(id(20), first, true)]);
    // To the others it is a message that is not unread.
    let ben_s = row(store, &ben, first).await;
    assert_eq!(
        (ben_s.last_message, ben_s.marker),
        (Some(id(20)), ReadMarker::default())
    );
    assert_eq!(unread(store, &ben, first, OrderKey::MIN, 9).await.count, 1);
    send(store, first, 30, &ben).await;
    assert_eq!(
        unread(
            store,
            &eve,
            first,
            row(store, &eve, first).await.read_up_to(),
            9
        )
        .await
        .count,
        1
    );
    assert_newest(store.newest_id().await.unwrap(), Some(id(30)));
}

pub async fn a_user_who_leaves_has_no_entry_and_no_changes(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let [first, second] = [1, 2].map(conversation_id);
    make(store, first, &[ann.clone(), ben.clone()]).await;
    make(store, second, std::slice::from_ref(&ben)).await;
    send(store, first, 10, &ann).await;
    let audience = govern(store, first, 20, &[leaves(&ben, 20)]).await;
    assert_eq!(audience.users.unwrap().to_vec(), std::slice::from_ref(&ann));
    assert_eq!(participants(store, first).await, std::slice::from_ref(&ann));
    assert_eq!(participant_count(store, first).await, 1);
    let participation = participation(store, first, &ben).await.unwrap();
    assert_eq!(
        participation.membership,
        membership(MembershipState::Left, Role::Member, Some(20))
    );
    assert_eq!(
        participant(store, first, &ben).await.unwrap().membership,
        participation.membership
    );
    assert_eq!(changed(store, &ben, 10).await, [(id(20), first, false)]);
    let told = send_as(store, first, id(30), &ann).await;
    assert_eq!(told.users.unwrap().to_vec(), std::slice::from_ref(&ann));
    assert_eq!(try_row(store, &ben, first).await, None);
    assert_eq!(inbox_ids(store, &ben).await, [second]);
    assert_eq!(
        changed(store, &ben, 20).await,
        [],
        "what was sent later is no news to them"
    );
    assert_eq!(inbox_ids(store, &ann).await, [first]);
}

pub async fn a_user_who_rejoins_has_nothing_unread(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    for micros in [10, 11, 12] {
        send(store, group, micros, &ann).await;
    }
    // As a mark of unread leaves it: in a later epoch, at the beginning.
    let epoch = START.plus_micros(15).micros().cast_unsigned();
    mark(
        store,
        &ben,
        group,
        MarkTo::unread(epoch, OrderKey::MIN, change(15)),
    )
    .await;
    let mute = FlagsChange {
        muted: Some(true),
        ..flags_change(group, change(16))
    };
    store.set_flags(&ben, &mute).await.unwrap();
    govern(store, group, 20, &[leaves(&ben, 20)]).await;
    send(store, group, 30, &ann).await;
    govern(store, group, 40, &[joins(&ben, 40)]).await;
    let entry = row(store, &ben, group).await;
    assert_eq!(entry.marker, ReadMarker::at_joining(id(40)));
    assert!(!entry.may_be_unread());
    assert_eq!(
        entry.flags,
        Flags {
            is_muted: true,
            ..Flags::default()
        }
    );
    assert_eq!(inbox_ids(store, &ben).await, [group]);
    assert_eq!(participant_count(store, group).await, 2);
    let back = participant(store, group, &ben).await.unwrap();
    assert_eq!(
        back.membership,
        membership(MembershipState::Joined, Role::Member, Some(40))
    );
    assert!(!back.receives(id(30), &ann), "it was not sent to them");
}

pub async fn a_change_decided_on_an_older_membership_is_not_persisted(store: &dyn Store) {
    let [ann, ben, eve] = users(["ann", "ben", "eve"]);
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    let seen = version(store, group).await;
    assert_eq!(seen, Some(change(0)), "of its making");
    send(store, group, 5, &ann).await;
    assert_eq!(
        version(store, group).await,
        seen,
        "a send changes no membership"
    );
    let (first, late) = (
        changing(group, 10, seen, &[joins(&ben, 10)]),
        changing(group, 20, seen, &[leaves(&ann, 20), joins(&eve, 20)]),
    );
    assert!(
        store
            .change_membership(group, &first)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(version(store, group).await, Some(id(10)));
    assert!(
        store
            .change_membership(group, &late)
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(participants(store, group).await, [ann.clone(), ben]);
    assert_eq!(try_row(store, &eve, group).await, None);
    assert_eq!(history(store, group).await, [id(10), id(5)]);
    assert_newest(store.newest_id().await.unwrap(), Some(id(10)));
    assert_eq!(changes(store, group).await.len(), 1);
}

pub async fn the_same_change_once_more_changes_nothing(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    make(store, group, std::slice::from_ref(&ann)).await;
    let join = changing(group, 10, Some(change(0)), &[joins(&ben, 10)]);
    let name = renaming(group, 20, "again", &ann);
    for _ in 0..2 {
        assert_eq!(
            store
                .change_membership(group, &join)
                .await
                .unwrap()
                .unwrap()
                .users
                .unwrap()
                .len(),
            2
        );
    }
    for _ in 0..2 {
        assert_eq!(
            store
                .rename_conversation(group, &name)
                .await
                .unwrap()
                .users
                .unwrap()
                .len(),
            2
        );
    }
    assert_eq!(history(store, group).await, [id(20), id(10)]);
    assert_eq!(message_count(store, group).await, 2);
    assert_eq!(participant_count(store, group).await, 2);
    assert_eq!(changes(store, group).await.len(), 2);
}

pub async fn changes_of_membership_stand_in_the_log(store: &dyn Store) {
    let [ann, ben, eve] = users(["ann", "ben", "eve"]);
    let group = conversation_id(1);
    make(store, group, &[ann.clone(), ben.clone()]).await;
    let made = changing(
        group,
        20,
        Some(change(0)),
        &[joins(&eve, 20), leaves(&ben, 20), stays(&ann, Role::Admin)],
    );
    store
        .change_membership(group, &made)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(changes(store, group).await, made.changes);
    assert_eq!(
        store
            .changes(group, made.changes[0].id.order_key(), 1)
            .await
            .unwrap(),
        made.changes[1..2]
    );
    assert_eq!(
        newest_event(store, group).await,
        Some(id(20)),
        "the message is the last of it"
    );
    let kept = message(store, group, id(20)).await.unwrap();
    assert_eq!(Some(&kept), made.message.as_ref());
    assert_eq!(kept.kind, MessageKind::System);
}

fn renaming(conversation: ConversationId, micros: i64, name: &str, actor: &UserId) -> Renaming {
    let message: Message = system(conversation, id(micros), actor);
    let change = change_of(
        id(micros - 1),
        ChangeKind::ConversationRenamed,
        message.id,
        actor,
    );
    Renaming {
        name: GroupName::parse(name).unwrap(),
        change,
        message: message.into(),
    }
}

pub async fn another_name_is_kept_with_its_message(store: &dyn Store) {
    let people = crowd(40);
    for (number, count) in [(1, 2), (2, 40)] {
        make(store, conversation_id(number), &people[..count]).await;
        let to = renaming(conversation_id(number), 20, "Räder & Äpfel", &people[0]);
        let audience = store
            .rename_conversation(conversation_id(number), &to)
            .await
            .unwrap();
        assert_eq!(
            audience.users.map(|users| users.len()),
            (count == 2).then_some(2)
        );
        let participation = participation(store, conversation_id(number), &people[1])
            .await
            .unwrap();
        assert_eq!(
            participation.conversation.name.as_ref().unwrap().as_str(),
            "Räder & Äpfel"
        );
        assert_eq!(participation.conversation.is_large, count == 40);
        assert_eq!(changes(store, conversation_id(number)).await, [to.change]);
        let entry = row(store, &people[1], conversation_id(number)).await;
        assert_eq!(
            (entry.last_message, entry.last_activity),
            (Some(id(20)), START.plus_micros(20))
        );
        assert_eq!(
            inbox(store, &people[1])
                .await
                .iter()
                .filter(|entry| entry.conversation == conversation_id(number))
                .count(),
            1
        );
        assert_eq!(
            version(store, conversation_id(number)).await,
            Some(change(0)),
            "no matter of membership"
        );
    }
    assert!(
        store
            .rename_conversation(
                conversation_id(9),
                &renaming(conversation_id(9), 30, "x", &people[0])
            )
            .await
            .is_err()
    );
    assert!(
        store
            .membership_snapshot(conversation_id(9), &people)
            .await
            .unwrap()
            .is_none()
    );
}

pub async fn the_33rd_who_joins_makes_it_large_for_good(store: &dyn Store) {
    let people = crowd(60);
    let [first, second] = [1, 2].map(conversation_id);
    make(store, first, &people[..Conversation::FAN_OUT_MAX]).await;
    make(store, second, &people).await;
    send(store, first, 10, &people[0]).await;
    send(store, second, 15, &people[0]).await;
    let more: Vec<_> = people[32..50].iter().map(|user| joins(user, 50)).collect();
    let audience = govern(store, first, 50, &more).await;
    assert_eq!(
        audience.users.unwrap().len(),
        50,
        "named once more, so that they know where to listen"
    );
    assert_eq!(participant_count(store, first).await, 50);
    for user in &people[..50] {
        assert_eq!(inbox_ids(store, user).await, [first, second], "{user}");
        let mut large = store.large_conversations(user).await.unwrap();
        large.sort_unstable();
        assert_eq!(large, [first, second]);
    }
    assert_eq!(inbox_ids(store, &people[50]).await, [second]);
    assert_eq!(send_as(store, first, id(60), &people[40]).await.users, None);
    // Down to two, it stays large.
    let less: Vec<_> = people[2..50].iter().map(|user| leaves(user, 200)).collect();
    assert_eq!(govern(store, first, 200, &less).await.users, None);
    assert_eq!(participants(store, first).await, people[..2]);
    let participation = participation(store, first, &people[1]).await.unwrap();
    assert!(participation.conversation.is_large);
    assert_eq!(inbox_ids(store, &people[40]).await, [second]);
    assert_eq!(
        store.large_conversations(&people[40]).await.unwrap(),
        [second]
    );
    assert_eq!(
        changed(store, &people[40], 60).await,
        [(id(200), first, false)]
    );
    send(store, first, 210, &people[0]).await;
    assert_eq!(changed(store, &people[40], 200).await, []);
    // A user who rejoins has no unread messages.
    assert_eq!(
        govern(store, first, 220, &[joins(&people[40], 220)])
            .await
            .users,
        None
    );
    let entry = row(store, &people[40], first).await;
    assert_eq!(
        (entry.last_message, entry.may_be_unread()),
        (Some(id(220)), false)
    );
    assert_eq!(
        changed(store, &people[40], 200).await,
        [(id(220), first, true)]
    );
}

async fn owners(store: &dyn Store, conversation: ConversationId) -> Vec<UserId> {
    let page = store
        .participants(conversation, &PageRequest::first(1_000))
        .await
        .unwrap();
    let listed: Vec<_> = page
        .items
        .iter()
        .filter(|one| one.membership.role == Role::Owner)
        .map(|one| one.user.clone())
        .collect();
    for one in &page.items {
        assert_eq!(
            participant(store, conversation, &one.user).await.as_ref(),
            Some(one)
        );
        let participation = participation(store, conversation, &one.user).await.unwrap();
        assert_eq!(
            participation.membership, one.membership,
            "a role is the same wherever it is told"
        );
        let members = store
            .membership_snapshot(conversation, std::slice::from_ref(&one.user))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(members.memberships, [Some(one.membership)]);
    }
    listed
}

pub async fn a_group_is_never_without_an_owner(store: &dyn StoreAdmin) {
    let others = crowd(40);
    let [ann, ben, eve] = users(["ann", "ben", "eve"]);
    // The second one is large.
    for number in [1, 2] {
        let group = conversation_id(number);
        let member = |user: &UserId, role: Role, since: i64| ImportRow::Participant {
            conversation: group,
            user: user.clone(),
            membership: membership(MembershipState::Joined, role, Some(since)),
            positions: Default::default(),
            ban: None,
        };
        let mut rows = vec![
            group_row(group, None),
            member(&eve, Role::Member, 1),
            member(&ben, Role::Member, 1),
        ];
        rows.push(member(&ann, Role::Member, 2));
        rows.extend(
            others
                .iter()
                .filter(|_| number == 2)
                .map(|user| member(user, Role::Member, 3)),
        );
        store.import(&rows).await.unwrap();
        assert_eq!(version(store, group).await, None);
        assert_eq!(
            owners(store, group).await,
            std::slice::from_ref(&ben),
            "the oldest, and of two the first by name"
        );
        let without_ben = store
            .membership_snapshot(group, std::slice::from_ref(&ben))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(without_ben.successor.unwrap().0, eve);
        assert_eq!(
            without_ben.participant_count,
            if number == 2 { 43 } else { 3 }
        );
        govern(
            store,
            group,
            10,
            &[MembershipTransition {
                membership: membership(MembershipState::Joined, Role::Admin, Some(2)),
                ..stays(&ann, Role::Admin)
            }],
        )
        .await;
        assert_eq!(
            owners(store, group).await,
            std::slice::from_ref(&ann),
            "an ADMIN before all others"
        );
        govern(store, group, 20, &[leaves(&ann, 20)]).await;
        assert_eq!(owners(store, group).await, std::slice::from_ref(&ben));
        govern(
            store,
            group,
            30,
            &[MembershipTransition {
                membership: membership(MembershipState::Joined, Role::Owner, Some(1)),
                ..stays(&eve, Role::Owner)
            }],
        )
        .await;
        assert_eq!(
            owners(store, group).await,
            std::slice::from_ref(&eve),
            "who was made one"
        );
        let without = async |users: &[UserId]| {
            store
                .membership_snapshot(group, users)
                .await
                .unwrap()
                .unwrap()
                .successor
                .map(|(next, _)| next)
        };
        assert_eq!(without(std::slice::from_ref(&ben)).await, None, "eve is");
        assert_eq!(without(std::slice::from_ref(&eve)).await, Some(ben.clone()));
        if number == 1 {
            assert_eq!(
                without(&[eve.clone(), ben.clone(), ann.clone()]).await,
                None,
                "nobody else is there"
            );
        }
    }
    store
        .create_conversation(&crate::support::words::direct(&ann, &ben))
        .await
        .unwrap();
    assert!(
        owners(store, ConversationId::direct(&ann, &ben))
            .await
            .is_empty(),
        "two who talk have none"
    );
}

pub async fn one_of_two_concurrent_membership_changes_is_persisted(store: &dyn Store) {
    let [ann, ben, eve] = users(["ann", "ben", "eve"]);
    for round in 1..=10_u8 {
        make(store, conversation_id(round), std::slice::from_ref(&ann)).await;
        let changes = [(10, &ben), (20, &eve)].map(|(at, user)| {
            changing(
                conversation_id(round),
                at,
                Some(change(0)),
                &[joins(user, at)],
            )
        });
        let kept = join_all(
            changes
                .iter()
                .map(|change| store.change_membership(conversation_id(round), change)),
        )
        .await;
        let kept: Vec<_> = kept
            .into_iter()
            .map(|kept| kept.unwrap().is_some())
            .collect();
        assert_eq!(kept.iter().filter(|kept| **kept).count(), 1, "{kept:?}");
        let there = if kept[0] { &ben } else { &eve };
        assert_eq!(
            participants(store, conversation_id(round)).await,
            [ann.clone(), there.clone()]
        );
    }
}

/// While some send, one comes and goes: whoever is in it at the end sees the last message, as the last or as unread.
pub async fn a_send_at_the_moment_of_joining_misses_nobody(store: &dyn Store) {
    let people = crowd(36);
    let group = conversation_id(1);
    make(store, group, &people[..3]).await;
    // On a cluster the ids of two servers come like this: each ascends, and they mix.
    let sends = async {
        for micros in 1..=40 {
            let message = [new(text(group, id(micros * 10), &people[0]))];
            until_available(async || store.append_messages(group, &message).await).await;
        }
    };
    let transitions = async {
        for (n, user) in (0..).zip(&people[3..]) {
            let at = 1_000 + n * 10;
            let change = changing(group, at, version(store, group).await, &[joins(user, at)]);
            assert!(
                until_available(async || store.change_membership(group, &change).await)
                    .await
                    .is_some()
            );
        }
    };
    join(sends, transitions).await;
    assert_eq!(participant_count(store, group).await, 36);
    assert_eq!(message_count(store, group).await, 40 + 33);
    for user in &people {
        let rows = inbox(store, user).await;
        assert_eq!(
            rows.iter().map(|row| row.last_message).collect::<Vec<_>>(),
            [Some(id(1_320))],
            "{user}"
        );
    }
}
