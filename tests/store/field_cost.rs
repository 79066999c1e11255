//! Cost of the fields that spare clients a query of their own: nothing where a document leaves them out, and where it selects one the reads
//! that its price stands for. Figures with `--nocapture`.

use serde_json::{Value, json};

use super::demo_cost::Stand;
use crate::support::words::crowd;
use crate::support::world::{Actor, text};

/// `FIELD` is left out, or is the field.
const MESSAGES: &str = "query($c: ID!) { conversation(id: $c) { messages(first: 20) { edges { node { body FIELD } } } } }";
const HEAD: &str = "query($c: ID!) { conversation(id: $c) { name FIELD } }";
const SUMMARY: &str = "query { inboxSummary { unreadConversationCount FIELD } }";
const EVENTS: &str = "subscription($c: ID!, $events: String) {
    conversationEvents(conversationId: $c, after: $events) { event { __typename } FIELD } }";
const UPDATES: &str = "subscription($updates: String) { inboxUpdated(after: $updates) { event { __typename } FIELD } }";
const DELIVERED: &str = "deliveredToAllUpTo { orderKey }";
const READ: &str = "readByAllUpTo { orderKey }";
const WATERMARKS: &str = "deliveredToAllUpTo { orderKey } readByAllUpTo { orderKey }";

const MESSAGE_COUNT: usize = 5;
/// The least of so many runs counts. A run may also pay for what an earlier one left in flight, so runs go on while none is within the bound.
const RUNS_MIN: usize = 4;
const RUNS_MAX: usize = 40;

/// Further operations of the store that each field may cost.
struct Costs {
    watermark: u64,
    watermarks: u64,
    unread_messages: u64,
    summary: u64,
    summary_of_messages: u64,
}

async fn run(actor: &Actor, document: &str, variables: &Value) {
    if document.starts_with("query") {
        actor.data(document, variables.clone()).await;
        return;
    }
    let mut stream = actor.subscribe(document, variables.clone());
    let wanted = if document.contains("conversationEvents") {
        MESSAGE_COUNT
    } else {
        1
    };
    let mut received = 0;
    while received < wanted {
        let answer = stream.answer().await.0;
        assert!(answer["extensions"]["cursor"].is_string(), "{answer}");
        let payload = answer["data"].as_object().unwrap().values().next().unwrap();
        received += usize::from(!payload["event"].is_null());
    }
}

async fn the_fields_cost(stand: &Stand, most: Costs) {
    let people = crowd(3);
    let [alice, bob, carol] = [0, 1, 2].map(|index| Actor::of(&stand.api, &people[index]));
    let others = [people[1].as_str(), people[2].as_str()];
    let c = alice.group("Us", &others).await;
    let start = "query($c: ID!) { conversation(id: $c) { eventsCursor } inbox(first: 0) { updatesCursor } }";
    let start = alice.data(start, json!({"c": c})).await;
    for number in 0..MESSAGE_COUNT {
        bob.send(&c, &number.to_string()).await;
        alice.send(&c, &number.to_string()).await;
    }
    for actor in [&bob, &carol] {
        actor.mark_read(&c, None).await;
    }
    bob.send(&c, "Hello").await;
    let variables = json!({
        "c": c,
        "events": start["conversation"]["eventsCursor"],
        "updates": start["inbox"]["updatesCursor"],
    });
    let read = alice
        .data(&HEAD.replace("FIELD", WATERMARKS), variables.clone())
        .await;
    let newest = text(&read["conversation"]["readByAllUpTo"]["orderKey"]);
    assert!(!newest.is_empty(), "there is something to read: {read}");

    let least = async |document: &str, most: u64| {
        let mut least = u64::MAX;
        for number in 0..RUNS_MAX {
            if number >= RUNS_MIN && least <= most {
                break;
            }
            let before = (stand.spent)();
            run(&alice, document, &variables).await;
            least = least.min((stand.spent)() - before);
        }
        least
    };
    let mut failures = Vec::new();
    for (document, field, most) in [
        (MESSAGES, "orderKey", 0),
        (HEAD, DELIVERED, most.watermark),
        (HEAD, READ, most.watermark),
        (HEAD, WATERMARKS, most.watermarks),
        (SUMMARY, "unreadMessageCount", most.unread_messages),
        (EVENTS, "cursor", 0),
        (EVENTS, "isLive", 0),
        (UPDATES, "cursor", 0),
        (UPDATES, "isLive", 0),
        (UPDATES, "summary { unreadConversationCount }", most.summary),
        (
            UPDATES,
            "summary { unreadMessageCount }",
            most.summary_of_messages,
        ),
    ] {
        let without = least(&document.replace("FIELD", ""), u64::MAX).await;
        let with = least(&document.replace("FIELD", field), without + most).await;
        println!("{field}: {without} without, {with} with it");
        let is_priced = most == 0 || with > without;
        if with > without + most || !is_priced {
            failures.push(field);
        }
    }
    assert!(failures.is_empty(), "see above: {failures:?}");
}

#[tokio::test]
async fn fields_cost_operations_of_the_embedded_store_where_they_are_selected() {
    let stand = Stand::embedded().await;
    let most = Costs {
        watermark: 3,
        watermarks: 3,
        unread_messages: 1,
        summary: 3,
        summary_of_messages: 4,
    };
    the_fields_cost(&stand, most).await;
}

#[tokio::test]
async fn fields_cost_statements_on_cassandra_where_they_are_selected() {
    let Some(stand) = Stand::cassandra().await else {
        return;
    };
    let most = Costs {
        watermark: 4,
        watermarks: 4,
        unread_messages: 3,
        summary: 6,
        summary_of_messages: 8,
    };
    the_fields_cost(&stand, most).await;
}
