//! Inboxes of many entries on Cassandra: pages found by hints, which may lag, be stale, or be left behind by deleted ones.
//!
//! The rows are mostly written here as sends write them, so that a test has thousands of sends, and the order of their arrival, in its hand.
//! `WIDEROOM_TEST_SENDS=100000` sends as many for real as the bound of tombstones is promised for.

use std::collections::{BTreeMap, HashSet};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use scylla::client::session::Session;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;
use wideroom::model::{
    ConversationId, Direction, Flags, Floor, InboxKey, InboxRow, PageRequest, Timestamp, UserId,
};
use wideroom::store::{Archive, FlagsChange, Store};

use super::ask::{assert_page, inbox_order, slice, walk};
use super::stage::{Stage, keyspace};
use crate::support::cassandra::shared;
use crate::support::words::{
    HOUR, START, change, conversation_id, flags_change, group, id, new, text, user, users,
};

/// A store with its keyspace at hand.
struct Place {
    stage: Stage,
    session: Session,
    row: PreparedStatement,
    hint: PreparedStatement,
    forget: PreparedStatement,
    joined: PreparedStatement,
    large: PreparedStatement,
    head: PreparedStatement,
}

const JOINED: [u8; 2] = [0, 2];
const LEFT: [u8; 2] = [1, 2];

impl Place {
    async fn open() -> Option<Self> {
        let stage = Stage::cassandra().await?;
        let session = shared().await?.session().await;
        let keyspace = keyspace().await?.keyspace;
        session.use_keyspace(&keyspace, true).await.unwrap();
        let prepare = async |text: &str| session.prepare(text).await.unwrap();
        Some(Self {
            row: prepare(
                "UPDATE inbox_by_user USING TIMESTAMP 1 SET last_message = ?, last_activity = ? WHERE user_id = ? AND conversation_id = ?",
            )
            .await,
            hint: prepare(
                "INSERT INTO inbox_activity_by_user (user_id, slot, conversation_id, last_activity) VALUES (?, ?, ?, ?) USING TIMESTAMP ?",
            )
            .await,
            forget: prepare("DELETE FROM inbox_activity_by_user USING TIMESTAMP ? WHERE user_id = ? AND slot = ? AND conversation_id = ?")
                .await,
            joined: prepare("UPDATE inbox_by_user USING TIMESTAMP 5 SET membership = ? WHERE user_id = ? AND conversation_id = ?").await,
            large: prepare("INSERT INTO large_conversations_by_user (user_id, conversation_id) VALUES (?, ?)").await,
            head: prepare("UPDATE conversations USING TIMESTAMP 1 SET last_message = ?, last_activity = ? WHERE conversation_id = ?").await,
            stage,
            session,
        })
    }

    fn store(&self) -> &dyn Store {
        self.stage.store()
    }

    async fn join(&self, user: &UserId, conversation: ConversationId, membership: [u8; 2]) {
        self.session
            .execute_unpaged(
                &self.joined,
                (membership.to_vec(), user.as_str(), conversation.0),
            )
            .await
            .unwrap();
    }

    async fn raise(&self, user: &UserId, conversation: ConversationId, micros: i64) {
        let values = (last(micros), at(micros), user.as_str(), conversation.0);
        self.session
            .execute_unpaged(&self.row, values)
            .await
            .unwrap();
    }

    async fn hint(&self, user: &UserId, conversation: ConversationId, micros: i64) {
        let values = (
            user.as_str(),
            slot(micros),
            conversation.0,
            at(micros),
            at(micros),
        );
        self.session
            .execute_unpaged(&self.hint, values)
            .await
            .unwrap();
    }

    /// As a send does it that comes in another hour than the last one.
    async fn send(&self, user: &UserId, conversation: ConversationId, before: i64, micros: i64) {
        self.raise(user, conversation, micros).await;
        self.hint(user, conversation, micros).await;
        if slot(before) < slot(micros) {
            let values = (at(micros), user.as_str(), slot(before), conversation.0);
            self.session
                .execute_unpaged(&self.forget, values)
                .await
                .unwrap();
        }
    }

