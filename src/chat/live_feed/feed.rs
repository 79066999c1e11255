//! Feed of one conversation: the state of its live messages, and their steps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::SILENCE_MICROS;
use super::schedule::{FeedRead, NewsSource, ReadSchedule};
use super::sent_lives::SentMark;
use crate::model::{
    ConversationId, LiveCursor, LiveKey, LiveMessageId, LiveStep, LiveView, MessageId, Timestamp,
};

/// Live messages of one feed: as many as a cursor has.
const LIVES_MAX: usize = LiveCursor::COUNT_MAX;
/// Ended live messages whose last steps are kept for viewers that resume.
const ENDED_MAX: usize = 16;
/// Live messages that are to be loaded.
const WANTED_MAX: usize = 128;
/// Interval of the steps of a large conversation: all of its viewers take the same ones.
const TICK: Duration = Duration::from_secs(1);
/// Time after which a load that failed is repeated.
const LOAD_AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct LiveFeed {
    conversation: ConversationId,
    number: u64,
    /// Whether other servers write to the store too.
    is_shared: bool,
    is_large: AtomicBool,
    state: Mutex<FeedState>,
    /// Signals that the schedule has changed, or that the feed has ended.
    work: Arc<Notify>,
}

#[derive(Default)]
struct FeedState {
    /// In the order of their starts.
    lives: Vec<FedLive>,
    /// Last steps of live messages that have ended, the oldest first.
    ended: VecDeque<Arc<LiveStep>>,
    /// Live messages to load, each with the time of its next read.
    wanted: BTreeMap<LiveMessageId, Instant>,
    step_number: u64,
    last_tick: Option<Instant>,
    next_tick: Option<Instant>,
}

/// Live message of a feed.
struct FedLive {
    view: LiveView,
    /// The last step. `None` before the first.
    step: Option<Arc<LiveStep>>,
    reads: ReadSchedule,
    /// Set once the message is published. It is held from before the read of the key.
    sent: Arc<SentMark>,
}

impl FedLive {
    /// Takes over newer parts. Returns whether the text has changed.
    fn take(&mut self, news: &LiveView) -> bool {
        let before = (self.view.message.writers.shown(), self.view.body.len());
        self.view.merge(news);
        self.view.sent = self.view.sent.or(self.sent.get().copied());
        before != (self.view.message.writers.shown(), self.view.body.len())
    }

    /// Whether viewers do not have all of it.
    fn has_news(&self) -> bool {
        let writer = self.view.message.writers.shown();
        self.step.as_ref().is_none_or(|step| {
            step.view.message.writers.shown() != writer
                || step.view.body.len() != self.view.body.len()
                || !step.view.has_state_of(&self.view)
        })
    }
}

fn is_silent(view: &LiveView, now: Timestamp) -> bool {
    view.message.touched_at.plus_micros(SILENCE_MICROS) <= now
}

impl FeedState {
    fn position(&self, id: LiveMessageId) -> Option<usize> {
        let mut lives = self.lives.iter();
        lives.position(|live| live.view.message.key.id == id)
    }

    /// Adds a live message. The last begun stay; of the others those that fell silent go first. `None` if it is one of these.
    fn insert(&mut self, view: &LiveView, sent: Arc<SentMark>, now: Timestamp) -> Option<usize> {
        let begin = |view: &LiveView| (view.message.start.at, view.message.key);
        if self.lives.len() >= LIVES_MAX {
            let rank = |view: &LiveView| (!is_silent(view, now), begin(view));
            let ranked = self.lives.iter().enumerate();
            let (first, least) = ranked
                .map(|(index, live)| (index, rank(&live.view)))
                .min_by_key(|(_, rank)| *rank)?;
            if rank(view) < least {
                return None;
            }
            self.lives.remove(first);
        }
        let index = self
            .lives
            .partition_point(|live| begin(&live.view) < begin(view));
        let live = FedLive {
            view: view.clone(),
            step: None,
            reads: ReadSchedule::new(),
            sent,
        };
        self.lives.insert(index, live);
        Some(index)
    }

