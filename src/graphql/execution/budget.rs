//! Byte budget of one answer, and the byte account of one user.
//!
//! An execution charges its budget as it produces text, and stops once the budget is spent: an
//! answer over its bound is never produced in full. The answers of one user share an account. Their
//! bytes stay charged until the server drops the budget, after it has written the last byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::task::Waker;

use async_graphql::ServerError;
use parking_lot::Mutex;

use crate::graphql::cursor::{CursorEncoder, ResumePosition};
use crate::graphql::error::Error;

/// Default bound of one answer, in bytes.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Bound that an answer exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exceeded {
    /// Bound of one answer.
    Answer,
    /// Bound of all unfinished answers of the user.
    User,
}

/// Budget of one answer, or of one event of a subscription.
pub struct AnswerBudget {
    bytes_max: usize,
    spent: AtomicUsize,
    /// 0 if no bound is exceeded, else 1 + an [`Exceeded`].
    exceeded: AtomicU8,
    charged: AtomicUsize,
    account: Option<Arc<AnswerAccount>>,
    /// Current event of a subscription.
    event: Mutex<EventPosition>,
}

#[derive(Default)]
struct EventPosition {
    cursors: Option<CursorEncoder>,
    position: Option<ResumePosition>,
}

impl Default for AnswerBudget {
    fn default() -> Self {
        Self::new(ANSWER_BYTES_MAX)
    }
}

impl AnswerBudget {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            spent: AtomicUsize::new(0),
            exceeded: AtomicU8::new(0),
            charged: AtomicUsize::new(0),
            account: None,
            event: Mutex::default(),
        }
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The exceeded bound in bytes.
    pub fn bound(&self, exceeded: Exceeded) -> usize {
        match (exceeded, &self.account) {
            (Exceeded::User, Some(account)) => account.bytes_max,
            (Exceeded::Answer, _) | (Exceeded::User, None) => self.bytes_max,
        }
    }

    /// Bytes charged so far.
    pub fn spent(&self) -> usize {
        self.spent.load(Ordering::Relaxed)
    }

    pub fn exceeded(&self) -> Option<Exceeded> {
        match self.exceeded.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Exceeded::Answer),
            _ => Some(Exceeded::User),
        }
    }

    /// Charges bytes of new text. After the first error every charge fails, until the budget is
    /// rewound.
    pub fn spend(&self, bytes: usize) -> Result<(), Exceeded> {
        if let Some(exceeded) = self.exceeded() {
            return Err(exceeded);
        }
        let spent = self
            .spent
            .fetch_add(bytes, Ordering::Relaxed)
            .saturating_add(bytes);
        if spent > self.bytes_max {
            self.exceed(Exceeded::Answer);
            return Err(Exceeded::Answer);
        }
        let Some(account) = &self.account else {
            return Ok(());
        };
        if !account.charge(bytes) {
            self.exceed(Exceeded::User);
            return Err(Exceeded::User);
        }
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Charges the rest of the complete text, beyond the bytes charged during its production.
    pub fn settle(&self, bytes: usize) -> Result<(), Exceeded> {
        self.spend(bytes.saturating_sub(self.spent()))
    }

    pub(in crate::graphql) fn exceed(&self, exceeded: Exceeded) {
        self.exceeded.store(1 + exceeded as u8, Ordering::Relaxed);
    }

    /// Releases everything above this mark, for the next answer or event. The released text was
    /// dropped, or is charged elsewhere.
    pub fn rewind(&self, spent: usize) {
        let before = self.spent.swap(spent, Ordering::Relaxed);
        self.exceeded.store(0, Ordering::Relaxed);
        if let Some(account) = &self.account {
            let kept = self.charged.load(Ordering::Relaxed).min(spent);
            let freed = self
                .charged
                .swap(kept, Ordering::Relaxed)
                .saturating_sub(kept);
            debug_assert!(freed <= before, "no more is charged than was spent");
            account.release(freed);
        }
    }

    /// Sets the list whose cursors resume the subscription.
    pub(in crate::graphql) fn track(&self, cursors: CursorEncoder) {
        self.event.lock().cursors = Some(cursors);
    }

    /// Sets the position of the current event.
    pub(in crate::graphql) fn pass(&self, position: impl Into<ResumePosition>) {
        self.event.lock().position = Some(position.into());
    }

    /// Cursor that resumes the subscription after the current event.
    pub fn event_cursor(&self) -> Option<String> {
        let event = self.event.lock();
        Some(event.cursors.as_ref()?.at(event.position.as_ref()?))
    }
}

