//! Inboxes: rows of their entries, pages by the activity index, flags, and what changed since a position.

pub(crate) mod activity_index;
pub(crate) mod changes;
pub(crate) mod flags;
pub(crate) mod large;
pub(crate) mod mention;
pub(crate) mod notify_all;
mod page;
mod preview;
pub(crate) mod row;
pub(crate) mod writes;

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;

use super::driver::executor::Executor;
use super::message::Messages;
use crate::clock::Clock;
use crate::model::{Timestamp, UserId};
use crate::store::unread_list::LongUnreadLists;

const LONG_INBOXES_MAX: NonZeroUsize = NonZeroUsize::new(65_536).expect("it is not zero");

/// Inboxes of users.
pub(crate) struct Inboxes {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
    messages: Arc<Messages>,
    /// Users whose inboxes are too long to be read whole.
    long_inboxes: Mutex<LruCache<UserId, ()>>,
    /// The version of a list is the moment before the first read for it.
    mention_lists: LongUnreadLists<Timestamp>,
}

impl Inboxes {
    pub(crate) fn new(
        executor: Arc<Executor>,
        clock: Arc<dyn Clock>,
        messages: Arc<Messages>,
    ) -> Self {
        Self {
            executor,
            clock,
            messages,
            long_inboxes: Mutex::new(LruCache::new(LONG_INBOXES_MAX)),
            mention_lists: LongUnreadLists::new(),
        }
    }
}
