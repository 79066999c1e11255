//! Inbox entries: the conversations in the viewer's list, each with its counts and its flags.

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{ID, Object};
use futures_util::future::try_join;

use super::sync_fields::{JsonText, SyncFields};
use super::{Conversation, Message, NotificationLevel, missing};
use crate::chat::{self, VisibleConversation};
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;
use crate::model::{self, ConversationId, InboxRow, Unread};

pub(crate) struct InboxEntry {
    pub(super) scope: ViewerScope,
    pub(super) row: InboxRow,
    pub(super) read: ReadBefore,
}

/// Values read for all entries of a page at once. A missing one is read on demand.
#[derive(Default)]
pub(super) struct ReadBefore {
    pub(super) conversation: Option<Arc<model::Conversation>>,
    pub(super) last_message: Option<Arc<model::Message>>,
    pub(super) unread: Option<Unread>,
    /// The stream's count, where it has none for the row yet.
    pub(super) uncounted: Option<Arc<chat::LoadedUnread>>,
}

impl InboxEntry {
    pub(crate) fn new(scope: &ViewerScope, row: InboxRow) -> Self {
        Self {
            scope: scope.clone(),
            row,
            read: ReadBefore::default(),
        }
    }

    pub(crate) async fn load(
        scope: &ViewerScope,
        conversation: ConversationId,
    ) -> Result<Option<Self>> {
        Ok(row(scope, conversation)
            .await?
            .map(|row| Self::new(scope, row)))
    }

    fn loaded_unread(&self) -> Option<Unread> {
        // The row alone shows that nothing is unread, without the wait for a batch.
        if self.row.may_be_unread() {
            self.read.unread
        } else {
            Some(Unread::default())
        }
    }

    async fn unread(&self) -> Result<Unread> {
        if let Some(unread) = self.loaded_unread() {
            return Ok(unread);
        }
        let Some(uncounted) = &self.read.uncounted else {
            return self.scope.loaders.unread.load(self.row).await;
        };
        let unread = self.scope.loaders.unread_up_to_last.load(self.row).await?;
        uncounted.set(&self.row, unread);
        Ok(unread)
    }

    async fn mentions(&self) -> Result<Unread> {
        // Without an unread message there is no unread mention.
        if self.row.may_be_unread() {
            self.scope.loaders.mentions.load(self.row).await
        } else {
            Ok(Unread::default())
        }
    }

    /// Whether the row alone shows that no mention is unread.
    fn has_no_mentions(&self) -> bool {
        !self.row.may_be_unread()
    }

    fn level(&self, conversation: &model::Conversation) -> NotificationLevel {
        let level = self.row.flags.level;
        level
            .unwrap_or(model::NotificationLevel::default_of(conversation.is_large))
            .into()
    }

    /// An entry that the stream knows without a read of the store.
    pub(super) async fn of_loaded(scope: &ViewerScope, entry: chat::LoadedEntry) -> Self {
        let chat::LoadedEntry {
            row,
            conversation,
            own_floor,
            last_message,
            unread,
        } = entry;
        let conversation = VisibleConversation {
            conversation,
            floor: row.floor,
            own_floor,
        };
        let (loaders, id) = (&scope.loaders, row.conversation);
        let primed = vec![(id, Some(conversation.clone()))];
        loaders.conversations.prime(primed).await;
        loaders.entries.prime(vec![(id, Some(row))]).await;
        if let Some(message) = &last_message {
            let key = (id, message.id);
            let primed = vec![(key, Some(Arc::clone(message)))];
            loaders.messages.prime(primed).await;
        }
        let read = ReadBefore {
            conversation: Some(conversation.arc()),
            last_message,
            unread: unread.of(&row),
            uncounted: Some(unread),
        };
        Self {
            scope: scope.clone(),
            row,
            read,
        }
    }
}

/// Row of the viewer, if the viewer may see the conversation.
pub(super) async fn row(
    scope: &ViewerScope,
    conversation: ConversationId,
) -> Result<Option<InboxRow>> {
    let loaders = &scope.loaders;
    let (row, conversation) = try_join(
        loaders.entries.load(conversation),
        loaders.conversations.load(conversation),
    )
    .await?;
    let above = |(row, visible): (InboxRow, VisibleConversation)| row.above(visible.floor);
    Ok(row.zip(conversation).map(above))
}

/// A conversation in the viewer's inbox, with the viewer's markers and flags.
#[Object]
impl InboxEntry {
    /// Opaque global id, unique among all objects. `Query.node` accepts it.
    pub(crate) async fn id(&self) -> ID {
        GlobalId::InboxEntry(self.row.conversation, self.scope.viewer.clone()).encode()
    }

    /// The conversation.
    async fn conversation(&self) -> Result<Conversation> {
        match &self.read.conversation {
            Some(known) => Ok(Conversation::new(&self.scope, Arc::clone(known))),
            None => Conversation::of(&self.scope, self.row.conversation).await,
        }
    }

    /// Newest message that the viewer sees. Null if there is none.
    async fn last_message(&self) -> Nullable<Message> {
        nullable(async {
            if let Some(known) = &self.read.last_message {
                return Ok(Some(Message::new(&self.scope, Arc::clone(known))));
            }
            let last = self.row.visible_last_message();
            Message::load(&self.scope, self.row.conversation, last).await
        })
        .await
    }

