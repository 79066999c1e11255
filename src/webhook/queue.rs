//! Queue of one shard: its undelivered events by conversation, and the positions up to which all before them were delivered.
//!
//! A conversation holds a few events here. Later rows of it are passed over (it is behind) and read again from the position where its
//! events in memory end, once these are delivered. So one conversation fills the queue neither by its number of events nor by failing.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::retry::FailureRecord;
use super::shard::LANES;
use crate::chat::{FeedBatch, OutboxItem, OutboxTypes, SavedPosition};
use crate::model::{ConversationId, OrderKey, OutboxRow};
use crate::store::{HeldPosition, OutboxPage};

/// Events that wait in memory. Beyond it the shard reads on only once some were delivered.
const EVENTS_MAX: usize = 1_024;
/// Events of one conversation in memory, about: rows are held whole.
const CONVERSATION_EVENTS_MAX: usize = 8;
/// Conversations without an event that are remembered as slow or suspect.
const MARKED_MAX: usize = 1_024;
/// Slow conversations that are tried at once while the receiver is fast for others.
const SLOW_LANES: usize = 1;
/// The same while it was fast for nobody. A conversation that is not known to be slow finds the last lane free.
const SLOW_LANES_ALONE: usize = LANES - 1;
/// Time since the receiver last took an event fast, from which on the receiver is slow for everybody.
const FAST_FOR: Duration = Duration::from_secs(60);

/// Event whose turn it is.
#[derive(Debug, Clone)]
pub(super) struct EventDelivery {
    pub(super) conversation: ConversationId,
    /// Position of its row.
    pub(super) position: OrderKey,
    pub(super) item: OutboxItem,
    /// Failures before this try.
    pub(super) record: FailureRecord,
    is_slow: bool,
}

/// Outcome of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Settlement {
    /// The event was delivered, or became a dead letter.
    Done,
    /// Another item takes its place: the next piece of a notification.
    Next(OutboxItem),
    /// The same event again, at this time.
    Again { at: Instant, is_silent: bool },
}

#[derive(Default)]
struct ConversationEvents {
    events: VecDeque<(OrderKey, OutboxItem)>,
    /// Position after which the rows of a conversation that is behind are to be read again.
    behind_from: Option<OrderKey>,
    record: FailureRecord,
    /// The last try took long.
    is_slow: bool,
}

impl ConversationEvents {
    /// Position up to which its events were delivered, if there are undelivered ones.
    fn oldest(&self) -> Option<OrderKey> {
        let events = self.events.iter().map(|(position, _)| position.before());
        events.chain(self.behind_from).min()
    }

    /// Whether it may fall behind for long.
    fn is_held(&self) -> bool {
        self.behind_from.is_some() || self.record.has_failed() || self.is_slow
    }

    fn is_marked(&self) -> bool {
        self.is_slow || self.record.is_suspect()
    }
}

#[derive(Default)]
pub(super) struct DeliveryQueue {
    conversations: HashMap<ConversationId, ConversationEvents>,
    /// Conversations whose next event may be tried, and those of them that are slow.
    ready: VecDeque<ConversationId>,
    slow: VecDeque<ConversationId>,
    /// Slow conversations that are tried now.
    slow_running: usize,
    /// Last time that the receiver took an event fast.
    fast_at: Option<Instant>,
    delayed: BTreeSet<(Instant, ConversationId)>,
    /// Delayed conversations whose receiver was silent.
    silent: HashMap<ConversationId, Instant>,
    /// Conversations that are behind and have no event in memory, by the position after which to read.
    hungry: BTreeSet<(OrderKey, ConversationId)>,
    /// Marked conversations without an event, the oldest first.
    marked: VecDeque<ConversationId>,
    /// All rows up to here were added or passed over, but for late ones.
    read_to: OrderKey,
    count: usize,
}

impl DeliveryQueue {
    /// A queue after this position, and after positions of their own for held conversations.
    pub(super) fn new(position: OrderKey, held: &[HeldPosition]) -> Self {
        let mut queue = Self {
            read_to: position,
            ..Self::default()
        };
        for held in held.iter().filter(|held| held.position < position) {
            let conversation = queue.conversations.entry(held.conversation).or_default();
            conversation.behind_from = Some(held.position);
            queue.hungry.insert((held.position, held.conversation));
        }
        queue
    }

    /// Position up to which all events were delivered.
    pub(super) fn position(&self) -> OrderKey {
        let oldest = self.conversations.values().filter_map(|one| one.oldest());
        oldest.fold(self.read_to, OrderKey::min)
    }

