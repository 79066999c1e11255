//! Long and hot conversations on Cassandra: what a partition holds at most, and what a page costs where there is a lot.
//!
//! `WIDEROOM_TEST_MESSAGES=1000000` imports as many as the bound is promised for, and sends a tenth of that within one minute. Without it
//! there are as many as show the same in less time.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use scylla::client::session::Session;
use scylla::statement::unprepared::Statement;
use tokio_util::sync::CancellationToken;
use wideroom::clock::ManualClock;
use wideroom::model::{
    ConversationId, Cut, Message, MessageId, OrderKey, PageRequest, TimeUuid, Timestamp,
};
use wideroom::store::cql::{Address, Cql};
use wideroom::store::{ImportRow, Store};
use wideroom::transfer::import::Import;

use super::ask::import_all;
use super::stage::keyspace;
use crate::support::cassandra::shared;
use crate::support::words::{
    HOUR, NOW, START, content, group, group_row, message_row, new, new_salt_among_others,
    participant_row, text, users,
};

const PARTITION_MESSAGES_MAX: i64 = 100_000;
const PARTITION_BYTES_MAX: usize = 50_000_000;
/// Statements of a page: parts of the bucket index, one for each width, and the few buckets with its messages.
const PAGE_STATEMENTS_MAX: u64 = 12;
const YEAR: i64 = 365 * 24 * HOUR;
const MINUTE: i64 = 60_000_000;
const PAGE: usize = 50;
const WALK_PAGE: usize = 100;
/// Messages that come after years of silence.
const LATE: usize = 10;
const BATCH: usize = 64;

/// How many messages are imported across years, and how many are sent within a minute.
fn sizes() -> (usize, usize) {
    match std::env::var("WIDEROOM_TEST_MESSAGES").map(|count| count.parse().unwrap()) {
        Ok(count) => (count, count / 10),
        Err(_) => (40_000, 22_000),
    }
}

struct Place {
    store: Cql,
    session: Session,
    address: Address,
}

impl Place {
    async fn open() -> Option<Self> {
        let address = keyspace().await?;
        new_salt_among_others();
        let session = shared().await?.session().await;
        session.use_keyspace(&address.keyspace, true).await.unwrap();
        Some(Self {
            store: open(&address).await,
            session,
            address,
        })
    }

    async fn import(
        &self,
        conversation: ConversationId,
        messages: impl Iterator<Item = Message>,
        at_once: usize,
    ) {
        let mut rows: Vec<ImportRow> = vec![group_row(conversation, None)];
        rows.extend(
            users(["ann", "ben"])
                .iter()
                .map(|user| participant_row(conversation, user)),
        );
        for message in messages {
            rows.push(message_row(message));
            if rows.len() >= at_once {
                self.flush(&mut rows).await;
            }
        }
        self.flush(&mut rows).await;
    }

    async fn flush(&self, rows: &mut Vec<ImportRow>) {
        import_all(&self.store, rows).await;
        rows.clear();
    }

    /// The buckets of a conversation, with how many messages each holds.
    async fn buckets(&self, conversation: ConversationId) -> Vec<((i8, i64), i64)> {
        let select = "SELECT width, start FROM buckets_by_conversation WHERE conversation_id = ? AND width IN (0, 1, 2, 3)";
        let rows = self
            .session
            .query_unpaged(select, (conversation.0,))
            .await
            .unwrap()
            .into_rows_result()
            .unwrap();
        let buckets: Vec<(i8, i64)> = rows.rows().unwrap().map(Result::unwrap).collect();
        let count = "SELECT COUNT(*) FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ?";
        let count = self.session.prepare(count).await.unwrap();
        let counted = stream::iter(buckets).map(async |(width, start)| {
            let rows = self
                .session
                .execute_unpaged(&count, (conversation.0, width, start))
                .await
                .unwrap()
                .into_rows_result()
                .unwrap();
            ((width, start), rows.single_row::<(i64,)>().unwrap().0)
        });
        counted.buffer_unordered(4).collect().await
    }

    /// The bytes of what was said in one bucket.
    async fn bytes(&self, conversation: ConversationId, (width, start): (i8, i64)) -> usize {
        let select = "SELECT content FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ?";
        let rows = self
            .session
            .query_iter(
                Statement::new(select).with_page_size(100),
                (conversation.0, width, start),
            )
            .await
            .unwrap();
        rows.rows_stream::<(Vec<u8>,)>()
            .unwrap()
            .try_fold(0, async |sum, (content,)| Ok(sum + content.len()))
            .await
            .unwrap()
    }
}

async fn open(address: &Address) -> Cql {
    Cql::open(address.clone(), Arc::new(ManualClock::at(NOW)))
        .await
        .unwrap()
}

fn id_at(moment: Timestamp) -> MessageId {
    TimeUuid::new(moment, [0x80, 0, 1, 0, 0, 0, 0, 0])
}

