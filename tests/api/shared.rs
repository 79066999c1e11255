//! Shared execution: equal subscriptions execute once for all subscribers, unless the result depends on the viewer.

use std::collections::{BTreeSet, HashMap, VecDeque};

use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{BaseType, ServiceDocument, Type, TypeKind, TypeSystemDefinition};
use serde_json::{Value, json};
use wideroom::graphql::Executor as _;

use crate::support::world::{Actor, World, text};

/// Fields that depend on the viewer or, like `eventsCursor`, on the time. Every new field belongs here or into the viewer-independent list.
const VIEWERS: [&str; 5] =
    ["Conversation.directPeer", "Conversation.eventsCursor", "Conversation.inboxEntry", "Reaction.viewerHasReacted", "User.presence"];

/// The types of the schema: fields with the names of their types, or the members of a union.
struct Schema(HashMap<String, TypeKind>);

impl Schema {
    fn read() -> Self {
        let ServiceDocument { definitions } = parse_schema(wideroom::graphql::sdl()).unwrap();
        let kinds = definitions.into_iter().filter_map(|definition| match definition {
            TypeSystemDefinition::Type(definition) => Some((definition.node.name.node.to_string(), definition.node.kind)),
            TypeSystemDefinition::Schema(_) | TypeSystemDefinition::Directive(_) => None,
        });
        Self(kinds.collect())
    }

    fn fields(&self, name: &str) -> Vec<(String, String)> {
        let TypeKind::Object(object) = &self.0[name] else { return Vec::new() };
        object.fields.iter().map(|field| (field.node.name.node.to_string(), base(&field.node.ty.node))).collect()
    }

    fn members(&self, name: &str) -> Vec<String> {
        let TypeKind::Union(union) = &self.0[name] else { return Vec::new() };
        union.members.iter().map(|member| member.node.to_string()).collect()
    }

    /// Whether it has fields of its own to ask for.
    fn is_composite(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(TypeKind::Object(_) | TypeKind::Union(_) | TypeKind::Interface(_)))
    }
}

fn base(of: &Type) -> String {
    match &of.base {
        BaseType::Named(name) => name.to_string(),
        BaseType::List(inner) => base(inner),
    }
}

/// The documents that ask for one field each, of every type behind this root field that is reached by free fields alone.
fn documents(world: &World, root: &str, arguments: &str) -> Vec<(String, String)> {
    let schema = Schema::read();
    let payload = schema.fields("Subscription").into_iter().find(|(name, _)| name == root).unwrap().1;
    let head = format!(
        "subscription($c: ID!{}) {{ {root}(conversationId: $c{}) {{ ",
        if arguments.is_empty() { "" } else { ", $after: String" },
        arguments
    );
    let mut found = Vec::new();
    let mut seen = BTreeSet::from([payload.clone()]);
    let mut open = VecDeque::from([(payload, Vec::<String>::new())]);
    while let Some((kind, path)) = open.pop_front() {
        for member in schema.members(&kind) {
            if seen.insert(member.clone()) {
                let path = [path.clone(), vec![format!("... on {member}")]].concat();
                open.push_back((member, path));
            }
        }
        for (field, behind) in schema.fields(&kind) {
            let is_composite = schema.is_composite(&behind);
            let leaf = if is_composite { format!("{field} {{ __typename }}") } else { field.clone() };
            let inner = path.iter().rev().fold(leaf, |inner, part| format!("{part} {{ __typename {inner} }}"));
            let document = format!("{head}__typename {inner} }} }}");
            let is_free = world.api.prepare(&document, None).unwrap().is_free();
            if is_free && is_composite && seen.insert(behind.clone()) {
                open.push_back((behind, [path.clone(), vec![field.clone()]].concat()));
            }
            found.push((format!("{kind}.{field}"), document));
        }
    }
    found
}

