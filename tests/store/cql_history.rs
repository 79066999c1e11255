//! Histories on Cassandra: pages over buckets of all widths that overlap, what a question costs in statements, and counts that stay exact.
//!
//! Rows are written here by hand, so that they lie where a rate of years would have put them.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use proptest::prelude::*;
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimeuuid;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use uuid::Uuid;
use wideroom::clock::ManualClock;
use wideroom::model::{
    ConversationId, Cut, Direction, IgnoredSenders, Message, MessageId, MessageKind, OrderKey,
    PageRequest, Timestamp, Unread, UserId,
};
use wideroom::store::cql::{Address, Cql, migrate};
use wideroom::store::{Store, UnreadQuery};

use super::ask::{assert_page, is_in, only, requests, runner, slice, walk};
use crate::support::cassandra::shared;
use crate::support::words::{HOUR, NOW, id_with, text};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;
/// As they are numbered in rows.
const WIDTHS: [i64; 4] = [10 * DAY, DAY, HOUR, 60 * SECOND];
const TEN_DAYS: usize = 0;
const ONE_DAY: usize = 1;
const ONE_HOUR: usize = 2;
const MINUTE: usize = 3;
/// `NOW` in microseconds after `START`, as ids are given.
const TODAY: i64 = HOUR;

/// A store, and a hand that writes its rows.
struct Bench {
    store: Cql,
    clock: Arc<ManualClock>,
    session: Session,
    message: PreparedStatement,
    bucket: PreparedStatement,
    remnant: PreparedStatement,
    uncount: PreparedStatement,
    sent: AtomicU64,
}

impl Bench {
    /// `None` where there is no Cassandra, which was said.
    async fn open() -> Option<Self> {
        static KEYSPACE: OnceCell<String> = OnceCell::const_new();
        let shared = shared().await?;
        let clock = Arc::new(ManualClock::at(NOW));
        let keyspace = KEYSPACE.get_or_init(async || {
            let keyspace = format!("history_{}", Uuid::new_v4().simple());
            let address: Address = shared.url(&keyspace).parse().unwrap();
            migrate(&address, Some(1), &ManualClock::at(NOW))
                .await
                .unwrap();
            keyspace
        });
        let keyspace = keyspace.await;
        let store = Cql::open(shared.url(keyspace).parse().unwrap(), clock.clone())
            .await
            .unwrap();
        let session = shared.session().await;
        session.use_keyspace(keyspace, true).await.unwrap();
        let prepare = async |text: &str| session.prepare(text).await.unwrap();
        let message = "INSERT INTO messages_by_conversation (conversation_id, width, start, message_id, sender_id, kind, content) VALUES (?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
        let remnant = "UPDATE messages_by_conversation SET content = ? WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
        let bucket =
            "INSERT INTO buckets_by_conversation (conversation_id, width, start) VALUES (?, ?, ?)";
        let uncount = "UPDATE buckets_by_conversation USING TIMESTAMP ? SET counted = ? WHERE conversation_id = ? AND width = ? AND start = ?";
        let [message, bucket, remnant, uncount] = [
            prepare(message).await,
            prepare(bucket).await,
            prepare(remnant).await,
            prepare(uncount).await,
        ];
        Some(Self {
            store,
            clock,
            session,
            message,
            bucket,
            remnant,
            uncount,
            sent: AtomicU64::new(0),
        })
    }

    async fn put(&self, message: &Message, width: usize) {
        let (start, number, conversation) = (
            bucket_start(message.id, width),
            i8::try_from(width).unwrap(),
            message.conversation.0,
        );
        let content = postcard::to_extend(message.content.as_ref().unwrap(), vec![1]).unwrap();
        let (id, at) = (
            CqlTimeuuid::from(message.id.uuid()),
            message.id.moment().micros(),
        );
        let row = (
            conversation,
            number,
            start,
            id,
            message.sender.as_str(),
            message.kind as i8,
            content,
            at,
        );
        self.session
            .execute_unpaged(&self.message, row)
            .await
            .unwrap();
        self.session
            .execute_unpaged(&self.bucket, (conversation, number, start))
            .await
            .unwrap();
    }

