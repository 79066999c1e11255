//! Queues between this server's bus and its peers: signals to send, signals received, and the state
//! of the connection.
//!
//! Every signal may be lost. The queues remember that a loss is possible, and the receiver then
//! polls the store.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::signal::Signal;
use crate::model::Topic;

/// Signals that wait in one direction.
const SIGNALS_MAX: usize = 16_384;

#[derive(Default)]
pub(super) struct PeerQueue {
    outgoing: SignalQueue,
    incoming: SignalQueue,
    /// Topics that may have gained their first subscriber, or lost their last one.
    changed_topics: Mutex<HashSet<Topic>>,
    pub(super) topics_changed: Notify,
    is_connected: AtomicBool,
    /// Signals may have been lost since the last read.
    has_lost: AtomicBool,
}

/// Queue that holds each signal at most once, except for signals of a state.
#[derive(Default)]
struct SignalQueue {
    waiting: Mutex<(VecDeque<Signal>, HashSet<Signal>)>,
    has_more: Notify,
}

impl SignalQueue {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Signal>, HashSet<Signal>)> {
        self.waiting.lock()
    }

    /// False if the queue is full.
    fn push(&self, signal: Signal) -> bool {
        let mut guard = self.lock();
        let (order, known) = &mut *guard;
        if order.len() >= SIGNALS_MAX {
            return false;
        }
        // A later state replaces an earlier one, so their order matters: deduplication could drop
        // the latest.
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

impl PeerQueue {
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::SeqCst)
    }

    /// Signals may have been lost before a connection and after a disconnection, so both count as a
    /// loss.
    pub(super) fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::SeqCst);
        self.mark_lost();
    }

    pub(super) fn mark_lost(&self) {
        self.has_lost.store(true, Ordering::SeqCst);
        self.incoming.has_more.notify_one();
    }

    /// Drops the signal without a connection or without room. Peers then find the write by polling
    /// the store.
    pub(super) fn send(&self, signal: Signal) {
        if self.is_connected() {
            let _ = self.outgoing.push(signal);
        }
    }

    pub(super) async fn next_outgoing(&self) -> Vec<Signal> {
        self.outgoing.next().await
    }

    pub(super) fn push_incoming(&self, signal: Signal) {
        if !self.incoming.push(signal) {
            self.mark_lost();
        }
    }

    /// Waits for signals of peers. `None` if signals may have been lost.
    pub(super) async fn receive(&self) -> Option<Vec<Signal>> {
        loop {
            if self.has_lost.swap(false, Ordering::SeqCst) {
                return None;
            }
            let taken = self.incoming.take();
            if !taken.is_empty() {
                return Some(taken);
            }
            self.incoming.has_more.notified().await;
        }
    }

    pub(super) fn add_changed_topic(&self, topic: &Topic) {
        self.changed_topics.lock().insert(topic.clone());
        self.topics_changed.notify_one();
    }

    pub(super) fn take_changed_topics(&self) -> HashSet<Topic> {
        std::mem::take(&mut self.changed_topics.lock())
    }
}
