//! Notifications: the users to notify of a message, decided when it is delivered.
//!
//! A notification follows from the addition of a TEXT message, and has no row of its own. A reader that asks for notifications
//! trails by a few seconds, so that a user who reads the message at once is not notified. It concerns the participants of a
//! conversation; in a large one, those whom the message names.

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
    Conversation, ConversationKind, InboxRow, Mentions, Message, MessageKind, NotificationLevel,
    OutboxEvent, OutboxEventKind, PageRequest, Participant, Unread, UserId,
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
        let Some(content) = message
            .content
            .as_ref()
            .filter(|_| message.kind == MessageKind::Text)
        else {
            return Ok(Vec::new());
        };
        let id = message.conversation;
        let conversation = self.store.conversations(&[id]).await?.pop().flatten();
        let Some(conversation) = conversation else {
            return Ok(Vec::new());
        };
        let participants = self.candidates(&conversation, &content.mentions).await?;
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
        let position = message.id.order_key();
        let all = users.into_iter().zip(rows).zip(blocks).zip(online);
        let notified = all.filter_map(|(((user, mut rows), blocks), is_online)| {
            let entry = rows.pop().flatten()?;
            let level = entry.flags.level;
            let level = level.unwrap_or(NotificationLevel::default_of(conversation.is_large));
            let is_wanted = match level {
                NotificationLevel::All => true,
                NotificationLevel::Mentions => content.mentions.concern(&user),
                NotificationLevel::None => false,
            };
            let is_notified = is_wanted
                && entry.read_up_to() < position
                && !entry.flags.is_muted
                && !blocks.has(&message.sender);
            let reason = reason(conversation.kind, &content.mentions, &user);
            is_notified.then_some(NotificationRecipient {
                user,
                reason,
                entry,
                is_online,
            })
        });
        Ok(notified.collect())
    }

    /// Participants whom a message may notify. In a large conversation nobody but those whom it names is looked for, so that the
    /// cost does not grow with the participants.
    async fn candidates(
        &self,
        conversation: &Conversation,
        mentions: &Mentions,
    ) -> Result<Vec<Participant>> {
        if conversation.is_large {
            let key = |user: &UserId| (conversation.id, user.clone());
            let keys: Vec<_> = mentions.users().iter().map(key).collect();
            let found = self.store.participants_by_name(&keys).await?;
            return Ok(found.into_iter().flatten().collect());
        }
        let page = PageRequest::first(Conversation::FAN_OUT_MAX);
        Ok(self.store.participants(conversation.id, &page).await?.items)
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

    /// Unread mentions of a recipient in the conversation.
    pub async fn unread_mentions(
        &self,
        recipient: &NotificationRecipient,
    ) -> Result<Option<Unread>> {
        let rows = [recipient.entry];
        Ok(self.inbox.mentions(&recipient.user, &rows).await?.pop())
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

/// Reason for which a message notifies a user: the narrowest one.
fn reason(kind: ConversationKind, mentions: &Mentions, user: &UserId) -> NotificationReason {
    if mentions.names(user) {
        return NotificationReason::Mention;
    }
    if mentions.everyone {
        return NotificationReason::Everyone;
    }
    match kind {
        ConversationKind::Direct => NotificationReason::Direct,
        ConversationKind::Group => NotificationReason::Group,
    }
}
