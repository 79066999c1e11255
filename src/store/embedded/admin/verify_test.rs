//! Tests on deliberately damaged stores: `verify` finds and repairs each damage.

use super::*;
use crate::clock::ManualClock;
use crate::model::{
    AppKey, AppKeyClaim, Content, Conversation, ConversationProfile, Emoji, InputHash, Membership,
    Message, MessageId, MessageKind, OrderKey, PageRequest, Role, Timestamp,
};
use crate::store::embedded::Options;
use crate::store::embedded::engine::record::{MessageRecord, RosterRecord};
use crate::store::{
    DAMAGED_MESSAGE, Finding, ImportPositions, ImportRow, Imported, Store as _, StoreAdmin as _,
};

const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn id(micros: i64) -> MessageId {
    MessageId::new(START.plus_micros(micros), [1; 8])
}

fn group() -> ConversationId {
    ConversationId(uuid::Uuid::from_u128(7))
}

fn large() -> ConversationId {
    ConversationId(uuid::Uuid::from_u128(8))
}

fn pair() -> ConversationId {
    ConversationId(uuid::Uuid::from_u128(9))
}

fn app_key() -> AppKey {
    AppKey::parse("order:7").unwrap()
}

/// Rows of a group of two with an app key, a large group and a direct conversation, with messages and a reaction.
fn rows() -> Vec<ImportRow> {
    let made = |id, kind| ImportRow::Conversation {
        conversation: Conversation {
            id,
            kind,
            name: None,
            created_at: START,
            created_by: Some(user("user-00")),
            input_hash: Some(InputHash([7; 32])),
            slow_mode_seconds: 0,
            history: Default::default(),
            is_large: false,
        },
        last_activity: None,
        profile: ConversationProfile {
            app_key: (id == group()).then(app_key),
            ..ConversationProfile::default()
        },
    };
    let mut rows = vec![
        made(group(), ConversationKind::Group),
        made(large(), ConversationKind::Group),
        made(pair(), ConversationKind::Direct),
    ];
    let everybody: Vec<_> = (0..34).map(|n| user(&format!("user-{n:02}"))).collect();
    for (conversation, people) in [
        (group(), &everybody[..2]),
        (large(), &everybody[..]),
        (pair(), &everybody[..2]),
    ] {
        rows.extend(
            people
                .iter()
                .enumerate()
                .map(|(n, user)| ImportRow::Participant {
                    conversation,
                    user: user.clone(),
                    membership: Membership::joined(if n == 0 { Role::Owner } else { Role::Member }),
                    positions: ImportPositions::default(),
                    ban: None,
                }),
        );
        rows.extend((1..=5).map(|micros| {
            ImportRow::Message(Arc::new(Message::new(
                conversation,
                id(micros),
                everybody[1].clone(),
                MessageKind::Text,
                Content::default(),
            )))
        }));
    }
    let emoji = Emoji::parse("👍").unwrap();
    rows.push(ImportRow::Reaction {
        conversation: group(),
        message: id(2),
        emoji,
        user: everybody[0].clone(),
    });
    rows
}

async fn open(folder: &tempfile::TempDir) -> Embedded {
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    };
    let store = Embedded::open(
        options,
        Arc::new(ManualClock::at(START.plus_micros(3_600_000_000))),
    )
    .await
    .unwrap();
    assert!(
        store
            .import(&rows())
            .await
            .unwrap()
            .iter()
            .all(|fate| matches!(fate, Imported::Added | Imported::Unchanged))
    );
    store
}

async fn all(store: &Embedded, repair: bool) -> Vec<Finding> {
    let (mut position, mut found) = (None, Vec::new());
    loop {
        let verified = store.verify(position.as_ref(), repair).await.unwrap();
        found.extend(verified.findings);
        position = verified.next;
        if position.is_none() {
            return found;
        }
    }
}

fn kinds(found: &[Finding]) -> Vec<&'static str> {
    let mut kinds: Vec<_> = found.iter().map(|finding| finding.what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Answers of the store's reads.
async fn answers(store: &Embedded) -> String {
    let mut told = String::new();
    for name in ["user-00", "user-01", "user-33"] {
        told += &format!(
            "{:?}",
            store
                .inbox(&user(name), &PageRequest::first(9))
                .await
                .unwrap()
        );
    }
    let rooms = [group(), large(), pair()];
    told += &format!(
        "{:?} {:?}",
        store.message_counts(&rooms).await.unwrap(),
        store.participant_counts(&rooms).await.unwrap()
    );
    told += &format!(
        "{:?}",
        store
            .direct_conversation(&user("user-00"), &user("user-01"))
            .await
            .unwrap()
    );
    told += &format!("{:?}", store.messages(&[(group(), id(2))]).await.unwrap());
    told += &format!("{:?}", store.app_key_claim(&app_key()).await.unwrap());
    told + &format!(
        "{:?}",
        store
            .messages_at(&[(group(), OrderKey::MAX)])
            .await
            .unwrap()
    )
}

fn head(store: &Embedded, of: ConversationId) -> HeadRecord {
    store
        .inner
        .context
        .view()
        .record(&key::head(of))
        .unwrap()
        .unwrap()
}

#[tokio::test]
async fn a_store_that_nothing_happened_to_is_sound() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    assert_eq!(all(&store, false).await, []);
    assert_eq!(all(&store, true).await, []);
    store.close().await.unwrap();
}

