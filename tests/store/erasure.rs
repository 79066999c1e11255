//! Erasure of a user from messages, conversations and tables of their own, and the jobs that carry it out.

use std::sync::Arc;

use uuid::Uuid;
use wideroom::model::{
    Ban, Block, ChangeKind, Content, ConversationId, Emoji, IgnoredSenders, Job, JobLease,
    JobState, Membership, MembershipState, Mentions, Message, MessageId, MessageKind, Metadata,
    OrderKey, OutboxEvent, PageRequest, Profile, Report, Revision, Role, UserId,
};
use wideroom::store::{
    BanChange, MembershipChange, MembershipTransition, NewConversation, ProfileChange, Store,
    StoreAdmin, TransitionKind, UnreadQuery,
};

use super::ask::{
    MarkTo, append, assert_sound, inbox, make, mark, only, participant, participants, row, send,
    try_row, unread,
};
use super::membership::{changing, govern, joins, leaves};
use super::outbox::events_of;
use crate::support::words::{
    NOW, START, change, change_of, content, conversation_id, direct, group, id, key, new, system,
    text, user, users,
};

async fn append_message(store: &dyn Store, message: Message) {
    let conversation = message.conversation;
    append(store, conversation, &[new(message)]).await;
}

async fn stored(store: &dyn Store, message: i64) -> Arc<Message> {
    let key = (conversation_id(1), id(message));
    only(store.messages(&[key]).await.unwrap()).unwrap()
}

async fn change_by(store: &dyn Store, micros: i64, message: i64, by: &UserId, kind: ChangeKind) {
    let (conversation, by) = (conversation_id(1), by.clone());
    let change = change_of(change(micros), kind, id(message), &by);
    let emoji = Emoji::parse("👍").unwrap();
    if kind == ChangeKind::ReactionsChanged {
        store
            .react(conversation, &emoji, true, &change)
            .await
            .unwrap();
    } else if kind == ChangeKind::PinsChanged {
        store
            .pin_message(conversation, true, &change)
            .await
            .unwrap();
    } else {
        let deletion = Revision::Deletion;
        store
            .revise_message(conversation, &deletion, &change)
            .await
            .unwrap();
    }
}

/// The conversations of a user, read piece by piece.
async fn conversations_of(store: &dyn Store, user: &UserId, limit: usize) -> Vec<ConversationId> {
    let (mut all, mut after) = (Vec::new(), None);
    for _ in 0..1_000 {
        let piece = store.conversations_of(user, after, limit).await.unwrap();
        assert!(piece.found.len() <= limit);
        all.extend(piece.found);
        after = piece.next;
        if after.is_none() {
            all.sort_unstable();
            return all;
        }
    }
    panic!("the pieces have no end");
}

/// Makes a user leave without a message.
async fn leave_silently(store: &dyn Store, conversation: ConversationId, micros: i64, by: &UserId) {
    let seen = store.membership_snapshot(conversation, &[]).await;
    let left = MembershipChange {
        message: None,
        version: change(micros),
        changes: vec![change_of(
            change(micros),
            ChangeKind::ParticipantRemoved,
            change(micros),
            by,
        )],
        ..changing(
            conversation,
            micros,
            seen.unwrap().unwrap().version,
            &[leaves(by, micros)],
        )
    };
    let audience = store.change_membership(conversation, &left).await.unwrap();
    assert_eq!(audience.unwrap().users.unwrap().len(), 0, "nobody is told");
}

pub async fn conversations_of_a_user_are_found_after_leaving(store: &dyn Store) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    for number in 1..=3 {
        make(store, conversation_id(number), &[ben.clone(), ann.clone()]).await;
    }
    make(store, conversation_id(4), &[ben, cat.clone()]).await;
    let left = changing(conversation_id(2), 9, Some(change(0)), &[leaves(&ann, 9)]);
    store
        .change_membership(conversation_id(2), &left)
        .await
        .unwrap()
        .unwrap();
    let expected = [1, 2, 3].map(conversation_id);
    for limit in [1, 2, 10] {
        assert_eq!(conversations_of(store, &ann, limit).await, expected);
    }
    assert_eq!(
        conversations_of(store, &cat, 10).await,
        [conversation_id(4)]
    );
    assert_eq!(conversations_of(store, &user("dan"), 10).await, []);
}

