//! Poller: reads this server's mailbox, lane by lane, and its own row.
//!
//! Invariant: each read of a lane begins [`BEFORE`] before the lane's last successful read began,
//! so that a notice whose write was acknowledged late is found. What was read before is known by
//! its identity.
//!
//! Invariant: a poll is *full* when all lanes answered and this server's row, read after them, says
//! that it runs. No cursor of a stream lies more than [`CURSOR_AHEAD`] after the begin of the last
//! full poll. An event that has not been received then has an id later than that begin less six
//! seconds, so a stream that resumes ten seconds before its cursor finds it, however long this
//! server was deaf.
//!
//! All times are those of the cluster clock, so a wall clock that is wrong or was set moves neither
//! the reads nor the cursors. Without a known time there is no poll.
//!
//! Invariant: once a node with a wrong clock is found, no poll is full until every stream has read the
//! store. Notices that were written through that node expired at once.
//!
//! Invariant: an unreadable lane delays its own notices and stops the cursors, and nothing else.
//! After [`UNREAD_MAX`] every stream reads the store once instead, and the lane counts as read.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::time::{Instant, sleep, timeout};

use super::clock::ClusterClock;
use super::counters::Counters;
use super::deduplication_window::DeduplicationWindow;
use super::dispatcher::{ATTEMPT_MAX, FRESH_MAX};
use super::follow_ups::FollowUps;
use super::notice::RemoteEnvelope;
use super::registry::Registry;
use crate::clock::{Clock as _, micros};
use crate::model::{OrderKey, TimeUuid, Timestamp};
use crate::store;
use crate::store::cluster::{
    CLOCK_FAULT_FOUND_WITHIN, ClusterStore, MailboxLane, MailboxRow, SKEW_MAX, ServerId,
    ServerState,
};

/// How far before its last successful read a lane is read again: an attempt to write, and twice the
/// skew of two clocks, and some.
const BEFORE: Duration = Duration::from_secs(8);
const _: () = assert!(
    BEFORE.as_millis() >= ATTEMPT_MAX.as_millis() + 2 * SKEW_MAX.as_millis()
        && BEFORE.as_millis() >= FRESH_MAX.as_millis() + 2 * SKEW_MAX.as_millis()
);
/// How far after now: the clock of a sender may be ahead.
const AHEAD: Duration = Duration::from_secs(3);
/// How far after the begin of the last full poll a cursor may lie.
const CURSOR_AHEAD: Duration = Duration::from_secs(3);
/// Deadline of one read.
const READ_MAX: Duration = Duration::from_millis(2_500);
/// After so long, the streams read the store instead of a lane.
const UNREAD_MAX: Duration = Duration::from_secs(60);
/// Within which all streams read the store instead.
const REREAD_WITHIN: Duration = Duration::from_secs(30);
/// After so long, the other servers have found a node's wrong clock too, and send nothing through it.
const FAULT_KNOWN_AFTER: Duration = Duration::from_secs(10);
const _: () = assert!(CLOCK_FAULT_FOUND_WITHIN.as_millis() < FAULT_KNOWN_AFTER.as_millis());
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Rows of a mailbox that were decoded: longer than a lane is read again.
const ROWS_FOR: Duration = Duration::from_secs(120);

pub(super) struct Poller {
    store: Arc<dyn ClusterStore>,
    clock: Arc<ClusterClock>,
    own: Arc<RwLock<ServerId>>,
    registry: Arc<Registry>,
    follow_ups: Arc<FollowUps>,
    status: Arc<PollStatus>,
    counters: Arc<Counters>,
    state: Mutex<PollerState>,
}

/// Progress of the poller, which others may ask for at any time.
pub(super) struct PollStatus {
    clock: Arc<ClusterClock>,
    /// Begin of the last full poll, in microseconds of the cluster's clock.
    full_at: AtomicI64,
    times: Mutex<Times>,
}

struct Times {
    full: Instant,
    /// When any lane was read last.
    any_lane: Instant,
}

struct PollerState {
    lanes: [LaneState; MailboxLane::COUNT],
    rows: DeduplicationWindow<TimeUuid>,
    /// Rereads of all streams that are still spreading. Until all streams were told, no poll is
    /// full.
    rereads: usize,
    /// Faults of nodes' clocks that were followed by a reread.
    clock_faults: usize,
}

#[derive(Clone, Copy)]
struct LaneState {
    /// Begin of the last successful read, by the wall clock and by the monotonic one.
    read_at: Timestamp,
    read: Instant,
    /// Not read again before this, after failures.
    due: Instant,
    pause: Duration,
}

impl LaneState {
    fn read_at(read_at: Timestamp, read: Instant) -> Self {
        Self {
            read_at,
            read,
            due: read,
            pause: RETRY_FIRST,
        }
    }
}

