//! Service fields: profiles, suspensions and revoked tokens, through the real HTTP door.

use std::sync::Arc;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Chat, Refusal};
use wideroom::clock::{Clock, ManualClock, SystemClock};
use wideroom::model::{Timestamp, UserId, Viewer};
use wideroom::store::StoreAdmin;
use wideroom::transfer::export::Written;
use wideroom::transfer::{Export, Import};

use crate::support::door::{Badge, Door};
use crate::support::ground::Ground;
use crate::support::world::{PATIENCE, World};

const NAME: &str = "{ viewer { username } }";
const SUSPEND: &str = "mutation($u: String!, $until: DateTime, $reason: String) { suspendUser(input: {username: $u, until: $until, reason: $reason}) { user { username suspension { since until reason } } } }";
const RESTORE: &str = "mutation($u: String!) { restoreUser(input: {username: $u}) { user { suspension { since } } } }";
const REVOKE: &str = "mutation($u: String, $at: DateTime) { revokeTokens(input: {username: $u, issuedBefore: $at}) { revokedBefore } }";
const DAY_MICROS: i64 = 24 * 3_600 * 1_000_000;

async fn data(door: &Door, badge: &Badge, document: &str, variables: Value) -> Value {
    let said = door.ask(badge, document, &variables).await;
    assert!(said.json().get("errors").is_none(), "{said:?}");
    said.json()["data"].clone()
}

fn name(text: &str) -> UserId {
    UserId::parse(text).unwrap()
}

/// Seconds since 1970.
fn seconds(moment: Timestamp) -> i64 {
    moment.micros().div_euclid(1_000_000)
}

/// A token that was issued so many seconds from now.
fn issued(door: &Door, user: &str, offset: i64) -> Badge {
    let now = seconds(SystemClock.now());
    door.signed(&json!({"sub": user, "iat": now + offset, "exp": now + 3_600}))
}

#[tokio::test]
async fn a_service_field_is_forbidden_to_everyone_else_whatever_its_target() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    world.user("alice").direct("bob").await;
    let fields = [
        "suspendUser(input: {username: $u}) { user { id } }",
        "restoreUser(input: {username: $u}) { user { id } }",
        "revokeTokens(input: {username: $u}) { revokedBefore }",
        "upsertUsers(input: {users: [{username: $u, displayName: \"x\"}]}) { users { id } }",
        "eraseUser(input: {username: $u}) { job { id } }",
    ];
    let strangers = [door.user("mallory"), door.service().acting_as("alice")];
    for field in fields {
        let document = format!("mutation($u: String!) {{ {field} }}");
        for badge in &strangers {
            let mut said = Vec::new();
            for target in ["alice", "nobody", "", "a\tb"] {
                let answer = door.ask(badge, &document, &json!({"u": target})).await;
                assert_eq!(answer.code(), "FORBIDDEN", "{field} of {target:?}");
                said.push(answer);
            }
            assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
        }
        let badge = door.signed(&json!({}));
        let said = door.ask(&badge, &document, &json!({"u": "alice"})).await;
        assert_eq!(said.code(), "UNAUTHENTICATED");
    }
    let found = world.store.restrictions().await.unwrap();
    assert!(found.is_empty(), "nothing was done: {found:?}");
    let hidden = "query($u: [ID!]!) { nodes(ids: $u) { ... on User { suspension { reason } } } }";
    data(
        &door,
        &door.service(),
        SUSPEND,
        json!({"u": "bob", "reason": "spam"}),
    )
    .await;
    let id = data(&door, &door.user("alice"), "{ viewer { id } }", json!({})).await;
    let bob = "mutation { startDirectConversation(input: {username: \"bob\"}) { conversation { participants { edges { node { user { id username suspension { since } } } } } } } }";
    let edges = data(&door, &door.user("alice"), bob, json!({})).await;
    let edges = &edges["startDirectConversation"]["conversation"]["participants"]["edges"];
    let bob = edges
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| edge["node"]["user"].clone())
        .find(|user| user["username"] == "bob")
        .unwrap();
    assert_eq!(bob["suspension"], Value::Null, "users see no suspension");
    let ids = json!({"u": [bob["id"], id["viewer"]["id"]]});
    let seen = data(&door, &door.service(), hidden, ids).await;
    assert_eq!(seen["nodes"][0]["suspension"]["reason"], "spam");
    assert_eq!(seen["nodes"][1]["suspension"], Value::Null);
}