    /// Position to persist: a restart from it repeats only what is under way. At most `held_max` conversations have a position of their own;
    /// those beyond hold back the shard's. `last` is the position that was persisted before.
    pub(super) fn saved(&self, last: OrderKey, held_max: usize) -> SavedPosition {
        let undelivered = self
            .conversations
            .iter()
            .filter_map(|(id, one)| Some((*id, one, one.oldest()?)));
        let prompt = undelivered.clone().filter(|(_, one, _)| !one.is_held());
        let prompt = prompt.map(|(_, _, oldest)| oldest);
        let mut position = prompt.fold(self.read_to, OrderKey::min).max(last);
        let mut held: Vec<_> = undelivered
            .map(|(conversation, _, oldest)| HeldPosition {
                conversation,
                position: oldest,
            })
            .filter(|held| held.position < position)
            .collect();
        held.sort_unstable_by_key(|held| (held.position, held.conversation));
        if let Some(first_beyond) = held.get(held_max) {
            position = first_beyond.position;
            held.truncate(held_max);
            held.retain(|held| held.position < position);
        }
        SavedPosition { position, held }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Number of conversations that are behind, or whose event has failed.
    pub(super) fn held(&self) -> usize {
        let is_held = |one: &&ConversationEvents| one.is_held() && one.oldest().is_some();
        self.conversations.values().filter(is_held).count()
    }

    pub(super) fn has_room(&self) -> bool {
        self.count < EVENTS_MAX
    }

    /// Adds the events of these types.
    pub(super) fn add(&mut self, batch: FeedBatch, types: &OutboxTypes) {
        for row in batch.rows {
            let (id, position) = (row.conversation, row.id.order_key());
            if !self.passes_over(id, position) {
                self.push(row, types);
            }
            self.read_to = self.read_to.max(position);
        }
        if let Some(position) = batch.completed_to {
            self.read_to = self.read_to.max(position);
        }
    }

    /// Whether a row is left for later. One that became visible late is added, because the position of its conversation has
    /// passed it.
    fn passes_over(&mut self, id: ConversationId, position: OrderKey) -> bool {
        let Some(conversation) = self.conversations.get_mut(&id) else {
            return false;
        };
        let is_late = position <= self.read_to;
        let is_full = conversation.events.len() >= CONVERSATION_EVENTS_MAX;
        match conversation.behind_from {
            Some(from) => position > from,
            None if is_full && !is_late => {
                conversation.behind_from = Some(position.before());
                true
            }
            None => false,
        }
    }

    fn push(&mut self, row: OutboxRow, types: &OutboxTypes) {
        let (id, position) = (row.conversation, row.id.order_key());
        for item in row.events.into_iter().flat_map(|event| types.items(event)) {
            let conversation = self.conversations.entry(id).or_default();
            let is_first = conversation.events.is_empty();
            conversation.events.push_back((position, item));
            let (behind_from, is_slow) = (conversation.behind_from, conversation.is_slow);
            self.count += 1;
            if is_first {
                if let Some(from) = behind_from {
                    self.hungry.remove(&(from, id));
                }
                self.make_ready(id, is_slow);
            }
        }
    }

    fn make_ready(&mut self, id: ConversationId, is_slow: bool) {
        let ready = if is_slow {
            &mut self.slow
        } else {
            &mut self.ready
        };
        ready.push_back(id);
    }

    /// The positions from and up to which rows are to be read again, for all conversations without an event in memory.
    pub(super) fn wants(&self) -> Option<(OrderKey, OrderKey)> {
        let (from, _) = self.hungry.first()?;
        Some((*from, self.read_to))
    }

    /// Adds what was passed over, from a page of the rows after a position.
    pub(super) fn catch_up(&mut self, after: OrderKey, page: OutboxPage, types: &OutboxTypes) {
        // The others have positions before it, or events in memory.
        let mut served: HashMap<_, _> = self
            .hungry
            .iter()
            .filter(|(from, _)| *from >= after)
            .map(|(from, id)| (*id, *from))
            .collect();
        for row in page.rows {
            let (id, position) = (row.conversation, row.id.order_key());
            let Some(from) = served.get(&id).copied().filter(|from| position > *from) else {
                continue;
            };
            let held = self
                .conversations
                .get(&id)
                .map_or(0, |one| one.events.len());
            if held >= CONVERSATION_EVENTS_MAX {
                served.remove(&id);
                continue;
            }
            self.push(row, types);
            self.move_from(id, from, position);
            served.insert(id, position);
        }
        for (id, from) in served {
            self.move_from(id, from, from.max(page.read_to));
        }
    }

    /// Moves the position after which a conversation is behind. At the end of what was read it is behind no more.
    fn move_from(&mut self, id: ConversationId, from: OrderKey, to: OrderKey) {
        let is_hungry = self.hungry.remove(&(from, id));
        let Some(conversation) = self.conversations.get_mut(&id) else {
            return;
        };
        conversation.behind_from = Some(to).filter(|to| *to < self.read_to);
        match conversation.behind_from {
            Some(to) if is_hungry => {
                self.hungry.insert((to, id));
            }
            Some(_) => {}
            None => self.drop_idle(id),
        }
    }

    /// Forgets a conversation without an event, or remembers only how it behaved.
    fn drop_idle(&mut self, id: ConversationId) {
        let is_idle = |one: &ConversationEvents| one.oldest().is_none();
        match self.conversations.get(&id) {
            Some(one) if is_idle(one) && one.is_marked() => self.marked.push_back(id),
            Some(one) if is_idle(one) => {
                self.conversations.remove(&id);
            }
            Some(_) | None => {}
        }
        while self.marked.len() > MARKED_MAX
            && let Some(oldest) = self.marked.pop_front()
        {
            if self.conversations.get(&oldest).is_some_and(is_idle) {
                self.conversations.remove(&oldest);
            }
        }
    }

    /// Time of the next event, if there is one. An event that is ready has the time `now`.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let has_slow = !self.slow.is_empty() && self.has_slow_lane(now);
        if self.ready.is_empty() && !has_slow {
            self.delayed.first().map(|(at, _)| *at)
        } else {
            Some(now)
        }
    }

