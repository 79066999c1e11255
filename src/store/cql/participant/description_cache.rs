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

use crate::model::{Conversation, ConversationId};

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
