//! List of unread messages: those that count for a user between two positions. A later count continues it, so that a
//! count behind many rows that do not count (deleted ones, SYSTEM messages, those of blocked senders) becomes exact read
//! by read.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use crate::model::{ConversationId, MessageId, OrderKey, Unread, UserId};
use crate::store::{UnreadQuery, UnreadReader};

const LONG_LISTS_MAX: NonZeroUsize = NonZeroUsize::new(2_048).expect("it is not zero");

/// Ids of the messages that count as unread for a user, in order: all of them from one position up to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store) struct UnreadList {
    pub(in crate::store) after: OrderKey,
    pub(in crate::store) ids: Vec<MessageId>,
    pub(in crate::store) read_up_to: OrderKey,
    /// Whether no message followed.
    pub(in crate::store) is_whole: bool,
    /// Number of rows that were read for it.
    pub(in crate::store) rows: usize,
}

impl UnreadList {
    pub(in crate::store) fn new(after: OrderKey) -> Self {
        Self {
            after,
            ids: Vec::new(),
            read_up_to: after,
            is_whole: false,
            rows: 0,
        }
    }

    /// Adds the next row. Returns false once the list exceeds the cap, which ends a read: the id beyond the
    /// cap is part of the list.
    pub(in crate::store) fn add(&mut self, message: MessageId, counts: bool, cap: u32) -> bool {
        self.rows += 1;
        self.read_up_to = message.order_key();
        if counts {
            self.ids.push(message);
        }
        self.ids.len() <= cap as usize
    }

    /// Counts the unread messages of a query. `None` if the list does not hold all of them.
    pub(in crate::store) fn count(&self, query: &UnreadQuery, cap: u32) -> Option<Unread> {
        let (unread, is_exact) = self.count_held(query, cap)?;
        is_exact.then_some(unread)
    }

    /// The same. A list that does not hold all of them counts as capped.
    pub(in crate::store) fn count_or_capped(&self, query: &UnreadQuery, cap: u32) -> Unread {
        let (unread, is_exact) = self.count_held(query, cap).unwrap_or_default();
        Unread {
            is_capped: unread.is_capped || !is_exact,
            ..unread
        }
    }

    /// The count of what the list holds, and whether no further row can change it.
    fn count_held(&self, query: &UnreadQuery, cap: u32) -> Option<(Unread, bool)> {
        let mut unread = Unread::default();
        for id in self.ids_after(query.after)? {
            if query.up_to.is_some_and(|up_to| id.order_key() > up_to) || !unread.add(*id, cap) {
                return Some((unread, true));
            }
        }
        let ends_before = |up_to| up_to <= self.read_up_to;
        Some((
            unread,
            self.is_whole || query.up_to.is_some_and(ends_before),
        ))
    }

    /// The part after a later position. `None` without such a part.
    pub(in crate::store) fn rest(&self, after: OrderKey) -> Option<Self> {
        let ids = self.ids_after(after)?.to_vec();
        (after <= self.read_up_to).then_some(Self {
            after,
            ids,
            ..*self
        })
    }

    fn ids_after(&self, after: OrderKey) -> Option<&[MessageId]> {
        let skipped = self.ids.partition_point(|id| id.order_key() <= after);
        (self.after <= after).then(|| &self.ids[skipped..])
    }

    /// Whether one read does not suffice for it: the list is worth continuing after a change of its conversation.
    pub(in crate::store) fn is_long(&self) -> bool {
        self.rows >= Unread::ROWS_MAX
    }

    /// The part before a position, from which a later read continues.
    pub(in crate::store) fn before(mut self, end: OrderKey) -> Self {
        self.ids.retain(|id| id.order_key() < end);
        self.read_up_to = self.read_up_to.min(end.before()).max(self.after);
        self.is_whole = false;
        self
    }
}

/// Cache of lists that one read does not suffice for, by conversation and user.
///
/// A version says until when the rows behind a list gain no row. It is taken before the first read for the list.
pub(in crate::store) struct LongUnreadLists<V>(
    Mutex<LruCache<(ConversationId, UserId), LongUnreadList<V>>>,
);

