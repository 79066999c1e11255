//! Restrictions on every server: what one server writes, another refuses within four seconds.

use std::time::{Duration, Instant};

use wideroom::chat::Refusal;
use wideroom::clock::{Clock as _, SystemClock};
use wideroom::model::{UserId, Viewer};

use super::pair::{Server, people, two};
use crate::support::cost::least_time;
use crate::support::world::PATIENCE;

/// The promise.
const WITHIN: Duration = Duration::from_secs(4);

/// Waits until the server answers so, and returns for how long.
async fn until(server: &Server, user: &UserId, expected: Result<(), Refusal>) -> Duration {
    let began = Instant::now();
    let mut watch = server.chat.restrictions.watch();
    let viewer = Viewer::from(user.clone());
    let issued_at = SystemClock.now().plus_micros(-60_000_000);
    let arrived = async {
        while server.chat.restrictions.check(&viewer, Some(issued_at)) != expected {
            watch.changed().await;
        }
    };
    tokio::time::timeout(PATIENCE, arrived)
        .await
        .expect("it never came");
    began.elapsed()
}

#[tokio::test]
async fn a_restriction_of_one_server_holds_on_the_other_within_four_seconds() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben, backend] = people(["anna", "ben", "backend"]);
    let service = Viewer::service(backend);
    let restrictions = &one.chat.restrictions;
    let took = least_time(WITHIN, async |_| {
        let reason = Some("spam".to_owned());
        let suspended = restrictions.suspend(&service, &anna, None, reason);
        suspended.await.unwrap();
        let took = until(&other, &anna, Err(Refusal::Suspended)).await;
        restrictions.restore(&service, &anna).await.unwrap();
        took.max(until(&other, &anna, Ok(())).await)
    });
    let took = took.await;
    let revoked = least_time(WITHIN, async |number| {
        let user = match number {
            0 => ben.clone(),
            _ => UserId::parse(&format!("{ben}-{number}")).unwrap(),
        };
        let revoked = restrictions.revoke_tokens(&service, Some(&user), None);
        revoked.await.unwrap();
        until(&other, &user, Err(Refusal::Revoked)).await
    });
    let revoked = revoked.await;
    assert!(took < WITHIN && revoked < WITHIN, "{took:?} {revoked:?}");
    // No request reads the store for it.
    let before = other.cql.statements_sent();
    for _ in 0..1_000 {
        let viewer = Viewer::from(ben.clone());
        let checked = other.chat.restrictions.check(&viewer, None);
        assert_eq!(checked, Err(Refusal::Revoked));
    }
    assert!(other.cql.statements_sent() - before < 100);
    // A server that starts later knows it from the start.
    let third = Server::open(0).await.unwrap();
    let viewer = Viewer::from(ben);
    assert_eq!(
        third.chat.restrictions.check(&viewer, None),
        Err(Refusal::Revoked)
    );
}

/// Every server reads and writes the log of restrictions by the cluster's time, not by its own.
#[tokio::test]
async fn a_restriction_passes_between_servers_of_which_one_is_an_hour_ahead() {
    let Some(right) = Server::open(0).await else {
        return;
    };
    let ahead = Server::open(3_600_000_000).await.unwrap();
    let [anna, ben, backend] = people(["anna", "ben", "backend"]);
    let service = Viewer::service(backend);
    for (from, to, user) in [(&right, &ahead, &anna), (&ahead, &right, &ben)] {
        let restrictions = &from.chat.restrictions;
        let took = least_time(WITHIN, async |_| {
            let suspended = restrictions.suspend(&service, user, None, None);
            suspended.await.unwrap();
            let took = until(to, user, Err(Refusal::Suspended)).await;
            restrictions.restore(&service, user).await.unwrap();
            until(to, user, Ok(())).await;
            took
        });
        let took = took.await;
        assert!(took < WITHIN, "{took:?}");
    }
}
