//! Services: `Wideroom-As` through the real HTTP door, over the whole chat.

use serde_json::{Value, json};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::server::{AdmissionBounds, ServerBounds};

use crate::support::cases::{assert_hold, cases_of};
use crate::support::door::{Door, SERVICE};
use crate::support::world::{Actor, BY_SERVICE, World};

const NAME: &str = "{ viewer { username } }";

/// Cases of users who act themselves: consent, rates that a service pays itself, presence, and bytes that
/// several streams of one process share; the index of searches, which knows no caller; a replay over 100,000
/// messages; and a count that the second look completes, as each query is asked twice here.
const ELSEWHERE: &[&str] = &[
    "api::agent::an_agent_is_no_stranger_and_takes_part_in_any_number_of_conversations",
    "api::agent::every_case_holds_for_an_agent",
    "api::agent::an_agent_has_no_presence_and_its_streams_bring_nobody_online",
    "api::cluster::",
    "api::services::",
    "api::floor::a_replay_reads_none_of_the_expired_messages_however_many_there_are",
    "api::introduction::",
    "api::large_events::a_payload_over_64_kib_is_kept_in_no_notice_and_no_memo",
    "api::live_stream::equal_subscriptions_to_live_messages_get_the_same_bytes",
    "api::pace::documents_of_clients_without_a_token_evict_nobody_elses",
    "api::pace::equal_subscriptions_pay_once_for_what_they_share",
    "api::pace::one_who_cannot_pay_takes_what_others_execute_and_keeps_nobody_waiting",
    "api::presence::",
    "api::block::a_blocker_is_offline_for_the_blocked_user_who_has_no_presence_for_the_blocker",
    "api::block::a_subscriber_who_blocks_nobody_of_a_payload_shares_it",
    "api::rates::bytes_that_a_user_writes_have_a_rate",
    "api::rates::new_direct_conversations_have_a_rate_and_known_ones_have_none",
    "api::rates::sends_of_a_user_have_a_rate_over_all_conversations",
    "api::report::a_user_has_a_share_of_the_reports_of_a_day",
    "api::report::reports_of_a_user_have_a_rate",
    "api::search::a_user_owes_the_work_of_a_search",
    "api::search_index::",
    "api::search_words::",
    "api::shared::a_removed_user_gets_no_shared_payload",
    "api::shared::a_sender_alone_is_shown_the_key_of_the_send_and_all_others_share",
    "api::shared::equal_subscriptions_get_the_same_bytes_wherever_they_began",
    "api::shared::viewer_independent_fields_are_equal_for_every_viewer",
    "api::unread::a_count_behind_a_thousand_deleted_messages_is_exact_at_the_second_look",
];
/// Cases at once.
const AT_ONCE: usize = 2;

/// This program once more: a service acts for every user of every case, over HTTP and its streams, and each
/// query gives the same bytes as with the user's own token.
#[tokio::test]
async fn every_case_holds_in_the_name_of_a_user() {
    let cases = cases_of("api::", ELSEWHERE);
    assert_hold(&cases, (BY_SERVICE, "1"), AT_ONCE).await;
}

