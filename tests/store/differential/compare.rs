//! Comparison of an engine with the naive store after the same steps: all answers must be equal.

use std::ops::Bound;

use proptest::prelude::*;
use wideroom::model::{
    ConversationId, Cut, IgnoredSenders, InboxKey, OrderKey, PageRequest, UserId,
};
use wideroom::store::{Participation, Store, StoreAdmin, UnreadQuery};

use super::{CONVERSATIONS, NAMES, all_conversations, any_key, id_at, name};
use crate::store::ask::{assert_newest, assert_page, requests, with_keys};
use crate::store::outbox::all_events;
use crate::store::pin::pins_of;
use crate::support::words::{START, change, conversation_id, user};

/// Random queries of a comparison, in addition to the fixed ones. Users and conversations are numbers, because the salt of the case is not set yet.
#[derive(Debug, Clone)]
pub(super) struct Questions {
    history: Vec<(Cut<OrderKey>, PageRequest<OrderKey>)>,
    inbox: Vec<PageRequest<(i64, u8)>>,
    participants: Vec<PageRequest<u8>>,
    cap: u32,
    changes_after: i64,
    changes_limit: usize,
}

impl Questions {
    fn inbox(&self) -> Vec<PageRequest<InboxKey>> {
        let key = |(micros, n): (i64, u8)| InboxKey {
            activity: START.plus_micros(micros),
            conversation: conversation_id(n),
        };
        self.inbox
            .iter()
            .map(|request| with_keys(request, key))
            .collect()
    }

    fn participants(&self) -> Vec<PageRequest<UserId>> {
        self.participants
            .iter()
            .map(|request| with_keys(request, name))
            .collect()
    }
}

pub(super) fn any_questions() -> impl Strategy<Value = Questions> {
    let position = (
        0..120_i64,
        prop::sample::select(vec![0_u8, 0x7f, 0x80, 0xff]),
    )
        .prop_map(|(micros, rest)| id_at(micros, rest).order_key());
    let bound = prop_oneof![
        Just(Bound::Unbounded),
        position.clone().prop_map(Bound::Included),
        position.clone().prop_map(Bound::Excluded),
    ];
    let cut = (bound.clone(), bound).prop_map(|(start, end)| Cut { start, end });
    let history = prop::collection::vec((cut, requests(position)), 4);
    let (inbox, participants) = (
        prop::collection::vec(requests((0..120_i64, 0..CONVERSATIONS)), 6),
        prop::collection::vec(requests(0..5_u8), 3),
    );
    (
        history,
        inbox,
        participants,
        1..9_u32,
        0..100_i64,
        0..9_usize,
    )
        .prop_map(
            |(history, inbox, participants, cap, changes_after, changes_limit)| Questions {
                history,
                inbox,
                participants,
                cap,
                changes_after,
                changes_limit,
            },
        )
}

/// Conversations of which nothing is known: so many answer each question. All of them answer those that name many at once.
const UNKNOWN: usize = 2;

pub(super) async fn compare(
    engine: &dyn StoreAdmin,
    naive: &dyn StoreAdmin,
    questions: &Questions,
    is_imported: bool,
) {
    let conversations = all_conversations();
    assert_newest(
        engine.newest_id().await.unwrap(),
        naive.newest_id().await.unwrap(),
    );
    assert_eq!(
        engine.conversations(&conversations).await.unwrap(),
        naive.conversations(&conversations).await.unwrap()
    );
    assert_eq!(
        engine.participant_counts(&conversations).await.unwrap(),
        naive.participant_counts(&conversations).await.unwrap()
    );
    assert_eq!(
        engine.message_counts(&conversations).await.unwrap(),
        naive.message_counts(&conversations).await.unwrap()
    );
    assert_eq!(
        engine.last_messages(&conversations).await.unwrap(),
        naive.last_messages(&conversations).await.unwrap()
    );
    assert_eq!(
        all_events(engine, &conversations).await,
        all_events(naive, &conversations).await,
        "events of the outbox"
    );
    for (number, conversation) in (0..).zip(&conversations).take(usize::from(CONVERSATIONS)) {
        assert_eq!(
            pins_of(engine, number).await,
            pins_of(naive, number).await,
            "pins of {conversation}"
        );
    }
    let mut unknown = 0;
    for conversation in &conversations {
        let is_known = is_known(naive, *conversation).await;
        unknown += usize::from(!is_known);
        if is_known || unknown <= UNKNOWN {
            compare_conversation(engine, naive, *conversation, questions).await;
        }
    }
    let mut users = NAMES.map(user).to_vec();
    users.extend([user("crowd000"), user("crowd032"), user("an")]);
    assert_eq!(
        engine.profiles(&users).await.unwrap(),
        naive.profiles(&users).await.unwrap()
    );
    for user in &users {
        compare_inbox(engine, naive, user, questions).await;
        for other in &users {
            assert_eq!(
                engine.direct_conversation(user, other).await.unwrap(),
                naive.direct_conversation(user, other).await.unwrap()
            );
        }
        let (after, limit) = (
            change(questions.changes_after).order_key(),
            questions.changes_limit,
        );
        if !is_imported {
            let changes = engine.inbox_changes(user, after, limit).await.unwrap();
            assert_eq!(
                changes,
                naive.inbox_changes(user, after, limit).await.unwrap(),
                "changes of {user}, at most {limit}"
            );
        }
    }
}

