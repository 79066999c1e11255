//! What reads and plans of writes share: the engine, the states in memory, the clock. All of it blocks.

use std::sync::Arc;

use super::counts::Counts;
use super::db::{Db, View};
use super::state::{State, States};
use crate::clock::Clock;
use crate::model::ConversationId;
use crate::store::Result;

pub(super) struct Core {
    pub(super) db: Db,
    pub(super) states: Arc<States>,
    pub(super) counts: Counts,
    pub(super) clock: Arc<dyn Clock>,
}

impl Core {
    pub(super) fn view(&self) -> View<'_> {
        self.db.view()
    }

    /// From memory, or from disk and then into memory.
    pub(super) fn state(&self, id: ConversationId) -> Result<Option<Arc<State>>> {
        if let Some(state) = self.states.get(id) {
            return Ok(Some(state));
        }
        let mark = self.states.mark(id);
        let Some(state) = State::load(&self.view(), id)?.map(Arc::new) else { return Ok(None) };
        self.states.put_loaded(mark, state.clone());
        Ok(Some(state))
    }
}