    /// Makes a step of the present state of a live message. One that is over leaves the feed.
    fn step(&mut self, index: usize, now: Timestamp) -> Arc<LiveStep> {
        let step = self.step_of(&self.lives[index].view.clone(), now);
        if step.view.is_over() {
            self.lives.remove(index);
            self.retain_ended(Arc::clone(&step));
        } else {
            self.lives[index].step = Some(Arc::clone(&step));
        }
        step
    }

    fn step_of(&mut self, view: &LiveView, now: Timestamp) -> Arc<LiveStep> {
        self.step_number += 1;
        Arc::new(LiveStep {
            view: view.clone(),
            number: self.step_number,
            at: now,
        })
    }

    fn retain_ended(&mut self, step: Arc<LiveStep>) {
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back(step);
    }

    /// The step of a change, unless it waits for the tick of a large conversation.
    fn step_or_wait(
        &mut self,
        index: usize,
        is_large: bool,
        now: Timestamp,
    ) -> Option<Arc<LiveStep>> {
        let live = &self.lives[index];
        let waits = is_large && live.step.is_some() && !live.view.is_over();
        if !waits {
            return (live.has_news() || live.view.is_over()).then(|| self.step(index, now));
        }
        if live.has_news() {
            let earliest = self.last_tick.map(|last| last + TICK);
            let at = earliest.map_or_else(Instant::now, |at| at.max(Instant::now()));
            self.next_tick.get_or_insert(at);
        }
        None
    }
}

impl LiveFeed {
    pub(super) fn new(conversation: ConversationId, number: u64, is_shared: bool) -> Self {
        Self {
            conversation,
            number,
            is_shared,
            is_large: AtomicBool::new(false),
            state: Mutex::default(),
            work: Arc::default(),
        }
    }

    pub(crate) fn conversation(&self) -> ConversationId {
        self.conversation
    }

