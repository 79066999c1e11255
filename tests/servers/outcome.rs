//! Outcomes: what a client is told of a send whose later steps the cluster refuses.

use std::time::Duration;

use serde_json::{Value, json};
use wideroom::bus::Bus;
use wideroom::chat::{Bounds, Error, Result};
use wideroom::model::UserId;

use super::keyspace::run_shared;
use super::pair::{Server, people, two_with_group};
use crate::store::stage::keyspace;
use crate::support::world::{Actor, PATIENCE, group_of};

/// More than the age at which an event is late, and less than the longest wait for an outcome.
const LATE: Duration = Duration::from_millis(4_200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_persisted_message_is_never_reported_undone_and_its_late_event_is_logged() {
    let Some((one, other, [anna, ben], conversation)) = two_with_group().await else {
        return;
    };
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
    let heard = tokio::time::timeout(PATIENCE, live.next()).await;
    let heard = heard.expect("it comes").unwrap().unwrap().message;
    assert_eq!(heard.sender, anna);
    let logged = tokio::time::timeout(PATIENCE, async {
        while one.slow.refusals_left("log_late") > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    logged.await.expect("it is repeated until it is logged");
}

/// Its queue has ended, and the next one of the conversation runs, when its first deadline passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_persisted_message_whose_answer_waits_is_not_taken_for_another_that_is_queued() {
    let Some(address) = keyspace().await else {
        return;
    };
    let bounds = Bounds {
        queue_wait: Duration::from_secs(1),
        outcome_wait: Duration::from_secs(3),
        ..Bounds::default()
    };
    let other = Server::at(address.clone(), Bus::default(), 0).await;
    let one = Server::within(bounds, address, Bus::default(), 0).await;
    let [anna, ben] = people(["anna", "ben"]);
    let conversation = one.group(&anna, &[&ben]).await;
    let first = other.try_send(&anna, conversation, "once", Some("key"));
    first.await.unwrap();
    one.slow.refuse("log_late", usize::MAX);
    one.slow.hold();
    let (one, anna, ben) = (&one, &anna, &ben);
    let retry = async {
        is_begun().await;
        one.try_send(anna, conversation, "once", Some("key")).await
    };
    let queued_again = async {
        is_begun().await;
        is_begun().await;
        one.slow.let_go();
        while one.slow.refusals_left("log_late") == usize::MAX {
            is_begun().await;
        }
        one.slow.hold();
        let second = async {
            is_begun().await;
            one.try_send(ben, conversation, "behind", None).await
        };
        let let_go = async {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            one.slow.let_go();
        };
        let (before, behind, ()) = tokio::join!(
            one.try_send(anna, conversation, "before", None),
            second,
            let_go
        );
        (before, behind)
    };
    let (_, retried, (before, behind)) = tokio::join!(
        one.try_send(anna, conversation, "holds the queue", None),
        retry,
        queued_again
    );
    assert!(matches!(retried, Err(Error::OutcomeUnknown)), "{retried:?}");
    assert!(before.is_ok(), "{before:?}");
    assert!(matches!(behind, Ok(_) | Err(Error::Busy)), "{behind:?}");
    one.slow.refuse("log_late", 0);
}

/// Time in which a write comes to its queue.
async fn is_begun() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_cannot_read_its_message_does_not_say_that_nothing_was_done() {
    let Some((one, _other, [anna, _], conversation)) = two_with_group().await else {
        return;
    };
    let send = || one.try_send(&anna, conversation, "once", Some("key"));
    let first = send().await.unwrap();
    one.slow.refuse("messages", 1);
    let retried = send().await;
    assert!(matches!(retried, Err(Error::OutcomeUnknown)), "{retried:?}");
    assert_eq!(send().await.unwrap().id, first.id);
}

const SEND: &str = "mutation($c: ID!) { sendMessage(input: {conversationId: $c, body: \"once\", idempotencyKey: \"key\"}) { messageEdge { node { uuid conversation { uuid } } } } }";

/// Takes the message of a send away, and leaves the claim of its key: so a server leaves both that dies between them.
async fn take_away(message: &Value, sender: &UserId) {
    let [id, conversation] = ["/uuid", "/conversation/uuid"]
        .map(|path| message.pointer(path).unwrap().as_str().unwrap());
    let select = format!(
        "SELECT width, start FROM {{}}.sends_by_key WHERE conversation_id = {conversation} AND sender_id = '{sender}' AND key = 'key'"
    );
    let rows = run_shared(&select).await.into_rows_result().unwrap();
    let (width, start) = rows.single_row::<(i8, i64)>().unwrap();
    let delete = format!(
        "DELETE FROM {{}}.messages_by_conversation WHERE conversation_id = {conversation} AND width = {width} AND start = {start} AND message_id = {id}"
    );
    run_shared(&delete).await;
}

/// On the embedded store a key and its message are one batch, so that neither is found without the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_retry_whose_key_is_claimed_without_a_message_writes_nothing() {
    let Some(server) = Server::open(0).await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    let (owner, sender) = (server.actor(&anna), server.actor(&ben));
    let run = async |actor: &Actor, field: &str, c: &str| {
        let field = field.replace("BEN", ben.as_str());
        let field = field.replace("ANNA", anna.as_str());
        let field = field.replace("CONVERSATION", c);
        actor
            .data(
                &format!("mutation {{ {field} {{ __typename }} }}"),
                json!({}),
            )
            .await;
    };
    for (refuse, allow) in [
        (
            "silenceParticipant(input: {conversationId: \"CONVERSATION\", username: \"BEN\"})",
            "unsilenceParticipant(input: {conversationId: \"CONVERSATION\", username: \"BEN\"})",
        ),
        (
            "updateConversation(input: {conversationId: \"CONVERSATION\", slowModeSeconds: 600})",
            "updateConversation(input: {conversationId: \"CONVERSATION\", slowModeSeconds: 0})",
        ),
        (
            "blockUser(input: {username: \"ANNA\"})",
            "unblockUser(input: {username: \"ANNA\"})",
        ),
    ] {
        let (c, actor) = match refuse.starts_with("block") {
            true => (sender.direct(anna.as_str()).await, &sender),
            false => (owner.group("We", &[ben.as_str()]).await, &owner),
        };
        let sent = sender.data(SEND, json!({"c": c})).await;
        let sent = &sent["sendMessage"]["messageEdge"]["node"];
        take_away(sent, &ben).await;
        run(actor, refuse, &c).await;
        for _ in 0..2 {
            let answer = sender.ask(SEND, json!({"c": c})).await;
            let said = (answer.code(), answer.extensions()["outcome"].clone());
            assert_eq!(
                said,
                ("UNAVAILABLE".to_owned(), json!("UNKNOWN")),
                "{refuse}"
            );
        }
        let texts = "query($c: ID!) { node(id: $c) { ... on Conversation { messages(last: 9) { edges { node { uuid kind } } } } } }";
        let texts = async || {
            let data = sender.data(texts, json!({"c": c})).await;
            let edges = data["node"]["messages"]["edges"]
                .as_array()
                .unwrap()
                .clone();
            let nodes = edges.into_iter().map(|edge| edge["node"].clone());
            nodes
                .filter(|node| node["kind"] == "TEXT")
                .collect::<Vec<Value>>()
        };
        assert_eq!(
            texts().await,
            [Value::Null; 0],
            "{refuse}: nothing is written"
        );
        run(actor, allow, &c).await;
        // The next retry that may send finishes the first one, under its id.
        let retried = sender.data(SEND, json!({"c": c})).await;
        assert_eq!(retried["sendMessage"]["messageEdge"]["node"], *sent);
    }
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
        writes
            .create_group(&anna, group_of("a group", &names, None))
            .await
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
