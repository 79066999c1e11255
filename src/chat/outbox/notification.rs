//! Notifications: the users to notify of a message, decided when it is delivered.
//!
//! A notification follows from the addition of a TEXT message, or from an edit that mentions users anew, and has no row of its
//! own. A reader that asks for notifications trails by a few seconds, so that a user who reads the message at once is not
//! notified.
//!
//! It concerns the participants of a conversation. In a large one, it looks at those whom the message mentions and those who chose the
//! level ALL, so that the cost of a plain message does not grow with the participants. An edit notifies those whom it mentions
//! anew. A notification has pieces: each looks at a hundred users, by username, and is loaded and delivered after the one
//! before.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::chat::access::Access;
use crate::chat::access::relationship::has_answered;
use crate::chat::access::restrictions::Restrictions;
use crate::chat::components::Components;
use crate::chat::error::Result;
use crate::chat::inbox::InboxService;
use crate::chat::inbox::summary::SummaryFields;
use crate::chat::presence::PresenceService;
use crate::model::{
    Conversation, ConversationKind, Cut, InboxRow, Mentions, Message, MessageKind,
    NotificationLevel, OrderKey, OutboxEvent, OutboxEventKind, PageRequest, Participant, Timestamp,
    Unread, UserId,
};
use crate::store::Store;

/// Name of the type in the API and in the configuration.
pub const NOTIFICATION: &str = "NOTIFICATION";
/// How long the badge of a user is held.
const BADGE_LIFETIME: Duration = Duration::from_secs(5);
/// Badges that are held. A further one replaces the oldest.
const BADGES_MAX: usize = 10_000;

/// Users whom one piece of a notification looks at.
const PIECE_USERS: usize = 100;
/// Messages of one read that looks for an earlier one.
const EARLIER_PAGE: usize = 32;
/// Reads for one message: a minute with more SYSTEM messages requests nothing.
const EARLIER_PAGES_MAX: usize = 8;
const MINUTE_MICROS: i64 = 60 * 1_000_000;
/// Entries that are read at once.
const CONCURRENCY: usize = 32;

/// Piece of a notification: the first hundred users after a name, by username. It is the same in each try, whoever is to be
/// notified by then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotificationPiece {
    pub after: Option<UserId>,
}

