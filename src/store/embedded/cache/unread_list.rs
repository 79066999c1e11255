//! Cache of unread messages: the ids that count as unread for a user, each list with the head it was read under.
//!
//! A new message, a deletion or an import changes the head, and a list under another head counts nothing: the cache is
//! exact. A marker that moves forward only shortens a list, and a list is continued where it ended. Marking one message
//! after the other therefore reads each row once. A long list is continued under a later head too: no message enters
//! it, unless by an import.
//!
//! Nothing of it is persisted. A row read from this store costs about a microsecond, and one process reads them: after a
//! restart a reader behind many messages that do not count gets one capped answer for each [`Unread::ROWS_MAX`] of
//! them, and then the exact one. A persisted register would cost a write at each read that advances it.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::metrics::CacheCounts;
use crate::model::{ConversationId, Unread, UserId};
use crate::store::embedded::engine::record::HeadRecord;
use crate::store::unread_list::UnreadList;
use crate::store::{UnreadQuery, UnreadReader};

const SHARDS: usize = 16;
const SHARD_LISTS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");
/// Ids in all lists of a shard: 4 MiB in all shards.
const SHARD_IDS_MAX: usize = 16 * 1_024;

/// Version of the rows that a list is read from, taken before their snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ListVersion {
    pub(crate) head: HeadRecord,
    /// Number of imports before.
    pub(crate) imports: u64,
}

struct CachedList {
    version: ListVersion,
    /// [`crate::model::IgnoredSenders::fingerprint`] of the senders that it leaves out.
    ignored: u64,
    list: UnreadList,
}

struct ListShard {
    lists: LruCache<(ConversationId, UserId), CachedList>,
    /// Number of ids in all lists.
    ids: usize,
}

impl ListShard {
    fn list(
        &mut self,
        reader: UnreadReader<'_>,
        conversation: ConversationId,
    ) -> Option<&CachedList> {
        let cached = self.lists.get(&(conversation, reader.user.clone()))?;
        (cached.ignored == reader.ignored.fingerprint()).then_some(cached)
    }
}

pub(crate) struct UnreadLists {
    shards: Vec<Mutex<ListShard>>,
    imports: AtomicU64,
    meter: CacheCounts,
}

impl UnreadLists {
    pub(crate) fn new() -> Self {
        let shard = |_| {
            Mutex::new(ListShard {
                lists: LruCache::new(SHARD_LISTS_MAX),
                ids: 0,
            })
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            imports: AtomicU64::new(0),
            meter: CacheCounts::new("unread"),
        }
    }

    /// Forgets every list, as the engine is opened anew.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.lists.clear();
            shard.ids = 0;
        }
    }

    fn shard(&self, id: ConversationId) -> MutexGuard<'_, ListShard> {
        self.shards[usize::from(id.0.as_bytes()[15]) % SHARDS].lock()
    }

    /// Ends all lists. Call it once an import is committed.
    pub(crate) fn on_import(&self) {
        self.imports.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn version(&self, head: &HeadRecord) -> ListVersion {
        ListVersion {
            head: *head,
            imports: self.imports.load(Ordering::SeqCst),
        }
    }

    /// Counts from the cached list, if it was read under this head and holds enough.
    pub(crate) fn count(
        &self,
        reader: UnreadReader<'_>,
        query: &UnreadQuery,
        cap: u32,
        head: &HeadRecord,
    ) -> Option<Unread> {
        let mut shard = self.shard(query.conversation);
        let cached = shard.list(reader, query.conversation);
        let cached = cached.filter(|cached| cached.version.head == *head);
        self.meter
            .count(cached.and_then(|cached| cached.list.count(query, cap)))
    }

    /// The part of the cached list that a scan after this position may continue, with the head it was read
    /// under.
    pub(crate) fn rest(
        &self,
        reader: UnreadReader<'_>,
        query: &UnreadQuery,
        version: &ListVersion,
    ) -> Option<(HeadRecord, UnreadList)> {
        let mut shard = self.shard(query.conversation);
        let cached = shard.list(reader, query.conversation)?;
        let is_valid = cached.version.imports == version.imports;
        let rest = cached.list.rest(query.after).filter(|_| is_valid)?;
        Some((cached.version.head, rest))
    }

    pub(crate) fn meter(&self) -> &CacheCounts {
        &self.meter
    }

    /// Stores a list.
    pub(crate) fn put(
        &self,
        reader: UnreadReader<'_>,
        conversation: ConversationId,
        version: ListVersion,
        mut list: UnreadList,
    ) {
        list.ids.shrink_to_fit();
        let mut shard = self.shard(conversation);
        shard.ids += list.ids.len();
        let cached = CachedList {
            version,
            ignored: reader.ignored.fingerprint(),
            list,
        };
        let replaced = shard
            .lists
            .push((conversation, reader.user.clone()), cached);
        shard.ids -= replaced.map_or(0, |(_, replaced)| replaced.list.ids.len());
        while shard.ids > SHARD_IDS_MAX
            && let Some((_, oldest)) = shard.lists.pop_lru()
        {
            shard.ids -= oldest.list.ids.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{IgnoredSenders, MessageId, OrderKey, Timestamp};

    #[test]
    fn all_lists_of_a_shard_together_hold_so_many_ids() {
        let (lists, conversation) = (UnreadLists::new(), ConversationId::random());
        let version = lists.version(&HeadRecord::new(Timestamp::from_micros(1), None));
        let id = |micros| MessageId::new(Timestamp::from_micros(micros), [0; 8]);
        for user in 0..100 {
            let user = UserId::parse(&format!("user{user}")).unwrap();
            let list = UnreadList {
                ids: (20..1_020).map(id).collect(),
                ..UnreadList::new(OrderKey::MIN)
            };
            let reader = UnreadReader {
                user: &user,
                ignored: &IgnoredSenders::default(),
            };
            lists.put(reader, conversation, version, list.clone());
            lists.put(reader, conversation, version, list);
        }
        let shard = lists.shard(conversation);
        assert_eq!(shard.lists.len(), SHARD_IDS_MAX / 1_000);
        assert_eq!(shard.ids, 1_000 * shard.lists.len());
    }
}
