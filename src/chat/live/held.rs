//! Live messages that this server holds in memory, so that an append reads nothing.
//!
//! A write takes the state out, and puts it back once the outcome is known. A write that ends in any other way leaves no state, and the next
//! one reads the store. The least recently used states are evicted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::chat::access::leave_epoch::RightsMoment;
use crate::chat::error::{Error, Result};
use crate::chat::live_feed::sent_lives::{SentLives, SentMark};
use crate::model::{LiveBody, LiveKey, LiveMessage};
use crate::weighted_cache::WeightedCache;

/// Bytes of all states together.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of a state besides its text.
const STATE_BYTES: usize = 2_048;
/// Writes of one live message that wait for the one in progress.
const WAITING_MAX: usize = 8;
/// Deadline for a write to begin. A write that misses it is not done.
const TURN_MAX: Duration = Duration::from_secs(2);

/// State of a live message, as far as this server has read and written it.
#[derive(Debug)]
pub(super) struct LiveState {
    pub(super) message: LiveMessage,
    /// Text of the writer that is shown.
    pub(super) body: LiveBody,
    /// Moment before the last read of the list of writers.
    pub(super) read_at: Instant,
    /// Last minute in which this server listed the live message.
    pub(super) listed: Option<u32>,
    /// Times of the last write on this server, and of the last typing signal.
    pub(super) written_at: Option<Instant>,
    pub(super) typed_at: Option<Instant>,
    /// The message that ended it. The mark is of all states of the live message.
    pub(super) sent: Arc<SentMark>,
}

/// Live message that this server holds.
pub(super) struct HeldLive {
    turns: Semaphore,
    waiting: AtomicUsize,
    state: Mutex<Option<LiveState>>,
    /// Moment before the rights of the sender were read. `None` if this server has not read them.
    rights: Mutex<Option<RightsMoment>>,
    /// Whether the stored row has changed in another way than by a write.
    is_stale: AtomicBool,
    /// Keeps the mark while the live message is held.
    _sent: Arc<SentMark>,
}

impl HeldLive {
    fn new(sent: Arc<SentMark>) -> Self {
        Self {
            turns: Semaphore::new(1),
            waiting: AtomicUsize::new(0),
            state: Mutex::new(None),
            rights: Mutex::new(None),
            is_stale: AtomicBool::new(false),
            _sent: sent,
        }
    }

    /// Waits for the turn of a write. The permit ends it.
    pub(super) async fn turn(&self) -> Result<SemaphorePermit<'_>> {
        let waiting = WaitingWrite::begin(&self.waiting)?;
        let permit = timeout(TURN_MAX, self.turns.acquire()).await;
        drop(waiting);
        let permit = permit.map_err(|_| Error::Busy)?;
        Ok(permit.expect("the semaphore is never closed"))
    }

    /// Takes the state out. `None` if the store has to be read.
    pub(super) fn take(&self) -> Option<LiveState> {
        self.state.lock().take()
    }

    pub(super) fn put(&self, state: LiveState) {
        *self.state.lock() = Some(state);
    }

    pub(super) fn rights(&self) -> Option<RightsMoment> {
        *self.rights.lock()
    }

    pub(super) fn set_rights(&self, moment: RightsMoment) {
        *self.rights.lock() = Some(moment);
    }

    /// Has the next write read the stored row.
    pub(super) fn set_stale(&self) {
        self.is_stale.store(true, Ordering::SeqCst);
    }

    /// Call before the stored row is read.
    pub(super) fn take_stale(&self) -> bool {
        self.is_stale.swap(false, Ordering::SeqCst)
    }
}

/// Write that waits for its turn.
struct WaitingWrite<'a>(&'a AtomicUsize);

impl<'a> WaitingWrite<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Result<Self> {
        let own = Self(waiting);
        if waiting.fetch_add(1, Ordering::SeqCst) >= WAITING_MAX {
            return Err(Error::TooFast {
                retry_after: TURN_MAX,
            });
        }
        Ok(own)
    }
}

impl Drop for WaitingWrite<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// All live messages that this server holds.
pub(super) struct HeldLives {
    sent: Arc<SentLives>,
    held: WeightedCache<LiveKey, Arc<HeldLive>>,
}

impl HeldLives {
    pub(super) fn new(sent: Arc<SentLives>) -> Self {
        Self {
            sent,
            held: WeightedCache::new(usize::MAX, BYTES_MAX),
        }
    }

    /// The live message of a key, which is held from now on.
    pub(super) fn hold(&self, key: LiveKey) -> Arc<HeldLive> {
        let live = || Arc::new(HeldLive::new(self.sent.mark(key)));
        self.held.get_or_put(key, STATE_BYTES, live)
    }

    /// The live message of a key, if it is held.
    pub(super) fn get(&self, key: LiveKey) -> Option<Arc<HeldLive>> {
        self.held.peek(&key)
    }

    /// Counts the text of a state.
    pub(super) fn count(&self, key: LiveKey, text_bytes: usize) {
        self.held.weigh(&key, STATE_BYTES + text_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConversationId, LiveMessageId};

    fn key(number: u128) -> LiveKey {
        LiveKey {
            conversation: ConversationId(uuid::Uuid::from_u128(1)),
            id: LiveMessageId(uuid::Uuid::from_u128(number)),
        }
    }

    #[test]
    fn the_least_recently_used_are_forgotten_above_the_bound() {
        let lives = HeldLives::new(Arc::default());
        let text_bytes = (1 << 20) - STATE_BYTES;
        for number in 0..64 {
            lives.hold(key(number));
            lives.count(key(number), text_bytes);
        }
        assert_eq!(lives.held.size(), (64, BYTES_MAX));
        lives.hold(key(0));
        lives.hold(key(64));
        assert_eq!(lives.held.size(), (64, BYTES_MAX - (1 << 20) + STATE_BYTES));
        assert!(lives.get(key(0)).is_some() && lives.get(key(1)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_writes_wait_for_their_turn() {
        let live = HeldLive::new(Arc::default());
        let first = live.turn().await.unwrap();
        let waiting = futures_util::future::join_all((0..9).map(|_| live.turn()));
        let outcomes = waiting.await;
        let refused = |outcome: &&Result<_>| matches!(outcome, Err(Error::TooFast { .. }));
        assert_eq!(outcomes.iter().filter(refused).count(), 1);
        let late = |outcome: &&Result<_>| matches!(outcome, Err(Error::Busy));
        assert_eq!(outcomes.iter().filter(late).count(), 8);
        drop(first);
        assert!(live.turn().await.is_ok());
    }
}
