//! Shared execution: equal subscriptions execute once for all subscribers, unless the result depends on the viewer.

use std::collections::{BTreeSet, HashMap, VecDeque};

use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{
    BaseType, ServiceDocument, Type, TypeKind, TypeSystemDefinition,
};
use serde_json::{Value, json};
use wideroom::graphql::{OperationExecutor as _, is_viewer_independent};

use crate::support::world::{Actor, Stream, World, text};

/// Fields that depend on the viewer or, like `eventsCursor`, on the time. Every new field belongs here or into the viewer-independent list.
const VIEWERS: [&str; 13] = [
    "Conversation.bans",
    "Conversation.deliveredToAllUpTo",
    "Conversation.directPeer",
    "Conversation.eventsCursor",
    "Conversation.inboxEntry",
    "Conversation.liveMessages",
    "Conversation.pinnedMessages",
    "Conversation.readByAllUpTo",
    "Conversation.searchMessages",
    "Conversation.viewerParticipant",
    "Reaction.viewerHasReacted",
    "User.presence",
    "User.suspension",
];

/// The types of the schema: fields with the names of their types, or the members of a union.
struct Schema(HashMap<String, TypeKind>);

impl Schema {
    fn read() -> Self {
        let ServiceDocument { definitions } = parse_schema(wideroom::graphql::types_sdl()).unwrap();
        let kinds = definitions
            .into_iter()
            .filter_map(|definition| match definition {
                TypeSystemDefinition::Type(definition) => {
                    Some((definition.node.name.node.to_string(), definition.node.kind))
                }
                TypeSystemDefinition::Schema(_) | TypeSystemDefinition::Directive(_) => None,
            });
        Self(kinds.collect())
    }

    fn fields(&self, name: &str) -> Vec<(String, String)> {
        let TypeKind::Object(object) = &self.0[name] else {
            return Vec::new();
        };
        object
            .fields
            .iter()
            .map(|field| (field.node.name.node.to_string(), base(&field.node.ty.node)))
            .collect()
    }

    fn members(&self, name: &str) -> Vec<String> {
        let TypeKind::Union(union) = &self.0[name] else {
            return Vec::new();
        };
        union
            .members
            .iter()
            .map(|member| member.node.to_string())
            .collect()
    }