    async fn make_large(&self, user: &UserId, conversation: ConversationId, micros: i64) {
        self.session
            .execute_unpaged(&self.large, (user.as_str(), conversation.0))
            .await
            .unwrap();
        self.session
            .execute_unpaged(&self.head, (last(micros), at(micros), conversation.0))
            .await
            .unwrap();
    }
}

fn at(micros: i64) -> i64 {
    START.plus_micros(micros).micros()
}

fn slot(micros: i64) -> i32 {
    i32::try_from(at(micros) / HOUR).unwrap()
}

/// A last message: its order key, a bucket of ten days, its sender.
fn last(micros: i64) -> Vec<u8> {
    let mut bytes = id(micros).order_key().0.to_vec();
    bytes.push(0);
    bytes.extend_from_slice(&0_i64.to_be_bytes());
    bytes.extend_from_slice(b"ben");
    bytes
}

/// Numbers that are the same on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: i64) -> i64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).unwrap() % end
    }
}

/// A user with many conversations: hints that lag, hints of earlier hours, some that were left, some that are large.
async fn crowd(place: &Place, name: &str, numbers: &mut Numbers) -> (UserId, Vec<InboxRow>) {
    let ann = user(name);
    let mut rows = Vec::new();
    for number in 0..150 {
        let conversation = ConversationId::random();
        // Hours with many entries and hours with none, and many entries of one moment.
        let micros = (numbers.below(6) * 5 + 1) * HOUR + numbers.below(8) * 700_000;
        if number % 17 == 3 {
            place.make_large(&ann, conversation, micros).await;
            place
                .raise(&ann, conversation, micros - numbers.below(2) * HOUR)
                .await;
        } else {
            place.raise(&ann, conversation, micros).await;
            let lag = numbers.below(3) * 900_000;
            place
                .hint(
                    &ann,
                    conversation,
                    (micros - lag).max(micros - micros % HOUR),
                )
                .await;
        }
        if number % 4 == 1 {
            place
                .hint(&ann, conversation, micros - HOUR * (1 + numbers.below(20)))
                .await;
        }
        let is_joined = number % 13 != 5;
        place
            .join(&ann, conversation, if is_joined { JOINED } else { LEFT })
            .await;
        if is_joined {
            rows.push(InboxRow {
                conversation,
                last_activity: START.plus_micros(micros),
                last_message: Some(id(micros)),
                marker: Default::default(),
                sent_up_to: None,
                is_sent_by_service: false,
                flags: Flags::default(),
                floor: Floor::NONE,
            });
        }
    }
    rows.sort_by_key(|row| inbox_order(&row.key()));
    (ann, rows)
}

#[tokio::test]
async fn pages_of_a_crowded_inbox_are_slices_of_its_list() {
    let Some(place) = Place::open().await else {
        return;
    };
    let mut numbers = Numbers(7);
    for case in 0..4 {
        let (ann, list) = crowd(&place, &format!("ann {case}"), &mut numbers).await;
        let page = async |request: &PageRequest<InboxKey>| {
            place.store().inbox(&ann, request).await.unwrap()
        };
        for number in 0..60 {
            let mut key = || match numbers.below(3) {
                0 => None,
                1 => Some(list[usize::try_from(numbers.below(list.len() as i64)).unwrap()].key()),
                _ => {
                    let activity =
                        START.plus_micros(numbers.below(32) * HOUR + numbers.below(8) * 700_000);
                    Some(InboxKey {
                        activity,
                        conversation: ConversationId::random(),
                    })
                }
            };
            let (after, before) = (key(), key());
            let direction = if number % 2 == 0 {
                Direction::Forward
            } else {
                Direction::Backward
            };
            let request = PageRequest {
                direction,
                count: usize::try_from(numbers.below(40)).unwrap(),
                after,
                before,
            };
            let expected = slice(&list, |row| inbox_order(&row.key()), inbox_order, &request);
            assert_page(&request, &page(&request).await, &expected);
        }
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(
                walk(direction, &[1, 20, 7], InboxRow::key, page).await,
                list,
                "{direction:?}"
            );
        }
        let names: Vec<_> = list.iter().map(|row| row.conversation).collect();
        let rows = place.store().inbox_rows(&ann, &names).await.unwrap();
        assert!(
            rows.iter()
                .zip(&list)
                .all(|(row, expected)| row.as_ref() == Some(expected))
        );
    }
}

