//! Presence: who is here, by the sockets and streams that they have open in this process.
//!
//! Who comes is here at once; who goes is here a few seconds more, so that nobody who reconnects flickers. When a user was last seen is kept
//! in the store, as they come, each minute while they are here, and once more after they have gone; never more often than that.
//!
//! Where servers tell each other, who is followed here is also known from the others: they say who comes and goes, say it again each minute,
//! and when they are asked. Who was not heard of for a while is gone. Without, other servers know of a user only what is kept.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::bus::{Bus, Signal};
use crate::chat::{Bounds, Chat, Result};
use crate::clock::Clock;
use crate::model::{Event, Notice, OrderKey, Presence, TimeUuid, Timestamp, Topic, UserId};
use crate::store::Store;

/// Moments that are kept at a time, and of those at once.
const KEPT_MAX: usize = 512;
const KEPT_AT_ONCE: usize = 32;
const KEEP_MAX: Duration = Duration::from_secs(5);
/// How long another server's word that a user is there counts: longer than until it says so again.
const ELSEWHERE_FOR: Duration = Duration::from_secs(90);
/// Who is gone from one server may be on a third one, which has so long to say so.
const OTHERS_SAY: Duration = Duration::from_secs(1);
/// How long the end of the process waits for them.
const FINISH_MAX: Duration = Duration::from_secs(2);

/// Knows who is here, until it is dropped.
pub(crate) struct PresenceTask {
    hall: Arc<PresenceTable>,
    tasks: TaskTracker,
    _stop: DropGuard,
}

struct PresenceTable {
    bus: Bus,
    clock: Arc<dyn Clock>,
    grace: Duration,
    seen_every: Duration,
    users: Mutex<Users>,
    /// Something is to be done earlier than was thought.
    is_earlier: Notify,
    stop: CancellationToken,
}

#[derive(Default)]
struct Users {
    seen: HashMap<UserId, Seen>,
    /// When each who went is gone. As all wait equally long, the first one is the next.
    leaving: VecDeque<(Instant, UserId)>,
    /// When it is kept again that they were seen. Each has one place here as long as they are in `seen`.
    due: VecDeque<(Instant, UserId)>,
    /// Those on other servers whom somebody here follows, and until when that counts.
    elsewhere: HashMap<UserId, Instant>,
}

struct Seen {
    open: usize,
    /// Also for a while after the last one was closed.
    is_online: bool,
    left: Option<Instant>,
    at: Timestamp,
    kept: Option<Timestamp>,
}

/// A user is here until this is dropped. One user may have several.
pub struct PresenceGuard {
    hall: Arc<PresenceTable>,
    user: UserId,
}

impl Chat {
    /// The user has opened something that lasts.
    pub fn arrive(&self, user: &UserId) -> PresenceGuard {
        self.0.presence.hall.arrive(user);
        PresenceGuard {
            hall: Arc::clone(&self.0.presence.hall),
            user: user.clone(),
        }
    }

    /// Which of these users are here, and when they were last; `None` for those of whom the viewer may not know it.
    pub async fn presences(
        &self,
        viewer: &UserId,
        users: &[UserId],
    ) -> Result<Vec<Option<Presence>>> {
        let known = self.relationships(viewer, users).await?;
        let seen: Vec<_> = users
            .iter()
            .zip(&known)
            .filter(|(_, known)| known.is_some())
            .map(|(user, _)| user.clone())
            .collect();
        let mut presences = self.presences_of(&seen).await?.into_iter();
        Ok(known
            .into_iter()
            .map(|known| known.and_then(|_| presences.next()))
            .collect())
    }

    /// The viewer's access was checked.
    pub(crate) async fn presences_of(&self, users: &[UserId]) -> Result<Vec<Presence>> {
        let profiles = self.0.store.profiles(users).await?;
        let hall = &self.0.presence.hall;
        let presence = |(user, kept): (&UserId, Option<Timestamp>)| {
            let (is_here, seen_at) = hall
                .look_up(user)
                .map_or((false, None), |(is_online, at)| (is_online, Some(at)));
            Presence {
                is_online: is_here || hall.is_elsewhere(user),
                last_seen_at: kept.max(seen_at),
            }
        };
        let kept = profiles
            .into_iter()
            .map(|profile| profile.and_then(|profile| profile.last_seen_at));
        Ok(users.iter().zip(kept).map(presence).collect())
    }

