//! Leases: of the servers that share a store, one at a time delivers a shard to a named reader.
//!
//! The position of a reader in a shard and the lease of its holder are one cell, which changes by compare-and-set. A holder
//! that could not renew its lease stops before the lease ends. A lost lease means that events are delivered again, and never that
//! one is left out: the position is that of the last renewal.
//!
//! On a store of one server no other server can acquire a shard. Its lease does not end, and needs no renewal.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::OutboxService;
use crate::chat::error::Result;
use crate::chat::in_flight_ids::InFlightIds;
use crate::clock::micros;
use crate::model::{OrderKey, OutboxShard, Timestamp};
use crate::store::cluster::SKEW_MAX;
use crate::store::{
    FormVersion, HELD_POSITIONS_MAX, HeldPosition, ReaderLease, ReaderPosition, Store,
};

/// Life of a lease on a shared store.
const LEASE_FOR: Duration = Duration::from_secs(15);
/// Age at which the holder renews its lease, with a third of the life to spare for a store that fails.
const RENEW_AFTER: Duration = Duration::from_secs(5);
/// Age at which the position of a quiet shard is persisted on a store of one server.
const QUIET_POSITION_AFTER: Duration = Duration::from_secs(300);
/// The holder stops this long before its lease ends, and another server waits this long after the
/// end: the clocks of two servers differ by less.
const LEASE_MARGIN: Duration = SKEW_MAX;
const _: () = assert!(2 * RENEW_AFTER.as_secs() < LEASE_FOR.as_secs() - LEASE_MARGIN.as_secs());
const NAME_BYTES_MAX: usize = 64;

/// Name of a reader whose positions the store holds: a webhook.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReaderName(Arc<str>);

