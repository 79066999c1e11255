//! Turns of a task: a part that wakes the task while it is polled is polled again at once.
//!
//! Otherwise the task yields to the runtime, which wakes a second worker for it. On an idle server that
//! worker finds nothing: the body of a request and the loaders of its fields did so, for a third of
//! the cost of a page. While another worker is at work the task yields: nobody is woken for it, and
//! writes that wait meanwhile share a commit.

use std::cell::{OnceCell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;

use crate::workers::Workers;

/// Turns within one poll of the task. Loaders take two each, for every level of an answer.
const TURNS_MAX: usize = 16;

thread_local! {
    /// Wakers of the parts that wait for their next turn; `None` outside [`in_turns`].
    static WAITING_PARTS: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
    /// Workers of the runtime that this thread belongs to.
    static WORKERS: OnceCell<Workers> = const { OnceCell::new() };
}

const WAITING: u8 = 0;
const POLLING: u8 = 1;
/// Polling, and woken since.
const WOKEN: u8 = 2;

/// Waker of the parts. While they are polled it asks for another turn, otherwise it wakes the task.
struct TurnWaker {
    state: AtomicU8,
    task: Waker,
}

impl Wake for TurnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let woken =
            self.state
                .compare_exchange(POLLING, WOKEN, Ordering::AcqRel, Ordering::Acquire);
        if woken == Err(WAITING) {
            self.task.wake_by_ref();
        }
    }
}

/// Poll of one turn. It may lie within that of another [`in_turns`].
struct TurnScope {
    outer: Option<Vec<Waker>>,
}

impl TurnScope {
    fn enter() -> Self {
        Self {
            outer: WAITING_PARTS.replace(Some(Vec::new())),
        }
    }

    /// Ends the poll. Returns the wakers of the parts that wait.
    fn leave(self) -> Vec<Waker> {
        WAITING_PARTS.take().unwrap_or_default()
    }
}

impl Drop for TurnScope {
    fn drop(&mut self) {
        WAITING_PARTS.set(self.outer.take());
    }
}

/// Runs a future whose parts may wait for each other with [`turn`].
pub async fn in_turns<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut waker: Option<Arc<TurnWaker>> = None;
    poll_fn(|cx| {
        if waker
            .as_ref()
            .is_none_or(|waker| !waker.task.will_wake(cx.waker()))
        {
            waker = Some(Arc::new(TurnWaker {
                state: AtomicU8::new(WAITING),
                task: cx.waker().clone(),
            }));
        }
        let turns = waker.as_ref().expect("it was just set");
        let parts = Waker::from(Arc::clone(turns));
        for _ in 0..TURNS_MAX {
            turns.state.store(POLLING, Ordering::Release);
            let scope = TurnScope::enter();
            let polled = future.as_mut().poll(&mut Context::from_waker(&parts));
            scope.leave().into_iter().for_each(Waker::wake);
            let before = turns.state.swap(WAITING, Ordering::AcqRel);
            if polled.is_ready() || before == POLLING {
                return polled;
            }
            if is_another_at_work() {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// Whether a second worker of the runtime is not parked.
fn is_another_at_work() -> bool {
    WORKERS.with(|known| {
        let Some(workers) = known.get().or_else(|| {
            let runtime = Handle::try_current().ok()?;
            Some(known.get_or_init(|| Workers::of(&runtime)))
        }) else {
            return false;
        };
        workers.at_work().nth(1).is_some()
    })
}

/// Waits until the other parts were polled. The wake comes after their polls: a part that wakes
/// itself would end the turn of those that a `FuturesUnordered` holds.
pub async fn turn() {
    let mut is_polled = false;
    poll_fn(|cx| {
        if is_polled {
            return Poll::Ready(());
        }
        is_polled = true;
        let waits = WAITING_PARTS
            .with_borrow_mut(|parts| parts.as_mut().map(|parts| parts.push(cx.waker().clone())));
        if waits.is_none() {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use tokio::sync::oneshot;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn turns_of_many_parts_need_no_wake_of_the_task() {
        let wakes = Arc::new(Count::default());
        let parts = (0..50).map(async |_| {
            turn().await;
            turn().await;
        });
        let mut execution = in_turns(join_all(parts.collect::<Vec<_>>())).boxed();
        let waker = Waker::from(Arc::clone(&wakes));
        let polled = execution.poll_unpin(&mut Context::from_waker(&waker));
        assert!(polled.is_ready());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_turn_within_another_future_of_turns_or_of_none_goes_on() {
        assert_eq!(in_turns(in_turns(turn())).now_or_never(), Some(()));
        let caught =
            std::panic::catch_unwind(|| in_turns(async { panic!("a defect") }).now_or_never());
        assert!(caught.is_err());
        let wakes = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut alone = turn().boxed();
        assert!(
            alone
                .poll_unpin(&mut Context::from_waker(&waker))
                .is_pending()
        );
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn endless_turns_leave_the_task_to_others() {
        let wakes = Arc::new(Count::default());
        let mut execution = in_turns(async {
            loop {
                turn().await;
            }
        })
        .boxed();
        let waker = Waker::from(Arc::clone(&wakes));
        let polled: Poll<()> = execution.poll_unpin(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        assert_eq!(wakes.0.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn turns_beside_a_worker_at_work_go_through_the_runtime() {
        let (at_work, is_at_work) = oneshot::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let work = tokio::spawn(async move {
            at_work.send(()).unwrap();
            ended.recv().unwrap();
        });
        is_at_work.await.unwrap();
        let asked = tokio::spawn(async move {
            let wakes = Arc::new(Count::default());
            let waker = Waker::from(Arc::clone(&wakes));
            let mut execution = in_turns(turn()).boxed();
            let polled = execution.poll_unpin(&mut Context::from_waker(&waker));
            end.send(()).unwrap();
            (polled.is_pending(), wakes.0.load(Ordering::SeqCst))
        });
        assert_eq!(asked.await.unwrap(), (true, 1));
        work.await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_wake_of_another_thread_is_lost() {
        for pause in 0..500 {
            let (sender, receiver) = oneshot::channel();
            thread::spawn(move || {
                thread::sleep(Duration::from_micros(pause % 50));
                let _ = sender.send(pause);
            });
            let execution = async {
                turn().await;
                receiver.await
            };
            assert_eq!(tokio::spawn(in_turns(execution)).await.unwrap(), Ok(pause));
        }
    }
}