    /// Tells who is gone, and keeps when users were seen, as long as this chat is there.
    pub(crate) fn keep_presence(&self) {
        let (chat, hall) = (Arc::downgrade(&self.0), Arc::clone(&self.0.presence.hall));
        self.0.presence.tasks.spawn(async move {
            while hall.wait().await {
                hall.tell_departures(Instant::now());
                let due = hall.take_due(Instant::now());
                if !due.is_empty() {
                    let Some(inner) = chat.upgrade() else { return };
                    // Who is gone is told also where the disk stands still.
                    let _ = timeout(KEEP_MAX, keep(&inner.store, due)).await;
                }
            }
        });
    }

    /// Another server says that a user is there, or not any more.
    pub(crate) fn hear_presence(&self, user: &UserId, is_there: bool) {
        self.0.presence.hall.hear(user, is_there);
    }

    /// Says that a user is here, where they are.
    pub(crate) fn say_presence(&self, user: &UserId) {
        if self
            .0
            .presence
            .hall
            .look_up(user)
            .is_some_and(|(is_online, _)| is_online)
        {
            self.0
                .bus
                .signal_peers(|| Signal::Presence(user.clone(), true));
        }
    }

    /// The last that is kept of those who are here, or were just now.
    pub(crate) async fn keep_last_seen(&self) {
        let PresenceTask { hall, tasks, .. } = &self.0.presence;
        hall.stop.cancel();
        tasks.close();
        let last = async {
            tasks.wait().await;
            keep(&self.0.store, hall.take_all()).await;
        };
        if timeout(FINISH_MAX, last).await.is_err() {
            tracing::warn!("the server failed to persist the last-seen time of some users");
        }
    }
}

/// What is lost of it is a minute of somebody's having been here.
async fn keep(store: &Arc<dyn Store>, seen: Vec<(UserId, Timestamp)>) {
    let keep_one = async |(user, at): (UserId, Timestamp)| {
        if let Err(error) = store.mark_seen(&user, at).await {
            tracing::debug!(%error, "the server failed to persist the last-seen time of a user");
        }
    };
    stream::iter(seen)
        .for_each_concurrent(KEPT_AT_ONCE, keep_one)
        .await;
}

impl PresenceTask {
    pub(crate) fn new(bus: Bus, clock: Arc<dyn Clock>, bounds: &Bounds) -> Self {
        let (users, is_earlier, stop) = (Mutex::default(), Notify::new(), CancellationToken::new());
        let (grace, seen_every) = (bounds.presence_grace, bounds.seen_every);
        let hall = Arc::new(PresenceTable {
            bus,
            clock,
            grace,
            seen_every,
            users,
            is_earlier,
            stop: stop.clone(),
        });
        Self {
            hall,
            tasks: TaskTracker::new(),
            _stop: stop.drop_guard(),
        }
    }
}

