//! Outcomes: what a client is told of a send whose later steps the cluster refuses.

use std::time::Duration;

use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Error, Result};

use super::pair::{SOON, Server, people, two};
use crate::store::stage::keyspace;
use crate::support::world::PATIENCE;

/// More than the age at which an event is late, and less than the longest wait for an outcome.
const LATE: Duration = Duration::from_millis(4_200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_persisted_message_is_never_reported_undone_and_its_late_event_is_logged() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.group(&anna, &[&ben]).await;
    let streams = &other.chat.streams;
    let mut live = streams.messages(&ben, conversation, None).await.unwrap();
    one.slow.refuse("log_late", 3);
    one.slow.set_delay(LATE);
    let sent = one.try_send(&anna, conversation, "late", None).await;
    // The repetitions may take longer than the client waits.
    assert!(
        matches!(sent, Ok(_) | Err(Error::OutcomeUnknown)),
        "{sent:?}"
    );
    let heard = tokio::time::timeout(SOON, live.next()).await;
    let heard = heard.expect("it comes").unwrap().unwrap().message;
    assert_eq!(heard.sender, anna);
    let logged = tokio::time::timeout(SOON, async {
        while one.slow.refusals_left("log_late") > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    logged.await.expect("it is repeated until it is logged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_cannot_read_its_message_does_not_say_that_nothing_was_done() {
    let Some((one, _other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.group(&anna, &[&ben]).await;
    let send = || one.try_send(&anna, conversation, "once", Some("key"));
    let first = send().await.unwrap();
    one.slow.refuse("messages", 1);
    let retried = send().await;
    assert!(matches!(retried, Err(Error::OutcomeUnknown)), "{retried:?}");
    assert_eq!(send().await.unwrap().id, first.id);
}

/// A server that may have two unsettled writes. `None` where no Cassandra can be had.
async fn with_two_places() -> Option<Server> {
    let bounds = Bounds {
        backlog_writes_max: 2,
        ..Bounds::default()
    };
    Some(Server::within(bounds, keyspace().await?, Bus::default(), 0).await)
}

/// Repeats a write that is refused as too many, until there is room for it.
async fn once_there_is_room<T>(write: impl AsyncFn() -> Result<T>) {
    let repeated = async {
        loop {
            match write().await {
                Err(Error::Busy) => tokio::time::sleep(Duration::from_millis(20)).await,
                outcome => return outcome,
            }
        }
    };
    let outcome = tokio::time::timeout(PATIENCE, repeated).await;
    outcome.expect("there is room again").map(drop).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_whose_late_events_are_not_logged_yet_keep_their_places_in_the_backlog() {
    let Some(server) = with_two_places().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let (one, two) = (
        server.group(&anna, &[&ben]).await,
        server.group(&anna, &[&ben]).await,
    );
    server.slow.refuse("log_late", usize::MAX);
    server.slow.set_delay(LATE);
    let late = tokio::join!(
        server.try_send(&anna, one, "late", None),
        server.try_send(&anna, two, "late", None),
    );
    assert!(
        matches!(
            late,
            (Err(Error::OutcomeUnknown), Err(Error::OutcomeUnknown))
        ),
        "{late:?}"
    );
    server.slow.set_delay(Duration::ZERO);
    let send = async || server.try_send(&anna, one, "one too many", None).await;
    let refused = send().await;
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    server.slow.refuse("log_late", 0);
    once_there_is_room(send).await;
}

/// Creations wait in no queue, so they have no place in the backlog.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_bound_on_unsettled_creations_nothing_is_begun() {
    let Some(server) = with_two_places().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let names = [ben.as_str().to_owned()];
    let create = async || {
        let writes = &server.chat.writes;
        writes.create_group(&anna, "a group", &names, None).await
    };
    server.slow.refuse("log_late", usize::MAX);
    server.slow.set_creation_delay(LATE);
    let late = tokio::join!(create(), create());
    assert!(
        matches!(
            late,
            (Err(Error::OutcomeUnknown), Err(Error::OutcomeUnknown))
        ),
        "{late:?}"
    );
    server.slow.set_creation_delay(Duration::ZERO);
    let refused = create().await;
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    server.slow.refuse("log_late", 0);
    once_there_is_room(create).await;
}
