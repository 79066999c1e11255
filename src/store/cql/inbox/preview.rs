//! Previews of inbox entries: the unread count and the newest message, read together.
//!
//! Both lie at the newest end of a conversation. Few messages are unread as a rule, so one read of the newest ones answers both. Only an entry
//! with more unread messages is counted by a read of its own.

use std::sync::Arc;

use futures_util::future::try_join;

use super::Inboxes;
use crate::model::{
    ConversationId, Direction, IgnoredSenders, Message, MessageId, MessageKind, OrderKey, Unread,
    UserId,
};
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::message::bucket::id_range::IdRange;
use crate::store::cql::message::bucket::view::IndexView;
use crate::store::{EntryPreview, PreviewQuery, Result, UnreadReader};

/// Whole messages that one read may return. A few of the longest ones are still a small answer.
const NEWEST_MAX: usize = 6;

impl Inboxes {
    pub(crate) async fn previews(
        &self,
        user: &UserId,
        queries: &[PreviewQuery],
        cap: u32,
        ignored: &IgnoredSenders,
    ) -> Result<Vec<EntryPreview>> {
        let reader = UnreadReader { user, ignored };
        let counted = queries.iter().filter(|query| query.unread_after.is_some());
        let views = self
            .messages
            .index_views(counted.map(|query| query.conversation));
        // The newest messages of entries without a count are read by their keys, of all conversations at once.
        let keys: Vec<_> = queries
            .iter()
            .filter(|query| query.unread_after.is_none())
            .filter_map(|query| Some((query.conversation, query.last_message?)))
            .collect();
        let (views, read) = try_join(views, self.messages.by_ids(&keys)).await?;
        let each = queries.iter().filter_map(|query| {
            let after = query.unread_after?;
            let view = views.get(&query.conversation)?.clone();
            Some(self.preview(reader, view, after, query.last_message, cap))
        });
        let (mut counted, mut read) = (concurrently(each).await?.into_iter(), read.into_iter());
        Ok(queries
            .iter()
            .map(|query| match (query.unread_after, query.last_message) {
                (Some(_), _) => counted.next().unwrap_or_default(),
                (None, Some(_)) => EntryPreview {
                    unread: None,
                    last_message: read.next().flatten(),
                },
                (None, None) => EntryPreview::default(),
            })
            .collect())
    }

    async fn preview(
        &self,
        reader: UnreadReader<'_>,
        mut view: IndexView,
        after: OrderKey,
        last: Option<MessageId>,
        cap: u32,
    ) -> Result<EntryPreview> {
        let conversation = view.conversation();
        let Some(last) = last else {
            let unread = self
                .messages
                .unread_after(reader, &mut view, after, cap)
                .await?;
            return Ok(EntryPreview {
                unread: Some(unread),
                last_message: None,
            });
        };
        let newest: Vec<Arc<Message>> = self
            .messages
            .merge_in(
                &mut view,
                IdRange::WHOLE.after(after),
                Direction::Backward,
                NEWEST_MAX,
            )
            .await?;
        if let Some(newest) = newest.first() {
            self.messages.observe_message(conversation, newest.id);
        }
        let unread = if newest.len() < NEWEST_MAX {
            unread_among(reader, &newest, cap)
        } else {
            self.messages
                .unread_after(reader, &mut view, after, cap)
                .await?
        };
        let last_message = match newest.into_iter().find(|message| message.id == last) {
            Some(message) => Some(message),
            None => self.message(conversation, last).await?,
        };
        Ok(EntryPreview {
            unread: Some(unread),
            last_message,
        })
    }

    async fn message(
        &self,
        conversation: ConversationId,
        id: MessageId,
    ) -> Result<Option<Arc<Message>>> {
        let found = self.messages.by_ids(&[(conversation, id)]).await?;
        Ok(found.into_iter().next().flatten())
    }
}

/// Counts the unread messages among all those after a marker, the newest first.
fn unread_among(reader: UnreadReader<'_>, newest: &[Arc<Message>], cap: u32) -> Unread {
    let mut unread = Unread::default();
    let counts = |message: &&Arc<Message>| {
        let is_shown = message.kind == MessageKind::Text && message.deleted_at.is_none();
        is_shown && reader.counts(message.sender.as_str())
    };
    for message in newest.iter().rev().filter(counts) {
        if !unread.add(message.id, cap) {
            break;
        }
    }
    unread
}