    /// Takes the next event. No other event of its conversation is taken until it is settled.
    pub(super) fn take(&mut self, now: Instant) -> Option<EventDelivery> {
        while let Some((at, id)) = self.delayed.first().copied()
            && at <= now
        {
            self.delayed.pop_first();
            self.silent.remove(&id);
            self.wake(id);
        }
        let id = match self.ready.pop_front() {
            Some(id) => id,
            None if !self.has_slow_lane(now) => return None,
            None => self.slow.pop_front()?,
        };
        let conversation = self.conversations.get(&id)?;
        let (position, item) = conversation.events.front()?;
        self.slow_running += usize::from(conversation.is_slow);
        Some(EventDelivery {
            conversation: id,
            position: *position,
            item: item.clone(),
            record: conversation.record,
            is_slow: conversation.is_slow,
        })
    }

    fn has_slow_lane(&self, now: Instant) -> bool {
        let is_fast = self.fast_at.is_some_and(|at| now < at + FAST_FOR);
        let lanes = if is_fast {
            SLOW_LANES
        } else {
            SLOW_LANES_ALONE
        };
        self.slow_running < lanes
    }

    fn wake(&mut self, id: ConversationId) {
        let is_slow = self.conversations.get(&id).is_some_and(|one| one.is_slow);
        self.make_ready(id, is_slow);
    }

    /// Settles a taken event, now. `record` is that of the conversation from now on, and `is_slow` says whether the try took long.
    pub(super) fn settle(
        &mut self,
        taken: &EventDelivery,
        settlement: Settlement,
        record: FailureRecord,
        is_slow: bool,
        now: Instant,
    ) {
        let id = taken.conversation;
        self.slow_running -= usize::from(taken.is_slow);
        let is_taken = !matches!(settlement, Settlement::Again { .. });
        if is_taken && !is_slow {
            self.fast_at = Some(now);
        }
        let Some(conversation) = self.conversations.get_mut(&id) else {
            return;
        };
        (conversation.record, conversation.is_slow) = (record, is_slow);
        let is_held_up = record.has_failed() || is_slow;
        let goes_on = match settlement {
            Settlement::Again { at, is_silent } => {
                self.delayed.insert((at, id));
                if is_silent {
                    self.silent.insert(id, at);
                }
                false
            }
            Settlement::Next(item) => {
                if let Some((_, first)) = conversation.events.front_mut() {
                    *first = item;
                }
                true
            }
            Settlement::Done => {
                conversation.events.pop_front();
                self.count -= 1;
                true
            }
        };
        if is_held_up {
            self.keep_first_row(id);
        }
        if goes_on {
            self.go_on(id);
        }
    }

    /// Passes over all but the first row of a conversation.
    fn keep_first_row(&mut self, id: ConversationId) {
        let Some(conversation) = self.conversations.get_mut(&id) else {
            return;
        };
        let Some(first) = conversation.events.front().map(|(position, _)| *position) else {
            return;
        };
        let (kept, passed): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut conversation.events)
            .into_iter()
            .partition(|(position, _)| *position == first);
        conversation.events = kept;
        self.count -= passed.len();
        let passed = passed.iter().map(|(position, _)| position.before());
        conversation.behind_from = passed.chain(conversation.behind_from).min();
    }

    /// Goes on with a conversation whose first event is gone.
    fn go_on(&mut self, id: ConversationId) {
        let Some(conversation) = self.conversations.get(&id) else {
            return;
        };
        match (conversation.events.is_empty(), conversation.behind_from) {
            (false, _) => self.wake(id),
            (true, Some(from)) => {
                self.hungry.insert((from, id));
            }
            (true, None) => self.drop_idle(id),
        }
    }

    /// The receiver answers again: the events that met silence are ready.
    pub(super) fn wake_silent(&mut self) {
        for (id, at) in std::mem::take(&mut self.silent) {
            if self.delayed.remove(&(at, id)) {
                self.wake(id);
            }
        }
    }
}

#[cfg(test)]
#[path = "queue_test.rs"]
mod tests;
