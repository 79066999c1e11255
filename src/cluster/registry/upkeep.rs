//! Upkeep of the registry's rows: renewals, removals, and the registration of everything under a new
//! identity.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use super::events::RegistryEvent;
use super::rows::{RegistryRows, RowState};
use super::{RENEW_FROM, RENEW_SPAN, Registry};
use crate::store::cluster::{REGISTRATION_SECONDS, Registration, ServerId, WriteTime};

/// A renewal that failed is tried again after this.
const RENEW_AGAIN: Duration = Duration::from_secs(60);
/// A row that was not renewed for so long is lapsed: it may soon be gone.
const LAPSES_AFTER: Duration = Duration::from_secs(23 * 3_600);
const _: () = assert!(
    RENEW_FROM.as_secs() + RENEW_SPAN.as_secs() + RENEW_AGAIN.as_secs() < LAPSES_AFTER.as_secs()
        && LAPSES_AFTER.as_secs() < REGISTRATION_SECONDS
);
/// Rows per second that are registered again under a new identity, in steps of 50 ms.
const AGAIN_STEP: usize = 100;
const AGAIN_PAUSE: Duration = Duration::from_millis(50);
/// Attempts to remove a row. A row that stays costs notices without a reader, until it expires.
const REMOVE_TRIES: u32 = 4;
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(15);

impl Registry {
    /// Registers everything again, under a new identity of this server. Until that is done, the
    /// leased rows are lapsed.
    pub(in crate::cluster) fn rebind(self: &Arc<Self>, server: ServerId) {
        let mut guard = self.rows.lock();
        let rows = &mut *guard;
        rows.server = server;
        rows.is_healing = true;
        // Rows of the old identity expire with it: nothing is removed.
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
            self.events.push(RegistryEvent::Healed);
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
            let mut rows = self.rows.lock();
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
    pub(in crate::cluster) async fn keep_up(self: Arc<Self>) {
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
        let mut guard = self.rows.lock();
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
            registry.events.push(RegistryEvent::Removed(registration));
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
            let mut guard = registry.rows.lock();
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
