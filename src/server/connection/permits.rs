//! Permits of connections or sockets: a bounded number, where a newcomer evicts the holder that was idle longest (LRU).
//!
//! A permit is idle or busy. A connection is idle while it runs no request, a socket while it has no viewer. Busy permits are never
//! evicted. Nothing is evicted before a newcomer waits: an idle connection keeps its full time while there are permits.

use std::collections::BTreeMap;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::timeout;

/// Keys of permits that are not idle.
const BUSY: u64 = 0;
const RELEASED: u64 = u64::MAX;

pub(crate) struct Permits {
    max: usize,
    state: Mutex<PermitState>,
    /// A permit was released, or became idle.
    changed: Notify,
}

#[derive(Default)]
struct PermitState {
    taken: usize,
    /// Newcomers that wait for a permit, and evicted holders that have not released theirs yet.
    waiting: usize,
    evicting: usize,
    /// Key of the next permit that becomes idle. Lower keys have been idle for longer.
    next: u64,
    idle: BTreeMap<u64, Arc<Notify>>,
}

/// Permit of one holder. It starts idle, and is released when it is dropped.
pub(crate) struct Permit {
    pool: Arc<Permits>,
    /// Key in the map of idle permits.
    key: Mutex<u64>,
    evicted: Arc<Notify>,
}

/// Error of a holder whose permit went to a newcomer: it has to end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Evicted;

impl Permits {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            max,
            state: Mutex::new(PermitState {
                next: BUSY + 1,
                ..PermitState::default()
            }),
            changed: Notify::new(),
        })
    }

    /// Waits for a permit. Evicts the idlest holder if all are taken, and waits for the first idle one if all are busy.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Permit {
        if let Some(permit) = self.try_acquire() {
            return permit;
        }
        let _waiting = Newcomer::new(self);
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(permit) = self.try_acquire() {
                return permit;
            }
            self.evict();
            changed.await;
        }
    }

    /// Waits at most this long for an evicted holder to end. Refuses at once if every holder is busy.
    pub(crate) async fn acquire_within(self: &Arc<Self>, wait: Duration) -> Option<Permit> {
        match self.try_acquire() {
            Some(permit) => Some(permit),
            None if self.state.lock().idle.is_empty() => None,
            None => timeout(wait, self.acquire()).await.ok(),
        }
    }

    fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let mut state = self.state.lock();
        if state.taken >= self.max {
            return None;
        }
        state.taken += 1;
        let evicted = Arc::new(Notify::new());
        let key = state.insert(&evicted);
        Some(Permit {
            pool: Arc::clone(self),
            key: Mutex::new(key),
            evicted,
        })
    }

    /// Evicts the idlest holder, unless one is on its way out for each newcomer.
    fn evict(&self) {
        let mut state = self.state.lock();
        if state.evicting < state.waiting
            && let Some((_, idlest)) = state.idle.pop_first()
        {
            state.evicting += 1;
            idlest.notify_one();
        }
    }

    /// Ends a change of the state, after which a newcomer may find a permit.
    fn end_change(&self, state: MutexGuard<'_, PermitState>) {
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_waiters();
        }
    }
}

impl PermitState {
    fn insert(&mut self, evicted: &Arc<Notify>) -> u64 {
        let key = self.next;
        self.next += 1;
        self.idle.insert(key, Arc::clone(evicted));
        key
    }
}

/// A newcomer that waits until it is dropped.
struct Newcomer<'a>(&'a Permits);

impl<'a> Newcomer<'a> {
    fn new(permits: &'a Permits) -> Self {
        permits.state.lock().waiting += 1;
        Self(permits)
    }
}

impl Drop for Newcomer<'_> {
    fn drop(&mut self) {
        self.0.state.lock().waiting -= 1;
    }
}

impl Permit {
    /// Protects the holder from eviction. Fails if the eviction came first: then no new work may begin.
    pub(crate) fn set_busy(&self) -> Result<(), Evicted> {
        let mut key = self.key.lock();
        if *key == BUSY {
            return Ok(());
        }
        self.pool.state.lock().idle.remove(&*key).ok_or(Evicted)?;
        *key = BUSY;
        Ok(())
    }

    /// Makes the holder the last candidate for eviction.
    pub(crate) fn set_idle(&self) {
        let mut key = self.key.lock();
        if *key == BUSY {
            let mut state = self.pool.state.lock();
            *key = state.insert(&self.evicted);
            self.pool.end_change(state);
        }
    }

    /// Notified when the holder has to end.
    pub(crate) fn eviction(&self) -> Arc<Notify> {
        Arc::clone(&self.evicted)
    }

    /// Releases the permit before its holder ends.
    pub(crate) fn release(&self) {
        let key = mem::replace(&mut *self.key.lock(), RELEASED);
        if key == RELEASED {
            return;
        }
        let mut state = self.pool.state.lock();
        if key != BUSY && state.idle.remove(&key).is_none() {
            state.evicting -= 1;
        }
        state.taken -= 1;
        self.pool.end_change(state);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn the_idlest_makes_room_for_a_newcomer_and_a_busy_one_does_not() {
        let permits = Permits::new(3);
        let [first, second, third] = [
            permits.acquire().await,
            permits.acquire().await,
            permits.acquire().await,
        ];
        first.set_busy().unwrap();
        let mut newcomer = Box::pin(permits.acquire());
        assert!(newcomer.as_mut().now_or_never().is_none());
        assert!(
            second.eviction().notified().now_or_never().is_some(),
            "it has been idle longer than the third"
        );
        assert_eq!(second.set_busy(), Err(Evicted));
        assert!(
            newcomer.as_mut().now_or_never().is_none(),
            "one is on its way out"
        );
        assert!(third.eviction().notified().now_or_never().is_none());
        drop(second);
        let newcomer = newcomer.await;
        first.set_idle();
        // The third is the idlest now, then the newcomer, then the first.
        let mut busy = Vec::new();
        for oldest in [third, newcomer, first] {
            let mut next = Box::pin(permits.acquire());
            assert!(next.as_mut().now_or_never().is_none());
            oldest
                .eviction()
                .notified()
                .now_or_never()
                .expect("it is evicted");
            drop(oldest);
            let next = next.await;
            next.set_busy().unwrap();
            busy.push(next);
        }
    }

    #[tokio::test]
    async fn a_newcomer_waits_where_all_are_busy() {
        let permits = Permits::new(1);
        let only = permits.acquire().await;
        only.set_busy().unwrap();
        let mut newcomer = Box::pin(permits.acquire());
        assert!(newcomer.as_mut().now_or_never().is_none());
        only.set_idle();
        assert!(newcomer.as_mut().now_or_never().is_none());
        only.eviction()
            .notified()
            .now_or_never()
            .expect("it is evicted as soon as it is idle");
        drop(only);
        newcomer.await;
        let state = permits.state.lock();
        assert_eq!(
            (state.taken, state.waiting, state.evicting, state.idle.len()),
            (0, 0, 0, 0)
        );
    }

    #[tokio::test]
    async fn a_newcomer_that_gives_up_leaves_nothing_behind() {
        let permits = Permits::new(1);
        let only = permits.acquire().await;
        let mut newcomer = Box::pin(permits.acquire());
        assert!(newcomer.as_mut().now_or_never().is_none());
        drop(newcomer);
        drop(only);
        assert!(permits.acquire().now_or_never().is_some());
    }
}
