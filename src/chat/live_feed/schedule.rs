//! Schedule of the reads of one live message.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::{LiveKey, LiveView};

/// Interval of reads while the text grows, and while it does not.
const GROWING_EVERY: Duration = Duration::from_millis(250);
const READ_EVERY: Duration = Duration::from_secs(1);
/// Time after its last growth during which a text counts as growing.
const GROWING_FOR: Duration = Duration::from_secs(1);

/// Read for the viewers of a conversation.
#[derive(Debug)]
pub(crate) enum FeedRead {
    /// A live message that the feed does not have.
    Load(LiveKey),
    /// The rows after the text of this view, and the list of writers with the registers if they were read a while ago.
    Poll {
        view: Box<LiveView>,
        has_registers: bool,
    },
}

/// Source of a newer state of a live message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewsSource {
    /// A write on this server.
    Written,
    /// A read of the store. Where other servers announce each write, nothing is gained by reads in between.
    Read { are_reads_announced: bool },
}

#[derive(Debug)]
pub(super) struct ReadSchedule {
    /// `None` on a store of one server, and after a silence.
    next: Option<Instant>,
    /// Last read of the list of writers and the registers.
    registers_at: Option<Instant>,
    /// Last growth that a read has found.
    grew_at: Option<Instant>,
}

impl ReadSchedule {
    pub(super) fn new() -> Self {
        Self {
            next: None,
            registers_at: None,
            grew_at: None,
        }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Schedules the next read after news.
    pub(super) fn on_news(&mut self, source: NewsSource, has_grown: bool, is_shared: bool) {
        let now = Instant::now();
        let pause = match source {
            NewsSource::Written => READ_EVERY,
            NewsSource::Read {
                are_reads_announced,
            } => {
                if has_grown {
                    self.grew_at = Some(now);
                }
                let grows = self.grew_at.is_some_and(|at| now - at < GROWING_FOR);
                if grows && !are_reads_announced {
                    GROWING_EVERY
                } else {
                    READ_EVERY
                }
            }
        };
        self.next = is_shared.then(|| now + pause);
    }

    /// Reads everything at once.
    pub(super) fn wake(&mut self) {
        self.next = Some(Instant::now());
        self.registers_at = None;
    }

    /// Reads nothing until the next news.
    pub(super) fn rest(&mut self) {
        self.next = None;
    }

    /// Whether the due read has the registers. `None` if no read is due. A read that fails is repeated.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<bool> {
        self.next.filter(|next| *next <= now)?;
        self.next = Some(now + READ_EVERY);
        let is_old = self.registers_at.is_none_or(|at| now - at >= READ_EVERY);
        if is_old {
            self.registers_at = Some(now);
        }
        Some(is_old)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const READ: NewsSource = NewsSource::Read {
        are_reads_announced: false,
    };

    /// Moments of the reads in some seconds, in which the text grows up to one of them.
    async fn reads(seconds: u64, grows_for: Duration) -> (usize, usize) {
        let (began, mut schedule) = (Instant::now(), ReadSchedule::new());
        schedule.wake();
        let (mut reads, mut registers) = (0, 0);
        while began.elapsed() < Duration::from_secs(seconds) {
            if let Some(has_registers) = schedule.take_due(Instant::now()) {
                reads += 1;
                registers += usize::from(has_registers);
                schedule.on_news(READ, began.elapsed() < grows_for, true);
            }
            advance(Duration::from_millis(10)).await;
        }
        (reads, registers)
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_that_grows_is_read_four_times_a_second_and_its_registers_once() {
        assert_eq!(reads(10, Duration::from_secs(10)).await, (40, 10));
        assert_eq!(reads(10, Duration::ZERO).await, (10, 10));
        let (half, _) = reads(10, Duration::from_secs(5)).await;
        assert!((25..=29).contains(&half), "{half}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_here_defers_the_next_read() {
        let mut schedule = ReadSchedule::new();
        for _ in 0..40 {
            schedule.on_news(NewsSource::Written, true, true);
            advance(Duration::from_millis(250)).await;
            assert_eq!(schedule.take_due(Instant::now()), None);
        }
        advance(Duration::from_secs(1)).await;
        assert_eq!(schedule.take_due(Instant::now()), Some(true));
        schedule.on_news(NewsSource::Written, true, false);
        assert_eq!(schedule.next(), None, "a store of one server");
    }
}
