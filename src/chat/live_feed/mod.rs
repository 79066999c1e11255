//! Live feeds: the live messages of each conversation that has viewers on this server. All viewers of a conversation share one.
//!
//! A feed merges the writes of this server and the reads of the store into one state, and makes steps of it. A step has the
//! live message whole: a viewer takes from it the part that the viewer does not have, and may miss any step before it.
//!
//! A live message of another server is polled: every 250 ms while its text grows, every second while it does not, and no
//! more after a minute without a write. One read serves all viewers of this server.

mod feed;
mod schedule;
pub(crate) mod sent_lives;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::feed::LiveFeed;
pub(crate) use self::schedule::FeedRead;
use self::schedule::NewsSource;
use self::sent_lives::SentLives;
use crate::bus::Bus;
use crate::clock::Clock;
use crate::model::{ConversationId, LiveKey, LiveStep, LiveView, Message};
use crate::weak_map::WeakMap;

/// Time without a write after which a live message counts as ended.
pub(crate) const SILENCE_MICROS: i64 = 60 * 1_000_000;

/// Feeds of all conversations with viewers.
pub(crate) struct LiveFeeds {
    clock: Arc<dyn Clock>,
    bus: Bus,
    sent: Arc<SentLives>,
    /// Whether other servers write to the store too.
    is_shared: bool,
    feeds: WeakMap<ConversationId, LiveFeed>,
    /// Number of the next feed.
    next_number: AtomicU64,
}

impl LiveFeeds {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        bus: Bus,
        sent: Arc<SentLives>,
        is_shared: bool,
    ) -> Self {
        Self {
            clock,
            bus,
            sent,
            is_shared,
            feeds: WeakMap::default(),
            next_number: AtomicU64::default(),
        }
    }

    /// The feed of a conversation, if it has viewers.
    pub(crate) fn get(&self, conversation: ConversationId) -> Option<Arc<LiveFeed>> {
        self.feeds.get(&conversation)
    }

    /// The feed of a conversation, for a viewer. True if this viewer is the first one.
    pub(crate) fn open(&self, conversation: ConversationId) -> (Arc<LiveFeed>, bool) {
        let mut is_new = false;
        let feed = self.feeds.get_or_insert_with(conversation, || {
            is_new = true;
            let number = self.next_number.fetch_add(1, Ordering::Relaxed);
            LiveFeed::new(conversation, number, self.is_shared)
        });
        (feed, is_new)
    }

    /// Takes over an acknowledged write of this server, a stop or a discard. The step is to be published.
    pub(crate) fn on_written(&self, view: &LiveView) -> Option<Arc<LiveStep>> {
        let feed = self.get(view.message.key.conversation)?;
        self.merge(&feed, view, NewsSource::Written)
    }

    /// Takes over a read of the store. The step is to be published.
    pub(crate) fn on_read(&self, feed: &LiveFeed, view: &LiveView) -> Option<Arc<LiveStep>> {
        let are_reads_announced = self.bus.is_connected_to_peers();
        self.merge(
            feed,
            view,
            NewsSource::Read {
                are_reads_announced,
            },
        )
    }

    fn merge(&self, feed: &LiveFeed, view: &LiveView, source: NewsSource) -> Option<Arc<LiveStep>> {
        let mark = self.sent.mark(view.message.key);
        feed.merge(view, mark, source, self.clock.now())
    }

    /// Has the feed of a live message read the store at once.
    pub(crate) fn wake(&self, live: LiveKey) {
        if let Some(feed) = self.get(live.conversation) {
            feed.wake(live.id);
        }
    }

    /// Ends the live message of a message that is published. The step is to be published.
    pub(crate) fn end(&self, message: &Message) -> Option<Arc<LiveStep>> {
        let live = self.sent.end(message)?;
        let feed = self.get(live.conversation)?;
        feed.end(live.id, message.id, self.clock.now())
    }
}
