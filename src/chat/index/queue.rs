//! Queue of conversations to index, and the counts by which they come into it.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::ConversationId;

/// Conversations that wait. A further one comes with its next messages.
const WAITING_MAX: usize = 1_024;
/// Conversations whose new messages are counted.
const COUNTED_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("it is not zero");
/// Conversations that are known to be scheduled.
const SCHEDULED_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

pub(super) struct IndexQueue {
    /// New messages after which a conversation comes into the queue.
    messages_min: usize,
    state: Mutex<QueueState>,
    has_work: Notify,
}

struct QueueState {
    waiting: VecDeque<ConversationId>,
    /// The least number of new messages that becomes a segment, by conversation.
    messages_min: HashMap<ConversationId, usize>,
    /// Messages since the conversation was last in the queue.
    sent: LruCache<ConversationId, usize>,
    /// Conversations whose index cannot be read.
    damaged: LruCache<ConversationId, ()>,
    /// The last hour for which the conversation was scheduled.
    scheduled: LruCache<ConversationId, u32>,
}

impl IndexQueue {
    pub(super) fn new(messages_min: usize) -> Self {
        let state = QueueState {
            waiting: VecDeque::new(),
            messages_min: HashMap::new(),
            sent: LruCache::new(COUNTED_MAX),
            damaged: LruCache::new(SCHEDULED_MAX),
            scheduled: LruCache::new(SCHEDULED_MAX),
        };
        Self {
            messages_min,
            state: Mutex::new(state),
            has_work: Notify::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }

    /// Counts messages. A conversation comes into the queue once there may be a segment of them.
    pub(super) fn note_sent(&self, conversation: ConversationId, count: usize) {
        let is_due = {
            let mut state = self.state.lock();
            let sent = state.sent.get_or_insert_mut(conversation, || 0);
            *sent += count;
            let is_due = *sent >= self.messages_min;
            if is_due {
                *sent = 0;
            }
            is_due
        };
        if is_due {
            self.push(conversation, self.messages_min);
        }
    }

    pub(super) fn push(&self, conversation: ConversationId, messages_min: usize) {
        let mut state = self.state.lock();
        let has_room = state.waiting.len() < WAITING_MAX;
        match state.messages_min.entry(conversation) {
            Entry::Occupied(mut known) => *known.get_mut() = messages_min.min(*known.get()),
            Entry::Vacant(new) if has_room => {
                new.insert(messages_min);
                state.waiting.push_back(conversation);
                self.has_work.notify_one();
            }
            Entry::Vacant(_) => {}
        }
    }

    /// The next conversation, once there is one, with the least number of new messages that becomes a segment.
    pub(super) async fn next(&self) -> (ConversationId, usize) {
        loop {
            let next = {
                let mut state = self.state.lock();
                let next = state.waiting.pop_front();
                next.and_then(|id| Some((id, state.messages_min.remove(&id)?)))
            };
            match next {
                Some(next) => return next,
                None => self.has_work.notified().await,
            }
        }
    }

    pub(super) fn note_damaged(&self, conversation: ConversationId) {
        self.state.lock().damaged.put(conversation, ());
    }

    pub(super) fn take_damaged(&self, conversation: ConversationId) -> bool {
        self.state.lock().damaged.pop(&conversation).is_some()
    }

    pub(super) fn is_scheduled(&self, conversation: ConversationId, hour: u32) -> bool {
        let mut state = self.state.lock();
        state.scheduled.get(&conversation) == Some(&hour)
    }

    pub(super) fn note_scheduled(&self, conversation: ConversationId, hour: u32) {
        self.state.lock().scheduled.put(conversation, hour);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_conversation_waits_once_and_after_64_messages() {
        let queue = IndexQueue::new(64);
        let (one, other) = (ConversationId::random(), ConversationId::random());
        queue.note_sent(one, 63);
        assert_eq!(queue.len(), 0);
        queue.note_sent(one, 1);
        queue.push(other, 16);
        queue.push(one, 16);
        assert_eq!(queue.len(), 2);
        assert_eq!(queue.next().now_or_never(), Some((one, 16)));
        assert_eq!(queue.next().now_or_never(), Some((other, 16)));
        assert_eq!(queue.next().now_or_never(), None);
    }
}
