//! Rows that sends and changes write to the tables of a cluster, read through a separate session.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use scylla::client::session::Session;
use scylla::value::CqlTimeuuid;
use tokio::sync::OnceCell;
use uuid::Uuid;
use wideroom::clock::ManualClock;
use wideroom::model::{
    ChangeKind, ConversationId, Message, MessageId, OrderKey, OutboxEvent, Revision, TimeUuid,
    UserId,
};
use wideroom::store::cql::{Cql, migrate};
use wideroom::store::{EarlierSend, Error, LateChange, NewMessage, Store};

use crate::support::cassandra::shared;
use crate::support::words::{
    HOUR, NOW, START, change, change_of, content, conversation_id, crowd, id, key, longest_user,
    new, new_salt_among_others, system, text, users,
};

/// A store on a keyspace of this test run, and a session beside it.
struct StoreFixture {
    store: Cql,
    session: Session,
    clock: Arc<ManualClock>,
}

impl StoreFixture {
    async fn open() -> Option<Self> {
        static KEYSPACE: OnceCell<String> = OnceCell::const_new();
        let shared = shared().await?;
        new_salt_among_others();
        let clock = Arc::new(ManualClock::at(NOW));
        let make = async || {
            let name = format!("sends_{}", Uuid::new_v4().simple());
            migrate(&shared.url(&name).parse().unwrap(), Some(1), &*clock)
                .await
                .unwrap();
            name
        };
        let keyspace = KEYSPACE.get_or_init(make).await;
        let store = Cql::open(shared.url(keyspace).parse().unwrap(), clock.clone())
            .await
            .unwrap();
        let session = shared.session().await;
        session.use_keyspace(keyspace, false).await.unwrap();
        Some(Self {
            store,
            session,
            clock,
        })
    }

    async fn run(&self, cql: &str, values: impl scylla::serialize::row::SerializeRow) {
        self.session
            .query_unpaged(cql, values)
            .await
            .unwrap_or_else(|error| panic!("{cql}: {error}"));
    }