impl Drop for AnswerBudget {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.release(*self.charged.get_mut());
            account.answers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl From<Exceeded> for ServerError {
    /// The server replaces this error by its own answer.
    fn from(_: Exceeded) -> Self {
        Error::answer_too_large().into()
    }
}

/// Account of one user: the unfinished answers, and the bytes of these and of events.
pub struct AnswerAccount {
    answers: AtomicUsize,
    answers_max: usize,
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Wakers of subscriptions that wait for room.
    waiting: Mutex<Vec<Waker>>,
}

impl AnswerAccount {
    pub fn new(answers_max: usize, bytes_max: usize) -> Self {
        Self {
            answers: AtomicUsize::new(0),
            answers_max,
            bytes: AtomicUsize::new(0),
            bytes_max,
            waiting: Mutex::default(),
        }
    }

    /// Budget of one more answer, which counts until the budget is dropped. `None` if too many are unfinished.
    pub fn admit(self: &Arc<Self>, bytes_max: usize) -> Option<AnswerBudget> {
        let more = |answers: usize| (answers < self.answers_max).then_some(answers + 1);
        self.answers
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        let mut budget = AnswerBudget::new(bytes_max);
        budget.account = Some(Arc::clone(self));
        Some(budget)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    fn charge(&self, bytes: usize) -> bool {
        let is_over = self
            .bytes
            .fetch_add(bytes, Ordering::AcqRel)
            .saturating_add(bytes)
            > self.bytes_max;
        if is_over {
            self.release(bytes);
        }
        !is_over
    }

    fn release(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if before >= self.bytes_max && bytes > 0 {
            self.waiting.lock().drain(..).for_each(Waker::wake);
        }
    }

    /// Charges the bytes of an executed event, even beyond the bound: an executed event is not
    /// refused.
    pub fn hold(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        HeldBytes {
            account: Arc::clone(self),
            bytes,
        }
    }

    /// Whether the account has room for another event. If not, registers the waker for the next
    /// release.
    pub fn has_room(&self, waker: &Waker) -> bool {
        let has_room = || self.bytes.load(Ordering::Acquire) < self.bytes_max;
        if has_room() {
            return true;
        }
        let mut waiting = self.waiting.lock();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        drop(waiting);
        // Checks again, as a release before the registration woke no waker.
        has_room()
    }
}

/// Bytes charged to an account until the guard is dropped.
pub struct HeldBytes {
    account: Arc<AnswerAccount>,
    bytes: usize,
}

impl HeldBytes {
    /// Charges this many bytes instead.
    pub fn set(&mut self, bytes: usize) {
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            self.account.bytes.fetch_add(more, Ordering::AcqRel);
        } else if bytes < self.bytes {
            self.account.release(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.account.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::task::Wake;

    use super::*;

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_budget_ends_with_its_answer_or_with_its_account() {
        let account = Arc::new(AnswerAccount::new(2, 10));
        let first = account.admit(8).unwrap();
        assert_eq!(first.spend(8), Ok(()));
        assert_eq!(first.spend(1), Err(Exceeded::Answer));
        assert_eq!(
            (first.exceeded(), account.bytes()),
            (Some(Exceeded::Answer), 8)
        );
        let second = account.admit(8).unwrap();
        assert!(account.admit(8).is_none());
        assert_eq!(second.spend(3), Err(Exceeded::User));
        drop(first);
        assert_eq!((second.spend(1), account.bytes()), (Err(Exceeded::User), 0));
        second.rewind(0);
        assert_eq!((second.settle(8), account.bytes()), (Ok(()), 8));
        second.rewind(3);
        assert_eq!(
            (second.exceeded(), second.spent(), account.bytes()),
            (None, 3, 3)
        );
        drop(second);
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn a_release_wakes_an_event_that_waits_for_room() {
        let account = Arc::new(AnswerAccount::new(1, 10));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        let held = account.hold(25);
        let small = account.hold(1);
        assert!(!account.has_room(&waker));
        drop(small);
        drop(held);
        assert!(woken.0.load(Ordering::Relaxed) && account.has_room(&waker));
    }

    #[test]
    fn held_bytes_follow_the_bytes_that_wait() {
        let account = Arc::new(AnswerAccount::new(1, 10));
        let mut held = account.hold(0);
        for bytes in [7, 12, 3] {
            held.set(bytes);
            assert_eq!(account.bytes(), bytes);
        }
        drop(held);
        assert_eq!(account.bytes(), 0);
    }
}