/// Reason of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotificationReason {
    Direct,
    Group,
    Mention,
    Everyone,
    /// The user has not answered in the conversation yet.
    Request,
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

    /// Takes out the messages that are gone for everyone.
    pub(super) async fn retain_visible(&self, messages: &mut [Option<Arc<Message>>]) -> Result<()> {
        self.access.retain_visible(messages).await
    }

    /// Whether an event gives rise to a notification.
    pub fn follows(event: &OutboxEvent) -> bool {
        event.kind == OutboxEventKind::MessageAdded || !event.newly_mentioned.is_empty()
    }

    /// The users of a piece to notify of a message now, by username: participants but its sender and agents who have not read past it, and have
    /// neither muted the conversation nor blocked the sender. Those who have not answered in the conversation yet
    /// are among them for the first message of a minute alone. Of an edit, those whom it mentions anew. Nobody for a
    /// message that is deleted, or not of a user. With the name after which the next piece begins.
    pub(super) async fn recipients(
        &self,
        event: &OutboxEvent,
        message: &Message,
        piece: &NotificationPiece,
    ) -> Result<(Vec<NotificationRecipient>, Option<UserId>)> {
        let Some(content) = message
            .content
            .as_ref()
            .filter(|_| message.kind == MessageKind::Text)
        else {
            return Ok((Vec::new(), None));
        };
        let id = message.conversation;
        let conversation = self.store.conversations(&[id]).await?.pop().flatten();
        let Some(conversation) = conversation else {
            return Ok((Vec::new(), None));
        };
        let is_edit = event.kind == OutboxEventKind::MessageEdited;
        let mentions = match is_edit {
            true => &event.newly_mentioned,
            false => &content.mentions,
        };
        let (mut participants, next) = self
            .candidates(&conversation, mentions, is_edit, piece)
            .await?;
        participants.retain(|participant| self.may_notify(participant, message));
        let users: Vec<_> = participants.iter().map(|one| one.user.clone()).collect();
        let ids = [id];
        let mut rows = Vec::with_capacity(users.len());
        for some in users.chunks(CONCURRENCY) {
            let reads = some.iter().map(|user| self.store.inbox_rows(user, &ids));
            rows.extend(try_join_all(reads).await?);
        }
        let blocks = self.access.blocks().of_all(&users).await?;
        let online = self.presence.online(&users).await?;
        let position = message.id.order_key();
        let all = participants.into_iter().zip(rows).zip(blocks).zip(online);
        let notified = all.filter_map(|(((participant, mut rows), blocks), is_online)| {
            let row = rows.pop().flatten()?;
            let has_answered = has_answered(&conversation, &message.sender, &participant, &row);
            let own_floor = participant.membership.own_floor();
            let entry = row.above(self.access.floor_above(&conversation, own_floor));
            let user = participant.user;
            let level = entry.flags.level;
            let level = level.unwrap_or(NotificationLevel::default_of(conversation.is_large));
            let is_wanted = match level {
                NotificationLevel::All => true,
                NotificationLevel::Mentions => mentions.concern(&user),
                NotificationLevel::None => false,
            };
            // A later edit may have taken the mention back.
            let is_current = mentions.concern(&user) && content.mentions.concern(&user);
            let is_notified = is_wanted
                && (!is_edit || is_current)
                && entry.read_up_to() < position
                && !entry.flags.is_muted
                && !blocks.has(&message.sender);
            let reason = match has_answered {
                true => reason(conversation.kind, mentions, &user),
                false => NotificationReason::Request,
            };
            is_notified.then_some(NotificationRecipient {
                user,
                reason,
                entry,
                is_online,
            })
        });
        let mut notified: Vec<_> = notified.collect();
        for index in (0..notified.len()).rev() {
            let hidden = self.access.hidden_groups();
            if hidden.hides(&notified[index].user, id).await? {
                notified.remove(index);
            }
        }
        let is_request =
            |one: &NotificationRecipient| matches!(one.reason, NotificationReason::Request);
        if notified.iter().any(is_request) {
            if self.is_sent_by_service(message).await? {
                for one in notified.iter_mut().filter(|one| is_request(one)) {
                    one.reason = reason(conversation.kind, mentions, &one.user);
                }
            } else if is_edit || !self.is_first_of_minute(message).await? {
                notified.retain(|one| !is_request(one));
            }
        }
        Ok((notified, next))
    }

    /// Whether a service wrote the last message of the sender, under its own name or in that of a user who has not
    /// acted in the conversation.
    async fn is_sent_by_service(&self, message: &Message) -> Result<bool> {
        let ids = [message.conversation];
        let rows = self.store.inbox_rows(&message.sender, &ids).await?;
        let row = rows.into_iter().flatten().next();
        Ok(row.is_some_and(|row| row.is_sent_by_service))
    }

    /// Whether a message is the first TEXT message of its conversation in a minute of the clock. The ids decide, so
    /// that each try decides alike.
    async fn is_first_of_minute(&self, message: &Message) -> Result<bool> {
        let at = message.id.moment().micros();
        let minute = Timestamp::from_micros(at - at.rem_euclid(MINUTE_MICROS));
        let cut = Cut {
            start: Bound::Included(OrderKey::first_at(minute)),
            end: Bound::Excluded(message.id.order_key()),
        };
        let mut request = PageRequest::first(EARLIER_PAGE);
        for _ in 0..EARLIER_PAGES_MAX {
            let page = self.store.history(message.conversation, &cut, &request);
            let page = page.await?;
            let is_text = |earlier: &Arc<Message>| earlier.kind == MessageKind::Text;
            if page.items.iter().any(is_text) {
                return Ok(false);
            }
            match page.items.last().filter(|_| page.has_next) {
                Some(last) => request = request.after(last.id.order_key()),
                None => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Participants of a piece whom a message may notify, and the name after which the next piece begins.
    async fn candidates(
        &self,
        conversation: &Conversation,
        mentions: &Mentions,
        is_edit: bool,
        piece: &NotificationPiece,
    ) -> Result<(Vec<Participant>, Option<UserId>)> {
        if (conversation.is_large || is_edit) && !mentions.everyone {
            return self
                .named_candidates(conversation, mentions, is_edit, piece)
                .await;
        }
        let mut page = PageRequest::first(PIECE_USERS);
        if let Some(after) = &piece.after {
            page = page.after(after.clone());
        }
        let found = self.store.participants(conversation.id, &page).await?;
        let last = found.items.last().map(|last| last.user.clone());
        Ok((found.items, last.filter(|_| found.has_next)))
    }

    /// The same for a large conversation: those whom the message names, and those who chose the level ALL. An edit concerns
    /// only the former.
    async fn named_candidates(
        &self,
        conversation: &Conversation,
        mentions: &Mentions,
        is_edit: bool,
        piece: &NotificationPiece,
    ) -> Result<(Vec<Participant>, Option<UserId>)> {
        let (id, after) = (conversation.id, piece.after.as_ref());
        let is_later = |user: &&UserId| after.is_none_or(|after| *user > after);
        let named = mentions.users().iter().filter(is_later).cloned();
        let mut users: BTreeSet<_> = named.collect();
        let of_all = match is_edit {
            true => Vec::new(),
            false => self.store.notified_of_all(id, after, PIECE_USERS).await?,
        };
        let is_whole = of_all.len() < PIECE_USERS && users.len() + of_all.len() <= PIECE_USERS;
        users.extend(of_all);
        let users = users.into_iter().take(PIECE_USERS);
        let keys: Vec<_> = users.map(|user| (id, user)).collect();
        let next = keys.last().map(|(_, last)| last.clone());
        let found = self.store.participants_by_name(&keys).await?;
        Ok((
            found.into_iter().flatten().collect(),
            next.filter(|_| !is_whole),
        ))
    }

    fn may_notify(&self, participant: &Participant, message: &Message) -> bool {
        participant.membership.is_joined()
            && participant.user != message.sender
            && !participant.user.is_agent()
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
            .summary(user, SummaryFields::default())
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
