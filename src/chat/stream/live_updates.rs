//! The stream of the live messages of one conversation.
//!
//! The viewer's position is the part of each live message that the viewer has. A step of the feed has the live message
//! whole, so the update of a step is the rest after that part, whatever the viewer has missed in between.

use std::collections::VecDeque;
use std::sync::Arc;

use super::StreamService;
use super::quiet_alarm::QuietAlarm;
use super::registration::StreamRegistration;
use super::update_key::UpdateKey;
use crate::bus::{Received, TopicSubscription};
use crate::chat::access::membership_guard::MembershipGuard;
use crate::chat::error::{Error, Result};
use crate::chat::live_feed::{LiveFeed, SILENCE_MICROS};
use crate::model::{
    ConversationId, Event, LiveCursor, LiveKey, LiveMessageId, LivePosition, LiveStep, Timestamp,
    Topic, Viewer,
};

/// Change of a live message, or only the position of the stream.
#[derive(Debug, Clone)]
pub struct LiveUpdate {
    /// Cursor of the stream after the update.
    pub cursor: LiveCursor,
    /// `None` for a position.
    pub change: Option<LiveChange>,
}

/// Text for the viewer to append, and the live message after it.
#[derive(Debug, Clone)]
pub struct LiveChange {
    pub step: Arc<LiveStep>,
    /// Position of the text in the live message.
    pub from: u32,
    /// Whether the text takes the place of all that the viewer has of the live message.
    pub is_whole: bool,
    pub key: UpdateKey,
}

impl LiveChange {
    pub fn text(&self) -> &str {
        let body = &self.step.view.body;
        // A viewer that is ahead of this server has all of it.
        body.get(self.from as usize..).unwrap_or_default()
    }
}

/// Part of a live message that the viewer has.
struct ShownLive {
    position: LivePosition,
    /// The last step. `None` after a resume.
    step: Option<Arc<LiveStep>>,
}

pub struct LiveUpdates {
    streams: Arc<StreamService>,
    guard: MembershipGuard,
    registration: StreamRegistration,
    subscription: TopicSubscription,
    feed: Arc<LiveFeed>,
    shown: ShownLives,
    /// Position that is delivered next: the first one, or one that a quiet stream repeats.
    position: Option<LiveCursor>,
    /// Steps at hand.
    steps: VecDeque<(Arc<LiveStep>, UpdateKey)>,
    /// Whether the state of the feed has to be read.
    is_behind: bool,
    /// Whether notices may be lost, or the conversation may have become large.
    has_gap: bool,
    quiet: QuietAlarm,
}

impl StreamService {
    /// Live messages of a conversation while they are written: first the state of each, or what came to it since the cursor.
    pub async fn lives(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        id: ConversationId,
        after: Option<LiveCursor>,
    ) -> Result<LiveUpdates> {
        let caller = &caller.into();
        if let Some(after) = &after {
            self.check_live_cursor(after)?;
        }
        let subscription = self.bus.subscribe(Topic::Live(id));
        let (registration, guard) = self.begin_in(caller, id).await?;
        let feed = {
            let _permit = self.replay_limiter.acquire(&caller.user).await?;
            self.lives.feed(guard.conversation()).await?
        };
        let first = after.unwrap_or_else(|| LiveCursor {
            at: self.in_flight.now(),
            lives: Vec::new(),
        });
        Ok(LiveUpdates {
            streams: Arc::clone(self),
            guard,
            registration,
            subscription,
            feed,
            shown: ShownLives::new(&first),
            position: Some(first),
            steps: VecDeque::new(),
            is_behind: true,
            has_gap: false,
            quiet: QuietAlarm::new(),
        })
    }

    /// Refuses cursors whose texts may be gone, or were others before the store was restored.
    fn check_live_cursor(&self, after: &LiveCursor) -> Result<()> {
        let oldest = self
            .in_flight
            .now()
            .plus_micros(-LiveCursor::LIFETIME_MICROS);
        if after.at < oldest.max(self.resumable_since) {
            return Err(Error::CursorExpired);
        }
        self.check_cursor_ahead(after.at)
    }
}