#[derive(Clone)]
pub(in crate::store) struct LongUnreadList<V> {
    /// [`crate::model::IgnoredSenders::fingerprint`] of the senders that it leaves out.
    ignored: u64,
    pub(in crate::store) version: V,
    pub(in crate::store) list: UnreadList,
}

impl<V: Copy> LongUnreadLists<V> {
    pub(in crate::store) fn new() -> Self {
        Self(Mutex::new(LruCache::new(LONG_LISTS_MAX)))
    }

    /// Forgets every list.
    pub(in crate::store) fn clear(&self) {
        self.0.lock().clear();
    }

    /// The part of a user's list from which a count continues.
    pub(in crate::store) fn rest(
        &self,
        reader: UnreadReader<'_>,
        query: &UnreadQuery,
    ) -> Option<LongUnreadList<V>> {
        let mut lists = self.0.lock();
        let known = lists.get(&(query.conversation, reader.user.clone()))?;
        let is_readers = known.ignored == reader.ignored.fingerprint();
        let list = known.list.rest(query.after).filter(|_| is_readers)?;
        Some(LongUnreadList { list, ..*known })
    }

    pub(in crate::store) fn put(
        &self,
        reader: UnreadReader<'_>,
        conversation: ConversationId,
        list: LongUnreadList<V>,
    ) {
        let key = (conversation, reader.user.clone());
        self.0.lock().put(key, list);
    }
}

impl<V> LongUnreadList<V> {
    pub(in crate::store) fn new(reader: UnreadReader<'_>, after: OrderKey, version: V) -> Self {
        Self {
            ignored: reader.ignored.fingerprint(),
            version,
            list: UnreadList::new(after),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;

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

    /// A list whose last row, at 50, does not count.
    fn list(is_whole: bool) -> UnreadList {
        UnreadList {
            after: id(10).order_key(),
            ids: [20, 30, 40].map(id).to_vec(),
            read_up_to: id(50).order_key(),
            is_whole,
            rows: 4,
        }
    }

    fn counted(is_whole: bool, query: &UnreadQuery, cap: u32) -> Option<(u32, bool)> {
        let unread = list(is_whole).count(query, cap)?;
        Some((unread.count, unread.is_capped))
    }

    #[test]
    fn a_whole_list_counts_after_each_later_position_and_after_no_earlier_one() {
        assert_eq!(counted(true, &query(9, None), 99), None);
        assert_eq!(counted(true, &query(10, None), 99), Some((3, false)));
        assert_eq!(counted(true, &query(30, None), 99), Some((1, false)));
        assert_eq!(counted(true, &query(40, None), 99), Some((0, false)));
        assert_eq!(counted(true, &query(10, Some(35)), 99), Some((2, false)));
        assert_eq!(counted(true, &query(10, None), 2), Some((2, true)));
    }

    #[test]
    fn a_list_that_was_cut_counts_only_what_it_holds() {
        assert_eq!(counted(false, &query(10, None), 2), Some((2, true)));
        assert_eq!(counted(false, &query(20, None), 2), None);
        assert_eq!(counted(false, &query(20, Some(35)), 2), Some((1, false)));
        assert_eq!(counted(false, &query(10, Some(50)), 99), Some((3, false)));
        assert_eq!(counted(false, &query(10, Some(51)), 99), None);
        let capped = list(false).count_or_capped(&query(10, None), 99);
        assert_eq!((capped.count, capped.is_capped), (3, true));
    }

    #[test]
    fn a_list_is_continued_after_its_last_row() {
        let rest = list(false).rest(id(25).order_key()).unwrap();
        assert_eq!(
            (rest.ids, rest.read_up_to),
            ([30, 40].map(id).to_vec(), id(50).order_key())
        );
        assert_eq!(list(false).rest(id(45).order_key()).unwrap().ids, []);
        assert_eq!(list(false).rest(id(51).order_key()), None);
        assert_eq!(list(false).rest(id(9).order_key()), None);
        let before = list(true).before(id(40).order_key());
        assert_eq!(before.ids, [20, 30].map(id));
        assert_eq!(before.read_up_to, id(40).order_key().before());
        assert!(!before.is_whole);
    }
}
