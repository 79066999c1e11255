//! Context of reads and of write plans: engine, caches and clock. Every method blocks.

use std::sync::Arc;

use crate::clock::Clock;
use crate::model::{ConversationId, Message, MessageId, UserId};
use crate::store::Result;
use crate::store::embedded::cache::row::{Entry, Marks, RowCache};
use crate::store::embedded::cache::state::{State, States};
use crate::store::embedded::cache::unread_count::Counts;
use crate::store::embedded::engine::db::{Db, View};

pub(super) struct ReadContext {
    pub(super) db: Db,
    pub(super) states: Arc<States>,
    pub(super) known: Arc<RowCache>,
    pub(super) counts: Counts,
    pub(super) clock: Arc<dyn Clock>,
}

impl ReadContext {
    pub(super) fn view(&self) -> View<'_> {
        self.db.view()
    }

    pub(super) fn look(&self) -> Look<'_> {
        // Take the marks before the view: a value loaded from the view is then never cached as newer than it is.
        let marks = self.known.marks();
        Look {
            core: self,
            marks,
            view: self.view(),
        }
    }

    /// Loads a state through the cache.
    pub(super) fn state(&self, id: ConversationId) -> Result<Option<Arc<State>>> {
        if let Some(state) = self.states.get(id) {
            return Ok(Some(state));
        }
        let mark = self.states.mark();
        let Some(state) = State::load(&self.view(), id)?.map(Arc::new) else {
            return Ok(None);
        };
        self.states.put_loaded(mark, state.clone());
        Ok(Some(state))
    }
}

/// A snapshot, and the marks that its loads are cached under.
pub(super) struct Look<'a> {
    pub(super) core: &'a ReadContext,
    marks: Marks,
    pub(super) view: View<'a>,
}

impl Look<'_> {
    pub(super) fn entry(&self, user: &UserId, conversation: ConversationId) -> Result<Entry> {
        self.core
            .known
            .entry(self.marks, &self.view, user, conversation)
    }

    pub(super) fn message(
        &self,
        conversation: ConversationId,
        id: MessageId,
    ) -> Result<Option<Arc<Message>>> {
        self.core
            .known
            .message(self.marks, &self.view, conversation, id)
    }
}
