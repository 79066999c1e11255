//! Suspension and revocation through one server of a cluster: the open sockets of another one are closed within four seconds.

use std::time::{Duration, Instant};

use serde_json::json;
use wideroom::auth::Auth;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{ServiceRights, UserId};

use crate::support::cassandra::{say, shared};
use crate::support::client::{Caller, Socket};
use crate::support::program::Program;
use crate::support::server::Server;

const INBOX: &str = "subscription { inboxUpdated { cursor } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_of_another_server_close_within_four_seconds() {
    let Some(shared) = shared().await else { return };
    let program = Program::on_cluster(shared).await;
    let [one, other] = [(), ()].map(|()| Server::start(&program, &["--rates", "off"]));
    let users = ["alice", "bob", "carol"];
    let mut sockets = Vec::new();
    for user in users {
        let mut socket = Socket::connect(other.address(), &program.token(user)).await;
        socket.subscribe("1", INBOX).await;
        socket.told("1").await;
        sockets.push(socket);
    }
    // Tokens of the same second as a revocation are refused, the service's own too.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let service = UserId::parse("backend").unwrap();
    let auth = Auth::open(&program.data()).unwrap();
    let token = auth.issue_service(
        &service,
        ServiceRights::ALL,
        Duration::from_secs(600),
        SystemClock.now(),
    );
    let mut service = Caller::connect(one.address(), &token).await.unwrap();
    let acts = [
        (
            0,
            4401,
            "mutation { suspendUser(input: {username: \"alice\"}) { user { id } } }",
        ),
        (
            1,
            4403,
            "mutation { revokeTokens(input: {username: \"bob\"}) { revokedBefore } }",
        ),
        (
            2,
            4403,
            "mutation { revokeTokens(input: {}) { revokedBefore } }",
        ),
    ];
    for (index, code, document) in acts {
        service.data(document, &json!({})).await.unwrap();
        let began = Instant::now();
        let closed = sockets[index].closed().await;
        let took = began.elapsed();
        say(&format!(
            "restriction: {} closed with {} after {took:.1?}",
            users[index], closed.0
        ));
        assert_eq!(closed.0, code, "{}", users[index]);
    }
    for server in [one, other] {
        server.signal("-TERM");
        assert_eq!(server.end().0, Some(0));
    }
}
