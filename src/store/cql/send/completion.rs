//! Completions: the handler of changes that this server finishes for a server that died, and of the growth of conversations.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use crate::model::{ChangeId, ConversationId};
use crate::store::cluster::CompletionHandler;

#[derive(Default)]
pub(super) struct Completions {
    handler: OnceLock<Weak<dyn CompletionHandler>>,
    /// Changes whose writes are done and whose notices this server is delivering: nothing is left to complete.
    growing: Mutex<HashMap<ConversationId, ChangeId>>,
}

impl Completions {
    /// The first handler stays.
    pub(super) fn set(&self, handler: Weak<dyn CompletionHandler>) {
        let _ = self.handler.set(handler);
    }

    /// `None` for a store without a chat, or after the chat has gone.
    pub(super) fn handler(&self) -> Option<Arc<dyn CompletionHandler>> {
        self.handler.get()?.upgrade()
    }

    pub(super) fn begin_growth(&self, conversation: ConversationId, change: ChangeId) {
        self.growing.lock().insert(conversation, change);
    }

    /// Ends the growth by this change. That of a later one goes on.
    pub(super) fn end_growth(&self, conversation: ConversationId, change: ChangeId) {
        let mut growing = self.growing.lock();
        if growing.get(&conversation) == Some(&change) {
            growing.remove(&conversation);
        }
    }

    /// Whether this server is delivering the notices of this change.
    pub(super) fn is_growing(
        &self,
        conversation: ConversationId,
        change: Option<ChangeId>,
    ) -> bool {
        change.is_some() && self.growing.lock().get(&conversation).copied() == change
    }
}
