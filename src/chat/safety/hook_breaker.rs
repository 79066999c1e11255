//! Circuit breakers of the hook before a send: one for each user, and one for all.
//!
//! A user whose messages make the hook fail opens the breaker of that user alone. The one of all opens only after failures of several
//! users in a row.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::UserId;

/// Failures in a row that open a breaker.
const FAILURES_MAX: u32 = 20;
/// Failures of one user that count towards the breaker of all.
const USER_SHARE: u32 = 5;
/// Time for which an open breaker lets nothing through.
const OPEN_FOR: Duration = Duration::from_secs(5);
/// Users whose failures are remembered.
const USERS_MAX: NonZeroUsize = NonZeroUsize::new(4_096).expect("it is not zero");

pub(super) struct HookBreakers(Mutex<Breakers>);

struct Breakers {
    all: Breaker,
    /// Failures of each user in the present row of all.
    shares: HashMap<UserId, u32>,
    users: LruCache<UserId, Breaker>,
}

#[derive(Default)]
struct Breaker {
    failures: u32,
    open_until: Option<Instant>,
}

impl Breaker {
    fn is_open(&self, now: Instant) -> bool {
        self.open_until.is_some_and(|until| now < until)
    }

    /// Once it has closed, one more failure opens it again. Returns whether it opened for the first time.
    fn fail(&mut self, now: Instant) -> bool {
        self.failures = self.failures.saturating_add(1);
        let opens = self.failures >= FAILURES_MAX;
        opens && self.open_until.replace(now + OPEN_FOR).is_none()
    }
}

impl HookBreakers {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Breakers {
            all: Breaker::default(),
            shares: HashMap::new(),
            users: LruCache::new(USERS_MAX),
        }))
    }

    /// Whether the hook is not to be asked about messages of this user now.
    pub(super) fn is_open(&self, user: &UserId) -> bool {
        let (now, breakers) = (Instant::now(), self.0.lock());
        let of_user = breakers.users.peek(user);
        breakers.all.is_open(now) || of_user.is_some_and(|breaker| breaker.is_open(now))
    }

    /// Whether the hook has failed so often in a row that the breaker of all opened, and has not decided since.
    pub(super) fn is_down(&self) -> bool {
        self.0.lock().all.open_until.is_some()
    }

    /// Records an answer that decided.
    pub(super) fn decided(&self, user: &UserId) {
        let mut breakers = self.0.lock();
        breakers.all = Breaker::default();
        breakers.shares.clear();
        breakers.users.pop(user);
    }

    /// Records a failure. Returns whether the breaker of all opened for the first time.
    pub(super) fn failed(&self, user: &UserId) -> bool {
        let (now, mut guard) = (Instant::now(), self.0.lock());
        let breakers = &mut *guard;
        breakers
            .users
            .get_or_insert_mut(user.clone(), Breaker::default)
            .fail(now);
        if breakers.all.failures < FAILURES_MAX {
            let share = breakers.shares.entry(user.clone()).or_default();
            if *share >= USER_SHARE {
                return false;
            }
            *share += 1;
        }
        breakers.all.fail(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: u32) -> UserId {
        UserId::parse(&format!("user{number}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_opens_the_own_breaker_alone_and_several_that_of_all() {
        let breakers = HookBreakers::new();
        for _ in 0..1_000 {
            assert!(!breakers.failed(&user(1)));
        }
        assert!(!breakers.is_down(), "one user's messages prove nothing");
        assert!(breakers.is_open(&user(1)) && !breakers.is_open(&user(2)));
        for number in 2..=4 {
            for count in 1..=USER_SHARE {
                let opens = (number, count) == (4, USER_SHARE);
                assert_eq!(breakers.failed(&user(number)), opens);
            }
        }
        assert!(breakers.is_open(&user(9)) && breakers.is_down());
        tokio::time::advance(OPEN_FOR).await;
        assert!(!breakers.is_open(&user(9)), "it is asked again");
        assert!(breakers.is_down(), "it has not decided yet");
        breakers.failed(&user(9));
        assert!(breakers.is_open(&user(5)), "one failure opens it again");
        breakers.decided(&user(5));
        assert!(!breakers.is_open(&user(9)) && !breakers.is_down());
    }
}
