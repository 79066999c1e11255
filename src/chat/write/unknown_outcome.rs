//! Writes of unknown outcome on a shared store: they are repeated until the outcome is known.
//!
//! A cursor may pass an id only when no smaller id of that conversation can still become visible.
//! So the queue of a conversation does not go on before a write of unknown outcome has been
//! repeated with success.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::chat::in_flight_ids::IdLease;
use crate::chat::publisher::PUBLISHED_FOR;
use crate::store;

/// Deadline of the repetitions. Most outages end earlier. Servers publish no write that becomes
/// visible later, though it is in the history. Clients wait for less: their write has an unknown
/// outcome, and the writes behind it in the queue are not done.
const RETRY_DEADLINE: Duration = Duration::from_secs(10 * 60);
const _: () = assert!(RETRY_DEADLINE.as_secs() < PUBLISHED_FOR.as_secs());
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// A cluster that comes back is met by few repetitions at once.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(15);

/// Number of writes whose outcome is unknown, and which are being repeated.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnsettledWrites(Arc<AtomicUsize>);

struct UnsettledWrite<'a>(&'a UnsettledWrites);

impl UnsettledWrites {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self) -> UnsettledWrite<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        UnsettledWrite(self)
    }
}

impl Drop for UnsettledWrite<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Writes, and on a shared store repeats a write of unknown outcome, with the same ids, until the
/// outcome is known.
pub(crate) async fn retry_until_known<T, F>(
    unsettled: &UnsettledWrites,
    lease: IdLease,
    write: impl Fn() -> F,
) -> store::Result<(IdLease, T)>
where
    F: Future<Output = store::Result<T>>,
{
    let first = write().await;
    if !lease.is_shared() {
        return lease.if_persisted(first);
    }
    let Err(mut error @ store::Error::OutcomeUnknown(_)) = first else {
        return first.map(|written| (lease, written));
    };
    let _unsettled = unsettled.add();
    let deadline = Instant::now() + RETRY_DEADLINE;
    let mut pause = RETRY_PAUSE;
    while Instant::now() < deadline {
        tokio::time::sleep(with_jitter(pause)).await;
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
        match write().await {
            Ok(written) => return Ok((lease, written)),
            // A repetition that was certainly not done leaves the outcome of the first write
            // unknown.
            Err(again @ (store::Error::OutcomeUnknown(_) | store::Error::Unavailable(_))) => {
                error = again;
            }
            Err(corrupt @ store::Error::Corrupt { .. }) => return Err(corrupt),
        }
    }
    tracing::warn!(%error, "the store did not confirm a write within its retries; the outcome stays unknown");
    let (store::Error::OutcomeUnknown(cause)
    | store::Error::Unavailable(cause)
    | store::Error::Corrupt { cause, .. }) = error;
    Err(store::Error::OutcomeUnknown(cause))
}

/// Exponential backoff with jitter: from half of a pause to all of it, so that writes that failed
/// together are not repeated together.
fn with_jitter(pause: Duration) -> Duration {
    let [.., random] = *Uuid::new_v4().as_bytes();
    pause.mul_f64(0.5 + f64::from(random) / 512.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_differ_and_keep_their_bound() {
        let pauses: Vec<_> = (0..100).map(|_| with_jitter(RETRY_PAUSE_MAX)).collect();
        assert!(pauses.iter().all(|pause| *pause <= RETRY_PAUSE_MAX));
        assert!(pauses.iter().all(|pause| *pause >= RETRY_PAUSE_MAX / 2));
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }
}