    async fn put_all(&self, rows: &[(Message, usize)]) {
        futures_util::stream::iter(rows)
            .for_each_concurrent(64, |(message, width)| self.put(message, *width))
            .await;
    }

    /// Writes the remnant of an edit whose message was never persisted.
    async fn put_remnant(&self, conversation: ConversationId, id: MessageId, width: usize) {
        let (start, number) = (bucket_start(id, width), i8::try_from(width).unwrap());
        let row = (
            vec![1_u8, 0],
            conversation.0,
            number,
            start,
            CqlTimeuuid::from(id.uuid()),
        );
        self.session
            .execute_unpaged(&self.remnant, row)
            .await
            .unwrap();
        self.session
            .execute_unpaged(&self.bucket, (conversation.0, number, start))
            .await
            .unwrap();
    }

    /// Writes a message that comes late, as a batch does that knows of counts.
    async fn put_late(&self, message: &Message, width: usize, now: Timestamp) {
        self.put(message, width).await;
        let at = now.plus_micros(15 * SECOND).micros();
        for (width, start) in [
            (
                i8::try_from(width).unwrap(),
                bucket_start(message.id, width),
            ),
            (-1, 0),
        ] {
            let row = (at, vec![0xff_u8; 24], message.conversation.0, width, start);
            self.session
                .execute_unpaged(&self.uncount, row)
                .await
                .unwrap();
        }
    }

    /// The statements since the last time.
    fn statements(&self) -> u64 {
        let sent = self.store.statements_sent();
        sent - self.sent.swap(sent, Ordering::Relaxed)
    }

    async fn page(
        &self,
        conversation: ConversationId,
        request: &PageRequest<OrderKey>,
    ) -> (usize, u64) {
        self.statements();
        let page = self
            .store
            .history(conversation, &Cut::default(), request)
            .await
            .unwrap();
        (page.items.len(), self.statements())
    }

    async fn count(&self, conversation: ConversationId) -> (u64, u64) {
        self.statements();
        let count = only(self.store.message_counts(&[conversation]).await.unwrap());
        (count, self.statements())
    }
}

fn bucket_start(id: MessageId, width: usize) -> i64 {
    let micros = id.moment().micros();
    micros - micros % WIDTHS[width]
}

fn new_conversation() -> ConversationId {
    ConversationId(Uuid::new_v4())
}

fn ann() -> UserId {
    UserId::parse("ann").unwrap()
}

fn ben() -> UserId {
    UserId::parse("ben").unwrap()
}

fn at(micros: i64) -> MessageId {
    id_with(micros, [0x80, 0, 1, 0, 0, 0, 0, 0])
}

fn say(conversation: ConversationId, id: MessageId, width: usize) -> (Message, usize) {
    (text(conversation, id, &ben()), width)
}

/// Ids across years, at the ends of buckets, of one tick, and of the last seconds.
fn any_id() -> impl Strategy<Value = MessageId> + Clone {
    let micros = prop_oneof![
        3 => -6 * YEAR..TODAY,
        2 => (-3..1_i64, 0..4_usize, -2..2_i64).prop_map(|(n, width, off)| (TODAY - TODAY % WIDTHS[width] + n * WIDTHS[width] + off).min(TODAY)),
        2 => (-40..0_i64).prop_map(|n| TODAY + n * SECOND),
        1 => -3..3_i64,
    ];
    let byte = prop::sample::select(vec![0_u8, 0x7f, 0x80, 0xff]);
    (micros, byte.clone(), byte)
        .prop_map(|(micros, a, b)| id_with(micros, [a, b, 0, 0, 0, 0, 0, b]))
}

fn any_place() -> impl Strategy<Value = OrderKey> + Clone {
    prop_oneof![
        4 => any_id().prop_map(MessageId::order_key),
        1 => any_id().prop_map(|id| id.order_key().before()),
        1 => any_id().prop_map(|id| OrderKey::first_at(id.moment())),
        1 => prop::sample::select(vec![OrderKey::MIN, OrderKey::MAX]),
    ]
}

