//! Participants: their rows, the roster of a conversation, pairs of direct conversations, profiles, restrictions, blocks, bans, reports and jobs.

pub(crate) mod ban;
pub(crate) mod block;
mod description_cache;
pub(crate) mod job;
pub(crate) mod page;
pub(crate) mod pager;
pub(crate) mod pair;
pub(crate) mod participation;
pub(crate) mod present;
pub(crate) mod profile;
pub(crate) mod report;
pub(crate) mod restriction;
pub(crate) mod roster;
pub(crate) mod version;
pub(crate) mod writes;

use std::sync::Arc;

use self::description_cache::DescriptionCache;
use super::driver::executor::Executor;
use super::message::Messages;
use crate::model::ConversationId;
use crate::store::rules::former_runs::FormerRuns;

/// Rows of one read by keys.
pub(crate) const KEYS_AT_ONCE: usize = 20;
/// Rows of one read of a range.
const ROWS_MAX: usize = 1_000;

/// Participants of conversations, their rosters, and the pairs of direct conversations.
pub(crate) struct Participants {
    executor: Arc<Executor>,
    messages: Arc<Messages>,
    descriptions: DescriptionCache,
    former: FormerRuns,
}

impl Participants {
    /// Reads the conversation again when it is needed.
    pub(crate) fn forget_description(&self, id: ConversationId) {
        self.descriptions.forget(id);
    }

    pub(crate) fn new(executor: Arc<Executor>, messages: Arc<Messages>) -> Self {
        Self {
            executor,
            messages,
            descriptions: DescriptionCache::new(),
            former: FormerRuns::new(),
        }
    }
}
