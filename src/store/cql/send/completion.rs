//! Completions: the handler of changes that this server finishes for a server that died.

use std::sync::{Arc, OnceLock, Weak};

use crate::store::cluster::CompletionHandler;

#[derive(Default)]
pub(super) struct Completions(OnceLock<Weak<dyn CompletionHandler>>);

impl Completions {
    /// The first handler stays.
    pub(super) fn set(&self, handler: Weak<dyn CompletionHandler>) {
        let _ = self.0.set(handler);
    }

    /// `None` for a store without a chat, or after the chat has gone.
    pub(super) fn handler(&self) -> Option<Arc<dyn CompletionHandler>> {
        self.0.get()?.upgrade()
    }
}