fn any_cut() -> impl Strategy<Value = Cut<OrderKey>> {
    use std::ops::Bound;
    let bound = || {
        prop_oneof![
            2 => Just(Bound::Unbounded),
            1 => any_place().prop_map(Bound::Included),
            1 => any_place().prop_map(Bound::Excluded),
        ]
    };
    (bound(), bound()).prop_map(|(start, end)| Cut { start, end })
}

/// Ids with the width of their bucket, and whether the row is a message.
type Rows = std::collections::BTreeMap<MessageId, (usize, bool)>;

fn any_rows() -> impl Strategy<Value = Rows> {
    prop::collection::btree_map(any_id(), (0..4_usize, prop::bool::weighted(0.9)), 0..90)
}

async fn prepare(bench: &Bench, rows: &Rows) -> (ConversationId, Vec<Arc<Message>>) {
    let conversation = new_conversation();
    let sender = |n: usize| if n.is_multiple_of(5) { ann() } else { ben() };
    let mut all = Vec::new();
    for (n, (id, (width, is_message))) in rows.iter().enumerate() {
        if *is_message {
            let kind = if n % 7 == 3 {
                MessageKind::System
            } else {
                MessageKind::Text
            };
            all.push((
                Message {
                    kind,
                    ..text(conversation, *id, &sender(n))
                },
                *width,
            ));
        } else {
            bench.put_remnant(conversation, *id, *width).await;
        }
    }
    bench.put_all(&all).await;
    (
        conversation,
        all.into_iter()
            .rev()
            .map(|(message, _)| Arc::new(message))
            .collect(),
    )
}

#[test]
#[ignore = "gate: many thousand rows on a cluster"]
fn pages_tile_a_history_of_overlapping_buckets() {
    let runtime = Runtime::new().unwrap();
    let Some(bench) = runtime.block_on(Bench::open()) else {
        return;
    };
    let sizes = prop::collection::vec(1..30_usize, 1..4);
    let outcome = runner(24).run(&(any_rows(), any_cut(), sizes), |(rows, cut, sizes)| {
        runtime.block_on(async {
            let (conversation, all) = prepare(&bench, &rows).await;
            for cut in [Cut::default(), cut] {
                let expected: Vec<_> = all
                    .iter()
                    .filter(|message| is_in(&cut, &message.id.order_key()))
                    .cloned()
                    .collect();
                let page = async |request: &PageRequest<OrderKey>| {
                    bench
                        .store
                        .history(conversation, &cut, request)
                        .await
                        .unwrap()
                };
                let key = |message: &Arc<Message>| message.id.order_key();
                assert_eq!(
                    walk(Direction::Forward, &sizes, key, page).await,
                    expected,
                    "forward"
                );
                assert_eq!(
                    walk(Direction::Backward, &sizes, key, page).await,
                    expected,
                    "backward"
                );
            }
        });
        Ok(())
    });
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}

