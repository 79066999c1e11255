//! Reading a conversation: ranges, surroundings, and arguments that make no sense.

use serde_json::{Value, json};

use crate::support::world::{Actor, Sent, World, node_texts};

const MESSAGES: &str = "query($c: ID!, $first: Int, $after: String, $last: Int, $before: String, $from: DateTime, $until: DateTime, $around: ID) {
    conversation(id: $c) { messages(first: $first, after: $after, last: $last, before: $before, from: $from, until: $until, around: $around) {
        edges { cursor node { uuid body createdAt } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } }";

async fn world_with(count: usize) -> (World, String, Vec<Sent>) {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let mut sent = Vec::new();
    for i in 0..count {
        sent.push(alice.send(&c, &i.to_string()).await);
    }
    (world, c, sent)
}

async fn messages(actor: &Actor, conversation: &str, mut arguments: Value) -> Value {
    arguments["c"] = json!(conversation);
    actor.data(MESSAGES, arguments).await["conversation"]["messages"].clone()
}

fn bodies(messages: &Value) -> Vec<String> {
    node_texts(&messages["edges"], "/body")
}

fn flags(messages: &Value) -> (bool, bool) {
    let flag = |name: &str| messages["pageInfo"][name].as_bool().unwrap();
    (flag("hasPreviousPage"), flag("hasNextPage"))
}

#[tokio::test]
async fn a_page_can_be_centred_on_a_message() {
    let (world, c, sent) = world_with(9).await;
    let bob = world.user("bob");
    let page = messages(&bob, &c, json!({"first": 4, "around": sent[4].id})).await;
    assert_eq!(
        (bodies(&page), flags(&page)),
        (
            ["5", "4", "3", "2"].map(str::to_owned).to_vec(),
            (true, true)
        )
    );
    let page = messages(&bob, &c, json!({"first": 5, "around": sent[8].id})).await;
    assert_eq!(
        (bodies(&page), flags(&page)),
        (
            ["8", "7", "6", "5", "4"].map(str::to_owned).to_vec(),
            (false, true)
        )
    );
    let page = messages(&bob, &c, json!({"around": sent[0].id})).await;
    assert_eq!((bodies(&page).len(), flags(&page)), (9, (false, false)));
    for wrong in [
        json!({"around": sent[0].id, "after": sent[1].cursor}),
        json!({"around": sent[0].id, "from": "2026-01-01T00:00:00Z"}),
    ] {
        let mut wrong = wrong;
        wrong["c"] = json!(c);
        assert_eq!(bob.ask(MESSAGES, wrong).await.code(), "BAD_USER_INPUT");
    }
    assert_eq!(
        bob.ask(MESSAGES, json!({"c": c, "around": "nonsense"}))
            .await
            .code(),
        "NOT_FOUND"
    );
}

#[tokio::test]
async fn a_time_range_cuts_history() {
    let (world, c, _) = world_with(6).await;
    let bob = world.user("bob");
    let all = messages(&bob, &c, json!({})).await;
    let sent_at = |i: usize| all["edges"][5 - i]["node"]["createdAt"].clone();
    let cut = messages(&bob, &c, json!({"from": sent_at(1), "until": sent_at(4)})).await;
    assert_eq!(
        (bodies(&cut), flags(&cut)),
        (["3", "2", "1"].map(str::to_owned).to_vec(), (false, false)),
        "from is inclusive, until exclusive"
    );
    let first = messages(
        &bob,
        &c,
        json!({"from": sent_at(1), "until": sent_at(4), "first": 2}),
    )
    .await;
    assert_eq!(
        (bodies(&first), flags(&first)),
        (["3", "2"].map(str::to_owned).to_vec(), (false, true))
    );
    let after = first["pageInfo"]["endCursor"].clone();
    let rest = messages(
        &bob,
        &c,
        json!({"from": sent_at(1), "until": sent_at(4), "first": 2, "after": after}),
    )
    .await;
    assert_eq!(
        (bodies(&rest), flags(&rest)),
        (["1"].map(str::to_owned).to_vec(), (true, false))
    );
    let none = messages(&bob, &c, json!({"from": sent_at(4), "until": sent_at(1)})).await;
    assert_eq!((bodies(&none).len(), flags(&none)), (0, (false, false)));
}

#[tokio::test]
async fn a_window_between_two_cursors_speaks_of_itself() {
    let (world, c, sent) = world_with(6).await;
    let bob = world.user("bob");
    let window = messages(
        &bob,
        &c,
        json!({"first": 2, "after": sent[5].cursor, "before": sent[1].cursor}),
    )
    .await;
    assert_eq!(
        (bodies(&window), flags(&window)),
        (["4", "3"].map(str::to_owned).to_vec(), (false, true))
    );
    let back = messages(
        &bob,
        &c,
        json!({"last": 2, "after": sent[5].cursor, "before": sent[1].cursor}),
    )
    .await;
    assert_eq!(
        (bodies(&back), flags(&back)),
        (["3", "2"].map(str::to_owned).to_vec(), (true, false))
    );
    let empty = messages(&bob, &c, json!({"first": 0})).await;
    assert_eq!((bodies(&empty).len(), flags(&empty)), (0, (false, true)));
    assert_eq!(empty["pageInfo"]["endCursor"], Value::Null);
}

#[tokio::test]
async fn arguments_that_make_no_sense_are_refused() {
    let (world, c, sent) = world_with(1).await;
    let alice = world.user("alice");
    let other = alice.direct("carol").await;
    let foreign = alice.send(&other, "x").await.cursor;
    let inbox = alice
        .data("{ inbox { edges { cursor } updatesCursor } }", json!({}))
        .await;
    for (input, path) in [
        (json!({"first": 1, "last": 1}), "first"),
        (json!({"first": -1}), "first"),
        (json!({"first": 101}), "first"),
        (json!({"last": 101}), "last"),
        (json!({"first": 1, "after": "nonsense"}), "after"),
        (json!({"first": 1, "after": foreign}), "after"),
        (
            json!({"last": 1, "before": inbox["inbox"]["edges"][0]["cursor"]}),
            "before",
        ),
        (
            json!({"first": 1, "after": inbox["inbox"]["updatesCursor"]}),
            "after",
        ),
        (json!({"first": 1, "after": sent[0].id}), "after"),
        (json!({"first": 1, "after": "A".repeat(600)}), "after"),
    ] {
        let mut input = input;
        input["c"] = json!(c);
        let answer = alice.ask(MESSAGES, input).await;
        assert_eq!(answer.code(), "BAD_USER_INPUT");
        assert_eq!(answer.extensions()["inputPath"], json!([path]));
    }
}

#[tokio::test]
async fn lists_inside_lists_have_an_end() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let page = "query($c: ID!, $n: Int) { conversation(id: $c) { messages(first: $n) { edges { node { id body
        conversation { messages(last: $n) { edges { node { id body sender { username } } } } } } } } } }";
    alice.data(page, json!({"c": c, "n": 20})).await;
    let most = "; at most 10000 are answered.";
    assert!(
        alice
            .refused(page, json!({"c": c, "n": 100}))
            .ends_with(most)
    );
    let nodes = "query($ids: [ID!]!) { nodes(ids: $ids) { ... on Conversation { messages(first: 100) { edges { cursor } } } } }";
    alice.data(nodes, json!({"ids": [c]})).await;
    assert!(
        alice
            .refused(nodes, json!({"ids": vec![&c; 100]}))
            .ends_with(most)
    );
    // Whatever the type of the fragment that it stands in.
    let named = "query($c: ID!) { node(id: $c) { ...C } } fragment C on Conversation { messages(first: 100) { edges { node { conversation {
        messages(first: 100) { edges { cursor } } } } } } }";
    assert!(alice.refused(named, json!({"c": c})).ends_with(most));
}

