//! Workers of the runtime, and which of them are at work.

use tokio::runtime::{Handle, RuntimeMetrics};

pub struct Workers(RuntimeMetrics);

impl Workers {
    pub fn of(runtime: &Handle) -> Self {
        Self(runtime.metrics())
    }

    pub fn count(&self) -> usize {
        self.0.num_workers()
    }

    /// Numbers of the workers that are not parked. A worker's count of parks and unparks is even then.
    pub fn at_work(&self) -> impl Iterator<Item = usize> {
        (0..self.count())
            .filter(|worker| self.0.worker_park_unpark_count(*worker).is_multiple_of(2))
    }
}