#[test]
fn every_question_is_answered_as_a_sorted_list_does() {
    let runtime = Runtime::new().unwrap();
    let Some(bench) = runtime.block_on(Bench::open()) else {
        return;
    };
    let asked = prop::collection::vec((any_cut(), requests(any_place())), 1..10);
    let positions = prop::collection::vec(any_place(), 1..6);
    let outcome = runner(24).run(
        &(any_rows(), asked, positions, 1..40_u32),
        |(rows, asked, positions, cap)| {
            runtime.block_on(async {
                let (conversation, all) = prepare(&bench, &rows).await;
                let store = &bench.store;
                for (cut, request) in asked {
                    let list: Vec<_> = all
                        .iter()
                        .filter(|message| is_in(&cut, &message.id.order_key()))
                        .cloned()
                        .collect();
                    let answer = store.history(conversation, &cut, &request).await.unwrap();
                    let expected = slice(
                        &list,
                        |message| Reverse(message.id.order_key()),
                        |key| Reverse(*key),
                        &request,
                    );
                    assert_page(&request, &answer, &expected);
                }
                let keyed: Vec<_> = positions
                    .iter()
                    .map(|place| (conversation, *place))
                    .collect();
                let found = store.messages_at(&keyed).await.unwrap();
                let unread = keyed.iter().map(|(conversation, after)| UnreadQuery {
                    conversation: *conversation,
                    after: *after,
                    up_to: None,
                });
                let unread = store
                    .unread(
                        &ann(),
                        &unread.collect::<Vec<_>>(),
                        cap,
                        &IgnoredSenders::default(),
                    )
                    .await
                    .unwrap();
                for ((place, found), unread) in positions.iter().zip(found).zip(unread) {
                    assert_eq!(
                        found,
                        all.iter()
                            .find(|message| message.id.order_key() <= *place)
                            .cloned(),
                        "at {place:?}"
                    );
                    let newer = all
                        .iter()
                        .rev()
                        .filter(|message| message.id.order_key() > *place);
                    let counting: Vec<_> = newer
                        .filter(|message| message.counts_as_unread_for(&ann()))
                        .map(|message| message.id)
                        .collect();
                    let count = cap.min(u32::try_from(counting.len()).unwrap());
                    assert_eq!(
                        unread,
                        Unread {
                            count,
                            is_capped: counting.len() > cap as usize,
                            first: counting.first().copied()
                        },
                        "after {place:?}"
                    );
                }
                for _ in 0..2 {
                    let keys: Vec<_> = rows.keys().map(|id| (conversation, *id)).collect();
                    let by_key = store.messages(&keys).await.unwrap();
                    let there: Vec<_> = by_key.into_iter().flatten().rev().collect();
                    assert_eq!(there, all);
                    assert_eq!(
                        only(store.message_counts(&[conversation]).await.unwrap()),
                        all.len() as u64
                    );
                }
            });
            Ok(())
        },
    );
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}

#[tokio::test]
#[ignore = "gate: many thousand rows on a cluster"]
async fn an_index_of_many_buckets_is_read_by_pieces() {
    let Some(bench) = Bench::open().await else {
        return;
    };
    let conversation = new_conversation();
    // A minute's bucket every 50 minutes, an hour's every fifth hour, a day's every third day: for more than two months.
    let mut rows = Vec::new();
    for n in 0..2_000_i64 {
        rows.push(say(
            conversation,
            at(TODAY - 5 * SECOND - n * 50 * 60 * SECOND),
            MINUTE,
        ));
    }
    for n in 0..320_i64 {
        rows.push(say(
            conversation,
            at(TODAY - 7 * SECOND - n * 5 * HOUR),
            ONE_HOUR,
        ));
    }
    for n in 0..22_i64 {
        rows.push(say(
            conversation,
            at(TODAY - 9 * SECOND - n * 3 * DAY),
            ONE_DAY,
        ));
    }
    bench.put_all(&rows).await;
    rows.sort_by_key(|(message, _)| Reverse(message.id));
    let all: Vec<MessageId> = rows.iter().map(|(message, _)| message.id).collect();
    for (direction, from, statements_max) in [
        (Direction::Forward, 0, 140),
        (Direction::Forward, 1_170, 125),
        (Direction::Backward, 1_170, 125),
    ] {
        let place = all[from].order_key();
        let (request, expected) = match direction {
            Direction::Forward => (
                PageRequest::first(100).after(place),
                all[from + 1..from + 101].to_vec(),
            ),
            Direction::Backward => (
                PageRequest::last(100).before(place),
                all[from - 100..from].to_vec(),
            ),
        };
        bench.statements();
        let page = bench
            .store
            .history(conversation, &Cut::default(), &request)
            .await
            .unwrap();
        assert_eq!(
            page.items
                .iter()
                .map(|message| message.id)
                .collect::<Vec<_>>(),
            expected
        );
        assert!(page.has_next && page.has_previous);
        let statements = bench.statements();
        println!("100 of single messages, {direction:?} from {from}: {statements} statements");
        assert!(
            statements <= statements_max,
            "{direction:?} from {from}: {statements}"
        );
    }
    // All of it, in both directions.
    let page = async |request: &PageRequest<OrderKey>| {
        bench
            .store
            .history(conversation, &Cut::default(), request)
            .await
            .unwrap()
    };
    for direction in [Direction::Forward, Direction::Backward] {
        let seen = walk(direction, &[100], |message| message.id.order_key(), page).await;
        assert_eq!(
            seen.iter().map(|message| message.id).collect::<Vec<_>>(),
            all
        );
    }
    let (count, first) = bench.count(conversation).await;
    assert_eq!(count, all.len() as u64);
    let (count, again) = bench.count(conversation).await;
    println!(
        "count of {} buckets: {first} statements, then {again}",
        all.len()
    );
    assert_eq!(count, all.len() as u64);
    assert!(again <= 8, "{again} statements for a count that was kept");
}

