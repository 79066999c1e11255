//! Coming, going, typing and reacting over real sockets of the real program.

use serde_json::{Value, json};

use crate::support::client::{Caller, Socket};
use crate::support::program::Program;
use crate::support::server::Server;

struct Stage {
    program: Program,
    server: Server,
}

impl Stage {
    async fn caller(&self, name: &str) -> Caller {
        Caller::connect(self.server.address(), &self.program.token(name))
            .await
            .unwrap()
    }

    async fn socket(&self, name: &str) -> Socket {
        Socket::connect(self.server.address(), &self.program.token(name)).await
    }
}

#[tokio::test]
async fn sockets_come_go_type_and_react() {
    let program = Program::new();
    let server = Server::start(
        &program,
        &[
            "--log",
            "warn",
            "--presence-grace",
            "100ms",
            "--typing-lasts",
            "200ms",
        ],
    );
    let stage = Stage { program, server };
    let mut alice = stage.caller("alice").await;
    let start =
        "mutation { startDirectConversation(input: {username: \"bob\"}) { conversation { id } } }";
    let made = alice.data(start, &Value::Null).await.unwrap();
    let c = made["startDirectConversation"]["conversation"]["id"]
        .as_str()
        .unwrap()
        .to_owned();

    // Without an act of his she would hear nothing of him.
    let mut friend = stage.caller("bob").await;
    let said = format!(
        "mutation {{ sendMessage(input: {{conversationId: \"{c}\", body: \"Hello\"}}) {{ __typename }} }}"
    );
    friend.data(&said, &Value::Null).await.unwrap();

    let mut screen = stage.socket("alice").await;
    screen.subscribe("presence", "subscription { presenceChanged(usernames: [\"bob\"]) { presence { isOnline lastSeenAt } } }").await;
    let presence = async |screen: &mut Socket| {
        screen.told("presence").await["presenceChanged"]["presence"].clone()
    };
    assert_eq!(
        presence(&mut screen).await,
        json!({"isOnline": false, "lastSeenAt": null})
    );
    let (one, other) = (stage.socket("bob").await, stage.socket("bob").await);
    let here = presence(&mut screen).await;
    assert_eq!(here["isOnline"], true);
    drop((one, other));
    let gone = presence(&mut screen).await;
    assert_eq!(
        gone["isOnline"], false,
        "told once, although two sockets closed"
    );
    assert!(
        gone["lastSeenAt"].as_str() >= here["lastSeenAt"].as_str()
            && here["lastSeenAt"].is_string(),
        "{here} {gone}"
    );

    let mut bob = stage.socket("bob").await;
    assert_eq!(presence(&mut screen).await["isOnline"], true);
    screen
        .subscribe("typing", &format!("subscription {{ typingChanged(conversationId: \"{c}\") {{ user {{ username }} isTyping }} }}"))
        .await;
    let events = "{ event { __typename ... on ReactionsChangedEvent { message { reactions { emoji count } } } } }";
    screen
        .subscribe(
            "events",
            &format!("subscription {{ conversationEvents(conversationId: \"{c}\") {events} }}"),
        )
        .await;
    let event = async |screen: &mut Socket| {
        screen.told("events").await["conversationEvents"]["event"].clone()
    };
    assert_eq!(
        event(&mut screen).await,
        Value::Null,
        "it listens; and the one before does"
    );
    bob.subscribe("1", &format!("mutation {{ setTyping(input: {{conversationId: \"{c}\", typing: true}}) {{ __typename }} }}")).await;
    let typing = |is_typing: bool| json!({"user": {"username": "bob"}, "isTyping": is_typing});
    for is_typing in [true, false] {
        assert_eq!(
            screen.told("typing").await["typingChanged"],
            typing(is_typing),
            "it ends by itself"
        );
    }
    let send = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"Soup?\"}) { messageEdge { node { id } } } }";
    let sent = alice.data(send, &json!({"c": c})).await.unwrap();
    let message = sent["sendMessage"]["messageEdge"]["node"]["id"]
        .as_str()
        .unwrap();
    assert_eq!(event(&mut screen).await["__typename"], "MessageAddedEvent");
    bob.subscribe("2", &format!("mutation {{ addReaction(input: {{messageId: \"{message}\", emoji: \"🍲\"}}) {{ __typename }} }}"))
        .await;
    let reacted = json!({"__typename": "ReactionsChangedEvent", "message": {"reactions": [{"emoji": "🍲", "count": 1}]}});
    assert_eq!(event(&mut screen).await, reacted);
    stage.server.kill();
}