/// Whether it has a row: an import may bring messages or participants alone.
async fn is_known(store: &dyn StoreAdmin, conversation: ConversationId) -> bool {
    let conversations = [conversation];
    let people = store.all_participants(conversation, None, 1).await.unwrap();
    !people.is_empty()
        || store.conversations(&conversations).await.unwrap()[0].is_some()
        || store.message_counts(&conversations).await.unwrap()[0] > 0
}

async fn compare_conversation(
    engine: &dyn StoreAdmin,
    naive: &dyn StoreAdmin,
    conversation: ConversationId,
    questions: &Questions,
) {
    for (cut, request) in &questions.history {
        let answer = engine.history(conversation, cut, request).await.unwrap();
        assert_page(
            request,
            &answer,
            &naive.history(conversation, cut, request).await.unwrap(),
        );
    }
    let (cut, request) = (Cut::default(), PageRequest::last(100));
    let whole = naive.history(conversation, &cut, &request).await.unwrap();
    assert_page(
        &request,
        &engine.history(conversation, &cut, &request).await.unwrap(),
        &whole,
    );
    let positions: Vec<_> = whole
        .items
        .iter()
        .flat_map(|message| [message.id.order_key(), message.id.order_key().before()])
        .collect();
    let positions: Vec<_> = positions
        .into_iter()
        .chain([OrderKey::MAX])
        .map(|position| (conversation, position))
        .collect();
    assert_eq!(
        engine.messages_at(&positions).await.unwrap(),
        naive.messages_at(&positions).await.unwrap()
    );
    let ids: Vec<_> = whole
        .items
        .iter()
        .map(|message| (conversation, message.id))
        .collect();
    assert_eq!(
        engine.messages(&ids).await.unwrap(),
        naive.messages(&ids).await.unwrap()
    );
    for viewer in ["ann", "Ben", "crowd000"].map(user) {
        let active = async |store: &dyn Store| {
            let mut all = store.reactions(&viewer, &ids).await.unwrap();
            for reactions in &mut all {
                reactions.retain(|reaction| reaction.count > 0);
            }
            all
        };
        assert_eq!(
            active(engine).await,
            active(naive).await,
            "reactions as {viewer} sees them"
        );
    }
    for (_, message) in &ids {
        let all = async |store: &dyn StoreAdmin| {
            store
                .all_reactions(conversation, *message, None, 100)
                .await
                .unwrap()
        };
        assert_eq!(
            all(engine).await,
            all(naive).await,
            "reactions as they are exported"
        );
    }
    let people = async |store: &dyn StoreAdmin| {
        store
            .all_participants(conversation, None, 100)
            .await
            .unwrap()
    };
    assert_eq!(
        people(engine).await,
        people(naive).await,
        "participants as they are exported"
    );
    let participants = questions.participants();
    for request in &participants {
        let answer = engine.participants(conversation, request).await.unwrap();
        assert_page(
            request,
            &answer,
            &naive.participants(conversation, request).await.unwrap(),
        );
    }
    for (message, request) in whole.items.iter().zip(participants.iter().cycle()) {
        let answer = engine
            .receivers(conversation, message.id, &message.sender, request)
            .await
            .unwrap();
        assert_page(
            request,
            &answer,
            &naive
                .receivers(conversation, message.id, &message.sender, request)
                .await
                .unwrap(),
        );
    }
    let keys: Vec<_> = NAMES
        .iter()
        .flat_map(|name| (0..3).map(|n| (user(name), any_key(n))))
        .collect();
    assert_eq!(
        engine.earlier_sends(conversation, &keys).await.unwrap(),
        naive.earlier_sends(conversation, &keys).await.unwrap()
    );
    let names: Vec<_> = NAMES
        .iter()
        .map(|name| (conversation, user(name)))
        .collect();
    assert_eq!(
        engine.participants_by_name(&names).await.unwrap(),
        naive.participants_by_name(&names).await.unwrap()
    );
    for users in [
        &[][..],
        &NAMES.map(user),
        &[user("ben")],
        &[user("crowd000"), user("nobody")],
    ] {
        let members = async |store: &dyn StoreAdmin| {
            format!(
                "{:?}",
                store
                    .membership_snapshot(conversation, users)
                    .await
                    .unwrap()
            )
        };
        assert_eq!(members(engine).await, members(naive).await);
    }
    let changes = async |store: &dyn StoreAdmin| {
        store
            .changes(conversation, change(questions.changes_after).order_key(), 7)
            .await
            .unwrap()
    };
    assert_eq!(changes(engine).await, changes(naive).await);
    let newest = async |store: &dyn StoreAdmin| store.newest_events(&[conversation]).await.unwrap();
    assert_eq!(newest(engine).await, newest(naive).await);
}

