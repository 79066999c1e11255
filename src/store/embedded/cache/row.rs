//! Row cache of inbox entries and of messages. The committer's thread writes every such row through.

use std::num::NonZeroUsize;
use std::sync::Arc;

use super::coherent::{CacheKey, CoherentCache, Mark};
use super::inbox_index::{InboxIndexes, ListingChange};
use super::newest::NewestMessages;
use crate::metrics::Metrics;
use crate::model::{ConversationId, Flags, Message, MessageId, ReadMarker, UserId};
use crate::store::Result;
use crate::store::embedded::engine::committer::Rows;
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key::{self, EntryCell, Key, Table};
use crate::store::embedded::engine::record::{self, DecodeError};

const SHARDS: usize = 16;
const SHARD_ENTRIES_MAX: NonZeroUsize = NonZeroUsize::new(2_048).expect("it is not zero");
const SHARD_MESSAGES_MAX: NonZeroUsize = NonZeroUsize::new(512).expect("it is not zero");
/// Longest cached body. Longer messages are rare, and would take most of the memory.
const BODY_BYTES_MAX: usize = 1_024;

/// Cells of a user's inbox entry, without the fields of its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Entry {
    pub(crate) marker: ReadMarker,
    pub(crate) sent_up_to: Option<MessageId>,
    pub(crate) is_sent_by_service: bool,
    pub(crate) flags: Flags,
}

impl CacheKey for (UserId, ConversationId) {
    fn shard(&self) -> u8 {
        self.1.0.as_bytes()[15]
    }
}

impl CacheKey for (ConversationId, MessageId) {
    fn shard(&self) -> u8 {
        // The low byte of the time, so that the messages of one conversation spread over all shards.
        self.0.0.as_bytes()[15] ^ self.1.uuid().as_bytes()[3]
    }
}

pub(crate) struct RowCache {
    entries: CoherentCache<(UserId, ConversationId), Entry>,
    /// Short messages, by their ids.
    messages: CoherentCache<(ConversationId, MessageId), Arc<Message>>,
    pub(crate) newest: NewestMessages,
    pub(crate) indexes: InboxIndexes,
}

/// Position of the writer, taken before a load.
#[derive(Clone, Copy)]
pub(crate) struct Marks {
    entries: Mark,
    messages: Mark,
    pub(crate) indexes: Mark,
}