impl ReaderName {
    /// 1 to 64 ASCII letters, digits, `-` and `_`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed);
        is_name.then(|| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Position of a reader in a shard, as a renewal persists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedPosition {
    pub position: OrderKey,
    pub held: Vec<HeldPosition>,
}

/// Lease of one shard.
pub struct ShardLease {
    store: Arc<dyn Store>,
    in_flight: InFlightIds,
    reader: ReaderName,
    shard: OutboxShard,
    holder: Uuid,
    state: ReaderPosition,
    /// Begin of the last renewal, by this server's clock.
    renewed_at: Instant,
}

impl OutboxService {
    /// Whether other servers deliver, too.
    pub fn is_shared(&self) -> bool {
        self.in_flight.is_shared()
    }

    /// Whether the deployment has an outbox.
    pub async fn is_on(&self) -> Result<bool> {
        Ok(self.store.outbox_since().await?.is_some())
    }

    /// Creates the positions that a reader lacks: it begins with the next event.
    pub async fn begin_reader(&self, reader: &ReaderName) -> Result<()> {
        let present = self.reader_positions(reader).await?;
        let since = self.store.outbox_since().await?.unwrap_or_default();
        let begin = ReaderPosition {
            position: self.limit().max(OrderKey::first_at(since)),
            held: Vec::new(),
            lease: None,
        };
        for (shard, _) in OutboxShard::all()
            .zip(present)
            .filter(|(_, present)| present.is_none())
        {
            // Another server may be faster.
            self.store
                .swap_reader_position(reader.as_str(), shard, None, &begin)
                .await?;
        }
        Ok(())
    }

    /// The positions of a reader, one for each shard.
    pub async fn reader_positions(
        &self,
        reader: &ReaderName,
    ) -> Result<Vec<Option<ReaderPosition>>> {
        Ok(self.store.reader_positions(reader.as_str()).await?)
    }

    /// Whether a shard with this position may be acquired: nobody holds it, or its holder has ended.
    pub fn is_free(&self, position: &ReaderPosition) -> bool {
        position.lease.is_none() || self.has_expired(position)
    }

    /// Whether the holder of a shard has ended without a release. On a store of one server, every earlier
    /// holder has.
    pub fn has_expired(&self, position: &ReaderPosition) -> bool {
        let end = |lease: &ReaderLease| lease.until.plus_micros(micros(LEASE_MARGIN));
        let has_ended = |lease: ReaderLease| end(&lease) < self.in_flight.now();
        position
            .lease
            .is_some_and(|lease| !self.in_flight.is_shared() || has_ended(lease))
    }

    /// Acquires a shard from the position that was read. `None` if another server was faster.
    pub async fn acquire(
        &self,
        reader: &ReaderName,
        shard: OutboxShard,
        seen: &ReaderPosition,
        holder: Uuid,
    ) -> Result<Option<ShardLease>> {
        let mut lease = ShardLease {
            store: Arc::clone(&self.store),
            in_flight: self.in_flight.clone(),
            reader: reader.clone(),
            shard,
            holder,
            state: seen.clone(),
            renewed_at: Instant::now(),
        };
        let (oldest, from) = (self.oldest_event().await?, seen.oldest());
        if from.moment() < oldest {
            tracing::error!(%reader, shard = shard.number(), from = %from.moment(), to = %oldest, "the receiver of a webhook has missed events, which the outbox no longer holds. The server delivers on from the oldest event of the outbox");
        }
        let oldest = OrderKey::first_at(oldest).before();
        let held = seen.held.iter().map(|held| HeldPosition {
            position: held.position.max(oldest),
            ..*held
        });
        let from = SavedPosition {
            position: seen.position.max(oldest),
            held: held.collect(),
        };
        Ok(lease.renew(from).await?.then_some(lease))
    }

    /// Number of conversations whose positions may be persisted apart: none until every server can read them.
    pub async fn held_max(&self) -> usize {
        let is_open = self.access.forms().is_open(FormVersion::HELD_POSITIONS);
        // Without an answer of the store nothing is persisted either.
        match is_open.await {
            Ok(true) => HELD_POSITIONS_MAX,
            Ok(false) | Err(_) => 0,
        }
    }

    /// Present time, by the clock of ids and cursors.
    pub fn now(&self) -> Timestamp {
        self.in_flight.now()
    }

    /// Time of the oldest event that a reader may resume after.
    async fn oldest_event(&self) -> Result<Timestamp> {
        let since = self.store.outbox_since().await?.unwrap_or_default();
        let kept = self.in_flight.now().plus_micros(-self.keep);
        Ok(kept.max(since).max(self.imported_at))
    }

    /// Number of servers that share the store and answer, this one included.
    pub async fn server_count(&self) -> Result<usize> {
        Ok(match self.store.cluster() {
            Some(cluster) => cluster.beats().await?.len().max(1),
            None => 1,
        })
    }

    /// Time since the event after a position, as far as one may be there.
    pub fn lag(&self, position: OrderKey) -> Duration {
        let micros = self.in_flight.now().micros() - position.moment().micros();
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }
}

impl ShardLease {
    pub fn shard(&self) -> OutboxShard {
        self.shard
    }

    /// Position of the last renewal.
    pub fn position(&self) -> OrderKey {
        self.state.position
    }

    /// Held conversations of the last renewal.
    pub fn held(&self) -> &[HeldPosition] {
        &self.state.held
    }

    /// Whether the lease still counts. Without it no event is delivered.
    pub fn is_valid(&self) -> bool {
        !self.in_flight.is_shared() || self.renewed_at.elapsed() < LEASE_FOR - LEASE_MARGIN
    }

    /// Whether the lease is to be renewed, or the position of a quiet shard persisted.
    pub fn is_renewal_due(&self) -> bool {
        let after = match self.in_flight.is_shared() {
            true => RENEW_AFTER,
            false => QUIET_POSITION_AFTER,
        };
        self.renewed_at.elapsed() >= after
    }

    /// Renews the lease and persists the position. False if another server has acquired the shard.
    pub async fn renew(&mut self, to: SavedPosition) -> Result<bool> {
        let began = Instant::now();
        let until = self.in_flight.now().plus_micros(micros(LEASE_FOR));
        let holder = self.holder;
        let is_renewed = self.swap(to, Some(ReaderLease { holder, until })).await?;
        if is_renewed {
            self.renewed_at = began;
        }
        Ok(is_renewed)
    }

    /// Releases the shard, so that another server may acquire it at once.
    pub async fn release(mut self, at: SavedPosition) -> Result<()> {
        self.swap(at, None).await.map(drop)
    }

    async fn swap(&mut self, to: SavedPosition, lease: Option<ReaderLease>) -> Result<bool> {
        let SavedPosition { position, held } = to;
        let to = ReaderPosition {
            position,
            held,
            lease,
        };
        let reader = self.reader.as_str();
        let swapped = self
            .store
            .swap_reader_position(reader, self.shard, Some(&self.state), &to)
            .await;
        if matches!(swapped, Ok(true)) {
            self.state = to;
            return Ok(true);
        }
        // An earlier write of unknown outcome may have been done.
        let present = self.store.reader_positions(reader).await?;
        let shard = usize::from(self.shard.number());
        let Some(present) = present.into_iter().nth(shard).flatten() else {
            return Ok(false);
        };
        if present == to {
            self.state = to;
            return Ok(true);
        }
        let is_own = present
            .lease
            .is_some_and(|lease| lease.holder == self.holder);
        if !is_own || swapped.is_err() {
            return swapped.map_err(Into::into);
        }
        self.state = present;
        let is_swapped = self
            .store
            .swap_reader_position(reader, self.shard, Some(&self.state), &to)
            .await?;
        if is_swapped {
            self.state = to;
        }
        Ok(is_swapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_plain_and_short() {
        assert!(ReaderName::parse("push-worker_2").is_some());
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for text in ["", "a b", "ä", "a\0", long.as_str()] {
            assert!(ReaderName::parse(text).is_none(), "{text}");
        }
    }
}