#[tokio::test]
async fn introspection_shows_service_fields_to_services_alone() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let document = "{ __schema { mutationType { fields { name } } types { name } } }";
    let one = "{ __type(name: \"SuspendUserInput\") { name } }";
    let shows = async |badge: &Badge| {
        let schema = data(&door, badge, document, json!({})).await.to_string();
        let found = data(&door, badge, one, json!({})).await;
        let names = [
            "suspendUser",
            "restoreUser",
            "revokeTokens",
            "upsertUsers",
            "eraseUser",
            "SuspendUserInput",
            "UserInput",
            "UpsertUsersPayload",
        ];
        let shown = names.map(|name| schema.contains(&format!("\"{name}\"")));
        assert!(
            shown.iter().all(|is_shown| *is_shown == shown[0]),
            "{shown:?}"
        );
        assert_eq!(found["__type"].is_null(), !shown[0]);
        assert!(schema.contains("\"sendMessage\"") && schema.contains("\"SendMessageInput\""));
        shown[0]
    };
    assert!(shows(&door.service()).await);
    assert!(!shows(&door.user("alice")).await);
    assert!(!shows(&door.service().acting_as("alice")).await);
}

#[tokio::test]
async fn a_service_writes_profiles_and_everyone_sees_them() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let document = "mutation($users: [UserInput!]!) { upsertUsers(input: {users: $users}) { users { username displayName avatarUrl metadata } } }";
    let upsert = async |users: Value| {
        let data = data(&door, &door.service(), document, json!({"users": users})).await;
        data["upsertUsers"]["users"].clone()
    };
    let users = upsert(json!([
        {"username": "bob", "displayName": "Bob", "metadata": {"team": [1, 2.5]}},
        {"username": "alice", "avatarUrl": "https://example.org/a.png"},
        {"username": "bob", "avatarUrl": "https://example.org/b.png"},
    ]))
    .await;
    assert_eq!(users[0], users[2], "in the order given");
    let expected = json!({"username": "bob", "displayName": "Bob", "avatarUrl": "https://example.org/b.png", "metadata": {"team": [1, 2.5]}});
    assert_eq!(users[0], expected);
    assert_eq!(users[1]["displayName"], Value::Null);
    let own = "{ viewer { username displayName avatarUrl metadata } }";
    let seen = data(&door, &door.user("bob"), own, json!({})).await;
    assert_eq!(seen["viewer"], expected);
    let users = upsert(json!([{"username": "bob", "metadata": null, "displayName": null}])).await;
    assert_eq!(users[0]["metadata"], Value::Null);
    assert_eq!(users[0]["displayName"], Value::Null);
    assert_eq!(users[0]["avatarUrl"], "https://example.org/b.png");
    // A field whose variable has no value is left out.
    let open = "mutation($name: String, $json: JSON) { upsertUsers(input: {users: [{username: \"bob\", avatarUrl: $name, metadata: $json}, {username: \"bob\", metadata: true}]}) { users { avatarUrl metadata } } }";
    let kept = data(&door, &door.service(), open, json!({})).await;
    assert_eq!(
        kept["upsertUsers"]["users"][0],
        json!({"avatarUrl": "https://example.org/b.png", "metadata": true})
    );
    let long = "x".repeat(2_048);
    let many: Vec<_> = (0..101)
        .map(|n| json!({"username": n.to_string()}))
        .collect();
    for (users, why) in [
        (json!([]), "an empty list"),
        (json!(many), "too many"),
        (
            json!([{"username": "carol", "displayName": "C"}, {"username": ""}]),
            "a bad name",
        ),
        (json!([{"username": "carol", "metadata": long}]), "too much"),
        (
            json!([{"username": "carol", "avatarUrl": "javascript:1"}]),
            "no address",
        ),
    ] {
        let said = door
            .ask(&door.service(), document, &json!({"users": users}))
            .await;
        assert_eq!(said.code(), "BAD_USER_INPUT", "{why}");
        let path = &said.json()["errors"][0]["extensions"]["inputPath"];
        assert_eq!(*path, json!(["input", "users"]), "{why}");
    }
    let carol = world.store.profiles(&[name("carol")]).await.unwrap();
    assert_eq!(carol, [None], "all are checked before the first change");
}

