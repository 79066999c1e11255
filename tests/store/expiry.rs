//! An expiring history with a chat that removes it: the clock is moved through days, hour by hour.

use std::collections::BTreeMap;
use std::sync::Arc;

use wideroom::chat::{Bounds, Chat, Draft, DraftInput};
use wideroom::clock::{Clock as _, ManualClock};
use wideroom::model::{HistorySettings, OrderKey, OutboxEventKind, OutboxShard, TimeUuid, UserId};
use wideroom::store::embedded::{Embedded, Options};
use wideroom::store::{
    ImportRow, OutboxRead, RemovalStore as _, SearchStore as _, Store, StoreAdmin as _,
};

use super::ask::{assert_sound, history};
use crate::binary::erasure::files_with;
use crate::support::words::{
    HOUR, START, conversation_id, group_row, new, new_salt, participant_row, text, user,
};
use crate::support::world::{PATIENCE, chat_on};

const TTL_HOURS: i64 = 24;
const HOURLY: i64 = 20;

struct Days {
    clock: Arc<ManualClock>,
    store: Arc<Embedded>,
    chat: Chat,
    folder: tempfile::TempDir,
}

impl Days {
    async fn begin(retention_hours: Option<i64>) -> Self {
        new_salt();
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(START));
        let options = Options {
            free_bytes_min: 0,
            ..Options::new(folder.path())
        };
        let store = Embedded::open(options, clock.clone()).await.unwrap();
        let store = Arc::new(store);
        store.set_outbox(Some(START)).await.unwrap();
        let hours = |hours: i64| std::time::Duration::from_secs(3_600 * hours.unsigned_abs());
        let bounds = Bounds {
            retention: retention_hours.map(hours),
            ..Bounds::default()
        };
        let (dynamic, moved): (Arc<dyn Store>, Arc<ManualClock>) = (store.clone(), clock.clone());
        let chat = chat_on(dynamic, moved, bounds).await;
        Self {
            clock,
            store,
            chat,
            folder,
        }
    }

    /// Sends for an hour, and moves the clock to its end.
    async fn hour(&self, number: u8, sender: &UserId) {
        let (on, now) = (conversation_id(number), self.clock.now());
        let sent = |index: i64| {
            let at = now.plus_micros(index * HOUR / HOURLY);
            new(text(on, TimeUuid::new(at, [0; 8]), sender))
        };
        let messages: Vec<_> = (0..HOURLY).map(sent).collect();
        self.store.append_messages(on, &messages).await.unwrap();
    }

    fn tick(&self) {
        self.clock.set(self.clock.now().plus_micros(HOUR));
    }

    async fn rows(&self, number: u8) -> i64 {
        let on = conversation_id(number);
        self.store
            .all_messages(on, None, 1_000_000)
            .await
            .unwrap()
            .len() as i64
    }

    /// The number of events of expiries in each hour.
    async fn expiries(&self, number: u8) -> BTreeMap<i64, usize> {
        let on = conversation_id(number);
        let reads = [OutboxRead {
            shard: OutboxShard::of(on),
            after: OrderKey::MIN,
        }];
        let pages = self.store.outbox(&reads, OrderKey::MAX.before(), 100_000);
        let mut hours = BTreeMap::new();
        for row in pages.await.unwrap().into_iter().flat_map(|page| page.rows) {
            let is_expiry = |kind| kind == OutboxEventKind::HistoryExpired;
            let count = row.events.iter().filter(|event| is_expiry(event.kind));
            let (count, hour) = (count.count(), row.id.moment().micros() / HOUR);
            if row.conversation == on && count > 0 {
                *hours.entry(hour).or_default() += count;
            }
        }
        hours
    }
}

async fn import(store: &Embedded, number: u8, history: HistorySettings) {
    let mut row = group_row(conversation_id(number), None);
    if let ImportRow::Conversation { conversation, .. } = &mut row {
        conversation.history = history;
    }
    let rows = [row, participant_row(conversation_id(number), &user("ann"))];
    store.import(&rows).await.unwrap();
}

