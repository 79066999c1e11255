//! The rules of chat: who may do what, in which order things happen, and what is told to whom.
//!
//! Invariant: kept before told. Nothing is published that the store has not acknowledged, but who types and who is here, which is kept nowhere.
//! Invariant: what the viewer may not see answers like what does not exist.

mod access;
mod error;
mod history;
mod in_flight_ids;
mod inbox;
mod presence;
mod recent_ids;
mod remote_changes;
mod replay_limiter;
mod single_flight;
mod stream;
mod write;

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::bus::{Bus, NoticeEnvelope, Signal};
use crate::clock::{Clock, IdGenerator};
use crate::metrics::Metrics;
use crate::model::{
    Body, ConversationId, DirectIds, Event, InboxChange, Metadata, Notice, OrderKey, TimeUuid,
    Timestamp, Topic, Unread, UserId,
};
use crate::rate::{Buckets, Rate};
use crate::store::{self, ReadShares, Store};

pub use access::client_key;
pub use access::membership_guard::MembershipGuard;
pub use error::{Error, Result, StoreFailure};
pub use history::HistoryRequest;
pub use inbox::entry_settings::EntrySettings;
pub use inbox::{InboxFilter, InboxPage, InboxSummary};
pub use presence::PresenceGuard;
pub use stream::conversation_updates::{
    ConversationEvent, ConversationUpdate, ConversationUpdates,
};
pub use stream::inbox_updates::{InboxUpdate, InboxUpdates};
pub use stream::message_updates::{MessageUpdate, MessageUpdates};
pub use stream::presence_updates::{PresenceUpdate, PresenceUpdates};
pub use stream::typing_updates::{TypingUpdate, TypingUpdates};
pub use stream::update_key::UpdateKey;
pub use write::draft::{AttachmentDraft, Draft, DraftInput};
pub use write::profile::ProfileInput;

/// What is bounded here, with the defaults of the design.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    pub body_bytes_max: usize,
    pub metadata_bytes_max: usize,
    /// The most that an unread count says.
    pub unread_cap: u32,
    /// Inbox entries looked at for one filtered page or one summary.
    pub inbox_scan_max: usize,
    /// Entries that a resumed inbox stream repeats; more, and its cursor has expired.
    pub inbox_replay_max: usize,
    /// Conversations of one user.
    pub conversations_max: usize,
    /// Large conversations of one user, of those in which the user acted.
    pub large_conversations_max: usize,
    /// Sends that wait in one conversation.
    pub queue_jobs_max: usize,
    pub queue_bytes_max: usize,
    /// How long a send waits for its turn. After that it was not done.
    pub begin_wait: Duration,
    /// How long a send waits for its outcome.
    pub settle_wait: Duration,
    pub rates: RateBounds,
    /// How long a sign of typing lasts.
    pub typing_lasts: Duration,
    /// How long a user may be gone and come back unnoticed.
    pub presence_grace: Duration,
    /// Names that one user follows with all subscriptions together.
    pub presence_names_max: usize,
    /// When a user was last seen is kept so often, at most.
    pub seen_every: Duration,
    /// Reads of what resumed streams missed, at once: of one user, of all. More wait in line.
    pub user_replays_max: usize,
    pub replays_max: usize,
    pub replay_wait: Duration,
    /// Reads of the store that one user's operations may have under way.
    pub user_reads_max: usize,
}

/// How often one user may do what costs others something. Whatever asks for it, through whichever door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateBounds {
    pub is_on: bool,
    pub sends_per_second: u32,
    pub sends_burst: u32,
    /// Users brought into conversations by somebody with whom they share none.
    pub strangers_per_hour: u32,
    /// Signs of typing in one conversation come no faster than this.
    pub typing_every: Duration,
}

