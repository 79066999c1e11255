//! Per-user bound of the reads that a store has under way: one user's operations cannot occupy every reading thread.
//!
//! The user is an ambient value of the task (a task-local): the store's methods do not name whom they read for, and answers from memory pay
//! nothing for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::UserId;

tokio::task_local! {
    static READER: ReadingUser;
}

/// How many reads of one user may be under way at once. More wait, in their order.
pub struct ReadShares {
    most: usize,
    /// One semaphore for each user who reads or waits now, and for no other.
    users: Mutex<HashMap<UserId, Arc<Semaphore>>>,
}

#[derive(Clone)]
struct ReadingUser {
    user: UserId,
    shares: Arc<ReadShares>,
}

/// A permit for one read of a user. It is held until the read ends, also where the reader has gone away.
pub(super) struct UserReadPermit {
    reader: ReadingUser,
    share: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl ReadShares {
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most: most.clamp(1, Semaphore::MAX_PERMITS),
            users: Mutex::default(),
        })
    }

    /// Work whose reads are this user's.
    pub async fn reading_for<T>(
        self: &Arc<Self>,
        user: &UserId,
        work: impl Future<Output = T>,
    ) -> T {
        READER
            .scope(
                ReadingUser {
                    user: user.clone(),
                    shares: Arc::clone(self),
                },
                work,
            )
            .await
    }

    fn users(&self) -> MutexGuard<'_, HashMap<UserId, Arc<Semaphore>>> {
        self.users.lock()
    }

    fn share_of(&self, user: &UserId) -> Arc<Semaphore> {
        Arc::clone(
            self.users()
                .entry(user.clone())
                .or_insert_with(|| Arc::new(Semaphore::new(self.most))),
        )
    }
}

impl fmt::Debug for ReadShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadShares")
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

impl UserReadPermit {
    /// Waits for a permit of the user of this task. `None` where the task reads for no user.
    pub(super) async fn wait() -> Option<Self> {
        let reader = READER.try_with(Clone::clone).ok()?;
        let share = reader.shares.share_of(&reader.user);
        let mut turn = Self {
            reader,
            share: Some(Arc::clone(&share)),
            permit: None,
        };
        turn.permit = Some(
            share
                .acquire_owned()
                .await
                .expect("no share is ever closed"),
        );
        Some(turn)
    }
}

impl Drop for UserReadPermit {
    fn drop(&mut self) {
        drop(self.permit.take());
        let ReadingUser { user, shares } = &self.reader;
        let mut users = shares.users();
        // While the map is held nobody comes, and of two that go one is the last.
        drop(self.share.take());
        if users
            .get(user)
            .is_some_and(|share| Arc::strong_count(share) == 1)
        {
            users.remove(user);
        }
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
        assert!(shares.users().is_empty(), "nobody is remembered");
        assert!(
            UserReadPermit::wait().await.is_none(),
            "what is read for nobody has no bound of its own"
        );
    }
}