impl PresenceTable {
    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock()
    }

    fn arrive(&self, user: &UserId) {
        let now = self.clock.now();
        let mut users = self.users();
        let is_known = users.seen.contains_key(user);
        if !is_known {
            users.due.push_front((Instant::now(), user.clone()));
        }
        let new = Seen {
            open: 0,
            is_online: false,
            left: None,
            at: now,
            kept: None,
        };
        let seen = users.seen.entry(user.clone()).or_insert(new);
        (seen.open, seen.at, seen.left) = (seen.open + 1, now, None);
        let was_online = std::mem::replace(&mut seen.is_online, true);
        drop(users);
        if !is_known {
            self.is_earlier.notify_one();
        }
        if !was_online {
            self.tell(user);
        }
    }

    fn leave(&self, user: &UserId) {
        let (now, instant) = (self.clock.now(), Instant::now());
        let mut users = self.users();
        let Some(seen) = users.seen.get_mut(user) else {
            return;
        };
        (seen.open, seen.at) = (seen.open.saturating_sub(1), now);
        if seen.open == 0 {
            seen.left = Some(instant);
            users
                .leaving
                .push_back((instant + self.grace, user.clone()));
            drop(users);
            self.is_earlier.notify_one();
        }
    }

    /// Whether they are here, and when they were last. `None` where nothing is known of them.
    fn look_up(&self, user: &UserId) -> Option<(bool, Timestamp)> {
        self.users()
            .seen
            .get(user)
            .map(|seen| (seen.is_online, seen.at))
    }

    fn is_elsewhere(&self, user: &UserId) -> bool {
        self.users()
            .elsewhere
            .get(user)
            .is_some_and(|until| *until > Instant::now())
    }

    fn hear(&self, user: &UserId, is_there: bool) {
        if !self.bus.has_subscribers(&Topic::Presence(user.clone())) {
            return;
        }
        let mut users = self.users();
        let is_news = if is_there {
            users
                .elsewhere
                .insert(user.clone(), Instant::now() + ELSEWHERE_FOR)
                .is_none()
        } else {
            if let Some(until) = users.elsewhere.get_mut(user) {
                *until = Instant::now() + OTHERS_SAY;
            }
            false
        };
        drop(users);
        if !is_there {
            self.bus
                .signal_peers(|| Signal::PresenceQuery(user.clone()));
        }
        self.is_earlier.notify_one();
        if is_news {
            self.tell_here(user);
        }
    }

    /// Those who are not heard of any more from other servers.
    fn forget_elsewhere(&self, now: Instant) -> Vec<UserId> {
        self.users()
            .elsewhere
            .extract_if(|_, until| *until <= now)
            .map(|(user, _)| user)
            .collect()
    }

    /// Whether they are here shows those here what it is now.
    fn tell(&self, user: &UserId) {
        self.bus.signal_peers(|| {
            Signal::Presence(
                user.clone(),
                self.look_up(user).is_some_and(|(is_online, _)| is_online),
            )
        });
        self.tell_here(user);
    }

    fn tell_here(&self, user: &UserId) {
        let topic = Topic::Presence(user.clone());
        if self.bus.has_subscribers(&topic) {
            let (id, settled) = (TimeUuid::new(self.clock.now(), [0; 8]), OrderKey::MIN);
            self.bus.publish(
                &topic,
                Notice::new(id, settled, Event::Presence(user.clone())),
            );
        }
    }

    /// Waits until something is to be done. False when there will be nothing more.
    async fn wait(&self) -> bool {
        loop {
            let next = {
                let users = self.users();
                let here = [users.leaving.front(), users.due.front()]
                    .into_iter()
                    .flatten()
                    .map(|(at, _)| *at);
                here.chain(users.elsewhere.values().copied()).min()
            };
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => return true,
                () = self.is_earlier.notified() => {}
            }
        }
    }

    fn tell_departures(&self, now: Instant) {
        let mut gone = Vec::new();
        let mut users = self.users();
        while users.leaving.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, user)) = users.leaving.pop_front() else {
                break;
            };
            // One who came back and went again has another place further behind.
            if let Some(seen) = users.seen.get_mut(&user)
                && seen.is_online
                && seen.left.is_some_and(|left| left + self.grace <= now)
            {
                seen.is_online = false;
                gone.push(user);
            }
        }
        drop(users);
        gone.iter().for_each(|user| self.tell(user));
        self.forget_elsewhere(now)
            .iter()
            .for_each(|user| self.tell_here(user));
    }

    /// What is to be kept by now. Who is gone, and of whom it was kept, is forgotten.
    fn take_due(&self, now: Instant) -> Vec<(UserId, Timestamp)> {
        let at = self.clock.now();
        let mut guard = self.users();
        let users = &mut *guard;
        let mut taken = Vec::new();
        while taken.len() < KEPT_MAX && users.due.front().is_some_and(|(due, _)| *due <= now) {
            let Some((_, user)) = users.due.pop_front() else {
                break;
            };
            let Some(seen) = users.seen.get_mut(&user) else {
                continue;
            };
            if seen.open > 0 {
                seen.at = at;
            }
            if seen.kept == Some(seen.at) && !seen.is_online {
                users.seen.remove(&user);
                continue;
            }
            if seen.is_online {
                self.bus
                    .signal_peers(|| Signal::Presence(user.clone(), true));
            }
            seen.kept = Some(seen.at);
            taken.push((user.clone(), seen.at));
            users.due.push_back((now + self.seen_every, user));
        }
        taken
    }

    fn take_all(&self) -> Vec<(UserId, Timestamp)> {
        let now = self.clock.now();
        let seen = std::mem::take(&mut self.users().seen);
        let last = seen
            .into_iter()
            .map(|(user, seen)| (user, if seen.open > 0 { now } else { seen.at }, seen.kept));
        last.filter(|(_, at, kept)| *kept != Some(*at))
            .map(|(user, at, _)| (user, at))
            .collect()
    }
}

