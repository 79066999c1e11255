//! Queue of one shard: its undelivered events by conversation, and the position before the oldest of them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use crate::chat::{FeedBatch, OutboxItem, OutboxTypes};
use crate::model::{ConversationId, OrderKey};

/// Events that wait in memory. Beyond it the shard reads on only once some were delivered.
const EVENTS_MAX: usize = 1_024;

/// Event whose turn it is.
#[derive(Debug, Clone)]
pub(super) struct EventDelivery {
    pub(super) conversation: ConversationId,
    /// Position of its row.
    pub(super) position: OrderKey,
    pub(super) item: OutboxItem,
    /// Failures in a row, and refusals, before this try.
    pub(super) failures: u32,
    pub(super) refusals: u32,
}

/// Fate of a try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settlement {
    /// The event was delivered, or became a dead letter.
    Done,
    /// The same event again, at this time.
    Failed {
        again_at: Instant,
        is_silent: bool,
    },
    Refused {
        again_at: Instant,
    },
}

#[derive(Default)]
struct ConversationEvents {
    events: VecDeque<(OrderKey, OutboxItem)>,
    failures: u32,
    refusals: u32,
}

pub(super) struct DeliveryQueue {
    conversations: HashMap<ConversationId, ConversationEvents>,
    /// Conversations whose next event may be tried.
    ready: VecDeque<ConversationId>,
    delayed: BTreeSet<(Instant, ConversationId)>,
    /// Delayed conversations whose receiver was silent.
    silent: HashMap<ConversationId, Instant>,
    /// Number of undelivered events of each row.
    undelivered: BTreeMap<OrderKey, usize>,
    /// All rows up to here were added, but for late ones.
    read_to: OrderKey,
    count: usize,
}

impl DeliveryQueue {
    pub(super) fn new(position: OrderKey) -> Self {
        Self {
            conversations: HashMap::new(),
            ready: VecDeque::new(),
            delayed: BTreeSet::new(),
            silent: HashMap::new(),
            undelivered: BTreeMap::new(),
            read_to: position,
            count: 0,
        }
    }

    /// Position up to which all events were delivered.
    pub(super) fn position(&self) -> OrderKey {
        match self.undelivered.first_key_value() {
            Some((first, _)) => first.before().min(self.read_to),
            None => self.read_to,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn has_room(&self) -> bool {
        self.count < EVENTS_MAX
    }

    /// Adds the events of these types.
    pub(super) fn add(&mut self, batch: FeedBatch, types: &OutboxTypes) {
        for row in batch.rows {
            let position = row.id.order_key();
            for item in row.events.into_iter().flat_map(|event| types.items(event)) {
                let conversation = self.conversations.entry(row.conversation).or_default();
                if conversation.events.is_empty() {
                    self.ready.push_back(row.conversation);
                }
                conversation.events.push_back((position, item));
                *self.undelivered.entry(position).or_default() += 1;
                self.count += 1;
            }
            self.read_to = self.read_to.max(position);
        }
        if let Some(position) = batch.completed_to {
            self.read_to = self.read_to.max(position);
        }
    }

    /// Time of the next event, if there is one. An event that is ready has the time `now`.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        if self.ready.is_empty() {
            self.delayed.first().map(|(at, _)| *at)
        } else {
            Some(now)
        }
    }

    /// Takes the next event. No other event of its conversation is taken until it is settled.
    pub(super) fn take(&mut self, now: Instant) -> Option<EventDelivery> {
        while let Some((at, conversation)) = self.delayed.first().copied()
            && at <= now
        {
            self.delayed.pop_first();
            self.silent.remove(&conversation);
            self.ready.push_back(conversation);
        }
        let id = self.ready.pop_front()?;
        let conversation = self.conversations.get(&id)?;
        let (position, item) = conversation.events.front()?;
        Some(EventDelivery {
            conversation: id,
            position: *position,
            item: item.clone(),
            failures: conversation.failures,
            refusals: conversation.refusals,
        })
    }

    /// Settles a taken event.
    pub(super) fn settle(&mut self, taken: &EventDelivery, settlement: Settlement) {
        let id = taken.conversation;
        let Some(conversation) = self.conversations.get_mut(&id) else {
            return;
        };
        match settlement {
            Settlement::Failed {
                again_at,
                is_silent,
            } => {
                conversation.failures = conversation.failures.saturating_add(1);
                self.delayed.insert((again_at, id));
                if is_silent {
                    self.silent.insert(id, again_at);
                }
            }
            Settlement::Refused { again_at } => {
                conversation.refusals = conversation.refusals.saturating_add(1);
                self.delayed.insert((again_at, id));
            }
            Settlement::Done => {
                (conversation.failures, conversation.refusals) = (0, 0);
                conversation.events.pop_front();
                self.count -= 1;
                if conversation.events.is_empty() {
                    self.conversations.remove(&id);
                } else {
                    self.ready.push_back(id);
                }
                if let Some(left) = self.undelivered.get_mut(&taken.position) {
                    *left -= 1;
                    if *left == 0 {
                        self.undelivered.remove(&taken.position);
                    }
                }
            }
        }
    }

    /// Another item takes the place of a taken one that was delivered: the next piece of a notification.
    pub(super) fn replace(&mut self, taken: &EventDelivery, next: OutboxItem) {
        let id = taken.conversation;
        let Some(conversation) = self.conversations.get_mut(&id) else {
            return;
        };
        (conversation.failures, conversation.refusals) = (0, 0);
        if let Some((_, item)) = conversation.events.front_mut() {
            *item = next;
        }
        self.ready.push_back(id);
    }

    /// The receiver answers again: the events that met silence are ready.
    pub(super) fn wake_silent(&mut self) {
        for (conversation, at) in self.silent.drain() {
            if self.delayed.remove(&(at, conversation)) {
                self.ready.push_back(conversation);
            }
        }
    }
}

#[cfg(test)]
#[path = "queue_test.rs"]
mod tests;
