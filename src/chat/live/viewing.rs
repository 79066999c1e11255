//! Viewers' side of live messages: the feeds of this server, and the reads of the store for them.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::LiveService;
use super::shown::SILENCE_MICROS;
use crate::chat::error::Result;
use crate::chat::live_feed::{FeedRead, LiveFeed};
use crate::chat::replay_limiter::{ReplayLimiter, ReplayPermit};
use crate::chat::single_flight::{ReadKey, SingleFlight};
use crate::model::{Conversation, LiveBody, LiveKey, LiveStep, LiveView, UserId};

/// Time for which the list of a conversation serves further viewers.
const LISTING_FOR: Duration = Duration::from_secs(1);
/// Time from one read for viewers to the next, over all conversations of this process. With more reads, each waits longer.
const READ_EVERY: Duration = Duration::from_micros(500);
/// Lead of the reads after a pause.
const READ_LEAD: Duration = Duration::from_millis(20);
/// Polls at once of one writer's texts, and of all. They are the share of a writer: others wait for so many of each, however many live
/// messages it writes.
const WRITER_POLLS_MAX: usize = 16;
const POLLS_MAX: usize = 64;
/// Time that a poll waits for its turn. One that misses it is repeated a second later.
const TURN_MAX: Duration = Duration::from_millis(500);

/// Parts of the service that viewers need.
pub(super) struct LiveViewing {
    listings: SingleFlight<ListingKey, ()>,
    polls: ReplayLimiter,
    pace: ReadPace,
}

impl LiveViewing {
    pub(super) fn new() -> Self {
        Self {
            listings: SingleFlight::new(LISTING_FOR),
            polls: ReplayLimiter::new(WRITER_POLLS_MAX, POLLS_MAX, TURN_MAX),
            pace: ReadPace(Mutex::new(Instant::now())),
        }
    }

    /// Waits for the turn of a poll of this writer's text. The permit ends it.
    async fn turn(&self, writer: &UserId) -> Result<ReplayPermit> {
        let permit = self.polls.acquire(writer).await?;
        self.pace.turn().await;
        Ok(permit)
    }
}

/// Read of the list of a conversation for its feed.
#[derive(Clone)]
struct ListingKey {
    /// Number of the feed.
    feed: u64,
    began_at: Instant,
    /// An earlier read does not do.
    not_before: Instant,
}

impl ReadKey<()> for ListingKey {
    fn may_share(&self, started: &Self) -> bool {
        started.feed == self.feed && started.began_at >= self.not_before
    }

    fn awaits(&self, started: &Self) -> bool {
        started.feed == self.feed
    }
}

/// Pace of the reads for viewers, over all conversations: the time of the next one.
struct ReadPace(Mutex<Instant>);

impl ReadPace {
    /// Waits for the turn of a read.
    async fn turn(&self) {
        let now = Instant::now();
        let turn = {
            let mut next = self.0.lock();
            let turn = (*next).max(now.checked_sub(READ_LEAD).unwrap_or(now));
            *next = turn + READ_EVERY;
            turn
        };
        if turn > now {
            sleep_until(turn).await;
        }
    }
}

impl LiveService {
    /// The feed of a conversation for a viewer whose stream is registered, with all live messages that have begun. It lives as
    /// long as one of its viewers holds it.
    pub(crate) async fn feed(
        self: &Arc<Self>,
        conversation: &Conversation,
    ) -> Result<Arc<LiveFeed>> {
        // Without them no message would end a live message here.
        self.ids().await?;
        let (feed, is_new) = self.feeds.open(conversation.id);
        if is_new {
            let (lives, weak) = (Arc::downgrade(self), Arc::downgrade(&feed));
            tokio::spawn(read_for_feed(lives, weak, feed.work()));
        }
        feed.set_large(conversation.is_large);
        let now = Instant::now();
        // Every start since the first viewer's read is in the feed already, or this server was notified of it.
        self.list(&feed, now.checked_sub(LISTING_FOR).unwrap_or(now))
            .await?;
        Ok(feed)
    }

    /// Reads the list of a feed's conversation again: notices may have been lost.
    pub(crate) async fn refresh(&self, feed: &LiveFeed) -> Result<()> {
        self.list(feed, Instant::now()).await
    }

    async fn list(&self, feed: &LiveFeed, not_before: Instant) -> Result<()> {
        let key = ListingKey {
            feed: feed.number(),
            began_at: Instant::now(),
            not_before,
        };
        let read = async |_| {
            let mut writing = self.writing_in(feed.conversation()).await?;
            writing.retain(|live| !feed.has(live.key.id));
            writing.truncate(super::AT_ONCE_MAX);
            let loads = writing.iter().map(|live| self.load_into(feed, live.key));
            try_join_all(loads).await.map(drop)
        };
        self.viewing.listings.read(key, read).await.map(drop)
    }

