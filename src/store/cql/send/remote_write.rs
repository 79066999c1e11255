//! Remote writes: records that something was written, which the other servers of a cluster poll.
//!
//! A record is written beside the event and acknowledged with it, so a poller may see it up to one attempt (2 s) earlier. Each attempt of a
//! write has a record with a fresh id.
//!
//! A server skips its own records, as it publishes its own events itself. A record with a common id is for all servers: this server completes
//! a write that another one began, and nobody else will publish it.

use std::sync::Arc;

use futures_util::future::try_join_all;
use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use crate::clock::{Clock, IdGenerator};
use crate::model::{ChangeId, ConversationId, TimeUuid, Timestamp, UserId};
use crate::store::cql::driver::error::unknown;
use crate::store::cql::driver::executor::{Executor, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{time_uuid, user, values};
use crate::store::{Result, Wake, WakePlace};

const TABLE: &str = "wakes";
/// Partitions over which the records of one slot are spread.
const SHARDS: i8 = 16;
const SLOT_MICROS: i64 = 10_000_000;
/// How far before the requested moment a poll begins: the overlap window, and the lateness of one event.
const BEFORE_MICROS: i64 = 14_000_000;
/// The most that another server's clock is ahead, doubled.
const AHEAD_MICROS: i64 = 4_000_000;
/// The time to live of the table.
const LIFETIME_MICROS: i64 = 60_000_000;
const ROWS_MAX: i32 = 1_000;
/// Partitions that are read concurrently.
const CONCURRENCY: usize = 32;

statements! {
    INSERT_REMOTE_WRITE: Write "INSERT INTO wakes (shard, slot, wake_id, conversation_id, user_id) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
    SELECT_REMOTE_WRITES: Read "SELECT wake_id, conversation_id, user_id FROM wakes WHERE shard = ? AND slot = ? AND wake_id > ? LIMIT ?";
}

/// Records of writes, and the ids of this server's own ones.
pub(crate) struct RemoteWrites {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
    /// Ids of records that this server skips when it polls.
    own_ids: IdGenerator,
    /// Ids of records that this server follows too.
    common_ids: IdGenerator,
}

/// A shard for a place. A poll reads all shards, so any shard is right; the hash only spreads the records.
fn shard_of(place: &WakePlace) -> i8 {
    let bytes = match place {
        WakePlace::Conversation(conversation) | WakePlace::Marker(conversation, _) => {
            conversation.0.as_bytes().as_slice()
        }
        WakePlace::Inbox(user) => user.as_str().as_bytes(),
    };
    let hash = bytes.iter().fold(0_u32, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(u32::from(*byte))
    });
    let shard = (hash ^ (hash >> 16)) % SHARDS.unsigned_abs() as u32;
    i8::try_from(shard).expect("there are few shards")
}

impl RemoteWrites {
    pub(super) fn new(executor: Arc<Executor>, clock: Arc<dyn Clock>) -> Self {
        Self {
            executor,
            clock,
            own_ids: IdGenerator::random(),
            common_ids: IdGenerator::random(),
        }
    }

    /// Notifies the other servers.
    pub(super) async fn notify(&self, place: &WakePlace) -> Result<()> {
        self.record(&self.own_ids, place).await
    }

    /// Notifies the other servers of several places.
    pub(super) async fn notify_of(&self, places: &[WakePlace]) -> Result<()> {
        try_join_all(places.iter().map(|place| self.notify(place))).await?;
        Ok(())
    }

    /// Notifies the other servers of writes to inboxes. The writes are done, so a failure is an unknown outcome.
    pub(super) async fn notify_inboxes(&self, users: impl Iterator<Item = &UserId>) -> Result<()> {
        let places: Vec<_> = users.map(|user| WakePlace::Inbox(user.clone())).collect();
        concurrently(places.iter().map(|place| self.notify(place)).collect())
            .await
            .map_err(unknown)?;
        Ok(())
    }

    /// Notifies all servers, this one included.
    pub(super) async fn notify_all(&self, places: &[WakePlace]) -> Result<()> {
        concurrently(
            places
                .iter()
                .map(|place| self.record(&self.common_ids, place))
                .collect(),
        )
        .await?;
        Ok(())
    }

    /// A fresh id for a change that all servers follow.
    pub(super) fn common_id(&self, now: Timestamp) -> ChangeId {
        self.common_ids.next(now)
    }

    async fn record(&self, ids: &IdGenerator, place: &WakePlace) -> Result<()> {
        let now = self.clock.now();
        let id = ids.next(now);
        let (conversation, user) = match place {
            WakePlace::Conversation(conversation) => (Some(*conversation), None),
            WakePlace::Inbox(user) => (None, Some(user)),
            WakePlace::Marker(conversation, user) => (Some(*conversation), Some(user)),
        };
        let values = values![
            shard_of(place),
            now.micros() / SLOT_MICROS,
            id,
            conversation,
            user,
            id.moment()
        ];
        self.executor.write(&INSERT_REMOTE_WRITE, values).await
    }

    /// Writes of other servers since a moment, and a little before it.
    pub(crate) async fn since(&self, since: Timestamp) -> Result<Vec<Wake>> {
        let now = self.clock.now();
        let from = since
            .plus_micros(-BEFORE_MICROS)
            .max(now.plus_micros(-LIFETIME_MICROS));
        let until = now.plus_micros(AHEAD_MICROS);
        let slots = from.micros() / SLOT_MICROS..=until.micros() / SLOT_MICROS;
        let all: Vec<_> = slots
            .flat_map(|slot| (0..SHARDS).map(move |shard| (shard, slot)))
            .collect();
        let mut writes = Vec::new();
        for some in all.chunks(CONCURRENCY) {
            let found =
                try_join_all(some.iter().map(|(shard, slot)| self.read(*shard, *slot))).await?;
            writes.extend(found.into_iter().flatten());
        }
        Ok(writes)
    }

    async fn read(&self, shard: i8, slot: i64) -> Result<Vec<Wake>> {
        type Columns = (CqlTimeuuid, Option<Uuid>, Option<String>);
        // The smallest timeuuid since 1970.
        let mut after = TimeUuid::new(Timestamp::ZERO, [0x80; 8]);
        let mut writes = Vec::new();
        loop {
            let rows: Vec<Columns> = self
                .executor
                .read(&SELECT_REMOTE_WRITES, values![shard, slot, after, ROWS_MAX])
                .await?;
            let is_last = rows.len() < ROWS_MAX.unsigned_abs() as usize;
            for (id, conversation, name) in rows {
                let id = time_uuid(TABLE, id)?;
                after = id;
                if self.own_ids.made(id) {
                    continue;
                }
                let place = match (
                    conversation.map(ConversationId),
                    name.map(|name| user(TABLE, &name)).transpose()?,
                ) {
                    (Some(conversation), None) => WakePlace::Conversation(conversation),
                    (None, Some(user)) => WakePlace::Inbox(user),
                    (Some(conversation), Some(user)) => WakePlace::Marker(conversation, user),
                    (None, None) => continue,
                };
                writes.push(Wake { id, place });
            }
            if is_last {
                return Ok(writes);
            }
        }
    }
}
