//! Cost of the outbox: sends with and without it, and the pace of a reader.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_graphql::Variables;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use serde_json::{Value, json};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::graphql::{
    AnswerBudget, EventContent, EventResponse, ExecutionLimits, OperationExecutor as _,
};
use wideroom::model::Viewer;
use wideroom::rate::Pace;

use crate::Size;
use crate::measure::cpu_micros;
use crate::report::{self, Verdicts};
use crate::throughput::{SENDERS, in_turns, of_two, ours};
use crate::world::{World, user};

const EVENTS_AIM: f64 = 50_000.0;
/// Everything that a search index or a push worker needs of a message.
const OUTBOX: &str = "subscription($a: String) { outbox(after: $a, types: [MESSAGE_ADDED]) { cursor id occurredAt event {
    ... on MessageAddedEvent { messageEdge { node { id body sender { username } } } } } } }";

pub async fn measure(size: &Size) {
    let mut verdicts = Verdicts::default();
    let off = Arc::new(World::empty_without_index().await);
    let on = Arc::new(World::empty_without_index().await);
    on.store()
        .set_outbox(Some(SystemClock.now()))
        .await
        .unwrap();
    let mut reader = subscribe(&on, &Value::Null, Arc::default()).await;
    let first = cursor(&reader.next().await.unwrap());
    drop(reader);
    let mut ways = [
        ours(
            "without an outbox",
            SENDERS,
            &off,
            of_two(&off, "a", SENDERS).await,
            true,
        ),
        ours(
            "with an outbox",
            SENDERS,
            &on,
            of_two(&on, "a", SENDERS).await,
            true,
        ),
        ours(
            "alone, without an outbox",
            1,
            &off,
            of_two(&off, "b", 1).await,
            true,
        ),
        ours(
            "alone, with an outbox",
            1,
            &on,
            of_two(&on, "b", 1).await,
            true,
        ),
    ];
    in_turns(size, "Sends of 64 at once, and of one alone", &mut ways).await;
    for (what, pair) in [("64 at once", 0), ("alone", 2)] {
        let ratio = ways[pair + 1].cpu.median() / ways[pair].cpu.median();
        let what = format!("CPU of a send with an outbox, {what}, to one without");
        verdicts.at_most(&what, ratio, 1.05);
    }
    let (count, _) = read_all(&on, &first).await;
    let before = cpu_micros();
    let (again, took) = read_all(&on, &first).await;
    assert_eq!(count, again);
    let rate = count as f64 / took.as_secs_f64();
    let micros = (cpu_micros() - before) / count as f64;
    report::heading("Events read through the subscription, all from disk");
    println!("  {count} events, {rate:.0} a second, {micros:.1} µs of each on the processor");
    verdicts.at_least("events read a second, to 50,000", rate / EVENTS_AIM, 1.0);
    verdicts.print();
}

async fn subscribe(
    world: &World,
    after: &Value,
    budget: Arc<AnswerBudget>,
) -> BoxStream<'static, EventResponse> {
    let prepared = world.api.prepare(OUTBOX, None).unwrap();
    let variables = Variables::from_json(json!({ "a": after }));
    let variables = prepared.coerce(variables).unwrap().variables;
    let limits = ExecutionLimits {
        budget,
        pace: Pace::free(),
    };
    let viewer = Viewer::service(user("backend"));
    world
        .api
        .subscribe(&prepared, variables, Some(viewer), limits)
        .await
}

fn payload(response: &EventResponse) -> Value {
    let EventContent::Own(response) = &response.content else {
        panic!("a payload of an own execution");
    };
    assert!(response.errors.is_empty(), "{:?}", response.errors);
    let data = serde_json::to_value(&response.data).unwrap();
    data["outbox"].clone()
}

fn cursor(response: &EventResponse) -> Value {
    payload(response)["cursor"].clone()
}

/// Number of events up to the end, and the time until the last one.
async fn read_all(world: &World, after: &Value) -> (usize, Duration) {
    let start = Instant::now();
    let mut took = Duration::ZERO;
    let budget: Arc<AnswerBudget> = Arc::default();
    let mut reader = subscribe(world, after, Arc::clone(&budget)).await;
    payload(&reader.next().await.unwrap());
    let mut count = 0;
    // A reader that came late pauses while the store compacts what was just sent.
    let quiet = Duration::from_secs(5);
    while let Ok(response) = tokio::time::timeout(quiet, reader.next()).await {
        let Some(EventContent::Own(response)) = response.map(|response| response.content) else {
            panic!("the stream goes on");
        };
        assert!(response.errors.is_empty(), "{:?}", response.errors);
        // As the server does after each payload.
        budget.rewind(0);
        count += 1;
        took = start.elapsed();
    }
    (count, took)
}
