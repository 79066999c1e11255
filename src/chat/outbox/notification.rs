//! Notifications: the users to notify of a message, decided when it is delivered.
//!
//! A notification follows from the addition of a TEXT message, and has no row of its own. A reader that asks for notifications
//! trails by a few seconds, so that a user who reads the message at once is not notified. It concerns the participants of a
//! conversation that is not large. In a large one, messages notify nobody.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::chat::access::Access;
use crate::chat::access::restrictions::Restrictions;
use crate::chat::components::Components;
use crate::chat::error::Result;
use crate::chat::inbox::InboxService;
use crate::chat::presence::PresenceService;
use crate::model::{
    ConversationKind, InboxRow, Message, MessageKind, OutboxEvent, OutboxEventKind, Participant,
    Unread, UserId,
};
use crate::store::Store;

/// Name of the type in the API and in the configuration.
pub const NOTIFICATION: &str = "NOTIFICATION";
/// How long the badge of a user is held.
const BADGE_LIFETIME: Duration = Duration::from_secs(5);
/// Badges that are held. A further one replaces the oldest.
const BADGES_MAX: usize = 10_000;

/// Reason of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationReason {
    Direct,
    Group,
    Mention,
    Everyone,
}

/// User to notify of a message.
#[derive(Debug, Clone)]
pub struct NotificationRecipient {
    pub user: UserId,
    pub reason: NotificationReason,
    /// The user's entry of the conversation.
    pub entry: InboxRow,
    /// Whether the user is connected to any server.
    pub is_online: bool,
}

pub struct NotificationService {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    restrictions: Arc<Restrictions>,
    presence: Arc<PresenceService>,
    inbox: Arc<InboxService>,
    badges: Mutex<lru::LruCache<UserId, (Instant, usize)>>,
}

impl NotificationService {
    pub(crate) fn new(
        components: &Components,
        presence: &Arc<PresenceService>,
        inbox: &Arc<InboxService>,
    ) -> Self {
        let badges = BADGES_MAX.try_into().expect("it is not zero");
        Self {
            store: Arc::clone(&components.store),
            access: Arc::clone(&components.access),
            restrictions: Arc::clone(&components.restrictions),
            presence: Arc::clone(presence),
            inbox: Arc::clone(inbox),
            badges: Mutex::new(lru::LruCache::new(badges)),
        }
    }

    /// Whether an event gives rise to a notification.
    pub fn follows(event: &OutboxEvent) -> bool {
        event.kind == OutboxEventKind::MessageAdded
    }

    /// The users to notify of a message now, by username: participants but its sender who have not read past it, and have neither
    /// muted the conversation nor blocked the sender. Nobody for a message that is deleted, or not of a user.
    pub async fn recipients(&self, message: &Message) -> Result<Vec<NotificationRecipient>> {
        if message.kind != MessageKind::Text || message.content.is_none() {
            return Ok(Vec::new());
        }
        let id = message.conversation;
        let conversation = self.store.conversations(&[id]).await?.pop().flatten();
        let Some(conversation) = conversation.filter(|conversation| !conversation.is_large) else {
            return Ok(Vec::new());
        };
        let page = crate::model::PageRequest::first(crate::model::Conversation::FAN_OUT_MAX);
        let participants = self.store.participants(id, &page).await?.items;
        let users: Vec<_> = participants
            .into_iter()
            .filter(|participant| self.may_notify(participant, message))
            .map(|participant| participant.user)
            .collect();
        let ids = [id];
        let rows = users.iter().map(|user| self.store.inbox_rows(user, &ids));
        let rows = try_join_all(rows).await?;
        let blocks = self.access.blocks().of_all(&users).await?;
        let online = self.presence.online(&users).await?;
        let reason = match conversation.kind {
            ConversationKind::Direct => NotificationReason::Direct,
            ConversationKind::Group => NotificationReason::Group,
        };
        let position = message.id.order_key();
        let all = users.into_iter().zip(rows).zip(blocks).zip(online);
        let notified = all.filter_map(|(((user, mut rows), blocks), is_online)| {
            let entry = rows.pop().flatten()?;
            let is_notified = entry.read_up_to() < position
                && !entry.flags.is_muted
                && !blocks.has(&message.sender);
            is_notified.then_some(NotificationRecipient {
                user,
                reason,
                entry,
                is_online,
            })
        });
        Ok(notified.collect())
    }

    fn may_notify(&self, participant: &Participant, message: &Message) -> bool {
        participant.membership.is_joined()
            && participant.user != message.sender
            && !self.restrictions.is_suspended(&participant.user)
    }

    /// Unread messages of a recipient in the conversation.
    pub async fn unread(&self, recipient: &NotificationRecipient) -> Result<Option<Unread>> {
        let rows = [recipient.entry];
        Ok(self.inbox.unread(&recipient.user, &rows).await?.pop())
    }

    /// Number on the app's icon: the unread conversations of a user, at most 100. Held for a few seconds.
    pub async fn badge(&self, user: &UserId) -> Result<usize> {
        if let Some((at, badge)) = self.badges.lock().get(user).copied()
            && at.elapsed() < BADGE_LIFETIME
        {
            return Ok(badge);
        }
        let badge = self
            .inbox
            .summary(user, false)
            .await?
            .unread_conversation_count;
        self.badges
            .lock()
            .put(user.clone(), (Instant::now(), badge));
        Ok(badge)
    }
}
