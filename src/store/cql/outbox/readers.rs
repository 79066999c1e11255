//! Readers of the outbox: the position of each in each shard, which its lease holder advances by lightweight transactions, and the
//! events that it refused.

use scylla::value::Row;

use super::{Outbox, number_of};
use crate::model::{OutboxShard, Timestamp};
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, row_limit, values};
use crate::store::{
    DEAD_LETTER_KEPT_MICROS, DeadLetter, OUTBOX_KEEP_MAX, ReaderPosition, Result, rules,
};

const DAY_MICROS: i64 = 24 * 3_600 * 1_000_000;
/// Partitions of dead letters that are read at once.
const DAYS_AT_ONCE: usize = 8;

statements! {
    SELECT_POSITIONS: Read "SELECT shard, state FROM outbox_positions WHERE reader = ? AND shard IN ?";
    CLAIM_POSITION: Conditional "INSERT INTO outbox_positions (reader, shard, state) VALUES (?, ?, ?) IF NOT EXISTS";
    SWAP_POSITION: Conditional "UPDATE outbox_positions SET state = ? WHERE reader = ? AND shard = ? IF state = ?";
    INSERT_DEAD: Write "INSERT INTO outbox_dead (reader, day, event_id, kind, part, payload) VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    SELECT_DEAD: Read "SELECT payload FROM outbox_dead WHERE reader = ? AND day = ? LIMIT ?";
    DELETE_DEAD: Write "DELETE FROM outbox_dead USING TIMESTAMP ? WHERE reader = ? AND day = ? AND event_id = ? AND kind = ? AND part = ?";
}

/// The day of a moment, counted from 1970.
fn day_of(moment: Timestamp) -> i32 {
    i32::try_from(moment.micros().div_euclid(DAY_MICROS)).unwrap_or(i32::MAX)
}

impl Outbox {
    pub(crate) async fn reader_positions(
        &self,
        reader: &str,
    ) -> Result<Vec<Option<ReaderPosition>>> {
        let shards = OutboxShard::all().map(number_of);
        let rows: Vec<(i8, Option<Vec<u8>>)> = self
            .executor
            .read(&SELECT_POSITIONS, values![reader, list(shards)])
            .await?;
        let mut positions = vec![None; usize::from(OutboxShard::COUNT)];
        for (shard, state) in rows {
            let position = usize::try_from(shard)
                .ok()
                .and_then(|shard| positions.get_mut(shard))
                .ok_or_else(|| corrupt("outbox_positions", "a shard is not known"))?;
            *position = state
                .map(|state| rules::outbox::decode_reader(&state))
                .transpose()?;
        }
        Ok(positions)
    }

    pub(crate) async fn swap_reader_position(
        &self,
        reader: &str,
        shard: OutboxShard,
        seen: Option<&ReaderPosition>,
        to: &ReaderPosition,
    ) -> Result<bool> {
        let (shard, state) = (number_of(shard), rules::outbox::encode_reader(to));
        let refused: Option<Row> = match seen {
            None => {
                let values = values![reader, shard, state];
                self.executor.write_if(&CLAIM_POSITION, values).await?
            }
            Some(seen) => {
                let seen = rules::outbox::encode_reader(seen);
                let values = values![state, reader, shard, seen];
                self.executor.write_if(&SWAP_POSITION, values).await?
            }
        };
        Ok(refused.is_none())
    }

    pub(crate) async fn put_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()> {
        let values = values![
            reader,
            day_of(letter.event.id.moment()),
            letter.event.id,
            letter.event.kind.number().cast_signed(),
            letter.part.as_str(),
            rules::outbox::encode_dead(letter),
            letter.died_at
        ];
        self.executor.write(&INSERT_DEAD, values).await
    }

    /// Reads the days of all events whose letters may live, the oldest first.
    pub(crate) async fn dead_letters(&self, reader: &str, limit: usize) -> Result<Vec<DeadLetter>> {
        let now = self.clock.now();
        let keep = i64::try_from(OUTBOX_KEEP_MAX.as_micros()).unwrap_or(i64::MAX);
        let oldest = now.plus_micros(-(DEAD_LETTER_KEPT_MICROS + keep));
        let days: Vec<_> = (day_of(oldest) - 1..=day_of(now) + 1).collect();
        let mut letters = Vec::new();
        for days in days.chunks(DAYS_AT_ONCE) {
            let reads = days.iter().map(|day| {
                let values = values![reader, *day, row_limit(limit)];
                self.executor
                    .read::<(Option<Vec<u8>>,)>(&SELECT_DEAD, values)
            });
            for (payload,) in concurrently(reads).await?.into_iter().flatten() {
                letters.extend(rules::outbox::decode_dead(&payload.unwrap_or_default())?);
            }
            if letters.len() >= limit {
                break;
            }
        }
        letters.truncate(limit);
        Ok(letters)
    }

    pub(crate) async fn delete_dead_letter(&self, reader: &str, letter: &DeadLetter) -> Result<()> {
        let values = values![
            letter.died_at.plus_micros(1),
            reader,
            day_of(letter.event.id.moment()),
            letter.event.id,
            letter.event.kind.number().cast_signed(),
            letter.part.as_str()
        ];
        self.executor.write(&DELETE_DEAD, values).await
    }
}