#[tokio::test]
async fn a_page_costs_the_same_however_long_the_history_is() {
    let Some(bench) = Bench::open().await else {
        return;
    };
    let conversation = new_conversation();
    // 300 a day for ten days, then nothing for five years, then the last hour.
    let mut rows: Vec<_> = (0..3_000_i64)
        .map(|n| say(conversation, at(-5 * YEAR + n * DAY / 300), ONE_DAY))
        .collect();
    rows.extend((0..200_i64).map(|n| {
        say(
            conversation,
            at(TODAY - 5 * SECOND - n * 15 * SECOND),
            TEN_DAYS,
        )
    }));
    bench.put_all(&rows).await;
    rows.sort_by_key(|(message, _)| Reverse(message.id));
    let place = |n: usize| rows[n].0.id.order_key();
    let boundary = rows
        .iter()
        .position(|(message, _)| {
            bucket_start(message.id, ONE_DAY) < bucket_start(rows[1_700].0.id, ONE_DAY)
                && message.id < rows[1_700].0.id
        })
        .unwrap();
    let asked = [
        ("newest, first time", PageRequest::first(50), 2),
        ("newest", PageRequest::first(50), 2),
        (
            "deep",
            PageRequest::first(50).after(place(boundary + 20)),
            1,
        ),
        (
            "deep, backward",
            PageRequest::last(50).before(place(boundary + 100)),
            1,
        ),
        (
            "across a boundary",
            PageRequest::first(50).after(place(boundary - 10)),
            3,
        ),
        (
            "across five years",
            PageRequest::first(50).after(place(180)),
            4,
        ),
        (
            "across five years, backward",
            PageRequest::last(50).before(place(220)),
            3,
        ),
        ("the oldest", PageRequest::last(50), 1),
    ];
    for (name, request, statements) in asked {
        let (items, sent) = bench.page(conversation, &request).await;
        println!("{name}: {sent} statements");
        assert_eq!(items, 50, "{name}");
        assert!(sent <= statements, "{name}: {sent} statements");
    }
    // A page just above a floor costs no more than a newest page, whatever lies below.
    for (name, request) in [
        ("above a floor", PageRequest::first(50)),
        ("above a floor, backward", PageRequest::last(50)),
    ] {
        let cut = Cut {
            start: std::ops::Bound::Excluded(place(30)),
            end: std::ops::Bound::Unbounded,
        };
        bench.statements();
        let page = bench.store.history(conversation, &cut, &request).await;
        let (items, sent) = (page.unwrap().items.len(), bench.statements());
        println!("{name}: {items} messages, {sent} statements");
        assert_eq!(items, 30, "{name}");
        assert!(sent <= 2, "{name}: {sent} statements");
    }
    // Once more from another server, which remembers nothing.
    let Some(other) = Bench::open().await else {
        return;
    };
    let keyed = bench
        .page(
            conversation,
            &PageRequest::first(50).after(place(boundary + 20)),
        )
        .await;
    let cold = other
        .page(
            conversation,
            &PageRequest::first(50).after(place(boundary + 20)),
        )
        .await;
    println!("deep: {} statements, first time {}", keyed.1, cold.1);
    assert_eq!((keyed.1, cold.1), (1, 2));
    let question = |n: usize| {
        [UnreadQuery {
            conversation,
            after: place(n),
            up_to: None,
        }]
    };
    for (name, n, statements) in [("7 unread", 7, 2), ("150 unread", 150, 2)] {
        bench.statements();
        let unread = only(
            bench
                .store
                .unread(&ann(), &question(n), 99, &IgnoredSenders::default())
                .await
                .unwrap(),
        );
        assert_eq!(unread.count as usize, n.min(99));
        let sent = bench.statements();
        println!("{name}: {sent} statements");
        assert!(sent <= statements, "{name}: {sent} statements");
    }
    for (name, statements) in [("two by id, first time", 4), ("two by id", 2)] {
        bench.statements();
        let found = bench
            .store
            .messages(&[
                (conversation, rows[3].0.id),
                (conversation, rows[boundary].0.id),
            ])
            .await
            .unwrap();
        assert!(found.iter().all(Option::is_some));
        let sent = bench.statements();
        println!("{name}: {sent} statements");
        assert!(sent <= statements, "{name}: {sent} statements");
    }
    for (name, statements) in [("count, first time", 24), ("count", 2)] {
        let (count, sent) = bench.count(conversation).await;
        println!("{name}: {sent} statements");
        assert_eq!(count, 3_200);
        assert!(sent <= statements, "{name}: {sent} statements");
    }
}

