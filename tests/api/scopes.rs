//! Scopes of services: the matrix of scopes and root fields, through the real HTTP door.

use std::collections::BTreeSet;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{ServiceRight, ServiceRights};

use self::Opens::{Everyone, Nobody, To};
use crate::support::client::soon;
use crate::support::door::{Badge, Door};
use crate::support::world::{World, text};

const SEND: &str = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"hello\"}) { messageEdge { cursor } } }";

/// Root fields, one operation a line: its callers (a scope, everyone or nobody), the part of the data that an opened
/// operation has, and its document. `$c` is a group of others, `$m` a message in it with a reaction, `$d` another message,
/// `$p` a participant, `$e` the inbox entry of a participant, `$b` a ban, `$g` another group, `$t` a message there, `$r` a report, `$j` a
/// job, `$u` a suspended user, `$k` the app key of a group, `$l` a live message, `$me` the caller.
const MATRIX: &str = include_str!("scopes.txt");

/// Callers of an operation on what others have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opens {
    To(ServiceRight),
    Everyone,
    Nobody,
}

/// Line of the matrix.
struct Operation {
    field: &'static str,
    opens: Opens,
    part: &'static str,
    document: &'static str,
}

impl Operation {
    fn all() -> Vec<Self> {
        let parse = |line: &'static str| {
            let mut parts = line.splitn(4, "  ");
            let mut next = || parts.next().unwrap();
            let (field, callers, part, document) = (next(), next(), next(), next());
            let right = |right: &ServiceRight| right.scope() == callers;
            let opens = match (callers, ServiceRight::ALL.iter().copied().find(right)) {
                ("everyone", _) => Everyone,
                ("nobody", _) => Nobody,
                (_, right) => To(right.unwrap()),
            };
            Self {
                field,
                opens,
                part,
                document,
            }
        };
        MATRIX.lines().map(parse).collect()
    }

    /// Whether an answer has the part that an opened operation has.
    fn is_opened_by(&self, answer: &Value) -> bool {
        let found = answer["data"].pointer(self.part);
        found.is_some_and(|value| !value.is_null())
    }
}

/// The root fields that introspection shows to a caller, with their descriptions.
async fn root_fields(door: &Door, badge: &Badge) -> BTreeSet<(String, String)> {
    let document =
        "{ __schema { queryType { ...T } mutationType { ...T } subscriptionType { ...T } } }
        fragment T on __Type { name fields { name description } }";
    let schema = door.ask(badge, document, &json!({})).await.json();
    let types = schema["data"]["__schema"].as_object().unwrap().values();
    let of_type = |ty: &Value| {
        let field = |field: &Value| {
            let name = format!("{}.{}", text(&ty["name"]), text(&field["name"]));
            (name, text(&field["description"]))
        };
        let fields = ty["fields"].as_array().unwrap();
        fields.iter().map(field).collect::<Vec<_>>()
    };
    types.flat_map(of_type).collect()
}

/// The answer to a document, of a subscription the first one, with those of the variables that it declares.
async fn answer(door: &Door, badge: &Badge, document: &str, variables: &Value) -> Value {
    let variables = variables.as_object().unwrap().clone().into_iter();
    let declared: Value = variables
        .filter(|(name, _)| document.contains(&format!("${name}:")))
        .collect();
    if document.starts_with("subscription") {
        let mut payloads = door.subscribe(badge, document, &declared);
        return soon(payloads.next()).await.unwrap();
    }
    door.ask(badge, document, &declared).await.json()
}

/// People with one of everything that a scope may open.
struct Scene {
    world: World,
    door: Door,
    objects: Value,
}

