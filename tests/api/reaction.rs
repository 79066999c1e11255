//! Reactions: who may react, what everybody sees then, and what is told.

use serde_json::{Value, json};
use wideroom::model::Emoji;

use crate::support::door::Door;
use crate::support::world::{Actor, Answer, Stream, World, text};

const REACTIONS: &str =
    "reactions { emoji count countIsCapped viewerHasReacted users { username } }";
const EVENTS: &str = "subscription($c: ID!, $after: String) { conversationEvents(conversationId: $c, after: $after) { cursor event {
    __typename ... on ReactionsChangedEvent { message { uuid reactions { emoji users { username } } } }
    ... on MessageAddedEvent { messageEdge { node { uuid } } } } } }";

async fn change(actor: &Actor, field: &str, message: &str, emoji: &str) -> Answer {
    let input = if field == "addReaction" {
        "AddReactionInput"
    } else {
        "RemoveReactionInput"
    };
    let document =
        format!("mutation($i: {input}!) {{ {field}(input: $i) {{ message {{ {REACTIONS} }} }} }}");
    actor
        .ask(
            &document,
            json!({"i": {"messageId": message, "emoji": emoji}}),
        )
        .await
}

async fn add(actor: &Actor, message: &str, emoji: &str) -> Value {
    let data = change(actor, "addReaction", message, emoji).await.data();
    data["addReaction"]["message"]["reactions"].clone()
}

async fn remove(actor: &Actor, message: &str, emoji: &str) -> Value {
    change(actor, "removeReaction", message, emoji).await.data()["removeReaction"]["message"]["reactions"].clone()
}

async fn read(actor: &Actor, message: &str) -> Value {
    let document =
        format!("query($m: ID!) {{ node(id: $m) {{ ... on Message {{ {REACTIONS} }} }} }}");
    actor.data(&document, json!({"m": message})).await["node"]["reactions"].clone()
}

fn reaction(emoji: &str, users: &[&str], is_own: bool) -> Value {
    let names: Vec<_> = users.iter().map(|name| json!({"username": name})).collect();
    json!({"emoji": emoji, "count": users.len(), "countIsCapped": false, "viewerHasReacted": is_own, "users": names})
}

async fn event(stream: &mut Stream) -> Value {
    stream.next().await["conversationEvents"]["event"].clone()
}

#[tokio::test]
async fn a_reaction_shows_to_everybody_until_it_is_taken_back() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "Soup?").await;
    assert_eq!(read(&bob, &sent.id).await, json!([]));
    assert_eq!(
        add(&bob, &sent.id, "👍").await,
        json!([reaction("👍", &["bob"], true)])
    );
    assert_eq!(
        add(&alice, &sent.id, "👍").await,
        json!([reaction("👍", &["alice", "bob"], true)])
    );
    assert_eq!(
        remove(&bob, &sent.id, "👍").await,
        json!([reaction("👍", &["alice"], false)])
    );
    assert_eq!(
        read(&alice, &sent.id).await,
        json!([reaction("👍", &["alice"], true)])
    );
    assert_eq!(remove(&alice, &sent.id, "👍").await, json!([]));
    assert_eq!(
        remove(&alice, &sent.id, "🚀").await,
        json!([]),
        "what is not there is no fault"
    );
}

#[tokio::test]
async fn a_heart_is_one_kind_however_it_is_spelled() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "Soup!").await;
    add(&alice, &sent.id, "❤").await;
    assert_eq!(
        add(&bob, &sent.id, "❤\u{fe0f}").await,
        json!([reaction("❤\u{fe0f}", &["alice", "bob"], true)])
    );
    assert_eq!(
        remove(&bob, &sent.id, "❤").await,
        json!([reaction("❤\u{fe0f}", &["alice"], false)])
    );
}

