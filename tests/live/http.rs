//! GraphQL over HTTP: what is answered, and how each thing that is wrong is told.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wideroom::server::{AdmissionBounds, HeadBounds, ServerBounds, SocketBounds};

use super::world::{Reply, World, soon};

const JSON: (&str, &str) = ("content-type", "application/json");

fn brief() -> ServerBounds {
    ServerBounds {
        request: Duration::from_millis(50),
        ..ServerBounds::default()
    }
}

fn assert_refusal(reply: &Reply, status: u16, code: &str, part: &str) {
    assert_eq!(
        (reply.status, reply.code()),
        (status, code),
        "{}",
        reply.body
    );
    assert!(
        reply.message().contains(part) && reply.message().ends_with('.'),
        "{}",
        reply.message()
    );
    assert!(reply.body.get("data").is_none(), "{}", reply.body);
}

#[tokio::test]
async fn a_query_is_answered_by_post_and_by_get() {
    let world = World::start().await;
    let reply =
        world.post(&json!({ "query": "query E($t: String!) { echo(text: $t) }", "variables": { "t": "hé" }, "operationName": "E" })).await;
    assert_eq!(
        (reply.status, &reply.body),
        (200, &json!({ "data": { "echo": "hé" } }))
    );
    assert_eq!(
        reply.header("content-type"),
        "application/graphql-response+json; charset=utf-8"
    );
    assert_eq!(reply.header("cache-control"), "no-store");
    let query = "query=query%20A%7Becho(text%3A%22a%22)%7D%20query%20B(%24n%3AInt!)%7Bnumber(n%3A%24n)%7D&operationName=B&variables=%7B%22n%22%3A7%7D";
    assert_eq!(
        world.get(query).await.body,
        json!({ "data": { "number": 7 } })
    );
}

#[tokio::test]
async fn null_stands_for_what_is_left_out() {
    let world = World::start().await;
    let reply = world.post(&json!({ "query": "{ number(n: 1) }", "variables": null, "operationName": null, "extensions": null })).await;
    assert_eq!(reply.body, json!({ "data": { "number": 1 } }));
}

#[tokio::test]
async fn a_bad_request_is_told_with_its_status_its_code_and_a_sentence() {
    let world = World::start().await;
    let large = format!("{{\"query\":\"{}\"}}", "x".repeat(200_000));
    let deep = format!(
        "{{\"query\":\"{{ number(n: 1) }}\",\"variables\":{}{}}}",
        "{\"a\":".repeat(200) + "1",
        "}".repeat(200)
    );
    let long_variables =
        json!({ "query": "{ number(n: 1) }", "variables": { "a": "x".repeat(70_000) } })
            .to_string();
    for (body, status, part) in [
        ("", 400, "empty"),
        ("   ", 400, "empty"),
        ("{", 400, "EOF"),
        ("{\"query\": \"{ a }\"", 400, "EOF"),
        ("{\"query\": \"\\ud800\"}", 400, "JSON"),
        ("{} {}", 400, "trailing"),
        ("7", 422, "JSON object"),
        ("null", 422, "JSON object"),
        ("{}", 422, "no `query`"),
        ("{\"query\": \"\"}", 422, "no `query`"),
        ("{\"query\": 7}", 422, "string"),
        (
            "{\"query\": \"{ number(n: 1) }\", \"variables\": [1]}",
            422,
            "`variables`",
        ),
        (
            "{\"query\": \"{ number(n: 1) }\", \"operationName\": 1}",
            422,
            "string",
        ),
        (
            "{\"query\": \"{ number(n: 1) }\", \"extensions\": 1}",
            422,
            "JSON object",
        ),
        (
            "{\"query\": \"{ number(n: 1) }\", \"extensions\": []}",
            422,
            "JSON object",
        ),
        (
            "{\"query\": \"{ number(n: 1) }\", \"extensions\": [{\"sha256Hash\": \"x\"}]}",
            422,
            "JSON object",
        ),
        (
            "{\"query\": \"{ number(n: 1) }\", \"extensions\": {\"persistedQuery\": []}}",
            422,
            "JSON object",
        ),
        ("[{\"query\": \"{ number(n: 1) }\"}]", 422, "Batches"),
        (&deep, 422, "recursion"),
        (&large, 413, "131072 bytes"),
        (&long_variables, 413, "65536 bytes"),
    ] {
        let reply = world
            .http("POST", "/graphql", &[JSON], body.as_bytes())
            .await;
        assert_refusal(&reply, status, "BAD_USER_INPUT", part);
        // A client that only knows plain JSON is told the same.
        let reply = world
            .http(
                "POST",
                "/graphql",
                &[JSON, ("accept", "application/json")],
                body.as_bytes(),
            )
            .await;
        assert_refusal(&reply, status, "BAD_USER_INPUT", part);
    }
    assert_refusal(
        &world
            .http("POST", "/graphql", &[JSON], b"{\"query\":\"\xff\"}")
            .await,
        400,
        "BAD_USER_INPUT",
        "UTF-8",
    );
}