impl Scene {
    async fn open() -> Self {
        let world = World::open().await;
        let since = SystemClock.now();
        world.store.set_outbox(Some(since)).await.unwrap();
        let door = Door::of(&world.chat);
        let (alice, bob) = (world.user("alice"), world.user("bob"));
        let c = alice.group("Lunch", &["bob", "carol"]).await;
        let g = alice.group("Dinner", &["bob"]).await;
        let (m, d) = (
            alice.send(&c, "Soup?").await.id,
            alice.send(&c, "No").await.id,
        );
        let by_alice = async |document: &str| alice.data(document, json!({"c": c})).await;
        let found = by_alice("query($c: ID!) { conversation(id: $c) { viewerParticipant { id } inboxEntry { id } } }").await;
        let own = &found["conversation"];
        let (p, e) = (&own["viewerParticipant"]["id"], &own["inboxEntry"]["id"]);
        let ban = by_alice("mutation($c: ID!) { banParticipant(input: {conversationId: $c, username: \"dave\"}) { banEdge { node { id } } } }").await;
        let b = &ban["banParticipant"]["banEdge"]["node"]["id"];
        let react = "mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } } }";
        bob.data(react, json!({"m": m})).await;
        let report = "mutation($m: ID!) { reportMessage(input: {messageId: $m, reason: SPAM}) { reportId } }";
        let reported = bob.data(report, json!({"m": m})).await;
        let r = &reported["reportMessage"]["reportId"];
        let write = "mutation($c: ID!) { writeLiveMessage(input: {conversationId: $c, key: \"k\", writer: \"w\", position: 0, text: \"Soup\"}) { liveMessage { id } } }";
        let written = by_alice(write).await;
        let l = &written["writeLiveMessage"]["liveMessage"]["id"];
        let all = door.service();
        let k = format!("order:{}", uuid::Uuid::new_v4());
        let keyed = "mutation($k: String) { createGroupConversation(input: {name: \"Order\", usernames: [], appKey: $k}) { __typename } }";
        let acting = door.service().acting_as("alice");
        let made = door.ask(&acting, keyed, &json!({"k": k})).await;
        assert_eq!(made.code(), "", "{}", made.text);
        let by_service = async |document: &str| {
            let said = door.ask(&all, document, &json!({})).await;
            said.json()["data"].clone()
        };
        let erased =
            by_service("mutation { eraseUser(input: {username: \"gone\"}) { job { id } } }").await;
        let j = &erased["eraseUser"]["job"]["id"];
        let suspended =
            by_service("mutation { suspendUser(input: {username: \"mallory\"}) { user { id } } }")
                .await;
        let u = &suspended["suspendUser"]["user"]["id"];
        let objects = json!({"c": c, "g": g, "m": m, "d": d, "p": p, "e": e, "b": b, "r": r, "j": j, "u": u, "k": k, "l": l});
        for (name, id) in objects.as_object().unwrap() {
            assert!(id.is_string(), "{name}: {id}");
        }
        Self {
            world,
            door,
            objects,
        }
    }

    /// The objects for one caller: its own name, and a message that a truncation takes away.
    async fn objects_for(&self, name: &str) -> Value {
        let alice = self.world.user("alice");
        let group = text(&self.objects["g"]);
        let mut objects = self.objects.clone();
        objects["t"] = alice.send(&group, "Fish?").await.id.into();
        objects["me"] = name.into();
        objects
    }
}

#[tokio::test]
async fn each_scope_opens_its_root_fields_and_no_others() {
    let scene = Scene::open().await;
    let door = &scene.door;
    let fields = root_fields(door, &door.service()).await;
    let of_users = root_fields(door, &door.user("alice")).await;
    let of_services: BTreeSet<_> = fields.difference(&of_users).cloned().collect();
    let names: BTreeSet<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
    let operations = Operation::all();
    let covered: BTreeSet<_> = operations.iter().map(|one| one.field).collect();
    assert_eq!(covered, names, "the matrix has a line for each root field");
    for (field, description) in &of_services {
        for operation in operations.iter().filter(|one| one.field == field) {
            let To(right) = operation.opens else {
                panic!("{field} is for services: {:?}", operation.opens)
            };
            let words = format!("For services with the scope `{}`", right.scope());
            assert!(description.starts_with(&words), "{field}: {description}");
        }
    }
    let is_of_services = |field: &str| of_services.iter().any(|(name, _)| name == field);
    let scopes = ServiceRight::ALL.iter().map(|right| right.scope());
    for scope in scopes.chain([ServiceRights::ALL_SCOPE, "openid wideroom:admin"]) {
        let rights = ServiceRights::of_scopes(scope);
        let name = format!("worker with {scope}");
        let badge = door.scoped(&name, scope);
        let objects = scene.objects_for(&name).await;
        for operation in &operations {
            let (field, document) = (operation.field, operation.document);
            let said = answer(door, &badge, document, &objects).await;
            let is_open = operation.is_opened_by(&said);
            let expected = match operation.opens {
                To(right) => rights.has(right),
                Everyone => true,
                Nobody => false,
            };
            assert_eq!(is_open, expected, "{document} with {scope}: {said}");
            let error = &said["errors"][0];
            if is_open || field.starts_with("Query") && error.is_null() {
                continue;
            }
            let code = text(&error["extensions"]["code"]);
            assert!(
                ["FORBIDDEN", "NOT_FOUND"].contains(&code.as_str()),
                "{said}"
            );
            // A service that reads the conversation is told why it may not change it.
            if let To(right) = operation.opens
                && (is_of_services(field) || rights.has(ServiceRight::Read))
            {
                let names_it = text(&error["message"]).contains(right.scope());
                assert!(
                    code == "FORBIDDEN" && names_it,
                    "{field} with {scope}: {said}"
                );
            }
        }
        let acting = badge.acting_as("alice");
        let said = door
            .ask(&acting, "{ viewer { username } }", &json!({}))
            .await;
        if rights.has(ServiceRight::Act) {
            assert_eq!(said.json()["data"]["viewer"]["username"], "alice");
        } else {
            assert_eq!((said.status, said.code().as_str()), (403, "FORBIDDEN"));
            assert!(said.text.contains("`wideroom:act`"), "{}", said.text);
        }
    }
}

