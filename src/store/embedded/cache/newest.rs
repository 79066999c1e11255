//! Cache of the newest messages of conversations: an unbroken list each, from the newest message on.
//!
//! Most pages that clients read are the newest of a conversation, and what a client missed is there too. The
//! committer's thread adds every new message. Any other write to a message of a list ends the list.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::ops::{Bound, Range};
use std::sync::Arc;

use super::coherent::CoherentCache;
use crate::model::{
    ConversationId, Cut, Direction, Message, MessageId, OrderKey, Page, PageRequest,
};

const SHARDS: usize = 16;
const SHARD_LISTS_MAX: NonZeroUsize = NonZeroUsize::new(64).expect("it is not zero");
/// Enough for the largest page, and the row that shows whether another one follows.
const MESSAGES_MAX: usize = PageRequest::<OrderKey>::COUNT_MAX + 1;
/// Bytes of a list: 32 MiB in all lists of all shards. A list of longer messages has fewer of them.
const LIST_BYTES_MAX: usize = 32 << 10;
/// Messages that a list awaits at most: more than one commit has of a conversation, but for a storm of sends.
const AWAITED_MAX: usize = 512;
/// Bytes of a message besides its content.
const ROW_BYTES: usize = 256;

pub(crate) type NewestMessages = CoherentCache<ConversationId, NewestList>;

impl NewestMessages {
    pub(crate) fn of_conversations() -> Self {
        Self::new("newest", SHARDS, SHARD_LISTS_MAX)
    }

    /// A page, if the list of the conversation has all of it.
    pub(crate) fn page(
        &self,
        conversation: ConversationId,
        cut: &Cut<OrderKey>,
        request: &PageRequest<OrderKey>,
    ) -> Option<Page<Arc<Message>>> {
        self.find(&conversation, |list| list.page(cut, request))
    }

    pub(crate) fn message(
        &self,
        conversation: ConversationId,
        id: MessageId,
    ) -> Option<Arc<Message>> {
        self.find(&conversation, |list| {
            let place = list.newer_than(id.order_key());
            let found = list.messages.get(place)?;
            (found.id == id).then(|| Arc::clone(found))
        })
    }

    /// Notes committed writes to messages. Call it between commit and acknowledgement.
    pub(crate) fn note_written(&self, keys: &[(ConversationId, MessageId)]) {
        for (conversation, id) in keys {
            let mut is_unbroken = true;
            self.alter_written(conversation, |list| is_unbroken = list.note_written(*id));
            if !is_unbroken {
                self.forget(conversation);
            }
        }
    }

    /// Adds committed messages, after [`Self::note_written`].
    pub(crate) fn add(&self, messages: &[Arc<Message>]) {
        for message in messages {
            self.alter_written(&message.conversation, |list| list.add(message));
        }
    }
}

/// Newest messages of one conversation, without a gap.
pub(crate) struct NewestList {
    /// The newest first.
    messages: VecDeque<Arc<Message>>,
    bytes: usize,
    /// Ids of committed messages that are not added yet. The list is not used meanwhile: SYSTEM messages are
    /// never added, and the next page that is read replaces the list.
    awaited: Vec<MessageId>,
    /// Whether no older message exists.
    is_whole: bool,
}

impl NewestList {
    /// List of the newest messages, the newest first.
    pub(crate) fn of(newest: &[Arc<Message>], is_whole: bool) -> Self {
        let mut list = Self {
            messages: newest.iter().cloned().collect(),
            bytes: newest.iter().map(|message| bytes(message)).sum(),
            awaited: Vec::new(),
            is_whole,
        };
        list.shorten();
        list
    }

    /// Drops the oldest messages over the bounds.
    fn shorten(&mut self) {
        while (self.messages.len() > MESSAGES_MAX || self.bytes > LIST_BYTES_MAX)
            && let Some(oldest) = self.messages.pop_back()
        {
            self.bytes -= bytes(&oldest);
            self.is_whole = false;
        }
    }