#[tokio::test]
async fn only_a_service_acts_as_a_user_whoever_is_named() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    world.user("alice").direct("bob").await;
    let acting = door.service().acting_as("alice");
    let said = door.ask(&acting, NAME, &json!({})).await;
    assert_eq!(
        said.json(),
        json!({"data": {"viewer": {"username": "alice"}}})
    );
    let said = door.ask(&door.service(), NAME, &json!({})).await;
    assert_eq!(
        said.json(),
        json!({"data": {"viewer": {"username": SERVICE}}})
    );
    // A user exists by being named, for a service too.
    let unknown = door.service().acting_as("nobody yet");
    let said = door.ask(&unknown, NAME, &json!({})).await;
    assert_eq!(said.json()["data"]["viewer"]["username"], "nobody yet");
    let mut refusals = Vec::new();
    for named in [
        "alice",
        "mallory",
        "nobody yet",
        "",
        "a\tb",
        &"x".repeat(129),
    ] {
        let said = door
            .ask(&door.user("mallory").acting_as(named), NAME, &json!({}))
            .await;
        assert_eq!((said.status, said.code().as_str()), (403, "FORBIDDEN"));
        refusals.push(said);
    }
    assert!(
        refusals.iter().all(|said| *said == refusals[0]),
        "a stranger learns nothing about the name: {refusals:?}"
    );
    let twice = door.service().acting_as("alice").acting_as("alice");
    let said = door.ask(&twice, NAME, &json!({})).await;
    assert_eq!((said.status, said.code().as_str()), (403, "FORBIDDEN"));
    for bad in [&b""[..], b"a\tb", &[b'x'; 129], b"\xff\xfe"] {
        let said = door
            .ask(&door.service().with_header(bad), NAME, &json!({}))
            .await;
        assert_eq!((said.status, said.code().as_str()), (400, "BAD_USER_INPUT"));
        let extensions = &said.json()["errors"][0]["extensions"];
        assert_eq!(extensions["inputPath"], json!(["Wideroom-As"]), "{bad:?}");
        assert!(said.json().get("data").is_none());
    }
    let umlaut = door.service().acting_as("Ärzte ohne Grenzen 🚑");
    let said = door.ask(&umlaut, NAME, &json!({})).await;
    assert_eq!(
        said.json()["data"]["viewer"]["username"],
        "Ärzte ohne Grenzen 🚑"
    );
}

/// All of its participants may have been deleted where it comes from.
#[tokio::test]
async fn a_service_finds_a_conversation_that_was_imported_without_participants() {
    let line = br#"{"type":"conversation","id":"550e8400-e29b-41d4-a716-446655440009","kind":"GROUP","name":"Left","createdAt":"2026-03-14T14:30:00Z","participants":[]}
"#;
    let world = World::with_import(line).await;
    let door = Door::of(&world.chat);
    let ask = async |document, variables: Value| {
        let said = door.ask(&door.service(), document, &variables).await;
        let answer = said.json();
        assert!(answer.get("errors").is_none(), "{answer}");
        answer["data"].clone()
    };
    let listed = ask(
        "{ conversations { edges { node { id name } } } }",
        json!({}),
    )
    .await;
    let conversation = &listed["conversations"]["edges"][0]["node"];
    assert_eq!(conversation["name"], "Left");
    let id = &conversation["id"];
    let document =
        "query($c: ID!) { conversation(id: $c) { name participants { edges { cursor } } } }";
    let read = ask(document, json!({ "c": id })).await;
    let empty = json!({"name": "Left", "participants": {"edges": []}});
    assert_eq!(read["conversation"], empty);
    let document = "mutation($c: ID!) { addParticipants(input: {conversationId: $c, usernames: [\"alice\"]}) { conversation { name } } }";
    ask(document, json!({ "c": id })).await;
    let inbox = "{ inbox { edges { node { conversation { id } } } } }";
    let seen = world.user("alice").data(inbox, json!({})).await;
    assert_eq!(seen["inbox"]["edges"][0]["node"]["conversation"]["id"], *id);
}