#[tokio::test]
async fn a_bad_document_is_told_with_its_status_and_as_success_to_plain_json() {
    let world = World::start().await;
    let many = format!("{{ {} }}", "number(n: 1) ".repeat(501));
    for (request, status, part) in [
        (json!({ "query": "{ number(" }), 400, "cannot be parsed"),
        (json!({ "query": "{ nothing }" }), 422, "nothing"),
        (
            json!({ "query": "{ number(n: \"x\") }" }),
            422,
            "must be of the type `Int`",
        ),
        (
            json!({ "query": "query($n: Int!) { number(n: $n) }" }),
            400,
            "$n",
        ),
        (
            json!({ "query": "query A { number(n: 1) }", "operationName": "B" }),
            422,
            "operationName",
        ),
        (
            json!({ "query": "query A { number(n: 1) } query B { number(n: 1) }" }),
            422,
            "operationName",
        ),
        (
            json!({ "query": "query A { number(n: 1) } query B { number(n: 1) }", "operationName": "C" }),
            422,
            "operationName",
        ),
        (json!({ "query": many }), 422, "more than"),
        (
            json!({ "query": "{ ...A } fragment A on Query { ...A }" }),
            422,
            "spreads itself",
        ),
    ] {
        let reply = world.post(&request).await;
        assert_eq!(
            (reply.status, reply.code()),
            (status, "BAD_USER_INPUT"),
            "{}",
            reply.body
        );
        assert!(reply.message().contains(part), "{}", reply.body);
        assert!(reply.body.get("data").is_none(), "{}", reply.body);
        let plain = world
            .http(
                "POST",
                "/graphql",
                &[JSON, ("accept", "application/json")],
                request.to_string().as_bytes(),
            )
            .await;
        assert_eq!(
            (plain.status, plain.header("content-type")),
            (200, "application/json; charset=utf-8")
        );
        assert_eq!(plain.body, reply.body);
    }
}

#[tokio::test]
async fn a_document_that_is_wrong_in_many_places_is_told_the_first_with_its_position() {
    let world = World::start().await;
    let reply = world
        .post(&json!({ "query": "{ number(n: 1)\n  nothing missing(x: 1) }" }))
        .await;
    assert_eq!(reply.status, 422);
    let errors = reply.body["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{}", reply.body);
    assert_eq!(errors[0]["locations"], json!([{ "line": 2, "column": 3 }]));
}

#[tokio::test]
async fn a_resolver_error_is_an_http_success() {
    let world = World::start().await;
    let reply = world
        .post(&json!({ "query": "{ missing number(n: 1) }" }))
        .await;
    assert_eq!((reply.status, reply.code()), (200, "NOT_FOUND"));
    assert_eq!(reply.body["data"], json!({ "missing": null, "number": 1 }));
    assert_eq!(reply.body["errors"][0]["path"], json!(["missing"]));
    // A coercion that the library only notices while executing.
    let reply = world
        .post(&json!({ "query": "{ number(n: 3000000000) }" }))
        .await;
    assert_eq!(reply.code(), "BAD_USER_INPUT");
}

#[tokio::test]
async fn a_post_must_be_json() {
    let world = World::start().await;
    let body = json!({ "query": "{ number(n: 1) }" }).to_string();
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=latin1",
    ] {
        let reply = world
            .http(
                "POST",
                "/graphql",
                &[("content-type", content_type)],
                body.as_bytes(),
            )
            .await;
        assert_refusal(&reply, 415, "BAD_USER_INPUT", "application/json");
    }
    assert_refusal(
        &world.http("POST", "/graphql", &[], body.as_bytes()).await,
        415,
        "BAD_USER_INPUT",
        "application/json",
    );
}

