//! Cost of the parts of an operation, each next to the same work without Wideroom.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_graphql::parser::parse_query;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use wideroom::graphql::{
    CursorKey as _, DocumentBounds, DocumentCache, List, OperationExecutor as _, sdl,
};
use wideroom::model::{ConversationId, Cut, MessageId, OrderKey, PageRequest, Timestamp};

use crate::Size;
use crate::measure::{Spread, cpu_micros};
use crate::operations::{Client, HISTORY, Operation};
use crate::report;
use crate::rows::Rows;
use crate::world::{Shape, World};

const SHAPE: Shape = Shape {
    messages: 1_000,
    conversations: 20,
};
/// How long one measurement is to last.
const LASTS: Duration = Duration::from_millis(4);
const VIEWER: &str = "{ viewer { username } }";

pub async fn measure(size: &Size) {
    let (places, folder) = World::load(&[SHAPE]).await.close().await.into_parts();
    let page = Rows::open(folder.path()).measure(places[0].conversation, size.rounds);
    let world = World::open(folder, places).await;
    report::heading(
        "Parts of an operation, each beside its bare counterpart: µs on the processor of ours, of the bare one, and the ratio",
    );
    keys(size);
    cursors(size);
    guard(size);
    store(&world, &page, size).await;
    execution(&world, size).await;
    world.close().await;
}

fn print(what: &str, ours: &Spread, to: &str, bare: &Spread) {
    let line = |spread: &Spread| {
        let [median, least, most] = [spread.median(), spread.min(), spread.max()].map(micros);
        format!("{median:>9} {:>18}", format!("{least}…{most}"))
    };
    println!(
        "  {what:<30} {}  {}  {:>7.2}  to {to}",
        line(ours),
        line(bare),
        ours.median() / bare.median()
    );
}

fn micros(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.3}")
    } else {
        report::number(value)
    }
}

/// Ours and the bare one in turns, each as often as fits into a few milliseconds.
fn compare(size: &Size, what: &str, mut ours: impl FnMut(), to: &str, mut bare: impl FnMut()) {
    let mut spreads = [Spread::default(), Spread::default()];
    let mut both: [&mut dyn FnMut(); 2] = [&mut ours, &mut bare];
    let times = both.each_mut().map(|one| {
        let (mut times, before) = (0_u32, cpu_micros());
        while cpu_micros() - before < LASTS.as_micros() as f64 {
            (0..16).for_each(|_| one());
            times += 16;
        }
        times
    });
    for _ in 0..size.rounds {
        for ((one, spread), times) in both.iter_mut().zip(&mut spreads).zip(times) {
            let before = cpu_micros();
            (0..times).for_each(|_| one());
            spread.push((cpu_micros() - before) / f64::from(times));
        }
    }
    print(what, &spreads[0], to, &spreads[1]);
}

fn id() -> MessageId {
    MessageId::new(
        Timestamp::from_micros(1_742_000_000_123_456),
        [1, 2, 3, 4, 5, 6, 7, 8],
    )
}

fn keys(size: &Size) {
    let uuid = id().uuid();
    let to_key = || _ = black_box(MessageId::from_uuid(black_box(uuid)).map(MessageId::order_key));
    let copy = || _ = black_box(*black_box(uuid.as_bytes()));
    compare(
        size,
        "a UUID to its order key",
        to_key,
        "16 bytes copied",
        copy,
    );
    let key = id().order_key();
    let from_key = || _ = black_box(MessageId::from_order_key(black_box(key)).map(MessageId::uuid));
    compare(
        size,
        "an order key to its UUID",
        from_key,
        "16 bytes copied",
        copy,
    );
}