/// HTTP strips blanks around the value of a header, so that a raw one cannot name a user with blanks at an end.
#[tokio::test]
async fn a_name_that_looks_like_another_is_new_to_nobody_and_services_address_it() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let named = |header: &str| door.service().acting_as(header);
    for (header, name) in [
        ("bob%20", "bob "),
        ("%C3%84rzte%20ohne%20Grenzen", "Ärzte ohne Grenzen"),
        ("bob%E2%80%AE", "bob\u{202e}"),
        ("100%25", "100%"),
        ("50% of bob", "50% of bob"),
    ] {
        let said = door.ask(&named(header), NAME, &json!({})).await;
        assert_eq!(said.json()["data"]["viewer"]["username"], name, "{header}");
    }
    let bad = door.ask(&named("bob%FF"), NAME, &json!({})).await;
    assert_eq!(bad.code(), "BAD_USER_INPUT");

    let now = SystemClock.now().micros() / 1_000_000;
    let inputs = [
        "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id } } }",
        "mutation($u: String!) { createGroupConversation(input: {name: \"g\", usernames: [$u]}) { conversation { id } } }",
        "mutation($u: String!) { upsertUsers(input: {users: [{username: $u, displayName: \"Bob\"}]}) { users { username } } }",
    ];
    let of_services = [
        "mutation($u: String!) { suspendUser(input: {username: $u}) { user { username } } }",
        "mutation($u: String!) { revokeTokens(input: {username: $u}) { revokedBefore } }",
    ];
    for name in ["bob ", "\u{3000}", "\u{200b}", "\u{202e}bob"] {
        let claims = json!({"sub": name, "iat": now, "exp": now + 3_600});
        let said = door.ask(&door.signed(&claims), NAME, &json!({})).await;
        assert_eq!(said.code(), "UNAUTHENTICATED", "{name:?}");
        for input in inputs {
            let caller = match input.contains("upsertUsers") {
                true => door.service(),
                false => named("alice"),
            };
            let said = door.ask(&caller, input, &json!({"u": name})).await;
            assert_eq!(said.code(), "BAD_USER_INPUT", "{name:?} {input}");
        }
        for document in of_services {
            let said = door
                .ask(&door.service(), document, &json!({"u": name}))
                .await;
            assert_eq!(said.code(), "", "{said:?}");
        }
    }
}

async fn sees(viewer: &Actor, conversation: &str, name: &str) -> bool {
    let document = "query($c: ID!) { conversation(id: $c) { participants { edges { node { user { username presence { isOnline } } } } } } }";
    let data = viewer.data(document, json!({"c": conversation})).await;
    let edges = data["conversation"]["participants"]["edges"]
        .as_array()
        .unwrap()
        .clone();
    let user = edges
        .into_iter()
        .map(|edge| edge["node"]["user"].clone())
        .find(|user| user["username"] == name)
        .unwrap();
    user["presence"] != Value::Null
}

/// Alice in a direct conversation that bob started: what he sees of her presence.
struct Meeting {
    world: World,
    door: Door,
    conversation: String,
    bob: Actor,
    alice: Actor,
    /// A message of bob's.
    message: String,
}

impl Meeting {
    async fn new() -> Self {
        let world = World::open().await;
        let (bob, alice) = (world.user("bob"), world.user("alice"));
        let conversation = bob.direct("alice").await;
        let message = bob.send(&conversation, "Hello").await.id;
        let door = Door::of(&world.chat);
        assert!(!sees(&bob, &conversation, "alice").await);
        Self {
            world,
            door,
            conversation,
            bob,
            alice,
            message,
        }
    }

    async fn is_seen(&self) -> bool {
        sees(&self.bob, &self.conversation, "alice").await
    }

    async fn ask_as_alice(&self, document: &str, variables: Value) -> Value {
        let acting = self.door.service().acting_as("alice");
        let said = self.door.ask(&acting, document, &variables).await;
        assert!(said.json().get("errors").is_none(), "{said:?}");
        said.json()
    }

    async fn send_as_alice(&self) {
        let document = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"by a bot\"}) { messageEdge { node { sender { username } } } } }";
        let said = self
            .ask_as_alice(document, json!({"c": self.conversation}))
            .await;
        assert_eq!(
            said["data"]["sendMessage"]["messageEdge"]["node"]["sender"]["username"],
            "alice"
        );
    }

    async fn read_as_alice(&self) {
        let document = "mutation($c: ID!) { markRead(input: {conversationId: $c}) { inboxEntry { unreadCount } } }";
        let said = self
            .ask_as_alice(document, json!({"c": self.conversation}))
            .await;
        assert_eq!(said["data"]["markRead"]["inboxEntry"]["unreadCount"], 0);
    }
}

