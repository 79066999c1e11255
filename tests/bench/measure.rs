//! Time on the processor, and what many measurements of the same thing say together.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How long one waits for the engine's own work to end, and what still counts as quiet.
const IDLE_MAX: Duration = Duration::from_secs(60);
const IDLE_LOOK: Duration = Duration::from_millis(250);
const IDLE_MICROS: f64 = 5_000.0;

/// CPU time of all threads of this process so far, user and kernel.
pub fn cpu_micros() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Waits until this process has nothing to do: what was loaded is flushed and compacted, as far as the engine wants to.
pub async fn idle() {
    idle_by(cpu_micros).await;
}

/// Waits until a process has nothing to do, by its CPU time so far.
pub async fn idle_by(cpu_micros: impl Fn() -> f64) {
    let start = Instant::now();
    let mut quiet = 0;
    while quiet < 3 {
        let before = cpu_micros();
        tokio::time::sleep(IDLE_LOOK).await;
        quiet = if cpu_micros() - before < IDLE_MICROS {
            quiet + 1
        } else {
            0
        };
        if start.elapsed() > IDLE_MAX {
            println!(
                "(the store was still at work after {} s)",
                IDLE_MAX.as_secs()
            );
            return;
        }
    }
}

/// Measurements of one thing.
#[derive(Debug, Default, Clone)]
pub struct Spread(Vec<f64>);

impl Spread {
    pub fn push(&mut self, value: f64) {
        let place = self.0.partition_point(|other| *other < value);
        self.0.insert(place, value);
    }

    pub fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len().checked_sub(1).expect("something was measured");
        self.0[(last as f64 * share).round() as usize]
    }
}
