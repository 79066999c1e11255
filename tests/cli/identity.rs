//! Tokens at the doors of a running server: those of a demo, those that live too long, and keys that went wrong while it serves.

use std::time::Duration;

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::Program;
use super::access::{ask, end};
use crate::auth::files::{Folder, Pair, jwks};
use crate::support::client;
use crate::support::server::Server;

const WHO: &str = "{ viewer { username } }";
const SECRET: [u8; 40] = [b's'; 40];

/// A token as the pages of a demo get it.
async fn demo_token(server: &Server, username: &str) -> String {
    let (host, body) = (
        server.address().to_string(),
        json!({ "username": username }).to_string(),
    );
    let headers = [
        ("content-type", "application/json"),
        ("host", host.as_str()),
    ];
    let reply = client::http(
        server.address(),
        "POST",
        "/demo/token",
        &headers,
        body.as_bytes(),
    )
    .await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.body["token"].as_str().unwrap().to_owned()
}

/// Pages of a dev server ask for a token of the demo, and read how late it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_gives_tokens_to_pages_of_listed_origins() {
    const LISTED: &str = "http://localhost:5173";
    const OTHER: &str = "http://localhost:5174";
    let program = Program::new();
    let demo = Server::start(&program, &["--demo", "--cors-origins", LISTED]);
    let asked = |origin: &str| {
        super::serve::get(
            &demo.url,
            &format!(
                "OPTIONS /demo/token HTTP/1.1\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\n\
                 Access-Control-Request-Headers: content-type"
            ),
        )
    };
    let told = asked(LISTED);
    for line in [
        "HTTP/1.1 200",
        "access-control-allow-origin: http://localhost:5173\r\n",
        "access-control-allow-methods: GET,POST\r\n",
        "access-control-allow-headers: content-type\r\n",
    ] {
        assert!(told.contains(line), "{told}");
    }
    let told = asked(OTHER);
    assert!(!told.contains("access-control-allow-origin"), "{told}");

    let given = async |origin: &str| {
        let headers = [("content-type", "application/json"), ("origin", origin)];
        let body = br#"{"username":"alice"}"#;
        client::http(demo.address(), "POST", "/demo/token", &headers, body).await
    };
    let allowed = "access-control-allow-origin";
    let reply = given(LISTED).await;
    assert_eq!((reply.status, reply.header(allowed)), (200, LISTED));
    let exposed = reply.header("access-control-expose-headers");
    assert!(exposed.split(',').any(|name| name == "date"), "{exposed}");
    assert!(!reply.header("date").is_empty());
    // A browser shows the answer to no other page.
    assert_eq!(given(OTHER).await.header(allowed), "");

    // The package holds no data, so every page may import it.
    for (origin, told) in [(LISTED, LISTED), (OTHER, "*")] {
        let request = format!("GET /client/index.js HTTP/1.1\r\nOrigin: {origin}");
        let module = super::serve::get(&demo.url, &request);
        let expected = format!("{allowed}: {told}\r\n");
        assert_eq!(module.matches(allowed).count(), 1, "{module}");
        assert!(module.contains(&expected), "{module}");
    }
    end(demo);
}

/// The page runs the agent of the demo with a token that has the rights of a participant, and no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_agent_of_a_demo_is_a_participant_and_no_service() {
    let program = Program::new();
    let demo = Server::start(&program, &["--demo"]);
    let token = demo_token(&demo, "agent:echo").await;
    let reply = ask(demo.address(), &token, "{ viewer { username isAgent } }").await;
    let viewer = json!({ "username": "agent:echo", "isAgent": true });
    assert_eq!(reply.body["data"]["viewer"], viewer);
    for refused in [
        "{ users(first: 1) { edges { node { username } } } }",
        r#"mutation { suspendUser(input: {username: "alice"}) { user { id } } }"#,
    ] {
        let reply = ask(demo.address(), &token, refused).await;
        assert_eq!(reply.code(), "FORBIDDEN", "{refused}");
    }
    let start = r#"mutation { startDirectConversation(input: {username: "agent:echo"}) { conversation { id } } }"#;
    let bob = demo_token(&demo, "bob").await;
    let own = ask(demo.address(), &bob, start).await;
    let id = &own.body["data"]["startDirectConversation"]["conversation"]["id"];
    let kitchen = "AWNVDoQA4ptB1KcWRGZVRAAD";
    let write = |id: &str| {
        format!(
            r#"mutation {{ writeLiveMessage(input: {{conversationId: "{id}", key: "k", writer: "w", position: 0, text: "Hello"}}) {{ nextPosition }} }}"#
        )
    };
    let written = ask(demo.address(), &token, &write(id.as_str().unwrap())).await;
    assert_eq!(written.body["data"]["writeLiveMessage"]["nextPosition"], 5);
    let outside = ask(demo.address(), &token, &write(kitchen)).await;
    assert_eq!(outside.code(), "NOT_FOUND");
    end(demo);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_a_demo_open_a_demo_and_nothing_else() {
    let program = Program::new();
    let plain = program.token("alice");
    let (demo, admin) = Server::start_with_admin(&program, &["--demo"]);
    let given = demo_token(&demo, "alice").await;
    for token in [&given, &plain] {
        let reply = ask(demo.address(), token, WHO).await;
        assert_eq!(
            (reply.status, &reply.body["data"]["viewer"]["username"]),
            (200, &json!("alice"))
        );
    }
    assert_eq!(
        admin
            .ask(
                "POST",
                "/backup",
                &format!("Authorization: Bearer {given}\r\n")
            )
            .0,
        401
    );
    end(demo);

    let server = Server::start(&program, &[]);
    let refused = ask(server.address(), &given, WHO).await;
    assert_eq!(
        (refused.status, refused.message()),
        (401, "The token is for another audience.")
    );
    assert_eq!(ask(server.address(), &plain, WHO).await.status, 200);
    end(server);

    let strict = Server::start(&program, &["--demo", "--token-audience", "chat"]);
    let given = demo_token(&strict, "alice").await;
    assert_eq!(ask(strict.address(), &given, WHO).await.status, 200);
    assert_eq!(
        ask(strict.address(), &plain, WHO).await.message(),
        "The token is for another audience."
    );
    end(strict);
    let server = Server::start(&program, &["--token-audience", "chat"]);
    assert_eq!(
        ask(server.address(), &given, WHO).await.message(),
        "The token is for another audience."
    );
    end(server);
}

