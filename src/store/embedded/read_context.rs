//! Context of reads and of write plans: engine, caches and clock. Every method blocks.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use crate::clock::Clock;
use crate::model::{ConversationId, Message, MessageId, UserId};
use crate::store::Result;
use crate::store::embedded::cache::floor_counts::FloorCounts;
use crate::store::embedded::cache::mention_list::MentionLists;
use crate::store::embedded::cache::row::{Entry, Marks, RowCache};
use crate::store::embedded::cache::state::{ConversationState, States};
use crate::store::embedded::cache::unread_list::UnreadLists;
use crate::store::embedded::engine::db::{Db, View};
use crate::store::embedded::outbox::OutboxWriter;
use crate::store::rules::former_runs::FormerRuns;

pub(super) struct ReadContext {
    pub(super) db: Db,
    pub(super) states: Arc<States>,
    pub(super) rows: Arc<RowCache>,
    pub(super) unread: UnreadLists,
    pub(super) mentions: Arc<MentionLists>,
    pub(super) floors: Arc<FloorCounts>,
    pub(super) former: FormerRuns,
    pub(super) outbox: OutboxWriter,
    /// Expiry of all messages in seconds. 0: none.
    pub(super) retention: AtomicU32,
    pub(super) clock: Arc<dyn Clock>,
}

impl ReadContext {
    pub(super) fn view(&self) -> View<'_> {
        self.db.view()
    }

    pub(super) fn snapshot(&self) -> ReadSnapshot<'_> {
        // Take the marks before the view: a value loaded from the view is then never cached as newer than it is.
        let marks = self.rows.marks();
        ReadSnapshot {
            context: self,
            marks,
            view: self.view(),
        }
    }

    /// Loads a state through the cache.
    pub(super) fn state(&self, id: ConversationId) -> Result<Option<Arc<ConversationState>>> {
        if let Some(state) = self.states.get(&id) {
            return Ok(Some(state));
        }
        let mark = self.states.mark();
        let Some(state) = ConversationState::load(&self.view(), id)?.map(Arc::new) else {
            return Ok(None);
        };
        self.states.put_loaded(mark, id, state.clone());
        Ok(Some(state))
    }
}

/// A snapshot, and the marks that its loads are cached under.
pub(super) struct ReadSnapshot<'a> {
    pub(super) context: &'a ReadContext,
    pub(super) marks: Marks,
    pub(super) view: View<'a>,
}

impl ReadSnapshot<'_> {
    pub(super) fn entry(&self, user: &UserId, conversation: ConversationId) -> Result<Entry> {
        self.context
            .rows
            .entry(self.marks, &self.view, user, conversation)
    }

    pub(super) fn message(
        &self,
        conversation: ConversationId,
        id: MessageId,
    ) -> Result<Option<Arc<Message>>> {
        self.context
            .rows
            .message(self.marks, &self.view, conversation, id)
    }
}
