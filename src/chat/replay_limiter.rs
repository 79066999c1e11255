//! Turns: when many streams come back at once and read what they missed, they read a few at a time and the others wait in line.
//!
//! A turn is one read, not one stream: who reads their answers slowly keeps nobody waiting. The line of one user comes first, so that one
//! with many streams stands in the line of all with a few of them only. Who waits too long is told to come back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::chat::{Error, Result};
use crate::model::UserId;

pub(crate) struct ReplayLimiter {
    all: Arc<Semaphore>,
    /// Of those who read or wait now, and of nobody else.
    users: Arc<Mutex<HashMap<UserId, Arc<Semaphore>>>>,
    user_max: usize,
    all_max: usize,
    wait: Duration,
}

/// A read may go on until this is dropped.
pub(crate) struct Turn {
    _place: OwnedSemaphorePermit,
    _own: Own,
}

/// A user's own line, as long as somebody stands in it.
struct Own {
    user: UserId,
    users: Arc<Mutex<HashMap<UserId, Arc<Semaphore>>>>,
    line: Option<Arc<Semaphore>>,
    place: Option<OwnedSemaphorePermit>,
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

    /// Turns that are taken now.
    pub(crate) fn taken(&self) -> usize {
        self.all_max - self.all.available_permits()
    }

    /// Waits for a turn.
    pub(crate) async fn turn(&self, user: &UserId) -> Result<Turn> {
        let (mut own, line) = self.own(user);
        let wait = async {
            own.place = Some(closed(line.acquire_owned().await));
            closed(Arc::clone(&self.all).acquire_owned().await)
        };
        match timeout(self.wait, wait).await {
            Ok(place) => Ok(Turn {
                _place: place,
                _own: own,
            }),
            Err(_) => Err(Error::TooFast {
                retry_after: self.wait,
            }),
        }
    }

    fn own(&self, user: &UserId) -> (Own, Arc<Semaphore>) {
        let mut users = self.users.lock();
        let line = users
            .entry(user.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(self.user_max)));
        (
            Own {
                user: user.clone(),
                users: Arc::clone(&self.users),
                line: Some(Arc::clone(line)),
                place: None,
            },
            Arc::clone(line),
        )
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        drop(self.place.take());
        let mut users = self.users.lock();
        // While the map is held nobody comes, and of two that go one is the last.
        drop(self.line.take());
        if users
            .get(&self.user)
            .is_some_and(|line| Arc::strong_count(line) == 1)
        {
            users.remove(&self.user);
        }
    }
}

fn closed<T, E: std::fmt::Debug>(acquired: Result<T, E>) -> T {
    acquired.expect("no line is ever closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    #[tokio::test]
    async fn a_user_reads_so_many_at_once_and_the_next_one_waits() {
        let line = Arc::new(ReplayLimiter::new(2, 10, Duration::from_secs(10)));
        let first = line.turn(&user("alice")).await.unwrap();
        let _second = line.turn(&user("alice")).await.unwrap();
        let third = tokio::spawn({
            let line = Arc::clone(&line);
            async move { line.turn(&user("alice")).await.map(drop) }
        });
        line.turn(&user("bob")).await.unwrap();
        tokio::task::yield_now().await;
        assert!(!third.is_finished());
        drop(first);
        third.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn who_waits_too_long_is_told_to_come_back() {
        let line = ReplayLimiter::new(2, 1, Duration::from_millis(10));
        let _held = line.turn(&user("alice")).await.unwrap();
        let refused = line.turn(&user("bob")).await.map(drop).unwrap_err();
        assert!(
            matches!(refused, Error::TooFast { retry_after } if retry_after == Duration::from_millis(10))
        );
    }

    #[tokio::test]
    async fn nobody_is_remembered_who_neither_reads_nor_waits() {
        let line = ReplayLimiter::new(1, 1, Duration::from_millis(1));
        let held = line.turn(&user("alice")).await.unwrap();
        assert!(line.turn(&user("alice")).await.is_err());
        assert!(line.turn(&user("bob")).await.is_err());
        assert_eq!(line.users.lock().len(), 1);
        drop(held);
        assert_eq!(line.users.lock().len(), 0);
    }
}