#[tokio::test]
async fn a_text_other_than_an_emoji_is_refused() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "x").await;
    for emoji in [
        "",
        "1",
        "1\u{fe0f}",
        "+1",
        "👍👍",
        "👍 ",
        "é",
        &"👍".repeat(1_000),
    ] {
        for field in ["addReaction", "removeReaction"] {
            let answer = change(&alice, field, &sent.id, emoji).await;
            assert_eq!(
                (answer.code().as_str(), &answer.extensions()["inputPath"]),
                ("BAD_USER_INPUT", &json!(["input", "emoji"]))
            );
        }
    }
}

#[tokio::test]
async fn only_participants_react_and_only_to_what_is_there() {
    let world = World::open().await;
    let (alice, bob, mallory) = (
        world.user("alice"),
        world.user("bob"),
        world.user("mallory"),
    );
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "x").await;
    add(&bob, &sent.id, "👍").await;
    for message in [sent.id.as_str(), "nonsense"] {
        for field in ["addReaction", "removeReaction"] {
            assert_eq!(
                change(&mallory, field, message, "👍").await.code(),
                "NOT_FOUND"
            );
        }
    }
    alice
        .data(
            "mutation($m: ID!) { deleteMessage(input: {messageId: $m}) { message { id } } }",
            json!({"m": sent.id}),
        )
        .await;
    assert_eq!(
        read(&bob, &sent.id).await,
        json!([]),
        "what is deleted shows none"
    );
    assert_eq!(
        change(&alice, "addReaction", &sent.id, "🚀").await.code(),
        "BAD_USER_INPUT"
    );
    assert_eq!(remove(&bob, &sent.id, "👍").await, json!([]));
}

#[tokio::test]
async fn a_message_has_at_most_20_kinds_and_5_of_one_user() {
    let world = World::open().await;
    let names = ["alice", "bob", "carol", "dave", "eve"];
    let people = names.map(|name| world.user(name));
    let [alice, bob, .., eve] = &people;
    let c = alice.group("all", &names[1..]).await;
    let sent = alice.send(&c, "x").await;
    let mut kinds = [
        "😀", "😃", "😄", "😁", "😆", "😅", "🤣", "😂", "🙂", "🙃", "🫠", "😉", "😊", "😇", "🥰",
        "😍", "🤩", "😘", "😗", "☺️", "😚",
    ];
    kinds.sort_unstable();
    let refused = async |actor: &Actor, emoji: &str| {
        let answer = change(actor, "addReaction", &sent.id, emoji).await;
        let path = answer.extensions()["inputPath"].clone();
        assert_eq!(
            (answer.code().as_str(), path),
            ("BAD_USER_INPUT", json!(["input", "emoji"]))
        );
    };
    let share = Emoji::KINDS_OF_USER_MAX;
    for (of_one, actor) in kinds[..Emoji::KINDS_MAX].chunks(share).zip(&people) {
        for kind in of_one {
            add(actor, &sent.id, kind).await;
        }
        add(actor, &sent.id, of_one[0]).await;
        refused(actor, kinds[20]).await;
    }
    refused(eve, kinds[20]).await;
    let all = add(eve, &sent.id, kinds[7]).await;
    assert_eq!(
        all.as_array().unwrap().len(),
        20,
        "one that is there may be joined"
    );
    let order = all.as_array().unwrap().iter();
    let order: Vec<_> = order.map(|one| text(&one["emoji"])).collect();
    assert_eq!(order, kinds[..20], "by their bytes");
    refused(bob, kinds[0]).await;
    remove(alice, &sent.id, kinds[3]).await;
    let all = add(eve, &sent.id, kinds[20]).await;
    assert_eq!(all.as_array().unwrap().len(), 20);
}

#[tokio::test]
async fn what_was_put_on_and_taken_back_takes_no_room() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "x").await;
    let kinds: Vec<_> = emojis::iter().take(Emoji::ENDED_OF_USER_MAX + 1).collect();
    let (beyond, kinds) = kinds.split_last().unwrap();
    for kind in kinds {
        add(&alice, &sent.id, kind.as_str()).await;
        remove(&alice, &sent.id, kind.as_str()).await;
    }
    // On a cluster the remains cost whoever reads the message.
    let refused = change(&alice, "addReaction", &sent.id, beyond.as_str()).await;
    let path = refused.extensions()["inputPath"].clone();
    assert_eq!(
        (refused.code().as_str(), path),
        ("BAD_USER_INPUT", json!(["input", "emoji"]))
    );
    let another = alice.send(&c, "y").await;
    add(&alice, &another.id, beyond.as_str()).await;
    let other = emojis::iter().nth(300).unwrap().as_str();
    let all = add(&bob, &sent.id, other).await;
    assert_eq!(all, json!([reaction(other, &["bob"], true)]));
}