#[tokio::test]
#[ignore = "gate: many thousand rows on a cluster"]
async fn a_count_stays_exact_whatever_comes_late() {
    let Some(bench) = Bench::open().await else {
        return;
    };
    let conversation = new_conversation();
    let mut rows: Vec<_> = (0..1_500_i64)
        .map(|n| say(conversation, at(-DAY + n * SECOND), ONE_HOUR))
        .collect();
    rows.extend((0..40_i64).map(|n| say(conversation, at(TODAY - n * SECOND), ONE_HOUR)));
    bench.put_all(&rows).await;
    let mut expected = 1_540;
    assert_eq!(bench.count(conversation).await.0, expected);
    let mut now = NOW;
    for round in 0..6_i64 {
        // Into a bucket that was counted, and into one that was not there.
        for (micros, width) in [(-DAY + 5 + round, ONE_HOUR), (-YEAR * (round + 1), MINUTE)] {
            bench
                .put_late(&say(conversation, at(micros), width).0, width, now)
                .await;
            expected += 1;
        }
        // Those of this server are seen at once, those of others when this one has forgotten.
        now = now.plus_micros(70 * SECOND);
        bench.clock.set(now);
        for _ in 0..2 {
            assert_eq!(bench.count(conversation).await.0, expected, "round {round}");
        }
        let fresh: Vec<_> = (0..150_i64)
            .map(|n| {
                say(
                    conversation,
                    at(now.micros() - NOW.micros() + TODAY - n * 1_000),
                    ONE_HOUR,
                )
            })
            .collect();
        bench.put_all(&fresh).await;
        expected += 150;
        assert_eq!(bench.count(conversation).await.0, expected);
    }
    let (_, sent) = bench.count(conversation).await;
    println!("count after late ones: {sent} statements");
    assert!(sent <= 4);
}

/// Without a checkpoint: all messages are younger than a minute.
#[tokio::test]
async fn a_young_history_is_counted_by_two_statements_and_exactly_once_one_comes_late() {
    let Some(bench) = Bench::open().await else {
        return;
    };
    let conversation = new_conversation();
    let young: Vec<_> = (1..=5_i64)
        .map(|n| say(conversation, at(TODAY - n * SECOND), TEN_DAYS))
        .collect();
    bench.put_all(&young).await;
    for _ in 0..3 {
        assert_eq!(bench.count(conversation).await, (5, 2));
    }
    // Another server writes into a bucket that this one believes to be absent.
    let (late, width) = say(conversation, at(-YEAR), ONE_HOUR);
    bench.put_late(&late, width, NOW).await;
    assert_eq!(bench.count(conversation).await.0, 6);
}

