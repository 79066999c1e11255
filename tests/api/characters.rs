//! Characters that names and bodies must not hold, at each door that takes one.

use serde_json::{Value, json};

use crate::support::world::{Answer, World};

#[track_caller]
fn assert_refused(answer: &Answer, field: &str) {
    assert_eq!(
        (answer.code().as_str(), &answer.extensions()["inputPath"]),
        ("BAD_USER_INPUT", &json!(["input", field]))
    );
}

#[tokio::test]
async fn a_name_with_invisible_or_bidirectional_characters_is_refused() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.group("visible", &["bob"]).await;
    let profile =
        "mutation($n: String) { updateProfile(input: {displayName: $n}) { user { displayName } } }";
    let create = "mutation($n: String!) { createGroupConversation(input: {name: $n, usernames: [\"bob\"]}) { conversation { name } } }";
    let rename = "mutation($n: String!, $c: ID!) { renameConversation(input: {conversationId: $c, name: $n}) { conversation { name } } }";
    for name in [
        "Bo\u{202e}b",
        "\u{2066}Bob\u{2069}",
        "Bo\u{200b}b",
        "\u{feff}Bob",
        "Bo\u{ad}b",
        "Bob\u{e0041}",
        "\u{3164}",
        "\u{2800}",
        "\u{200d}",
    ] {
        assert_refused(&alice.ask(profile, json!({"n": name})).await, "displayName");
        assert_refused(&alice.ask(create, json!({"n": name})).await, "name");
        assert_refused(&alice.ask(rename, json!({"n": name, "c": c})).await, "name");
    }
    // Joiners belong to words of many scripts, and to emoji.
    for name in ["نگار\u{200c}ها", "👩\u{200d}👧 Ann", "שרה"] {
        assert_eq!(
            alice.data(profile, json!({"n": name})).await["updateProfile"]["user"]["displayName"],
            name
        );
        assert_eq!(
            alice.data(rename, json!({"n": name, "c": c})).await["renameConversation"]["conversation"]
                ["name"],
            name
        );
    }
}

#[tokio::test]
async fn a_body_with_control_characters_is_refused_when_it_is_edited_too() {
    let world = World::open().await;
    let alice = world.user("alice");
    let c = alice.direct("bob").await;
    let sent = alice.send(&c, "tab\tand\r\nlines").await;
    let edit = "mutation($m: ID!, $b: String!) { editMessage(input: {messageId: $m, body: $b}) { message { body } } }";
    for body in ["\u{0}", "a\u{8}", "a\u{1b}[31m", "a\u{7f}", "a\u{80}"] {
        assert_refused(
            &alice.ask(edit, json!({"m": sent.id, "b": body})).await,
            "body",
        );
    }
    let data: Value = alice
        .data(edit, json!({"m": sent.id, "b": "still\ttext\n"}))
        .await;
    assert_eq!(data["editMessage"]["message"]["body"], "still\ttext\n");
}
