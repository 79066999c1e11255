//! Removal: messages below the floor leave the disk, bucket by bucket.
//!
//! A conversation with something to remove has a row in the list of the hour in which that is due. A row is a hint: a
//! superfluous one costs a look, and the floor at that time decides.

use crate::model::{ConversationId, OrderKey, OutboxShard, TimeUuid};
use crate::store::intercepted::store_trait;

/// Entry of the list of removals: a conversation, and the hour from which there is something to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueRemoval {
    /// Counted from 1970.
    pub hour: u32,
    pub conversation: ConversationId,
}

/// Value of [`RemovalStore::scheduled_retention`] after which every conversation is scheduled again.
pub const RESCHEDULE: Option<u32> = Some(u32::MAX);

/// Part of the list of one shard: the entries of some hours, in the order of hours and conversations.
#[derive(Debug, Clone, Copy)]
pub struct DueQuery {
    pub shard: OutboxShard,
    pub from: u32,
    pub up_to: u32,
    /// The query continues after this entry.
    pub after: Option<DueRemoval>,
    pub limit: usize,
}

/// One step of a removal.
#[derive(Debug, Clone, Copy)]
pub struct HistoryRemoval {
    /// The last position that goes.
    pub up_to: OrderKey,
    /// Messages that share a bucket with a later position may stay, if the bucket is as narrow as messages with this expiry
    /// need. `None`: every message up to there goes.
    pub ttl_seconds: Option<u32>,
    /// Messages after which the step ends, about.
    pub limit: usize,
}

/// The bucket of a history that ends first: its first and its last position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldestBucket {
    pub first: OrderKey,
    pub last: OrderKey,
}

/// Outcome of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemovedHistory {
    pub messages: u64,
    /// Whether nothing more is to be removed.
    pub is_done: bool,
}

store_trait! {
    implement removal_operations;

    /// The part of a store that removes history. The chat decides what lies below the floor.
    pub trait RemovalStore: Send + Sync + 'static {
        /// The expiry of the deployment for which every conversation was scheduled. After an import it is
        /// [`RESCHEDULE`].
        fn scheduled_retention(&self) -> Option<u32>;

        fn note_scheduled_retention(&self, seconds: Option<u32>) -> ();

        /// Lists a conversation for an hour. A message that opens a bucket of a conversation with an expiry does so in its own
        /// batch, for the hour in which all of the bucket has expired. Idempotent.
        fn schedule_removal(&self, due: DueRemoval) -> ();

        fn due_removals(&self, query: &'a DueQuery) -> Vec<DueRemoval>;

        /// Takes an entry off the list.
        fn end_removal(&self, due: DueRemoval) -> ();

        /// The bucket that ends first among those that hold messages, or held some before a removal. `None` without a bucket.
        fn oldest_bucket(&self, conversation: ConversationId) -> Option<OldestBucket>;

        /// Removes messages with all that belongs to them: reactions, pins, mentions and counts. Later
        /// messages stay as they are, and so do markers and the activity. Whatever ends it half-way, a repetition
        /// finishes it. A message that is written up to there afterwards is not stored, or goes with the next removal.
        fn remove_history(&self, conversation: ConversationId, removal: &'a HistoryRemoval) -> RemovedHistory;

        /// Persists that messages of a conversation have expired, as an event of the outbox with this id.
        fn log_expiry(&self, conversation: ConversationId, event: TimeUuid) -> ();
    }
    other {
        /// Sets the expiry of all messages of the deployment. A server sets it when it opens its store.
        fn set_retention(&self, seconds: Option<u32>);
    }
    intercepted {
        fn set_retention(&self, seconds: Option<u32>) {
            self.store.set_retention(seconds);
        }
    }
}
