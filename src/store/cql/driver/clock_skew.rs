//! Whether this server's clock goes with the cluster's: the order at the seam of two servers rests on it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use scylla::value::CqlTimeuuid;
use tokio::task::AbortHandle;

use super::statement::statements;
use super::value::{cells, time_uuid};
use crate::store::Result;
use crate::store::cql::Inner;

const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Further off, and this server is not ready: streams look back so far on both sides of what may come late.
const SKEW_MAX_MICROS: i64 = 2_000_000;
/// An answer that took longer says nothing of the time.
const ANSWER_MAX_MICROS: i64 = 1_000_000;

statements! {
    /// The statements of this file.
    Statements {
        now: Read "SELECT now() FROM system.local WHERE key = 'local'";
    }
}

/// What was seen last.
#[derive(Default)]
pub(crate) struct Skew {
    micros: AtomicI64,
}

impl Skew {
    /// `Err` says in one sentence what is wrong.
    pub(crate) fn health(&self) -> Result<(), String> {
        let micros = self.micros.load(Ordering::Relaxed);
        if micros.abs() <= SKEW_MAX_MICROS {
            return Ok(());
        }
        let (seconds, where_to) = (micros.abs() / 1_000_000, if micros > 0 { "ahead of" } else { "behind" });
        Err(format!("the clock of this server is {seconds} s {where_to} the cluster's"))
    }
}

/// Looks from time to time, as long as the store is there.
pub(crate) fn spawn(inner: &Arc<Inner>) -> AbortHandle {
    let inner = Arc::downgrade(inner);
    let task = tokio::spawn(async move {
        let mut next = tokio::time::interval(LOOK_EVERY);
        next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            next.tick().await;
            let Some(inner) = Weak::upgrade(&inner) else { return };
            inner.look_at_clock().await;
        }
    });
    task.abort_handle()
}

impl Inner {
    /// A cluster that does not answer is told of elsewhere.
    async fn look_at_clock(&self) {
        let before = self.clock.now();
        let Ok(Some((now,))) = self.cluster.read_one::<(CqlTimeuuid,)>(&self.statements.skew.now, cells![]).await else { return };
        let after = self.clock.now();
        let Ok(now) = time_uuid("system.local", now) else { return };
        if after.micros() - before.micros() > ANSWER_MAX_MICROS {
            return;
        }
        let skew = (before.micros() + after.micros()) / 2 - now.moment().micros();
        let was_well = self.skew.health().is_ok();
        self.skew.micros.store(skew, Ordering::Relaxed);
        match self.skew.health() {
            Err(reason) if was_well => tracing::error!(
                reason,
                "the server is not ready because its clock differs from the cluster's: synchronise the clock, for example with NTP"
            ),
            Ok(()) if !was_well => tracing::info!("the clock agrees with the cluster's again"),
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_far_off_is_not_ready() {
        let skew = Skew::default();
        assert_eq!(skew.health(), Ok(()));
        skew.micros.store(-1_900_000, Ordering::Relaxed);
        assert_eq!(skew.health(), Ok(()));
        skew.micros.store(-3_100_000, Ordering::Relaxed);
        assert_eq!(skew.health().unwrap_err(), "the clock of this server is 3 s behind the cluster's");
    }
}
