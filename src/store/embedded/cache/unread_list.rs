//! Cache of unread messages: the ids that count as unread for a user, each list with the head it was read under.
//!
//! A new message, a deletion or an import changes the head and so invalidates the list: the cache is exact. A marker
//! that moves forward only shortens a list, and a list that ended at the cap is continued where it ended. Marking one
//! message after the other therefore reads each row once.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};

use crate::metrics::CacheCounts;
use crate::model::{ConversationId, MessageId, OrderKey, Unread, UserId};
use crate::store::embedded::engine::record::HeadRecord;
use crate::store::{UnreadQuery, UnreadReader};

const SHARDS: usize = 16;
const SHARD_LISTS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");
/// Ids in all lists of a shard: 4 MiB in all shards.
const SHARD_IDS_MAX: usize = 16 * 1_024;

/// Reason why a scan of unread messages ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::embedded) enum ScanEnd {
    /// No message follows.
    Conversation,
    /// The next message exceeds the cap.
    Cap,
    /// The scan has read [`Unread::ROWS_MAX`] rows.
    Rows,
}

/// Ids of the messages that count as unread for a user after a position, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::embedded) struct UnreadList {
    pub(in crate::store::embedded) after: OrderKey,
    pub(in crate::store::embedded) ids: Vec<MessageId>,
    pub(in crate::store::embedded) end: ScanEnd,
}

impl UnreadList {
    pub(in crate::store::embedded) fn new(after: OrderKey) -> Self {
        Self {
            after,
            ids: Vec::new(),
            end: ScanEnd::Conversation,
        }
    }

    /// Counts the unread messages of a query. `None` if the list does not hold all of them.
    pub(in crate::store::embedded) fn count(
        &self,
        query: &UnreadQuery,
        cap: u32,
    ) -> Option<Unread> {
        let mut unread = Unread::default();
        for id in self.ids_after(query.after)? {
            if query.up_to.is_some_and(|up_to| id.order_key() > up_to) || !unread.add(*id, cap) {
                return Some(unread);
            }
        }
        match self.end {
            ScanEnd::Conversation => Some(unread),
            ScanEnd::Rows if self.after == query.after => Some(Unread {
                is_capped: true,
                ..unread
            }),
            ScanEnd::Rows | ScanEnd::Cap => None,
        }
    }

    /// The part after a later position, to be continued after its last id. `None` without such a part.
    fn rest(&self, after: OrderKey) -> Option<Self> {
        let ids = self.ids_after(after)?.to_vec();
        (self.end == ScanEnd::Cap && !ids.is_empty()).then_some(Self {
            after,
            ids,
            end: ScanEnd::Cap,
        })
    }

    fn ids_after(&self, after: OrderKey) -> Option<&[MessageId]> {
        let skipped = self.ids.partition_point(|id| id.order_key() <= after);
        (self.after <= after).then(|| &self.ids[skipped..])
    }
}

struct CachedList {
    head: HeadRecord,
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
        head: &HeadRecord,
    ) -> Option<&UnreadList> {
        let cached = self.lists.get(&(conversation, reader.user.clone()))?;
        let is_readers = cached.ignored == reader.ignored.fingerprint();
        (is_readers && cached.head == *head).then_some(&cached.list)
    }
}

pub(in crate::store::embedded) struct UnreadLists {
    shards: Vec<Mutex<ListShard>>,
    meter: CacheCounts,
}

impl UnreadLists {
    pub(in crate::store::embedded) fn new() -> Self {
        let shard = |_| {
            Mutex::new(ListShard {
                lists: LruCache::new(SHARD_LISTS_MAX),
                ids: 0,
            })
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            meter: CacheCounts::new("unread"),
        }
    }

