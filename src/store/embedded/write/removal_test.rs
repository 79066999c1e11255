//! Tests of removals by the bytes that stay on the disk.

use std::sync::Arc;

use crate::clock::{Clock as _, ManualClock};
use crate::model::{
    Body, Content, Conversation, ConversationId, ConversationKind, HistorySettings, Message,
    MessageKind, OrderKey, OutboxShard, Role, TimeUuid, Timestamp, UserId,
};
use crate::store::embedded::engine::key::Table;
use crate::store::embedded::{Embedded, Options};
use crate::store::rules::expiry;
use crate::store::{
    DueQuery, HistoryRemoval, NewConversation, NewMessage, RemovalStore as _, Store as _,
    StoreAdmin as _,
};

const HOUR: i64 = 3_600 * 1_000_000;
const DAY_HOURS: i64 = 24;
const TTL: u32 = 86_400;
/// Texts of an hour together: those of 1,000 short messages.
const HOUR_BYTES: usize = 200_000;
/// Messages of one batch.
const BATCH: usize = 100;

/// Messages of an hour. `WIDEROOM_EXPIRY_HOURLY` sets it: 1,000 take minutes.
fn hourly() -> i64 {
    let set = std::env::var("WIDEROOM_EXPIRY_HOURLY").ok();
    set.map_or(50, |text| text.parse().unwrap())
}

/// Text that hardly compresses.
fn noise() -> String {
    let parts = (1..=32 << 10_u64).map(|part| {
        let mixed = u64::wrapping_mul(part, 0x9e37_79b9_7f4a_7c15);
        format!("{:08x}", (mixed ^ (mixed >> 29)) >> 24 & 0xffff_ffff)
    });
    parts.collect()
}

async fn send_hour(
    store: &Embedded,
    id: ConversationId,
    from: Timestamp,
    (user, noise): (&UserId, &str),
) {
    let hourly = hourly();
    let body_bytes = HOUR_BYTES / hourly as usize;
    let message = |number: i64| {
        let moment = from.plus_micros(number * HOUR / hourly);
        let seed = (moment.micros() / 1_000_000).unsigned_abs() as usize;
        let start = seed.wrapping_mul(7_919) % (noise.len() - body_bytes);
        let body = noise[start..start + body_bytes].to_owned();
        let message = Message::new(
            id,
            TimeUuid::new(moment, [0; 8]),
            user.clone(),
            MessageKind::Text,
            Content {
                body: Body::parse(body, Body::BYTES_MAX, false).unwrap(),
                ..Content::default()
            },
        );
        NewMessage {
            message: Arc::new(message),
            input_hash: None,
            is_by_service: false,
        }
    };
    let hour: Vec<_> = (0..hourly).map(message).collect();
    for batch in hour.chunks(BATCH) {
        store.append_messages(id, batch).await.unwrap();
    }
}

/// A history with an expiry of a day, for thirty days: the store stays within twice the size of two days.
#[tokio::test]
async fn a_history_that_expires_keeps_its_size_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let start = Timestamp::from_micros(1_767_225_600_000_000);
    let clock = Arc::new(ManualClock::at(start));
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    };
    let store = Embedded::open(options, clock.clone()).await.unwrap();
    let (user, id) = (UserId::parse("ann").unwrap(), ConversationId::random());
    let new = NewConversation {
        conversation: Conversation {
            id,
            kind: ConversationKind::Group,
            name: None,
            created_at: start,
            created_by: None,
            input_hash: None,
            slow_mode_seconds: 0,
            history: HistorySettings {
                ttl_seconds: Some(TTL),
                ..HistorySettings::default()
            },
            is_large: false,
        },
        participants: vec![(user.clone(), Role::Owner)],
        change: TimeUuid::new(start, [0; 8]),
        profile: Default::default(),
    };
    store.create_conversation(&new).await.unwrap();
    let db = store.inner.context.db.clone();
    let bytes = || {
        db.compact(Table::Messages).unwrap();
        db.bytes_of(Table::Messages)
    };
    let noise = noise();
    let (mut two_days, mut removed, mut greatest) = (0, 0, 0);
    for hour in 0..30 * DAY_HOURS {
        send_hour(&store, id, clock.now(), (&user, &noise)).await;
        clock.set(start.plus_micros((hour + 1) * HOUR));
        let now = clock.now();
        let query = DueQuery {
            shard: OutboxShard::of(id),
            from: 0,
            up_to: expiry::hour_of(now),
            after: None,
            limit: 10,
        };
        for due in store.due_removals(&query).await.unwrap() {
            let expired = now.plus_micros(-DAY_HOURS * HOUR - expiry::REMOVAL_DELAY_MICROS);
            let removal = HistoryRemoval {
                up_to: OrderKey::first_at(expired).before(),
                ttl_seconds: Some(TTL),
                limit: 1_000,
            };
            removed += store.remove_history(id, &removal).await.unwrap().messages;
            store.end_removal(due).await.unwrap();
        }
        if hour == 2 * DAY_HOURS - 1 {
            two_days = bytes();
        }
        // The store rewrites the table within an hour of a removal: rarer, it is bounded too.
        if hour % (DAY_HOURS / 2) == 0 {
            db.compact(Table::Messages).unwrap();
        }
        if hour > 3 * DAY_HOURS {
            greatest = greatest.max(db.bytes_of(Table::Messages));
        }
    }
    let hourly = hourly();
    let left = store.all_messages(id, None, 100_000).await.unwrap().len() as i64;
    assert!(
        (DAY_HOURS * hourly..=(DAY_HOURS + 4) * hourly).contains(&left),
        "{left} messages are left"
    );
    assert_eq!(
        left + i64::try_from(removed).unwrap(),
        30 * DAY_HOURS * hourly
    );
    let in_the_end = bytes();
    println!("{two_days} bytes after two days, then at most {greatest}, {in_the_end} in the end");
    assert!(greatest <= 2 * two_days + (8 << 20), "{greatest} bytes");
    assert!(in_the_end <= 2 * two_days, "{in_the_end} bytes");
    store.close().await.unwrap();
}
