//! Streams of an agent on one server, and what is done on the other: it has no sessions, and hears by its conversation.

use tokio::time::timeout;
use wideroom::chat::ConversationEvent;
use wideroom::model::UserId;

use super::pair::{people, two};
use crate::support::world::PATIENCE;

fn helper() -> UserId {
    let salt = uuid::Uuid::new_v4().simple();
    UserId::parse(&format!("agent:helper-{salt}")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_an_agent_hears_what_is_done_on_another_server() {
    let Some((one, other)) = two().await else {
        return;
    };
    let ([anna], helper) = (people(["anna"]), helper());
    let conversation = one.group(&anna, &[&helper]).await;
    let streams = &other.chat.streams;
    let mut messages = streams.messages(&helper, conversation, None).await.unwrap();
    let mut events = streams
        .conversation(&helper, conversation, None)
        .await
        .unwrap();
    events.next().await.unwrap().unwrap();
    for body in ["a question", "and another one"] {
        let sent = one.send(&anna, conversation, body).await;
        let heard = timeout(PATIENCE, messages.next()).await.expect("it comes");
        assert_eq!(heard.unwrap().unwrap().message.id, sent.id);
        let event = timeout(PATIENCE, events.next()).await.expect("it comes");
        let event = event.unwrap().unwrap().event.unwrap();
        assert!(matches!(event, ConversationEvent::MessageAdded(added) if added.id == sent.id));
    }
    // A marker is delivered by the same way.
    let inbox = &one.chat.inbox;
    inbox.mark_read(&anna, conversation, None).await.unwrap();
    let event = timeout(PATIENCE, events.next()).await.expect("it comes");
    let event = event.unwrap().unwrap().event.unwrap();
    assert!(matches!(event, ConversationEvent::MarkerMoved(user) if user == anna));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_an_agent_follows_a_conversation_that_becomes_large() {
    let Some((one, other)) = two().await else {
        return;
    };
    let ([anna], helper) = (people(["anna"]), helper());
    let conversation = one.group(&anna, &[&helper]).await;
    let streams = &other.chat.streams;
    let mut messages = streams.messages(&helper, conversation, None).await.unwrap();
    let names: Vec<_> = (0..40).map(|n| format!("{n:02}-{anna}")).collect();
    let writes = &one.chat.writes;
    writes
        .add_participants(&anna, conversation, &names, None)
        .await
        .unwrap();
    let sent = one.send(&anna, conversation, "to all of you").await;
    let heard = async {
        loop {
            let message = messages.next().await.unwrap().unwrap().message;
            if message.id == sent.id {
                return;
            }
        }
    };
    timeout(PATIENCE, heard).await.expect("it comes");
}