#[tokio::test]
async fn changes_of_a_crowded_inbox_are_found_by_its_newest_hours() {
    let Some(place) = Place::open().await else {
        return;
    };
    let (ann, mut list) = crowd(&place, "ann", &mut Numbers(11)).await;
    list.sort_by_key(|row| row.last_message);
    for from in [0, 40, list.len() - 1] {
        let after = list[from].last_message.unwrap().order_key();
        let mut expected: Vec<_> = list
            .iter()
            .filter(|row| row.last_message.unwrap().order_key() > after)
            .copied()
            .collect();
        let changed = place
            .store()
            .inbox_changes(&ann, after, 1_000)
            .await
            .unwrap()
            .unwrap();
        assert!(changed.is_sorted_by_key(|changed| changed.newest_change));
        let mut rows: Vec<_> = changed.iter().map(|changed| changed.row.unwrap()).collect();
        rows.sort_by_key(InboxRow::key);
        expected.sort_by_key(InboxRow::key);
        assert_eq!(rows, expected);
        if let Some(less) = expected.len().checked_sub(1) {
            assert_eq!(
                place
                    .store()
                    .inbox_changes(&ann, after, less)
                    .await
                    .unwrap(),
                None
            );
        }
    }
}

#[tokio::test]
async fn a_walk_sees_each_entry_once_while_sends_go_on() {
    let Some(place) = Place::open().await else {
        return;
    };
    let mut numbers = Numbers(3);
    for direction in [Direction::Forward, Direction::Backward] {
        let (ann, list) = crowd(&place, &format!("{direction:?}"), &mut numbers).await;
        let larges: HashSet<_> = place
            .store()
            .large_conversations(&ann)
            .await
            .unwrap()
            .into_iter()
            .collect();
        let mut stands: BTreeMap<ConversationId, i64> = BTreeMap::new();
        let (mut seen, mut cursor, mut now) = (Vec::new(), None, 40 * HOUR);
        loop {
            let request = match direction {
                Direction::Forward => PageRequest {
                    after: cursor,
                    ..PageRequest::first(9)
                },
                Direction::Backward => PageRequest {
                    before: cursor,
                    ..PageRequest::last(9)
                },
            };
            let page = place.store().inbox(&ann, &request).await.unwrap();
            seen.extend(page.items.iter().map(|row| row.conversation));
            let (edge, has_more) = match direction {
                Direction::Forward => (page.items.last(), page.has_next),
                Direction::Backward => (page.items.first(), page.has_previous),
            };
            cursor = edge.map(InboxRow::key).or(cursor);
            if !has_more {
                break;
            }
            // Entries move up, as long as a walk from the oldest has not come to the newest.
            for _ in 0..3 {
                let row = list[usize::try_from(numbers.below(list.len() as i64)).unwrap()];
                if seen.len() > 100
                    || larges.contains(&row.conversation)
                    || (direction == Direction::Backward && seen.contains(&row.conversation))
                {
                    continue;
                }
                now += 2_000_000 + numbers.below(2) * HOUR;
                let before = stands
                    .insert(row.conversation, now)
                    .unwrap_or(row.last_activity.micros() - START.micros());
                place.send(&ann, row.conversation, before, now).await;
            }
        }
        let once: HashSet<_> = seen.iter().copied().collect();
        assert_eq!(once.len(), seen.len(), "{direction:?}: none twice");
        let missed = |row: &&InboxRow| {
            !once.contains(&row.conversation)
                && (direction == Direction::Backward || !stands.contains_key(&row.conversation))
        };
        assert_eq!(list.iter().find(missed), None, "{direction:?}");
    }
}

const TRACES_MAX: usize = 10;

