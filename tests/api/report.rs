//! Reports through the API: users make them, and services alone read and resolve them.

use serde_json::{Value, json};
use wideroom::chat::{Bounds, RateBounds};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::metrics::Metrics;
use wideroom::model::{Report, ReportId, ReportReason, UserId};

use crate::support::client::soon;
use crate::support::door::Door;
use crate::support::world::{Actor, Answer, World, text};

const REPORT_MESSAGE: &str = "mutation($m: ID!, $r: ReportReason!, $n: String) {
    reportMessage(input: {messageId: $m, reason: $r, note: $n}) { reportId } }";
const REPORT_USER: &str = "mutation($u: String!, $c: ID, $r: ReportReason!, $n: String) {
    reportUser(input: {username: $u, conversationId: $c, reason: $r, note: $n}) { reportId } }";
const REPORT: &str =
    "id reason note state bodyThen attachmentsThen { url name thumbnailUrl } createdAt resolvedAt
    reporter { username } user { username } resolvedBy { username }
    message { id body deletedAt } conversation { id name }";
const EDIT: &str = "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"nothing\"}) { message { id } } }";
const DELETE: &str =
    "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }";

async fn report_message(actor: &Actor, message: &str) -> Answer {
    let variables = json!({"m": message, "r": "HARASSMENT", "n": "he is rude"});
    actor.ask(REPORT_MESSAGE, variables).await
}

async fn report_user(actor: &Actor, user: &str) -> Answer {
    let variables = json!({"u": user, "r": "SPAM"});
    actor.ask(REPORT_USER, variables).await
}

/// The answer of a service's document.
async fn ask(door: &Door, document: &str, variables: Value) -> Value {
    let said = door.ask(&door.service(), document, &variables).await.json();
    assert!(said.get("errors").is_none(), "{said}");
    said["data"].clone()
}

async fn resolve(door: &Door, report: &str, state: &str) -> Value {
    let document = format!(
        "mutation($i: ID!, $s: ReportState!) {{ resolveReport(input: {{reportId: $i, state: $s}}) {{ report {{ {REPORT} }} }} }}"
    );
    let variables = json!({"i": report, "s": state});
    ask(door, &document, variables).await["resolveReport"]["report"].clone()
}

/// The ids of a page of reports, and its position.
async fn page(door: &Door, arguments: &str) -> (Vec<String>, Value) {
    let document = format!(
        "{{ reports({arguments}) {{ edges {{ cursor node {{ id }} }} pageInfo {{ hasNextPage hasPreviousPage startCursor endCursor }} }} }}"
    );
    let reports = ask(door, &document, json!({})).await["reports"].clone();
    let ids = reports["edges"].as_array().unwrap().iter();
    let ids = ids.map(|edge| text(&edge["node"]["id"])).collect();
    (ids, reports["pageInfo"].clone())
}

#[tokio::test]
async fn a_report_keeps_the_message_as_it_was() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let [alice, bob] = ["alice", "bob"].map(|name| world.user(name));
    let group = alice.group("Us", &["bob"]).await;
    let long = "ä".repeat(3_000);
    let send = "mutation($c: ID!, $b: String!) { sendMessage(input: {conversationId: $c, body: $b, attachments: [
        {url: \"https://example.com/a.png\", mimeType: \"image/png\", name: \"a.png\", thumbnailUrl: \"https://example.com/s.png\"}]}) { messageEdge { node { id } } } }";
    let sent = bob.data(send, json!({"c": group, "b": long})).await;
    let message = text(&sent["sendMessage"]["messageEdge"]["node"]["id"]);
    let reported = report_message(&alice, &message).await.data()["reportMessage"].clone();
    let id = text(&reported["reportId"]);
    bob.data(EDIT, json!({"m": message})).await;
    let node = format!("query($i: ID!) {{ node(id: $i) {{ ... on Report {{ {REPORT} }} }} }}");
    let report = ask(&door, &node, json!({"i": id})).await["node"].clone();
    assert_eq!(report["id"], id);
    assert_eq!(report["reporter"]["username"], "alice");
    assert_eq!(report["user"]["username"], "bob");
    assert_eq!(report["reason"], "HARASSMENT");
    assert_eq!(report["note"], "he is rude");
    assert_eq!(report["state"], "OPEN");
    assert_eq!(report["resolvedBy"], Value::Null);
    assert_eq!(report["resolvedAt"], Value::Null);
    assert_eq!(report["conversation"], json!({"id": group, "name": "Us"}));
    assert_eq!(report["bodyThen"], "ä".repeat(2_048));
    let attachment = json!([{"url": "https://example.com/a.png", "name": "a.png", "thumbnailUrl": "https://example.com/s.png"}]);
    assert_eq!(report["attachmentsThen"], attachment);
    assert_eq!(report["message"]["body"], "nothing");
    bob.data(DELETE, json!({"m": message})).await;
    let report = ask(&door, &node, json!({"i": id})).await["node"].clone();
    assert_eq!(report["bodyThen"], "ä".repeat(2_048));
    assert_eq!(report["message"]["body"], Value::Null);
    assert_ne!(report["message"]["deletedAt"], Value::Null);
    // A report of the deleted message has nothing to copy.
    let again = report_message(&alice, &message).await.data()["reportMessage"]["reportId"].clone();
    let report = ask(&door, &node, json!({"i": again})).await["node"].clone();
    assert_eq!(report["bodyThen"], Value::Null);
    assert_eq!(report["attachmentsThen"], json!([]));
}