/// Checks a page, and answers with what it cost.
async fn page_cost(
    store: &Cql,
    conversation: ConversationId,
    request: &PageRequest<OrderKey>,
    expected: &[MessageId],
) -> u64 {
    let before = store.statements_sent();
    let page = store
        .history(conversation, &Cut::default(), request)
        .await
        .unwrap();
    let cost = store.statements_sent() - before;
    let ids: Vec<_> = page.items.iter().map(|message| message.id).collect();
    assert_eq!(ids, expected, "{request:?}");
    cost
}

/// From the newest to the oldest and back. Answers with what the dearest page cost.
async fn walk_both_ways(store: &Cql, conversation: ConversationId, ids: &[MessageId]) -> u64 {
    let (mut rest, mut after, mut most) = (ids, None, 0);
    while let [.., _] = rest {
        let (others, page) = rest.split_at(rest.len().saturating_sub(WALK_PAGE));
        let expected: Vec<_> = page.iter().rev().copied().collect();
        most = most.max(
            page_cost(
                store,
                conversation,
                &PageRequest {
                    after,
                    ..PageRequest::first(WALK_PAGE)
                },
                &expected,
            )
            .await,
        );
        (rest, after) = (others, page.first().map(|id| id.order_key()));
    }
    let mut before = None;
    for page in ids.chunks(WALK_PAGE) {
        let expected: Vec<_> = page.iter().rev().copied().collect();
        most = most.max(
            page_cost(
                store,
                conversation,
                &PageRequest {
                    before,
                    ..PageRequest::last(WALK_PAGE)
                },
                &expected,
            )
            .await,
        );
        before = page.last().map(|id| id.order_key());
    }
    most
}

fn assert_bounded(what: &str, buckets: &[((i8, i64), i64)], messages: usize) {
    let most = buckets.iter().map(|(_, count)| *count).max().unwrap();
    println!(
        "{what}: {} buckets, {most} messages in the fullest",
        buckets.len()
    );
    assert_eq!(
        usize::try_from(buckets.iter().map(|(_, count)| count).sum::<i64>()).unwrap(),
        messages,
        "each in one bucket"
    );
    assert!(most < PARTITION_MESSAGES_MAX, "{buckets:?}");
}

/// Weeks in which much is said and weeks with little, over eight years; then three of silence; then a few more.
fn years(count: usize) -> Vec<MessageId> {
    let runs = count / 5_000;
    let quiet = 8 * YEAR / i64::try_from(count / 2).unwrap();
    let mut micros = -12 * YEAR;
    let mut ids = Vec::with_capacity(count);
    for number in 0..count - LATE {
        let is_busy = (number * runs / count).is_multiple_of(2);
        micros += if is_busy { 3_000_000 } else { quiet };
        ids.push(id_at(START.plus_micros(micros)));
    }
    assert!(micros < -3 * YEAR);
    ids.extend(
        (0..LATE).map(|number| id_at(START.plus_micros(MINUTE * i64::try_from(number).unwrap()))),
    );
    ids
}