/// A statement of the store's, with the file of the store where its pieces stand.
struct Question<'a> {
    source: &'static str,
    pieces: &'a [&'static str],
}

/// Number of tombstones that the node read for an answer, from its trace.
async fn tombstones_met(
    place: &Place,
    question: &Question<'_>,
    values: impl scylla::serialize::row::SerializeRow,
) -> u64 {
    let text = question.pieces.concat();
    assert!(
        question
            .pieces
            .iter()
            .all(|piece| question.source.contains(piece)),
        "the store reads otherwise: {text}"
    );
    let mut statement = Statement::new(text.as_str());
    statement.set_tracing(true);
    // A busy node may truncate its trace.
    for _ in 0..TRACES_MAX {
        let traced = place
            .session
            .query_unpaged(statement.clone(), &values)
            .await
            .unwrap()
            .tracing_id()
            .unwrap();
        let info = place.session.get_tracing_info(&traced).await.unwrap();
        let mut activities = info
            .events
            .iter()
            .filter_map(|event| event.activity.as_deref());
        if let Some(read) = activities
            .find(|activity| activity.starts_with("Read ") && activity.contains("tombstone"))
        {
            // "Read 20 live rows and 3 tombstone cells"
            let words: Vec<_> = read.split_whitespace().collect();
            let count = words
                .iter()
                .position(|word| word.starts_with("tombstone"))
                .and_then(|at| words[at - 1].parse().ok());
            return count.unwrap_or_else(|| panic!("{read}"));
        }
    }
    panic!("no trace says what was read: {text}")
}

#[tokio::test]
async fn sends_leave_no_tombstones_in_an_inbox() {
    const SENDS: i64 = 2_000;
    const HOURS: i64 = 20;
    const CONVERSATIONS: i64 = 20;
    let Some(place) = Place::open().await else {
        return;
    };
    let sends = std::env::var("WIDEROOM_TEST_SENDS").map_or(SENDS, |sends| sends.parse().unwrap());
    let people = users(["ann", "ben"]);
    let [ann, ben] = &people;
    join_all((0..CONVERSATIONS).map(async |number| {
        let conversation = conversation_id(u8::try_from(number).unwrap());
        place
            .store()
            .create_conversation(&group(conversation, &people))
            .await
            .unwrap();
        let mut send = number;
        while send < sends {
            let message = text(conversation, id(send * (HOURS * HOUR / sends) + 1), ben);
            place
                .store()
                .append_messages(conversation, &[new(message)])
                .await
                .unwrap();
            send += CONVERSATIONS;
        }
    }))
    .await;
    assert_eq!(
        place
            .store()
            .inbox(ann, &PageRequest::first(20))
            .await
            .unwrap()
            .items
            .len(),
        20
    );
    let whole = Question {
        source: include_str!("../../src/store/cql/inbox/row.rs"),
        pieces: &[
            "SELECT ",
            "conversation_id, last_message, last_activity, read_up_to, sent_up_to, is_muted, is_pinned, archived_at, membership",
            " FROM inbox_by_user WHERE user_id = ? LIMIT ?",
        ],
    };
    assert_eq!(tombstones_met(&place, &whole, (ann.as_str(), 101)).await, 0);
    // With hints, one for each conversation and hour that was left, however many the sends.
    let hints = Question {
        source: include_str!("../../src/store/cql/inbox/activity_index.rs"),
        pieces: &[
            "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND slot <= ? AND slot >= ? ORDER BY slot DESC, conversation_id DESC LIMIT ?",
        ],
    };
    let met = tombstones_met(&place, &hints, (ann.as_str(), i32::MAX, 0, 74)).await;
    println!(
        "{sends} sends over {HOURS} hours: {met} tombstones among the hints where all of them are read"
    );
    assert!(
        met <= 20 * HOURS.unsigned_abs(),
        "{met} tombstones after {sends} sends"
    );
    // And none where as many entries are found as are wanted.
    assert_eq!(
        tombstones_met(&place, &hints, (ann.as_str(), i32::MAX, 0, 20)).await,
        0
    );
}