#[tokio::test]
async fn a_late_message_makes_a_count_read_its_own_bucket_only() {
    const DAYS: i64 = 40;
    let Some(bench) = Bench::open().await else {
        return;
    };
    let conversation = new_conversation();
    let mut expected = 0;
    // A bucket a day, each too small to be worth a checkpoint while it is counted; the count of each day goes on from the summary.
    for day in -DAYS..0 {
        let rows: Vec<_> = (0..100_i64)
            .map(|n| say(conversation, at(day * DAY + n * SECOND), ONE_DAY))
            .collect();
        bench.clock.set(NOW.plus_micros(day * DAY));
        bench.put_all(&rows).await;
        expected += 100;
        assert_eq!(bench.count(conversation).await.0, expected, "day {day}");
    }
    bench.clock.set(NOW);
    assert_eq!(bench.count(conversation).await.0, expected);
    let late = say(conversation, at(-20 * DAY + HOUR), ONE_DAY);
    bench.put_late(&late.0, late.1, NOW).await;
    let now = NOW.plus_micros(70 * SECOND);
    bench.clock.set(now);
    let (count, sent) = bench.count(conversation).await;
    println!("count of {DAYS} buckets after a late message: {sent} statements");
    assert_eq!(count, expected + 1);
    // The young rows of the index, all of it in four widths, the bucket of the late message, and the checkpoints.
    assert!(sent <= 1 + 4 + 1 + 1, "{sent} statements");
    let (count, sent) = bench.count(conversation).await;
    assert_eq!(count, expected + 1);
    assert!(sent <= 2, "{sent} statements for a count that was kept");
}

/// 100,000 expired messages in 20 buckets below a floor, a page of messages above it.
#[tokio::test]
#[ignore = "gate: many thousand rows on a cluster"]
async fn a_page_just_above_a_floor_costs_what_a_newest_page_costs() {
    const BUCKETS: i64 = 20;
    const EACH: i64 = 5_000;
    const NEW: i64 = 60;
    let Some(bench) = Bench::open().await else {
        return;
    };
    let (expired, young) = (new_conversation(), new_conversation());
    let content = postcard::to_extend(&crate::support::words::content("hi"), vec![1]).unwrap();
    for bucket in 0..BUCKETS {
        let from = TODAY - (BUCKETS - bucket + 2) * DAY;
        let start = bucket_start(at(from), ONE_DAY);
        let day_start = start - (at(0).moment().micros());
        let width = i8::try_from(ONE_DAY).unwrap();
        let message = &bench.message;
        futures_util::stream::iter(0..EACH)
            .for_each_concurrent(128, |index| {
                let (id, content) = (at(day_start + index * 1_000), content.clone());
                let micros = id.moment().micros();
                let id = CqlTimeuuid::from(id.uuid());
                let row = (expired.0, width, start, id, "ben", 0_i8, content, micros);
                async {
                    bench.session.execute_unpaged(message, row).await.unwrap();
                }
            })
            .await;
        let row = (expired.0, width, start);
        bench
            .session
            .execute_unpaged(&bench.bucket, row)
            .await
            .unwrap();
    }
    for conversation in [expired, young] {
        let fresh: Vec<_> = (0..NEW)
            .map(|index| say(conversation, at(TODAY - (NEW - index) * SECOND), ONE_HOUR))
            .collect();
        bench.put_all(&fresh).await;
    }
    let floor = at(TODAY - DAY).order_key();
    let cut = Cut {
        start: std::ops::Bound::Excluded(floor),
        end: std::ops::Bound::Unbounded,
    };
    let cost = async |conversation: ConversationId, request: &PageRequest<OrderKey>| {
        // The index of a conversation is read once and cached.
        let page = async || {
            bench
                .store
                .history(conversation, &cut, request)
                .await
                .unwrap()
        };
        page().await;
        bench.statements();
        let page = page().await;
        (page.items.len(), bench.statements())
    };
    let oldest = at(TODAY - (NEW - 20) * SECOND).order_key();
    for (what, request) in [
        ("the newest page", PageRequest::first(20)),
        (
            "the page just above the floor",
            PageRequest::first(20).after(oldest),
        ),
        ("the oldest messages", PageRequest::last(20)),
    ] {
        let behind = cost(expired, &request).await;
        let without = cost(young, &request).await;
        println!(
            "{what}: {behind:?} rows and statements behind 100,000 expired messages, {without:?} without"
        );
        assert_eq!(behind, without, "{what}");
        assert_eq!(behind.0, 20, "{what}");
    }
}