#[tokio::test]
async fn a_suspended_user_is_out_at_once_and_back_when_restored() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let (alice, service) = (door.user("alice"), door.service());
    let acting = door.service().acting_as("alice");
    let document = "subscription { inboxUpdated { cursor } }";
    let mut streams = [
        door.subscribe(&alice, document, &json!({})),
        door.subscribe(&acting, document, &json!({})),
    ];
    for stream in &mut streams {
        assert!(stream.next().await.is_some());
    }
    let suspended = data(
        &door,
        &service,
        SUSPEND,
        json!({"u": "alice", "reason": "spam"}),
    )
    .await;
    let suspension = &suspended["suspendUser"]["user"]["suspension"];
    assert_eq!(suspension["reason"], "spam");
    assert_eq!(suspension["until"], Value::Null);
    for stream in &mut streams {
        let ended = tokio::time::timeout(PATIENCE, stream.next()).await;
        assert!(ended.expect("the stream ends").is_none());
    }
    for badge in [&alice, &acting] {
        let said = door.ask(badge, NAME, &json!({})).await;
        assert_eq!((said.status, said.code().as_str()), (403, "FORBIDDEN"));
    }
    // Left out without a word.
    let bob = world.user("bob");
    let group = bob.group("a group", &["alice", "carol"]).await;
    let add = "mutation($c: ID!) { addParticipants(input: {conversationId: $c, usernames: [\"alice\", \"dave\"]}) { conversation { participantCount } } }";
    let added = bob.data(add, json!({"c": group})).await;
    assert_eq!(
        added["addParticipants"]["conversation"]["participantCount"],
        3
    );
    let restored = data(&door, &service, RESTORE, json!({"u": "alice"})).await;
    assert_eq!(restored["restoreUser"]["user"]["suspension"], Value::Null);
    for badge in [&alice, &acting] {
        assert_eq!(door.ask(badge, NAME, &json!({})).await.code(), "");
    }
    data(&door, &service, RESTORE, json!({"u": "alice"})).await;
    // A service is a subject like any other.
    data(&door, &service, SUSPEND, json!({"u": "another"})).await;
    let other = door.service_named("another");
    for badge in [other.clone(), other.acting_as("bob")] {
        let said = door.ask(&badge, NAME, &json!({})).await;
        assert_eq!((said.status, said.code().as_str()), (403, "FORBIDDEN"));
    }
    let past = json!({"u": "bob", "until": "2020-01-01T00:00:00Z"});
    let long = json!({"u": "bob", "reason": "x".repeat(256)});
    for (bad, path) in [(past, "until"), (long, "reason")] {
        let said = door.ask(&service, SUSPEND, &bad).await;
        assert_eq!(said.code(), "BAD_USER_INPUT");
        let extensions = &said.json()["errors"][0]["extensions"];
        assert_eq!(extensions["inputPath"], json!(["input", path]));
    }
}

#[tokio::test]
async fn a_revoked_token_is_refused_and_a_later_one_is_not() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let service = door.service();
    let now = seconds(SystemClock.now());
    let code = async |badge: &Badge| door.ask(badge, NAME, &json!({})).await.code();
    let old = issued(&door, "alice", -5);
    let no_iat = door.signed(&json!({"sub": "alice", "exp": now + 3_600}));
    for badge in [&old, &no_iat] {
        assert_eq!(code(badge).await, "");
    }
    let mut stream = door.subscribe(&old, "subscription { inboxUpdated { cursor } }", &json!({}));
    assert!(stream.next().await.is_some());
    let revoked = data(&door, &service, REVOKE, json!({"u": "alice"})).await;
    let moment = revoked["revokeTokens"]["revokedBefore"]
        .as_str()
        .unwrap()
        .to_owned();
    let moment = Timestamp::parse(&moment).unwrap();
    assert_eq!(moment.micros() % 1_000_000, 0, "a whole second");
    let ended = tokio::time::timeout(PATIENCE, stream.next()).await;
    assert!(ended.expect("the stream ends").is_none());
    let with_iat = |iat: f64| door.signed(&json!({"sub": "alice", "iat": iat, "exp": now + 3_600}));
    let second = seconds(moment) as f64;
    for (badge, expected) in [
        (&old, "UNAUTHENTICATED"),
        (&no_iat, "UNAUTHENTICATED"),
        (&with_iat(second - 1.0), "UNAUTHENTICATED"),
        (&with_iat(second - 0.001), "UNAUTHENTICATED"),
        (&with_iat(second), ""),
        (&with_iat(second + 1.0), ""),
        // A service acts with its own token.
        (&door.service().acting_as("alice"), ""),
        (&issued(&door, "bob", -5), ""),
    ] {
        assert_eq!(code(badge).await, expected, "{badge:?}");
    }
    let said = door.ask(&old, NAME, &json!({})).await;
    assert_eq!(said.status, 401);
    // An earlier moment gives nothing back, and one of the future is refused.
    let earlier = json!({"u": "alice", "at": "2020-01-01T00:00:00.5Z"});
    let revoked = data(&door, &service, REVOKE, earlier).await;
    assert_eq!(
        revoked["revokeTokens"]["revokedBefore"],
        "2020-01-01T00:00:01.000000Z"
    );
    assert_eq!(code(&old).await, "UNAUTHENTICATED");
    let future = SystemClock.now().plus_micros(5_000_000).to_string();
    let said = door
        .ask(&service, REVOKE, &json!({"u": "alice", "at": future}))
        .await;
    assert_eq!(said.code(), "BAD_USER_INPUT");
    // Without a user: everyone's, the caller's included.
    data(&door, &service, REVOKE, json!({})).await;
    for badge in [&service, &issued(&door, "bob", -5)] {
        assert_eq!(code(badge).await, "UNAUTHENTICATED");
    }
    let later = door.signed(&json!({"sub": "bob", "iat": now + 60, "exp": now + 3_600}));
    assert_eq!(code(&later).await, "");
}

