//! Updates of streams, received until a deadline. Those that nobody waits for are passed over.

use wideroom::chat::{ConversationEvent, ConversationUpdates, InboxUpdates, MessageUpdates};
use wideroom::model::{ConversationId, Message, MessageId, UserId};

use super::pair::Server;
use super::watcher::entry;
use crate::support::client::soon;

pub(super) async fn receive(updates: &mut MessageUpdates, id: MessageId) {
    soon(async { while updates.next().await.unwrap().unwrap().message.id != id {} }).await;
}

pub(super) async fn receive_event(
    updates: &mut ConversationUpdates,
    mut is_wanted: impl FnMut(&ConversationEvent) -> bool,
) {
    soon(async {
        loop {
            let update = updates.next().await.expect("it goes on").unwrap();
            if update.event.as_ref().is_some_and(&mut is_wanted) {
                return;
            }
        }
    })
    .await;
}

pub(super) fn is_added(id: MessageId) -> impl FnMut(&ConversationEvent) -> bool {
    move |event| matches!(event, ConversationEvent::MessageAdded(message) if message.id == id)
}

pub(super) async fn receive_entry(updates: &mut InboxUpdates, conversation: ConversationId) {
    soon(async {
        while updates.next().await.unwrap().unwrap().conversation != Some(conversation) {}
    })
    .await;
}

/// Receives entries until this message is the last one of the conversation.
pub(super) async fn receive_last_message(
    updates: &mut InboxUpdates,
    (server, user): (&Server, &UserId),
    message: &Message,
) {
    soon(async {
        loop {
            receive_entry(updates, message.conversation).await;
            let (row, _) = entry(server, user, message.conversation).await;
            if row.unwrap().last_message == Some(message.id) {
                return;
            }
        }
    })
    .await;
}
