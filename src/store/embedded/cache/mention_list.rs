//! Cache of unread mentions: how far a count came for a user behind many mentions by blocked senders.
//!
//! A new mention comes after those that a list was read from, unless an edit adds it to an older message, or an import
//! or a repair brings it. Each of these advances the version of its conversation, which ends the lists. A row that was deleted is
//! found when the list is used.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::model::ConversationId;
use crate::store::unread_list::{LongUnreadList, LongUnreadLists};
use crate::store::{UnreadQuery, UnreadReader};

/// Counters of edits. Conversations that share one end each other's lists, which costs another read.
const COUNTERS: usize = 1_024;

/// Number of mentions that came late, taken before the snapshot that a list is read from.
pub(crate) type MentionVersion = u64;

pub(crate) struct MentionLists {
    lists: LongUnreadLists<MentionVersion>,
    edits: Vec<AtomicU64>,
    imports: AtomicU64,
}

impl MentionLists {
    pub(crate) fn new() -> Self {
        Self {
            lists: LongUnreadLists::new(),
            edits: (0..COUNTERS).map(|_| AtomicU64::new(0)).collect(),
            imports: AtomicU64::new(0),
        }
    }

    /// Forgets every list, as the engine is opened anew.
    pub(crate) fn clear(&self) {
        self.lists.clear();
    }

    fn edits(&self, id: ConversationId) -> &AtomicU64 {
        let [.., high, low] = *id.0.as_bytes();
        &self.edits[usize::from(u16::from_be_bytes([high, low])) % COUNTERS]
    }

    /// Ends the lists of a conversation. Call it once the edit of an older message is committed.
    pub(crate) fn on_edit(&self, id: ConversationId) {
        self.edits(id).fetch_add(1, Ordering::SeqCst);
    }

    /// Ends all lists. Call it once an import or a repair is committed.
    pub(crate) fn on_import(&self) {
        self.imports.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn version(&self, id: ConversationId) -> MentionVersion {
        let edits = self.edits(id).load(Ordering::SeqCst);
        edits + self.imports.load(Ordering::SeqCst)
    }

    /// The part of a user's list from which a count continues.
    pub(crate) fn rest(
        &self,
        reader: UnreadReader<'_>,
        query: &UnreadQuery,
        version: MentionVersion,
    ) -> Option<LongUnreadList<MentionVersion>> {
        let rest = self.lists.rest(reader, query);
        rest.filter(|rest| rest.version == version)
    }

    pub(crate) fn put(
        &self,
        reader: UnreadReader<'_>,
        conversation: ConversationId,
        list: LongUnreadList<MentionVersion>,
    ) {
        self.lists.put(reader, conversation, list);
    }
}