    /// Sort key of the inbox: time of the newest message, or of the creation of the conversation.
    async fn last_activity_at(&self) -> DateTime {
        DateTime(self.row.last_activity)
    }

    /// Number of TEXT messages of other users after the viewer's read marker, without deleted ones.
    /// Exact up to the cap of the server (99 by default), then the cap.
    async fn unread_count(&self) -> Result<i32> {
        Ok(count_of(self.unread().await?))
    }

    /// True if there may be more unread messages than `unreadCount`, as in `99+`. False at exactly
    /// the cap. Behind a thousand messages that do not count (deleted ones, SYSTEM messages, those of
    /// blocked users), it is true until a few further reads have passed them.
    async fn unread_count_is_capped(&self) -> Result<bool> {
        Ok(self.unread().await?.is_capped)
    }

    /// Oldest unread message. Null if nothing is unread.
    async fn first_unread_message(&self) -> Nullable<Message> {
        nullable(async {
            let first = self.unread().await?.first;
            Message::load(&self.scope, self.row.conversation, first).await
        })
        .await
    }

    /// Newest message that the viewer has read. Null if the viewer has read none, marked all as unread,
    /// or does not see it any more.
    async fn read_up_to(&self) -> Nullable<Message> {
        let Self { scope, row, .. } = self;
        nullable(Message::at(scope, row.conversation, row.read_up_to())).await
    }

    /// Number of unread messages that mention the viewer or everyone. Exact up to the cap of the server
    /// (99 by default), then the cap, however many other messages are unread.
    async fn unread_mention_count(&self) -> Result<i32> {
        Ok(count_of(self.mentions().await?))
    }

    /// True if there may be more unread mentions than `unreadMentionCount`.
    async fn unread_mention_count_is_capped(&self) -> Result<bool> {
        Ok(self.mentions().await?.is_capped)
    }

    /// Oldest unread message that mentions the viewer or everyone. Null if there is none.
    async fn first_unread_mention(&self) -> Nullable<Message> {
        nullable(async {
            let first = self.mentions().await?.first;
            Message::load(&self.scope, self.row.conversation, first).await
        })
        .await
    }

    /// Moment before which the viewer sees no message: the viewer joined then or cleared the history, or
    /// the conversation was truncated. When it moves, a client drops what is older. Null: everything is
    /// visible. Expiry comes on top.
    async fn visible_from(&self) -> Option<DateTime> {
        self.row.floor.visible_from().map(DateTime)
    }

    /// Messages that notify the viewer. The default is MENTIONS in a large conversation, ALL in any
    /// other one.
    async fn notification_level(&self) -> Result<NotificationLevel> {
        if let Some(known) = &self.read.conversation {
            return Ok(self.level(known));
        }
        let id = self.row.conversation;
        let conversation = self.scope.loaders.conversations.load(id).await?;
        let conversation = conversation.ok_or_else(|| missing("the conversation"))?;
        Ok(self.level(&conversation))
    }

    /// True if the viewer muted the conversation.
    async fn is_muted(&self) -> bool {
        self.row.flags.is_muted
    }

    /// True if the viewer pinned the entry. The server orders by activity only; the client shows
    /// pinned entries first.
    async fn is_pinned(&self) -> bool {
        self.row.flags.is_pinned
    }

    /// True if the viewer archived the entry. A newer message ends it, unless the entry is muted.
    async fn is_archived(&self) -> bool {
        self.row.is_archived()
    }
}

fn count_of(unread: Unread) -> i32 {
    i32::try_from(unread.count).unwrap_or(i32::MAX)
}

impl SyncFields for InboxEntry {
    const TYPES: &'static [&'static str] = &["InboxEntry", "Node"];

    fn write_sync(&self, field: &Field, json: &mut JsonText) -> bool {
        let Self { scope, row, read } = self;
        match field.name.node.as_str() {
            "id" => json.put_id(&GlobalId::InboxEntry(
                row.conversation,
                scope.viewer.clone(),
            )),
            "conversation" => read.conversation.as_ref().is_some_and(|known| {
                json.object(&Conversation::new(scope, Arc::clone(known)), field)
            }),
            "lastMessage" if row.visible_last_message().is_none() => json.put(()),
            "lastMessage" => read
                .last_message
                .as_ref()
                .is_some_and(|known| json.object(&Message::new(scope, Arc::clone(known)), field)),
            "lastActivityAt" => json.put_time(row.last_activity),
            "unreadCount" => self
                .loaded_unread()
                .is_some_and(|unread| json.put(count_of(unread))),
            "unreadCountIsCapped" => self
                .loaded_unread()
                .is_some_and(|unread| json.put(unread.is_capped)),
            "unreadMentionCount" if self.has_no_mentions() => json.put(0),
            "unreadMentionCountIsCapped" if self.has_no_mentions() => json.put(false),
            "firstUnreadMention" if self.has_no_mentions() => json.put(()),
            "notificationLevel" => read
                .conversation
                .as_ref()
                .is_some_and(|known| json.put_enum(self.level(known))),
            "visibleFrom" => json.put_time_or_null(row.floor.visible_from()),
            "isMuted" => json.put(row.flags.is_muted),
            "isPinned" => json.put(row.flags.is_pinned),
            "isArchived" => json.put(row.is_archived()),
            _ => false,
        }
    }
}
