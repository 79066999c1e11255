//! Writes of unknown outcome on a shared store: they are repeated until the outcome is known.
//!
//! A cursor may pass an id only when no smaller id of that conversation can still become visible.
//! So the queue of a conversation does not go on before a write of unknown outcome has been
//! repeated with success.

use std::time::Duration;

use tokio::time::Instant;

use crate::chat::in_flight_ids::IdLease;
use crate::store;

/// Deadline of the repetitions. Most outages end earlier. Servers publish no write that becomes
/// visible later, though it is in the history. Clients wait for less: their write has an unknown
/// outcome, and the writes behind it in the queue are not done.
const RETRY_DEADLINE: Duration = Duration::from_secs(10 * 60);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(1);
/// Writes, and on a shared store repeats a write of unknown outcome, with the same ids, until the
/// outcome is known.
pub(crate) async fn retry_until_known<T, F>(
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
    let deadline = Instant::now() + RETRY_DEADLINE;
    let mut pause = RETRY_PAUSE;
    while Instant::now() < deadline {
        tokio::time::sleep(pause).await;
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
