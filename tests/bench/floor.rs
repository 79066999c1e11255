//! Floors: pages just above one with a long expired history behind it, and the disk of a month with an expiry of a day.

use std::sync::Arc;

use serde_json::json;
use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Chat};
use wideroom::clock::{Clock as _, ManualClock};
use wideroom::model::{
    Conversation, ConversationId, ConversationKind, HistorySettings, Membership, Role, TimeUuid,
    Timestamp, UserId,
};
use wideroom::store::embedded::{Embedded, Options};
use wideroom::store::{ImportPositions, ImportRow, NewMessage, Store, StoreAdmin as _};

use crate::Size;
use crate::measure::{Spread, cpu_micros, idle};
use crate::report::{self, Verdicts, number};
use crate::search::bytes_in;
use crate::world::{Shape, World, text, user};

const PAGE_AIM: f64 = 1.1;
const DISK_AIM: f64 = 2.0;
/// Expiry of the long conversation, within which some of its messages lie.
const TTL_SECONDS: u32 = 3_600;
/// Pages of one measurement.
const PAGES: usize = 20;

const HOUR: i64 = 3_600 * 1_000_000;
const DAY_SECONDS: u32 = 86_400;
/// Sends of an hour.
const HOURLY: i64 = 1_000;
const DAYS: i64 = 30;
/// Sends of one batch.
const BATCH: usize = 100;

const EXPIRE: &str = "mutation($c: ID!, $t: Int!) { updateConversation(input: {conversationId: $c, messageTtlSeconds: $t})
    { conversation { messageTtlSeconds } } }";
const NEWEST: &str = "query($c: ID!) { conversation(id: $c) { messages(first: 50) {
    edges { cursor node { id body sender { username } } } pageInfo { hasNextPage } } } }";
const OLDEST: &str = "query($c: ID!) { conversation(id: $c) { messages(last: 50) {
    edges { cursor node { id body sender { username } } } pageInfo { hasPreviousPage } } } }";

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    pages(size, &mut verdicts).await;
    month(&mut verdicts).await;
    verdicts.print();
}

async fn pages(size: &Size, verdicts: &mut Verdicts) {
    let shape = Shape {
        messages: size.messages,
        conversations: 1,
    };
    let world = World::load(&[shape]).await;
    let viewer = &world.places[0].people[0];
    let id = world.first_in_inbox(viewer).await;
    let settings = json!({"c": id, "t": TTL_SECONDS});
    world.data(viewer, EXPIRE, settings).await;
    idle().await;
    let (mut newest, mut oldest) = (Spread::default(), Spread::default());
    for round in 0..=size.rounds {
        for (document, spread) in [(NEWEST, &mut newest), (OLDEST, &mut oldest)] {
            let before = cpu_micros();
            for _ in 0..PAGES {
                let data = world.data(viewer, document, json!({"c": id})).await;
                let edges = &data["conversation"]["messages"]["edges"];
                assert_eq!(edges.as_array().map(Vec::len), Some(50));
            }
            if round > 0 {
                spread.push((cpu_micros() - before) / PAGES as f64);
            }
        }
    }
    let expired = size.messages - u64::from(TTL_SECONDS) / 2;
    let expired = number(expired as f64);
    report::heading(&format!(
        "Pages of 50, µs on the processor, with {expired} expired messages behind"
    ));
    println!("  the newest               {}", report::spread(&newest));
    println!("  just above the floor     {}", report::spread(&oldest));
    let ratio = oldest.median() / newest.median();
    let is_met = ratio <= PAGE_AIM;
    verdicts.push(
        "page above a floor, to a newest one",
        ratio,
        "at most 1.1",
        is_met,
    );
    world.close().await;
}

/// A conversation with an expiry of a day, under a clock that is moved by the hour.
async fn month(verdicts: &mut Verdicts) {
    let folder = tempfile::tempdir().unwrap();
    let start = Timestamp::from_micros(1_767_225_600_000_000);
    let clock = Arc::new(ManualClock::at(start));
    let options = Options {
        free_bytes_min: 0,
        ..Options::new(folder.path())
    };
    let store = Arc::new(Embedded::open(options, clock.clone()).await.unwrap());
    let live: Arc<dyn Store> = store.clone();
    let chat = Chat::open(live, Bus::default(), clock.clone(), Bounds::default());
    let chat = chat.await.unwrap();
    let (id, sender) = (ConversationId::random(), user("sender"));
    let rows = group(id, &sender, start);
    store.import(&rows).await.unwrap();
    let mut worker = chat.removals.worker();
    let mut bytes = Vec::new();
    for hour in 0..24 * DAYS {
        let now = clock.now();
        let sent = |index: i64| {
            let at = now.plus_micros(index * HOUR / HOURLY);
            let number = (hour * HOURLY + index) as u64;
            NewMessage {
                message: Arc::new(text(id, TimeUuid::new(at, [0; 8]), &sender, number)),
                input_hash: None,
                is_by_service: false,
            }
        };
        let messages: Vec<_> = (0..HOURLY).map(sent).collect();
        for batch in messages.chunks(BATCH) {
            store.append_messages(id, batch).await.unwrap();
        }
        clock.set(now.plus_micros(HOUR));
        worker.pass().await.unwrap();
        if (hour + 1) % 24 == 0 {
            bytes.push(bytes_in(folder.path()) as f64);
        }
    }
    report::heading(&format!(
        "Disk of {HOURLY} messages an hour that expire after a day, MB after each of {DAYS} days"
    ));
    let daily = bytes.iter().map(|bytes| number(bytes / 1e6));
    println!("  {}", daily.collect::<Vec<_>>().join(" "));
    let greatest = bytes[2..].iter().copied().fold(0.0, f64::max);
    let ratio = greatest / bytes[1];
    let is_met = ratio <= DISK_AIM;
    verdicts.push(
        "disk of a month, to that of two days",
        ratio,
        "at most 2",
        is_met,
    );
    chat.finish().await;
    store.close().await.unwrap();
}

fn group(id: ConversationId, sender: &UserId, created_at: Timestamp) -> [ImportRow; 2] {
    let history = HistorySettings {
        ttl_seconds: Some(DAY_SECONDS),
        ..HistorySettings::default()
    };
    let conversation = Conversation {
        id,
        kind: ConversationKind::Group,
        name: None,
        created_at,
        created_by: Some(sender.clone()),
        input_hash: None,
        slow_mode_seconds: 0,
        history,
        is_large: false,
    };
    let participant = ImportRow::Participant {
        conversation: id,
        user: sender.clone(),
        membership: Membership::joined(Role::Owner),
        positions: ImportPositions::default(),
        ban: None,
    };
    let conversation = ImportRow::Conversation {
        conversation,
        last_activity: None,
    };
    [conversation, participant]
}