/// A group in which everything happened that is told; and from where, and how many events that is.
async fn eventful(world: &World) -> (String, String, usize) {
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = alice.group("friends", &["bob", "carol"]).await;
    let first = alice.send(&c, "first").await;
    let cursor = alice.data("query($c: ID!) { conversation(id: $c) { eventsCursor } }", json!({"c": c})).await;
    let after = text(&cursor["conversation"]["eventsCursor"]);
    let rich = "mutation($c: ID!, $r: ID!) { sendMessage(input: {conversationId: $c, body: \"rich\", replyToId: $r, idempotencyKey: \"k\",
        metadata: {a: 1}, attachments: [{url: \"https://example.org/a.png\", mimeType: \"image/png\", name: \"a\", sizeBytes: 1, width: 2, height: 3}]}) {
        messageEdge { node { id } } } }";
    let sent = bob.data(rich, json!({"c": c, "r": first.id})).await;
    let message = text(&sent["sendMessage"]["messageEdge"]["node"]["id"]);
    let each = [
        (&bob, "addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } }"),
        (&bob, "editMessage(input: {messageId: $m, body: \"richer\"}) { message { id } }"),
        (&carol, "markDelivered(input: {conversationId: $c, messageId: $m}) { __typename }"),
        (&alice, "markRead(input: {conversationId: $c, messageId: $m}) { __typename }"),
        (&alice, "addParticipants(input: {conversationId: $c, usernames: [\"dora\"]}) { __typename }"),
        (&alice, "setParticipantRole(input: {conversationId: $c, username: \"bob\", role: ADMIN}) { __typename }"),
        (&alice, "removeParticipant(input: {conversationId: $c, username: \"dora\"}) { __typename }"),
        (&alice, "renameConversation(input: {conversationId: $c, name: \"more\"}) { __typename }"),
    ];
    for (actor, mutation) in each {
        let variables = [("$c: ID!", mutation.contains("$c")), ("$m: ID!", mutation.contains("$m"))];
        let declared: Vec<_> = variables.iter().filter(|(_, is_used)| *is_used).map(|(declared, _)| *declared).collect();
        actor.data(&format!("mutation({}) {{ {mutation} }}", declared.join(", ")), json!({"c": c, "m": message})).await;
    }
    let last = alice.send(&c, "last").await;
    alice.data("mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }", json!({"m": last.id})).await;
    let names = "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { event { __typename } } }";
    let mut stream = alice.subscribe(names, json!({"c": c, "after": after}));
    let (mut kinds, mut count) = (BTreeSet::new(), 0);
    loop {
        let told = stream.next().await;
        count += 1;
        let Some(kind) = told["conversationEvents"]["event"]["__typename"].as_str().map(str::to_owned) else { continue };
        let is_last = kind == "MessageDeletedEvent";
        kinds.insert(kind);
        if is_last {
            break;
        }
    }
    assert_eq!(kinds.len(), 9, "something of each kind: {kinds:?}");
    (c, after, count)
}

async fn told(actor: &Actor, document: &str, variables: &Value, count: usize) -> Vec<Value> {
    let mut stream = actor.subscribe(document, variables.clone());
    let mut told = Vec::with_capacity(count);
    for _ in 0..count {
        told.push(stream.answer().await.0);
    }
    told
}

