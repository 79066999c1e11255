//! Walk through the history of one conversation, the newest message first, and its budget.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use super::criteria::Search;
use crate::chat::error::Result;
use crate::chat::history::above;
use crate::model::{ConversationId, Cut, Floor, Message, OrderKey, PageRequest};
use crate::store::Store;

/// Messages that one page judges.
pub(super) const MESSAGES_MAX: usize = 1_000;
/// Bytes of their texts.
const BYTES_MAX: usize = 1 << 20;
/// Messages of one read.
const BATCH_MAX: usize = 100;
/// Messages between two points at which other tasks may run.
const YIELD_EVERY: usize = 50;

/// Budget of one page.
#[derive(Default)]
pub(super) struct SearchBudget {
    messages: usize,
    bytes: usize,
}

impl SearchBudget {
    /// Counts a message that is about to be judged.
    pub(super) async fn spend(&mut self, message: &Message) {
        self.messages += 1;
        self.bytes += text_bytes(message);
        if self.messages.is_multiple_of(YIELD_EVERY) {
            tokio::task::yield_now().await;
        }
    }

    pub(super) fn is_spent(&self) -> bool {
        self.messages >= MESSAGES_MAX || self.bytes >= BYTES_MAX
    }
}

fn text_bytes(message: &Message) -> usize {
    message.content.as_ref().map_or(0, |content| {
        let names = content
            .attachments
            .iter()
            .filter_map(|one| one.name.as_ref());
        content.body.as_str().len() + names.map(String::len).sum::<usize>()
    })
}

pub(super) struct HistoryWalk {
    conversation: ConversationId,
    cut: Cut<OrderKey>,
    after: Option<OrderKey>,
    /// Messages of the next read.
    batch: usize,
    read: VecDeque<Arc<Message>>,
    has_more: bool,
}

impl HistoryWalk {
    /// The walk of a search in one conversation, down to the viewer's floor.
    pub(super) fn of_page(
        conversation: ConversationId,
        floor: Floor,
        search: &Search,
        after: Option<OrderKey>,
    ) -> Self {
        let mut cut = search.cut();
        let is_later = |from: &Bound<OrderKey>| match from {
            Bound::Included(from) | Bound::Excluded(from) => *from > floor.key,
            Bound::Unbounded => false,
        };
        if !is_later(&cut.start) {
            cut.start = above(floor);
        }
        Self {
            conversation,
            cut,
            after,
            batch: BATCH_MAX,
            read: VecDeque::new(),
            has_more: true,
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
        walk.cut.end = Bound::Included(newest);
        walk.batch = 1;
        walk
    }

    pub(super) fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// Whether the end of the range was not seen yet.
    pub(super) fn may_have_more(&self) -> bool {
        self.has_more || !self.read.is_empty()
    }

    /// Position of the next message, if one was read.
    pub(super) fn position(&self) -> Option<OrderKey> {
        self.read.front().map(|message| message.id.order_key())
    }

    /// The next message, an older one at each call.
    pub(super) async fn next(&mut self, store: &Arc<dyn Store>) -> Result<Option<Arc<Message>>> {
        self.fill(store).await?;
        Ok(self.read.pop_front())
    }

    /// Reads the next messages if none is left.
    pub(super) async fn fill(&mut self, store: &Arc<dyn Store>) -> Result<()> {
        if !self.read.is_empty() || !self.has_more {
            return Ok(());
        }
        let mut request = PageRequest::first(self.batch);
        request.after = self.after;
        let page = store
            .history(self.conversation, &self.cut, &request)
            .await?;
        self.has_more = page.has_next;
        self.after = page.items.last().map(|message| message.id.order_key());
        self.batch = (2 * self.batch).min(BATCH_MAX);
        self.read.extend(page.items);
        Ok(())
    }
}
