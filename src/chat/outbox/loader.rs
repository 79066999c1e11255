//! Loader of events: their messages in their present state, and the users to notify, decided at delivery.

use std::sync::Arc;

use super::OutboxItem;
use super::notification::{NotificationPiece, NotificationRecipient, NotificationService};
use crate::chat::error::Result;
use crate::model::{ConversationId, Message, MessageId};
use crate::store::Store;

/// Event of the outbox, with its message in its present state.
#[derive(Debug, Clone)]
pub struct LoadedEvent {
    pub conversation: ConversationId,
    pub item: OutboxItem,
    /// `None` for an event that is of no message.
    pub message: Option<Arc<Message>>,
    /// Users to notify, of a notification alone.
    pub recipients: Option<Vec<NotificationRecipient>>,
}

/// Item that is ready for delivery.
#[derive(Debug, Clone, Default)]
pub struct LoadedItem {
    /// `None` if the message does not exist any more, or if nobody is to be notified.
    pub event: Option<LoadedEvent>,
    /// Next piece of a notification.
    pub next: Option<OutboxItem>,
}

pub(super) struct EventLoader {
    store: Arc<dyn Store>,
    notifications: Arc<NotificationService>,
}

impl EventLoader {
    pub(super) fn new(store: &Arc<dyn Store>, notifications: &Arc<NotificationService>) -> Self {
        Self {
            store: Arc::clone(store),
            notifications: Arc::clone(notifications),
        }
    }

    /// Messages by id, without those that do not exist any more, or are gone for everyone.
    pub(super) async fn messages(
        &self,
        keys: &[(ConversationId, MessageId)],
    ) -> Result<Vec<Option<Arc<Message>>>> {
        let mut messages = self.store.messages(keys).await?;
        self.notifications.retain_visible(&mut messages).await?;
        Ok(messages)
    }

    pub(super) async fn load(
        &self,
        conversation: ConversationId,
        item: &OutboxItem,
    ) -> Result<LoadedItem> {
        let event = &item.event;
        let message = if event.kind.has_message() {
            let key = (conversation, event.message);
            let Some(message) = self.messages(&[key]).await?.pop().flatten() else {
                return Ok(LoadedItem::default());
            };
            Some(message)
        } else {
            None
        };
        let (Some(message), Some(piece)) = (&message, &item.piece) else {
            return Ok(LoadedItem {
                event: Some(LoadedEvent {
                    conversation,
                    item: item.clone(),
                    message,
                    recipients: None,
                }),
                next: None,
            });
        };
        let found = self.notifications.recipients(event, message, piece);
        let (recipients, next) = found.await?;
        let next = next.map(|after| OutboxItem {
            event: event.clone(),
            piece: Some(NotificationPiece { after: Some(after) }),
        });
        let loaded = (!recipients.is_empty()).then(|| LoadedEvent {
            conversation,
            item: item.clone(),
            message: Some(Arc::clone(message)),
            recipients: Some(recipients),
        });
        Ok(LoadedItem {
            event: loaded,
            next,
        })
    }
}