#[tokio::test]
async fn users_report_what_they_can_see_and_nothing_else() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let group = alice.group("Us", &["bob"]).await;
    let sent = alice.send(&group, "secret").await;
    let hidden = report_message(&carol, &sent.id).await;
    let missing = report_message(&carol, "nothing").await;
    assert_eq!(hidden.0, missing.0, "both are equally unknown");
    assert_eq!(hidden.code(), "NOT_FOUND");
    let in_group = |conversation: &str| json!({"u": "bob", "c": conversation, "r": "HATE"});
    let hidden = carol.ask(REPORT_USER, in_group(&group)).await;
    let missing = carol.ask(REPORT_USER, in_group("nothing")).await;
    assert_eq!(hidden.0, missing.0);
    assert_eq!(hidden.code(), "NOT_FOUND");
    alice.data(REPORT_USER, in_group(&group)).await;
    carol
        .data(REPORT_USER, json!({"u": "never seen", "r": "OTHER"}))
        .await;
    let own = report_message(&alice, &sent.id).await;
    assert_eq!(own.extensions()["inputPath"], json!(["input", "messageId"]));
    assert_eq!(own.code(), "BAD_USER_INPUT");
    for (user, note, path) in [
        ("alice", "fine", "username"),
        ("", "fine", "username"),
        ("bob", "", "note"),
        ("bob", "a\u{7}b", "note"),
        ("bob", &"x".repeat(1_025), "note"),
    ] {
        let variables = json!({"u": user, "r": "SPAM", "n": note});
        let answer = alice.ask(REPORT_USER, variables).await;
        assert_eq!(answer.extensions()["inputPath"], json!(["input", path]));
        assert_eq!(answer.code(), "BAD_USER_INPUT");
    }
    // One who left sees the message no more.
    report_message(&bob, &sent.id).await.data();
    let leave =
        "mutation($c: ID!) { leaveConversation(input: {conversationId: $c}) { __typename } }";
    bob.data(leave, json!({"c": group})).await;
    assert_eq!(report_message(&bob, &sent.id).await.code(), "NOT_FOUND");
    // A blocker still reports messages of the blocked user.
    let direct = alice.direct("carol").await;
    let rude = carol.send(&direct, "rude").await;
    let block = "mutation { blockUser(input: {username: \"carol\"}) { user { id } } }";
    alice.data(block, json!({})).await;
    report_message(&alice, &rude.id).await.data();
}

