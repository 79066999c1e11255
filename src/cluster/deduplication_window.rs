//! Deduplication window: identities of the last minutes, forgotten by age.
//!
//! Two generations of a half window each are kept, so that forgetting costs nothing per identity.
//! Memory follows the rate of identities, and not their number since the start.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

pub struct DeduplicationWindow<T> {
    half: Duration,
    since: Instant,
    current: HashSet<T>,
    previous: HashSet<T>,
}

impl<T: Eq + Hash> DeduplicationWindow<T> {
    /// Remembers each identity for at least this long, and at most twice as long.
    pub fn new(window: Duration) -> Self {
        Self {
            half: window,
            since: Instant::now(),
            current: HashSet::new(),
            previous: HashSet::new(),
        }
    }

    /// Whether it is new.
    pub fn insert(&mut self, identity: T) -> bool {
        self.rotate();
        !self.previous.contains(&identity) && self.current.insert(identity)
    }

    pub fn contains(&self, identity: &T) -> bool {
        self.current.contains(identity) || self.previous.contains(identity)
    }

    /// Forgets an identity, which may then come again.
    pub fn remove(&mut self, identity: &T) {
        self.current.remove(identity);
        self.previous.remove(identity);
    }

    fn rotate(&mut self) {
        let age = self.since.elapsed();
        if age < self.half {
            return;
        }
        let current = std::mem::take(&mut self.current);
        self.previous = if age < 2 * self.half {
            current
        } else {
            HashSet::new()
        };
        self.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_identity_is_remembered_for_the_window_and_forgotten_after_two() {
        let mut recent = DeduplicationWindow::new(Duration::from_secs(60));
        assert!(recent.insert(1));
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(!recent.insert(1) && recent.insert(2));
        tokio::time::advance(Duration::from_secs(58)).await;
        assert!(!recent.insert(2), "58 seconds old");
        tokio::time::advance(Duration::from_secs(63)).await;
        assert!(recent.insert(1) && !recent.contains(&9));
        tokio::time::advance(Duration::from_secs(200)).await;
        assert!(recent.insert(2));
        recent.remove(&2);
        assert!(recent.insert(2));
    }
}