#[tokio::test]
async fn no_act_of_a_service_is_a_consent() {
    let meeting = Meeting::new().await;
    meeting.read_as_alice().await;
    assert!(!meeting.is_seen().await, "a mark of the service");
    meeting.send_as_alice().await;
    assert!(!meeting.is_seen().await, "a send of the service");
    assert_eq!(meeting.alice.unread(&meeting.conversation).await, 0);
    let status = "query($m: ID!) { node(id: $m) { ... on Message { status } } }";
    let data = meeting
        .bob
        .data(status, json!({"m": meeting.message}))
        .await;
    assert_eq!(data["node"]["status"], "READ", "receipts show it");
    meeting.alice.send(&meeting.conversation, "It is me").await;
    assert!(meeting.is_seen().await, "her own send");
    meeting.send_as_alice().await;
    meeting.read_as_alice().await;
    assert!(meeting.is_seen().await, "a consent stays");
}

#[tokio::test]
async fn a_mark_of_ones_own_is_a_consent_although_a_service_has_marked_before() {
    let meeting = Meeting::new().await;
    meeting.read_as_alice().await;
    assert!(!meeting.is_seen().await);
    meeting.alice.mark_read(&meeting.conversation, None).await;
    assert!(meeting.is_seen().await);
    meeting.bob.send(&meeting.conversation, "Hello again").await;
    meeting.read_as_alice().await;
    assert!(meeting.is_seen().await, "a consent stays");
}

#[tokio::test]
async fn a_stream_in_the_name_of_a_user_makes_nobody_present() {
    let meeting = Meeting::new().await;
    meeting.alice.send(&meeting.conversation, "Hello").await;
    let document = "subscription { inboxUpdated { cursor } }";
    let acting = meeting.door.service().acting_as("alice");
    let mut stream = meeting.door.subscribe(&acting, document, &json!({}));
    let first = futures_util::StreamExt::next(&mut stream).await.unwrap();
    assert!(first["data"]["inboxUpdated"]["cursor"].is_string());
    let presence = "query { viewer { presence { isOnline lastSeenAt } } }";
    let data = meeting.alice.data(presence, json!({})).await;
    assert_eq!(
        data["viewer"]["presence"],
        json!({"isOnline": false, "lastSeenAt": null})
    );
    let mut own = meeting
        .door
        .subscribe(&meeting.door.user("alice"), document, &json!({}));
    futures_util::StreamExt::next(&mut own).await.unwrap();
    let data = meeting.alice.data(presence, json!({})).await;
    assert_eq!(data["viewer"]["presence"]["isOnline"], true);
    drop((stream, own));
    drop(meeting.world);
}

#[tokio::test]
async fn a_service_pays_for_the_users_that_it_acts_for() {
    let world = World::with_rates(wideroom::chat::RateBounds {
        sends_per_second: 1,
        sends_burst: 1,
        strangers_per_hour: 1,
        ..Default::default()
    })
    .await;
    let rates = AdmissionBounds {
        queries_per_second: 1,
        queries_burst: 1_000,
        mutations_per_second: 1,
        mutations_burst: 2,
        service_per_second: 1,
        service_burst: 7,
        ..AdmissionBounds::default()
    };
    let door = Door::with(
        &world.chat,
        ServerBounds {
            rates,
            ..ServerBounds::default()
        },
    );
    let start = "mutation($u: String!) { startDirectConversation(input: {username: $u}) { conversation { id } } }";
    // The bucket refills by one token a second, which a slow store gives it time for.
    let mut accepted = 0;
    let refused = loop {
        let acting = door.service().acting_as(&format!("user {accepted}"));
        let said = door.ask(&acting, start, &json!({"u": "somebody"})).await;
        if !said.code().is_empty() || accepted == 1_000 {
            break said;
        }
        accepted += 1;
    };
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (429, "RATE_LIMITED")
    );
    assert!(accepted >= 7, "each of {accepted} users began one");
    let other = door.service_named("another backend").acting_as("alice");
    for name in ["bob", "carol", "dave"] {
        let said = door.ask(&other, start, &json!({"u": name})).await;
        assert_eq!(said.code(), "", "no rate of alice holds: {said:?}");
    }
    let said = door
        .ask(&door.user("alice"), start, &json!({"u": "bob"}))
        .await;
    assert_eq!(said.code(), "", "alice has paid for nothing: {said:?}");
}