#[tokio::test]
async fn each_damage_is_found_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let before = answers(&store).await;
    let (first, second) = (user("user-00"), user("user-01"));
    let head_of = |change: &dyn Fn(&mut HeadRecord)| {
        let mut head = head(&store, group());
        change(&mut head);
        (key::head(group()), Some(record::encode(&head)))
    };
    let listing = head(&store, group()).listing(false);
    let mut unmarked = store
        .inner
        .context
        .view()
        .message(group(), id(2))
        .unwrap()
        .unwrap();
    unmarked.has_reactions = false;
    let stray = Listing::Active(START.plus_micros(99));
    type Row = (Key, Option<Vec<u8>>);
    let damages: Vec<(Row, &[&str])> = vec![
        (head_of(&|head| head.message_count += 1), &[finding::COUNT]),
        (
            head_of(&|head| head.participant_count = 0),
            &[finding::ROSTER],
        ),
        (
            head_of(&|head| head.last_message = Some(id(4))),
            &[finding::HEAD],
        ),
        // Every entry is then listed in the wrong place; only a fresh read of the head shows it.
        (
            head_of(&|head| head.last_activity = START.plus_micros(77)),
            &[finding::HEAD, finding::STRAY],
        ),
        (
            (key::head(group()), None),
            &[
                finding::COUNT,
                finding::HEAD,
                finding::STRAY,
                finding::ROSTER,
            ],
        ),
        (
            (key::listed(&first, group(), listing), None),
            &[finding::ENTRY],
        ),
        (
            (key::listed(&first, group(), stray), Some(Vec::new())),
            &[finding::STRAY],
        ),
        (
            (
                key::listed(&user("nobody"), group(), listing),
                Some(Vec::new()),
            ),
            &[finding::STRAY],
        ),
        (
            (key::listed(&user("user-33"), large(), Listing::Large), None),
            &[finding::ENTRY],
        ),
        ((key::pair(&first, &second), None), &[finding::PAIR]),
        ((key::app_key(&app_key()), None), &[finding::APP_KEY]),
        (
            (
                key::pair(&first, &user("user-07")),
                Some(record::encode(&pair())),
            ),
            &[finding::PAIR_NOWHERE],
        ),
        (
            (
                key::message(group(), id(2).order_key()),
                Some(MessageRecord::encode(&unmarked)),
            ),
            &[finding::REACTION_MARK],
        ),
        (
            (
                key::roster(group()),
                Some(record::encode(&RosterRecord::default())),
            ),
            &[finding::ROSTER],
        ),
        (
            (key::message(group(), id(2).order_key()), None),
            &[finding::COUNT, finding::ORPHAN],
        ),
    ];
    for ((key, value), expected) in damages {
        let is_message = key.table == key::Table::Messages && value.is_none();
        store
            .inner
            .context
            .db
            .commit([(key.clone(), value)])
            .unwrap();
        for conversation in [group(), large(), pair()] {
            store.states().forget(&conversation);
        }
        let found = kinds(&all(&store, false).await);
        assert!(
            found.iter().all(|kind| expected.contains(kind)) && !found.is_empty(),
            "{key:?}: {found:?}"
        );
        let repaired = all(&store, true).await;
        assert!(
            repaired.iter().all(|finding| finding.is_repaired),
            "{repaired:?}"
        );
        assert_eq!(all(&store, false).await, [], "{key:?}");
        if is_message {
            // The source itself is changed: a consistent result is another store.
            break;
        }
        assert_eq!(answers(&store).await, before, "{key:?}");
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_read_is_told_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    store
        .inner
        .context
        .db
        .commit([(
            key::message(group(), id(3).order_key()),
            Some(vec![9, 9, 9]),
        )])
        .unwrap();
    for _ in 0..2 {
        let found = all(&store, true).await;
        assert_eq!(
            (kinds(&found), found[0].is_repaired),
            (vec![DAMAGED_MESSAGE], false),
            "{found:?}"
        );
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn an_app_key_of_another_conversation_is_told_and_left() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let claim = AppKeyClaim {
        conversation: large(),
        input_hash: None,
    };
    let row = (key::app_key(&app_key()), Some(record::encode(&claim)));
    store.inner.context.db.commit([row]).unwrap();
    for _ in 0..2 {
        let found = all(&store, true).await;
        assert_eq!(
            (kinds(&found), found[0].is_repaired),
            (vec![finding::APP_KEY_OF_ANOTHER], false),
            "{found:?}"
        );
    }
    assert_eq!(store.app_key_claim(&app_key()).await.unwrap(), Some(claim));
    store.close().await.unwrap();
}

/// A server claims the key first: the next call of the service creates the conversation.
#[tokio::test]
async fn an_app_key_of_a_conversation_that_is_not_created_yet_is_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let claim = AppKeyClaim {
        conversation: ConversationId(uuid::Uuid::from_u128(77)),
        input_hash: Some(InputHash([7; 32])),
    };
    let key = AppKey::parse("order:8").unwrap();
    store.claim_app_key(&key, claim).await.unwrap();
    assert_eq!(all(&store, true).await, []);
    store.close().await.unwrap();
}
