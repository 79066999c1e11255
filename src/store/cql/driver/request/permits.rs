//! RequestPermits: the bound on the requests of this server that are in flight, with a reserve for
//! writes.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::metrics::RequestMetrics;
use crate::store::Result;
use crate::store::cql::driver::error::unavailable;
use crate::store::read_permit::UserReadPermit;

/// Requests of this server in flight. The driver itself would accept any number.
pub(super) const IN_FLIGHT_MAX: usize = 1_024;
/// Reads that answer users in flight. What is left is a reserve for sends, with the reads that they
/// make, and for what the servers tell each other.
const QUERIES_MAX: usize = IN_FLIGHT_MAX / 4 * 3;
/// How long a request waits for its permit.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(2);
/// How long a read waits for the other reads of its user.
const USER_PERMIT_WAIT_MAX: Duration = Duration::from_secs(5);

pub(crate) struct RequestPermits {
    all: Semaphore,
    queries: Semaphore,
}

/// Permit for one request, returned on drop.
pub(crate) struct RequestPermit<'a> {
    _one: SemaphorePermit<'a>,
    _query: Option<SemaphorePermit<'a>>,
    _user: Option<UserReadPermit>,
}

impl RequestPermits {
    pub(crate) fn new() -> Self {
        Self {
            all: Semaphore::new(IN_FLIGHT_MAX),
            queries: Semaphore::new(QUERIES_MAX),
        }
    }

    /// Waits for a permit of a read. A user with many reads waits for those alone, and holds no
    /// other permit meanwhile.
    pub(crate) async fn read(&self, metrics: &RequestMetrics) -> Result<RequestPermit<'_>> {
        let user = tokio::time::timeout(USER_PERMIT_WAIT_MAX, UserReadPermit::wait())
            .await
            .map_err(|_| unavailable("too many reads of the user are in flight"))?;
        let query = match &user {
            Some(_) => Some(acquire(&self.queries, metrics).await?),
            None => None,
        };
        Ok(RequestPermit {
            _one: acquire(&self.all, metrics).await?,
            _query: query,
            _user: user,
        })
    }

    pub(crate) async fn write(&self, metrics: &RequestMetrics) -> Result<RequestPermit<'_>> {
        Ok(RequestPermit {
            _one: acquire(&self.all, metrics).await?,
            _query: None,
            _user: None,
        })
    }

    /// Refuses every request from now on.
    pub(crate) fn close(&self) {
        self.all.close();
        self.queries.close();
    }
}

async fn acquire<'a>(
    permits: &'a Semaphore,
    metrics: &RequestMetrics,
) -> Result<SemaphorePermit<'a>> {
    let permit = tokio::time::timeout(PERMIT_WAIT_MAX, permits.acquire()).await;
    permit
        .map_err(|_| {
            metrics.refused_permits.inc();
            unavailable("too many requests to the cluster are in flight")
        })?
        .map_err(unavailable)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::model::UserId;
    use crate::store::read_permit::ReadShares;

    #[tokio::test]
    async fn reads_of_users_leave_a_reserve_for_sends() {
        let (permits, metrics) = (RequestPermits::new(), RequestMetrics::default());
        let shares = ReadShares::new(IN_FLIGHT_MAX);
        let alice = UserId::parse("alice").unwrap();
        let mut held = Vec::new();
        for _ in 0..QUERIES_MAX {
            held.push(
                shares
                    .reading_for(&alice, permits.read(&metrics))
                    .await
                    .unwrap(),
            );
        }
        let mut next = Box::pin(shares.reading_for(&alice, permits.read(&metrics)));
        assert!((&mut next).now_or_never().is_none(), "its share is taken");
        for _ in QUERIES_MAX..IN_FLIGHT_MAX - 1 {
            held.push(permits.write(&metrics).await.unwrap());
        }
        held.push(permits.read(&metrics).await.unwrap());
        assert!(permits.write(&metrics).now_or_never().is_none());
        held.remove(0);
        assert!(next.await.is_ok());
    }
}
