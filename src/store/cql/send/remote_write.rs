//! Wakes: that something was written somewhere, for the other servers of a cluster.
//!
//! A wake is written beside what it tells of and acknowledged with it, so it may be seen up to an attempt (2 s) before that is. Each try
//! of a write has a wake of its own, under a fresh id.
//!
//! A server does not follow its own: what it wrote it tells itself. What it finishes for another one, it is told of like all others.

use futures_util::future::try_join_all;
use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use crate::clock::IdGenerator;
use crate::model::{ConversationId, TimeUuid, Timestamp};
use crate::store::cql::Inner;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, time_uuid, user};
use crate::store::{Result, Wake, WakePlace};

const TABLE: &str = "wakes";
/// Over how many partitions the wakes of one slot are spread.
const SHARDS: i8 = 16;
const SLOT_MICROS: i64 = 10_000_000;
/// A wake may be written so long after what it tells of was looked for: the overlap window, and the lateness of one event.
const BEFORE_MICROS: i64 = 14_000_000;
/// So far another server's clock may be ahead, twice over.
const AHEAD_MICROS: i64 = 4_000_000;
/// As long as the table keeps them.
const LIFETIME_MICROS: i64 = 60_000_000;
const ROWS_AT_ONCE: i32 = 1_000;
/// Slots and shards that are read at the same time.
const READS_AT_ONCE: usize = 32;

statements! {
    /// The statements of this file.
    Statements {
        insert: Write "INSERT INTO wakes (shard, slot, wake_id, conversation_id, user_id) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
        after: Read "SELECT wake_id, conversation_id, user_id FROM wakes WHERE shard = ? AND slot = ? AND wake_id > ? LIMIT ?";
    }
}

impl Inner {
    /// Tells the other servers, which are to look there.
    pub(crate) async fn wake(&self, place: &WakePlace) -> Result<()> {
        self.wake_under(&self.wake_ids, place).await
    }

    /// Tells all servers, this one too.
    pub(crate) async fn wake_all(&self, place: &WakePlace) -> Result<()> {
        self.wake_under(&self.common_wake_ids, place).await
    }

    async fn wake_under(&self, ids: &IdGenerator, place: &WakePlace) -> Result<()> {
        let now = self.clock.now();
        let id = ids.next(now);
        let (conversation, user) = match place {
            WakePlace::Conversation(conversation) => (Some(*conversation), None),
            WakePlace::Inbox(user) => (None, Some(user)),
            WakePlace::Marker(conversation, user) => (Some(*conversation), Some(user)),
        };
        let values = cells![shard_of(place), now.micros() / SLOT_MICROS, id, conversation, user, id.moment()];
        self.cluster.write(&self.statements.wake.insert, values).await
    }
}

/// Any server finds it in any shard; it need only be spread.
fn shard_of(place: &WakePlace) -> i8 {
    let bytes = match place {
        WakePlace::Conversation(conversation) | WakePlace::Marker(conversation, _) => conversation.0.as_bytes().as_slice(),
        WakePlace::Inbox(user) => user.as_str().as_bytes(),
    };
    let hash = bytes.iter().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    let shard = (hash ^ (hash >> 16)) % SHARDS.unsigned_abs() as u32;
    i8::try_from(shard).expect("there are few shards")
}

pub(crate) async fn wakes(inner: &Inner, since: Timestamp) -> Result<Vec<Wake>> {
    let now = inner.clock.now();
    let from = since.plus_micros(-BEFORE_MICROS).max(now.plus_micros(-LIFETIME_MICROS));
    let until = now.plus_micros(AHEAD_MICROS);
    let slots = from.micros() / SLOT_MICROS..=until.micros() / SLOT_MICROS;
    let all: Vec<_> = slots.flat_map(|slot| (0..SHARDS).map(move |shard| (shard, slot))).collect();
    let mut wakes = Vec::new();
    for some in all.chunks(READS_AT_ONCE) {
        let found = try_join_all(some.iter().map(|(shard, slot)| wakes_of(inner, *shard, *slot))).await?;
        wakes.extend(found.into_iter().flatten());
    }
    Ok(wakes)
}

async fn wakes_of(inner: &Inner, shard: i8, slot: i64) -> Result<Vec<Wake>> {
    // The smallest of all timeuuids since 1970.
    let mut after = TimeUuid::new(Timestamp::ZERO, [0x80; 8]);
    let mut wakes = Vec::new();
    loop {
        type Columns = (CqlTimeuuid, Option<Uuid>, Option<String>);
        let rows: Vec<Columns> = inner.cluster.read(&inner.statements.wake.after, cells![shard, slot, after, ROWS_AT_ONCE]).await?;
        let is_last = rows.len() < ROWS_AT_ONCE.unsigned_abs() as usize;
        for (id, conversation, name) in rows {
            let id = time_uuid(TABLE, id)?;
            after = id;
            if inner.wake_ids.made(id) {
                continue;
            }
            let place = match (conversation.map(ConversationId), name.map(|name| user(TABLE, &name)).transpose()?) {
                (Some(conversation), None) => WakePlace::Conversation(conversation),
                (None, Some(user)) => WakePlace::Inbox(user),
                (Some(conversation), Some(user)) => WakePlace::Marker(conversation, user),
                (None, None) => continue,
            };
            wakes.push(Wake { id, place });
        }
        if is_last {
            return Ok(wakes);
        }
    }
}