async fn open(store: &Arc<dyn StoreAdmin>, clock: &Arc<ManualClock>) -> Chat {
    let clock: Arc<dyn Clock> = clock.clone();
    Chat::open(store.clone(), Bus::default(), clock, Bounds::default())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_suspension_without_an_end_holds_after_forty_days_and_a_restart() {
    let start = SystemClock.now();
    let clock = Arc::new(ManualClock::at(start));
    let ground = Ground::new(&SystemClock).await;
    let service = Viewer::service(name("backend"));
    let check = |chat: &Chat, user: &str, issued_at: Timestamp| {
        chat.restrictions.check(&name(user).into(), Some(issued_at))
    };
    let store = ground.open(clock.clone()).await;
    let chat = open(&store, &clock).await;
    let restrictions = &chat.restrictions;
    restrictions
        .suspend(&service, &name("alice"), None, None)
        .await
        .unwrap();
    let until = start.plus_micros(DAY_MICROS);
    restrictions
        .suspend(&service, &name("bob"), Some(until), None)
        .await
        .unwrap();
    let revoked = restrictions
        .revoke_tokens(&service, Some(&name("carol")), None)
        .await
        .unwrap();
    assert_eq!(check(&chat, "bob", start), Err(Refusal::Suspended));
    chat.finish().await;
    drop(chat);
    store.close().await.unwrap();
    drop(store);
    clock.set(start.plus_micros(40 * DAY_MICROS));
    let store = ground.open(clock.clone()).await;
    let chat = open(&store, &clock).await;
    assert_eq!(check(&chat, "alice", clock.now()), Err(Refusal::Suspended));
    assert_eq!(
        check(&chat, "bob", start),
        Ok(()),
        "a suspension ends by time"
    );
    assert_eq!(
        check(&chat, "carol", start.plus_micros(-1)),
        Err(Refusal::Revoked)
    );
    assert_eq!(check(&chat, "carol", revoked), Ok(()));
    assert_eq!(check(&chat, "dave", start), Ok(()));
}

#[tokio::test]
async fn restrictions_survive_an_export_and_an_import() {
    let clock = Arc::new(ManualClock::at(SystemClock.now()));
    let service = Viewer::service(name("backend"));
    let (from, to) = (
        Ground::new(&SystemClock).await,
        Ground::new(&SystemClock).await,
    );
    let store = from.open(clock.clone()).await;
    let chat = open(&store, &clock).await;
    let reason = Some("spam".to_owned());
    chat.restrictions
        .suspend(&service, &name("alice"), None, reason)
        .await
        .unwrap();
    let revoke = async |user: Option<&UserId>, at: i64| {
        let moment = Timestamp::from_micros(at * 1_000_000);
        let restrictions = &chat.restrictions;
        restrictions
            .revoke_tokens(&service, user, Some(moment))
            .await
            .unwrap()
    };
    revoke(None, 1_000_000).await;
    revoke(Some(&name("bob")), 2_000_000).await;
    let export = Export {
        store: store.clone(),
        clock: clock.clone(),
        stop: CancellationToken::new(),
        user: None,
    };
    let (mut text, mut journal) = (Vec::new(), Vec::new());
    export
        .run(&mut text, &mut journal, Written::default(), &mut |_| {})
        .await
        .unwrap();
    let target = to.open(clock.clone()).await;
    let import = Import {
        store: Arc::clone(&target),
        // The suspension began by the time of the cluster, which goes on.
        clock: Arc::new(SystemClock),
        dir: to.folder().to_owned(),
        is_lossy: false,
        stop: CancellationToken::new(),
    };
    let outcome = import
        .pipe(std::io::Cursor::new(text), &mut |_| {})
        .await
        .unwrap();
    assert_eq!(outcome.counts.broken_lines, 0);
    let sorted = async |store: &Arc<dyn StoreAdmin>| {
        let mut all = store.restrictions().await.unwrap();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    };
    let found = sorted(&target).await;
    assert_eq!(found.len(), 3);
    assert_eq!(found, sorted(&store).await);
    let chat = open(&target, &clock).await;
    let alice = chat
        .restrictions
        .check(&name("alice").into(), Some(clock.now()));
    assert_eq!(alice, Err(Refusal::Suspended));
}