fn cursors(size: &Size) {
    let (list, key) = (List::Messages(ConversationId::random()), id().order_key());
    let bytes = [7_u8; 34];
    let text = key.encode(list);
    compare(
        size,
        "a cursor made",
        || drop(black_box(black_box(key).encode(list))),
        "34 bytes in base64",
        || drop(black_box(URL_SAFE_NO_PAD.encode(black_box(bytes)))),
    );
    compare(
        size,
        "a cursor read",
        || _ = black_box(OrderKey::decode(black_box(&text), list)),
        "the same base64 decoded",
        || drop(black_box(URL_SAFE_NO_PAD.decode(black_box(&text)))),
    );
    let moment = id().moment();
    compare(
        size,
        "a moment as text",
        || drop(black_box(black_box(moment).to_string())),
        "seven numbers formatted",
        || {
            let [year, month, day, hour, minute, second, micros] =
                black_box([2025, 3, 15, 0, 53, 20, 123_456]);
            drop(black_box(format!(
                "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"
            )));
        },
    );
}

fn guard(size: &Size) {
    let documents = DocumentCache::new(DocumentBounds::default(), &sdl());
    let number = AtomicU64::new(0);
    // Each text is another one, so that no cache knows it.
    let text = || format!("{HISTORY}#{}", number.fetch_add(1, Ordering::Relaxed));
    compare(
        size,
        "a new document, guarded",
        || drop(black_box(documents.prepare(&text(), None).unwrap())),
        "the library's parser",
        || drop(black_box(parse_query(text()).unwrap())),
    );
    compare(
        size,
        "a document that is known",
        || drop(black_box(documents.prepare(HISTORY, None).unwrap())),
        "its text copied",
        || drop(black_box(black_box(HISTORY).to_owned())),
    );
}

async fn store(world: &World, bare: &Spread, size: &Size) {
    let conversation = world.places[0].conversation;
    let mut ours = Spread::default();
    for _ in 0..size.rounds {
        let before = cpu_micros();
        for _ in 0..Operation::NewestPage.times() {
            let page = world
                .store()
                .history(conversation, &Cut::default(), &PageRequest::first(50))
                .await
                .unwrap();
            assert_eq!(page.items.len(), 50);
        }
        ours.push((cpu_micros() - before) / Operation::NewestPage.times() as f64);
    }
    print(
        "a page of 50 from the store",
        &ours,
        "its rows from the engine, as JSON",
        bare,
    );
}

/// Beside the library that writes the same answer as text.
async fn execution(world: &World, size: &Size) {
    let mut client = Client::new(world, &world.places[0]).await;
    for operation in [
        Operation::NewestPage,
        Operation::InboxPage,
        Operation::Delivery,
    ] {
        let answer: Value = serde_json::from_str(&client.text(operation).await).unwrap();
        let (mut ours, mut bare) = (Spread::default(), Spread::default());
        for _ in 0..size.rounds {
            let before = cpu_micros();
            for _ in 0..operation.times() {
                assert!(client.run(operation).await > 0);
            }
            ours.push((cpu_micros() - before) / operation.times() as f64);
            client.drain();
            let before = cpu_micros();
            for _ in 0..operation.times() {
                drop(black_box(
                    serde_json::to_string(black_box(&answer)).unwrap(),
                ));
            }
            bare.push((cpu_micros() - before) / operation.times() as f64);
        }
        print(operation.name(), &ours, "serde_json of its answer", &bare);
    }
    let viewer = &world.places[0].people[0];
    let prepared = world.api.prepare(VIEWER, None).unwrap();
    let answer: Value = serde_json::from_str(&world.ask(viewer, VIEWER, json!({})).await).unwrap();
    let execute = || {
        let response = futures_util::FutureExt::now_or_never(world.api.execute(
            &prepared,
            Default::default(),
            Some(viewer.clone().into()),
            Default::default(),
        ));
        drop(black_box(
            serde_json::to_string(&response.expect("it waits for nothing")).unwrap(),
        ));
    };
    compare(
        size,
        "the least query, known",
        execute,
        "serde_json of its answer",
        || {
            drop(black_box(
                serde_json::to_string(black_box(&answer)).unwrap(),
            ));
        },
    );
}
