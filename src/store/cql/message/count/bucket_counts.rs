//! Counts of the messages of a bucket up to floors inside it.
//!
//! This server remembers them, so that a count above one of many floors reads few rows. They follow the rules of a list of unread
//! messages: they cover only settled ids, and a late write ends them.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::model::{ConversationId, OrderKey, Timestamp};
use crate::store::cql::message::bucket::Bucket;
use crate::store::rules::position_counts::PositionCounts;

const BUCKETS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

/// Cache of counts, by bucket.
pub(in crate::store::cql::message) struct BucketCounts(
    Mutex<LruCache<(ConversationId, Bucket), CountsSince>>,
);

struct CountsSince {
    /// The moment before the first read for them.
    since: Timestamp,
    counts: PositionCounts,
}

impl BucketCounts {
    pub(in crate::store::cql::message) fn new() -> Self {
        Self(Mutex::new(LruCache::new(BUCKETS_MAX)))
    }

    /// The last counted position up to this one, with its count. A later late write ends the counts.
    pub(super) fn nearest(
        &self,
        key: (ConversationId, Bucket),
        late_at: Option<Timestamp>,
        position: OrderKey,
    ) -> (OrderKey, u64) {
        let mut all = self.0.lock();
        if all
            .peek(&key)
            .is_some_and(|cached| late_at > Some(cached.since))
        {
            all.pop(&key);
        }
        let cached = all.get(&key);
        let last = cached.and_then(|cached| cached.counts.last_up_to(position));
        last.unwrap_or((OrderKey::MIN, 0))
    }

    /// Notes the count of a settled position, which began at `since`, and the checkpoints that it has passed.
    pub(super) fn put(
        &self,
        key: (ConversationId, Bucket),
        since: Timestamp,
        count: (OrderKey, u64),
        checkpoints: Vec<(OrderKey, u64)>,
    ) {
        let mut all = self.0.lock();
        let none = || CountsSince {
            since,
            counts: PositionCounts::default(),
        };
        let cached = all.get_or_insert_mut(key, none);
        cached.since = cached.since.min(since);
        cached.counts.add(count, checkpoints);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::cql::message::bucket::Width;

    #[test]
    fn a_late_write_ends_the_counts_that_began_before_it() {
        let counts = BucketCounts::new();
        let moment = Timestamp::from_micros;
        let bucket = Bucket::holding(moment(7), Width::Day);
        let key = (ConversationId(uuid::Uuid::nil()), bucket);
        let position = |number: u128| OrderKey(number.to_be_bytes());
        counts.put(key, moment(20), (position(5), 3), Vec::new());
        counts.put(key, moment(30), (position(9), 4), Vec::new());
        let cached = |late_at| counts.nearest(key, late_at, position(8));
        assert_eq!(cached(None), (position(5), 3));
        assert_eq!(cached(Some(moment(20))), (position(5), 3));
        let later = counts.nearest(key, Some(moment(25)), position(9));
        assert_eq!(later, (OrderKey::MIN, 0), "all are as old as their first");
        assert_eq!(cached(None), (OrderKey::MIN, 0));
    }
}