    /// Number of this feed among all of the process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn work(&self) -> Arc<Notify> {
        Arc::clone(&self.work)
    }

    pub(crate) fn set_large(&self, is_large: bool) {
        self.is_large.store(is_large, Ordering::Relaxed);
    }

    pub(crate) fn has(&self, id: LiveMessageId) -> bool {
        self.state.lock().position(id).is_some()
    }

    /// Takes over newer parts of a live message. The step is to be published.
    pub(super) fn merge(
        &self,
        news: &LiveView,
        sent: Arc<SentMark>,
        source: NewsSource,
        now: Timestamp,
    ) -> Option<Arc<LiveStep>> {
        let mut guard = self.state.lock();
        let (state, id) = (&mut *guard, news.message.key.id);
        state.wanted.remove(&id);
        let (index, is_new) = match state.position(id) {
            Some(index) => (index, false),
            None if news.is_over() => return None,
            None => (state.insert(news, sent, now)?, true),
        };
        let live = &mut state.lives[index];
        let has_grown = live.take(news) || is_new;
        live.reads.on_news(source, has_grown, self.is_shared);
        let step = state.step_or_wait(index, self.is_large.load(Ordering::Relaxed), now);
        drop(guard);
        self.work.notify_one();
        step
    }

    /// Ends a live message that was sent. The step is to be published.
    pub(super) fn end(
        &self,
        id: LiveMessageId,
        message: MessageId,
        now: Timestamp,
    ) -> Option<Arc<LiveStep>> {
        let mut state = self.state.lock();
        let index = state.position(id)?;
        state.lives[index].view.sent = Some(message);
        Some(state.step(index, now))
    }

    /// The step of a live message that a viewer has seen elsewhere: the present one, or one of this view, which is not
    /// published.
    pub(crate) fn adopt(
        &self,
        view: &LiveView,
        sent: Arc<SentMark>,
        now: Timestamp,
    ) -> Arc<LiveStep> {
        let mut guard = self.state.lock();
        let (state, id) = (&mut *guard, view.message.key.id);
        if let Some(step) = state.last_step(id) {
            return step;
        }
        if view.is_over() {
            let step = state.step_of(view, now);
            state.retain_ended(Arc::clone(&step));
            return step;
        }
        let index = match state.position(id) {
            Some(index) => Some(index),
            None => state.insert(view, sent, now),
        };
        match index {
            Some(index) => {
                state.lives[index].take(view);
                state.step(index, now)
            }
            None => state.step_of(view, now),
        }
    }

    /// The last step of a live message, ended or not.
    pub(crate) fn last_step(&self, id: LiveMessageId) -> Option<Arc<LiveStep>> {
        self.state.lock().last_step(id)
    }

    /// The last steps of all live messages that have not ended, in the order of their starts.
    pub(crate) fn steps(&self) -> Vec<Arc<LiveStep>> {
        let state = self.state.lock();
        let steps = state.lives.iter().filter_map(|live| live.step.clone());
        steps.collect()
    }

    /// Has the store read at once for a live message.
    pub(super) fn wake(&self, id: LiveMessageId) {
        let mut state = self.state.lock();
        match state.position(id) {
            Some(index) => state.lives[index].reads.wake(),
            None if state.wanted.len() < WANTED_MAX => {
                state.wanted.insert(id, Instant::now());
            }
            None => return,
        }
        drop(state);
        self.work.notify_one();
    }

    /// Gives up the load of a live message that does not exist.
    pub(crate) fn forget(&self, id: LiveMessageId) {
        self.state.lock().wanted.remove(&id);
    }

    /// Reads nothing more for a live message that fell silent, until it is written to again.
    pub(crate) fn rest(&self, id: LiveMessageId) {
        let mut state = self.state.lock();
        if let Some(index) = state.position(id) {
            state.lives[index].reads.rest();
        }
    }

    /// The reads that are due.
    pub(crate) fn take_due(&self) -> Vec<FeedRead> {
        let (now, mut guard) = (Instant::now(), self.state.lock());
        let state = &mut *guard;
        let conversation = self.conversation;
        let mut due = Vec::new();
        for (id, next) in &mut state.wanted {
            if *next <= now {
                *next = now + LOAD_AGAIN;
                let id = *id;
                due.push(FeedRead::Load(LiveKey { conversation, id }));
            }
        }
        for live in &mut state.lives {
            if let Some(has_registers) = live.reads.take_due(now) {
                due.push(FeedRead::Poll {
                    view: Box::new(live.view.clone()),
                    has_registers,
                });
            }
        }
        due
    }

    /// The steps of a large conversation that are due.
    pub(crate) fn take_tick(&self, at: Timestamp) -> Vec<Arc<LiveStep>> {
        let (now, mut guard) = (Instant::now(), self.state.lock());
        let state = &mut *guard;
        if state.next_tick.is_none_or(|next| next > now) {
            return Vec::new();
        }
        (state.last_tick, state.next_tick) = (Some(now), None);
        let lives = 0..state.lives.len();
        let changed: Vec<_> = lives
            .filter(|index| state.lives[*index].has_news())
            .collect();
        let steps = changed.into_iter().map(|index| state.step(index, at));
        steps.collect()
    }

    /// Time of the next read or step. `None` if there is none before the next signal.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let state = self.state.lock();
        let reads = state.lives.iter().filter_map(|live| live.reads.next());
        let loads = state.wanted.values().copied();
        reads.chain(loads).chain(state.next_tick).min()
    }
}

impl FeedState {
    fn last_step(&self, id: LiveMessageId) -> Option<Arc<LiveStep>> {
        let is_it = |step: &&Arc<LiveStep>| step.view.message.key.id == id;
        let lives = self.lives.iter().filter_map(|live| live.step.as_ref());
        lives.chain(&self.ended).find(is_it).cloned()
    }
}

impl Drop for LiveFeed {
    fn drop(&mut self) {
        self.work.notify_one();
    }
}