/// Outcome of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    Full,
    /// A lane, or the server's row, could not be read, or registrations are lapsed.
    Partial,
    /// This server's row is missing, or says that the server has ended: it has to take a new
    /// identity.
    Ended,
}

impl Polled {
    /// Outcome of a poll that found this server in such a state, and did no more.
    fn of(state: Option<ServerState>) -> Self {
        match state {
            Some(ServerState::Ended | ServerState::Missing) => Self::Ended,
            Some(ServerState::Running) | None => Self::Partial,
        }
    }
}

impl PollStatus {
    pub(super) fn new(clock: Arc<ClusterClock>) -> Arc<Self> {
        let (now, at) = (Instant::now(), clock.now());
        Arc::new(Self {
            clock,
            full_at: AtomicI64::new(at.micros()),
            times: Mutex::new(Times {
                full: now,
                any_lane: now,
            }),
        })
    }

    /// The greatest cursor that a stream may return.
    pub(super) fn cursor_limit(&self) -> OrderKey {
        let full_at = Timestamp::from_micros(self.full_at.load(Ordering::SeqCst));
        OrderKey::first_at(full_at.plus_micros(micros(CURSOR_AHEAD)))
    }

    pub(super) fn since_full(&self) -> Duration {
        self.times.lock().full.elapsed()
    }

    pub(super) fn since_any_lane(&self) -> Duration {
        self.times.lock().any_lane.elapsed()
    }

    fn note_full(&self, began_at: Timestamp, began: Instant) {
        // The clock may have been corrected backwards. A cursor that was returned stays good.
        self.full_at
            .fetch_max(began_at.min(self.clock.now()).micros(), Ordering::SeqCst);
        self.times.lock().full = began;
    }
}

impl Poller {
    pub(super) fn new(
        (store, clock): (Arc<dyn ClusterStore>, Arc<ClusterClock>),
        own: Arc<RwLock<ServerId>>,
        registry: Arc<Registry>,
        follow_ups: Arc<FollowUps>,
        status: Arc<PollStatus>,
        counters: Arc<Counters>,
    ) -> Self {
        let lane = LaneState::read_at(clock.now(), Instant::now());
        Self {
            store,
            clock,
            own,
            registry,
            follow_ups,
            status,
            counters,
            state: Mutex::new(PollerState {
                lanes: [lane; MailboxLane::COUNT],
                rows: DeduplicationWindow::new(ROWS_FOR),
                rereads: 0,
                // Other servers may still send through a node that was found before this began.
                clock_faults: 0,
            }),
        }
    }

    /// Begins anew, under another identity: its mailbox is empty before this moment.
    pub(super) fn reset(&self) {
        let lane = LaneState::read_at(self.clock.now(), Instant::now());
        self.state.lock().lanes = [lane; MailboxLane::COUNT];
    }

    /// Makes all streams read the store; no poll that begins before they were invalidated is full.
    pub(super) fn reread(self: &Arc<Self>, within: Duration) {
        self.reread_after(Duration::ZERO, within);
    }

    fn reread_after(self: &Arc<Self>, pause: Duration, within: Duration) {
        self.counters.rereads.inc();
        self.state.lock().rereads += 1;
        let this = Arc::clone(self);
        tokio::spawn(async move {
            sleep(pause).await;
            if let Some(handler) = this.follow_ups.handler() {
                handler.reread(within).await;
            }
            this.state.lock().rereads -= 1;
        });
    }

    /// The same, after lapsed registrations were acknowledged again. No poll is full in between.
    pub(super) fn reread_healed(self: &Arc<Self>, within: Duration) {
        self.reread(within);
        self.registry.end_healing();
    }

    pub(super) async fn poll(self: &Arc<Self>) -> Polled {
        let server = *self.own.read();
        // With an unknown time, the reads below would pass over notices.
        if !self.clock.is_known() {
            let state = self.read_own_row(server).await;
            if !self.clock.is_known() || state != Some(ServerState::Running) {
                return Polled::of(state);
            }
        }
        let (began_at, began) = (self.clock.now(), Instant::now());
        self.follow_clock_faults();
        let has_reread = self.has_reread();
        self.give_up_unread_lanes(began_at, began);
        let due: Vec<_> = {
            let state = self.state.lock();
            MailboxLane::all()
                .map(|lane| (lane, state.lanes[lane.index()]))
                .filter(|(_, lane)| lane.due <= began)
                .collect()
        };
        let up_to = OrderKey::first_at(began_at.plus_micros(micros(AHEAD)));
        let reads = due.iter().map(|(lane, before)| {
            let after = OrderKey::first_at(before.read_at.plus_micros(-micros(BEFORE)));
            self.read(server, *lane, after, up_to)
        });
        let answers = join_all(reads).await;
        let mut are_all_read = due.len() == MailboxLane::COUNT;
        for ((lane, _), answer) in due.iter().zip(answers) {
            match answer {
                Ok(rows) => {
                    self.accept(rows);
                    self.lane_was_read(*lane, began_at, began);
                }
                Err(error) => {
                    are_all_read = false;
                    self.lane_failed(*lane, &error);
                }
            }
        }
        if self.follow_ups.take_overflow() {
            tracing::warn!(
                "too many notices of other servers wait; all streams of this server read the store instead"
            );
            self.reread(REREAD_WITHIN);
        }
        // Last: a sender leaves this server out only after it read the end of it, and so after
        // this.
        let state = self.read_own_row(server).await;
        if state != Some(ServerState::Running) {
            return Polled::of(state);
        }
        let has_reread = has_reread && self.has_reread();
        let is_on_time = self.clock.is_known();
        if are_all_read && has_reread && is_on_time && self.registry.is_whole() {
            self.status.note_full(began_at, began);
            Polled::Full
        } else {
            Polled::Partial
        }
    }