#[tokio::test]
async fn a_page_of_a_user_with_very_active_conversations_reads_few_tombstones() {
    const CONVERSATIONS: usize = 5_000;
    const HOURS: i64 = 24;
    const TOMBSTONES_MAX: u64 = 1_000;
    let Some(place) = Place::open().await else {
        return;
    };
    let ann = user("ann");
    let conversations: Vec<_> = (0..CONVERSATIONS)
        .map(|_| ConversationId::random())
        .collect();
    // Every conversation was active in each hour of a day, and each hour's send has deleted the hint of the hour before.
    let forgotten = (0..HOURS).flat_map(|hour| {
        let of = |conversation: &ConversationId| {
            let at = at((hour + 1) * HOUR);
            let values = (at, ann.as_str(), slot(hour * HOUR), conversation.0);
            (&place.forget, values)
        };
        conversations.iter().map(of).collect::<Vec<_>>()
    });
    let forgotten: Vec<_> = forgotten.collect();
    futures_util::stream::iter(forgotten.chunks(250))
        .for_each_concurrent(8, async |piece| {
            let mut batch = Batch::new(BatchType::Unlogged);
            let mut values = Vec::new();
            for (statement, row) in piece {
                batch.append_statement((*statement).clone());
                values.push(row);
            }
            place.session.batch(&batch, values).await.unwrap();
        })
        .await;
    let moment = |number: usize| HOURS * HOUR + i64::try_from(number).unwrap() * 1_000;
    futures_util::stream::iter(conversations.iter().enumerate())
        .for_each_concurrent(64, async |(number, conversation)| {
            place.join(&ann, *conversation, JOINED).await;
            place.raise(&ann, *conversation, moment(number)).await;
            place.hint(&ann, *conversation, moment(number)).await;
        })
        .await;
    // Two pages: the second begins behind a cursor.
    let mut request = PageRequest::first(20);
    for page in 0..2 {
        let found = place.store().inbox(&ann, &request).await.unwrap();
        let expected = conversations.iter().rev().skip(page * 20).take(20);
        let shown = found.items.iter().map(|row| row.conversation);
        assert!(shown.eq(expected.copied()), "page {page}");
        assert!(found.has_next);
        request = request.after(found.items.last().unwrap().key());
    }
    // The two statements of such a page.
    let first = Question {
        source: include_str!("../../src/store/cql/inbox/activity_index.rs"),
        pieces: &[
            "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND slot <= ? AND slot >= ? ORDER BY slot DESC, conversation_id DESC LIMIT ?",
        ],
    };
    let rest = Question {
        source: include_str!("../../src/store/cql/inbox/activity_index.rs"),
        pieces: &[
            "SELECT slot, conversation_id, last_activity FROM inbox_activity_by_user WHERE user_id = ? AND (slot, conversation_id) < (?, ?) AND (slot) >= (?) ORDER BY slot DESC, conversation_id DESC LIMIT ?",
        ],
    };
    let last = conversations.iter().min().unwrap();
    let newest = slot(HOURS * HOUR);
    let met = tombstones_met(&place, &first, (ann.as_str(), i32::MAX, 0, 74)).await
        + tombstones_met(&place, &rest, (ann.as_str(), newest, last.0, newest, 1_000)).await;
    println!("{CONVERSATIONS} conversations active for {HOURS} hours: {met} tombstones");
    assert!(met <= TOMBSTONES_MAX, "{met} tombstones");
}

async fn set(place: &Place, user: &UserId, to: FlagsChange) -> Option<Flags> {
    place.store().set_flags(user, &to).await.unwrap()
}