impl LiveUpdates {
    /// The next update. `None` once the viewer no longer takes part.
    pub async fn next(&mut self) -> Result<Option<LiveUpdate>> {
        while let Some(next) = self.next_step().await? {
            if !self.guard.may_still_see().await? {
                break;
            }
            if let Some(update) = self.update_of(next).await? {
                self.quiet.record_delivery();
                return Ok(Some(update));
            }
        }
        Ok(None)
    }

    pub fn guard(&self) -> &MembershipGuard {
        &self.guard
    }

    /// Whether the next update is at hand.
    pub fn has_more(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The update of a step, unless the viewer sees nothing of it.
    async fn update_of(
        &mut self,
        next: Option<(Arc<LiveStep>, UpdateKey)>,
    ) -> Result<Option<LiveUpdate>> {
        let Some((step, key)) = next else {
            let cursor = self.position.take();
            return Ok(cursor.map(|cursor| LiveUpdate {
                cursor,
                change: None,
            }));
        };
        let sender = &step.view.message.start.sender;
        if self.guard.has_blocked(sender).await? {
            return Ok(None);
        }
        let silent_at = step.view.message.touched_at.plus_micros(SILENCE_MICROS);
        // A step may come after the last one of its live message.
        let may_begin =
            silent_at > self.streams.in_flight.now() && self.feed.has(step.view.message.key.id);
        Ok(self.shown.advance(step, key, may_begin))
    }

    /// The next step. `Some(None)` stands for a position. `None` once a block hides the conversation.
    async fn next_step(&mut self) -> Result<Option<Option<(Arc<LiveStep>, UpdateKey)>>> {
        loop {
            if self.position.is_some() {
                return Ok(Some(None));
            }
            if let Some(next) = self.steps.pop_front() {
                return Ok(Some(Some(next)));
            }
            if self.is_behind {
                // Boxed: every waiting stream would reserve the size of the future.
                Box::pin(self.catch_up()).await?;
                continue;
            }
            let received = tokio::select! {
                biased;
                received = self.subscription.next() => received,
                () = self.quiet.wait() => {
                    self.repeat_position();
                    continue;
                }
            };
            match received {
                Some(Received::Notice(notice)) => {
                    if let Event::LiveStepped(step) = &notice.event {
                        let step = Arc::clone(step);
                        return Ok(Some(Some((step, UpdateKey::of_notice(notice)))));
                    }
                    if self.guard.is_own_block(&notice.event) {
                        if self.guard.is_hidden().await? {
                            return Ok(None);
                        }
                        // A user who is blocked no more has written meanwhile.
                        self.is_behind = true;
                    }
                }
                Some(Received::Lagged) => (self.is_behind, self.has_gap) = (true, true),
                None => return Ok(None),
            }
        }
    }

    /// Repeats the position with the present time: the cursor of a stream that stays open does not expire.
    fn repeat_position(&mut self) {
        self.position = Some(self.shown.cursor(self.streams.in_flight.now()));
        self.quiet.record_delivery();
    }

    /// Takes the last step of each live message: of those that the feed has, and of those that the viewer has seen elsewhere.
    async fn catch_up(&mut self) -> Result<()> {
        let streams = Arc::clone(&self.streams);
        if self.has_gap && streams.is_shared() {
            self.guard.recheck_size().await?;
            self.registration
                .listen_if_large(&streams.in_flight, &self.guard)
                .await?;
            self.feed.set_large(self.guard.conversation().is_large);
            streams.lives.refresh(&self.feed).await?;
        }
        (self.is_behind, self.has_gap) = (false, false);
        let steps = self.feed.steps();
        let conversation = self.feed.conversation();
        for id in self.shown.missing_in(&steps) {
            let _permit = match self.feed.last_step(id) {
                Some(_) => None,
                None => Some(streams.replay_limiter.acquire(self.guard.viewer()).await?),
            };
            let live = LiveKey { conversation, id };
            match streams.lives.step_of(&self.feed, live).await? {
                Some(step) => self.push(step),
                None => self.shown.remove(id),
            }
        }
        steps.into_iter().for_each(|step| self.push(step));
        Ok(())
    }

    fn push(&mut self, step: Arc<LiveStep>) {
        let key = UpdateKey::of_step(Arc::clone(&step));
        self.steps.push_back((step, key));
    }
}

/// Parts of all live messages that the viewer has, in the order in which they were first shown.
struct ShownLives(Vec<ShownLive>);

impl ShownLives {
    fn new(cursor: &LiveCursor) -> Self {
        let mut lives: Vec<ShownLive> = Vec::new();
        for position in &cursor.lives {
            if lives.iter().all(|live| live.position.id != position.id) {
                lives.push(ShownLive {
                    position: *position,
                    step: None,
                });
            }
        }
        Self(lives)
    }

