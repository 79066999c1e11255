//! Replay limiter: a fair semaphore for replay reads. When many streams resume at once, a few of
//! them read and the others wait.
//!
//! A permit covers one read, not one stream, so a client that reads its responses slowly delays
//! nobody. A user's own semaphore is acquired first: a user with many streams has only a few of
//! them in the common queue. A wait beyond the deadline is refused as too fast.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::chat::error::{Error, Result};
use crate::model::UserId;

pub(crate) struct ReplayLimiter {
    all: Arc<Semaphore>,
    /// One semaphore for each user who reads or waits now.
    users: Arc<Mutex<HashMap<UserId, Arc<Semaphore>>>>,
    user_max: usize,
    all_max: usize,
    wait: Duration,
}

/// Permit of one read, released on drop.
pub(crate) struct ReplayPermit {
    _permit: OwnedSemaphorePermit,
    _user: UserPermit,
}

/// A reader's share in the semaphore of its user. The last reader removes the semaphore.
struct UserPermit {
    user: UserId,
    users: Arc<Mutex<HashMap<UserId, Arc<Semaphore>>>>,
    semaphore: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl ReplayLimiter {
    pub(crate) fn new(user_max: usize, all_max: usize, wait: Duration) -> Self {
        let all_max = all_max.min(Semaphore::MAX_PERMITS);
        let all = Arc::new(Semaphore::new(all_max));
        Self {
            all,
            all_max,
            users: Arc::default(),
            user_max: user_max.min(Semaphore::MAX_PERMITS),
            wait,
        }
    }

    /// Number of permits in use.
    pub(crate) fn in_use(&self) -> usize {
        self.all_max - self.all.available_permits()
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self, user: &UserId) -> Result<ReplayPermit> {
        let (mut user, semaphore) = self.user_permit(user);
        let wait = async {
            user.permit = Some(never_closed(semaphore.acquire_owned().await));
            never_closed(Arc::clone(&self.all).acquire_owned().await)
        };
        match timeout(self.wait, wait).await {
            Ok(permit) => Ok(ReplayPermit {
                _permit: permit,
                _user: user,
            }),
            Err(_) => Err(Error::TooFast {
                retry_after: self.wait,
            }),
        }
    }

    fn user_permit(&self, user: &UserId) -> (UserPermit, Arc<Semaphore>) {
        let mut users = self.users.lock();
        let semaphore = users
            .entry(user.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(self.user_max)));
        (
            UserPermit {
                user: user.clone(),
                users: Arc::clone(&self.users),
                semaphore: Some(Arc::clone(semaphore)),
                permit: None,
            },
            Arc::clone(semaphore),
        )
    }
}

impl Drop for UserPermit {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut users = self.users.lock();
        // The lock keeps other readers out, so exactly one of two concurrent drops sees the last
        // reference.
        drop(self.semaphore.take());
        if users
            .get(&self.user)
            .is_some_and(|semaphore| Arc::strong_count(semaphore) == 1)
        {
            users.remove(&self.user);
        }
    }
}

fn never_closed<T, E: std::fmt::Debug>(acquired: Result<T, E>) -> T {
    acquired.expect("the semaphores are never closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    #[tokio::test]
    async fn a_read_beyond_the_bound_of_its_user_waits() {
        let limiter = Arc::new(ReplayLimiter::new(2, 10, Duration::from_secs(10)));
        let first = limiter.acquire(&user("alice")).await.unwrap();
        let _second = limiter.acquire(&user("alice")).await.unwrap();
        let third = tokio::spawn({
            let limiter = Arc::clone(&limiter);
            async move { limiter.acquire(&user("alice")).await.map(drop) }
        });
        limiter.acquire(&user("bob")).await.unwrap();
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        drop(first);
        third.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_wait_beyond_the_deadline_is_refused() {
        let limiter = ReplayLimiter::new(2, 1, Duration::from_millis(10));
        let _held = limiter.acquire(&user("alice")).await.unwrap();
        let refused = limiter.acquire(&user("bob")).await.map(drop).unwrap_err();
        assert!(
            matches!(refused, Error::TooFast { retry_after } if retry_after == Duration::from_millis(10))
        );
    }

    #[tokio::test]
    async fn the_semaphore_of_an_idle_user_is_removed() {
        let limiter = ReplayLimiter::new(1, 1, Duration::from_millis(1));
        let held = limiter.acquire(&user("alice")).await.unwrap();
        assert!(limiter.acquire(&user("alice")).await.is_err());
        assert!(limiter.acquire(&user("bob")).await.is_err());
        assert_eq!(limiter.users.lock().len(), 1);
        drop(held);
        assert_eq!(limiter.users.lock().len(), 0);
    }
}
