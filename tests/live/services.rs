//! Services over real sockets: `Wideroom-As` by every method of HTTP, and `as` in `connection_init`.

use serde_json::{Value, json};
use wideroom::model::ServiceRight;
use wideroom::server::{AdmissionBounds, ServerBounds};

use super::chat_server::ChatServer;
use super::world::{World, soon};
use crate::support::client::{Caller, Socket, try_socket};

const ASKED: &str = "{ me service }";

fn init(token: &str, acted_user: Value) -> Value {
    json!({
        "type": "connection_init",
        "payload": { "Authorization": format!("Bearer {token}"), "as": acted_user },
    })
}

#[tokio::test]
async fn a_service_acts_by_get_and_by_post() {
    let world = World::start().await;
    let authorization = format!("Bearer {}", world.service_token("backend"));
    let headers = [
        ("content-type", "application/json"),
        ("authorization", authorization.as_str()),
        ("Wideroom-As", "alice"),
    ];
    let body = json!({ "query": ASKED }).to_string();
    let posted = world
        .http("POST", "/graphql", &headers, body.as_bytes())
        .await;
    let expected = json!({ "data": { "me": "alice", "service": "backend" } });
    assert_eq!(posted.body, expected);
    let path = "/graphql?query=%7B%20me%20service%20%7D";
    let got = world.http("GET", path, &headers[1..], b"").await;
    assert_eq!(got.body, expected);
    let itself = world.http("GET", path, &headers[1..2], b"").await;
    assert_eq!(
        itself.body,
        json!({ "data": { "me": "backend", "service": "backend" } })
    );
    let without_token = world.http("GET", path, &headers[2..], b"").await;
    assert_eq!(
        (without_token.status, without_token.code()),
        (403, "FORBIDDEN")
    );
}

#[tokio::test]
async fn a_service_acts_on_a_socket() {
    let world = World::start().await;
    let mut socket = world.socket().await;
    socket
        .say(&init(&world.service_token("backend"), json!("alice")))
        .await;
    assert_eq!(socket.hear().await, json!({ "type": "connection_ack" }));
    socket.subscribe("1", ASKED).await;
    assert_eq!(
        socket.told("1").await,
        json!({ "me": "alice", "service": "backend" })
    );
}

#[tokio::test]
async fn a_socket_without_the_right_to_act_is_closed() {
    let world = World::start().await;
    let life = std::time::Duration::from_secs(60);
    let (user, service) = (world.token("alice", life), world.service_token("backend"));
    let others = ServiceRight::ALL.iter().copied();
    let others = others.filter(|right| *right != ServiceRight::Act).collect();
    let narrow = world.scoped_token("backend", others);
    let long = "x".repeat(129);
    for (token, acted_user, code) in [
        (&user, json!("bob"), 4403),
        (&user, json!("alice"), 4403),
        (&narrow, json!("alice"), 4403),
        (&user, json!(""), 4403),
        (&service, json!(""), 4400),
        (&service, json!("a\tb"), 4400),
        (&service, json!(long), 4400),
        (&service, json!(7), 4400),
        (&service, json!(["alice"]), 4400),
    ] {
        let mut socket = world.socket().await;
        socket.say(&init(token, acted_user.clone())).await;
        assert_eq!(socket.closed().await.0, code, "{acted_user}");
    }
    let mut socket = world.socket().await;
    socket
        .say(&json!({ "type": "connection_init", "payload": { "as": "alice" } }))
        .await;
    assert_eq!(socket.closed().await.0, 4403, "without a token");
    let refused = world
        .socket_with(&[("wideroom-as", "alice")])
        .await
        .err()
        .unwrap();
    assert_eq!(
        (refused.status, &refused.error["code"]),
        (400, &json!("BAD_USER_INPUT")),
        "the header is for HTTP"
    );
}

#[tokio::test]
async fn sockets_count_for_the_service_that_opened_them() {
    let rates = AdmissionBounds {
        user_sockets: 1,
        service_sockets: 2,
        ..AdmissionBounds::default()
    };
    let world = World::with(ServerBounds {
        rates,
        ..ServerBounds::default()
    })
    .await;
    let token = world.service_token("backend");
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut socket = world.socket().await;
        socket.say(&init(&token, json!("alice"))).await;
        assert_eq!(socket.hear().await, json!({ "type": "connection_ack" }));
        open.push(socket);
    }
    let mut third = world.socket().await;
    third.say(&init(&token, json!("bob"))).await;
    assert_eq!(third.closed().await.0, 4291);
    // The sockets of the service are none of alice's.
    let _own = world.open().await;
}

