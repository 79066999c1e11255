//! Per-user bound of the reads that a store has under way: one user's operations cannot occupy every reading thread.
//!
//! The user is an ambient value of the task (a task-local): the store's methods do not name whom they read for, and answers from memory pay
//! nothing for it.

use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::UserId;
use crate::weak_map::WeakMap;

tokio::task_local! {
    static READER: ReadingUser;
}

/// How many reads of one user may be under way at once. More wait, in their order.
#[derive(Debug)]
pub struct ReadShares {
    most: usize,
    users: WeakMap<UserId, Semaphore>,
}

struct ReadingUser {
    user: UserId,
    shares: Arc<ReadShares>,
    /// Share of the user, from the first read on.
    share: OnceLock<Arc<Semaphore>>,
}

/// A permit for one read of a user. It is held until the read ends, also where the reader has gone away.
pub(super) struct UserReadPermit(
    #[expect(dead_code, reason = "held for its Drop")] OwnedSemaphorePermit,
);

impl ReadShares {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.clamp(1, Semaphore::MAX_PERMITS),
            users: WeakMap::default(),
        })
    }

    /// Work whose reads are this user's.
    pub async fn reading_for<T>(
        self: &Arc<Self>,
        user: &UserId,
        work: impl Future<Output = T>,
    ) -> T {
        let reader = ReadingUser {
            user: user.clone(),
            shares: Arc::clone(self),
            share: OnceLock::new(),
        };
        READER.scope(reader, work).await
    }
}

impl ReadingUser {
    fn share(&self) -> Arc<Semaphore> {
        let share = || {
            self.shares
                .users
                .get_or_insert_with(self.user.clone(), || Semaphore::new(self.shares.most))
        };
        Arc::clone(self.share.get_or_init(share))
    }
}

impl UserReadPermit {
    /// Waits for a permit of the user of this task. `None` where the task reads for no user.
    pub(super) async fn wait() -> Option<Self> {
        let share = READER.try_with(ReadingUser::share).ok()?;
        let permit = share.acquire_owned().await;
        Some(Self(permit.expect("no share is ever closed")))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_user_reads_so_many_at_once_and_others_do_not_wait_for_that() {
        let shares = ReadShares::new(2);
        let [alice, bob] = ["alice", "bob"].map(|name| UserId::parse(name).unwrap());
        let turn = |user: &UserId| {
            let (shares, user) = (Arc::clone(&shares), user.clone());
            async move {
                shares
                    .reading_for(&user, UserReadPermit::wait())
                    .await
                    .unwrap()
            }
            .boxed()
        };
        let held = [turn(&alice).await, turn(&alice).await];
        let mut third = turn(&alice);
        assert!((&mut third).now_or_never().is_none());
        turn(&bob).await;
        drop(held);
        drop(third.await);
        assert!(
            UserReadPermit::wait().await.is_none(),
            "what is read for nobody has no bound of its own"
        );
    }
}
