//! Bounds of the chat: sizes, counts, deadlines and rates, with the defaults of the design.

use std::time::Duration;

use crate::model::{Body, Metadata, Unread};
use crate::store::OUTBOX_KEEP;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    pub body_bytes_max: usize,
    pub metadata_bytes_max: usize,
    /// Cap of an unread count.
    pub unread_cap: u32,
    /// Inbox entries read for one filtered page or one summary.
    pub inbox_scan_max: usize,
    /// Entries that a resumed inbox stream repeats. With more changes, its cursor has expired.
    pub inbox_replay_max: usize,
    /// Conversations of one user.
    pub conversations_max: usize,
    /// Large conversations of one user, counting those in which the user has acted.
    pub large_conversations_max: usize,
    /// Writes that wait in the queue of one conversation.
    pub queue_jobs_max: usize,
    pub queue_bytes_max: usize,
    /// Writes of all conversations that are accepted and not settled.
    pub backlog_writes_max: usize,
    pub backlog_bytes_max: usize,
    /// Deadline for a write to leave its queue. A write that misses it is not done.
    pub queue_wait: Duration,
    /// Deadline for the outcome of a write. After it, the outcome is unknown to the client.
    pub outcome_wait: Duration,
    pub rates: RateBounds,
    /// Lifetime of a typing signal.
    pub typing_lifetime: Duration,
    /// Time from the last disconnection of a user until the user is offline.
    pub presence_grace: Duration,
    /// Whether a user shows presence only in conversations where they have consented by an act.
    pub needs_presence_consent: bool,
    /// Names that one user follows with all presence streams together.
    pub presence_names_max: usize,
    /// Minimum time between two writes of a user's last-seen time.
    pub last_seen_interval: Duration,
    /// Concurrent replay reads of one user. More of them wait.
    pub user_replays_max: usize,
    /// Concurrent replay reads of all users. More of them wait.
    pub replays_max: usize,
    pub replay_wait: Duration,
    /// Reports of all users in 24 hours.
    pub reports_per_day: usize,
    /// Concurrent searches of all users. More of them wait.
    pub searches_max: usize,
    /// Messages that one page of a search reads.
    pub search_messages_max: usize,
    /// Messages of the segments of the search index, by level.
    pub search_segments: [u32; 3],
    /// Whether messages are indexed for search. Without an index a search reads history.
    pub is_search_indexed: bool,
    /// Concurrent reads of the store for one user's operations.
    pub user_reads_max: usize,
    /// How far a reader of the outbox that asks for notifications trails: a user who reads a message within this time is not
    /// notified of it.
    pub notify_after: Duration,
    /// For how long the outbox keeps events: the age of the oldest cursor from which a reader may resume.
    pub outbox_keep: Duration,
    /// Longest life of a token, which is also that of a revocation. `None` holds revocations for good.
    pub token_life_max: Option<Duration>,
    /// Time after which every message expires. `None`: a conversation alone decides.
    pub retention: Option<Duration>,
}

impl Bounds {
    /// The expiry of all messages, in seconds.
    pub(crate) fn retention_seconds(&self) -> Option<u32> {
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        self.retention.map(seconds)
    }
}

/// Rates of one user, through any transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateBounds {
    pub is_on: bool,
    pub sends_per_second: u32,
    pub sends_burst: u32,
    /// Users added to conversations by a user with whom they have no relationship.
    pub strangers_per_hour: u32,
    /// Bytes of the messages that a user sends and edits in an hour.
    pub written_bytes_per_hour: usize,
    /// Reports of users and messages by one user.
    pub reports_per_hour: u32,
    /// The share of one user in the reports of a day.
    pub reports_per_day: u32,
    pub searches_per_second: u32,
    pub searches_burst: u32,
    /// Work of searches in units of about a microsecond of a processor.
    pub search_work_per_second: u32,
    pub search_work_burst: u32,
    /// Minimum time between two typing signals of a user in one conversation.
    pub typing_interval: Duration,
}

impl Default for RateBounds {
    fn default() -> Self {
        Self {
            is_on: true,
            sends_per_second: 10,
            sends_burst: 30,
            strangers_per_hour: 60,
            written_bytes_per_hour: 64 << 20,
            reports_per_hour: 10,
            reports_per_day: 30,
            searches_per_second: 5,
            searches_burst: 10,
            search_work_per_second: 20_000,
            search_work_burst: 200_000,
            typing_interval: Duration::from_secs(2),
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            body_bytes_max: Body::BYTES_DEFAULT,
            metadata_bytes_max: Metadata::BYTES_MAX,
            unread_cap: Unread::CAP,
            inbox_scan_max: 1_000,
            inbox_replay_max: 1_000,
            conversations_max: 50_000,
            large_conversations_max: 200,
            queue_jobs_max: 256,
            queue_bytes_max: 1 << 20,
            backlog_writes_max: 10_000,
            backlog_bytes_max: 64 << 20,
            queue_wait: Duration::from_secs(2),
            outcome_wait: Duration::from_secs(5),
            rates: RateBounds::default(),
            typing_lifetime: Duration::from_secs(6),
            presence_grace: Duration::from_secs(5),
            needs_presence_consent: true,
            presence_names_max: 500,
            last_seen_interval: Duration::from_secs(15 * 60),
            user_replays_max: 4,
            replays_max: 64,
            replay_wait: Duration::from_secs(10),
            reports_per_day: 2_000,
            searches_max: 16,
            search_messages_max: 1_000,
            search_segments: [64, 512, 4_096],
            is_search_indexed: true,
            user_reads_max: 16,
            notify_after: Duration::from_secs(3),
            outbox_keep: OUTBOX_KEEP,
            token_life_max: None,
            retention: None,
        }
    }
}
