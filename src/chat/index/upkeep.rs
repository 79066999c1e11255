//! Upkeep of the search index by the operator: building it again, and comparing it with history.

use std::collections::HashSet;
use std::ops::Bound;
use std::sync::Arc;

use super::directory::Segment;
use super::segment::SegmentBuilder;
use super::{IndexGoal, IndexStep, SearchIndex};
use crate::chat::bounds::Bounds;
use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::InFlightIds;
use crate::clock::{Clock, IdGenerator};
use crate::model::{ConversationId, Cut, MessageId, PageRequest};
use crate::store::Store;

/// Conversations of one read.
const CONVERSATIONS: usize = 256;
/// Attempts while a server builds the same index.
const TRIES_MAX: usize = 8;
/// Messages of one read.
const READ: usize = 100;

/// Upkeep of the search index of a store.
pub struct IndexUpkeep {
    store: Arc<dyn Store>,
    index: Arc<SearchIndex>,
}

/// A piece of the conversations of a store.
#[derive(Debug, Default)]
pub struct IndexPiece {
    pub conversations: Vec<ConversationId>,
    /// Whether there are more.
    pub has_next: bool,
}

impl IndexUpkeep {
    /// Upkeep of a store without a chat.
    pub async fn open(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        bounds: &Bounds,
    ) -> Result<Self> {
        let ids = Arc::new(IdGenerator::random());
        let in_flight = InFlightIds::new(clock, ids, None, 9);
        let imported_at = store.imported_at().await?.unwrap_or_default();
        let index = SearchIndex::new(Arc::clone(&store), in_flight, imported_at, bounds);
        let index = Arc::new(index);
        Ok(Self { store, index })
    }

    pub(crate) fn of(store: &Arc<dyn Store>, index: &Arc<SearchIndex>) -> Self {
        Self {
            store: Arc::clone(store),
            index: Arc::clone(index),
        }
    }

    /// The conversations after one of them, in an order of the store's own.
    pub async fn conversations(&self, after: Option<ConversationId>) -> Result<IndexPiece> {
        let found = self.store.all_conversations(after, CONVERSATIONS).await?;
        Ok(IndexPiece {
            has_next: found.len() == CONVERSATIONS,
            conversations: found.into_iter().map(|(one, _)| one.id).collect(),
        })
    }

    /// Builds the index of a conversation again. Returns how many messages it has now.
    pub async fn rebuild(&self, conversation: ConversationId) -> Result<u64> {
        self.index.drop_all(conversation).await?;
        while self.advance(conversation).await? {}
        let directory = self.index.directory(conversation).await?;
        let segments = directory.iter().flat_map(|directory| &directory.segments);
        Ok(segments.map(|segment| u64::from(segment.messages)).sum())
    }

    /// Takes one step of the index of a conversation towards all of its messages. Returns whether there may be more to do.
    pub async fn advance(&self, conversation: ConversationId) -> Result<bool> {
        Ok(self.index.step(conversation, IndexGoal::ALL).await? == IndexStep::More)
    }

    /// Builds the segments of messages that were edited or deleted again.
    pub async fn refresh(&self, conversation: ConversationId) -> Result<()> {
        self.index.refresh(conversation).await
    }

    /// Counts the messages of a conversation that the index does not propose though they have a word.
    pub async fn missing(&self, conversation: ConversationId) -> Result<u64> {
        for _ in 0..TRIES_MAX {
            self.index.forget(conversation);
            let Some(snapshot) = self.index.snapshot(conversation).await? else {
                return Ok(0);
            };
            let loose: HashSet<_> = snapshot.loose.iter().copied().collect();
            let mut missing = 0;
            for segment in snapshot.segments() {
                missing += self.missing_in(conversation, segment, &loose).await?;
            }
            if missing == 0 {
                return Ok(0);
            }
            // The index may have been built on meanwhile.
            let seen = self.store.search_directories(&[conversation]).await?.pop();
            self.index.forget(conversation);
            if self.index.is_named(snapshot.segments(), seen.flatten()) {
                return Ok(missing);
            }
        }
        Err(Error::Busy)
    }

    async fn missing_in(
        &self,
        conversation: ConversationId,
        segment: &Segment,
        loose: &HashSet<MessageId>,
    ) -> Result<u64> {
        let cut = Cut {
            start: Bound::Excluded(segment.after),
            end: Bound::Included(segment.until),
        };
        let mut expected = SegmentBuilder::default();
        let mut request = PageRequest::last(READ);
        loop {
            let page = self.store.history(conversation, &cut, &request).await?;
            let messages = page.items.iter().rev();
            let known = messages.filter(|message| !loose.contains(&message.id));
            known.for_each(|message| expected.add(message));
            match page.items.first().filter(|_| page.has_previous) {
                Some(newest) => request.before = Some(newest.id.order_key()),
                None => break,
            }
        }
        let mut present = SegmentBuilder::default();
        let whole = self.index.whole_segments(conversation, &[*segment]).await?;
        for (header, blocks) in whole.into_iter().flatten() {
            // A block that cannot be read proposes nothing either.
            present.add_segment(&header, &blocks).ok();
        }
        let has: HashSet<_> = present.terms().collect();
        let lacking = expected.terms().filter(|pair| !has.contains(pair));
        let missing: HashSet<_> = lacking.map(|(_, id)| id).collect();
        Ok(missing.len() as u64)
    }
}