    /// The state of this server, and with it a sample of a node's clock. `None` without an answer.
    async fn read_own_row(&self, server: ServerId) -> Option<ServerState> {
        let began = Instant::now();
        let read = timeout(READ_MAX, self.store.server_and_time(server)).await;
        let (state, time) = read.ok()?.ok()?;
        if let Some(time) = time {
            self.clock.take(began, time);
        }
        Some(state)
    }

    async fn read(
        &self,
        server: ServerId,
        lane: MailboxLane,
        after: OrderKey,
        up_to: OrderKey,
    ) -> store::Result<Vec<MailboxRow>> {
        let read = self.store.notices(server, lane, after, up_to);
        timeout(READ_MAX, read).await.unwrap_or_else(|_| {
            Err(store::Error::Unavailable(
                "the lane of a mailbox did not answer in time".into(),
            ))
        })
    }

    /// A row that this version cannot read is passed over: it may be that of a later one.
    fn accept(&self, rows: Vec<MailboxRow>) {
        for row in rows {
            if !self.state.lock().rows.insert(row.id) {
                continue;
            }
            match RemoteEnvelope::decode(&row.payload) {
                Some(envelope) => self.follow_ups.accept(envelope),
                None => {
                    tracing::debug!("the poller passes over a notice of another version");
                }
            }
        }
    }

    fn lane_was_read(&self, lane: MailboxLane, began_at: Timestamp, began: Instant) {
        let mut state = self.state.lock();
        state.lanes[lane.index()] = LaneState::read_at(began_at, began);
        self.status.times.lock().any_lane = began;
    }

    fn lane_failed(&self, lane: MailboxLane, error: &store::Error) {
        self.counters
            .lane_errors
            .with_label_values(&[&lane.number().to_string()])
            .inc();
        let mut state = self.state.lock();
        let failed = &mut state.lanes[lane.index()];
        if failed.pause == RETRY_FIRST {
            tracing::warn!(%error, ?lane, "the poller cannot read a lane of this server's mailbox; it retries, and cursors of streams stand meanwhile");
        }
        failed.due = Instant::now() + failed.pause;
        failed.pause = (2 * failed.pause).min(RETRY_MAX);
    }

    /// Whether by either clock: the monotonic one stands still while the machine is suspended.
    fn give_up_unread_lanes(self: &Arc<Self>, began_at: Timestamp, began: Instant) {
        let oldest = began_at.plus_micros(-micros(UNREAD_MAX));
        let mut has_given_up = false;
        for lane in &mut self.state.lock().lanes {
            if began - lane.read >= UNREAD_MAX || lane.read_at < oldest {
                (lane.read_at, lane.read) = (began_at, began);
                has_given_up = true;
            }
        }
        if has_given_up {
            tracing::warn!(
                "a lane of this server's mailbox was unreadable for a minute; all streams of this server read the store instead"
            );
            self.reread(REREAD_WITHIN);
        }
    }

    /// Whether the streams have read all that this server knows to have missed.
    fn has_reread(&self) -> bool {
        let state = self.state.lock();
        state.rereads == 0 && state.clock_faults == self.store.clock_faults()
    }

    /// After a fault of a node's clock, the streams read the store instead of the notices that the node
    /// has written.
    fn follow_clock_faults(self: &Arc<Self>) {
        let found = self.store.clock_faults();
        let known = std::mem::replace(&mut self.state.lock().clock_faults, found);
        if found != known {
            tracing::warn!(
                "a node with a wrong clock wrote notices, which may be lost; all streams of this server read the store. Synchronise the clock of the node"
            );
            self.reread_after(FAULT_KNOWN_AFTER, REREAD_WITHIN);
        }
    }
}
