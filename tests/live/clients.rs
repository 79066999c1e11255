//! The streams as the usual clients read them: `tests/clients/clients.js` drives the packages `graphql-sse` and `@apollo/client`.

use std::time::Duration;

use super::world::{SECRET, World};
use crate::support::node::Node;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_usual_clients_read_streams_and_come_back() {
    let Some(node) = tokio::task::spawn_blocking(Node::installed).await.unwrap() else {
        return;
    };
    let world = World::start().await;
    let (url, long) = (world.url(), world.token("alice", Duration::from_secs(600)));
    let secret = str::from_utf8(SECRET).unwrap();
    tokio::task::spawn_blocking(move || node.run("clients.js", &[&url, secret, &long]))
        .await
        .unwrap();
    world.alive(0).await;
}