    /// Loads a live message into a feed.
    async fn load_into(&self, feed: &LiveFeed, live: LiveKey) -> Result<()> {
        // The mark is held from before the read of the key: a message that is published meanwhile sets it.
        let mark = self.sent.mark(live);
        match self.load(live).await? {
            Some(state) => self.on_read(feed, &self.view_of(&state)),
            None => feed.forget(live.id),
        }
        drop(mark);
        Ok(())
    }

    fn on_read(&self, feed: &LiveFeed, view: &LiveView) {
        self.publisher.publish_live(self.feeds.on_read(feed, view));
    }

    /// Shows the viewers on this server a live message after an acknowledged write, a stop or a discard.
    pub(super) fn show(&self, view: &LiveView) {
        self.publisher.publish_live(self.feeds.on_written(view));
    }

    /// Another server has written to a live message, or a write here has no known outcome: viewers on this server get the
    /// stored text.
    pub(crate) fn on_notice(&self, live: LiveKey) {
        self.feeds.wake(live);
    }

    /// The last step of a live message that a viewer has seen on any server. `None` if nothing of it is stored any more.
    pub(crate) async fn step_of(
        &self,
        feed: &LiveFeed,
        live: LiveKey,
    ) -> Result<Option<Arc<LiveStep>>> {
        if let Some(step) = feed.last_step(live.id) {
            return Ok(Some(step));
        }
        let mark = self.sent.mark(live);
        let state = self.load(live).await?;
        Ok(state.map(|state| {
            let view = self.view_of(&state);
            feed.adopt(&view, mark, self.in_flight.now())
        }))
    }

    /// The due reads and steps of a feed.
    async fn read_due(&self, feed: &LiveFeed) {
        self.publisher
            .publish_live(feed.take_tick(self.in_flight.now()));
        let reads = feed.take_due().into_iter().map(async |read| {
            if let Err(error) = self.read(feed, read).await {
                tracing::debug!(%error, "the server cannot read a live message for its viewers; it retries");
            }
        });
        join_all(reads).await;
    }

    async fn read(&self, feed: &LiveFeed, read: FeedRead) -> Result<()> {
        match read {
            FeedRead::Load(live) => {
                self.viewing.pace.turn().await;
                self.load_into(feed, live).await
            }
            FeedRead::Poll {
                view,
                has_registers,
            } => {
                let _turn = self.viewing.turn(&view.message.start.sender).await?;
                self.poll(feed, *view, has_registers).await
            }
        }
    }

    /// Reads what has come to a live message since this view.
    async fn poll(&self, feed: &LiveFeed, mut view: LiveView, has_registers: bool) -> Result<()> {
        let live = view.message.key;
        if has_registers {
            let found = self.store.live_messages(&[live]).await?.pop().flatten();
            let Some(message) = found else {
                feed.rest(live.id);
                return Ok(());
            };
            if message.writers.shown() != view.message.writers.shown() {
                view.body.clear();
            }
            view.message = message;
        }
        if let Some(writer) = view.message.writers.shown() {
            let body = LiveBody::of_checked(view.body);
            let body = self.extended(live, writer, body).await?;
            view.body = body.into_text();
        }
        self.on_read(feed, &view);
        let silent_at = view.message.touched_at.plus_micros(SILENCE_MICROS);
        if has_registers && silent_at <= self.in_flight.now() {
            // The notice of its message may have been lost.
            self.load_into(feed, live).await?;
            feed.rest(live.id);
        }
        Ok(())
    }
}

/// Task of one feed, until its last viewer has left.
async fn read_for_feed(lives: Weak<LiveService>, feed: Weak<LiveFeed>, work: Arc<Notify>) {
    loop {
        let next = {
            let (Some(lives), Some(feed)) = (lives.upgrade(), feed.upgrade()) else {
                return;
            };
            lives.read_due(&feed).await;
            feed.next_due()
        };
        match next {
            Some(next) => drop(timeout_at(next, work.notified()).await),
            None => work.notified().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_reads_2_000_times_a_second() {
        let (pace, began) = (ReadPace(Mutex::new(Instant::now())), Instant::now());
        for _ in 0..10_000 {
            pace.turn().await;
        }
        let took = began.elapsed();
        assert!((4_900..=5_010).contains(&took.as_millis()), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_dozen_writers_of_a_thousand_texts_leave_another_one_its_share() {
        let viewing = Arc::new(LiveViewing::new());
        for number in 0..1_200 {
            let viewing = Arc::clone(&viewing);
            let writer = UserId::parse(&format!("writer{}", number % 12)).unwrap();
            tokio::spawn(async move {
                loop {
                    let turn = viewing.turn(&writer).await;
                    // The read of the store.
                    sleep(Duration::from_millis(2)).await;
                    drop(turn);
                }
            });
        }
        sleep(Duration::from_secs(1)).await;
        let writer = UserId::parse("another").unwrap();
        for _ in 0..20 {
            let began = Instant::now();
            viewing.turn(&writer).await.unwrap();
            let waited = began.elapsed();
            assert!(waited <= Duration::from_millis(150), "{waited:?}");
        }
    }
}