#[tokio::test]
async fn viewer_independent_fields_are_equal_for_every_viewer() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let (c, after, count) = eventful(&world).await;
    let variables = json!({"c": c, "after": after});
    let (mut viewers, mut shown) = (BTreeSet::new(), 0);
    for (root, count) in [("conversationEvents", count), ("messageAdded", 3)] {
        for (field, document) in documents(&world, root, ", after: $after") {
            // Each alone, so that nothing is shared with anybody.
            let (one, other) = (told(&alice, &document, &variables, count).await, told(&bob, &document, &variables, count).await);
            if world.api.prepare(&document, None).unwrap().is_free() {
                assert_eq!(one, other, "{field}: {document}");
                shown += 1;
            } else {
                viewers.insert(field);
            }
        }
    }
    assert_eq!(viewers.iter().map(String::as_str).collect::<Vec<_>>(), VIEWERS, "each field is decided");
    assert!(shown > 80, "only {shown} fields");
    for (field, document) in documents(&world, "typingChanged", "") {
        let mut streams = [alice.subscribe(&document, json!({"c": c})), bob.subscribe(&document, json!({"c": c}))];
        assert!(streams.iter_mut().all(|stream| stream.is_quiet()));
        bob.data("mutation($c: ID!) { setTyping(input: {conversationId: $c, typing: true}) { __typename } }", json!({"c": c})).await;
        let [one, other] = streams.each_mut().map(async |stream| stream.next().await);
        let (one, other) = (one.await, other.await);
        bob.data("mutation($c: ID!) { setTyping(input: {conversationId: $c, typing: false}) { __typename } }", json!({"c": c})).await;
        if world.api.prepare(&document, None).unwrap().is_free() {
            assert_eq!(one, other, "{field}");
        }
    }
}

const MESSAGES: &str =
    "subscription($c: ID!, $after: String) { messageAdded(conversationId: $c, after: $after) { messageEdge { cursor node { body } } } }";

#[tokio::test]
async fn equal_subscriptions_get_the_same_bytes_wherever_they_began() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let first = alice.send(&c, "first").await;
    let mut live = alice.subscribe(MESSAGES, json!({"c": c}));
    assert!(live.is_quiet());
    let mut resumed = bob.subscribe(MESSAGES, json!({"c": c, "after": first.cursor}));
    assert!(resumed.is_quiet());
    let mut other =
        bob.subscribe("subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body } } } }", json!({"c": c}));
    assert!(other.is_quiet());
    alice.send(&c, "second").await;
    let (one, is_shared) = live.told().await;
    let (two, is_shared_too) = resumed.told().await;
    assert!(is_shared && is_shared_too);
    assert_eq!(one.data(), two.data());
    let (_, is_shared) = other.told().await;
    assert!(!is_shared, "nobody else asks that");
}

#[tokio::test]
async fn each_viewer_gets_their_own_values() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "hello").await;
    let document = "subscription($c: ID!) { conversationEvents(conversationId: $c) { event { ... on ReactionsChangedEvent {
        message { conversation { directPeer { username } } reactions { emoji viewerHasReacted } } } } } }";
    let mut streams = [alice.subscribe(document, json!({"c": c})), bob.subscribe(document, json!({"c": c}))];
    for stream in &mut streams {
        assert_eq!(stream.next().await, json!({"conversationEvents": {"event": null}}));
    }
    bob.data("mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } } }", json!({"m": sent.id})).await;
    for (stream, (peer, has_reacted)) in streams.iter_mut().zip([("bob", false), ("alice", true)]) {
        let told = stream.next().await["conversationEvents"]["event"]["message"].clone();
        let expected =
            json!({"conversation": {"directPeer": {"username": peer}}, "reactions": [{"emoji": "👍", "viewerHasReacted": has_reacted}]});
        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn a_removed_user_gets_no_shared_payload() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = alice.group("friends", &["bob", "carol"]).await;
    let mut streams = [&alice, &bob, &carol].map(|actor| actor.subscribe(MESSAGES, json!({"c": c})));
    assert!(streams.iter_mut().all(|stream| stream.is_quiet()));
    let remove = "mutation($c: ID!) { removeParticipant(input: {conversationId: $c, username: \"carol\"}) { __typename } }";
    alice.data(remove, json!({"c": c})).await;
    alice.send(&c, "now we are two").await;
    let [one, two, gone] = &mut streams;
    for stream in [one, two] {
        // The removal is a message too.
        stream.next().await;
        let (told, is_shared) = stream.told().await;
        assert!(is_shared);
        assert_eq!(told.data()["messageAdded"]["messageEdge"]["node"]["body"], "now we are two");
    }
    assert!(gone.has_ended().await);
}
