//! Gates of the parts of one task: a part is polled only after a wake of its own.
//!
//! Most wakes of a socket are for one event of one operation. A `SelectAll` polls no other source either, and allocates
//! for each event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

/// Gate of one part. It is open at first, and while the part is ready.
#[derive(Default)]
pub(super) struct WakeGate {
    /// `None` before the first poll.
    waker: Option<(Arc<GateWaker>, Waker)>,
}

struct GateWaker {
    is_open: AtomicBool,
    task: Waker,
}

impl GateWaker {
    /// Waker of an open gate.
    fn open(task: Waker) -> (Arc<Self>, Waker) {
        let gate = Arc::new(Self {
            is_open: AtomicBool::new(true),
            task,
        });
        let waker = Waker::from(Arc::clone(&gate));
        (gate, waker)
    }
}

impl Wake for GateWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // An open gate needs no wake: the task was woken when it opened, or polls the part.
        if !self.is_open.swap(true, Ordering::AcqRel) {
            self.task.wake_by_ref();
        }
    }
}

impl WakeGate {
    /// Polls the part if it was woken since it was pending last.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        part: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let is_known = |(gate, _): &(Arc<GateWaker>, Waker)| gate.task.will_wake(cx.waker());
        if !self.waker.as_ref().is_some_and(is_known) {
            self.waker = Some(GateWaker::open(cx.waker().clone()));
        }
        let (gate, waker) = self.waker.as_ref().expect("it was just set");
        let is_open =
            gate.is_open.load(Ordering::Relaxed) && gate.is_open.swap(false, Ordering::AcqRel);
        if !is_open {
            return Poll::Pending;
        }
        let polled = part(&mut Context::from_waker(waker));
        if polled.is_ready() {
            gate.is_open.store(true, Ordering::Release);
        }
        polled
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use futures_util::FutureExt as _;
    use futures_util::future::poll_fn;
    use tokio::sync::{Notify, mpsc};

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn task() -> (Arc<Wakes>, Waker) {
        let wakes = Arc::new(Wakes::default());
        (Arc::clone(&wakes), wakes.into())
    }

    #[test]
    fn a_part_is_polled_at_first_and_after_each_wake() {
        let (wakes, waker) = task();
        let mut cx = Context::from_waker(&waker);
        let mut gate = WakeGate::default();
        let mut parts = Vec::new();
        let mut poll = |gate: &mut WakeGate| {
            let polled = gate.poll(&mut cx, |cx| {
                parts.push(cx.waker().clone());
                Poll::<()>::Pending
            });
            assert!(polled.is_pending());
            parts.clone()
        };
        poll(&mut gate);
        let parts = poll(&mut gate);
        assert_eq!(parts.len(), 1, "nothing woke it");
        parts[0].wake_by_ref();
        parts[0].wake_by_ref();
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1, "one wake is enough");
        poll(&mut gate);
        assert_eq!(poll(&mut gate).len(), 2);
    }

    #[test]
    fn a_part_that_was_ready_is_polled_again_without_a_wake() {
        let (_, waker) = task();
        let mut cx = Context::from_waker(&waker);
        let mut gate = WakeGate::default();
        for _ in 0..3 {
            assert!(gate.poll(&mut cx, |_| Poll::Ready(())).is_ready());
        }
    }

    #[test]
    fn a_task_with_another_waker_polls_the_part_and_is_woken() {
        let notify = Notify::new();
        let mut notified = Box::pin(notify.notified());
        let mut gate = WakeGate::default();
        let tasks = [task(), task()];
        for (_, waker) in &tasks {
            let mut cx = Context::from_waker(waker);
            assert!(
                gate.poll(&mut cx, |cx| notified.poll_unpin(cx))
                    .is_pending()
            );
        }
        notify.notify_one();
        let woken = tasks.map(|(wakes, _)| wakes.0.load(Ordering::SeqCst));
        assert_eq!(woken, [0, 1]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_of_another_thread_is_lost() {
        let (sender, mut receiver) = mpsc::channel(1);
        let sending = thread::spawn(move || {
            (0..20_000).for_each(|number| sender.blocking_send(number).unwrap());
        });
        let received = tokio::spawn(async move {
            let mut gate = WakeGate::default();
            for number in 0..20_000 {
                let next = poll_fn(|cx| gate.poll(cx, |cx| receiver.poll_recv(cx))).await;
                assert_eq!(next, Some(number));
            }
        });
        received.await.unwrap();
        sending.join().unwrap();
    }
}