#[tokio::test]
async fn services_alone_list_and_resolve_reports() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let alice = world.user("alice");
    let mut ids = Vec::new();
    for n in 0..5 {
        let reported = report_user(&alice, &format!("user {n}")).await.data();
        ids.push(text(&reported["reportUser"]["reportId"]));
    }
    ids.reverse();
    let list = "{ reports { edges { cursor } } }";
    let resolution = "mutation($i: ID!) { resolveReport(input: {reportId: $i, state: ACTED}) { report { id } } }";
    let node = "query($i: ID!) { node(id: $i) { id } }";
    let acting = door.service().acting_as("alice");
    for badge in [door.user("alice"), acting] {
        for (document, code) in [(list, "FORBIDDEN"), (resolution, "FORBIDDEN"), (node, "")] {
            let said = door.ask(&badge, document, &json!({"i": ids[0]})).await;
            assert_eq!(said.code(), code, "{document}");
            let data = &said.json()["data"];
            assert!(data.is_null() || data.as_object().unwrap().values().all(Value::is_null));
        }
        let said = door.ask(&badge, resolution, &json!({"i": "nothing"})).await;
        assert_eq!(said.code(), "FORBIDDEN", "before any look at the report");
    }
    let (all, info) = page(&door, "first: 9").await;
    assert_eq!(all, ids);
    assert_eq!(
        (&info["hasNextPage"], &info["hasPreviousPage"]),
        (&json!(false), &json!(false))
    );
    let (some, info) = page(&door, "first: 2").await;
    assert_eq!(some, ids[..2]);
    assert_eq!(
        (&info["hasNextPage"], &info["hasPreviousPage"]),
        (&json!(true), &json!(false))
    );
    let end = text(&info["endCursor"]);
    let (rest, info) = page(&door, &format!("first: 9, after: \"{end}\"")).await;
    assert_eq!(rest, ids[2..]);
    assert_eq!(
        (&info["hasNextPage"], &info["hasPreviousPage"]),
        (&json!(false), &json!(true))
    );
    let (last, info) = page(&door, "last: 2").await;
    assert_eq!(last, ids[3..]);
    let start = text(&info["startCursor"]);
    let (before, info) = page(&door, &format!("last: 2, before: \"{start}\"")).await;
    assert_eq!(before, ids[1..3]);
    assert_eq!(
        (&info["hasNextPage"], &info["hasPreviousPage"]),
        (&json!(true), &json!(true))
    );

    let acted = resolve(&door, &ids[1], "ACTED").await;
    assert_eq!(acted["state"], "ACTED");
    assert_eq!(acted["user"]["username"], "user 3");
    assert!(acted["resolvedAt"].is_string() && acted["resolvedBy"]["username"].is_string());
    resolve(&door, &ids[3], "DISMISSED").await;
    let dismissed = resolve(&door, &ids[1], "DISMISSED").await;
    assert_eq!(dismissed["state"], "DISMISSED", "the later one wins");
    resolve(&door, &ids[1], "ACTED").await;
    let of = async |state: &str| page(&door, &format!("state: {state}")).await.0;
    assert_eq!(of("OPEN").await, [&*ids[0], &ids[2], &ids[4]]);
    assert_eq!(of("ACTED").await, [&*ids[1]]);
    assert_eq!(of("DISMISSED").await, [&*ids[3]]);
    let (open, info) = page(&door, "state: OPEN, first: 2").await;
    assert_eq!(open, [&*ids[0], &ids[2]]);
    assert_eq!(info["hasNextPage"], true);
    let open_again = resolve(&door, &ids[1], "OPEN").await;
    assert_eq!(open_again["state"], "OPEN");
    assert_eq!(open_again["resolvedBy"], Value::Null);
    let said = door
        .ask(&door.service(), resolution, &json!({"i": "nothing"}))
        .await;
    assert_eq!(said.code(), "NOT_FOUND");
}

#[tokio::test]
async fn a_page_with_a_state_comes_short_and_goes_on() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let first = report_user(&world.user("alice"), "first").await.data();
    let first = text(&first["reportUser"]["reportId"]);
    resolve(&door, &first, "ACTED").await;
    let alice = UserId::parse("alice").unwrap();
    for n in 0..1_001 {
        let id = ReportId::new(SystemClock.now().plus_micros(n), [1; 8]);
        let report = Report {
            id,
            reporter: alice.clone(),
            user: alice.clone(),
            reason: ReportReason::Spam,
            note: None,
            conversation: None,
            message: None,
            body: None,
            attachments: Vec::new(),
            resolution: None,
        };
        world.store.add_report(&report, id).await.unwrap();
    }
    let (none, info) = page(&door, "state: ACTED").await;
    assert!(none.is_empty());
    assert_eq!(info["hasNextPage"], true, "it looked at 1,000 of 1,002");
    let end = text(&info["endCursor"]);
    let (found, info) = page(&door, &format!("state: ACTED, after: \"{end}\"")).await;
    assert_eq!(found, [first]);
    assert_eq!(info["hasNextPage"], false);
}