const REMOVE: &str = "mutation($i: RemoveReactionInput!) { removeReaction(input: $i) { message { reactions { emoji users { username } } } } }";

#[tokio::test]
async fn moderators_remove_the_reactions_of_others() {
    let world = World::open().await;
    let door = Door::of(&world.chat);
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = alice.group("We", &["bob", "carol"]).await;
    let sent = alice.send(&c, "x").await;
    let of =
        |username: &str| json!({"i": {"messageId": sent.id, "emoji": "👍", "username": username}});
    let left = |answer: &Value| answer["removeReaction"]["message"]["reactions"].clone();
    for actor in [&alice, &bob, &carol] {
        add(actor, &sent.id, "👍").await;
    }
    assert_eq!(bob.ask(REMOVE, of("carol")).await.code(), "FORBIDDEN");
    let nobody = world.user("mallory").ask(REMOVE, of("carol")).await;
    assert_eq!(nobody.code(), "NOT_FOUND");
    let users = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| json!({"username": name})).collect();
        json!([{"emoji": "👍", "users": names}])
    };
    let mut events = carol.subscribe(EVENTS, json!({"c": c}));
    events.next().await;
    let removed = alice.data(REMOVE, of("carol")).await;
    assert_eq!(left(&removed), users(&["alice", "bob"]));
    let told = event(&mut events).await;
    assert_eq!(told["message"]["reactions"], users(&["alice", "bob"]));
    assert_eq!(
        left(&alice.data(REMOVE, of("carol")).await),
        users(&["alice", "bob"])
    );
    assert_eq!(left(&bob.data(REMOVE, of("bob")).await), users(&["alice"]));
    let by_service = door.ask(&door.service(), REMOVE, &of("alice")).await;
    assert_eq!(left(&by_service.json()["data"]), json!([]));
    let direct = alice.direct("bob").await;
    let sent = alice.send(&direct, "x").await;
    add(&bob, &sent.id, "👍").await;
    let input = json!({"i": {"messageId": sent.id, "emoji": "👍", "username": "bob"}});
    assert_eq!(alice.ask(REMOVE, input).await.code(), "FORBIDDEN");
}

#[tokio::test]
async fn a_ban_removes_reactions_where_it_is_asked_to() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = alice.group("We", &["bob", "carol"]).await;
    let mut sent = Vec::new();
    for n in 0..70 {
        sent.push(alice.send(&c, &n.to_string()).await.id);
    }
    for message in [&sent[0], &sent[69]] {
        add(&bob, message, "👍").await;
        add(&carol, message, "👍").await;
        add(&carol, message, "🚀").await;
    }
    let ban = async |username: &str, remove: Option<bool>| {
        let document = "mutation($i: BanParticipantInput!) { banParticipant(input: $i) { removedParticipantId } }";
        let input = json!({"conversationId": c, "username": username, "removeReactions": remove});
        alice.data(document, json!({"i": input})).await;
    };
    ban("bob", None).await;
    ban("carol", Some(true)).await;
    for message in [&sent[0], &sent[69]] {
        assert_eq!(
            read(&alice, message).await,
            json!([reaction("👍", &["bob"], false)])
        );
    }
    ban("bob", Some(true)).await;
    for message in [&sent[0], &sent[69]] {
        assert_eq!(read(&alice, message).await, json!([]));
    }
}

