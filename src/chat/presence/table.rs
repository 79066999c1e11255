//! Presence table: the users who are online, by the sockets and streams that they have open on this
//! server.
//!
//! A user is online from the first connection on, and stays online for a grace period after the
//! last one, so a reconnection does not flicker. The users of other servers are in the directory of
//! the cluster.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::chat::bounds::Bounds;
use crate::chat::publisher::Publisher;
use crate::clock::Clock;
use crate::model::{Timestamp, UserId};

/// Last-seen times that are taken for one write.
const TAKEN_MAX: usize = 512;

pub(crate) struct PresenceTable {
    publisher: Arc<Publisher>,
    clock: Arc<dyn Clock>,
    grace: Duration,
    last_seen_interval: Duration,
    users: Mutex<PresenceEntries>,
    /// Wakes the task when a deadline is earlier than the one that it waits for.
    has_earlier_deadline: Notify,
    stop: CancellationToken,
}

#[derive(Default)]
struct PresenceEntries {
    local: HashMap<UserId, PresenceEntry>,
    /// End of the grace period of each user who has disconnected. The period is constant, so the
    /// first entry is the next deadline.
    leaving: VecDeque<(Instant, UserId)>,
    /// Next write of the last-seen time of each user. Each user of `local` has one entry.
    due: VecDeque<(Instant, UserId)>,
    /// Users who have gone offline, and whose last-seen times are to be written now.
    left: Vec<UserId>,
}

struct PresenceEntry {
    connections: usize,
    /// Stays true during the grace period.
    is_online: bool,
    disconnected_at: Option<Instant>,
    seen_at: Timestamp,
    /// The last-seen time that was taken for a write.
    taken_at: Option<Timestamp>,
}

/// Keeps a user online until it is dropped. A user may have several.
pub(super) struct PresenceConnection {
    table: Arc<PresenceTable>,
    user: UserId,
}

impl Drop for PresenceConnection {
    fn drop(&mut self) {
        self.table.disconnect(&self.user);
    }
}

impl PresenceTable {
    pub(crate) fn new(
        publisher: Arc<Publisher>,
        clock: Arc<dyn Clock>,
        bounds: &Bounds,
        stop: CancellationToken,
    ) -> Self {
        Self {
            publisher,
            clock,
            grace: bounds.presence_grace,
            last_seen_interval: bounds.last_seen_interval,
            users: Mutex::default(),
            has_earlier_deadline: Notify::new(),
            stop,
        }
    }

    pub(super) fn connect(self: &Arc<Self>, user: &UserId) -> PresenceConnection {
        let now = self.clock.now();
        let mut users = self.users.lock();
        let is_known = users.local.contains_key(user);
        if !is_known {
            users.due.push_front((Instant::now(), user.clone()));
        }
        let new = PresenceEntry {
            connections: 0,
            is_online: false,
            disconnected_at: None,
            seen_at: now,
            taken_at: None,
        };
        let entry = users.local.entry(user.clone()).or_insert(new);
        entry.connections += 1;
        (entry.seen_at, entry.disconnected_at) = (now, None);
        let was_online = std::mem::replace(&mut entry.is_online, true);
        drop(users);
        if !is_known {
            self.has_earlier_deadline.notify_one();
        }
        if !was_online {
            self.publisher.deliver_presence(user);
        }
        PresenceConnection {
            table: Arc::clone(self),
            user: user.clone(),
        }
    }

    fn disconnect(&self, user: &UserId) {
        let (now, instant) = (self.clock.now(), Instant::now());
        let mut users = self.users.lock();
        let Some(entry) = users.local.get_mut(user) else {
            return;
        };
        (entry.connections, entry.seen_at) = (entry.connections.saturating_sub(1), now);
        if entry.connections == 0 {
            entry.disconnected_at = Some(instant);
            users
                .leaving
                .push_back((instant + self.grace, user.clone()));
            drop(users);
            self.has_earlier_deadline.notify_one();
        }
    }

    /// Whether a user is online on this server, and when they were last seen here. `None` if this
    /// server does not know.
    pub(crate) fn local(&self, user: &UserId) -> Option<(bool, Timestamp)> {
        self.users
            .lock()
            .local
            .get(user)
            .map(|entry| (entry.is_online, entry.seen_at))
    }

    /// Waits for the next deadline. Returns false after the stop.
    pub(crate) async fn wait(&self) -> bool {
        loop {
            let next = {
                let users = self.users.lock();
                [users.leaving.front(), users.due.front()]
                    .into_iter()
                    .flatten()
                    .map(|(at, _)| *at)
                    .min()
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => return true,
                () = self.has_earlier_deadline.notified() => {}
            }
        }
    }