impl Default for RateBounds {
    fn default() -> Self {
        Self {
            is_on: true,
            sends_per_second: 10,
            sends_burst: 30,
            strangers_per_hour: 60,
            typing_every: Duration::from_secs(2),
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body_bytes_max: Body::BYTES_MAX,
            metadata_bytes_max: Metadata::BYTES_MAX,
            unread_cap: Unread::CAP,
            inbox_scan_max: 1_000,
            inbox_replay_max: 1_000,
            conversations_max: 50_000,
            large_conversations_max: 200,
            queue_jobs_max: 256,
            queue_bytes_max: 1 << 20,
            begin_wait: Duration::from_secs(2),
            settle_wait: Duration::from_secs(5),
            rates: RateBounds::default(),
            typing_lasts: Duration::from_secs(6),
            presence_grace: Duration::from_secs(5),
            presence_names_max: 500,
            seen_every: Duration::from_secs(60),
            user_replays_max: 4,
            replays_max: 64,
            replay_wait: Duration::from_secs(10),
            user_reads_max: 16,
        }
    }
}

/// The chat: everything a door may ask for, on behalf of a viewer.
#[derive(Clone)]
pub struct Chat(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    bus: Bus,
    clock: Arc<dyn Clock>,
    in_flight: in_flight_ids::InFlightIds,
    ids: Arc<IdGenerator>,
    queues: write::conversation_queue::ConversationQueues,
    /// How often somebody left a conversation since this process began: who got something before looks again.
    leave_epoch: AtomicU64,
    /// Where other servers write too: what was told here.
    published_ids: recent_ids::PublishedIds,
    /// Token buckets: sends, strangers brought into conversations, and checks for new relationships.
    sends: Buckets,
    strangers: Buckets,
    looks: Buckets,
    counts: write::introduction::ConversationCounts,
    direct_ids: OnceCell<DirectIds>,
    followed: stream::presence_updates::FollowedNames,
    typing: Buckets,
    presence: presence::PresenceTask,
    /// Of those who read what they missed.
    replay_limiter: replay_limiter::ReplayLimiter,
    replays: stream::replay::Replays,
    participant_cache: access::participant_cache::ParticipantCache,
    read_shares: Arc<ReadShares>,
    bounds: Bounds,
    /// When the store was last imported into: what was given out before is no position any more.
    imported_at: Timestamp,
}

impl Chat {
    /// A chat over a store. Its ids begin after the greatest one that the store has.
    pub async fn open(
        store: Arc<dyn Store>,
        bus: Bus,
        clock: Arc<dyn Clock>,
        bounds: Bounds,
    ) -> Result<Self, store::Error> {
        let ids = Arc::new(IdGenerator::random());
        if let Some(newest) = store.newest_id().await? {
            ids.observe(newest);
        }
        let imported_at = store.imported_at().await?.unwrap_or_default();
        // What is given out from now on is younger than the import, also where the clock was set back since.
        ids.pass(imported_at);
        let in_flight = in_flight_ids::InFlightIds::new(
            Arc::clone(&clock),
            Arc::clone(&ids),
            store.overlap_micros() > 0,
        );
        let sends = Buckets::new(
            "sends",
            Rate::per_second(bounds.rates.sends_per_second, bounds.rates.sends_burst),
        );
        let strangers = Buckets::new("strangers", Rate::per_hour(bounds.rates.strangers_per_hour));
        let looks = Buckets::new("looks", stream::presence_updates::LOOKS);
        let typing = Buckets::new(
            "typing",
            Rate {
                count: 1,
                per: bounds.rates.typing_every,
                burst: 1,
            },
        );
        let presence = presence::PresenceTask::new(bus.clone(), Arc::clone(&clock), &bounds);
        let replay_limiter = replay_limiter::ReplayLimiter::new(
            bounds.user_replays_max,
            bounds.replays_max,
            bounds.replay_wait,
        );
        let (queues, leave_epoch, published_ids, replays, counts, direct_ids) = Default::default();
        let followed = stream::presence_updates::FollowedNames::new(bounds.presence_names_max);
        let participant_cache = access::participant_cache::ParticipantCache::default();
        let read_shares = ReadShares::new(bounds.user_reads_max);
        let inner = Inner {
            store,
            bus,
            clock,
            in_flight,
            ids,
            queues,
            leave_epoch,
            published_ids,
            sends,
            strangers,
            looks,
            counts,
            direct_ids,
            followed,
            typing,
            presence,
            replay_limiter,
            replays,
            participant_cache,
            read_shares,
            bounds,
            imported_at,
        };
        let chat = Self(Arc::new(inner));
        chat.keep_presence();
        if chat.is_shared() {
            chat.poll_remote_changes();
        }
        Ok(chat)
    }