#[tokio::test]
async fn a_browser_never_sends_the_header() {
    let world = World::with(ServerBounds {
        origins: "*".parse().unwrap(),
        ..ServerBounds::default()
    })
    .await;
    let allowed = async |asked: &str| {
        let headers = [
            ("origin", "https://chat.example"),
            ("access-control-request-method", "POST"),
            ("access-control-request-headers", asked),
        ];
        let response = soon(world.ask("OPTIONS", "/graphql", &headers, b"")).await;
        let header = response.headers().get("access-control-allow-headers");
        header.map(|value| value.to_str().unwrap().to_owned())
    };
    let common = allowed("authorization,content-type").await;
    assert_eq!(common.as_deref(), Some("authorization,content-type"));
    for asked in [
        "authorization,wideroom-as,content-type",
        "Wideroom-As, authorization, content-type",
    ] {
        assert_eq!(
            allowed(asked).await.as_deref(),
            Some("authorization,content-type"),
            "{asked}"
        );
    }
    assert_eq!(allowed("wideroom-as").await, None);
}

#[tokio::test]
async fn a_service_acts_on_streams_over_http() {
    let world = World::start().await;
    let authorization = format!("Bearer {}", world.service_token("backend"));
    let body = json!({ "query": "subscription { whose }" }).to_string();
    for accept in ["text/event-stream", "multipart/mixed;subscriptionSpec=1.0"] {
        let headers = [
            ("content-type", "application/json"),
            ("accept", accept),
            ("authorization", authorization.as_str()),
            ("wideroom-as", "alice"),
        ];
        let response = world
            .ask("POST", "/graphql", &headers, body.as_bytes())
            .await;
        let bytes = http_body_util::BodyExt::collect(response.into_body());
        let text = soon(bytes).await.unwrap().to_bytes();
        let text = std::str::from_utf8(&text).unwrap();
        assert!(text.contains("{\"whose\":\"alice by backend\"}"), "{text}");
    }
}

async fn act(server: &ChatServer, document: &str) -> Value {
    let token = server.service_token("backend", 0);
    let mut caller = Caller::connect(server.address, &token).await.unwrap();
    caller.data(document, &json!({})).await.unwrap()
}

async fn socket(server: &ChatServer) -> Socket {
    Socket(
        try_socket(server.address, Some("graphql-transport-ws"))
            .await
            .unwrap(),
    )
}

/// 4401 is final for the usual client: it must not come back in a storm. 4403 lets it fetch a new token.
#[tokio::test]
async fn a_suspension_closes_sockets_4401_and_a_revocation_4403() {
    let server = ChatServer::start(ServerBounds::default(), Default::default()).await;
    let (mut alice, mut bob) = (server.socket("alice").await, server.socket("bob").await);
    alice
        .subscribe("1", "subscription { inboxUpdated { cursor } }")
        .await;
    alice.told("1").await;
    let mut acting = socket(&server).await;
    acting
        .say(&init(&server.service_token("backend", 0), json!("alice")))
        .await;
    assert_eq!(acting.hear().await, json!({ "type": "connection_ack" }));
    act(
        &server,
        "mutation { suspendUser(input: {username: \"alice\"}) { user { id } } }",
    )
    .await;
    assert_eq!(alice.closed().await.0, 4401);
    assert_eq!(acting.closed().await.0, 4401);
    let service = server.service_token("backend", 0);
    for refused in [
        init(&server.token("alice"), Value::Null),
        init(&service, json!("alice")),
    ] {
        let mut socket = socket(&server).await;
        socket.say(&refused).await;
        assert_eq!(socket.closed().await.0, 4401);
    }
    let old = server.token("bob");
    act(
        &server,
        "mutation { revokeTokens(input: {username: \"bob\"}) { revokedBefore } }",
    )
    .await;
    assert_eq!(bob.closed().await.0, 4403);
    let mut again = socket(&server).await;
    again.say(&init(&old, Value::Null)).await;
    assert_eq!(again.closed().await.0, 4403, "within the same second");
    server.socket("carol").await;
    act(
        &server,
        "mutation { restoreUser(input: {username: \"alice\"}) { user { id } } }",
    )
    .await;
    server.socket("alice").await;
}