impl Drop for PresenceGuard {
    fn drop(&mut self) {
        self.hall.leave(&self.user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn presence_task() -> (PresenceTask, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000_000)));
        (
            PresenceTask::new(Bus::default(), clock.clone(), &Bounds::default()),
            clock,
        )
    }

    fn come(hall: &Arc<PresenceTable>, name: &str) -> PresenceGuard {
        let user = UserId::parse(name).unwrap();
        hall.arrive(&user);
        PresenceGuard {
            hall: Arc::clone(hall),
            user,
        }
    }

    fn is_online(hall: &PresenceTable, name: &str) -> Option<bool> {
        hall.look_up(&UserId::parse(name).unwrap())
            .map(|(is_online, _)| is_online)
    }

    #[tokio::test]
    async fn who_goes_is_here_until_the_grace_is_over_and_all_is_closed() {
        let (presence_task, _) = presence_task();
        let hall = &presence_task.hall;
        let (one, two) = (come(hall, "alice"), come(hall, "alice"));
        let later = |seconds| Instant::now() + Duration::from_secs(seconds);
        drop(one);
        hall.tell_departures(later(60));
        assert_eq!(is_online(hall, "alice"), Some(true), "another one is open");
        drop(two);
        hall.tell_departures(later(4));
        assert_eq!(is_online(hall, "alice"), Some(true));
        let back = come(hall, "alice");
        hall.tell_departures(later(6));
        assert_eq!(is_online(hall, "alice"), Some(true), "it came back in time");
        drop(back);
        hall.tell_departures(later(6));
        assert_eq!(is_online(hall, "alice"), Some(false));
    }

    #[tokio::test]
    async fn when_a_user_was_seen_is_kept_once_a_minute_and_once_after() {
        let (presence_task, clock) = presence_task();
        let hall = &presence_task.hall;
        let at = |seconds: i64| Timestamp::from_micros(1_000_000 + seconds * 1_000_000);
        let start = Instant::now();
        let kept = |seconds: i64| {
            clock.set(at(seconds));
            let kept = hall.take_due(
                start + Duration::from_secs(seconds.unsigned_abs()) + Duration::from_millis(500),
            );
            kept.into_iter().map(|(_, at)| at).collect::<Vec<_>>()
        };
        let here = come(hall, "alice");
        assert_eq!(kept(0), [at(0)], "as they come");
        drop(come(hall, "alice"));
        assert_eq!(kept(59), []);
        assert_eq!(kept(60), [at(60)]);
        clock.set(at(80));
        drop(here);
        hall.tell_departures(start + Duration::from_secs(90));
        assert_eq!(kept(119), []);
        assert_eq!(kept(120), [at(80)], "when they went, and not later");
        assert_eq!(kept(180), []);
        assert!(
            hall.users().seen.is_empty() && hall.users().due.is_empty(),
            "who is gone is not remembered"
        );
    }
}