#[tokio::test]
#[ignore = "gate: many thousand rows on a cluster"]
async fn a_history_of_many_years_lies_in_bounded_partitions_and_its_pages_cost_the_same_everywhere()
{
    let Some(place) = Place::open().await else {
        return;
    };
    let (count, _) = sizes();
    let (conversation, [ann, _]) = (ConversationId::random(), users(["ann", "ben"]));
    let ids = years(count);
    let start = Instant::now();
    place
        .import(
            conversation,
            ids.iter().map(|id| text(conversation, *id, &ann)),
            1_000,
        )
        .await;
    println!(
        "{count} messages imported in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    assert_bounded("years", &place.buckets(conversation).await, count);

    let store = open(&place.address).await;
    let mut costs = Vec::new();
    let mut spots: Vec<usize> = (0..60)
        .map(|spot| PAGE + (count - 2 * PAGE) / 60 * spot)
        .collect();
    // Into the silence from both sides, and across it.
    spots.extend([count - LATE - 1, count - LATE, count - LATE + 3]);
    for spot in spots {
        let around = ids[spot].order_key();
        let older: Vec<_> = ids[spot - PAGE..spot].iter().rev().copied().collect();
        let request = PageRequest {
            after: Some(around),
            ..PageRequest::first(PAGE)
        };
        costs.push(page_cost(&store, conversation, &request, &older).await);
        let newer: Vec<_> = ids[spot + 1..].iter().take(PAGE).rev().copied().collect();
        let request = PageRequest {
            before: Some(around),
            ..PageRequest::last(PAGE)
        };
        costs.push(page_cost(&store, conversation, &request, &newer).await);
    }
    let newest: Vec<_> = ids.iter().rev().take(PAGE).copied().collect();
    costs.push(page_cost(&store, conversation, &PageRequest::first(PAGE), &newest).await);
    // A server that has read nothing yet.
    let cold = page_cost(
        &open(&place.address).await,
        conversation,
        &PageRequest::first(PAGE),
        &newest,
    )
    .await;
    costs.sort_unstable();
    let most = walk_both_ways(&store, conversation, &ids)
        .await
        .max(*costs.last().unwrap());
    println!(
        "statements of a page: median {}, most {most}, the newest page of a new server {cold}",
        costs[costs.len() / 2]
    );
    assert!(most.max(cold) <= PAGE_STATEMENTS_MAX, "{costs:?}, {cold}");
}

/// Messages of a conversation that are counted as an import ends.
const LONG: usize = 3_000;

#[tokio::test]
async fn the_first_count_of_an_imported_history_reads_no_more_than_the_next() {
    let Some(place) = Place::open().await else {
        return;
    };
    let conversation = ConversationId::random();
    let mut lines = format!(
        "{{\"type\":\"conversation\",\"id\":\"{conversation}\",\"participants\":[{{\"username\":\"ann\"}}]}}\n"
    );
    for number in 0..LONG as i64 {
        let id = id_at(START.plus_micros(number * MINUTE / 60));
        writeln!(
            lines,
            "{{\"type\":\"message\",\"conversationId\":\"{conversation}\",\"id\":\"{id}\",\"sender\":\"ann\",\"body\":\"{number}\"}}"
        )
        .unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let import = Import {
        store: Arc::new(open(&place.address).await),
        clock: Arc::new(ManualClock::at(NOW)),
        dir: dir.path().to_owned(),
        is_lossy: false,
        stop: CancellationToken::new(),
    };
    let lines = std::io::Cursor::new(lines.into_bytes());
    let outcome = import.pipe(lines, &mut |_| {}).await.unwrap();
    assert_eq!(outcome.counts.messages.added, LONG as u64);
    let mut costs = Vec::new();
    for _ in 0..2 {
        // One that remembers nothing.
        let store = open(&place.address).await;
        let before = store.statements_sent();
        let counts = store.message_counts(&[conversation]).await.unwrap();
        costs.push(store.statements_sent() - before);
        assert_eq!(counts, [LONG as u64]);
    }
    assert_eq!(costs[0], costs[1]);
}

#[tokio::test]
#[ignore = "gate: many thousand rows on a cluster"]
async fn a_minute_with_very_many_messages_is_paged_across_its_buckets_without_gap_or_repeat() {
    let Some(place) = Place::open().await else {
        return;
    };
    let (_, count) = sizes();
    let people = users(["ann", "ben"]);
    let conversation = ConversationId::random();
    place
        .store
        .create_conversation(&group(conversation, &people))
        .await
        .unwrap();
    let minute = NOW.micros() - NOW.micros() % MINUTE - MINUTE;
    let id = |number: usize| {
        id_at(Timestamp::from_micros(
            minute + MINUTE * i64::try_from(number).unwrap() / i64::try_from(count).unwrap(),
        ))
    };
    let ids: Vec<_> = (0..count).map(id).collect();
    assert_eq!(
        ids[0].moment().micros() / MINUTE,
        ids[count - 1].moment().micros() / MINUTE
    );
    let start = Instant::now();
    for batch in ids.chunks(BATCH) {
        let batch: Vec<_> = batch
            .iter()
            .map(|id| new(text(conversation, *id, &people[0])))
            .collect();
        assert!(
            place
                .store
                .append_messages(conversation, &batch)
                .await
                .unwrap()
                .taken
                .is_empty()
        );
    }
    println!(
        "{count} messages of one minute sent in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    let buckets = place.buckets(conversation).await;
    assert_bounded("a minute", &buckets, count);
    assert!(buckets.len() > 1, "pages cross buckets");

    let most = walk_both_ways(&place.store, conversation, &ids).await;
    println!("statements of a page: most {most}");
    assert!(most <= PAGE_STATEMENTS_MAX, "{most} statements for a page");
}

#[tokio::test]
async fn long_messages_fill_a_partition_by_their_bytes() {
    const LONG: usize = 800;
    let Some(place) = Place::open().await else {
        return;
    };
    let (conversation, [ann, _]) = (ConversationId::random(), users(["ann", "ben"]));
    let long = content(&"x".repeat(16_384));
    let ids = (0..LONG)
        .map(|number| id_at(START.plus_micros(10 * MINUTE * i64::try_from(number).unwrap() / 100)));
    place
        .import(
            conversation,
            ids.map(|id| Message {
                content: Some(long.clone()),
                ..text(conversation, id, &ann)
            }),
            50,
        )
        .await;
    let buckets = place.buckets(conversation).await;
    assert_bounded("long ones", &buckets, LONG);
    for (bucket, _) in &buckets {
        let bytes = place.bytes(conversation, *bucket).await;
        assert!(bytes < PARTITION_BYTES_MAX, "{bytes} bytes");
    }
    assert!(buckets.len() > 1, "13 MB do not lie in one bucket");
}
