//! Cost of a send by the number of participants, and of an inbox page by the size of its groups, on both stores.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::UserId;
use wideroom::store::cql::{Cql, migrate};

use crate::measure::{Spread, cpu_micros};
use crate::operations::{INBOX, SEND, first_in_inbox};
use crate::report::{self, Verdicts, number};
use crate::world::{Loader, World, body, client_key, user};
use crate::{Size, cassandra};

/// Either side of where fan-out on write ends, and up to the bound of a group.
const CROWDS: [usize; 5] = [2, 32, 33, 1_000, 20_000];
const MESSAGES: u64 = 10;
const GROUPS: usize = 200;
const GROUP_SIZES: [usize; 2] = [3, 40];
/// Repetitions of one measurement.
const TIMES: usize = 10;

/// One operation, as often as it is measured.
struct Row {
    name: String,
    viewer: UserId,
    /// Conversation that receives the sends. `None` measures reads of the inbox.
    conversation: Option<String>,
    statements: Spread,
    cpu: Spread,
    millis: Spread,
}

/// How many statements were sent so far.
type Statements<'a> = &'a dyn Fn() -> f64;

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    let embedded = World::empty().await;
    on("Embedded", &embedded, &|| 0.0, size, &mut verdicts).await;
    embedded.close().await;
    if let Some(shared) = cassandra::shared().await {
        let address = shared
            .url(&format!("bench_{}", uuid::Uuid::new_v4().simple()))
            .parse()
            .unwrap();
        migrate(&address, Some(1), &SystemClock).await.unwrap();
        let store = Arc::new(Cql::open(address, Arc::new(SystemClock)).await.unwrap());
        let world = World::over(store.clone(), tempfile::tempdir().unwrap(), Vec::new()).await;
        on(
            "Cassandra",
            &world,
            &|| store.statements_sent() as f64,
            size,
            &mut verdicts,
        )
        .await;
        world.close().await;
    }
    verdicts.print();
}

async fn on(
    store: &str,
    world: &World,
    statements: Statements<'_>,
    size: &Size,
    verdicts: &mut Verdicts,
) {
    report::heading(&format!(
        "{store}: statements, µs on the processor, ms by the clock"
    ));
    let [mut sends, mut inboxes] = load(world).await;
    rounds(world, &mut sends, statements, size).await;
    rounds(world, &mut inboxes, statements, size).await;
    for large in &sends[3..] {
        let ratio = large.cpu.median() / sends[2].cpu.median();
        let what = format!("{store}: {} to {}", large.name, sends[2].name);
        verdicts.at_most(&what, ratio, 1.3);
    }
    let ratio = inboxes[1].cpu.median() / inboxes[0].cpu.median();
    let what = format!("{store}: {} to {}", inboxes[1].name, inboxes[0].name);
    verdicts.at_most(&what, ratio, 2.0);
}

/// Groups of each size, and users who are in many of one size.
async fn load(world: &World) -> [Vec<Row>; 2] {
    let mut loader = Loader {
        store: &**world.store(),
        rows: Vec::new(),
    };
    let now = SystemClock.now();
    let people = |count: usize, first: String| -> Vec<String> {
        std::iter::once(first)
            .chain((1..count).map(|number| format!("somebody{number}")))
            .collect()
    };
    for count in CROWDS {
        group(
            &mut loader,
            &people(count, format!("sender{count}")),
            now.plus_micros(-1_000_000),
        )
        .await;
    }
    for size in GROUP_SIZES {
        let people = people(size, format!("reader{size}"));
        for number in 0..GROUPS {
            group(
                &mut loader,
                &people,
                now.plus_micros(-60_000_000 * (number as i64 + 1)),
            )
            .await;
        }
    }
    loader.flush().await;
    let mut sends = Vec::new();
    for count in CROWDS {
        let viewer = user(&format!("sender{count}"));
        let conversation = Some(first_in_inbox(&mut (world, &viewer)).await);
        sends.push(Row::new(
            format!("a send to {}", number(count as f64)),
            viewer,
            conversation,
        ));
    }
    let inbox = |size| {
        Row::new(
            format!("an inbox of {GROUPS} groups of {size}"),
            user(&format!("reader{size}")),
            None,
        )
    };
    [sends, GROUP_SIZES.map(inbox).into()]
}

async fn group(loader: &mut Loader<'_>, people: &[String], last: wideroom::model::Timestamp) {
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    loader
        .conversation("A group", &people, last, MESSAGES)
        .await;
}

/// In turns, so that what else the machine does falls on all of them.
async fn rounds(world: &World, rows: &mut [Row], statements: Statements<'_>, size: &Size) {
    let mut serial = 0;
    for round in 0..=size.rounds {
        for row in rows.iter_mut() {
            let (sent, cpu, start) = (statements(), cpu_micros(), Instant::now());
            for _ in 0..TIMES {
                serial += 1;
                row.run(world, serial).await;
            }
            // The first round warms up.
            if round > 0 {
                let each = |all: f64| all / TIMES as f64;
                row.statements.push(each(statements() - sent));
                row.cpu.push(each(cpu_micros() - cpu));
                row.millis.push(each(start.elapsed().as_secs_f64() * 1e3));
            }
        }
    }
    for row in rows {
        let [statements, millis] =
            [&row.statements, &row.millis].map(|spread| number(spread.median()));
        println!(
            "  {:<30} {statements:>6} {} {millis:>8}",
            row.name,
            report::spread(&row.cpu)
        );
    }
}

impl Row {
    fn new(name: String, viewer: UserId, conversation: Option<String>) -> Self {
        Self {
            name,
            viewer,
            conversation,
            statements: Spread::default(),
            cpu: Spread::default(),
            millis: Spread::default(),
        }
    }

    async fn run(&self, world: &World, serial: u64) {
        let (document, variables) = match &self.conversation {
            Some(conversation) => (
                SEND,
                json!({ "c": conversation, "b": body(serial), "k": client_key(serial) }),
            ),
            None => (INBOX, json!({})),
        };
        world.ask(&self.viewer, document, variables).await;
    }
}