    fn shard(&self, id: ConversationId) -> MutexGuard<'_, ListShard> {
        self.shards[usize::from(id.0.as_bytes()[15]) % SHARDS].lock()
    }

    /// Counts from the cached list, if it was read under this head and holds enough.
    pub(in crate::store::embedded) fn count(
        &self,
        reader: UnreadReader<'_>,
        query: &UnreadQuery,
        cap: u32,
        head: &HeadRecord,
    ) -> Option<Unread> {
        let mut shard = self.shard(query.conversation);
        let list = shard.list(reader, query.conversation, head);
        self.meter
            .count(list.and_then(|list| list.count(query, cap)))
    }

    /// The part of the cached list that a scan after this position may continue, if it was read under this head.
    pub(in crate::store::embedded) fn rest(
        &self,
        reader: UnreadReader<'_>,
        query: &UnreadQuery,
        head: &HeadRecord,
    ) -> Option<UnreadList> {
        let mut shard = self.shard(query.conversation);
        shard
            .list(reader, query.conversation, head)?
            .rest(query.after)
    }

    pub(in crate::store::embedded) fn meter(&self) -> &CacheCounts {
        &self.meter
    }

    /// Stores a list. The head must have been read before the snapshot of the list.
    pub(in crate::store::embedded) fn put(
        &self,
        reader: UnreadReader<'_>,
        conversation: ConversationId,
        head: HeadRecord,
        mut list: UnreadList,
    ) {
        list.ids.shrink_to_fit();
        let mut shard = self.shard(conversation);
        shard.ids += list.ids.len();
        let cached = CachedList {
            head,
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
    use crate::model::{IgnoredSenders, Timestamp};

    fn id(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    fn query(after: i64, up_to: Option<i64>) -> UnreadQuery {
        UnreadQuery {
            conversation: ConversationId::random(),
            after: id(after).order_key(),
            up_to: up_to.map(|micros| id(micros).order_key()),
        }
    }

    fn list(end: ScanEnd) -> UnreadList {
        UnreadList {
            after: id(10).order_key(),
            ids: [20, 30, 40].map(id).to_vec(),
            end,
        }
    }

    fn counted(end: ScanEnd, query: &UnreadQuery, cap: u32) -> Option<(u32, bool)> {
        let unread = list(end).count(query, cap)?;
        Some((unread.count, unread.is_capped))
    }

    #[test]
    fn a_whole_list_counts_after_each_later_position_and_after_no_earlier_one() {
        let whole = ScanEnd::Conversation;
        assert_eq!(counted(whole, &query(9, None), 99), None);
        assert_eq!(counted(whole, &query(10, None), 99), Some((3, false)));
        assert_eq!(counted(whole, &query(30, None), 99), Some((1, false)));
        assert_eq!(counted(whole, &query(40, None), 99), Some((0, false)));
        assert_eq!(counted(whole, &query(10, Some(35)), 99), Some((2, false)));
        assert_eq!(counted(whole, &query(10, None), 2), Some((2, true)));
    }

    #[test]
    fn a_list_that_was_cut_counts_only_what_it_holds() {
        assert_eq!(counted(ScanEnd::Cap, &query(10, None), 2), Some((2, true)));
        assert_eq!(counted(ScanEnd::Cap, &query(20, None), 2), None);
        assert_eq!(
            counted(ScanEnd::Cap, &query(20, Some(35)), 2),
            Some((1, false))
        );
        assert_eq!(
            counted(ScanEnd::Rows, &query(10, None), 99),
            Some((3, true))
        );
        assert_eq!(counted(ScanEnd::Rows, &query(20, None), 99), None);
    }

    #[test]
    fn only_a_list_that_ended_at_the_cap_is_continued() {
        let rest = list(ScanEnd::Cap).rest(id(25).order_key());
        assert_eq!(rest.map(|rest| rest.ids), Some([30, 40].map(id).to_vec()));
        assert_eq!(list(ScanEnd::Cap).rest(id(40).order_key()), None);
        assert_eq!(list(ScanEnd::Cap).rest(id(9).order_key()), None);
        assert_eq!(list(ScanEnd::Rows).rest(id(25).order_key()), None);
    }

    #[test]
    fn all_lists_of_a_shard_together_hold_so_many_ids() {
        let (lists, conversation) = (UnreadLists::new(), ConversationId::random());
        let head = HeadRecord::new(Timestamp::from_micros(1), None);
        for user in 0..100 {
            let user = UserId::parse(&format!("user{user}")).unwrap();
            let list = UnreadList {
                ids: (20..1_020).map(id).collect(),
                ..list(ScanEnd::Conversation)
            };
            let reader = UnreadReader {
                user: &user,
                ignored: &IgnoredSenders::default(),
            };
            lists.put(reader, conversation, head, list.clone());
            lists.put(reader, conversation, head, list);
        }
        let shard = lists.shard(conversation);
        assert_eq!(shard.lists.len(), SHARD_IDS_MAX / 1_000);
        assert_eq!(shard.ids, 1_000 * shard.lists.len());
    }
}
