//! Notifications in the outbox: the users to notify of a message, for push workers.

use std::sync::Arc;

use async_graphql::{Enum, Object};

use crate::chat;
use crate::graphql::error::Result;
use crate::graphql::scope::ViewerScope;
use crate::graphql::types::{Message, User};
use crate::model;

/// Users to notify of a TEXT message, or of an edit that mentions them anew: all that a push worker
/// needs. Edits of one message at the same time may notify a user twice.
pub(super) struct NotificationEvent {
    message: Message,
    recipients: Vec<NotificationRecipient>,
}

impl NotificationEvent {
    pub(super) fn new(
        scope: &ViewerScope,
        message: Arc<model::Message>,
        recipients: Vec<chat::NotificationRecipient>,
    ) -> Self {
        let recipient = |recipient| NotificationRecipient {
            scope: scope.clone(),
            recipient,
        };
        Self {
            message: Message::new(scope, message),
            recipients: recipients.into_iter().map(recipient).collect(),
        }
    }
}

/// Users to notify of a TEXT message, or of an edit that mentions them anew: all that a push worker
/// needs. Edits of one message at the same time may notify a user twice.
#[Object]
impl NotificationEvent {
    /// The message in its current state.
    async fn message(&self) -> &Message {
        &self.message
    }

    /// 1 to 100 users, by username: participants who have not read the message, whose level it meets, and who have neither muted
    /// the conversation nor blocked the sender. Users who have not answered there yet are among them at most once
    /// a minute (REQUEST). Of an edit, only those whom the message did not mention before. A message that
    /// notifies more users has several events.
    async fn recipients(&self) -> &[NotificationRecipient] {
        &self.recipients
    }
}

/// User to notify of a message.
pub(super) struct NotificationRecipient {
    scope: ViewerScope,
    recipient: chat::NotificationRecipient,
}

/// User to notify of a message.
#[Object]
impl NotificationRecipient {
    /// The user.
    async fn user(&self) -> User {
        User::new(&self.scope, self.recipient.user.clone())
    }

    /// Reason of the notification.
    async fn reason(&self) -> NotificationReason {
        self.recipient.reason.into()
    }

    /// Unread messages of the user in the conversation, exact up to the cap.
    async fn unread_count(&self) -> Result<i32> {
        let unread = self
            .scope
            .chat
            .notifications
            .unread(&self.recipient)
            .await?;
        let count = unread.map_or(0, |unread| unread.count);
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// Unread messages of the conversation that mention the user, exact up to the cap.
    async fn unread_mention_count(&self) -> Result<i32> {
        let notifications = &self.scope.chat.notifications;
        let unread = notifications.unread_mentions(&self.recipient).await?;
        let count = unread.map_or(0, |unread| unread.count);
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// Unread conversations of the user that are neither muted nor archived, for the badge on the app. 100 is 100 or more. At most
    /// 5 seconds old.
    async fn unread_conversation_count(&self) -> Result<i32> {
        let notifications = &self.scope.chat.notifications;
        let badge = notifications.badge(&self.recipient.user).await?;
        Ok(i32::try_from(badge).unwrap_or(i32::MAX))
    }

    /// Whether the user has a WebSocket or an HTTP stream open on any server.
    async fn is_online(&self) -> bool {
        self.recipient.is_online
    }
}

/// Reason of a notification. A later version may add values: clients need a default branch.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "chat::NotificationReason")]
pub(super) enum NotificationReason {
    /// The conversation is direct.
    Direct,
    /// A message in a group of which the user follows all messages.
    Group,
    /// The message mentions the user.
    Mention,
    /// The message mentions everyone.
    Everyone,
    /// The user has not answered in the conversation yet: neither sent there nor read by `markRead`, nor
    /// begun it. Only the first TEXT message of a minute of the clock notifies such users, unless a service
    /// sends it.
    Request,
}
