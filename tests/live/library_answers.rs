//! Oracle of the transports: the library's own handlers answer every well-formed request with the
//! same data.

use std::net::SocketAddr;

use serde_json::{Value, json};
use url::form_urlencoded::Serializer;
use wideroom::chat::Bounds;
use wideroom::server::ServerBounds;

use super::chat_server::ChatServer;
use crate::support::client::{self, Caller, Socket};

/// Queries over [`Fixture::variables`]. A row may declare any of them.
const QUERIES: &[&str] = &[
    "{ viewer { id username displayName } }",
    "{ __typename viewer { __typename } }",
    "{ inbox(first: 1) { edges { cursor node { id unreadCount unreadCountIsCapped isMuted isPinned lastActivityAt
        firstUnreadMessage { uuid } lastMessage { body } conversation { name kind directPeer { username } } } }
        pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } inboxSummary { unreadConversationCount } }",
    "query($c: ID!, $m: ID!) { conversation(id: $c) { uuid messageCount participantCount createdAt
        messages(last: 10) { edges { cursor node { ...Full } } } around: messages(first: 3, around: $m) { edges { node { uuid } } }
        participants { edges { node { role joinedAt user { username } readUpTo { uuid } } } } } }
     fragment Full on Message { id uuid kind body createdAt editedAt deletedAt metadata status clientKey
        sender { username } replyTo { body } attachments { url mimeType sizeBytes width }
        reactions { emoji count viewerHasReacted } }",
    "query($m: ID!, $ids: [ID!]!) { node(id: $m) { id __typename ... on Message { body } } nodes(ids: $ids) { id } }",
    "query($no: Boolean!, $yes: Boolean!) { viewer { id @skip(if: $yes) username @include(if: $yes) displayName @include(if: $no) } }",
    "query($nowhere: ID!) { conversation(id: $nowhere) { id } viewer { username } }",
    "query($text: String! = \"not a cursor\") { inbox(after: $text) { edges { cursor } } }",
    "{ __schema { queryType { name } subscriptionType { fields { name args { name } } } } }",
];

/// Mutations that have the same result when they are repeated.
const MUTATIONS: &[&str] = &[
    "mutation($c: ID!, $heap: JSON) { sendMessage(input: {conversationId: $c, body: \"once\", metadata: $heap, idempotencyKey: \"once\"}) {
        messageEdge { cursor node { id body metadata createdAt } } inboxEntryEdge { node { unreadCount } } } }",
    "mutation($c: ID!, $m: ID!) { markRead(input: {conversationId: $c, messageId: $m}) { inboxEntry { unreadCount readUpTo { uuid } } } }",
    "mutation($m: ID!) { addReaction(input: {messageId: $m, emoji: \"👍\"}) { message { reactions { emoji count viewerHasReacted } } } }",
    "mutation($c: ID!) { first: updateInboxEntry(input: {conversationId: $c, pinned: true}) { inboxEntry { isPinned } }
        second: updateInboxEntry(input: {conversationId: $c, muted: true}) { inboxEntry { isPinned isMuted } } }",
    "mutation { updateProfile(input: {displayName: \"Alice A.\"}) { user { displayName } } }",
    "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"\"}) { messageEdge { cursor } } }",
    "mutation($nowhere: ID!) { sendMessage(input: {conversationId: $nowhere, body: \"lost\"}) { messageEdge { cursor } } }",
];

/// Subscriptions that replay at least so many events from the store.
const REPLAYS: &[(&str, usize)] = &[
    (
        "subscription($c: ID!, $start: String) { messageAdded(conversationId: $c, after: $start) { messageEdge { cursor
            node { id body createdAt sender { username } reactions { emoji } } } } }",
        3,
    ),
    (
        "subscription($c: ID!, $events: String) { conversationEvents(conversationId: $c, after: $events) { cursor event { __typename
            ... on MessageAddedEvent { messageEdge { node { body } } } ... on MarkerMovedEvent { participant { user { username } } } } } }",
        2,
    ),
    (
        "subscription($c: ID!, $start: String) { ...Root } fragment Root on Subscription {
            messageAdded(conversationId: $c, after: $start) { messageEdge { node { replyTo { body } inbox: conversation { inboxEntry { unreadCount } } } } } }",
        3,
    ),
];

struct Fixture {
    server: ChatServer,
    peer: SocketAddr,
    variables: Value,
}