    async fn rows<R>(&self, cql: &str, values: impl scylla::serialize::row::SerializeRow) -> Vec<R>
    where
        R: for<'frame> scylla::deserialize::row::DeserializeRow<'frame, 'frame>,
    {
        let answer = self
            .session
            .query_unpaged(cql, values)
            .await
            .unwrap_or_else(|error| panic!("{cql}: {error}"));
        answer
            .into_rows_result()
            .unwrap()
            .rows::<R>()
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    async fn make(&self, conversation: ConversationId, people: &[UserId]) {
        let insert = "INSERT INTO conversations (conversation_id, kind, created_at, is_large) VALUES (?, 1, ?, ?)";
        self.run(insert, (conversation.0, START.micros(), people.len() > 32))
            .await;
        self.add(conversation, 0, people).await;
    }

    /// In one write, as a change of the membership is.
    async fn add(&self, conversation: ConversationId, version: i64, people: &[UserId]) {
        let mut batch =
            scylla::statement::batch::Batch::new(scylla::statement::batch::BatchType::Unlogged);
        let mut values = Vec::new();
        let insert = self
            .session
            .prepare("INSERT INTO participants_by_conversation (conversation_id, user_id, membership, roster) VALUES (?, ?, ?, ?)")
            .await
            .unwrap();
        let version = version.to_be_bytes().to_vec();
        for user in people {
            batch.append_statement(insert.clone());
            values.push((
                conversation.0,
                user.as_str(),
                vec![0_u8, 2],
                version.clone(),
            ));
        }
        self.session.batch(&batch, values).await.unwrap();
    }

    /// Each message with the bucket that it lies in.
    async fn kept(&self, conversation: ConversationId) -> Vec<(MessageId, (i8, i64))> {
        let buckets: Vec<(i8, i64)> = self
            .rows("SELECT width, start FROM buckets_by_conversation WHERE conversation_id = ? AND width IN (0, 1, 2, 3)", (conversation.0,))
            .await;
        let mut kept = Vec::new();
        for (width, start) in buckets {
            let select = "SELECT message_id, sender_id FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ?";
            let rows: Vec<(CqlTimeuuid, Option<String>)> =
                self.rows(select, (conversation.0, width, start)).await;
            let whole = rows.into_iter().filter(|(_, sender)| sender.is_some());
            kept.extend(
                whole.map(|(id, _)| (TimeUuid::from_uuid(id.into()).unwrap(), (width, start))),
            );
        }
        kept.sort_unstable();
        kept
    }

    /// The last message in a user's entry, its time, and up to where they sent.
    async fn entry(&self, user: &UserId, conversation: ConversationId) -> Option<Entry> {
        let select = "SELECT last_message, last_activity, sent_up_to FROM inbox_by_user WHERE user_id = ? AND conversation_id = ?";
        let rows: Vec<Columns> = self.rows(select, (user.as_str(), conversation.0)).await;
        let place = |bytes: Vec<u8>| {
            TimeUuid::from_order_key(OrderKey(bytes[..16].try_into().unwrap())).unwrap()
        };
        rows.into_iter()
            .next()
            .map(|(last, activity, sent)| (last.map(place), activity, sent.map(place)))
    }

    async fn hints(&self, user: &UserId) -> Vec<(i32, i64)> {
        let select = "SELECT slot, last_activity FROM inbox_activity_by_user WHERE user_id = ?";
        self.rows(select, (user.as_str(),)).await
    }

    async fn append(
        &self,
        conversation: ConversationId,
        messages: &[NewMessage],
    ) -> Vec<(usize, EarlierSend)> {
        self.store
            .append_messages(conversation, messages)
            .await
            .unwrap()
            .taken
    }

    async fn send(&self, conversation: ConversationId, micros: i64, sender: &UserId) -> usize {
        let appended = self
            .store
            .append_messages(conversation, &[new(text(conversation, id(micros), sender))])
            .await
            .unwrap();
        appended.audience.users.map_or(0, |users| users.len())
    }
}

type Columns = (Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>);
type Entry = (Option<MessageId>, Option<i64>, Option<MessageId>);

fn at(micros: i64) -> i64 {
    START.micros() + micros
}

#[tokio::test]
async fn a_send_reaches_every_table_that_it_concerns() {
    let Some(on) = StoreFixture::open().await else {
        return;
    };
    let [ann, ben, cat] = users(["ann", "ben", "cat"]);
    let group = conversation_id(1);
    on.make(group, &[ann.clone(), ben.clone()]).await;
    let batch = [
        new(text(group, id(1), &ann)),
        new(text(group, id(2), &ben)),
        new(system(group, id(3), &ann)),
        new(text(group, id(4), &cat)),
    ];
    let appended = on.store.append_messages(group, &batch).await.unwrap();
    assert_eq!(
        appended.audience.users.as_deref(),
        Some([ann.clone(), ben.clone()].as_slice())
    );
    assert_eq!(
        on.kept(group)
            .await
            .iter()
            .map(|(id, _)| *id)
            .collect::<Vec<_>>(),
        (1..=4).map(id).collect::<Vec<_>>()
    );
    assert_eq!(
        on.entry(&ann, group).await,
        Some((Some(id(4)), Some(at(4)), Some(id(1))))
    );
    assert_eq!(
        on.entry(&ben, group).await,
        Some((Some(id(4)), Some(at(4)), Some(id(2))))
    );
    assert_eq!(
        on.entry(&cat, group).await,
        Some((None, None, Some(id(4)))),
        "no entry of one who is not in it"
    );
    let hour = i32::try_from(START.micros() / HOUR).unwrap();
    assert_eq!(on.hints(&ann).await, [(hour, at(4))]);
    on.send(group, 5, &ann).await;
    assert_eq!(on.hints(&ann).await, [(hour, at(4))], "one hint an hour");
    on.send(group, 2 * HOUR, &ann).await;
    assert_eq!(
        on.hints(&ben).await,
        [(hour + 2, at(2 * HOUR))],
        "the one before is gone"
    );
    let head: Vec<(Option<Vec<u8>>, Option<i64>)> = on
        .rows(
            "SELECT last_message, last_activity FROM conversations WHERE conversation_id = ?",
            (group.0,),
        )
        .await;
    assert_eq!(head[0].1, Some(at(2 * HOUR)));
    assert!(
        head[0]
            .0
            .as_ref()
            .unwrap()
            .starts_with(&id(2 * HOUR).order_key().0)
    );
}

#[tokio::test]
async fn a_large_conversation_raises_the_senders_entry_alone() {
    let Some(on) = StoreFixture::open().await else {
        return;
    };
    let people = crowd(40);
    let group = conversation_id(1);
    on.make(group, &people).await;
    let appended = on
        .store
        .append_messages(group, &[new(text(group, id(1), &people[3]))])
        .await
        .unwrap();
    assert!(appended.audience.users.is_none());
    assert_eq!(
        on.entry(&people[3], group).await,
        Some((Some(id(1)), Some(at(1)), Some(id(1))))
    );
    assert_eq!(on.entry(&people[4], group).await, None);
    assert!(on.hints(&people[3]).await.is_empty());
    assert_eq!(on.kept(group).await.len(), 1);
}

#[tokio::test]
async fn a_participant_who_joined_meanwhile_gets_the_message() {
    let Some(on) = StoreFixture::open().await else {
        return;
    };
    let people = crowd(33);
    let group = conversation_id(1);
    on.make(group, &people[..2]).await;
    assert_eq!(on.send(group, 1, &people[0]).await, 2);
    on.add(group, 2, &people[2..4]).await;
    assert_eq!(on.send(group, 3, &people[0]).await, 4);
    assert_eq!(
        on.entry(&people[3], group).await,
        Some((Some(id(3)), Some(at(3)), None))
    );
    assert_eq!(on.hints(&people[3]).await.len(), 1);
    on.run(
        "UPDATE conversations SET is_large = true WHERE conversation_id = ?",
        (group.0,),
    )
    .await;
    on.add(group, 4, &people[4..]).await;
    assert!(
        on.store
            .append_messages(group, &[new(text(group, id(5), &people[0]))])
            .await
            .unwrap()
            .audience
            .users
            .is_none()
    );
}

fn with_key(message: Message, text: &str) -> NewMessage {
    new(Message {
        client_key: Some(key(text)),
        ..message
    })
}

#[tokio::test]
async fn one_of_many_servers_that_send_under_one_key_persists_its_message() {
    let Some(on) = StoreFixture::open().await else {
        return;
    };
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    on.make(group, &[ann.clone(), ben.clone()]).await;
    let Some(other) = StoreFixture::open_in_the_same_case(&on).await else {
        return;
    };
    let sends: Vec<_> = (1..=6)
        .map(|n| with_key(text(group, id(n), &ann), "key"))
        .collect();
    let stores = [&on.store, &other];
    let outcomes = join_all(sends.iter().enumerate().map(async |(n, send)| {
        loop {
            match stores[n % 2]
                .append_messages(group, std::slice::from_ref(send))
                .await
            {
                Err(Error::OutcomeUnknown(_) | Error::Unavailable(_)) => {}
                done => return done.unwrap().taken,
            }
        }
    }))
    .await;
    let kept = on.kept(group).await;
    let [(kept, _)] = kept[..] else {
        panic!("one message is kept: {kept:?}")
    };
    let hash = sends
        .iter()
        .find(|send| send.message.id == kept)
        .unwrap()
        .input_hash
        .unwrap();
    for (send, taken) in sends.iter().zip(outcomes) {
        match send.message.id == kept {
            true => assert_eq!(taken, []),
            false => assert_eq!(
                taken,
                [(
                    0,
                    EarlierSend {
                        message: kept,
                        input_hash: hash,
                        is_delivered: false,
                    }
                )]
            ),
        }
    }
}

impl StoreFixture {
    /// As another server of the same deployment.
    async fn open_in_the_same_case(on: &Self) -> Option<Cql> {
        let keyspace = on.session.get_keyspace().unwrap().to_string();
        Some(
            Cql::open(
                shared().await?.url(&keyspace).parse().unwrap(),
                on.clock.clone(),
            )
            .await
            .unwrap(),
        )
    }
}

#[tokio::test]
async fn another_server_finishes_what_was_claimed_in_the_bucket_of_the_claim() {
    let Some(on) = StoreFixture::open().await else {
        return;
    };
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    on.make(group, &[ann.clone(), ben.clone()]).await;
    let send = with_key(text(group, id(1), &ann), "key");
    let minute = at(0) - at(0) % 60_000_000;
    let claim = "INSERT INTO sends_by_key (conversation_id, sender_id, key, message_id, width, start, input_hash) VALUES (?, ?, 'key', ?, 3, ?, ?)";
    let id_bytes = CqlTimeuuid::from(id(1).uuid());
    on.run(
        claim,
        (
            group.0,
            ann.as_str(),
            id_bytes,
            minute,
            send.input_hash.unwrap().0.to_vec(),
        ),
    )
    .await;
    on.send(group, 2, &ben).await;
    assert_eq!(on.append(group, std::slice::from_ref(&send)).await, []);
    assert!(on.kept(group).await.contains(&(id(1), (3, minute))));
    assert_eq!(
        on.entry(&ben, group).await.unwrap().0,
        Some(id(2)),
        "the last message is still the last"
    );
}

#[tokio::test]
async fn a_keyed_retry_on_another_server_appends_nothing_and_keeps_the_count() {
    let Some(kept) = StoreFixture::open().await else {
        return;
    };
    let Some(other) = StoreFixture::open_in_the_same_case(&kept).await else {
        return;
    };
    let [ann, ben, cem] = users(["ann", "ben", "cem"]);
    let conversation = conversation_id(1);
    kept.make(conversation, &[ann.clone(), ben.clone()]).await;
    let minutes = |count: i64| HOUR - count * 60_000_000;
    let first = with_key(text(conversation, id(minutes(10)), &ann), "k");
    for new_message in [first.clone(), new(text(conversation, id(minutes(9)), &ben))] {
        let messages = [new_message];
        kept.store
            .append_messages(conversation, &messages)
            .await
            .unwrap();
    }
    // The count is kept in a row of its own, by the count of the messages that are a minute old.
    let [count] = kept.store.message_counts(&[conversation]).await.unwrap()[..] else {
        panic!("one count");
    };
    assert_eq!(count, 2);
    let summary = async || {
        let select = "SELECT counted FROM buckets_by_conversation WHERE conversation_id = ? AND width = -1 AND start = 0";
        let rows: Vec<(Option<Vec<u8>>,)> = kept.rows(select, (conversation.0,)).await;
        rows.into_iter().next().and_then(|(counted,)| counted)
    };
    let before = summary().await;
    assert!(before.is_some());
    // A participant whom the first attempt did not know: its server may have died before it saw them.
    kept.add(conversation, 7, std::slice::from_ref(&cem)).await;
    let outcome = other.append_messages(conversation, &[first]).await.unwrap();
    assert!(outcome.taken.is_empty());
    assert_eq!(summary().await, before, "the count stays");
    assert_eq!(kept.kept(conversation).await.len(), 2);
    assert!(
        kept.entry(&cem, conversation).await.is_some(),
        "the inbox of a newcomer has it"
    );
}

#[tokio::test]
async fn the_same_messages_go_to_the_same_bucket_also_from_a_server_that_forgot() {
    let Some(on) = StoreFixture::open().await else {
        return;
    };
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    on.make(group, &[ann.clone(), ben.clone()]).await;
    let rush: Vec<_> = (0..64).map(|n| new(text(group, id(n), &ann))).collect();
    on.append(group, &rush).await;
    // A head in a narrow bucket: a server that comes new begins there.
    let last = [
        id(100).order_key().0.as_slice(),
        &[3],
        &at(0).to_be_bytes(),
        ann.as_str().as_bytes(),
    ]
    .concat();
    on.run(
        "UPDATE conversations USING TIMESTAMP 1 SET last_message = ? WHERE conversation_id = ?",
        (last, group.0),
    )
    .await;
    let before = on.kept(group).await;
    on.append(group, &rush).await;
    assert_eq!(on.kept(group).await, before);
    let Some(other) = StoreFixture::open_in_the_same_case(&on).await else {
        return;
    };
    other.append_messages(group, &rush).await.unwrap();
    assert_eq!(on.kept(group).await, before);
    other
        .append_messages(group, &[new(text(group, id(200), &ben))])
        .await
        .unwrap();
    assert_eq!(on.kept(group).await.last(), Some(&(id(200), (3, at(0)))));
}

#[tokio::test]
async fn the_greatest_batch_is_taken() {
    let Some(on) = StoreFixture::open().await else {
        return;
    };
    let people: Vec<_> = (0..32)
        .map(|n| longest_user(char::from(b'A' + n)))
        .collect();
    let group = conversation_id(1);
    on.make(group, &people).await;
    let mut all = Vec::new();
    for (first, count, bytes) in [
        (0, 1, 16_384),
        (100, 64, 600),
        (200, 64, 1),
        (300, 2, 16_384),
        (2 * HOUR, 1, 16_384),
    ] {
        let batch: Vec<_> = (first..first + count)
            .map(|n| {
                let message = text(group, id(n), &people[usize::try_from(n).unwrap() % 32]);
                new(Message {
                    content: Some(content(&"x".repeat(bytes))),
                    ..message
                })
            })
            .collect();
        on.append(group, &batch).await;
        all.extend((first..first + count).map(id));
        let last = all.last().copied();
        for user in &people {
            assert_eq!(on.entry(user, group).await.unwrap().0, last);
        }
    }
    assert_eq!(
        on.kept(group)
            .await
            .into_iter()
            .map(|(id, _)| id)
            .collect::<Vec<_>>(),
        all
    );
}

#[tokio::test]
async fn an_append_to_nowhere_leaves_nothing() {
    let Some(on) = StoreFixture::open().await else {
        return;
    };
    let [ann] = users(["ann"]);
    let refused = on
        .store
        .append_messages(
            conversation_id(9),
            &[new(text(conversation_id(9), id(1), &ann))],
        )
        .await;
    assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
    assert!(on.kept(conversation_id(9)).await.is_empty());
}

async fn revise(
    on: &StoreFixture,
    message: MessageId,
    micros: i64,
    revision: &Revision,
    by: &UserId,
) -> Option<(Message, Option<usize>)> {
    let change = change_of(change(micros), revision.kind(), message, by);
    let revised = on
        .store
        .revise_message(conversation_id(1), revision, &change)
        .await
        .unwrap()?;
    Some((
        Message::clone(&revised.message),
        revised.audience.users.map(|users| users.len()),
    ))
}

#[tokio::test]
async fn changes_are_kept_with_their_log() {
    let Some(on) = StoreFixture::open().await else {
        return;
    };
    let [ann, ben] = users(["ann", "ben"]);
    let group = conversation_id(1);
    on.make(group, &[ann.clone(), ben.clone()]).await;
    let day = 24 * HOUR;
    for micros in [1, 2, 3] {
        on.send(group, micros, &ann).await;
    }
    let edit = |text: &str| Revision::edit(content(text));
    assert!(
        revise(&on, id(7), 8, &Revision::Deletion, &ann)
            .await
            .is_none()
    );
    assert_eq!(
        revise(&on, id(1), 4, &edit("older"), &ann).await.unwrap().1,
        Some(0)
    );
    let (message, told) = revise(&on, id(3), 5, &edit("last"), &ann).await.unwrap();
    assert_eq!((message.content, told), (Some(content("last")), Some(2)));
    let deleted = revise(&on, id(1), day + 6, &Revision::Deletion, &ann)
        .await
        .unwrap();
    assert_eq!(
        (deleted.0.deleted_at, deleted.1),
        (Some(change(day + 6).moment()), Some(2))
    );
    assert_eq!(
        revise(&on, id(1), day + 6, &Revision::Deletion, &ann).await,
        Some(deleted.clone()),
        "the same once more"
    );
    assert_eq!(
        revise(&on, id(1), day + 7, &edit("too late"), &ann).await,
        Some((deleted.0, Some(0)))
    );
    let late = change_of(change(3 * day), ChangeKind::MessageLate, id(2), &ann);
    let logged = LateChange {
        event: OutboxEvent::of_change(&late),
        change: late.clone(),
    };
    on.store.log_late(group, &[logged]).await.unwrap();
    let all = on.store.changes(group, OrderKey::MIN, 99).await.unwrap();
    assert_eq!(
        all.iter().map(|change| change.id).collect::<Vec<_>>(),
        [4, 5, day + 6, 3 * day].map(change)
    );
    assert_eq!(all[3], late);
    assert_eq!(
        on.store
            .changes(group, change(4).order_key(), 2)
            .await
            .unwrap(),
        all[1..3]
    );
    assert_eq!(
        on.store
            .changes(group, change(day + 6).order_key().before(), 99)
            .await
            .unwrap(),
        all[2..]
    );
    assert!(
        on.store
            .changes(group, change(3 * day).order_key(), 99)
            .await
            .unwrap()
            .is_empty()
    );
    let told: Vec<(CqlTimeuuid,)> = {
        let first = i32::try_from(START.micros() / day).unwrap();
        let select = "SELECT change_id FROM changes_by_user WHERE user_id = ? AND day IN ?";
        on.rows(select, (ben.as_str(), vec![first, first + 1, first + 3]))
            .await
    };
    let told: BTreeSet<_> = told
        .into_iter()
        .map(|(id,)| TimeUuid::from_uuid(id.into()).unwrap())
        .collect();
    assert_eq!(told, BTreeSet::from([5, day + 6, 3 * day].map(change)));
}

#[tokio::test]
#[ignore = "gate: many thousand rows on a cluster"]
async fn several_servers_together_keep_the_bound_of_a_partition() {
    // Each writes a fraction of what one partition may hold, and all of them more than that.
    const SERVERS: usize = 6;
    const MESSAGES: i64 = 30_000;
    const BATCH: i64 = 50;
    let Some(fixture) = StoreFixture::open().await else {
        return;
    };
    let mut servers = Vec::new();
    for _ in 0..SERVERS {
        let Some(server) = StoreFixture::open_in_the_same_case(&fixture).await else {
            return;
        };
        servers.push(server);
    }
    let [ann, ben] = users(["ann", "ben"]);
    let conversation = conversation_id(1);
    fixture.make(conversation, &[ann.clone(), ben]).await;
    for batch in 0..MESSAGES / BATCH {
        let server = &servers[usize::try_from(batch).unwrap() % SERVERS];
        let messages: Vec<_> = (0..BATCH)
            .map(|n| batch * BATCH + n)
            .map(|n| new(text(conversation, id(n * 100_000), &ann)))
            .collect();
        let now = START.plus_micros((batch + 1) * BATCH * 100_000);
        fixture.clock.set(now);
        // As a send does that comes through the chat.
        server.newest_events(&[conversation]).await.unwrap();
        server
            .append_messages(conversation, &messages)
            .await
            .unwrap();
    }
    let mut rows: BTreeMap<(i8, i64), usize> = BTreeMap::new();
    for (_, bucket) in fixture.kept(conversation).await {
        *rows.entry(bucket).or_default() += 1;
    }
    println!("{SERVERS} servers, {MESSAGES} messages: {rows:?}");
    assert_eq!(
        rows.values().sum::<usize>(),
        usize::try_from(MESSAGES).unwrap()
    );
    let most = rows.values().max().unwrap();
    assert!(*most <= 20_000 + SERVERS * 600, "{rows:?}");
}

#[tokio::test]
#[ignore = "gate: many thousand rows on a cluster"]
async fn a_rush_lies_in_partitions_within_the_bound() {
    let Some(on) = StoreFixture::open().await else {
        return;
    };
    let [ann] = users(["ann"]);
    let group = conversation_id(1);
    on.make(group, std::slice::from_ref(&ann)).await;
    // 25,000 within a minute.
    let all: Vec<_> = (0..25_000)
        .map(|n| Message {
            content: Some(content("hey")),
            ..text(group, id(n * 2_400), &ann)
        })
        .collect();
    for batch in all.chunks(64) {
        on.append(group, &batch.iter().cloned().map(new).collect::<Vec<_>>())
            .await;
    }
    let buckets: Vec<(i8, i64)> = on
        .rows(
            "SELECT width, start FROM buckets_by_conversation WHERE conversation_id = ? AND width IN (0, 1, 2, 3)",
            (group.0,),
        )
        .await;
    assert!((2..=4).contains(&buckets.len()), "{buckets:?}");
    let mut sum = 0;
    for (width, start) in buckets {
        let select = "SELECT count(kind) FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ?";
        let rows: Vec<(i64,)> = on.rows(select, (group.0, width, start)).await;
        assert!(rows[0].0 <= 20_064, "{width} {start}: {rows:?}");
        sum += rows[0].0;
    }
    assert_eq!(sum, 25_000);
}
