//! Messages: the buckets that they lie in, their rows, reactions, pins, counts and unread counts, the change log, and the heads of
//! conversations.

pub(crate) mod bucket;
pub(crate) mod change_log;
pub(crate) mod content;
pub(crate) mod conversation;
pub(crate) mod count;
pub(crate) mod due;
pub(crate) mod head_cache;
pub(crate) mod history;
pub(crate) mod membership;
pub(crate) mod pin;
pub(crate) mod pin_list;
pub(crate) mod profile;
pub(crate) mod reaction;
pub(crate) mod row;
pub(crate) mod silent_runs;
mod unread;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use self::bucket::index::BucketIndex;
use self::count::bucket_counts::BucketCounts;
use self::head_cache::HeadCache;
use super::driver::executor::Executor;
use crate::clock::Clock;
use crate::model::Timestamp;
use crate::store::cluster::READ_BACK;
use crate::store::unread_list::LongUnreadLists;

/// Overlap window: an event becomes visible at most so long after its id, or is logged again as late. A stream re-reads this window.
pub(crate) const OVERLAP_MICROS: i64 = READ_BACK.as_micros() as i64;

/// Histories and heads of conversations, with the caches of their buckets and heads.
pub(crate) struct Messages {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
    heads: HeadCache,
    index: BucketIndex,
    /// The version of a list is the moment before the first read for it.
    unread_lists: LongUnreadLists<Timestamp>,
    bucket_counts: BucketCounts,
    /// Whether every server that may write knows the register of late writes. It stays so.
    has_late_register: AtomicBool,
}

impl Messages {
    pub(crate) fn new(executor: Arc<Executor>, clock: Arc<dyn Clock>) -> Self {
        Self {
            executor,
            clock,
            heads: HeadCache::new(),
            index: BucketIndex::new(),
            unread_lists: LongUnreadLists::new(),
            bucket_counts: BucketCounts::new(),
            has_late_register: AtomicBool::new(false),
        }
    }
}
