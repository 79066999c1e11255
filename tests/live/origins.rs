//! Pages of other origins: what a browser is told, and which sockets are opened.

use serde_json::json;
use wideroom::server::ServerBounds;

use super::world::World;
use crate::support::client::Reply;

const LISTED: &str = "https://chat.example";
const OTHER: &str = "https://evil.example";

async fn world(origins: &str) -> World {
    World::with(ServerBounds {
        origins: origins.parse().unwrap(),
        ..ServerBounds::default()
    })
    .await
}

/// A browser that asks whether a page may send JSON with a token, and what it is told.
async fn preflight(world: &World, origin: &str) -> (u16, [String; 3]) {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "authorization,content-type",
        ),
    ];
    let response = world.ask("OPTIONS", "/graphql", &headers, b"").await;
    let names = [
        "access-control-allow-origin",
        "access-control-allow-methods",
        "access-control-allow-headers",
    ];
    let header = |name| {
        response
            .headers()
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
            .to_owned()
    };
    assert_eq!(
        response.headers().get("access-control-allow-credentials"),
        None
    );
    (response.status().as_u16(), names.map(header))
}

async fn ask_from(world: &World, origin: &str) -> Reply {
    let body = json!({ "query": "{ number(n: 1) }" }).to_string();
    world
        .http(
            "POST",
            "/graphql",
            &[("content-type", "application/json"), ("origin", origin)],
            body.as_bytes(),
        )
        .await
}

#[tokio::test]
async fn pages_of_a_listed_origin_may_use_the_api() {
    let world = world(LISTED).await;
    let (status, told) = preflight(&world, LISTED).await;
    assert_eq!(
        (status, told),
        (
            200,
            [LISTED, "GET,POST", "authorization,content-type"].map(str::to_owned)
        )
    );
    let reply = ask_from(&world, LISTED).await;
    assert_eq!(
        (reply.status, reply.header("access-control-allow-origin")),
        (200, LISTED)
    );
    // A page corrects its clock by `date`.
    assert_eq!(
        reply.header("access-control-expose-headers"),
        "date,retry-after,www-authenticate"
    );
    let vary: String = world
        .ask("GET", "/graphql", &[], b"")
        .await
        .headers()
        .get_all("vary")
        .iter()
        .map(|v| v.to_str().unwrap())
        .collect();
    assert!(
        vary.contains("origin") && vary.contains("authorization"),
        "{vary}"
    );
}

#[tokio::test]
async fn a_page_of_a_listed_origin_may_read_every_refusal() {
    let world = world(LISTED).await;
    for (path, status) in [
        ("/graphql/", 404),
        ("/graphql/nothing", 404),
        ("/nothing", 404),
        ("/graphql/ws", 426),
    ] {
        let reply = world.http("GET", path, &[("origin", LISTED)], b"").await;
        let told = (reply.status, reply.header("access-control-allow-origin"));
        assert_eq!(told, (status, LISTED), "{path}");
        assert!(!reply.code().is_empty(), "{path}");
    }
}

#[tokio::test]
async fn pages_of_other_origins_are_told_nothing() {
    let world = world(LISTED).await;
    assert_eq!(preflight(&world, OTHER).await.1[0], "");
    assert_eq!(
        ask_from(&world, OTHER)
            .await
            .header("access-control-allow-origin"),
        ""
    );
}

#[tokio::test]
async fn without_a_list_nobody_is() {
    let world = world("none").await;
    assert_eq!(
        preflight(&world, LISTED).await,
        (405, [""; 3].map(str::to_owned))
    );
    assert_eq!(
        ask_from(&world, LISTED)
            .await
            .header("access-control-allow-origin"),
        ""
    );
}

#[tokio::test]
async fn a_star_lets_in_every_page_without_credentials() {
    let world = world("*").await;
    assert_eq!(preflight(&world, OTHER).await.1[0], "*");
    assert_eq!(
        ask_from(&world, OTHER)
            .await
            .header("access-control-allow-origin"),
        "*"
    );
    world
        .socket_with(&[("origin", OTHER)])
        .await
        .unwrap()
        .init(None)
        .await;
}

#[tokio::test]
async fn a_socket_of_a_foreign_page_is_refused_before_it_is_one() {
    let world = world(LISTED).await;
    for origin in [OTHER, "null", "http://chat.example"] {
        let refusal = world
            .socket_with(&[("origin", origin)])
            .await
            .err()
            .unwrap();
        assert_eq!(
            (refusal.status, &refusal.error["code"]),
            (403, &json!("FORBIDDEN")),
            "{origin}"
        );
    }
    let own = world.url().replace("/graphql", "");
    for origin in [LISTED, &own] {
        world
            .socket_with(&[("origin", origin)])
            .await
            .unwrap()
            .init(None)
            .await;
    }
    world.socket().await.init(None).await;
}
