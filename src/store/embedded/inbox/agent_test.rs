//! No row is written under the name of an agent, however many conversations it takes part in.

use std::sync::Arc;

use crate::clock::ManualClock;
use crate::model::{
    Body, Content, Conversation, ConversationId, ConversationKind, Direction, Flags, Mentions,
    Message, MessageId, MessageKind, PageRequest, ReadMarker, Role, Timestamp, UserId,
};
use crate::store::embedded::engine::committer::{Op, Write};
use crate::store::embedded::engine::key::{self, EntryCell, Key, Listing, Span, Table};
use crate::store::embedded::engine::record;
use crate::store::embedded::{Embedded, Options};
use crate::store::rules::finding;
use crate::store::{
    FlagsChange, MarkerMove, NewConversation, NewMessage, Store as _, StoreAdmin as _,
};

const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);
/// Conversations of the agent, each with another user.
const CONVERSATIONS: i64 = 100;

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn id(micros: i64) -> MessageId {
    MessageId::new(START.plus_micros(micros), [1; 8])
}

fn conversation(number: i64) -> ConversationId {
    ConversationId(uuid::Uuid::from_u128(number as u128 + 1))
}

async fn open(folder: &tempfile::TempDir) -> Embedded {
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    };
    let clock = ManualClock::at(START.plus_micros(3_600_000_000));
    Embedded::open(options, Arc::new(clock)).await.unwrap()
}

async fn make(store: &Embedded, number: i64, people: &[&UserId]) {
    let change = id(number * 1_000);
    let new = NewConversation {
        conversation: Conversation {
            id: conversation(number),
            kind: ConversationKind::Group,
            name: None,
            created_at: change.moment(),
            created_by: None,
            input_hash: None,
            slow_mode_seconds: 0,
            history: Default::default(),
            is_large: false,
        },
        participants: people
            .iter()
            .map(|user| ((*user).clone(), Role::Member))
            .collect(),
        profile: Default::default(),
        change,
    };
    store.create_conversation(&new).await.unwrap();
}

async fn send(store: &Embedded, number: i64, at: i64, sender: &UserId, mentioned: &UserId) {
    let message = Message {
        conversation: conversation(number),
        id: id(number * 1_000 + at),
        sender: sender.clone(),
        kind: MessageKind::Text,
        content: Some(Content {
            body: Body::parse("hello".to_owned(), 100, false).unwrap(),
            mentions: Mentions::new(vec![mentioned.clone()], true),
            ..Content::default()
        }),
        reply_to: None,
        client_key: None,
        deleted_at: None,
        has_reactions: false,
        pin: None,
    };
    let new = NewMessage {
        message: message.into(),
        input_hash: None,
        is_by_service: false,
    };
    let sent = store.append_messages(conversation(number), &[new]).await;
    sent.unwrap();
}

/// Rows whose keys begin with a user's name, with or without a tag before it.
fn rows_of(store: &Embedded, user: &UserId) -> usize {
    let (view, name) = (store.inner.context.view(), user.as_str().as_bytes());
    let is_of =
        |key: &[u8]| key.starts_with(name) || key.get(1..).is_some_and(|key| key.starts_with(name));
    let rows = Table::ALL.iter().copied().map(|table| {
        let all = Span {
            table,
            start: Vec::new(),
            end: vec![0xff; 64],
        };
        let keys = view.scan(all, Direction::Forward);
        keys.filter(|row| is_of(&row.as_ref().unwrap().0)).count()
    });
    rows.sum()
}

#[tokio::test]
async fn conversations_of_an_agent_write_no_row_under_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let agent = user("agent:helper");
    for number in 0..CONVERSATIONS {
        let person = user(&format!("person{number}"));
        make(&store, number, &[&person, &agent]).await;
        send(&store, number, 1, &person, &agent).await;
        send(&store, number, 2, &agent, &person).await;
        let read = MarkerMove {
            conversation: conversation(number),
            marker: ReadMarker::up_to_newest(Some(id(number * 1_000 + 1))),
            read_up_to: Some(id(number * 1_000 + 1).order_key()),
            is_by_service: false,
            change: id(number * 1_000 + 3),
        };
        let flags = FlagsChange {
            conversation: conversation(number),
            muted: Some(true),
            pinned: None,
            archive: None,
            level: None,
            change: id(number * 1_000 + 4),
        };
        store.move_read_marker(&agent, &read).await.unwrap();
        assert_eq!(store.set_flags(&agent, &flags).await.unwrap(), None);
        store.move_read_marker(&person, &read).await.unwrap();
    }
    assert_eq!(rows_of(&store, &agent), 0);
    assert!(
        rows_of(&store, &user("person7")) > 4,
        "those of a person are found"
    );
    store.close().await.unwrap();
}

#[tokio::test]
async fn rows_that_earlier_versions_wrote_for_such_a_name_are_ignored_and_a_repair_drops_them() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let (agent, person) = (user("agent:helper"), user("person"));
    make(&store, 0, &[&person, &agent]).await;
    send(&store, 0, 1, &person, &agent).await;
    let at = id(1).order_key();
    let muted = Flags {
        is_muted: true,
        ..Flags::default()
    };
    let rows: Vec<(Key, Vec<u8>)> = vec![
        (
            key::entry(&agent, conversation(0), EntryCell::Marker),
            record::encode_marker(ReadMarker::default()),
        ),
        (
            key::entry(&agent, conversation(0), EntryCell::Flags),
            record::encode_flags(&muted),
        ),
        (
            key::listed(&agent, conversation(0), Listing::Busy),
            Vec::new(),
        ),
        (
            key::listed(&agent, conversation(0), Listing::Active(START)),
            Vec::new(),
        ),
        (
            key::mention(&agent, conversation(0), at),
            record::encode(&person),
        ),
    ];
    let count = rows.len();
    let write = Write {
        ops: rows
            .into_iter()
            .map(|(key, value)| Op::Put(key, value))
            .collect(),
        ..Write::default()
    };
    store.write(write).await.unwrap();
    assert_eq!(rows_of(&store, &agent), count);

    let page = store.inbox(&agent, &PageRequest::first(9)).await.unwrap();
    assert!(page.items.is_empty());
    let row = store.inbox_rows(&agent, &[conversation(0)]).await.unwrap()[0].unwrap();
    assert_eq!((row.flags, row.may_be_unread()), (Flags::default(), false));

    let mut found = Vec::new();
    for repair in [false, true, false] {
        let (mut position, mut kinds) = (None, Vec::new());
        loop {
            let verified = store.verify(position.as_ref(), repair).await.unwrap();
            kinds.extend(verified.findings.iter().map(|one| one.what));
            position = verified.next;
            if position.is_none() {
                break;
            }
        }
        found.push(kinds);
    }
    let all = [vec![finding::AGENT; 4], vec![finding::MENTION_STRAY]].concat();
    assert_eq!(found, [all.clone(), all, Vec::new()]);
    assert_eq!(rows_of(&store, &agent), 0);
    store.close().await.unwrap();
}