#[tokio::test]
async fn users_are_the_first_by_name_as_many_as_are_asked_for() {
    let world = World::open().await;
    let names: Vec<_> = (0..30).map(|n| format!("user{n:02}")).collect();
    let alice = world.user("alice");
    let c = alice
        .group("all", &names.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let sent = alice.send(&c, "x").await;
    for name in names.iter().rev() {
        add(&world.user(name), &sent.id, "👍").await;
    }
    let document = "query($m: ID!, $n: Int) { node(id: $m) { ... on Message { reactions { count users(first: $n) { username } } } } }";
    for (first, count) in [
        (json!(0), 0),
        (json!(3), 3),
        (Value::Null, 20),
        (json!(100), 30),
    ] {
        let data = alice
            .data(document, json!({"m": sent.id, "n": first}))
            .await;
        let users: Vec<_> = data["node"]["reactions"][0]["users"]
            .as_array()
            .unwrap()
            .iter()
            .map(|user| text(&user["username"]))
            .collect();
        assert_eq!(users, names[..count]);
        assert_eq!(data["node"]["reactions"][0]["count"], 30);
    }
    assert_eq!(
        alice
            .ask(document, json!({"m": sent.id, "n": 101}))
            .await
            .code(),
        "BAD_USER_INPUT"
    );
}

#[tokio::test]
async fn a_reaction_is_told_once_live_and_resumed_and_in_no_inbox() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let one = alice.send(&c, "one").await;
    let mut inbox = alice.subscribe(
        "subscription { inboxUpdated { event { __typename } } }",
        json!({}),
    );
    assert_eq!(inbox.next().await["inboxUpdated"]["event"], Value::Null);
    let mut live = alice.subscribe(EVENTS, json!({"c": c}));
    let start = live.next().await["conversationEvents"]["cursor"].clone();
    add(&bob, &one.id, "👍").await;
    let users = |users: &[&str]| {
        users
            .iter()
            .map(|name| json!({"username": name}))
            .collect::<Vec<_>>()
    };
    let told = |reactions: Value| json!({"__typename": "ReactionsChangedEvent", "message": {"uuid": one.uuid, "reactions": reactions}});
    assert_eq!(
        event(&mut live).await,
        told(json!([{"emoji": "👍", "users": users(&["bob"])}]))
    );
    add(&bob, &one.id, "👍").await;
    remove(&bob, &one.id, "🚀").await;
    remove(&bob, &one.id, "👍").await;
    assert_eq!(
        event(&mut live).await,
        told(json!([])),
        "what changed nothing was not told"
    );
    add(&alice, &one.id, "🚀").await;
    let now = json!([{"emoji": "🚀", "users": users(&["alice"])}]);
    assert_eq!(event(&mut live).await, told(now.clone()));
    assert!(inbox.is_quiet(), "no entry shows reactions");
    let two = bob.send(&c, "two").await;
    let added =
        json!({"__typename": "MessageAddedEvent", "messageEdge": {"node": {"uuid": two.uuid}}});
    assert_eq!(event(&mut live).await, added);
    let mut resumed = bob.subscribe(EVENTS, json!({"c": c, "after": start}));
    assert_eq!(event(&mut resumed).await, Value::Null);
    // Each in its place, with the message as it is now.
    for expected in [told(now.clone()), told(now.clone()), told(now), added] {
        assert_eq!(event(&mut resumed).await, expected);
    }
    assert!(resumed.is_quiet());
}

#[tokio::test]
async fn reactions_of_the_same_user_at_once_leave_one_state() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let sent = bob.send(&c, "x").await;
    let toggles = (0..20).map(|n| {
        change(
            &alice,
            if n % 2 == 0 {
                "addReaction"
            } else {
                "removeReaction"
            },
            &sent.id,
            "👍",
        )
    });
    for answer in futures_util::future::join_all(toggles).await {
        answer.data();
    }
    let seen = read(&alice, &sent.id).await;
    assert!(
        seen == json!([]) || seen == json!([reaction("👍", &["alice"], true)]),
        "{seen}"
    );
    add(&alice, &sent.id, "👍").await;
    drop((alice, bob));
    let world = world.restarted().await;
    assert_eq!(
        read(&world.user("bob"), &sent.id).await,
        json!([reaction("👍", &["alice"], false)]),
        "it is kept"
    );
}
