//! Erasure of a user from a store, and the jobs that carry it out.

use crate::model::{ChangeId, ConversationId, Job, JobId, MessageId, TimeUuid, Timestamp, UserId};
use crate::store::intercepted::store_trait;

/// A piece of the conversations of a user, present and former ones, by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationsPiece {
    pub found: Vec<ConversationId>,
    /// The conversation after which the next piece begins. `None` at the end.
    pub next: Option<ConversationId>,
}

store_trait! {
    implement erasure_operations;

    /// The part of a store that erases users. Every write can be repeated; a repetition changes nothing.
    pub trait ErasureStore: Send + Sync + 'static {
        /// The conversations after one of them that the user takes part in, or ever did: at most `limit`. A piece
        /// may hold none and still have a next one.
        fn conversations_of(&self, user: &'a UserId, after: Option<ConversationId>, limit: usize) -> ConversationsPiece;

        /// Removes a user from messages of a conversation, as [`crate::model::Message::without_name`] says, with
        /// the user's idempotency keys, reactions and mentions: all or nothing. No other part of a message
        /// changes, no event is logged, and no inbox or count changes. Messages that do not exist are passed
        /// over. The id lies after every id of the conversation; one task at a time writes to the conversation.
        fn erase_messages(&self, conversation: ConversationId, user: &'a UserId, messages: &'a [MessageId], change: ChangeId) -> ();

        /// Removes a user who has left a conversation from everything there but messages: membership, receipts,
        /// inbox entry, mentions, ban, notification level, and the pair of a direct conversation. Another name
        /// takes the user's place as the creator, and as the one who banned others. Last of all the user's
        /// conversations do not list it any more. Id and concurrency are those of the method above.
        fn erase_participant(&self, conversation: ConversationId, user: &'a UserId, change: ChangeId) -> ();

        /// Removes the profile, the blocks and the changes of the inbox of a user whose conversations are erased.
        /// The restriction stays, and with it an empty profile.
        fn erase_user(&self, user: &'a UserId, at: Timestamp) -> ();

        /// Adds the end of an erasure to the outbox. The event keeps its id, in a row under `logged_as`, which is
        /// that id or a later one.
        fn add_user_erased(&self, user: &'a UserId, event: TimeUuid, logged_as: TimeUuid) -> ();

        /// Jobs by id. `None` for one that does not exist. A store keeps an ended one for
        /// [`Job::ENDED_LIFETIME_MICROS`].
        fn jobs(&self, ids: &'a [JobId]) -> Vec<Option<Job>>;

        /// The jobs that run, at most `limit`, by id.
        fn running_jobs(&self, limit: usize) -> Vec<Job>;

        /// Replaces a running job, or adds one where none of its id runs: then `seen` is `None`, and one that
        /// has ended gives way. A compare-and-set: false, and nothing is written, if the job that runs is not the one
        /// that was `seen`. After an error either may be true.
        fn swap_job(&self, seen: Option<&'a Job>, to: &'a Job) -> bool;
    }
}
