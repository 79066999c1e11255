//! The document cache, through HTTP: only a document that was executed for a user enters it.

use serde_json::{Value, json};
use wideroom::chat::Bounds;

use super::chat_server::{ChatServer, without_rates};
use crate::support::client;

const HITS: &str = "wideroom_cache_hits_total{cache=\"documents\"}";
const JSON: (&str, &str) = ("content-type", "application/json");
/// Sixteen KiB each: together they are larger than the cache.
const FLOOD: usize = 70;

fn document(number: usize, selection: &str) -> String {
    format!("query Q{number}{selection} #{}", "x".repeat(16_000))
}

struct Scene {
    server: ChatServer,
}

impl Scene {
    async fn start() -> Self {
        // Only the cache is under test; rates would refuse part of the flood.
        Self {
            server: ChatServer::start(without_rates(), Bounds::default()).await,
        }
    }

    /// Sends one request with a user's token or without, and returns its status.
    async fn post(&self, user: Option<&str>, body: &Value) -> u16 {
        let authorization = user.map(|user| format!("Bearer {}", self.server.token(user)));
        let mut headers = vec![JSON];
        headers.extend(
            authorization
                .as_deref()
                .map(|token| ("authorization", token)),
        );
        client::http(
            self.server.address,
            "POST",
            "/graphql",
            &headers,
            body.to_string().as_bytes(),
        )
        .await
        .status
    }

    /// Whether the document of alice is in the cache.
    async fn is_cached(&self) -> bool {
        let before = self.server.metric(HITS);
        let body = json!({ "query": "{ viewer { username } }" });
        assert_eq!(self.post(Some("alice"), &body).await, 200);
        self.server.metric(HITS) > before
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_were_not_executed_for_a_user_evict_none() {
    let scene = Scene::start().await;
    assert!(!scene.is_cached().await && scene.is_cached().await);
    for number in 0..FLOOD {
        let body = json!({ "query": document(number, "{ __typename }") });
        assert_eq!(scene.post(None, &body).await, 200, "executed for no user");
    }
    assert!(scene.is_cached().await);
    for number in 0..FLOOD {
        let query = document(
            number,
            "($n: Int!) { inbox(first: $n) { edges { cursor } } }",
        );
        let body = json!({ "query": query, "variables": { "n": "none" } });
        assert_eq!(
            scene.post(Some("mallory"), &body).await,
            400,
            "the variables are refused"
        );
    }
    assert!(scene.is_cached().await);
    for number in 0..FLOOD {
        let query = document(number, "{ inbox(first: 1000) { edges { cursor } } }");
        let status = scene
            .post(Some("mallory"), &json!({ "query": query }))
            .await;
        assert!(status != 200 || scene.is_cached().await, "{status}");
    }
}

/// Control: the same flood evicts the document once it is executed for a user.
#[tokio::test(flavor = "multi_thread")]
async fn documents_that_were_executed_for_a_user_evict_the_oldest() {
    let scene = Scene::start().await;
    assert!(!scene.is_cached().await && scene.is_cached().await);
    for number in 0..FLOOD {
        let body = json!({ "query": document(number, "{ __typename }") });
        assert_eq!(scene.post(Some("bob"), &body).await, 200);
    }
    assert!(!scene.is_cached().await);
}
