//! Switch of the outbox, as this server last read it.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::OUTBOX_SWITCH_AGE_MAX;

pub(super) struct OutboxSwitch {
    is_on: AtomicBool,
    /// Moment of the question that `is_on` answers.
    read_at: Mutex<Option<Instant>>,
}

impl OutboxSwitch {
    /// Off until it is read.
    pub(super) fn new() -> Self {
        Self {
            is_on: AtomicBool::new(false),
            read_at: Mutex::new(None),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Takes what a read has found that began at `asked_at`. A later reading, or a change since, stands.
    pub(super) fn set(&self, is_on: bool, asked_at: Instant) {
        let mut read_at = self.read_at.lock();
        if read_at.is_none_or(|known| known <= asked_at) {
            *read_at = Some(asked_at);
            self.is_on.store(is_on, Ordering::Relaxed);
        }
    }

    /// Counts as on, if it was not read for long: a row too many harms nobody, a missing one is an
    /// event that a service never receives.
    pub(super) fn doubt(&self) {
        let is_known = self
            .read_at
            .lock()
            .is_some_and(|read_at| read_at.elapsed() < OUTBOX_SWITCH_AGE_MAX);
        if !is_known {
            self.is_on.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_switch_that_cannot_be_read_is_on_before_long() {
        let switch = OutboxSwitch::new();
        assert!(!switch.is_on());
        switch.set(false, Instant::now());
        switch.doubt();
        assert!(!switch.is_on(), "it was read just now");
        tokio::time::advance(OUTBOX_SWITCH_AGE_MAX).await;
        switch.doubt();
        assert!(switch.is_on());
        switch.set(false, Instant::now());
        assert!(!switch.is_on());
        let never_read = OutboxSwitch::new();
        never_read.doubt();
        assert!(never_read.is_on());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_comes_late_ends_nothing_newer() {
        let switch = OutboxSwitch::new();
        let asked_at = Instant::now();
        tokio::time::advance(Duration::from_millis(1)).await;
        switch.set(true, Instant::now());
        switch.set(false, asked_at);
        assert!(switch.is_on(), "it was switched on after the question");
        tokio::time::advance(Duration::from_millis(1)).await;
        switch.set(false, Instant::now());
        assert!(!switch.is_on());
    }
}
