//! The end of the bus at which other servers are heard: what is to be said to them, what they said, and whether they can be heard at all.
//!
//! All of it may be lost at any time. Whoever loses something says so, and then the store is looked at.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

use super::signal::Signal;
use crate::model::Topic;

/// Signals that wait to be said, or to be heard.
const QUEUE_MAX: usize = 16_384;

/// Queues without words twice.
#[derive(Default)]
pub(super) struct Wire {
    outgoing: Queue,
    incoming: Queue,
    /// Topics that may have got their first listener, or lost their last.
    touched: Mutex<HashSet<Topic>>,
    pub(super) is_touched: Notify,
    is_up: AtomicBool,
    /// Something may have been missed.
    has_missed: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<(VecDeque<Signal>, HashSet<Signal>)>,
    has_more: Notify,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Signal>, HashSet<Signal>)> {
        self.waiting.lock().expect("no panic while holding signals")
    }

    /// False where there is no room.
    fn push(&self, signal: Signal) -> bool {
        let mut guard = self.lock();
        let (order, known) = &mut *guard;
        if order.len() >= QUEUE_MAX {
            return false;
        }
        // Coming and going, and typing and ceasing to, only count in their order.
        let is_state = matches!(signal, Signal::Typing(..) | Signal::Presence(..));
        if is_state || known.insert(signal.clone()) {
            order.push_back(signal);
            drop(guard);
            self.has_more.notify_one();
        }
        true
    }

    fn take(&self) -> Vec<Signal> {
        let mut guard = self.lock();
        guard.1.clear();
        guard.0.drain(..).collect()
    }

    async fn next(&self) -> Vec<Signal> {
        loop {
            let taken = self.take();
            if !taken.is_empty() {
                return taken;
            }
            self.has_more.notified().await;
        }
    }
}

impl Wire {
    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::SeqCst)
    }

    /// Whether others are heard from now on. Either way something may have been missed.
    pub(super) fn set_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::SeqCst);
        self.miss();
    }

    pub(super) fn miss(&self) {
        self.has_missed.store(true, Ordering::SeqCst);
        self.incoming.has_more.notify_one();
    }

    /// Without a connection nothing is said: the others look by themselves.
    pub(super) fn say(&self, signal: Signal) {
        if self.is_up() {
            let _ = self.outgoing.push(signal);
        }
    }

    pub(super) async fn to_say(&self) -> Vec<Signal> {
        self.outgoing.next().await
    }

    pub(super) fn hear(&self, signal: Signal) {
        if !self.incoming.push(signal) {
            self.miss();
        }
    }

    /// What others said, once they said something. `None`: something was missed.
    pub(super) async fn heard(&self) -> Option<Vec<Signal>> {
        loop {
            if self.has_missed.swap(false, Ordering::SeqCst) {
                return None;
            }
            let taken = self.incoming.take();
            if !taken.is_empty() {
                return Some(taken);
            }
            self.incoming.has_more.notified().await;
        }
    }

    pub(super) fn touch(&self, topic: &Topic) {
        self.touched.lock().expect("no panic while holding topics").insert(topic.clone());
        self.is_touched.notify_one();
    }

    pub(super) fn take_touched(&self) -> HashSet<Topic> {
        std::mem::take(&mut self.touched.lock().expect("no panic while holding topics"))
    }
}