    /// Cursor of a viewer who has these parts.
    fn cursor(&self, at: Timestamp) -> LiveCursor {
        let lives = self.0.iter().map(|live| live.position);
        LiveCursor {
            at,
            lives: lives.collect(),
        }
    }

    fn remove(&mut self, id: LiveMessageId) {
        self.0.retain(|live| live.position.id != id);
    }

    /// Those that none of the steps is of.
    fn missing_in(&self, steps: &[Arc<LiveStep>]) -> Vec<LiveMessageId> {
        let is_in = |id: LiveMessageId| steps.iter().any(|step| step.view.message.key.id == id);
        let ids = self.0.iter().map(|live| live.position.id);
        ids.filter(|id| !is_in(*id)).collect()
    }

    /// Advances to a step. `None` if it changes nothing for the viewer. One that may not begin is shown only to a viewer who has
    /// something of it.
    fn advance(
        &mut self,
        step: Arc<LiveStep>,
        key: UpdateKey,
        may_begin: bool,
    ) -> Option<LiveUpdate> {
        let view = &step.view;
        let id = view.message.key.id;
        let writer = view.message.writers.shown()?;
        let index = self.0.iter().position(|live| live.position.id == id);
        let (from, is_whole) = match index.map(|index| &self.0[index]) {
            None if view.is_over() || !may_begin => return None,
            None => (0, true),
            Some(shown) => shown.rest_in(&step)?,
        };
        let (at, end) = (step.at, view.end().max(from));
        let position = LivePosition {
            id,
            writer,
            position: end,
        };
        let is_over = view.is_over();
        let shown = ShownLive {
            position,
            step: Some(Arc::clone(&step)),
        };
        match index {
            Some(index) if is_over => drop(self.0.remove(index)),
            Some(index) => self.0[index] = shown,
            None => {
                // The feed has so many; one that it has given up is the oldest.
                if self.0.len() >= LiveCursor::COUNT_MAX {
                    self.0.remove(0);
                }
                self.0.push(shown);
            }
        }
        let cursor = self.cursor(at);
        let change = Some(LiveChange {
            step,
            from,
            is_whole,
            key,
        });
        Some(LiveUpdate { cursor, change })
    }
}

impl ShownLive {
    /// Position of the rest in a later step, and whether that takes the place of all. `None` if the step has nothing new.
    fn rest_in(&self, step: &LiveStep) -> Option<(u32, bool)> {
        let (view, own) = (&step.view, self.position);
        if let Some(last) = &self.step
            && step.number <= last.number
        {
            return None;
        }
        let writer = view.message.writers.shown()?;
        let from = own.position as usize;
        let is_beginning = from >= view.body.len() || view.body.is_char_boundary(from);
        if writer > own.writer || (writer == own.writer && !is_beginning) {
            return Some((0, true));
        }
        // Another server has shown the viewer a later writer already.
        if writer < own.writer && !view.is_over() {
            return None;
        }
        let has_text = writer == own.writer && from < view.body.len();
        let has_state = self
            .step
            .as_ref()
            .is_some_and(|last| last.view.has_state_of(view));
        (has_text || !has_state).then_some((own.position, false))
    }
}

#[cfg(test)]
#[path = "live_updates_test.rs"]
mod tests;
