//! Registry: the rows of this server in the directory, reference-counted by leases.
//!
//! Invariant: a lease is handed out only after the row's insertion was acknowledged under the
//! present identity of the server. A reader that has a lease and then reads the store misses
//! nothing: a sender that persists its event later finds the row.
//!
//! Invariant: insertions and removals of one row take their write times while the lock is held that
//! counts its leases. So the row's last write says what the last count was, whatever the
//! coordinators' clocks show and in whichever order the writes arrive.
//!
//! Invariant: a row is never removed while it is leased. It is removed a while after its last lease
//! ended, also where its insertion failed, because a failed insertion may yet take effect.
//!
//! A row that could not be renewed, or that has to be registered under a new identity, is *lapsed*
//! while it is leased. While a row is lapsed no cursor advances (`Cluster::cursor_limit`), and once
//! none is, every stream reads the store from its cursor.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::jitter::Jitter;
use super::registry_events::{RegistryEvent, RegistryEvents};
use super::write_times::WriteTimes;
use crate::store::cluster::{ClusterStore, Registration, ServerId, SessionKind, WriteTime};
use crate::store::{self, Error};

/// How long a session's row outlives its last lease: a user who reconnects finds it there.
const SESSION_GRACE: Duration = Duration::from_secs(5);
/// The same for listeners and followers, which cost a write of a shared partition.
const LISTENER_GRACE: Duration = Duration::from_secs(60);
/// RegistryRows live for 24 hours. Each is renewed once within this span, at random, so that renewals
/// spread.
const RENEW_FROM: Duration = Duration::from_secs(8 * 3_600);
const RENEW_SPAN: Duration = Duration::from_secs(8 * 3_600);
/// A renewal that failed is tried again after this.
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// A row that was not renewed for so long is lapsed: it may soon be gone.
const LAPSES_AFTER: Duration = Duration::from_secs(23 * 3_600);
/// RegistryRows per second that are registered again under a new identity, in steps of 50 ms.
const AGAIN_STEP: usize = 100;
const AGAIN_PAUSE: Duration = Duration::from_millis(50);
/// Attempts to remove a row. A row that stays costs notices without a reader, until it expires.
const REMOVE_TRIES: u32 = 4;
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(15);

/// Registrations of this process.
pub(super) struct Registry {
    store: Arc<dyn ClusterStore>,
    times: Arc<WriteTimes>,
    rows: Mutex<RegistryRows>,
    /// A row is due earlier than the housekeeping expects.
    is_earlier: Notify,
    events: Arc<RegistryEvents>,
    jitter: Jitter,
}

struct RegistryRows {
    server: ServerId,
    by_registration: BTreeMap<Registration, RegistryRow>,
    /// Removals and renewals, by their time.
    due: BTreeMap<(Instant, u64), Registration>,
    number: u64,
    lapsed: usize,
    /// RegistryRows were lapsed, and the streams have yet to read the store again.
    is_healing: bool,
}

struct RegistryRow {
    leases: usize,
    state: RowState,
    /// Leases that wait for the row to be acknowledged, under any identity.
    waiters: Vec<oneshot::Sender<Result<(), Arc<str>>>>,
    /// Number of the row's entry in `due`, and its time.
    due: Option<(Instant, u64)>,
    /// Number of the last insertion that was started. The outcome of an earlier one no longer
    /// counts.
    insertion: u64,
    /// Whether leases were handed out that the directory does not vouch for at the moment.
    is_lapsed: bool,
    is_announced: bool,
}

enum RowState {
    Absent,
    Inserting,
    /// When the last acknowledged insertion began, and when the first one was acknowledged.
    Registered {
        began: Instant,
        acknowledged: Instant,
    },
}

/// Registration in use: the row stays while this is held.
#[derive(Debug)]
pub struct Lease {
    registry: Weak<Registry>,
    registration: Registration,
    acknowledged: Instant,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registry")
    }
}

