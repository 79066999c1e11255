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

pub(super) mod events;
mod rows;
mod upkeep;

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use self::events::{RegistryEvent, RegistryEvents};
use self::rows::{RegistryRows, RowState};
use super::jitter::Jitter;
use super::write_times::WriteTimes;
use crate::store::cluster::{ClusterStore, Registration, ServerId, SessionKind};
use crate::store::{self, Error};

/// How long a session's row outlives its last lease: a user who reconnects finds it there.
const SESSION_GRACE: Duration = Duration::from_secs(5);
/// The same for listeners and followers, which cost a write of a shared partition.
const LISTENER_GRACE: Duration = Duration::from_secs(60);
/// Each row is renewed once within this span, at random, so that renewals
/// spread.
const RENEW_FROM: Duration = Duration::from_secs(8 * 3_600);
const RENEW_SPAN: Duration = Duration::from_secs(8 * 3_600);

/// Registrations of this process.
pub(super) struct Registry {
    store: Arc<dyn ClusterStore>,
    times: Arc<WriteTimes>,
    rows: Mutex<RegistryRows>,
    /// A row is due earlier than the housekeeping expects.
    is_earlier: Notify,
    pub(super) events: RegistryEvents,
    jitter: Jitter,
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
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            times,
            rows: Mutex::new(RegistryRows::new(server)),
            is_earlier: Notify::new(),
            events: RegistryEvents::default(),
            jitter,
        })
    }

    /// Registers, and returns once the row is acknowledged.
    pub(super) async fn lease(
        self: &Arc<Self>,
        registration: &Registration,
    ) -> store::Result<Lease> {
        let mut lease = self.count(registration);
        loop {
            let waiter = {
                let mut rows = self.rows.lock();
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
        self.rows.lock().row(registration).leases += 1;
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
        let mut guard = self.rows.lock();
        let rows = &mut *guard;
        let Some(row) = rows
            .by_registration
            .get_mut(registration)
            .filter(|row| row.insertion == number)
        else {
            // Another insertion has taken its place, and answers those who wait.
            return;
        };
        let answer = |waiters: Vec<oneshot::Sender<_>>, answer: Result<(), Arc<str>>| {
            for waiter in waiters {
                let _ = waiter.send(answer.clone());
            }
        };
        let waiters = std::mem::take(&mut row.waiters);
        if let Err(error) = written {
            row.state = RowState::Absent;
            drop(guard);
            return answer(waiters, Err(error.to_string().into()));
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
        answer(waiters, Ok(()));
        self.is_earlier.notify_one();
        if is_first {
            self.events
                .push(RegistryEvent::Registered(registration.clone()));
        }
        if is_whole {
            self.events.push(RegistryEvent::Healed);
        }
    }

    fn release(&self, registration: &Registration) {
        let mut guard = self.rows.lock();
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
            self.events.push(RegistryEvent::Healed);
        }
    }

    /// Whether the directory vouches for every lease, and has since the streams last read the
    /// store.
    pub(super) fn is_whole(&self) -> bool {
        let rows = self.rows.lock();
        rows.lapsed == 0 && !rows.is_healing
    }

    /// The streams were told to read the store. Where rows are lapsed again, they will be told once
    /// more.
    pub(super) fn end_healing(&self) {
        let mut rows = self.rows.lock();
        if rows.lapsed == 0 {
            rows.is_healing = false;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.lock().by_registration.len()
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
