//! Counts of messages up to the floors of conversations. A removal from the disk ends the counts of its conversation; an import, which may
//! bring older messages, ends all.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::Mutex;

use crate::model::{ConversationId, OrderKey};
use crate::store::rules::position_counts::PositionCounts;

const CONVERSATIONS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

pub(crate) struct FloorCounts {
    counts: Mutex<LruCache<ConversationId, Counts>>,
    /// Imports whose messages every later view has.
    imports: AtomicU64,
}

/// The version of counts: a later one ends those of an earlier one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CountsVersion {
    /// [`FloorCounts::imports`], read before the view that was counted.
    pub(crate) imports: u64,
    /// Messages up to here were removed.
    pub(crate) removed_up_to: OrderKey,
}

/// Counts of one conversation.
#[derive(Default)]
struct Counts {
    version: CountsVersion,
    counts: PositionCounts,
}

impl FloorCounts {
    pub(crate) fn new() -> Self {
        Self {
            counts: Mutex::new(LruCache::new(CONVERSATIONS_MAX)),
            imports: AtomicU64::new(0),
        }
    }

    pub(crate) fn imports(&self) -> u64 {
        self.imports.load(Ordering::Acquire)
    }

    /// Ends all counts, once an import is applied.
    pub(crate) fn end_by_import(&self) {
        self.imports.fetch_add(1, Ordering::Release);
    }

    /// The last counted position up to this one, with its count, for a reader of this version.
    pub(crate) fn nearest(
        &self,
        conversation: ConversationId,
        version: CountsVersion,
        position: OrderKey,
    ) -> (OrderKey, u64) {
        let mut all = self.counts.lock();
        let cached = all.get(&conversation);
        let cached = cached.filter(|cached| cached.version == version);
        let last = cached.and_then(|cached| cached.counts.last_up_to(position));
        last.unwrap_or((OrderKey::MIN, 0))
    }

    pub(crate) fn clear(&self) {
        self.counts.lock().clear();
    }

    /// Notes the count of a position, and the checkpoints that the count has passed.
    pub(crate) fn put(
        &self,
        conversation: ConversationId,
        version: CountsVersion,
        count: (OrderKey, u64),
        checkpoints: Vec<(OrderKey, u64)>,
    ) {
        let mut all = self.counts.lock();
        let cached = all.get_or_insert_mut(conversation, Counts::default);
        if cached.version > version {
            return;
        }
        if cached.version < version {
            *cached = Counts {
                version,
                ..Counts::default()
            };
        }
        cached.counts.add(count, checkpoints);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_and_an_import_end_the_counts() {
        let (counts, id) = (FloorCounts::new(), ConversationId(uuid::Uuid::nil()));
        let position = |number: u128| OrderKey(number.to_be_bytes());
        let version = |removed| CountsVersion {
            imports: counts.imports(),
            removed_up_to: position(removed),
        };
        let first = version(0);
        counts.put(id, first, (position(7), 3), Vec::new());
        assert_eq!(counts.nearest(id, first, position(9)), (position(7), 3));
        let none = (OrderKey::MIN, 0);
        assert_eq!(counts.nearest(id, version(5), position(9)), none);
        counts.put(id, version(5), (position(8), 1), Vec::new());
        counts.put(id, first, (position(9), 4), Vec::new());
        let cached = counts.nearest(id, version(5), position(9));
        assert_eq!(cached, (position(8), 1), "an earlier view adds none");
        counts.end_by_import();
        assert_eq!(counts.nearest(id, version(5), position(9)), none);
    }
}