/// Lists of messages are serialised by a fast path, single nodes by the library. Both must answer the same.
#[tokio::test]
async fn a_message_in_a_list_is_what_the_node_is() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let plain = alice.send(&c, "plain").await;
    let rich = "mutation($c: ID!, $r: ID!) { sendMessage(input: {conversationId: $c, body: \"rich\", replyToId: $r, idempotencyKey: \"k\",
        metadata: {a: [1, {b: null}]}, attachments: [{url: \"https://example.org/a.png\", mimeType: \"image/png\"}]}) { __typename } }";
    alice.data(rich, json!({"c": c, "r": plain.id})).await;
    let gone = bob.send(&c, "gone").await;
    bob.data(
        "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { __typename } }",
        json!({"m": gone.id}),
    )
    .await;
    let edit = "mutation($m: ID!) { editMessage(input: {messageId: $m, body: \"plain, edited\"}) { __typename } }";
    alice.data(edit, json!({"m": plain.id})).await;
    for fields in [
        "id uuid kind body clientKey createdAt editedAt deletedAt sender { id username }",
        "__typename sender { __typename ...Name } ... on Node { id } ... on Message { body } ... { kind }",
        "z: body a: body body one: id sender { id } sender { username } sender { displayName } attachments { url } attachments { mimeType }",
        "...Whole conversation { id } replyTo { id body } metadata status reactions { emoji } receipts { edges { node { status } } }",
        "...Whole ...Whole sender { ...Name id presence { isOnline } }",
    ] {
        let name = "fragment Name on User { username }";
        let whole = "fragment Whole on Message { id body createdAt @include(if: true) uuid @skip(if: true) sender { ...Name displayName } }";
        let used = match (fields.contains("...Whole"), fields.contains("...Name")) {
            (true, _) => format!("{whole} {name}"),
            (false, true) => name.to_owned(),
            (false, false) => String::new(),
        };
        let list = format!(
            "query($c: ID!) {{ conversation(id: $c) {{ messages {{ edges {{ node {{ key: id {fields} }} }} }} }} }} {used}"
        );
        let data = alice.data(&list, json!({"c": c})).await;
        let edges = data["conversation"]["messages"]["edges"]
            .as_array()
            .unwrap();
        assert_eq!(edges.len(), 3);
        for edge in edges {
            let node = format!(
                "query($m: ID!) {{ node(id: $m) {{ ... on Message {{ key: id {fields} }} }} }} {used}"
            );
            let other = alice.data(&node, json!({"m": edge["node"]["key"]})).await;
            // As texts, because the order of the fields counts too.
            assert_eq!(
                edge["node"].to_string(),
                other["node"].to_string(),
                "{fields}"
            );
        }
    }
}

#[tokio::test]
async fn fields_selected_twice_above_a_list_are_merged() {
    let (world, c, _) = world_with(3).await;
    let alice = world.user("alice");
    let once = "query($c: ID!) { conversation(id: $c) { messages { edges { cursor node { body sender { id username } } } } } }";
    let once = alice.data(once, json!({"c": c})).await.to_string();
    for twice in [
        "query($c: ID!) { conversation(id: $c) { messages { edges { cursor } } }
            conversation(id: $c) { messages { edges { node { body sender { id username } } } } } }",
        "query($c: ID!) { conversation(id: $c) { ...A ...B } } fragment A on Conversation { messages { edges { cursor node { body } } } }
            fragment B on Conversation { messages { edges { node { sender { id } } } } ... on Node { ...C } }
            fragment C on Conversation { messages { edges { node { sender { username } } } } }",
    ] {
        assert_eq!(alice.data(twice, json!({"c": c})).await.to_string(), once, "{twice}");
    }
    // An object has one type, so fragments of other types add nothing.
    let either = "query($c: ID!) { node(id: $c) { ... on Message { conversation { id } } ... on InboxEntry { conversation { name } }
        ... on Conversation { messages { edges { cursor node { body sender { id username } } } } } } }";
    assert_eq!(
        format!(
            "{{\"conversation\":{}}}",
            alice.data(either, json!({"c": c})).await["node"]
        ),
        once
    );
}

#[tokio::test]
async fn variables_and_their_defaults_decide_what_is_included() {
    let world = World::open().await;
    let alice = world.user("alice");
    let document = "query($yes: Boolean = true, $no: Boolean = false, $must: Boolean!) { viewer {
        a: id @include(if: $yes) b: id @skip(if: $yes) c: id @include(if: $no) d: id @skip(if: $no) e: id @include(if: $must) } }";
    let keys = |data: Value| -> String {
        data["viewer"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect()
    };
    for _ in 0..2 {
        assert_eq!(
            keys(alice.data(document, json!({"must": false})).await),
            "ad"
        );
        assert_eq!(
            keys(
                alice
                    .data(document, json!({"must": true, "yes": false, "no": true}))
                    .await
            ),
            "bce"
        );
    }
    assert!(
        alice
            .refused(document, json!({"must": true, "yes": null}))
            .contains("`$yes` must not be null")
    );
}
