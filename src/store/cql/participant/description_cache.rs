//! Cache of the parts of conversations that never change: kind, creator, time of creation and input hash.
//!
//! A row of `conversations` also has a name, the slow mode, the settings of its history and the flag of large conversations, which change. Each change writes them to static cells of the
//! participants' partition too, which every reader of a membership reads. A cell wins over the cached row. A row without cells has not changed
//! since it was read: no server that shares the keyspace changes it without writing the cell.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::roster::TABLE;
use crate::model::{Conversation, ConversationId, GroupName};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::message::conversation::{decode_history, slow_mode};

/// Conversations that are cached. One takes at most 600 bytes, with its name and its creator.
const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");

/// Time after which a row is read again: the erasure of a user replaces the creator.
const KEPT_FOR: Duration = Duration::from_secs(3_600);

pub(super) struct DescriptionCache(Mutex<LruCache<ConversationId, (Arc<Conversation>, Instant)>>);

impl DescriptionCache {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(CONVERSATIONS_MAX)))
    }

    pub(super) fn get(&self, id: ConversationId) -> Option<Arc<Conversation>> {
        let mut cached = self.0.lock();
        let (conversation, read_at) = cached.get(&id)?;
        (read_at.elapsed() < KEPT_FOR).then(|| Arc::clone(conversation))
    }

    pub(super) fn forget(&self, id: ConversationId) {
        self.0.lock().pop(&id);
    }

    pub(super) fn put(&self, conversation: &Arc<Conversation>) {
        let read = (Arc::clone(conversation), Instant::now());
        self.0.lock().put(conversation.id, read);
    }
}

/// The static cells that describe a conversation. They are absent while nothing has changed.
#[derive(Debug, Default)]
pub(super) struct DescriptionCells {
    pub(super) name: Option<String>,
    pub(super) is_large: Option<bool>,
    pub(super) slow_mode_seconds: Option<i32>,
    pub(super) history: Option<Vec<u8>>,
}

impl DescriptionCells {
    /// The conversation as it is now: the row that was read once, with the cells that were read now.
    pub(super) fn apply(self, read: Arc<Conversation>) -> Result<Arc<Conversation>> {
        let name = match self.name {
            Some(name) => {
                Some(GroupName::from_history(&name).map_err(|error| corrupt(TABLE, error))?)
            }
            None => read.name.clone(),
        };
        let is_large = read.is_large || self.is_large.unwrap_or_default();
        let slow_mode_seconds = match self.slow_mode_seconds {
            Some(seconds) => slow_mode(Some(seconds)),
            None => read.slow_mode_seconds,
        };
        let history = match self.history {
            Some(history) => decode_history(Some(&history))?,
            None => read.history,
        };
        if name == read.name
            && is_large == read.is_large
            && slow_mode_seconds == read.slow_mode_seconds
            && history == read.history
        {
            return Ok(read);
        }
        Ok(Arc::new(Conversation {
            name,
            is_large,
            slow_mode_seconds,
            history,
            ..Conversation::clone(&read)
        }))
    }
}