/// The user whom a service acts as has no right of the service, whatever its scopes.
#[tokio::test]
async fn no_scope_of_services_goes_over_to_the_user_that_a_service_acts_as() {
    let scene = Scene::open().await;
    let objects = scene.objects_for("stranger").await;
    for scope in [ServiceRight::Act.scope(), ServiceRights::ALL_SCOPE] {
        let badge = scene.door.scoped("worker", scope).acting_as("stranger");
        for operation in Operation::all() {
            if operation.opens == Everyone {
                continue;
            }
            let document = operation.document;
            let said = answer(&scene.door, &badge, document, &objects).await;
            assert!(
                !operation.is_opened_by(&said),
                "{document} with {scope}: {said}"
            );
        }
    }
}

/// A reader of the outbox sees what a webhook sees: what its document selects, of the conversations of its events.
#[tokio::test]
async fn the_scope_of_the_outbox_covers_what_its_document_selects() {
    const DOCUMENT: &str = "subscription { outbox { event {
        ... on MessageAddedEvent { messageEdge { node { body sender { suspension { since } }
            conversation { bans { edges { cursor } } participants { edges { node { role } } } } } } }
        ... on ReportedEvent { report { bodyThen reporter { username } } } } } }";
    let scene = Scene::open().await;
    let badge = scene.door.scoped("push", "wideroom:outbox");
    let mut events = scene.door.subscribe(&badge, DOCUMENT, &json!({}));
    let mut next = async || {
        let payload: Value = soon(events.next()).await.unwrap();
        assert!(payload.get("errors").is_none(), "{payload}");
        payload["data"]["outbox"]["event"].clone()
    };
    assert_eq!(next().await, Value::Null);
    let (group, alice) = (text(&scene.objects["c"]), scene.world.user("alice"));
    let sent = alice.send(&group, "Salad?").await.id;
    // On a cluster the stream may begin with events of the seconds before, and repeat some.
    let mut until = async |has: fn(&Value) -> bool| loop {
        let event = next().await;
        if has(&event) {
            break event;
        }
    };
    let added = until(|event| event["messageEdge"]["node"]["body"] == "Salad?").await;
    let message = &added["messageEdge"]["node"];
    let conversation = &message["conversation"];
    assert!(
        conversation["bans"]["edges"][0]["cursor"].is_string(),
        "{added}"
    );
    assert_eq!(
        conversation["participants"]["edges"][0]["node"]["role"],
        "OWNER"
    );
    let report =
        "mutation($m: ID!) { reportMessage(input: {messageId: $m, reason: SPAM}) { reportId } }";
    let reported = scene
        .world
        .user("bob")
        .data(report, json!({"m": sent}))
        .await;
    let event = until(|event| event["report"].is_object()).await;
    assert_eq!(event["report"]["bodyThen"], "Salad?");
    // The same objects outside of the stream.
    for id in [sent, text(&reported["reportMessage"]["reportId"])] {
        let document = "query($i: ID!) { node(id: $i) { id } }";
        let said = scene.door.ask(&badge, document, &json!({"i": id})).await;
        assert_eq!(said.json()["data"]["node"], Value::Null, "{}", said.text);
    }
}

/// A service without `wideroom:moderate` takes part as a user does.
#[tokio::test]
async fn silences_and_slow_mode_hold_for_services_that_do_not_moderate() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let alice = world.user("alice");
    let group = alice.group("Lunch", &["moderator", "reader"]).await;
    let variables = json!({"c": group});
    let moderator = door.scoped("moderator", ServiceRight::Moderate.scope());
    let reader = door.scoped(
        "reader",
        "wideroom:read wideroom:outbox wideroom:users wideroom:erase",
    );
    let by = async |badge: &Badge| door.ask(badge, SEND, &variables).await.code();
    for name in ["moderator", "reader"] {
        let silence = "mutation($c: ID!, $u: String!) { silenceParticipant(input: {conversationId: $c, username: $u}) { __typename } }";
        alice.data(silence, json!({"c": group, "u": name})).await;
    }
    assert_eq!(by(&moderator).await, "");
    assert_eq!(by(&reader).await, "FORBIDDEN");
    for name in ["moderator", "reader"] {
        let end = "mutation($c: ID!, $u: String!) { unsilenceParticipant(input: {conversationId: $c, username: $u}) { __typename } }";
        alice.data(end, json!({"c": group, "u": name})).await;
    }
    let slow = "mutation($c: ID!) { updateConversation(input: {conversationId: $c, slowModeSeconds: 600}) { __typename } }";
    alice.data(slow, variables.clone()).await;
    for _ in 0..2 {
        assert_eq!(by(&moderator).await, "");
    }
    assert_eq!(by(&reader).await, "");
    assert_eq!(by(&reader).await, "RATE_LIMITED");
}
