//! Outcomes: what a client is told of a send whose later steps the cluster refuses.

use std::time::Duration;

use wideroom::chat::Error;

use super::pair::{SOON, people, two};

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
