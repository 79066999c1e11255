//! The end of a server: what runs may end, and who is connected is told to come back.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use wideroom::server::{ServerBounds, SocketBounds};

use super::world::{World, soon};

#[tokio::test]
async fn sockets_are_closed_1012_without_ending_their_subscriptions() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket.subscribe("1", "subscription { forever }").await;
    assert_eq!(socket.hear().await["type"], "next");
    world.stop();
    // Nothing but the close may come: a `complete` would tell the client not to ask again.
    let heard = soon(socket.0.next()).await;
    let Some(Ok(Message::Close(Some(frame)))) = heard else {
        panic!("{heard:?}")
    };
    assert_eq!(u16::from(frame.code), 1012);
    world.alive(0).await;
    socket.gone().await;
    world.stopped().await;
}

#[tokio::test]
async fn a_draining_server_answers_pending_operations_of_a_socket() {
    let world = World::start().await;
    let mut socket = world.open().await;
    socket.subscribe("s", "subscription { forever }").await;
    assert_eq!(socket.hear().await["type"], "next");
    socket.subscribe("1", "mutation { slow(ms: 200) }").await;
    socket.say(&json!({ "type": "ping" })).await;
    assert_eq!(socket.hear().await["type"], "pong");
    world.stop();
    assert_eq!(socket.hear().await["payload"]["data"]["slow"], true);
    assert_eq!(socket.hear().await["type"], "complete");
    assert_eq!(socket.closed().await.0, 1012);
    socket.gone().await;
    world.stopped().await;
}

#[tokio::test]
async fn the_drain_cuts_off_operations_that_do_not_end() {
    let sockets = SocketBounds {
        close: Duration::from_millis(50),
        ..SocketBounds::default()
    };
    let world = World::with(ServerBounds {
        drain: Duration::from_millis(200),
        sockets,
        ..ServerBounds::default()
    })
    .await;
    let mut socket = world.open().await;
    socket.subscribe("1", "mutation { wait }").await;
    socket.say(&json!({ "type": "ping" })).await;
    assert_eq!(socket.hear().await["type"], "pong");
    world.stop();
    assert_eq!(socket.closed().await.0, 1012);
    world.stopped().await;
}

#[tokio::test]
async fn a_request_that_is_under_way_is_answered() {
    let world = World::start().await;
    let request = json!({ "query": "mutation { slow(ms: 200) }" });
    let stop = async {
        world.alive(1).await;
        world.stop();
    };
    let (reply, ()) = tokio::join!(world.post(&request), stop);
    assert_eq!(reply.body, json!({ "data": { "slow": true } }));
    world.stopped().await;
}
