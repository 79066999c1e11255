//! Walk through one conversation, the newest message first: its history, and what the index proposes.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use super::criteria::Search;
use super::work::{self, SearchWork};
use crate::chat::error::Result;
use crate::chat::index::{IndexSnapshot, SearchIndex, Segment, TermGroups};
use crate::model::{ConversationId, Cut, Floor, Message, MessageId, OrderKey, PageRequest};
use crate::store::Store;

/// Bytes after folding of the texts that one page judges.
const BYTES_MAX: usize = 1 << 20;
/// Units of work of one page: a tenth of a second of a processor.
const UNITS_MAX: u32 = 100_000;
/// Messages of one read.
const BATCH_MAX: usize = 100;
/// Segments that are looked at together.
const SEGMENTS_AT_ONCE: usize = 32;
/// Messages of a history without an index, after which the walk has it indexed.
const UNINDEXED_MAX: usize = 16;
/// Attempts to read segments that other servers replace meanwhile. Then the walk reads history.
const SNAPSHOTS_MAX: usize = 3;

/// Bounds of one page, and how far it has come.
pub(super) struct SearchBudget<'a> {
    messages_max: usize,
    messages: usize,
    bytes: usize,
    work: &'a SearchWork,
}

impl<'a> SearchBudget<'a> {
    pub(super) fn new(messages_max: usize, work: &'a SearchWork) -> Self {
        Self {
            messages_max,
            messages: 0,
            bytes: 0,
            work,
        }
    }

    pub(super) fn spend_message(&mut self) {
        self.messages += 1;
    }

    /// Counts the bytes of a message after folding, and the work of its judgement.
    pub(super) fn spend_judgement(&mut self, bytes: usize, work: usize) {
        self.bytes += bytes;
        self.work.add(work / work::BYTES_PER_UNIT);
    }

    pub(super) fn is_spent(&self) -> bool {
        self.messages >= self.messages_max
            || self.bytes >= BYTES_MAX
            || self.work.units() >= UNITS_MAX
    }
}

/// Sources of all walks of a search.
pub(super) struct SearchSources<'a> {
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) index: &'a SearchIndex,
    pub(super) groups: TermGroups,
    pub(super) work: &'a SearchWork,
}

/// The next thing that a walk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Front {
    /// A message to judge, at this position.
    Message(OrderKey),
    /// Nothing newer than this position is left, and it was not looked at.
    Unread(OrderKey),
}

/// A part of the conversation that is looked at in one way.
enum Piece {
    /// Messages after this position, of which no segment knows.
    History {
        after: OrderKey,
    },
    Segment(Segment),
}

pub(super) struct ConversationWalk {
    conversation: ConversationId,
    /// The oldest position that belongs to the search.
    oldest: OrderKey,
    /// The newest position that was not looked at.
    next: OrderKey,
    /// The oldest first. `None` until the index was read.
    pieces: Option<Vec<Piece>>,
    /// Loose messages, the newest first.
    loose: Vec<MessageId>,
    /// Proposed messages that were not read, the newest first.
    proposed: VecDeque<MessageId>,
    read: VecDeque<Arc<Message>>,
    /// Messages of the next read.
    batch: usize,
    /// Segments of the next proposal.
    segments: usize,
    snapshots: usize,
    unindexed: usize,
}

impl ConversationWalk {
    /// The walk of a search in one conversation, down to the viewer's floor.
    pub(super) fn of_page(
        conversation: ConversationId,
        floor: Floor,
        search: &Search,
        after: Option<OrderKey>,
    ) -> Self {
        let (from, until) = search.range();
        let newest = after.map_or(OrderKey::MAX, OrderKey::before);
        Self {
            conversation,
            oldest: from.max(floor.key.next()),
            next: until.min(newest),
            pieces: None,
            loose: Vec::new(),
            proposed: VecDeque::new(),
            read: VecDeque::new(),
            batch: BATCH_MAX,
            segments: 1,
            snapshots: 0,
            unindexed: 0,
        }
    }

    /// One of many walks, which begins at this position. Its reads grow with the messages that are
    /// taken from it, so that a thousand walks hold few messages.
    pub(super) fn of_many(
        conversation: ConversationId,
        floor: Floor,
        search: &Search,
        newest: OrderKey,
    ) -> Self {
        let mut walk = Self::of_page(conversation, floor, search, None);
        walk.next = walk.next.min(newest);
        walk.batch = 1;
        walk
    }

    pub(super) fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// `None` at the end of the range.
    pub(super) fn front(&self) -> Option<Front> {
        if let Some(message) = self.read.front() {
            return Some(Front::Message(message.id.order_key()));
        }
        if let Some(proposed) = self.proposed.front() {
            return Some(Front::Unread(proposed.order_key()));
        }
        let is_over = self.next < self.oldest || self.pieces.as_ref().is_some_and(Vec::is_empty);
        (!is_over).then_some(Front::Unread(self.next))
    }

    /// The next message that was read.
    pub(super) fn take(&mut self) -> Option<Arc<Message>> {
        self.read.pop_front()
    }