#[tokio::test]
async fn a_conversation_with_an_expiry_of_a_day_has_the_rows_of_two_at_most() {
    let days = Days::begin(None).await;
    let ttl_seconds = Some(3_600 * TTL_HOURS as u32);
    let expiring = HistorySettings {
        ttl_seconds,
        ..HistorySettings::default()
    };
    import(&days.store, 1, expiring).await;
    import(&days.store, 2, HistorySettings::default()).await;
    let mut worker = days.chat.removals.worker();
    for hour in 1..=6 * 24 {
        days.hour(1, &user("ann")).await;
        if hour % 24 == 0 {
            days.hour(2, &user("ann")).await;
        }
        days.tick();
        worker.pass().await.unwrap();
        let rows = days.rows(1).await;
        assert!(
            rows >= HOURLY * hour.min(TTL_HOURS),
            "{rows} in hour {hour}"
        );
        assert!(rows <= HOURLY * (TTL_HOURS + 4), "{rows} in hour {hour}");
    }
    assert_eq!(days.rows(2).await, 6 * HOURLY, "it has no expiry");
    assert_sound(&*days.store).await;
    let events = days.expiries(1).await;
    assert!(events.values().all(|count| *count == 1), "{events:?}");
    assert!(
        (100..=6 * 24).contains(&events.len()),
        "{} events",
        events.len()
    );
    assert_eq!(days.expiries(2).await.len(), 0);

    // Silence: the last of it goes, too, and then nothing is looked at again.
    for _ in 0..30 {
        days.tick();
        worker.pass().await.unwrap();
    }
    assert_eq!((days.rows(1).await, days.rows(2).await), (0, 6 * HOURLY));
    let silent = days.expiries(1).await.len();
    for _ in 0..30 {
        days.tick();
        worker.pass().await.unwrap();
    }
    assert_eq!(days.expiries(1).await.len(), silent);
    days.hour(1, &user("ann")).await;
    assert_eq!(
        history(&*days.store, conversation_id(1)).await.len() as i64,
        HOURLY
    );
    assert_sound(&*days.store).await;
}

#[tokio::test]
async fn an_expiry_of_the_deployment_reaches_histories_from_before_it() {
    let days = Days::begin(Some(TTL_HOURS)).await;
    import(&days.store, 1, HistorySettings::default()).await;
    // Before the server knew of the expiry, nothing was listed.
    days.store.set_retention(None);
    days.hour(1, &user("ann")).await;
    days.store.set_retention(Some(86_400));
    let mut worker = days.chat.removals.worker();
    for hour in 1..=30 {
        days.tick();
        worker.pass().await.unwrap();
        let rows = days.rows(1).await;
        if hour < TTL_HOURS {
            assert_eq!(rows, HOURLY, "in hour {hour}");
        }
    }
    assert_eq!(days.rows(1).await, 0);
}

#[tokio::test]
async fn the_words_of_deleted_messages_leave_the_index_within_hours() {
    let days = Days::begin(None).await;
    import(&days.store, 1, HistorySettings::default()).await;
    let (ann, on) = (user("ann"), conversation_id(1));
    let (deleted, edited) = ("xylophonequartz", "zephyrjackdaw");
    let mut ids = Vec::new();
    for number in 0..100 {
        let body = match number {
            40 => deleted.to_owned(),
            41 => edited.to_owned(),
            _ => format!("message {number}"),
        };
        let input = DraftInput {
            body,
            ..DraftInput::default()
        };
        let draft = Draft::parse(input, days.chat.bounds()).unwrap();
        let sent = days.chat.writes.send(ann.clone(), on, draft).await;
        ids.push(sent.unwrap().id);
    }
    days.tick();
    while days.chat.index.advance(on).await.unwrap() {}
    let found = async |word: &str| {
        let stored = days.store.search_directories(&[on]).await.unwrap();
        assert!(stored[0].is_some(), "it is indexed");
        days.store.compact().await.unwrap();
        !files_with(days.folder.path(), word).is_empty()
    };
    assert!(found(deleted).await && found(edited).await);
    let writes = &days.chat.writes;
    writes.delete(ann.clone(), on, ids[40]).await.unwrap();
    let other = "another text".to_owned();
    writes.edit(ann.clone(), on, ids[41], other).await.unwrap();
    let mut worker = days.chat.removals.worker();
    for _ in 0..3 {
        days.tick();
        worker.pass().await.unwrap();
    }
    days.store.compact().await.unwrap();
    for word in [deleted, edited] {
        // The engine deletes its old journal by itself.
        let began = std::time::Instant::now();
        let files = || files_with(days.folder.path(), word);
        while !files().is_empty() {
            assert!(began.elapsed() < PATIENCE, "{:?}", files());
        }
    }
    assert_eq!(days.chat.index.missing(on).await.unwrap(), 0);
}