impl Registry {
    pub(super) fn new(
        store: Arc<dyn ClusterStore>,
        times: Arc<WriteTimes>,
        server: ServerId,
        jitter: Jitter,
    ) -> (Arc<Self>, Arc<RegistryEvents>) {
        let events = Arc::<RegistryEvents>::default();
        let receiver = Arc::clone(&events);
        let rows = RegistryRows {
            server,
            by_registration: BTreeMap::new(),
            due: BTreeMap::new(),
            number: 0,
            lapsed: 0,
            is_healing: false,
        };
        let registry = Self {
            store,
            times,
            rows: Mutex::new(rows),
            is_earlier: Notify::new(),
            events,
            jitter,
        };
        (Arc::new(registry), receiver)
    }

    fn rows(&self) -> MutexGuard<'_, RegistryRows> {
        self.rows.lock()
    }

    /// Registers, and returns once the row is acknowledged.
    pub(super) async fn lease(
        self: &Arc<Self>,
        registration: &Registration,
    ) -> store::Result<Lease> {
        let mut lease = self.count(registration);
        loop {
            let waiter = {
                let mut rows = self.rows();
                let row = rows.row(registration);
                if let RowState::Registered { acknowledged, .. } = row.state {
                    lease.acknowledged = acknowledged;
                    return Ok(lease);
                }
                let (waiter, receiver) = oneshot::channel();
                row.waiters.push(waiter);
                if matches!(row.state, RowState::Absent) {
                    self.start_insertion(&mut rows, registration);
                }
                receiver
            };
            match waiter.await {
                Ok(Ok(())) => {}
                Ok(Err(cause)) => return Err(Error::Unavailable(cause.to_string().into())),
                Err(_) => return Err(Error::Unavailable("the registration was given up".into())),
            }
        }
    }

    /// One lease more of a row, whether or not it is registered yet.
    fn count(self: &Arc<Self>, registration: &Registration) -> Lease {
        self.rows().row(registration).leases += 1;
        Lease {
            registry: Arc::downgrade(self),
            registration: registration.clone(),
            acknowledged: Instant::now(),
        }
    }

    /// Takes the write time under the lock, and writes the row in a task: it ends also when nobody
    /// waits for it any more.
    fn start_insertion(self: &Arc<Self>, rows: &mut RegistryRows, registration: &Registration) {
        let at = self.times.next();
        let server = rows.server;
        rows.number += 1;
        let number = rows.number;
        let row = rows.row(registration);
        row.insertion = number;
        row.state = RowState::Inserting;
        let (registry, registration) = (Arc::clone(self), registration.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            let written = registry.store.register(server, &registration, at).await;
            registry.insertion_ended(&registration, number, began, written);
        });
    }

    fn insertion_ended(
        self: &Arc<Self>,
        registration: &Registration,
        number: u64,
        began: Instant,
        written: store::Result<()>,
    ) {
        let mut guard = self.rows();
        let rows = &mut *guard;
        let Some(row) = rows
            .by_registration
            .get_mut(registration)
            .filter(|row| row.insertion == number)
        else {
            // Another insertion has taken its place, and answers those who wait.
            return;
        };
        let waiters = std::mem::take(&mut row.waiters);
        if let Err(error) = written {
            row.state = RowState::Absent;
            drop(guard);
            let cause: Arc<str> = error.to_string().into();
            for waiter in waiters {
                let _ = waiter.send(Err(Arc::clone(&cause)));
            }
            return;
        }
        row.state = RowState::Registered {
            began,
            acknowledged: Instant::now(),
        };
        let is_first = !std::mem::replace(&mut row.is_announced, true);
        let has_healed = std::mem::take(&mut row.is_lapsed);
        if has_healed {
            rows.lapsed -= 1;
        }
        if row.leases > 0 {
            let renew_at = began + RENEW_FROM + self.jitter.up_to(RENEW_SPAN);
            rows.schedule(registration, renew_at);
        }
        let is_whole = has_healed && rows.lapsed == 0;
        drop(guard);
        for waiter in waiters {
            let _ = waiter.send(Ok(()));
        }
        self.is_earlier.notify_one();
        if is_first {
            self.tell(RegistryEvent::Registered(registration.clone()));
        }
        if is_whole {
            self.tell(RegistryEvent::Healed);
        }
    }

    fn tell(&self, event: RegistryEvent) {
        self.events.push(event);
    }

    fn release(&self, registration: &Registration) {
        let mut guard = self.rows();
        let rows = &mut *guard;
        let Some(row) = rows.by_registration.get_mut(registration) else {
            return;
        };
        row.leases = row.leases.saturating_sub(1);
        if row.leases > 0 {
            return;
        }
        let was_lapsed = std::mem::take(&mut row.is_lapsed);
        if was_lapsed {
            rows.lapsed -= 1;
        }
        rows.schedule(registration, Instant::now() + grace_of(registration));
        let has_healed = was_lapsed && rows.lapsed == 0;
        drop(guard);
        self.is_earlier.notify_one();
        if has_healed {
            self.tell(RegistryEvent::Healed);
        }
    }

    /// Whether the directory vouches for every lease, and has since the streams last read the
    /// store.
    pub(super) fn is_whole(&self) -> bool {
        let rows = self.rows();
        rows.lapsed == 0 && !rows.is_healing
    }

    /// The streams were told to read the store. Where rows are lapsed again, they will be told once
    /// more.
    pub(super) fn end_healing(&self) {
        let mut rows = self.rows();
        if rows.lapsed == 0 {
            rows.is_healing = false;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows().by_registration.len()
    }

    /// Registers everything again, under a new identity of this server. Until that is done, the
    /// leased rows are lapsed.
    pub(super) fn rebind(self: &Arc<Self>, server: ServerId) {
        let mut guard = self.rows();
        let rows = &mut *guard;
        rows.server = server;
        rows.is_healing = true;
        // RegistryRows of the old identity expire with it: nothing is removed.
        rows.by_registration.retain(|_, row| row.leases > 0);
        rows.due.clear();
        let mut again = Vec::with_capacity(rows.by_registration.len());
        for (registration, row) in &mut rows.by_registration {
            row.due = None;
            // An insertion under the old identity that is still under way vouches for nothing.
            row.insertion = 0;
            row.state = RowState::Absent;
            if !std::mem::replace(&mut row.is_lapsed, true) {
                rows.lapsed += 1;
            }
            again.push(registration.clone());
        }
        let is_whole = rows.lapsed == 0;
        drop(guard);
        if is_whole {
            self.tell(RegistryEvent::Healed);
            return;
        }
        let registry = Arc::downgrade(self);
        tokio::spawn(async move {
            for some in again.chunks(AGAIN_STEP) {
                let Some(registry) = registry.upgrade() else {
                    return;
                };
                for registration in some {
                    registry.register_again(registration, server, RETRY_FIRST);
                }
                drop(registry);
                sleep(AGAIN_PAUSE).await;
            }
        });
    }

    /// Registers a lapsed row, again and again until it is acknowledged, released or lapsed under
    /// yet another identity.
    fn register_again(
        self: &Arc<Self>,
        registration: &Registration,
        server: ServerId,
        pause: Duration,
    ) {
        let receiver = {
            let mut rows = self.rows();
            let is_wanted = rows.server == server
                && rows
                    .by_registration
                    .get(registration)
                    .is_some_and(|row| row.is_lapsed);
            if !is_wanted {
                return;
            }
            let row = rows.row(registration);
            let (waiter, receiver) = oneshot::channel();
            row.waiters.push(waiter);
            if !matches!(row.state, RowState::Inserting) {
                self.start_insertion(&mut rows, registration);
            }
            receiver
        };
        let (registry, registration) = (Arc::downgrade(self), registration.clone());
        tokio::spawn(async move {
            if matches!(receiver.await, Ok(Ok(()))) {
                return;
            }
            sleep(pause).await;
            if let Some(registry) = registry.upgrade() {
                registry.register_again(&registration, server, (2 * pause).min(RETRY_MAX));
            }
        });
    }

    /// Removes and renews rows when they are due.
    pub(super) async fn keep_up(self: Arc<Self>) {
        loop {
            match self.take_due() {
                Some(next) => {
                    tokio::select! {
                        biased;
                        () = sleep_until(next) => {}
                        () = self.is_earlier.notified() => {}
                    }
                }
                None => self.is_earlier.notified().await,
            }
        }
    }

    /// Starts all that is due, and says when the next thing will be.
    fn take_due(self: &Arc<Self>) -> Option<Instant> {
        let now = Instant::now();
        let mut guard = self.rows();
        let rows = &mut *guard;
        while let Some(entry) = rows.due.first_entry() {
            if entry.key().0 > now {
                return Some(entry.key().0);
            }
            let registration = entry.remove();
            let Some(row) = rows.by_registration.get_mut(&registration) else {
                continue;
            };
            row.due = None;
            if row.leases == 0 {
                rows.by_registration.remove(&registration);
                self.start_removal(rows.server, registration, self.times.next());
            } else {
                self.start_renewal(rows, &registration);
            }
        }
        None
    }

    fn start_removal(
        self: &Arc<Self>,
        server: ServerId,
        registration: Registration,
        at: WriteTime,
    ) {
        let registry = Arc::clone(self);
        tokio::spawn(async move {
            let mut pause = RETRY_FIRST;
            for _ in 0..REMOVE_TRIES {
                match registry.store.unregister(server, &registration, at).await {
                    Ok(()) => break,
                    Err(error) => {
                        tracing::debug!(%error, "the server failed to remove a registration");
                        sleep(pause).await;
                        pause = (4 * pause).min(RETRY_MAX);
                    }
                }
            }
            registry.tell(RegistryEvent::Removed(registration));
        });
    }

    fn start_renewal(self: &Arc<Self>, rows: &mut RegistryRows, registration: &Registration) {
        let (server, at) = (rows.server, self.times.next());
        let row = rows.row(registration);
        let RowState::Registered {
            began: renewed,
            acknowledged,
        } = row.state
        else {
            // It is being inserted anyway, or will be when it is wanted.
            return;
        };
        if renewed.elapsed() >= LAPSES_AFTER && !std::mem::replace(&mut row.is_lapsed, true) {
            row.state = RowState::Absent;
            rows.lapsed += 1;
            rows.is_healing = true;
            let (registry, registration) = (Arc::clone(self), registration.clone());
            tokio::spawn(async move {
                registry.register_again(&registration, server, RETRY_FIRST);
            });
            return;
        }
        let insertion = row.insertion;
        let (registry, registration) = (Arc::clone(self), registration.clone());
        tokio::spawn(async move {
            let began = Instant::now();
            let is_renewed = registry
                .store
                .register(server, &registration, at)
                .await
                .is_ok();
            let mut guard = registry.rows();
            let rows = &mut *guard;
            let Some(row) = rows
                .by_registration
                .get_mut(&registration)
                .filter(|row| row.insertion == insertion && row.leases > 0)
            else {
                return;
            };
            let next = if is_renewed {
                row.state = RowState::Registered {
                    began,
                    acknowledged,
                };
                began + RENEW_FROM + registry.jitter.up_to(RENEW_SPAN)
            } else {
                Instant::now() + RENEW_AGAIN
            };
            rows.schedule(&registration, next);
            drop(guard);
            registry.is_earlier.notify_one();
        });
    }
}