/// A user may leave without a message: nobody's inbox moves.
pub async fn a_user_who_leaves_without_a_message_moves_no_inbox(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let [first, second] = [1, 2].map(conversation_id);
    make(store, first, &[ben.clone(), ann.clone()]).await;
    make(store, second, std::slice::from_ref(&ben)).await;
    send(store, first, 1, &ann).await;
    send(store, second, 2, &ben).await;
    let before = inbox(store, &ben).await;
    leave_silently(store, first, 5, &ann).await;
    assert_eq!(inbox(store, &ben).await, before);
    assert_eq!(try_row(store, &ann, first).await, None);
    assert_eq!(inbox(store, &ann).await, []);
    assert_eq!(participants(store, first).await, std::slice::from_ref(&ben));
    let changed = store.inbox_changes(&ann, id(4).order_key(), 10).await;
    let changed = changed.unwrap().unwrap();
    assert!(
        changed
            .iter()
            .any(|row| row.conversation == first && row.row.is_none()),
        "the user's own streams learn of it"
    );
    assert_sound(store).await;
}

/// A conversation in which a user has done all that leaves a name.
async fn said(store: &dyn Store, ann: &UserId, ben: &UserId) {
    let group = conversation_id(1);
    make(store, group, &[ben.clone(), ann.clone()]).await;
    append_message(
        store,
        Message {
            client_key: Some(key("first")),
            ..text(group, id(1), ann)
        },
    )
    .await;
    append_message(store, text(group, id(2), ben)).await;
    let mentioning = Content {
        mentions: Mentions::new(vec![ann.clone()], false),
        ..content("hello")
    };
    append_message(
        store,
        Message {
            content: Some(mentioning),
            ..text(group, id(3), ben)
        },
    )
    .await;
    let metadata = format!(r#"{{"event":"joined","usernames":["{ann}","{ben}"]}}"#);
    append_message(
        store,
        Message {
            content: Some(Content {
                metadata: Some(Metadata::parse(&metadata, 2_048).unwrap()),
                ..Content::default()
            }),
            ..system(group, id(4), ann)
        },
    )
    .await;
    append_message(store, text(group, id(5), ben)).await;
    change_by(store, 6, 2, ann, ChangeKind::ReactionsChanged).await;
    change_by(store, 7, 2, ben, ChangeKind::ReactionsChanged).await;
    change_by(store, 8, 2, ann, ChangeKind::PinsChanged).await;
    change_by(store, 9, 1, ann, ChangeKind::MessageDeleted).await;
}

pub async fn a_user_is_erased_from_messages_and_nothing_else_changes(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    said(store, &ann, &ben).await;
    let to = MarkTo {
        epoch: 1,
        up_to: id(1).order_key(),
        receipt: true,
        change: change(9),
    };
    let group = conversation_id(1);
    mark(store, &ben, group, to).await;
    leave_silently(store, group, 12, &ann).await;
    let before = row(store, &ben, group).await;
    let counted = store.message_counts(&[group]).await.unwrap();
    let unread_before = unread(store, &ann, group, id(1).order_key(), 99).await;
    let others = (stored(store, 3).await, stored(store, 5).await);

    let messages: Vec<MessageId> = (1..=6).map(id).collect();
    for micros in [20, 21] {
        store
            .erase_messages(group, &ann, &messages, change(micros))
            .await
            .unwrap();
        let first = stored(store, 1).await;
        assert_eq!(first.sender, UserId::erased());
        assert_eq!(first.client_key, None);
        assert!(first.deleted_at.is_some() && first.content.is_none());
        let announced = stored(store, 4).await;
        assert_eq!(announced.sender, UserId::erased());
        assert_eq!(announced.kind, MessageKind::System);
        let metadata = announced.content.as_ref().unwrap().metadata.as_ref();
        assert_eq!(
            metadata.unwrap().as_str(),
            format!(r#"{{"event":"joined","usernames":["wideroom:erased","{ben}"]}}"#)
        );
        let second = stored(store, 2).await;
        assert_eq!(second.sender, ben);
        assert_eq!(second.current_pin().unwrap().by, UserId::erased());
        let pins = store.pins(group).await.unwrap();
        assert!(pins.iter().all(|(_, pin)| pin.by == UserId::erased()));
        let reactions = store.reactions(&ann, &[(group, id(2))]).await.unwrap();
        let [thumb] = &reactions[0][..] else {
            panic!("one kind stays: {reactions:?}")
        };
        assert_eq!(thumb.users, std::slice::from_ref(&ben));
        assert!(!thumb.has_viewer);
    }
    let keys = [(ann.clone(), key("first"))];
    let sends = store.earlier_sends(group, &keys).await;
    assert_eq!(sends.unwrap(), [None], "the key is forgotten");
    assert_eq!((stored(store, 3).await, stored(store, 5).await), others);
    assert_eq!(row(store, &ben, group).await, before);
    assert_eq!(store.message_counts(&[group]).await.unwrap(), counted);
    let unread_after = unread(store, &ann, group, id(1).order_key(), 99).await;
    assert_eq!(unread_after, unread_before);
    assert_sound(store).await;
}

pub async fn a_user_is_erased_from_a_group(store: &dyn StoreAdmin) {
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let people = [ann.clone(), ben.clone()];
    let on = conversation_id(1);
    let made = group(on, &people);
    let made = NewConversation {
        conversation: wideroom::model::Conversation {
            created_by: Some(ann.clone()),
            ..made.conversation
        },
        ..made
    };
    store.create_conversation(&made).await.unwrap();
    let mentioning = Content {
        mentions: Mentions::new(vec![ann.clone()], false),
        ..content("hello")
    };
    append_message(
        store,
        Message {
            content: Some(mentioning),
            ..text(on, id(3), &ben)
        },
    )
    .await;
    let banned = MembershipChange {
        message: None,
        version: change(5),
        changes: Vec::new(),
        transitions: vec![MembershipTransition {
            user: cat.clone(),
            kind: TransitionKind::Stays,
            membership: Membership {
                state: MembershipState::Banned,
                since: Some(START),
                ..Membership::joined(Role::Member)
            },
        }],
        bans: vec![BanChange::Set(Ban {
            user: cat.clone(),
            by: ann.clone(),
            at: START,
            until: None,
            reason: None,
        })],
        ..changing(on, 5, Some(change(0)), &[joins(&cat, 5)])
    };
    store.change_membership(on, &banned).await.unwrap().unwrap();
    leave_silently(store, on, 8, &ann).await;
    let before = inbox(store, &ben).await;

    for micros in [20, 21] {
        store
            .erase_participant(on, &ann, change(micros))
            .await
            .unwrap();
        assert_eq!(participant(store, on, &ann).await, None);
        assert_eq!(conversations_of(store, &ann, 10).await, []);
        let found = store.conversations(&[on]).await.unwrap();
        let creator = only(found).unwrap().created_by.clone();
        assert_eq!(creator, Some(UserId::erased()));
        let seen = store.participations(&ben, &[on]).await;
        let seen = only(seen.unwrap()).unwrap().conversation;
        assert_eq!(seen.created_by, Some(UserId::erased()));
        let bans = store.bans(on, &PageRequest::first(10)).await.unwrap();
        let [ban] = &bans.items[..] else {
            panic!("one ban stays")
        };
        assert_eq!((&ban.user, &ban.by), (&cat, &UserId::erased()));
    }
    let query = UnreadQuery {
        conversation: on,
        after: OrderKey::MIN,
        up_to: None,
    };
    let nobody = IgnoredSenders::default();
    let mentions = store.mentions(&ann, &[query], 99, &nobody).await;
    assert_eq!(only(mentions.unwrap()).count, 0);
    assert_eq!(inbox(store, &ben).await, before);
    assert_eq!(participants(store, on).await, std::slice::from_ref(&ben));
    assert_sound(store).await;
    // The conversation goes on.
    govern(store, on, 30, &[joins(&user("dan"), 30)]).await;
    send(store, on, 31, &ben).await;
    assert_sound(store).await;
}

pub async fn a_direct_conversation_stays_with_the_other_user(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    for made in [direct(&ann, &ben), direct(&ann, &ann)] {
        store.create_conversation(&made).await.unwrap();
    }
    let shared = ConversationId::direct(&ann, &ben);
    let own = ConversationId::direct(&ann, &ann);
    send(store, shared, 1, &ben).await;
    leave_silently(store, shared, 5, &ann).await;
    leave_silently(store, own, 6, &ann).await;
    let before = inbox(store, &ben).await;
    for id in [shared, own] {
        store.erase_participant(id, &ann, change(20)).await.unwrap();
    }
    for other in [&ann, &ben] {
        assert_eq!(store.direct_conversation(&ann, other).await.unwrap(), None);
    }
    assert_eq!(inbox(store, &ben).await, before);
    assert_eq!(
        participants(store, shared).await,
        std::slice::from_ref(&ben)
    );
    assert_eq!(participants(store, own).await, []);
    assert_sound(store).await;
    // The pair may be made again, under another id.
    let mut again = direct(&ann, &ben);
    again.conversation.id = conversation_id(7);
    store.create_conversation(&again).await.unwrap();
    let found = store.direct_conversation(&ben, &ann).await.unwrap();
    assert_eq!(found, Some(conversation_id(7)));
    assert_sound(store).await;
}

pub async fn a_profile_and_blocks_are_erased(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    for one in [&ann, &ben] {
        let profile = ProfileChange {
            display_name: Some(Some("A name".to_owned())),
            ..ProfileChange::default()
        };
        store.change_profile(one, &profile).await.unwrap();
        store.mark_seen(one, START).await.unwrap();
        let block = Block {
            blocked: user("cat"),
            is_on: true,
            change: change(1),
        };
        store.set_block(one, &block).await.unwrap();
    }
    store
        .erase_user(&ann, NOW.plus_micros(60_000_000))
        .await
        .unwrap();
    let found = store.profiles(&[ann.clone(), ben.clone()]).await.unwrap();
    assert_eq!(found[0].clone().unwrap_or_default(), Profile::default());
    assert_eq!(
        found[1].as_ref().unwrap().display_name.as_deref(),
        Some("A name")
    );
    assert_eq!(store.blocks(&ann).await.unwrap(), []);
    assert_eq!(store.blocks(&ben).await.unwrap().len(), 1);
    assert_sound(store).await;
}

fn job(name: &str) -> Job {
    Job::erasure(user(name), START)
}

pub async fn a_job_is_replaced_as_it_was_seen(store: &dyn Store) {
    let first = job("ann");
    assert_eq!(store.jobs(&[first.id]).await.unwrap(), [None]);
    assert!(store.swap_job(None, &first).await.unwrap());
    assert!(!store.swap_job(None, &first).await.unwrap(), "it runs");
    let leased = Job {
        done_count: 5,
        lease: Some(JobLease {
            holder: Uuid::from_u128(7),
            until: NOW,
        }),
        ..first.clone()
    };
    assert!(store.swap_job(Some(&first), &leased).await.unwrap());
    assert!(!store.swap_job(Some(&first), &leased).await.unwrap());
    let found = store.jobs(&[job("ben").id, first.id]).await.unwrap();
    assert_eq!(found, [None, Some(leased.clone())]);
    let running = store.running_jobs(1_000).await.unwrap();
    assert!(running.contains(&leased));

    let ended = Job {
        state: JobState::Done,
        finished_at: Some(NOW),
        lease: None,
        ..leased.clone()
    };
    assert!(store.swap_job(Some(&leased), &ended).await.unwrap());
    assert!(!store.swap_job(Some(&leased), &ended).await.unwrap());
    assert_eq!(store.jobs(&[first.id]).await.unwrap(), [Some(ended)]);
    let running = store.running_jobs(1_000).await.unwrap();
    assert!(running.iter().all(|job| job.id != first.id));

    // A later erasure of the same user.
    let again = Job {
        started_at: NOW,
        ..first.clone()
    };
    assert!(store.swap_job(None, &again).await.unwrap());
    assert_eq!(store.jobs(&[first.id]).await.unwrap(), [Some(again)]);
}

pub async fn one_of_several_servers_takes_a_job(store: &dyn Store) {
    let job = job("zoe");
    assert!(store.swap_job(None, &job).await.unwrap());
    let takes = (1..=4).map(|holder| {
        let taken = Job {
            lease: Some(JobLease {
                holder: Uuid::from_u128(holder),
                until: NOW,
            }),
            ..job.clone()
        };
        let job = &job;
        async move { store.swap_job(Some(job), &taken).await.unwrap() }
    });
    let taken = futures_util::future::join_all(takes).await;
    assert_eq!(taken.iter().filter(|is_taken| **is_taken).count(), 1);
}

pub async fn the_end_of_an_erasure_is_an_event(store: &dyn StoreAdmin) {
    let ann = user("ann");
    store.set_outbox(Some(START)).await.unwrap();
    for _ in 0..2 {
        store
            .add_user_erased(&ann, change(5), change(5))
            .await
            .unwrap();
    }
    let events = events_of(store, Report::NO_CONVERSATION).await;
    let own: Vec<_> = events
        .into_iter()
        .filter(|event| event.user.as_ref() == Some(&ann))
        .collect();
    assert_eq!(own, [OutboxEvent::user_erased(change(5), ann)]);
}