    /// Notes that a message was written. Returns whether the list is unbroken, once the messages that it
    /// awaits are added.
    fn note_written(&mut self, id: MessageId) -> bool {
        let is_new = match self.messages.front() {
            Some(newest) => id > newest.id,
            None => self.is_whole,
        };
        if is_new {
            self.awaited.push(id);
            return self.awaited.len() <= AWAITED_MAX;
        }
        let is_older = |oldest: &Arc<Message>| id < oldest.id;
        !self.is_whole && self.messages.back().is_some_and(is_older)
    }

    /// Adds a message that the list awaits. Others are older than all of the list.
    fn add(&mut self, message: &Arc<Message>) {
        let Some(place) = self.awaited.iter().position(|id| *id == message.id) else {
            return;
        };
        self.awaited.swap_remove(place);
        self.bytes += bytes(message);
        // The messages of one commit come in any order.
        let place = self.newer_than(message.id.order_key());
        self.messages.insert(place, Arc::clone(message));
        self.shorten();
    }

    /// A page of the list's conversation. `None` if the list does not reach far enough back.
    fn page(
        &self,
        cut: &Cut<OrderKey>,
        request: &PageRequest<OrderKey>,
    ) -> Option<Page<Arc<Message>>> {
        if !self.awaited.is_empty() {
            return None;
        }
        let Range { start, end } = self.cut(cut);
        let behind_after = request.after.map_or(start, |key| self.older_than(key));
        let before_before = request.before.map_or(end, |key| self.newer_than(key));
        let window = start.max(behind_after)..end.min(before_before);
        // A message behind the window shows that the window's older end is in the list.
        let is_closed = self.is_whole || window.end < self.messages.len();
        let rows = self.rows(window, request);
        let is_enough = request.direction == Direction::Forward && rows.len() == request.overread();
        if !is_closed && !is_enough {
            return None;
        }
        let has_behind = match (request.begins_at(), request.direction) {
            (None, _) => false,
            (Some(key), Direction::Forward) => start < self.older_than(*key).min(end),
            (Some(key), Direction::Backward) => {
                let is_behind_held = self.newer_than(*key).max(start) < end;
                if !is_behind_held && !self.is_whole && end == self.messages.len() {
                    return None;
                }
                is_behind_held
            }
        };
        Some(Page::from_overread(request, rows, has_behind))
    }

    fn rows(&self, window: Range<usize>, request: &PageRequest<OrderKey>) -> Vec<Arc<Message>> {
        let window = window.start..window.end.max(window.start);
        let rows = self.messages.range(window).cloned();
        match request.direction {
            Direction::Forward => rows.take(request.overread()).collect(),
            Direction::Backward => rows.rev().take(request.overread()).collect(),
        }
    }

    /// Places of the messages in a cut, whose end is the newer one.
    fn cut(&self, cut: &Cut<OrderKey>) -> Range<usize> {
        let start = match cut.end {
            Bound::Included(key) => self.newer_than(key),
            Bound::Excluded(key) => self.older_than(key),
            Bound::Unbounded => 0,
        };
        let end = match cut.start {
            Bound::Included(key) => self.older_than(key),
            Bound::Excluded(key) => self.newer_than(key),
            Bound::Unbounded => self.messages.len(),
        };
        start..end
    }

    /// Number of messages that are newer than a position.
    fn newer_than(&self, position: OrderKey) -> usize {
        self.messages
            .partition_point(|message| message.id.order_key() > position)
    }

    /// Place of the first message that is older than a position.
    fn older_than(&self, position: OrderKey) -> usize {
        self.messages
            .partition_point(|message| message.id.order_key() >= position)
    }
}

fn bytes(message: &Message) -> usize {
    let content = message.content.as_ref().map_or(0, |content| {
        let attachments = content.attachments.iter().map(|file| file.bytes());
        let metadata = content
            .metadata
            .as_ref()
            .map_or(0, |text| text.as_str().len());
        content.body.as_str().len()
            + attachments.sum::<usize>()
            + metadata
            + content.mentions.bytes()
            + content.steps.bytes()
    });
    ROW_BYTES + content
}

#[cfg(test)]
#[path = "newest_test.rs"]
mod tests;
