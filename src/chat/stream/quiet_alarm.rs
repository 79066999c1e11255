//! Alarm of a quiet stream.
//!
//! A delivery only notes its time: a timer that moved with each would enter the runtime's list of timers for each.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep};

use super::POSITION_INTERVAL;

pub(super) struct QuietAlarm {
    quiet_since: Instant,
    /// Rings when the interval after an earlier delivery is over.
    timer: Pin<Box<Sleep>>,
}

impl QuietAlarm {
    pub(super) fn new() -> Self {
        Self {
            quiet_since: Instant::now(),
            timer: Box::pin(sleep(POSITION_INTERVAL)),
        }
    }

    pub(super) fn record_delivery(&mut self) {
        self.quiet_since = Instant::now();
    }

    /// Waits until the stream has delivered nothing for [`POSITION_INTERVAL`].
    pub(super) async fn wait(&mut self) {
        loop {
            self.timer.as_mut().await;
            let until = self.quiet_since + POSITION_INTERVAL;
            if until <= Instant::now() {
                return;
            }
            self.timer.as_mut().reset(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_rings_an_interval_after_the_last_delivery() {
        let start = Instant::now();
        let mut alarm = QuietAlarm::new();
        advance(Duration::from_secs(60)).await;
        alarm.record_delivery();
        alarm.wait().await;
        assert_eq!(start.elapsed().as_secs(), 60 + POSITION_INTERVAL.as_secs());
        alarm.record_delivery();
        alarm.wait().await;
        let twice = 60 + 2 * POSITION_INTERVAL.as_secs();
        assert_eq!(start.elapsed().as_secs(), twice);
    }
}
