//! Clock skew: how far this server's clock differs from the cluster's. Late events of several servers are bounded by it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use scylla::value::CqlTimeuuid;
use tokio::task::AbortHandle;

use super::executor::Executor;
use super::statement::statements;
use super::value::{time_uuid, values};
use crate::clock::Clock;

const MEASURE_EVERY: Duration = Duration::from_secs(5);
/// A server whose clock differs by more is not ready. Streams look back far enough for two servers that differ by this much.
const SKEW_MAX_MICROS: i64 = 2_000_000;
/// A slower answer says nothing about the time.
const ANSWER_MAX_MICROS: i64 = 1_000_000;

statements! {
    SELECT_NOW: Read "SELECT now() FROM system.local WHERE key = 'local'";
}

/// Background task that measures the skew, stopped on drop.
pub(crate) struct ClockSkewTask {
    skew: Arc<ClockSkew>,
    task: AbortHandle,
}

impl ClockSkewTask {
    pub(crate) fn spawn(executor: Arc<Executor>, clock: Arc<dyn Clock>) -> Self {
        let skew = Arc::new(ClockSkew::default());
        let measured = Arc::clone(&skew);
        let task = tokio::spawn(async move {
            let mut next = tokio::time::interval(MEASURE_EVERY);
            next.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                next.tick().await;
                measured.measure(&executor, &*clock).await;
            }
        });
        Self {
            skew,
            task: task.abort_handle(),
        }
    }

    /// `Err` says in one sentence what is wrong.
    pub(crate) fn health(&self) -> Result<(), String> {
        self.skew.health()
    }
}

impl Drop for ClockSkewTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The skew as last measured.
#[derive(Default)]
struct ClockSkew {
    micros: AtomicI64,
}

impl ClockSkew {
    fn health(&self) -> Result<(), String> {
        let micros = self.micros.load(Ordering::Relaxed);
        if micros.abs() <= SKEW_MAX_MICROS {
            return Ok(());
        }
        let (seconds, direction) = (
            micros.abs() / 1_000_000,
            if micros > 0 { "ahead of" } else { "behind" },
        );
        Err(format!(
            "the clock of this server is {seconds} s {direction} the cluster's"
        ))
    }

    /// Measures once. A cluster that does not answer is reported by the requests of users.
    async fn measure(&self, executor: &Executor, clock: &dyn Clock) {
        let before = clock.now();
        let Ok(Some((now,))) = executor
            .read_one::<(CqlTimeuuid,)>(&SELECT_NOW, values![])
            .await
        else {
            return;
        };
        let after = clock.now();
        let Ok(now) = time_uuid("system.local", now) else {
            return;
        };
        if after.micros() - before.micros() > ANSWER_MAX_MICROS {
            return;
        }
        let skew = (before.micros() + after.micros()) / 2 - now.moment().micros();
        let was_healthy = self.health().is_ok();
        self.micros.store(skew, Ordering::Relaxed);
        match self.health() {
            Err(reason) if was_healthy => tracing::error!(
                reason,
                "the server is not ready because its clock differs from the cluster's: synchronise the clock, for example with NTP"
            ),
            Ok(()) if !was_healthy => tracing::info!("the clock agrees with the cluster's again"),
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_far_off_is_not_ready() {
        let skew = ClockSkew::default();
        assert_eq!(skew.health(), Ok(()));
        skew.micros.store(-1_900_000, Ordering::Relaxed);
        assert_eq!(skew.health(), Ok(()));
        skew.micros.store(-3_100_000, Ordering::Relaxed);
        assert_eq!(
            skew.health().unwrap_err(),
            "the clock of this server is 3 s behind the cluster's"
        );
    }
}
