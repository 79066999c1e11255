//! Queues between this server's bus and its peers: payloads to send, payloads received, and the
//! state of the connection.
//!
//! Every payload may be lost. The queues remember that a loss is possible, and the receiver then
//! polls the store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

/// Payloads that wait in one direction.
const PAYLOADS_MAX: usize = 65_536;

#[derive(Default)]
pub(super) struct PeerQueue {
    outgoing: PayloadQueue<(Uuid, Vec<u8>)>,
    incoming: PayloadQueue<Vec<u8>>,
    /// Address of this server. `None` until it has one.
    own: Mutex<Option<Uuid>>,
    pub(super) own_changed: Notify,
    is_connected: AtomicBool,
    /// Payloads may have been lost since the last read.
    has_lost: AtomicBool,
}

struct PayloadQueue<T> {
    waiting: Mutex<VecDeque<T>>,
    has_more: Notify,
}

impl<T> Default for PayloadQueue<T> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            has_more: Notify::new(),
        }
    }
}

impl<T> PayloadQueue<T> {
    /// False if the queue is full.
    fn push(&self, payload: T) -> bool {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= PAYLOADS_MAX {
            return false;
        }
        waiting.push_back(payload);
        drop(waiting);
        self.has_more.notify_one();
        true
    }

    fn take(&self) -> Vec<T> {
        self.waiting.lock().drain(..).collect()
    }
}

impl PeerQueue {
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::SeqCst)
    }

    /// Payloads may have been lost before a connection and after a disconnection, so both count as
    /// a loss.
    pub(super) fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::SeqCst);
        self.mark_lost();
    }

    pub(super) fn mark_lost(&self) {
        self.has_lost.store(true, Ordering::SeqCst);
        self.incoming.has_more.notify_one();
    }

    /// Drops the payload without a connection or without room. The peer then finds the write by
    /// polling the store.
    pub(super) fn send(&self, server: Uuid, payload: &[u8]) {
        if self.is_connected() {
            let _ = self.outgoing.push((server, payload.to_vec()));
        }
    }

    pub(super) async fn next_outgoing(&self) -> Vec<(Uuid, Vec<u8>)> {
        loop {
            let taken = self.outgoing.take();
            if !taken.is_empty() {
                return taken;
            }
            self.outgoing.has_more.notified().await;
        }
    }

    pub(super) fn push_incoming(&self, payload: Vec<u8>) {
        if !self.incoming.push(payload) {
            self.mark_lost();
        }
    }

    /// Waits for payloads of peers. `None` if some may have been lost.
    pub(super) async fn receive(&self) -> Option<Vec<Vec<u8>>> {
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

    pub(super) fn own(&self) -> Option<Uuid> {
        *self.own.lock()
    }

    pub(super) fn set_own(&self, server: Uuid) {
        *self.own.lock() = Some(server);
        self.own_changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_possible_loss_is_told_before_what_arrived() {
        let queue = PeerQueue::default();
        queue.push_incoming(vec![1]);
        queue.set_connected(true);
        assert_eq!(queue.receive().await, None);
        assert_eq!(queue.receive().await, Some(vec![vec![1]]));
        for _ in 0..=PAYLOADS_MAX {
            queue.push_incoming(vec![2]);
        }
        assert_eq!(queue.receive().await, None, "one was dropped");
        assert_eq!(queue.receive().await.unwrap().len(), PAYLOADS_MAX);
    }

    #[tokio::test]
    async fn nothing_waits_for_a_connection() {
        let queue = PeerQueue::default();
        let server = Uuid::new_v4();
        queue.send(server, &[1]);
        queue.set_connected(true);
        queue.send(server, &[2]);
        assert_eq!(queue.next_outgoing().await, [(server, vec![2])]);
    }
}