#[tokio::test]
async fn answers_come_in_the_media_type_that_is_accepted() {
    let world = World::start().await;
    let body = json!({ "query": "{ number(n: 1) }" }).to_string();
    let ours = "application/graphql-response+json; charset=utf-8";
    let plain = "application/json; charset=utf-8";
    for (accept, content_type) in [
        ("application/graphql-response+json", ours),
        ("*/*", plain),
        ("application/json", plain),
        (
            "application/graphql-response+json;q=0.1, application/json;q=0.2",
            plain,
        ),
    ] {
        let reply = world
            .http(
                "POST",
                "/graphql",
                &[JSON, ("accept", accept)],
                body.as_bytes(),
            )
            .await;
        assert_eq!(
            (reply.status, reply.header("content-type")),
            (200, content_type),
            "{accept}"
        );
    }
    let reply = world
        .http(
            "POST",
            "/graphql",
            &[JSON, ("accept", "text/html")],
            body.as_bytes(),
        )
        .await;
    assert_refusal(&reply, 406, "BAD_USER_INPUT", "Accept");
}

#[tokio::test]
async fn get_changes_nothing_and_other_methods_are_none() {
    let world = World::start().await;
    let reply = world.get("query=mutation%7Bsay(text%3A%22a%22)%7D").await;
    assert_refusal(&reply, 405, "BAD_USER_INPUT", "POST");
    assert_eq!(reply.header("allow"), "POST");
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS"] {
        let reply = world.http(method, "/graphql", &[JSON], b"{}").await;
        assert_refusal(&reply, 405, "BAD_USER_INPUT", "GET or POST");
        assert_eq!(reply.header("allow"), "GET, POST");
    }
    for (query, status) in [
        ("", 422),
        ("query=", 422),
        ("query=%7Bnumber(n%3A1)%7D&variables=%7B", 400),
        ("query=%7Ba%7D&query=%7Ba%7D", 422),
    ] {
        let reply = world.get(query).await;
        assert_eq!(
            (reply.status, reply.code()),
            (status, "BAD_USER_INPUT"),
            "{query}"
        );
    }
}

#[tokio::test]
async fn a_viewer_is_who_the_token_names() {
    let world = World::start().await;
    let body = json!({ "query": "{ me }" }).to_string();
    let ask = async |authorization: &str| {
        world
            .http(
                "POST",
                "/graphql",
                &[JSON, ("authorization", authorization)],
                body.as_bytes(),
            )
            .await
    };
    let token = world.token("alice", Duration::from_secs(60));
    for scheme in ["Bearer", "bearer", "BEARER"] {
        assert_eq!(
            ask(&format!("{scheme} {token}")).await.body,
            json!({ "data": { "me": "alice" } })
        );
    }
    assert_eq!(
        world.post(&json!({ "query": "{ me }" })).await.code(),
        "UNAUTHENTICATED"
    );
    for authorization in [
        format!("Bearer {}", world.forged()),
        format!("Bearer {}", world.expired()),
        "Bearer x".into(),
        "Bearer".into(),
        "Basic YTpi".into(),
        String::new(),
    ] {
        let reply = ask(&authorization).await;
        assert_refusal(&reply, 401, "UNAUTHENTICATED", "token");
        assert_eq!(
            reply.header("www-authenticate"),
            "Bearer error=\"invalid_token\""
        );
    }
    assert_refusal(
        &ask(&format!("Bearer {}", world.expired())).await,
        401,
        "UNAUTHENTICATED",
        "expired",
    );
}

#[tokio::test]
async fn a_slow_query_is_unavailable_and_a_slow_mutation_has_an_unknown_outcome() {
    let world = World::with(brief()).await;
    let reply = world.post(&json!({ "query": "{ wait }" })).await;
    assert_refusal(&reply, 503, "UNAVAILABLE", "50 ms");
    assert_eq!(reply.body["errors"][0]["extensions"].get("outcome"), None);
    let reply = world.post(&json!({ "query": "mutation { wait }" })).await;
    assert_refusal(&reply, 503, "UNAVAILABLE", "50 ms");
    assert_eq!(reply.body["errors"][0]["extensions"]["outcome"], "UNKNOWN");
}

