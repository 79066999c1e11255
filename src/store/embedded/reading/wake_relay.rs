//! Wake relay: wakes tasks from other threads through the I/O driver of the runtime.
//!
//! A wake from a thread that is no worker makes the woken worker wake a second one, which looks for
//! more work. On an idle server it finds none, and costs a third of a page. A wake through the driver
//! reaches one worker. The relay is used only while every worker is parked: otherwise a second worker
//! may be of use, and the driver may be polled late.

use std::future::poll_fn;
use std::io::{self, PipeWriter, Write as _};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;
use tokio::net::unix::pipe;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task;

use crate::workers::Workers;

/// `None` on a runtime without a second worker.
pub(in crate::store::embedded) struct WakeRelay(Option<Arc<Relay>>);

struct Relay {
    workers: Workers,
    queue: Mutex<Vec<Waker>>,
    /// Holds a byte while the queue holds wakers that no receiver has taken.
    signal: PipeWriter,
}

impl WakeRelay {
    /// Starts a relay on the runtime of the caller.
    pub(in crate::store::embedded) fn start() -> Self {
        let runtime = Handle::current();
        let workers = Workers::of(&runtime);
        if runtime.runtime_flavor() != RuntimeFlavor::MultiThread || workers.count() < 2 {
            return Self(None);
        }
        let relay = Relay::start(&runtime, workers).inspect_err(|error| {
            tracing::debug!(%error, "the store has no pipe, and wakes its readers at a higher cost");
        });
        Self(relay.ok())
    }

    /// Awaits a future that another thread completes.
    pub(in crate::store::embedded) async fn wait<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| match &self.0 {
            // A future outside a task runs on a thread of its own, and its wake reaches no worker.
            Some(relay) if task::try_id().is_some() => {
                let waker = Waker::from(Arc::new(RelayedWaker {
                    relay: Arc::clone(relay),
                    task: cx.waker().clone(),
                }));
                future.as_mut().poll(&mut Context::from_waker(&waker))
            }
            Some(_) | None => future.as_mut().poll(cx),
        })
        .await
    }
}

struct RelayedWaker {
    relay: Arc<Relay>,
    task: Waker,
}

impl Wake for RelayedWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.relay.is_idle() {
            self.relay.queue(self.task.clone());
        } else {
            self.task.wake_by_ref();
        }
    }
}

impl Relay {
    fn start(runtime: &Handle, workers: Workers) -> io::Result<Arc<Self>> {
        let (signals, signal) = io::pipe()?;
        let signals = pipe::Receiver::from_owned_fd(signals.into())?;
        let relay = Arc::new(Self {
            workers,
            queue: Mutex::default(),
            signal,
        });
        let receiver = Receiver {
            signals: Some(signals),
            relay: Arc::downgrade(&relay),
        };
        runtime.spawn(receiver.run());
        Ok(relay)
    }

    /// Whether every worker is parked.
    fn is_idle(&self) -> bool {
        self.workers.at_work().next().is_none()
    }

    fn queue(&self, task: Waker) {
        let is_first = {
            let mut queue = self.queue.lock();
            queue.push(task);
            queue.len() == 1
        };
        // The pipe refuses the byte once the receiver is gone.
        if is_first && (&self.signal).write_all(&[0]).is_err() {
            self.wake_queued();
        }
    }

    fn wake_queued(&self) {
        let queued = std::mem::take(&mut *self.queue.lock());
        queued.into_iter().for_each(Waker::wake);
    }
}

/// Receiver of signals. It ends with the relay or the runtime.
struct Receiver {
    /// `None` while the receiver is dropped.
    signals: Option<pipe::Receiver>,
    relay: Weak<Relay>,
}

impl Receiver {
    async fn run(self) {
        let Some(signals) = &self.signals else {
            return;
        };
        loop {
            if signals.readable().await.is_err() {
                return;
            }
            match signals.try_read(&mut [0; 16]) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                // No writer is left, or the pipe fails.
                Ok(0) | Err(_) => return,
            }
            let Some(relay) = self.relay.upgrade() else {
                return;
            };
            relay.wake_queued();
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // In this order no waker is left behind: a later signal fails, and wakes by itself.
        self.signals = None;
        if let Some(relay) = self.relay.upgrade() {
            relay.wake_queued();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    /// A value that another thread sends after a while.
    fn from_a_thread(number: usize) -> oneshot::Receiver<usize> {
        let (sender, receiver) = oneshot::channel();
        thread::spawn(move || {
            thread::sleep(Duration::from_micros(number as u64 % 7 * 100));
            let _ = sender.send(number);
        });
        receiver
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_wake_arrives_from_one_thread_and_from_many_at_once() {
        let relay = Arc::new(WakeRelay::start());
        assert!(relay.0.is_some());
        for at_once in [1, 1, 1, 64, 1, 64] {
            let waiting: Vec<_> = (0..at_once)
                .map(|number| {
                    let relay = Arc::clone(&relay);
                    tokio::spawn(async move { relay.wait(from_a_thread(number)).await })
                })
                .collect();
            for (number, waiting) in waiting.into_iter().enumerate() {
                assert_eq!(waiting.await.unwrap(), Ok(number));
            }
        }
    }

    #[tokio::test]
    async fn a_runtime_of_one_thread_needs_no_relay() {
        let relay = WakeRelay::start();
        assert!(relay.0.is_none());
        assert_eq!(relay.wait(from_a_thread(3)).await, Ok(3));
    }

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_relay_whose_runtime_has_ended_wakes_by_itself() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let relay = runtime.block_on(async { WakeRelay::start().0.unwrap() });
        runtime.shutdown_timeout(Duration::from_secs(5));
        let flag = Arc::new(Flag::default());
        relay.queue(Arc::clone(&flag).into());
        assert!(flag.0.load(Ordering::SeqCst));
    }
}