async fn compare_inbox(
    engine: &dyn Store,
    naive: &dyn Store,
    user: &UserId,
    questions: &Questions,
) {
    let conversations = all_conversations();
    let participation = |participation: Option<Participation>| {
        participation.map(|participation| (participation.conversation, participation.membership))
    };
    let participations: Vec<_> = engine
        .participations(user, &conversations)
        .await
        .unwrap()
        .into_iter()
        .map(participation)
        .collect();
    assert_eq!(
        participations,
        naive
            .participations(user, &conversations)
            .await
            .unwrap()
            .into_iter()
            .map(participation)
            .collect::<Vec<_>>(),
        "participations of {user}"
    );
    let rows = naive.inbox_rows(user, &conversations).await.unwrap();
    assert_eq!(
        engine.inbox_rows(user, &conversations).await.unwrap(),
        rows,
        "rows of {user}"
    );
    let mut large = engine.large_conversations(user).await.unwrap();
    large.sort_unstable();
    assert_eq!(
        large,
        naive.large_conversations(user).await.unwrap(),
        "large conversations of {user}"
    );
    let whole = [
        PageRequest::first(100),
        PageRequest::last(100),
        PageRequest::first(3),
        PageRequest::last(2),
    ];
    for request in whole.iter().chain(&questions.inbox()) {
        let answer = engine.inbox(user, request).await.unwrap();
        assert_page(request, &answer, &naive.inbox(user, request).await.unwrap());
    }
    let asked: Vec<_> = rows
        .iter()
        .flatten()
        .flat_map(|row| {
            let last = row.last_message.map(|last| last.order_key());
            let before_last = last.map(OrderKey::before);
            let ranges = [
                (row.read_up_to(), None),
                (OrderKey::MIN, None),
                (row.read_up_to(), last),
                (OrderKey::MIN, before_last),
            ];
            ranges.map(|(after, up_to)| UnreadQuery {
                conversation: row.conversation,
                after,
                up_to,
            })
        })
        .collect();
    let (nobody, one) = (IgnoredSenders::default(), IgnoredSenders::of([name(1)]));
    for (cap, ignored) in [(questions.cap, &nobody), (99, &one), (99, &nobody)] {
        let answers = engine.unread(user, &asked, cap, ignored).await.unwrap();
        let expected = naive.unread(user, &asked, cap, ignored).await.unwrap();
        assert_eq!(answers, expected, "unread of {user} up to {cap}");
    }
}
