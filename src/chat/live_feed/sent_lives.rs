//! Messages that ended live messages, as far as this server has published them: for the live messages that it holds.

use std::sync::{Arc, OnceLock};

use crate::model::{DirectIds, LiveKey, LiveMessageId, Message, MessageId};
use crate::weak_map::WeakMap;

/// The message that ended a live message. Empty while this server knows of none.
pub(crate) type SentMark = OnceLock<MessageId>;

#[derive(Default)]
pub(crate) struct SentLives {
    /// Generator of the ids, from the first live message of this process on.
    ids: OnceLock<DirectIds>,
    marks: WeakMap<LiveKey, SentMark>,
}

impl SentLives {
    pub(crate) fn ids(&self) -> Option<&DirectIds> {
        self.ids.get()
    }

    pub(crate) fn set_ids(&self, ids: DirectIds) -> &DirectIds {
        // Every server of a store has the same.
        self.ids.get_or_init(|| ids)
    }

    /// The mark of a live message, which is set while it is held.
    pub(crate) fn mark(&self, live: LiveKey) -> Arc<SentMark> {
        self.marks.get_or_insert_with(live, SentMark::new)
    }

    /// Marks the live message of a message as sent. Costs nothing in a process that has had no live message.
    pub(crate) fn end(&self, message: &Message) -> Option<LiveKey> {
        let (ids, key) = (self.ids.get()?, message.client_key.as_ref()?);
        let conversation = message.conversation;
        let id = LiveMessageId::new(ids, conversation, &message.sender, key);
        let live = LiveKey { conversation, id };
        // A mark that nothing holds is of no use: a later holder reads the key, which is persisted.
        if let Some(mark) = self.marks.get(&live) {
            // The first message with a key is the only one.
            let _ = mark.set(message.id);
        }
        Some(live)
    }
}