#[tokio::test]
async fn the_last_write_wins_despite_a_clock_that_is_behind() {
    let Some(place) = Place::open().await else {
        return;
    };
    let (ann, conversation) = (user("ann"), ConversationId::random());
    place.join(&ann, conversation, JOINED).await;
    let at = |micros| flags_change(conversation, change(micros));
    let muted = Flags {
        is_muted: true,
        ..Flags::default()
    };
    assert_eq!(
        set(
            &place,
            &ann,
            FlagsChange {
                muted: Some(true),
                ..at(5_000_000)
            }
        )
        .await,
        Some(muted)
    );
    assert_eq!(
        set(
            &place,
            &ann,
            FlagsChange {
                muted: Some(false),
                ..at(4_000_000)
            }
        )
        .await,
        Some(Flags::default())
    );
    assert_eq!(
        set(
            &place,
            &ann,
            FlagsChange {
                muted: Some(false),
                ..at(6_000_000)
            }
        )
        .await,
        None
    );
    assert_eq!(
        set(
            &place,
            &user("ben"),
            FlagsChange {
                muted: Some(true),
                ..at(7_000_000)
            }
        )
        .await,
        None,
        "not in it"
    );
}

#[tokio::test]
async fn ending_an_archive_leaves_one_that_begins_meanwhile() {
    let Some(place) = Place::open().await else {
        return;
    };
    let ann = user("ann");
    let [one, other]: [Timestamp; 2] = [10, 20].map(|micros| START.plus_micros(micros));
    for number in 0..40 {
        let conversation = ConversationId::random();
        place.join(&ann, conversation, JOINED).await;
        let archive = async |archive, micros| {
            set(
                &place,
                &ann,
                FlagsChange {
                    archive: Some(archive),
                    ..flags_change(conversation, change(micros))
                },
            )
            .await
        };
        archive(Archive::Begin(one), 10).await.unwrap();
        // The end comes from a server whose clock is ahead, and for every other time is sent first.
        if number % 2 == 0 {
            tokio::join!(
                archive(Archive::EndOf(one), 900),
                archive(Archive::Begin(other), 11)
            );
        } else {
            tokio::join!(
                archive(Archive::Begin(other), 11),
                archive(Archive::EndOf(one), 900)
            );
        }
        let row = place
            .store()
            .inbox_rows(&ann, &[conversation])
            .await
            .unwrap()[0]
            .unwrap();
        assert_eq!(row.flags.archived_at, Some(other));
    }
}

#[tokio::test]
async fn hints_of_left_conversations_are_met_once() {
    let Some(place) = Place::open().await else {
        return;
    };
    let ann = user("ann");
    let kept = ConversationId::random();
    place.join(&ann, kept, JOINED).await;
    place.raise(&ann, kept, 1).await;
    place.hint(&ann, kept, 1).await;
    // Sends that did not know of the leaving wrote these hints after it.
    let left: Vec<_> = (0..150).map(|_| ConversationId::random()).collect();
    for (conversation, micros) in left.iter().zip(10..) {
        place.join(&ann, *conversation, LEFT).await;
        place.raise(&ann, *conversation, micros).await;
        place.hint(&ann, *conversation, micros).await;
    }
    let page = async || {
        let before = place.stage.rows_read();
        let page = place.store().inbox(&ann, &PageRequest::first(5)).await;
        let shown: Vec<_> = page.unwrap().items.iter().map(InboxRow::key).collect();
        let shown: Vec<_> = shown.into_iter().map(|key| key.conversation).collect();
        (shown, place.stage.rows_read() - before)
    };
    let (shown, spent) = page().await;
    assert_eq!(shown, [kept]);
    assert!(spent >= 150, "{spent} rows");
    let (shown, spent) = page().await;
    assert_eq!(shown, [kept]);
    assert!(spent <= 5, "{spent} rows");
    // Ann returns behind the last of these sends, with the hint that such a joining writes.
    let returned = left[7];
    let update = "UPDATE inbox_by_user USING TIMESTAMP 6 SET membership = ? WHERE user_id = ? AND conversation_id = ?";
    let row = (JOINED.to_vec(), ann.as_str(), returned.0);
    place.session.query_unpaged(update, row).await.unwrap();
    let (slot, activity) = (slot(17), at(17));
    let row = (ann.as_str(), slot, returned.0, activity, activity + 1);
    place
        .session
        .execute_unpaged(&place.hint, row)
        .await
        .unwrap();
    assert_eq!(page().await.0, [returned, kept]);
}