impl RegistryRows {
    fn row(&mut self, registration: &Registration) -> &mut RegistryRow {
        let new = || RegistryRow {
            leases: 0,
            state: RowState::Absent,
            waiters: Vec::new(),
            due: None,
            insertion: 0,
            is_lapsed: false,
            is_announced: false,
        };
        self.by_registration
            .entry(registration.clone())
            .or_insert_with(new)
    }

    /// Sets when the row is looked at next. Each row has one entry at most.
    fn schedule(&mut self, registration: &Registration, at: Instant) {
        self.number += 1;
        let entry = (at, self.number);
        let Some(row) = self.by_registration.get_mut(registration) else {
            return;
        };
        if let Some(before) = row.due.replace(entry) {
            self.due.remove(&before);
        }
        self.due.insert(entry, registration.clone());
    }
}

fn grace_of(registration: &Registration) -> Duration {
    match registration {
        Registration::Session(_, SessionKind::Present | SessionKind::Acting) => SESSION_GRACE,
        Registration::Session(_, SessionKind::Follows) | Registration::Listener(_) => {
            LISTENER_GRACE
        }
    }
}

impl Lease {
    pub fn registration(&self) -> &Registration {
        &self.registration
    }

    /// When the registration was acknowledged. Only a read of the store that began later may stand
    /// for the lease's own.
    pub fn acknowledged(&self) -> Instant {
        self.acknowledged
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.release(&self.registration);
        }
    }
}
