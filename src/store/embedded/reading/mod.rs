//! Reads outside the runtime's workers: the threads that read, and the wakes of the tasks that wait for them.

mod threads;
mod wake_relay;

pub(super) use self::threads::{Panicked, ReadThreads};
pub(super) use self::wake_relay::WakeRelay;