fn signed(claims: &Value) -> String {
    jsonwebtoken::encode(
        &Header::new(Algorithm::HS256),
        claims,
        &EncodingKey::from_secret(&SECRET),
    )
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_lives_too_long_is_refused() {
    let (program, folder) = (Program::new(), Folder::new());
    let secret = folder.write("secret", SECRET);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let server = Server::start(
        &program,
        &[
            "--token-secret-file",
            secret.to_str().unwrap(),
            "--token-life-max",
            "1h",
        ],
    );
    for (claims, is_good) in [
        (
            json!({ "sub": "alice", "iat": now, "exp": now + 3_600 }),
            true,
        ),
        (
            json!({ "sub": "alice", "iat": now, "exp": now + 3_601 }),
            false,
        ),
        (
            json!({ "sub": "alice", "iat": now - 3_000, "exp": now + 700 }),
            false,
        ),
        (json!({ "sub": "alice", "exp": now + 3_600 }), true),
        (json!({ "sub": "alice", "exp": now + 3_700 }), false),
        // A date in the future makes no token longer, and what is no number is no date.
        (
            json!({ "sub": "alice", "iat": now + 7_200, "exp": now + 7_300 }),
            false,
        ),
        (
            json!({ "sub": "alice", "iat": "today", "exp": now + 3_700 }),
            false,
        ),
        (
            json!({ "sub": "alice", "iat": "today", "exp": now + 60 }),
            true,
        ),
    ] {
        let reply = ask(server.address(), &signed(&claims), WHO).await;
        if is_good {
            assert_eq!(reply.status, 200, "{claims}: {}", reply.body);
        } else {
            assert_eq!(
                (reply.status, reply.message()),
                (401, "The token lives longer than this server allows."),
                "{claims}"
            );
        }
    }
    end(server);
    // Without the bound any of them is good.
    let server = Server::start(&program, &["--token-secret-file", secret.to_str().unwrap()]);
    assert_eq!(
        ask(
            server.address(),
            &signed(&json!({ "sub": "alice", "iat": now, "exp": now + 1_000_000 })),
            WHO
        )
        .await
        .status,
        200
    );
    end(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_makes_no_token_that_its_server_refuses() {
    let program = Program::new();
    let bound = ["--token-life-max", "1h"];
    let long = program.run(&[&["token", "--user", "alice"], &bound[..]].concat());
    long.failed(
        1,
        "--ttl: the server accepts tokens with a life of at most 1h (--token-life-max)",
    );
    let short = program.run(&[&["token", "--user", "alice", "--ttl", "1h"], &bound[..]].concat());
    let server = Server::start(&program, &[&["--demo"], &bound[..]].concat());
    assert_eq!(
        ask(server.address(), short.succeeded().trim(), WHO)
            .await
            .status,
        200
    );
    assert_eq!(
        ask(server.address(), &demo_token(&server, "alice").await, WHO)
            .await
            .status,
        200
    );
    assert_eq!(
        ask(
            server.address(),
            &program.token_for("alice", Duration::from_secs(3_601)),
            WHO
        )
        .await
        .status,
        401
    );
    end(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_went_wrong_are_named_by_readiness_while_the_old_ones_serve() {
    let (program, folder) = (Program::new(), Folder::new());
    let (old, new) = (Pair::ec(), Pair::ec());
    let path = folder.write("keys.json", jwks(&[old.jwk("old")]));
    let (server, admin) =
        Server::start_with_admin(&program, &["--token-keys-file", path.to_str().unwrap()]);
    assert_eq!(admin.get("/readyz"), (200, "ready\n".to_owned()));
    for (text, reason) in [
        ("broken", "the keys are neither PEM nor a JWKS"),
        ("{", "the keys are not a JWKS: a JSON object with `keys`"),
    ] {
        folder.write("keys.json", text);
        // A token with a key that nobody knows has the file looked at.
        ask(server.address(), &new.token(Some("new")), WHO).await;
        let logged = server.logs("uses the previous ones");
        assert!(
            logged.contains("ERROR") && logged.contains(reason),
            "{logged}"
        );
        let expected = format!(
            "ready, but {} cannot be used for tokens: {reason}; the server verifies tokens with the previous keys\n",
            path.display()
        );
        assert_eq!(
            admin.wait_until("/readyz", |body| body.contains(reason)),
            (200, expected)
        );
        assert_eq!(
            ask(server.address(), &old.token(Some("old")), WHO)
                .await
                .status,
            200
        );
    }
    folder.write("keys.json", jwks(&[new.jwk("new")]));
    ask(server.address(), &new.token(Some("new")), WHO).await;
    assert_eq!(admin.wait_until("/readyz", |body| body == "ready\n").0, 200);
    assert_eq!(
        ask(server.address(), &new.token(Some("new")), WHO)
            .await
            .status,
        200
    );
    let log = end(server);
    assert_eq!(
        log.matches("uses the previous ones").count(),
        2,
        "once for each change: {log}"
    );
}