#[tokio::test]
async fn reports_of_a_user_have_a_rate() {
    let world = World::with_rates(RateBounds {
        reports_per_hour: 2,
        ..RateBounds::default()
    })
    .await;
    for actor in ["alice", "bob"].map(|name| world.user(name)) {
        // A refused report costs nothing.
        assert_eq!(report_message(&actor, "nothing").await.code(), "NOT_FOUND");
        report_user(&actor, "eve").await.data();
        report_user(&actor, "eve").await.data();
        let refused = report_user(&actor, "eve").await;
        assert_eq!(refused.code(), "RATE_LIMITED");
        assert!(refused.extensions()["retryAfterMs"].as_u64().unwrap() > 60_000);
        assert_eq!(refused.extensions()["outcome"], "NOT_DONE");
    }
}

#[tokio::test]
async fn a_user_has_a_share_of_the_reports_of_a_day() {
    let world = World::with_rates(RateBounds {
        reports_per_day: 2,
        ..RateBounds::default()
    })
    .await;
    for actor in ["alice", "bob"].map(|name| world.user(name)) {
        for _ in 0..2 {
            report_user(&actor, "eve").await.data();
        }
        let refused = report_user(&actor, "eve").await;
        assert_eq!(refused.code(), "RATE_LIMITED");
        let wait = refused.extensions()["retryAfterMs"].as_u64().unwrap();
        assert!(wait > 3_600_000, "{wait}");
    }
    let metrics = Metrics::default();
    world.chat.register(&metrics);
    let text = metrics.text();
    assert!(text.contains("wideroom_reports_in_day 3"), "{text}");
    assert!(text.contains("wideroom_reports_refused_total 0"), "{text}");
}

#[tokio::test]
async fn reports_of_a_day_are_bounded() {
    let world = World::with_bounds(Bounds {
        reports_per_day: 2,
        ..Bounds::default()
    })
    .await;
    for name in ["alice", "bob"] {
        report_user(&world.user(name), "eve").await.data();
    }
    for name in ["alice", "carol"] {
        let refused = report_user(&world.user(name), "eve").await;
        assert_eq!(refused.code(), "RATE_LIMITED");
        assert_eq!(refused.extensions()["outcome"], "NOT_DONE");
    }
}

#[tokio::test]
async fn a_report_is_an_event_for_services() {
    let world = World::open().await;
    world
        .store
        .set_outbox(Some(SystemClock.now()))
        .await
        .unwrap();
    let door = Door::of(&world.chat);
    let document = format!(
        "subscription {{ outbox(types: [REPORTED]) {{ cursor id conversation {{ id }}
            event {{ __typename ... on ReportedEvent {{ report {{ {REPORT} }} }} }} }} }}"
    );
    let mut stream = door.subscribe(&door.service(), &document, &json!({}));
    let next = async |stream: &mut futures_util::stream::BoxStream<'static, Value>| {
        let payload = soon(futures_util::StreamExt::next(stream)).await.unwrap();
        assert!(payload.get("errors").is_none(), "{payload}");
        payload["data"]["outbox"].clone()
    };
    assert_eq!(next(&mut stream).await["event"], Value::Null);
    let [alice, bob] = ["alice", "bob"].map(|name| world.user(name));
    let group = alice.group("Us", &["bob"]).await;
    let sent = bob.send(&group, "rude").await;
    let id = report_message(&alice, &sent.id).await.data()["reportMessage"]["reportId"].clone();
    let event = next(&mut stream).await;
    assert_eq!(event["conversation"]["id"], group);
    assert_eq!(event["event"]["__typename"], "ReportedEvent");
    let report = &event["event"]["report"];
    assert_eq!((&report["id"], &report["bodyThen"]), (&id, &json!("rude")));
    let id = report_user(&alice, "eve").await.data()["reportUser"]["reportId"].clone();
    let event = next(&mut stream).await;
    assert_eq!(event["conversation"], Value::Null);
    assert_eq!(event["event"]["report"]["id"], id);
    assert_eq!(event["event"]["report"]["user"]["username"], "eve");
}