    /// Takes one from the viewer's bucket, where there are rates.
    fn pace(&self, buckets: &Buckets, viewer: &UserId) -> Result<()> {
        self.pace_of(buckets, viewer)
    }

    /// The same, from the bucket of something narrower.
    fn pace_of(&self, buckets: &Buckets, key: &impl Hash) -> Result<()> {
        if self.0.bounds.rates.is_on {
            Ok(buckets.take(key, 1, Instant::now())?)
        } else {
            Ok(())
        }
    }

    /// Tells what it counts of itself, and what its bus does.
    pub fn register(&self, metrics: &Metrics) {
        self.0.bus.register(metrics);
        [
            &self.0.sends,
            &self.0.strangers,
            &self.0.typing,
            &self.0.looks,
        ]
        .iter()
        .for_each(|buckets| buckets.register(metrics));
        let of = |read: fn(&Inner) -> f64| {
            let chat = self.clone();
            move || read(&chat.0)
        };
        metrics.read(
            "wideroom_queues",
            "Conversations with writes in progress.",
            of(|inner| inner.queues.waiting().0 as f64),
        );
        metrics.read(
            "wideroom_queue_jobs",
            "Writes waiting in the queues of conversations.",
            of(|inner| inner.queues.waiting().1 as f64),
        );
        metrics.read(
            "wideroom_replays",
            "Running reads of history for resumed subscriptions.",
            of(|inner| inner.replay_limiter.taken() as f64),
        );
    }

    /// Topics that somebody listens to.
    pub fn topic_count(&self) -> usize {
        self.0.bus.topic_count()
    }

    /// Work whose reads count as this user's: of those only so many are under way at once.
    pub async fn reading_for<T>(&self, user: &UserId, work: impl Future<Output = T>) -> T {
        self.0.read_shares.reading_for(user, work).await
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    pub fn bounds(&self) -> &Bounds {
        &self.0.bounds
    }

    /// By how far the ids are ahead of the wall clock: it was set back, or was ahead when they were given.
    pub fn ahead_of_clock(&self) -> Duration {
        let ahead = self.0.ids.last().micros() - self.0.clock.now().micros();
        Duration::from_micros(u64::try_from(ahead).unwrap_or(0))
    }

    /// Waits until every send that was taken has been answered, and until it is kept when those who are here were seen. Nothing new should come in any more.
    pub async fn finish(&self) {
        self.0.queues.finish().await;
        self.keep_last_seen().await;
    }

    /// Somebody left a conversation: whoever gets something from now on looks first whether they still may.
    fn advance_leave_epoch(&self) {
        self.0.leave_epoch.fetch_add(1, Ordering::SeqCst);
    }

    fn leave_epoch(&self) -> u64 {
        self.0.leave_epoch.load(Ordering::SeqCst)
    }

    /// What this server tells itself is not to be told once more when it is found in the store.
    fn was_told(&self, id: TimeUuid) {
        if self.is_shared() {
            self.0.published_ids.insert(id);
        }
    }

    /// Tells the readers of these inboxes that the conversation's entry is another one now, and those on other servers by `signal`.
    fn tell_inboxes<'a>(
        &self,
        users: impl IntoIterator<Item = &'a UserId>,
        conversation: ConversationId,
        (id, settled): (TimeUuid, OrderKey),
        signal: impl Fn(UserId) -> Signal,
    ) {
        let users = users
            .into_iter()
            .inspect(|user| self.0.bus.signal_peers(|| signal((*user).clone())));
        self.tell_inboxes_here(users, conversation, id, settled);
    }

    fn tell_inboxes_here<'a>(
        &self,
        users: impl IntoIterator<Item = &'a UserId>,
        conversation: ConversationId,
        id: TimeUuid,
        settled: OrderKey,
    ) {
        self.was_told(id);
        let mut notice = None;
        for user in users {
            let topic = Topic::Inbox(user.clone());
            if self.0.bus.has_subscribers(&topic) {
                let notice = notice.get_or_insert_with(|| {
                    let event = Event::Inbox(InboxChange { conversation });
                    Arc::<NoticeEnvelope>::from(Notice::new(id, settled, event))
                });
                self.0.bus.publish(&topic, Arc::clone(notice));
            }
        }
    }
}