    /// Publishes the users whose grace periods have expired.
    pub(crate) fn expire(&self, now: Instant) {
        let mut gone = Vec::new();
        let mut users = self.users.lock();
        while users.leaving.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, user)) = users.leaving.pop_front() else {
                break;
            };
            // A user who has reconnected and disconnected again has a later entry.
            if let Some(entry) = users.local.get_mut(&user)
                && entry.is_online
                && entry
                    .disconnected_at
                    .is_some_and(|at| at + self.grace <= now)
            {
                entry.is_online = false;
                gone.push(user);
            }
        }
        users.left.extend(gone.iter().cloned());
        drop(users);
        for user in &gone {
            self.publisher.deliver_presence(user);
        }
    }

    /// Takes the last-seen times that are due, and schedules the next ones. A user who is offline
    /// is evicted after their last write.
    pub(crate) fn take_due(&self, now: Instant) -> Vec<(UserId, Timestamp)> {
        let at = self.clock.now();
        let mut guard = self.users.lock();
        let users = &mut *guard;
        let mut taken = Vec::new();
        for user in std::mem::take(&mut users.left) {
            if let Some(entry) = users.local.get_mut(&user)
                && !entry.is_online
                && entry.taken_at != Some(entry.seen_at)
            {
                entry.taken_at = Some(entry.seen_at);
                taken.push((user, entry.seen_at));
            }
        }
        while taken.len() < TAKEN_MAX && users.due.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, user)) = users.due.pop_front() else {
                break;
            };
            let Some(entry) = users.local.get_mut(&user) else {
                continue;
            };
            if entry.connections > 0 {
                entry.seen_at = at;
            }
            if entry.taken_at == Some(entry.seen_at) && !entry.is_online {
                users.local.remove(&user);
                continue;
            }
            entry.taken_at = Some(entry.seen_at);
            taken.push((user.clone(), entry.seen_at));
            users.due.push_back((now + self.last_seen_interval, user));
        }
        taken
    }

    /// Puts back a last-seen time that could not be persisted: it is due again with the next one of its user.
    pub(crate) fn put_back(&self, user: &UserId, at: Timestamp) {
        let mut users = self.users.lock();
        if let Some(entry) = users.local.get_mut(user) {
            entry.taken_at.take_if(|taken_at| *taken_at == at);
        }
    }

    /// Takes all last-seen times that were not taken yet.
    pub(crate) fn take_all(&self) -> Vec<(UserId, Timestamp)> {
        let now = self.clock.now();
        let local = std::mem::take(&mut self.users.lock().local);
        local
            .into_iter()
            .map(|(user, entry)| {
                let at = if entry.connections > 0 {
                    now
                } else {
                    entry.seen_at
                };
                (user, at, entry.taken_at)
            })
            .filter(|(_, at, taken_at)| *taken_at != Some(*at))
            .map(|(user, at, _)| (user, at))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::Bus;
    use crate::chat::in_flight_ids::InFlightIds;
    use crate::chat::live_feed::LiveFeeds;
    use crate::clock::{IdGenerator, ManualClock};

    fn table() -> (Arc<PresenceTable>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000)));
        let ids = Arc::new(IdGenerator::new([7; 8]));
        let in_flight = InFlightIds::new(clock.clone(), ids, None, 9);
        let bus = Bus::default();
        let live_feeds = LiveFeeds::new(clock.clone(), bus.clone(), Arc::default(), false);
        let live_feeds = Arc::new(live_feeds);
        let publisher = Arc::new(Publisher::new(bus, clock.clone(), in_flight, live_feeds));
        let bounds = Bounds {
            last_seen_interval: Duration::from_secs(60),
            ..Bounds::default()
        };
        let stop = CancellationToken::new();
        let table = PresenceTable::new(publisher, clock.clone(), &bounds, stop);
        (Arc::new(table), clock)
    }

    fn connect(table: &Arc<PresenceTable>, name: &str) -> PresenceConnection {
        table.connect(&UserId::parse(name).unwrap())
    }

    fn is_online(table: &PresenceTable, name: &str) -> Option<bool> {
        table
            .local(&UserId::parse(name).unwrap())
            .map(|(is_online, _)| is_online)
    }

    #[tokio::test]
    async fn a_user_stays_online_for_the_grace_period_after_the_last_connection() {
        let (table, _) = table();
        let (one, two) = (connect(&table, "alice"), connect(&table, "alice"));
        let later = |seconds| Instant::now() + Duration::from_secs(seconds);
        drop(one);
        table.expire(later(60));
        assert_eq!(
            is_online(&table, "alice"),
            Some(true),
            "another connection is open"
        );
        drop(two);
        table.expire(later(4));
        assert_eq!(is_online(&table, "alice"), Some(true));
        let back = connect(&table, "alice");
        table.expire(later(6));
        assert_eq!(
            is_online(&table, "alice"),
            Some(true),
            "the user has reconnected in time"
        );
        drop(back);
        table.expire(later(6));
        assert_eq!(is_online(&table, "alice"), Some(false));
    }

    #[tokio::test]
    async fn the_last_seen_time_is_taken_once_a_minute_and_on_leaving() {
        let (table, clock) = table();
        let at = |seconds: i64| Timestamp::from_micros(1_000_000 + seconds * 1_000_000);
        let start = Instant::now();
        let taken = |seconds: i64| {
            clock.set(at(seconds));
            let due = table.take_due(
                start + Duration::from_secs(seconds.unsigned_abs()) + Duration::from_millis(500),
            );
            due.into_iter().map(|(_, at)| at).collect::<Vec<_>>()
        };
        let guard = connect(&table, "alice");
        assert_eq!(taken(0), [at(0)], "on connection");
        drop(connect(&table, "alice"));
        assert_eq!(taken(59), []);
        assert_eq!(taken(60), [at(60)]);
        clock.set(at(80));
        drop(guard);
        table.expire(start + Duration::from_secs(90));
        assert_eq!(taken(90), [at(80)], "the time of the disconnection");
        assert_eq!(taken(120), []);
        assert!(
            table.users.lock().local.is_empty() && table.users.lock().due.is_empty(),
            "an offline user is evicted"
        );
    }
}
