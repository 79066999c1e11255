//! Live writes: sends, edits, membership, markers and flags.

mod append;
mod completion;
mod creation;
pub(crate) mod erasure;
mod fill_probe;
pub(crate) mod idempotency;
mod inbox_entry;
pub(crate) mod membership;
pub(crate) mod mention;
pub(crate) mod pending_change;
mod pin;
mod reaction;
mod removal;
mod revision;
mod writer_cache;

use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Weak};

use self::completion::Completions;
use self::writer_cache::WriterCache;
use super::driver::executor::Executor;
use super::inbox::Inboxes;
use super::message::Messages;
use super::message::bucket::Bucket;
use super::outbox::Outbox;
use super::participant::Participants;
use crate::clock::Clock;
use crate::model::{ConversationId, Message, MessageId};
use crate::store::Result;
use crate::store::cluster::CompletionHandler;

/// Live writes, with a cache of the conversations that this server writes to.
pub(crate) struct Sends {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
    messages: Arc<Messages>,
    participants: Arc<Participants>,
    inboxes: Arc<Inboxes>,
    outbox: Arc<Outbox>,
    completions: Completions,
    writers: WriterCache,
    /// Expiry of all messages in seconds. 0: none.
    retention: AtomicU32,
}

impl Sends {
    pub(crate) fn new(
        executor: Arc<Executor>,
        clock: Arc<dyn Clock>,
        messages: Arc<Messages>,
        participants: Arc<Participants>,
        inboxes: Arc<Inboxes>,
        outbox: Arc<Outbox>,
    ) -> Self {
        Self {
            executor,
            clock,
            messages,
            participants,
            inboxes,
            outbox,
            completions: Completions::default(),
            writers: WriterCache::new(),
            retention: AtomicU32::new(0),
        }
    }

    /// Sets the owner of the events of completed changes.
    pub(crate) fn set_completion_handler(&self, handler: Weak<dyn CompletionHandler>) {
        self.completions.set(handler);
    }

    /// Finds a message with its bucket. `None` if it, or its conversation, does not exist.
    async fn find_message(
        &self,
        conversation: ConversationId,
        message: MessageId,
    ) -> Result<Option<(Message, Bucket)>> {
        let Some(state) = self.write_state(conversation).await? else {
            return Ok(None);
        };
        let guess = state.lock().buckets.bucket_of(message);
        self.messages
            .find_message(conversation, message, guess)
            .await
    }

    /// Evicts the cached state of a conversation that an import or a repair has changed.
    pub(crate) fn invalidate(&self, conversation: ConversationId) {
        self.writers.evict(conversation);
    }
}
