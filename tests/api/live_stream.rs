//! The stream of live messages: the text once, resumed from its byte, and shared by equal subscriptions.

use serde_json::{Value, json};

use crate::support::world::{Actor, Stream, World, text};

const LIVES: &str =
    "subscription($c: ID!, $after: String) { liveMessages(conversationId: $c, after: $after) {
    cursor text isWhole liveMessage { id state } } }";
const KEY: &str = "answer";
/// Bytes of an event besides its text.
const EVENT_BYTES_MAX: usize = 400;

async fn write(actor: &Actor, c: &str, position: usize, added: &str) {
    let document =
        "mutation($i: WriteLiveMessageInput!) { writeLiveMessage(input: $i) { nextPosition } }";
    let input = json!({"conversationId": c, "key": KEY, "writer": "one", "position": position, "text": added});
    actor.data(document, json!({"i": input})).await;
}

async fn send(actor: &Actor, c: &str, body: &str) {
    let document = "mutation($i: SendMessageInput!) { sendMessage(input: $i) { messageEdge { node { id } } } }";
    let input = json!({"conversationId": c, "body": body, "idempotencyKey": KEY});
    actor.data(document, json!({"i": input})).await;
}

/// Opens a stream, and takes its first payload, which is only the position.
async fn listen(actor: &Actor, c: &str, after: Option<&str>) -> (Stream, String) {
    let mut stream = actor.subscribe(LIVES, json!({"c": c, "after": after}));
    let first = stream.next().await["liveMessages"].take();
    assert_eq!(
        (&first["liveMessage"], &first["text"], &first["isWhole"]),
        (&Value::Null, &json!(""), &json!(false))
    );
    (stream, text(&first["cursor"]))
}

/// Text that a subscriber has, and the bytes that were received for it.
#[derive(Default)]
struct Heard {
    text: String,
    bytes: usize,
    events: usize,
    wholes: usize,
    cursor: String,
}

impl Heard {
    /// Takes payloads until the text is as long as this one.
    async fn take_up_to(&mut self, stream: &mut Stream, expected: &str) {
        while self.text != expected {
            let answer = stream.answer().await.0;
            self.bytes += answer.to_string().len();
            self.events += 1;
            let payload = &answer["data"]["liveMessages"];
            assert_eq!(payload["cursor"], answer["extensions"]["cursor"]);
            assert_eq!(payload["liveMessage"]["state"], "WRITING");
            self.cursor = text(&payload["cursor"]);
            if payload["isWhole"] == true {
                self.text.clear();
                self.wholes += 1;
            }
            self.text += payload["text"].as_str().unwrap();
            assert!(expected.starts_with(&self.text), "{}", self.text);
        }
    }
}

#[tokio::test]
async fn a_subscriber_is_sent_the_text_once_and_resumes_from_its_byte() {
    let world = World::open().await;
    let (alice, bob) = (world.user("alice"), world.user("bob"));
    let c = alice.direct("bob").await;
    let (mut stream, _) = listen(&alice, &c, None).await;
    let (mut heard, mut resumed) = (Heard::default(), Heard::default());
    let mut all = String::new();
    for added in ["The ", "änswer ", "has ", &"many words ".repeat(90)] {
        write(&bob, &c, all.len(), added).await;
        all += added;
        heard.take_up_to(&mut stream, &all).await;
        let after = (!resumed.cursor.is_empty()).then_some(resumed.cursor.as_str());
        let (mut again, cursor) = listen(&alice, &c, after).await;
        assert!(after.is_none_or(|after| after == cursor));
        resumed.take_up_to(&mut again, &all).await;
    }
    for heard in [&heard, &resumed] {
        assert_eq!(heard.wholes, 1);
        let bytes_max = all.len() + heard.events * EVENT_BYTES_MAX;
        assert!(heard.bytes <= bytes_max, "{} of {bytes_max}", heard.bytes);
    }
    assert_eq!((heard.events, resumed.events), (4, 4));

    send(&bob, &c, "The answer").await;
    let ended = stream.next().await["liveMessages"].take();
    assert_eq!(
        (
            &ended["liveMessage"]["state"],
            &ended["text"],
            &ended["isWhole"]
        ),
        (&json!("SENT"), &json!(""), &json!(false))
    );
    // A subscriber who was away is told the same.
    let (mut again, _) = listen(&alice, &c, Some(&resumed.cursor)).await;
    let ended = again.next().await["liveMessages"].take();
    assert_eq!(ended["liveMessage"]["state"], "SENT");
    let (mut fresh, _) = listen(&alice, &c, None).await;
    assert!(fresh.is_quiet());
}

#[tokio::test]
async fn a_stream_is_of_its_participants_and_its_cursors_are_its_own() {
    let world = World::open().await;
    let (alice, bob, mallory) = (
        world.user("alice"),
        world.user("bob"),
        world.user("mallory"),
    );
    let (c, other) = (alice.direct("bob").await, alice.direct("carol").await);
    let sent = bob.send(&c, "hello").await;
    let (_, cursor) = listen(&alice, &c, None).await;
    let mut refusals = Vec::new();
    for (actor, c, after) in [
        (&mallory, &c, None),
        (&mallory, &c, Some(&cursor)),
        (&alice, &c, Some(&sent.cursor)),
        (&alice, &other, Some(&cursor)),
        (&alice, &c, Some(&"%%%".to_owned())),
    ] {
        let mut stream = actor.subscribe(LIVES, json!({"c": c, "after": after}));
        refusals.push(stream.answer().await.code());
    }
    let bad = "BAD_USER_INPUT";
    assert_eq!(refusals, ["NOT_FOUND", "NOT_FOUND", bad, bad, bad]);
}

#[tokio::test]
async fn equal_subscriptions_to_live_messages_get_the_same_bytes() {
    let world = World::open().await;
    let [alice, bob, carol] = ["alice", "bob", "carol"].map(|name| world.user(name));
    let c = alice.group("friends", &["bob", "carol"]).await;
    let (mut one, _) = listen(&alice, &c, None).await;
    let (mut two, _) = listen(&carol, &c, None).await;
    let mut all = String::new();
    for added in ["The ", "answer"] {
        write(&bob, &c, all.len(), added).await;
        all += added;
        let ((one, is_shared), (two, is_shared_too)) = (one.told().await, two.told().await);
        assert!(is_shared && is_shared_too);
        let (one, two) = (one.data(), two.data());
        assert_eq!(one, two);
        assert_eq!(one["liveMessages"]["text"], added);
    }
    // Subscribers who come later share the whole text.
    let (mut three, _) = listen(&alice, &c, None).await;
    let (mut four, _) = listen(&carol, &c, None).await;
    let ((three, is_shared), (four, is_shared_too)) = (three.told().await, four.told().await);
    assert!(is_shared && is_shared_too);
    assert_eq!(three.data(), four.data());
}