#[tokio::test]
async fn the_work_of_a_client_that_goes_away_is_dropped() {
    let world = World::start().await;
    let mut stream = world.tcp().await;
    let body = json!({ "query": "mutation { slow(ms: 3600000) }" }).to_string();
    let head = format!(
        "POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    world.alive(1).await;
    drop(stream);
    world.alive(0).await;
}

#[tokio::test]
async fn a_body_that_never_ends_is_given_up() {
    let world = World::with(brief()).await;
    let mut stream = world.tcp().await;
    stream.write_all(b"POST /graphql HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    let mut start = [0; 12];
    soon(stream.read_exact(&mut start)).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 408");
}

#[tokio::test]
async fn a_client_that_never_sends_a_head_is_disconnected() {
    let short = Duration::from_millis(50);
    let head = HeadBounds {
        idle: short,
        wait: short,
        ..HeadBounds::default()
    };
    let world = World::with(ServerBounds {
        head,
        ..ServerBounds::default()
    })
    .await;
    for start in ["", "POST /graphql HTTP/1.1\r\nhost: x\r\n"] {
        let mut stream = world.tcp().await;
        stream.write_all(start.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        soon(stream.read_to_end(&mut said)).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_a_large_answer_is_disconnected() {
    let sockets = SocketBounds {
        write: Duration::from_millis(50),
        ..SocketBounds::default()
    };
    let rates = AdmissionBounds {
        user_answer_bytes: usize::MAX,
        ..AdmissionBounds::default()
    };
    let world = World::with(ServerBounds {
        connections: 1,
        sockets,
        rates,
        answer_bytes: usize::MAX,
        ..ServerBounds::default()
    })
    .await;
    let mut stream = world.tcp().await;
    stream
        .write_all(b"GET /graphql?query=%7Blarge(bytes:50000000)%7D HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut start = [0; 12];
    soon(stream.read_exact(&mut start)).await.unwrap();
    assert_eq!(&start, b"HTTP/1.1 200");
    // The only place is free again.
    assert_eq!(
        world
            .post(&json!({ "query": "{ number(n: 1) }" }))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_panic_is_an_internal_error_and_the_server_goes_on() {
    let world = World::start().await;
    let reply = world.post(&json!({ "query": "{ panic }" })).await;
    assert_refusal(&reply, 500, "INTERNAL", "logged");
    assert!(!reply.body.to_string().contains("on demand"));
    assert_eq!(
        world
            .post(&json!({ "query": "{ number(n: 1) }" }))
            .await
            .status,
        200
    );
}

#[tokio::test]
async fn a_persisted_query_is_not_supported_unless_the_document_is_there_too() {
    let world = World::start().await;
    let extensions = json!({ "persistedQuery": { "version": 1, "sha256Hash": "ab" } });
    let reply = world.post(&json!({ "extensions": extensions })).await;
    let told = (reply.status, reply.code(), reply.message());
    let code = "PERSISTED_QUERY_NOT_SUPPORTED";
    // The word that clients compare.
    assert_eq!(told, (400, code, "PersistedQueryNotSupported"));
    let reply = world
        .post(&json!({ "query": "{ number(n: 1) }", "extensions": extensions }))
        .await;
    assert_eq!(reply.body, json!({ "data": { "number": 1 } }));
    let reply = world
        .get("extensions=%7B%22persistedQuery%22%3A%7B%22version%22%3A1%7D%7D")
        .await;
    assert_eq!(reply.code(), "PERSISTED_QUERY_NOT_SUPPORTED");
}

#[tokio::test]
async fn a_subscription_is_sent_to_the_other_door() {
    let world = World::start().await;
    for accept in ["*/*", "application/json"] {
        let body = json!({ "query": "subscription { count(to: 1) }" }).to_string();
        let reply = world
            .http(
                "POST",
                "/graphql",
                &[JSON, ("accept", accept)],
                body.as_bytes(),
            )
            .await;
        assert_refusal(&reply, 400, "BAD_USER_INPUT", "/graphql/ws");
    }
}

#[tokio::test]
async fn an_unknown_path_is_answered_in_json() {
    let world = World::start().await;
    for path in ["/graphql/", "/graphql/x", "/graphql/ws/x", "/x"] {
        assert_refusal(
            &world.http("GET", path, &[], b"").await,
            404,
            "NOT_FOUND",
            "/graphql",
        );
    }
    let reply = world.http("GET", "/graphql/ws", &[], b"").await;
    assert_refusal(&reply, 426, "BAD_USER_INPUT", "WebSocket");
    assert_eq!(reply.header("upgrade"), "websocket");
}

#[tokio::test]
async fn a_bomb_of_fragments_does_no_harm() {
    let world = World::start().await;
    let mut query = "{...a0}".to_owned();
    for number in 0..24 {
        query += &format!(
            "fragment a{number} on Query{{...a{next} ...a{next}}}",
            next = number + 1
        );
    }
    query += "fragment a24 on Query{number(n:1)}";
    assert_refusal(
        &world.post(&json!({ "query": query })).await,
        422,
        "BAD_USER_INPUT",
        "more than",
    );
}

#[tokio::test]
async fn introspection_works_through_the_guard_and_the_library() {
    let world = World::start().await;
    let reply = world
        .post(&json!({ "query": "{ __schema { types { name fields { name type { name ofType { name ofType { name } } } } } } }" }))
        .await;
    assert!(
        matches!(&reply.body["data"]["__schema"]["types"], Value::Array(types) if types.len() > 5),
        "{}",
        reply.body
    );
}