impl RowCache {
    pub(crate) fn new() -> Self {
        Self {
            entries: CoherentCache::new("entries", SHARDS, SHARD_ENTRIES_MAX),
            messages: CoherentCache::new("messages", SHARDS, SHARD_MESSAGES_MAX),
            newest: NewestMessages::of_conversations(),
            indexes: InboxIndexes::of_users(),
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.entries.meter().register(metrics);
        self.messages.meter().register(metrics);
        self.newest.meter().register(metrics);
        self.indexes.meter().register(metrics);
    }

    /// Forgets every row, as the engine is opened anew.
    pub(crate) fn clear(&self) {
        self.entries.clear();
        self.messages.clear();
        self.newest.clear();
        self.indexes.clear();
    }

    /// Takes a mark. Call it before the snapshot of the load.
    pub(crate) fn marks(&self) -> Marks {
        Marks {
            entries: self.entries.mark(),
            messages: self.messages.mark(),
            indexes: self.indexes.mark(),
        }
    }

    pub(crate) fn entry_in_memory(
        &self,
        user: &UserId,
        conversation: ConversationId,
    ) -> Option<Entry> {
        self.entries.get(&(user.clone(), conversation))
    }

    /// Loads a value through the cache.
    pub(crate) fn entry(
        &self,
        marks: Marks,
        view: &View<'_>,
        user: &UserId,
        conversation: ConversationId,
    ) -> Result<Entry> {
        let key = (user.clone(), conversation);
        if let Some(cached) = self.entries.get(&key) {
            return Ok(cached);
        }
        let entry = Entry::load(view, user, conversation)?;
        self.entries.put_loaded(marks.entries, key, entry);
        Ok(entry)
    }

    pub(crate) fn message_in_memory(
        &self,
        conversation: ConversationId,
        id: MessageId,
    ) -> Option<Arc<Message>> {
        let cached = self.messages.get(&(conversation, id));
        cached.or_else(|| self.newest.message(conversation, id))
    }

    /// Loads a value through the cache.
    pub(crate) fn message(
        &self,
        marks: Marks,
        view: &View<'_>,
        conversation: ConversationId,
        id: MessageId,
    ) -> Result<Option<Arc<Message>>> {
        if let Some(cached) = self.message_in_memory(conversation, id) {
            return Ok(Some(cached));
        }
        let message = view.message(conversation, id)?.map(Arc::new);
        if let Some(message) = message.as_ref().filter(|message| is_kept(message)) {
            self.messages
                .put_loaded(marks.messages, (conversation, id), Arc::clone(message));
        }
        Ok(message)
    }

    /// Writes committed messages through, after [`RowCache::written`].
    pub(crate) fn put_messages(&self, messages: Vec<Arc<Message>>) {
        self.newest.add(&messages);
        for message in messages.into_iter().filter(|message| is_kept(message)) {
            self.messages
                .put_written((message.conversation, message.id), message);
        }
    }

    /// Writes committed rows through. Call it between commit and acknowledgement.
    pub(crate) fn written(&self, rows: Touched) {
        for (user, conversation, cell, value) in &rows.entries {
            let key = (user.clone(), *conversation);
            let mut is_read = true;
            self.entries.alter_written(&key, |entry| {
                is_read = entry.set(*cell, value.as_deref()).is_ok()
            });
            if !is_read {
                self.entries.forget(&key);
            }
        }
        rows.messages
            .iter()
            .for_each(|key| self.messages.forget(key));
        self.newest.note_written(&rows.messages);
        self.indexes.follow(rows.listings);
    }
}

fn is_kept(message: &Message) -> bool {
    message.content.as_ref().is_none_or(|content| {
        content.body.as_str().len() <= BODY_BYTES_MAX
            && content.attachments.is_empty()
            && content.metadata.is_none()
            && content.steps.is_empty()
    })
}

impl Entry {
    pub(crate) fn load(
        view: &View<'_>,
        user: &UserId,
        conversation: ConversationId,
    ) -> Result<Self> {
        let mut entry = Self::default();
        for cell in EntryCell::ALL {
            let key = key::entry(user, conversation, cell);
            if let Some(bytes) = view.get(&key)? {
                entry.set(cell, Some(&bytes)).in_table(key.table_name())?;
            }
        }
        Ok(entry)
    }

    fn set(&mut self, cell: EntryCell, value: Option<&[u8]>) -> Result<(), DecodeError> {
        match cell {
            EntryCell::Marker => {
                let marker = value.map(record::decode_marker).transpose()?;
                self.marker = marker.unwrap_or_default();
            }
            EntryCell::SentUpTo => {
                let act = value.map(record::decode_act).transpose()?;
                self.sent_up_to = act
                    .map(|act| MessageId::from_order_key(act.up_to).ok_or(DecodeError::Position))
                    .transpose()?;
                self.is_sent_by_service = act.is_some_and(|act| act.is_by_service);
            }
            EntryCell::Flags => {
                let flags = value.map(record::decode_flags).transpose()?;
                self.flags = flags.unwrap_or_default();
            }
        }
        Ok(())
    }
}

/// Rows of one commit that caches hold: of entries, messages and inbox lists.
#[derive(Default)]
pub(crate) struct Touched {
    entries: Vec<(UserId, ConversationId, EntryCell, Option<Vec<u8>>)>,
    messages: Vec<(ConversationId, MessageId)>,
    listings: Vec<ListingChange>,
}

impl Touched {
    pub(crate) fn by(rows: &Rows) -> Self {
        const MADE_HERE: &str = "a key that was made here has its form";
        let mut touched = Self::default();
        for (row @ Key { table, bytes }, value) in rows {
            match table {
                Table::Inbox => {
                    let (user, conversation, cell) = key::entry_cell(bytes).expect(MADE_HERE);
                    touched
                        .entries
                        .push((user, conversation, cell, value.clone()));
                }
                Table::Messages => touched
                    .messages
                    .push(key::message_key(bytes).expect(MADE_HERE)),
                Table::Activity | Table::Rows => {
                    let change = |(user, conversation, listing)| ListingChange {
                        user,
                        conversation,
                        listing,
                        is_listed: value.is_some(),
                    };
                    touched.listings.extend(key::listing_of(row).map(change));
                }
                Table::Heads | Table::Participants | Table::Changes | Table::Search => {}
            }
        }
        touched
    }
}