    /// Whether it has fields of its own to ask for.
    fn is_composite(&self, name: &str) -> bool {
        matches!(
            self.0.get(name),
            Some(TypeKind::Object(_) | TypeKind::Union(_) | TypeKind::Interface(_))
        )
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
    let payload = schema
        .fields("Subscription")
        .into_iter()
        .find(|(name, _)| name == root)
        .unwrap()
        .1;
    let head = format!(
        "subscription($c: ID!{}) {{ {root}(conversationId: $c{}) {{ ",
        if arguments.is_empty() {
            ""
        } else {
            ", $after: String"
        },
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
            let leaf = if is_composite {
                format!("{field} {{ __typename }}")
            } else {
                field.clone()
            };
            let inner = path.iter().rev().fold(leaf, |inner, part| {
                format!("{part} {{ __typename {inner} }}")
            });
            let document = format!("{head}__typename {inner} }} }}");
            let is_independent =
                is_viewer_independent(&world.api.prepare(&document, None).unwrap());
            if is_independent && is_composite && seen.insert(behind.clone()) {
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
    let after = alice.events_cursor(&c).await;
    let rich = "mutation($c: ID!, $r: ID!) { sendMessage(input: {conversationId: $c, body: \"rich\", replyToId: $r, idempotencyKey: \"k\",
        metadata: {a: 1}, attachments: [{url: \"https://example.org/a.png\", mimeType: \"image/png\", name: \"a\", sizeBytes: 1, width: 2, height: 3}]}) {
        messageEdge { node { id } } } }";
    let sent = bob.data(rich, json!({"c": c, "r": first.id})).await;
    let message = text(&sent["sendMessage"]["messageEdge"]["node"]["id"]);
    let each = [
        (
            &bob,
            "addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } }",
        ),
        (
            &bob,
            "editMessage(input: {messageId: $m, body: \"richer\"}) { message { id } }",
        ),
        (
            &carol,
            "markDelivered(input: {conversationId: $c, messageId: $m}) { __typename }",
        ),
        (
            &alice,
            "markRead(input: {conversationId: $c, messageId: $m}) { __typename }",
        ),
        (
            &alice,
            "addParticipants(input: {conversationId: $c, usernames: [\"dora\"]}) { __typename }",
        ),
        (
            &alice,
            "setParticipantRole(input: {conversationId: $c, username: \"bob\", role: ADMIN}) { __typename }",
        ),
        (
            &alice,
            "removeParticipant(input: {conversationId: $c, username: \"dora\"}) { __typename }",
        ),
        (
            &alice,
            "renameConversation(input: {conversationId: $c, name: \"more\"}) { __typename }",
        ),
    ];
    for (actor, mutation) in each {
        let variables = [
            ("$c: ID!", mutation.contains("$c")),
            ("$m: ID!", mutation.contains("$m")),
        ];
        let declared: Vec<_> = variables
            .iter()
            .filter(|(_, is_used)| *is_used)
            .map(|(declared, _)| *declared)
            .collect();
        actor
            .data(
                &format!("mutation({}) {{ {mutation} }}", declared.join(", ")),
                json!({"c": c, "m": message}),
            )
            .await;
    }
    let last = alice.send(&c, "last").await;
    alice
        .data(
            "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }",
            json!({"m": last.id}),
        )
        .await;
    let names = "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { event { __typename } } }";
    let mut stream = alice.subscribe(names, json!({"c": c, "after": after}));
    let (mut kinds, mut count) = (BTreeSet::new(), 0);
    loop {
        let told = stream.next().await;
        count += 1;
        let Some(kind) = told["conversationEvents"]["event"]["__typename"]
            .as_str()
            .map(str::to_owned)
        else {
            continue;
        };
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

/// The same for several at once, who share what they may.
async fn told_together<const N: usize>(
    actors: [&Actor; N],
    document: &str,
    variables: &Value,
    count: usize,
) -> [Vec<Value>; N] {
    let mut streams = actors.map(|actor| actor.subscribe(document, variables.clone()));
    let mut told = [const { Vec::new() }; N];
    for _ in 0..count {
        let answers = futures_util::future::join_all(streams.iter_mut().map(Stream::answer)).await;
        told.iter_mut()
            .zip(answers)
            .for_each(|(told, answer)| told.push(answer.0));
    }
    told
}

fn has_key(told: &[Value]) -> bool {
    told.iter()
        .any(|answer| answer.to_string().contains(r#""clientKey":"k""#))
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
            let (one, other) = (
                told(&alice, &document, &variables, count).await,
                told(&bob, &document, &variables, count).await,
            );
            if is_viewer_independent(&world.api.prepare(&document, None).unwrap()) {
                // Bob sent a message with a key, which is shown to nobody else.
                if field == "Message.clientKey" {
                    assert!(!has_key(&one) && has_key(&other), "{document}");
                } else {
                    assert_eq!(one, other, "{field}: {document}");
                }
                let together = told_together([&alice, &bob], &document, &variables, count).await;
                assert_eq!(together, [one, other], "{field}: {document}");
                shown += 1;
            } else {
                viewers.insert(field);
            }
        }
    }
    assert_eq!(
        viewers.iter().map(String::as_str).collect::<Vec<_>>(),
        VIEWERS,
        "each field is decided"
    );
    assert!(shown > 80, "only {shown} fields");
    for (field, document) in documents(&world, "typingChanged", "") {
        let mut streams = [
            alice.subscribe(&document, json!({"c": c})),
            bob.subscribe(&document, json!({"c": c})),
        ];
        assert!(streams.iter_mut().all(|stream| stream.is_quiet()));
        bob.data("mutation($c: ID!) { setTyping(input: {conversationId: $c, typing: true}) { __typename } }", json!({"c": c})).await;
        let [one, other] = streams.each_mut().map(async |stream| stream.next().await);
        let (one, other) = (one.await, other.await);
        bob.data("mutation($c: ID!) { setTyping(input: {conversationId: $c, typing: false}) { __typename } }", json!({"c": c})).await;
        if is_viewer_independent(&world.api.prepare(&document, None).unwrap()) {
            assert_eq!(one, other, "{field}");
        }
    }
    live_fields_are_equal_for_every_viewer(&world, &c).await;
}

/// The fields of a live message with everything, to streams that each begin with it.
async fn live_fields_are_equal_for_every_viewer(world: &World, c: &str) {
    let [alice, bob] = ["alice", "bob"].map(|name| world.user(name));
    let question = alice.send(c, "How many?").await;
    let write = "mutation($i: WriteLiveMessageInput!) { writeLiveMessage(input: $i) { liveMessage { id } } }";
    let input = json!({"conversationId": c, "key": "answer", "writer": "one", "position": 0, "text": "Two.", "status": "counting",
        "steps": [{"key": "1", "title": "Count", "state": "DONE", "detail": "two"}], "replyToId": question.id});
    let written = bob.data(write, json!({"i": input})).await;
    let id = &written["writeLiveMessage"]["liveMessage"]["id"];
    let stop = "mutation($id: ID!) { stopLiveMessage(input: {liveMessageId: $id}) { liveMessage { id } } }";
    alice.data(stop, json!({"id": id})).await;
    let mut fields = BTreeSet::new();
    for (field, document) in documents(world, "liveMessages", "") {
        if !is_viewer_independent(&world.api.prepare(&document, None).unwrap()) {
            continue;
        }
        let mut streams = [&alice, &bob].map(|actor| actor.subscribe(&document, json!({"c": c})));
        for stream in &mut streams {
            // The first payload is only the position.
            stream.next().await;
        }
        let [one, other] = &mut streams;
        assert_eq!(one.next().await, other.next().await, "{field}: {document}");
        fields.insert(field);
    }
    let shared = fields
        .iter()
        .filter(|field| field.starts_with("LiveMessage"));
    assert_eq!(shared.count(), 4 + 11, "{fields:?}");
}

const MESSAGES: &str = "subscription($c: ID!, $after: String) { messageAdded(conversationId: $c, after: $after) { messageEdge { cursor node { body } } } }";

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
    let mut streams = [
        alice.subscribe(document, json!({"c": c})),
        bob.subscribe(document, json!({"c": c})),
    ];
    for stream in &mut streams {
        assert_eq!(
            stream.next().await,
            json!({"conversationEvents": {"event": null}})
        );
    }
    bob.data("mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { id } } }", json!({"m": sent.id})).await;
    for (stream, (peer, has_reacted)) in streams.iter_mut().zip([("bob", false), ("alice", true)]) {
        let told = stream.next().await["conversationEvents"]["event"]["message"].clone();
        let expected = json!({"conversation": {"directPeer": {"username": peer}}, "reactions": [{"emoji": "👍", "viewerHasReacted": has_reacted}]});
        assert_eq!(told, expected);
    }
}

#[tokio::test]
async fn a_removed_user_gets_no_shared_payload() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = alice.group("friends", &["bob", "carol"]).await;
    let mut streams =
        [&alice, &bob, &carol].map(|actor| actor.subscribe(MESSAGES, json!({"c": c})));
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
        assert_eq!(
            told.data()["messageAdded"]["messageEdge"]["node"]["body"],
            "now we are two"
        );
    }
    assert!(gone.has_ended().await);
}

/// A message, the one that it answers, and their keys.
const KEYS: &str = "subscription($c: ID!) { messageAdded(conversationId: $c) { messageEdge { node { body clientKey replyTo { clientKey } } } } }";

#[tokio::test]
async fn a_sender_alone_is_shown_the_key_of_the_send_and_all_others_share() {
    let world = World::open().await;
    let [alice, bob, carol, dora] = ["alice", "bob", "carol", "dora"].map(|name| world.user(name));
    let c = alice.group("friends", &["bob", "carol", "dora"]).await;
    let send = async |actor: &Actor, key: &str, reply: Option<&str>| {
        let document = "mutation($c: ID!, $k: String, $r: ID) { sendMessage(input: {conversationId: $c, body: \"x\", idempotencyKey: $k,
            replyToId: $r}) { messageEdge { node { id clientKey } } } }";
        let sent = actor
            .data(document, json!({"c": c, "k": key, "r": reply}))
            .await["sendMessage"]["messageEdge"]["node"]
            .clone();
        assert_eq!(sent["clientKey"], key, "the sender is shown it");
        text(&sent["id"])
    };
    let first = send(&alice, "k1", None).await;
    let mut streams =
        [&alice, &bob, &carol, &dora].map(|actor| actor.subscribe(KEYS, json!({"c": c})));
    assert!(streams.iter_mut().all(|stream| stream.is_quiet()));
    // Bob answers alice: each of the two is shown one key, the others none.
    send(&bob, "k2", Some(&first)).await;
    let mut told = Vec::new();
    for stream in &mut streams {
        told.push(stream.told().await);
    }
    let keys = |place: usize| {
        let node = &told[place].0.0["data"]["messageAdded"]["messageEdge"]["node"];
        (
            node["clientKey"].clone(),
            node["replyTo"]["clientKey"].clone(),
        )
    };
    assert_eq!(keys(0), (json!(null), json!("k1")));
    assert_eq!(keys(1), (json!("k2"), json!(null)));
    for other in [2, 3] {
        assert_eq!(keys(other), (json!(null), json!(null)));
    }
    assert_eq!(
        told.iter()
            .map(|(_, is_shared)| *is_shared)
            .collect::<Vec<_>>(),
        [false, false, true, true]
    );
    let page = "query($c: ID!) { conversation(id: $c) { messages(first: 2) { edges { node { clientKey } } } } }";
    let shown = async |actor: &Actor| {
        let data = actor.data(page, json!({"c": c})).await;
        let edges = data["conversation"]["messages"]["edges"]
            .as_array()
            .unwrap()
            .clone();
        edges
            .iter()
            .map(|edge| edge["node"]["clientKey"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(shown(&alice).await, [json!(null), json!("k1")]);
    assert_eq!(shown(&bob).await, [json!("k2"), json!(null)]);
    assert_eq!(shown(&carol).await, [json!(null), json!(null)]);
}