impl Fixture {
    /// A direct conversation with what a message can have, and a group.
    async fn start() -> Self {
        let server = ChatServer::start(ServerBounds::default(), Bounds::default()).await;
        let peer = server.peer();
        let (alice, bob) = (server.user("alice"), server.user("bob"));
        let direct = alice.direct("bob").await;
        let events = alice
            .data(
                "query($c: ID!) { conversation(id: $c) { eventsCursor } }",
                json!({ "c": direct }),
            )
            .await;
        let first = bob.send(&direct, "a \"quoted\" text\t of ünïcödé").await;
        let document = "mutation($c: ID!, $m: ID!) { sendMessage(input: {conversationId: $c, body: \"reply\", replyToId: $m,
            attachments: [{url: \"https://example.org/a.png\", mimeType: \"image/png\", sizeBytes: 1e10, width: 3}]}) { messageEdge { cursor } } }";
        alice
            .data(document, json!({ "c": direct, "m": first.id }))
            .await;
        let last = bob.send(&direct, "unread").await;
        bob.send(&direct, "unread too").await;
        alice.group("Choir", &["bob"]).await;
        let variables = json!({
            "c": direct,
            "m": last.id,
            "ids": [last.id, first.id, direct],
            "start": first.cursor,
            "events": events["conversation"]["eventsCursor"],
            "nowhere": "AWNVDoQA4ptB1KcWRGZVRAAB",
            "yes": true,
            "no": false,
            "heap": { "list": [1, 2.5, null, "ä"], "deep": { "er": true } },
        });
        Self {
            server,
            peer,
            variables,
        }
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        [self.server.address, self.peer]
    }

    async fn posted(&self, address: SocketAddr, document: &str) -> Value {
        let token = self.server.token("alice");
        let mut caller = Caller::connect(address, &token).await.unwrap();
        caller.ask(document, &self.variables).await.unwrap().body
    }

    async fn got(&self, address: SocketAddr, document: &str) -> Value {
        let authorization = format!("Bearer {}", self.server.token("alice"));
        let query = Serializer::new(String::new())
            .append_pair("query", document)
            .append_pair("variables", &self.variables.to_string())
            .finish();
        let path = format!("/graphql?{query}");
        let headers = [("authorization", authorization.as_str())];
        client::http(address, "GET", &path, &headers, b"")
            .await
            .body
    }

    /// Payloads of one operation over a socket: the only one of a request, or the first ones of a
    /// subscription.
    async fn over_socket(&self, address: SocketAddr, document: &str, count: usize) -> Vec<Value> {
        let mut socket = Socket::connect(address, &self.server.token("alice")).await;
        start(&mut socket, document, &self.variables).await;
        let mut payloads = Vec::with_capacity(count);
        while payloads.len() < count {
            payloads.push(payload(&mut socket).await);
        }
        payloads
    }
}

async fn start(socket: &mut Socket, document: &str, variables: &Value) {
    let payload = json!({ "query": document, "variables": variables });
    socket
        .say(&json!({ "type": "subscribe", "id": "1", "payload": payload }))
        .await;
}

async fn payload(socket: &mut Socket) -> Value {
    let mut heard = socket.hear().await;
    assert_eq!(
        (&heard["type"], &heard["id"]),
        (&json!("next"), &json!("1")),
        "{heard}"
    );
    heard["payload"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_have_the_same_data_over_post_get_and_sockets() {
    let fixture = Fixture::start().await;
    let [ours, peer] = fixture.addresses();
    for document in QUERIES {
        let expected = fixture.posted(peer, document).await;
        assert!(expected.get("data").is_some(), "{document}: {expected}");
        let posted = fixture.posted(ours, document).await;
        assert_eq!(posted, expected, "POST of {document}");
        for (address, whose) in [(ours, "ours"), (peer, "the library's")] {
            let got = fixture.got(address, document).await;
            assert_eq!(got, expected, "GET of {document}, {whose}");
            let heard = fixture.over_socket(address, document, 1).await;
            assert_eq!(heard[0], expected, "socket of {document}, {whose}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mutations_have_the_same_data_over_post_and_sockets() {
    let fixture = Fixture::start().await;
    let [ours, peer] = fixture.addresses();
    for document in MUTATIONS {
        let expected = fixture.posted(ours, document).await;
        assert!(expected.get("data").is_some(), "{document}: {expected}");
        let posted = fixture.posted(peer, document).await;
        assert_eq!(posted, expected, "POST of {document}");
        for address in [ours, peer] {
            let heard = fixture.over_socket(address, document, 1).await;
            assert_eq!(heard[0], expected, "socket of {document}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_replay_the_same_events() {
    let fixture = Fixture::start().await;
    let [ours, peer] = fixture.addresses();
    for (document, count) in REPLAYS {
        let expected = fixture.over_socket(peer, document, *count).await;
        let heard = fixture.over_socket(ours, document, *count).await;
        assert_eq!(heard, expected, "{document}");
        let bare = |payload: &Value| payload.get("errors").is_none() && payload["data"].is_object();
        assert!(expected.iter().all(bare), "{expected:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_message_is_delivered_with_the_same_data() {
    let fixture = Fixture::start().await;
    let (document, replayed) = REPLAYS[0];
    let mut sockets = Vec::new();
    for address in fixture.addresses() {
        let mut socket = Socket::connect(address, &fixture.server.token("alice")).await;
        start(&mut socket, document, &fixture.variables).await;
        // After the replay the subscription is live.
        for _ in 0..replayed {
            payload(&mut socket).await;
        }
        sockets.push(socket);
    }
    let conversation = fixture.variables["c"].as_str().unwrap();
    let sent = fixture.server.user("bob").send(conversation, "news").await;
    let mut delivered = Vec::new();
    for socket in &mut sockets {
        delivered.push(payload(socket).await);
    }
    assert_eq!(delivered[0], delivered[1]);
    assert_eq!(
        delivered[0]["data"]["messageAdded"]["messageEdge"]["cursor"],
        sent.cursor.as_str()
    );
}