    /// Searches further: reads messages, or asks segments. Counts the work.
    pub(super) async fn advance(&mut self, sources: &SearchSources<'_>) -> Result<()> {
        sources.work.turn().await;
        if !self.read.is_empty() {
            return Ok(());
        }
        if !self.proposed.is_empty() {
            return self.read_proposed(sources).await;
        }
        if self.next < self.oldest {
            return Ok(());
        }
        if self.pieces.is_none() {
            let snapshot = sources.index.snapshot(self.conversation).await?;
            let changes = snapshot.as_ref().map_or(0, |snapshot| snapshot.changes);
            sources.work.add(work::SNAPSHOT + changes * work::CHANGE);
            self.divide(snapshot);
        }
        match self.pieces.as_ref().and_then(|pieces| pieces.last()) {
            None => Ok(()),
            Some(Piece::History { after }) => {
                let after = *after;
                self.read_history(sources, after).await
            }
            Some(Piece::Segment(_)) => self.ask_segments(sources).await,
        }
    }

    /// Divides the rest of the range into what segments have, and what they have not.
    fn divide(&mut self, snapshot: Option<IndexSnapshot>) {
        let mut pieces = Vec::new();
        let mut after = self.oldest.before();
        if let Some(snapshot) = &snapshot {
            for segment in snapshot.segments() {
                if segment.until < self.oldest || segment.after >= self.next {
                    continue;
                }
                if segment.after > after {
                    pieces.push(Piece::History { after });
                }
                after = segment.until;
                pieces.push(Piece::Segment(*segment));
            }
        }
        if after < self.next {
            pieces.push(Piece::History { after });
        }
        self.loose = snapshot.map_or_else(Vec::new, |snapshot| snapshot.loose);
        self.pieces = Some(pieces);
    }

    async fn read_proposed(&mut self, sources: &SearchSources<'_>) -> Result<()> {
        let count = self.batch.min(self.proposed.len());
        sources.work.add(count * work::MESSAGE);
        let ids = self.proposed.drain(..count);
        let keys: Vec<_> = ids.map(|id| (self.conversation, id)).collect();
        // A message that was removed from the disk is passed over.
        let messages = sources.store.messages(&keys).await?;
        self.read.extend(messages.into_iter().flatten());
        self.batch = (2 * self.batch).min(BATCH_MAX);
        Ok(())
    }

    async fn read_history(&mut self, sources: &SearchSources<'_>, after: OrderKey) -> Result<()> {
        let cut = Cut {
            start: Bound::Excluded(after.max(self.oldest.before())),
            end: Bound::Included(self.next),
        };
        let request = PageRequest::first(self.batch);
        let page = sources
            .store
            .history(self.conversation, &cut, &request)
            .await?;
        sources.work.add(page.items.len() * work::MESSAGE);
        match page.items.last().filter(|_| page.has_next) {
            Some(last) => self.next = last.id.order_key().before(),
            None => self.end_piece(after),
        }
        let before = self.unindexed;
        self.unindexed += page.items.len();
        if before < UNINDEXED_MAX && self.unindexed >= UNINDEXED_MAX {
            sources.index.request(self.conversation);
        }
        self.batch = (2 * self.batch).min(BATCH_MAX);
        self.read.extend(page.items);
        Ok(())
    }

    /// Asks the next segments what they propose.
    async fn ask_segments(&mut self, sources: &SearchSources<'_>) -> Result<()> {
        let pieces = self.pieces.iter().flatten().rev();
        let segments = pieces.map_while(|piece| match piece {
            Piece::Segment(segment) => Some(*segment),
            Piece::History { .. } => None,
        });
        let segments: Vec<_> = segments.take(self.segments).collect();
        let range = (self.oldest, self.next);
        let lookups = segments.len() * sources.groups.lookups();
        sources.work.add(lookups * work::LOOKUP);
        let proposed = sources
            .index
            .propose(self.conversation, &segments, &sources.groups, range)
            .await?;
        let Some(proposed) = proposed else {
            return self.begin_again(sources).await;
        };
        for (segment, proposed) in segments.iter().zip(proposed) {
            let loose = self.loose.iter().filter(|id| {
                let position = id.order_key();
                segment.has(position) && (range.0..=range.1).contains(&position)
            });
            let mut all: Vec<_> = proposed.into_iter().chain(loose.copied()).collect();
            all.sort_unstable_by(|one, other| other.cmp(one));
            all.dedup();
            self.proposed.extend(all);
            self.end_piece(segment.after);
        }
        self.segments = (2 * self.segments).min(SEGMENTS_AT_ONCE);
        Ok(())
    }

    /// Reads the index again, because a segment is gone.
    async fn begin_again(&mut self, sources: &SearchSources<'_>) -> Result<()> {
        sources.index.forget(self.conversation);
        self.snapshots += 1;
        let snapshot = match self.snapshots < SNAPSHOTS_MAX {
            true => sources.index.snapshot(self.conversation).await?,
            false => {
                sources.index.rebuild_damaged(self.conversation);
                None
            }
        };
        self.divide(snapshot);
        Ok(())
    }

    fn end_piece(&mut self, after: OrderKey) {
        self.next = after;
        if let Some(pieces) = &mut self.pieces {
            pieces.pop();
        }
    }
}
