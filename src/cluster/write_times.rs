//! Write timestamps of the directory: one ascending counter of the process.
//!
//! A registration and the removal that follows it may be sent to two coordinators whose clocks
//! differ. With timestamps of one counter the later one wins at every replica, whatever the order
//! of arrival.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::store::cluster::WriteTime;

pub(super) struct WriteTimes {
    clock: Arc<dyn Clock>,
    last: Mutex<i64>,
}

impl WriteTimes {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            last: Mutex::new(0),
        }
    }

    /// The time now, and later than every one before.
    pub(super) fn next(&self) -> WriteTime {
        let mut last = self.last.lock();
        *last = self.clock.now().micros().max(*last + 1);
        WriteTime(*last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::model::Timestamp;

    #[test]
    fn times_ascend_while_the_clock_stands_or_steps_back() {
        let clock = Arc::new(ManualClock::at(Timestamp::from_micros(1_000)));
        let times = WriteTimes::new(clock.clone());
        assert_eq!(times.next(), WriteTime(1_000));
        assert_eq!(times.next(), WriteTime(1_001));
        clock.set(Timestamp::from_micros(10));
        assert_eq!(times.next(), WriteTime(1_002));
        clock.set(Timestamp::from_micros(5_000));
        assert_eq!(times.next(), WriteTime(5_000));
    }
}
