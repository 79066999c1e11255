//! Channel of one topic. It starts small and grows without a loss: most topics have one subscriber
//! and nothing waiting, and a broadcast channel allocates its whole capacity at once.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::Instant;

use super::{Received, Sequence};

/// Capacity of a channel whose subscribers keep up.
const CAPACITY_AT_FIRST: usize = 8;

/// Item of a topic, with the time of its publication.
#[derive(Debug, Clone)]
pub(super) struct Published {
    pub(super) received: Received,
    pub(super) at: Instant,
}

#[derive(Clone)]
enum Item {
    Published(Published),
    /// Last item of a small channel: a receiver of the large one for each of its subscribers.
    Grown(Arc<Mutex<Vec<broadcast::Receiver<Item>>>>),
}

/// Channel of a topic with at least one subscriber.
pub(super) struct TopicChannel {
    sender: broadcast::Sender<Item>,
    growth: Growth,
    /// Sequence of the last publication, or of the creation of the channel.
    pub(super) last: Sequence,
}

enum Growth {
    /// The channel has room for `room` more items at least, and for two always.
    Small {
        room: usize,
        capacity_max: usize,
    },
    Grown,
}

impl TopicChannel {
    pub(super) fn new(capacity_max: usize, created_at: Sequence) -> Self {
        Self {
            sender: broadcast::Sender::new(CAPACITY_AT_FIRST),
            growth: Growth::Small {
                room: CAPACITY_AT_FIRST,
                capacity_max,
            },
            last: created_at,
        }
    }

    pub(super) fn subscribe(&self) -> TopicReceiver {
        TopicReceiver(self.sender.subscribe())
    }

    pub(super) fn subscriber_count(&self) -> usize {
        self.sender.receiver_count()
    }

    pub(super) fn send(&mut self, received: Received) {
        self.make_room();
        let _ = self.sender.send(Item::Published(Published {
            received,
            at: Instant::now(),
        }));
    }

    /// Replaces a small channel that is half full. The last of its items leads each subscriber to
    /// the large one, so nobody misses an item and nobody lags before the large one is full.
    fn make_room(&mut self) {
        let Growth::Small { room, capacity_max } = &mut self.growth else {
            return;
        };
        if *room > 2 {
            *room -= 1;
            return;
        }
        // Not with every item: a broadcast channel searches for the number of those that wait.
        *room = CAPACITY_AT_FIRST - self.sender.len();
        if *room > CAPACITY_AT_FIRST / 2 {
            *room -= 1;
            return;
        }
        let grown = broadcast::Sender::new(*capacity_max);
        let receivers = (0..self.sender.receiver_count())
            .map(|_| grown.subscribe())
            .collect();
        let _ = self
            .sender
            .send(Item::Grown(Arc::new(Mutex::new(receivers))));
        self.sender = grown;
        self.growth = Growth::Grown;
    }
}

/// Position of one subscriber in the channel of a topic.
pub(super) struct TopicReceiver(broadcast::Receiver<Item>);

impl TopicReceiver {
    pub(super) async fn recv(&mut self) -> Result<Published, RecvError> {
        loop {
            let item = self.0.recv().await?;
            if let Some(published) = self.enter(item) {
                return Ok(published);
            }
        }
    }

    pub(super) fn try_recv(&mut self) -> Result<Published, TryRecvError> {
        loop {
            let item = self.0.try_recv()?;
            if let Some(published) = self.enter(item) {
                return Ok(published);
            }
        }
    }

    /// Moves to the large channel after the last item of the small one.
    fn enter(&mut self, item: Item) -> Option<Published> {
        match item {
            Item::Published(published) => Some(published),
            Item::Grown(receivers) => {
                if let Some(receiver) = receivers.lock().pop() {
                    self.0 = receiver;
                }
                None
            }
        }
    }
}

#[cfg(test)]
#[path = "channel_test.rs"]
mod tests;
