//! Coordinator of one webhook on one server: acquires a fair part of the shards, and runs their deliveries.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::delivery::Deliverer;
use super::shard::ShardTask;
use crate::chat::Result;
use crate::model::OutboxShard;

/// Interval at which the leases of the shards are read.
const POLL_EVERY: Duration = Duration::from_secs(3);
/// After the acquisition of a shard whose holder has ended, no shard is given back for so long: the server that ended
/// still counts as one of those that share.
const NO_RELEASE_FOR: Duration = Duration::from_secs(90);

pub(super) struct Coordinator {
    hook: Arc<Deliverer>,
    holder: Uuid,
    stop: CancellationToken,
    /// Token of each running shard.
    held: HashMap<OutboxShard, CancellationToken>,
    tasks: JoinSet<OutboxShard>,
    inherited_at: Option<Instant>,
}

impl Coordinator {
    pub(super) fn new(hook: Arc<Deliverer>, stop: CancellationToken) -> Self {
        Self {
            hook,
            holder: Uuid::new_v4(),
            stop,
            held: HashMap::new(),
            tasks: JoinSet::new(),
            inherited_at: None,
        }
    }

    /// Runs until it is stopped, or the receiver is gone. Then it releases its shards.
    pub(super) async fn run(mut self) {
        let mut ticks = interval(POLL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let gone = self.hook.is_gone.clone();
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                () = gone.cancelled() => break,
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    match ended {
                        Ok(shard) => {
                            self.held.remove(&shard);
                        }
                        // The runtime's hook logs the panic; the lease ends by itself.
                        Err(_) => self.held.retain(|_, stop| !stop.is_cancelled()),
                    }
                }
                _ = ticks.tick() => {
                    if let Err(error) = self.share().await {
                        tracing::warn!(webhook = %self.hook.name, %error, "the server failed to read who delivers a webhook; it tries again");
                    }
                }
            }
        }
        self.held.values().for_each(CancellationToken::cancel);
        while self.tasks.join_next().await.is_some() {}
    }

    /// Acquires and releases shards, so that all servers have about as many.
    async fn share(&mut self) -> Result<()> {
        let outbox = &self.hook.chat.outbox;
        let servers = outbox.server_count().await?;
        let share = usize::from(OutboxShard::COUNT).div_ceil(servers);
        let positions = outbox.reader_positions(&self.hook.name).await?;
        let mut shards: Vec<_> = OutboxShard::all().zip(positions).collect();
        // Servers that begin together do not all ask for the first one.
        let [random, ..] = *self.holder.as_bytes();
        let start = usize::from(random) % shards.len();
        shards.rotate_left(start);
        for (shard, position) in shards {
            let Some(position) = position.filter(|_| !self.held.contains_key(&shard)) else {
                continue;
            };
            let outbox = &self.hook.chat.outbox;
            let is_inherited = outbox.is_shared() && outbox.has_expired(&position);
            let is_due = self.held.len() < share || is_inherited;
            if !is_due || !outbox.is_free(&position) {
                continue;
            }
            let name = &self.hook.name;
            let acquired = outbox.acquire(name, shard, &position, self.holder).await?;
            let Some(lease) = acquired else { continue };
            if is_inherited {
                self.inherited_at = Some(Instant::now());
            }
            let stop = CancellationToken::new();
            self.held.insert(shard, stop.clone());
            let task = ShardTask::new(Arc::clone(&self.hook), lease);
            self.tasks.spawn(async move {
                // Marks the shard as ended, also after a panic.
                let _ended = stop.clone().drop_guard();
                task.run(&stop).await;
                shard
            });
        }
        self.release(share);
        Ok(())
    }

    fn release(&mut self, share: usize) {
        let has_inherited = self
            .inherited_at
            .is_some_and(|at| at.elapsed() < NO_RELEASE_FOR);
        let running = self.held.values().filter(|stop| !stop.is_cancelled());
        let excess = running.count().saturating_sub(share);
        if excess == 0 || has_inherited {
            return;
        }
        let running = self.held.values().filter(|stop| !stop.is_cancelled());
        running.take(excess).for_each(CancellationToken::cancel);
    }
}
