//! Profiles of users.

use serde_json::{Value, json};

use crate::support::world::{Actor, World};

const TELL: &str = "mutation($input: UpdateProfileInput!) { updateProfile(input: $input) {
    user { username displayName avatarUrl } } }";

async fn tell(actor: &Actor, input: Value) -> Value {
    let data = actor.data(TELL, json!({"input": input})).await;
    let user = &data["updateProfile"]["user"];
    json!([user["displayName"], user["avatarUrl"]])
}

#[tokio::test]
async fn a_name_is_changed_once_and_seen_everywhere() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let group = bob.group("all", &["alice"]).await;
    alice.send(&c, "hello").await;
    alice.send(&group, "hello").await;
    let document = "query($c: ID!, $g: ID!) { inbox { edges { node { lastMessage { sender { displayName } } } } }
        conversation(id: $c) { directPeer { displayName } }
        g: conversation(id: $g) { participants(first: 1) { edges { node { user { displayName } } } } } }";
    for name in ["Alice", "Alice Liddell"] {
        assert_eq!(
            tell(&alice, json!({"displayName": name})).await,
            json!([name, null])
        );
        let data = bob.data(document, json!({"c": c, "g": group})).await;
        assert_eq!(data["conversation"]["directPeer"]["displayName"], name);
        assert_eq!(
            data["g"]["participants"]["edges"][0]["node"]["user"]["displayName"],
            name
        );
        for edge in data["inbox"]["edges"].as_array().unwrap() {
            assert_eq!(edge["node"]["lastMessage"]["sender"]["displayName"], name);
        }
    }
    drop((alice, bob));
    let world = world.restarted().await;
    let data = world
        .user("alice")
        .data("{ viewer { displayName } }", json!({}))
        .await;
    assert_eq!(data["viewer"]["displayName"], "Alice Liddell");
}

#[tokio::test]
async fn null_takes_back_and_what_is_not_given_stays() {
    let world = World::open().await;
    let alice = world.user("alice");
    let url = "https://example.org/alice.png";
    assert_eq!(tell(&alice, json!({})).await, json!([null, null]));
    assert_eq!(
        tell(&alice, json!({"displayName": "Alice", "avatarUrl": url})).await,
        json!(["Alice", url])
    );
    assert_eq!(tell(&alice, json!({})).await, json!(["Alice", url]));
    assert_eq!(
        tell(&alice, json!({"displayName": null})).await,
        json!([null, url])
    );
    assert_eq!(
        tell(&alice, json!({"displayName": "A.", "avatarUrl": null})).await,
        json!(["A.", null])
    );
    // A variable that is not given is a field that is not given.
    let document = "mutation($name: String, $url: String) { updateProfile(input: {displayName: $name, avatarUrl: $url}) {
        user { displayName avatarUrl } } }";
    let data = alice.data(document, json!({"url": url})).await;
    assert_eq!(
        data["updateProfile"]["user"],
        json!({"displayName": "A.", "avatarUrl": url})
    );
    let data = alice.data(document, json!({"name": null})).await;
    assert_eq!(
        data["updateProfile"]["user"],
        json!({"displayName": null, "avatarUrl": url})
    );
}

#[tokio::test]
async fn an_invalid_profile_is_refused_and_not_persisted() {
    let world = World::open().await;
    let alice = world.user("alice");
    for (input, path) in [
        (
            json!({"displayName": " ", "avatarUrl": "https://example.org/"}),
            "displayName",
        ),
        (json!({"displayName": "x".repeat(129)}), "displayName"),
        (json!({"displayName": "bell\u{7}"}), "displayName"),
        (
            json!({"displayName": "Alice", "avatarUrl": "javascript:alert(1)"}),
            "avatarUrl",
        ),
        (
            json!({"avatarUrl": format!("https://example.org/{}", "x".repeat(2_029))}),
            "avatarUrl",
        ),
    ] {
        let answer = alice.ask(TELL, json!({"input": input})).await;
        assert_eq!(answer.code(), "BAD_USER_INPUT", "{input}");
        assert_eq!(answer.extensions()["inputPath"], json!(["input", path]));
    }
    assert_eq!(tell(&alice, json!({})).await, json!([null, null]));
    assert_eq!(
        world
            .nobody()
            .ask(TELL, json!({"input": {"displayName": "x"}}))
            .await
            .code(),
        "UNAUTHENTICATED"
    );
}
