//! A list of documents, and nothing else is run: over HTTP, as a stream, and over a WebSocket.

use serde_json::{Value, json};

use super::world::{World, soon};

const NUMBER: &str = "query Number($n: Int!) { number(n: $n) }";

async fn world() -> World {
    World::trusting(&json!({ "one": NUMBER, "two": "subscription { count(to: 1) }", "three": "mutation { say(text: \"a\") }" })).await
}

#[tokio::test]
async fn a_document_of_the_list_is_run_by_its_id_or_its_text() {
    let world = world().await;
    for mut body in [
        json!({ "documentId": "one" }),
        json!({ "doc_id": "one" }),
        json!({ "documentId": "sha256:one", "query": null }),
        json!({ "query": "", "extensions": { "persistedQuery": { "version": 1, "sha256Hash": "one" } } }),
        json!({ "query": NUMBER }),
    ] {
        body["variables"] = json!({ "n": 7 });
        let reply = world.post(&body).await;
        assert_eq!(
            (reply.status, &reply.body),
            (200, &json!({ "data": { "number": 7 } })),
            "{body}"
        );
    }
    assert_eq!(
        world
            .get("documentId=one&variables=%7B%22n%22:7%7D")
            .await
            .body,
        json!({ "data": { "number": 7 } })
    );
    // Requests by id obey the same rules as requests by text.
    assert_eq!(world.get("documentId=three").await.status, 405);
    assert_eq!(
        world.post(&json!({ "documentId": "one" })).await.status,
        400
    );
}

#[tokio::test]
async fn nothing_else_is_run() {
    let world = world().await;
    for (body, status, code) in [
        (json!({ "query": "{ number(n: 1) }" }), 403, "FORBIDDEN"),
        (
            json!({ "query": "{ number(n: 1) }", "documentId": "one" }),
            403,
            "FORBIDDEN",
        ),
        (
            json!({ "query": "{ __schema { types { name } } }" }),
            403,
            "FORBIDDEN",
        ),
        (
            json!({ "query": "subscription { forever }" }),
            403,
            "FORBIDDEN",
        ),
        (
            json!({ "documentId": "four" }),
            400,
            "PERSISTED_QUERY_NOT_SUPPORTED",
        ),
        (
            json!({ "extensions": { "persistedQuery": {} } }),
            400,
            "PERSISTED_QUERY_NOT_SUPPORTED",
        ),
        (json!({ "variables": {} }), 422, "BAD_USER_INPUT"),
    ] {
        let reply = world.post(&body).await;
        assert_eq!((reply.status, reply.code()), (status, code), "{body}");
        // The word that clients compare.
        let is_compared = reply.message() == "PersistedQueryNotFound";
        assert_eq!(is_compared, code.starts_with("PERSISTED"), "{}", reply.body);
        assert!(reply.body.get("data").is_none());
    }
    world.alive(0).await;
}

#[tokio::test]
async fn a_socket_runs_what_is_in_the_list_and_goes_on() {
    let world = world().await;
    let mut socket = world.open().await;
    let ask =
        |id: &str, payload: Value| json!({ "type": "subscribe", "id": id, "payload": payload });
    socket
        .say(&ask("1", json!({ "query": "subscription { forever }" })))
        .await;
    let refused = socket.hear().await;
    assert_eq!(
        (
            &refused["type"],
            &refused["payload"][0]["extensions"]["code"]
        ),
        (&json!("error"), &json!("FORBIDDEN"))
    );
    socket.say(&ask("2", json!({ "documentId": "four" }))).await;
    assert_eq!(
        socket.hear().await["payload"][0]["extensions"]["code"],
        "PERSISTED_QUERY_NOT_SUPPORTED"
    );
    socket
        .say(&ask("3", json!({ "query": "", "documentId": "two" })))
        .await;
    assert_eq!(
        socket.hear().await["payload"],
        json!({ "data": { "count": 0 } })
    );
    assert_eq!(socket.hear().await["type"], "complete");
    world.alive(0).await;
}

#[tokio::test]
async fn a_stream_is_of_a_document_of_the_list() {
    use http_body_util::BodyExt as _;

    let world = world().await;
    let headers = [
        ("content-type", "application/json"),
        ("accept", "text/event-stream"),
    ];
    for (body, part) in [
        (json!({ "documentId": "two" }), "{\"count\":0}"),
        (json!({ "query": "subscription { forever }" }), "FORBIDDEN"),
    ] {
        let response = world
            .ask("POST", "/graphql", &headers, body.to_string().as_bytes())
            .await;
        let bytes = soon(response.into_body().collect())
            .await
            .unwrap()
            .to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        assert!(
            text.contains(part) && text.contains("event: complete"),
            "{text}"
        );
    }
}
