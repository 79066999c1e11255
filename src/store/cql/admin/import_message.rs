//! Imported messages: which are present, and the buckets of the others.
//!
//! The time of each message is given, so the import knows their rate before it writes: the rows say how wide a bucket may be, and the fill
//! cache says when a bucket is full. A full bucket is left for a narrower one, so a partition keeps its bound in any order of rows.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use scylla::value::CqlTimeuuid;

use super::Admin;
use crate::model::{ConversationId, Message, MessageId, TimeUuid};
use crate::store::Result;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, time_uuid, values};
use crate::store::cql::message::bucket::{Bucket, Width};
use crate::store::cql::message::bucket::{Fill, NARROWEST_MAX, WIDE_MAX, stored_bytes};
use crate::store::cql::participant::KEYS_AT_ONCE;

const TABLE: &str = "messages_by_conversation";
/// Messages of a bucket from which their rate is known.
const RATED_MIN: u64 = 100;
/// Buckets whose fill is cached.
const FILLS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("it is not zero");
/// Rows of one read of a range.
const ROWS_MAX: i32 = 1_000;
const BATCH_BYTES_MAX: usize = 32 << 10;
const BATCH_ROWS_MAX: usize = 64;

statements! {
    SELECT_PRESENT: Read "SELECT message_id, sender_id FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id IN ?";
    SELECT_IDS_BEFORE: Read "SELECT message_id FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id < ? LIMIT ?";
}

/// Cache of the fill of buckets: what this process wrote to them, or found there.
pub(super) struct FillCache(Mutex<LruCache<(ConversationId, Bucket), Fill>>);

impl FillCache {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(FILLS_MAX)))
    }

    fn get(&self, conversation: ConversationId, bucket: Bucket) -> Option<Fill> {
        self.0.lock().get(&(conversation, bucket)).copied()
    }

    fn put(&self, conversation: ConversationId, bucket: Bucket, fill: Fill) {
        self.0.lock().put((conversation, bucket), fill);
    }
}

type Present = (HashMap<MessageId, Option<Bucket>>, HashSet<Bucket>);

impl Admin {
    /// The present messages among these, and the present buckets that can hold one of them.
    pub(super) async fn present_messages(
        &self,
        id: ConversationId,
        messages: &[MessageId],
    ) -> Result<Present> {
        let holding = |width: Width| {
            messages
                .iter()
                .map(move |message| Bucket::holding(message.moment(), width))
        };
        let candidates: Vec<_> = Width::ALL
            .into_iter()
            .flat_map(holding)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        let buckets: HashSet<_> = self
            .messages
            .present_buckets(id, &candidates)
            .await?
            .into_iter()
            .collect();
        let mut reads = Vec::new();
        for bucket in &buckets {
            let within: Vec<_> = messages
                .iter()
                .filter(|message| bucket.can_hold(**message))
                .collect();
            for piece in within.chunks(KEYS_AT_ONCE) {
                let keys = list(piece.iter().map(|message| **message));
                let values = values![id, bucket.width.number(), bucket.start, keys];
                reads.push(async {
                    type Columns = (CqlTimeuuid, Option<String>);
                    let rows = self
                        .executor
                        .read::<Columns>(&SELECT_PRESENT, values)
                        .await?;
                    let rows = rows.into_iter().filter(|(_, sender)| sender.is_some());
                    rows.map(|(message, _)| Ok((time_uuid(TABLE, message)?, Some(*bucket))))
                        .collect::<Result<Vec<_>>>()
                });
            }
        }
        let present = concurrently(reads).await?.into_iter().flatten().collect();
        Ok((present, buckets))
    }

    /// Caches the fill of a present bucket: it counts the messages, and estimates their bytes by those of this import.
    async fn fill_of(&self, id: ConversationId, bucket: Bucket, bytes_each: u64) -> Result<()> {
        let mut before = TimeUuid::new(bucket.end(), [0x80; 8]);
        let mut messages = 0;
        while messages < NARROWEST_MAX.messages {
            let values = values![id, bucket.width.number(), bucket.start, before, ROWS_MAX];
            let rows = self
                .executor
                .read::<(CqlTimeuuid,)>(&SELECT_IDS_BEFORE, values)
                .await?;
            messages += rows.len() as u64;
            let Some((last,)) = rows
                .last()
                .filter(|_| rows.len() == ROWS_MAX.unsigned_abs() as usize)
            else {
                break;
            };
            before = time_uuid(TABLE, *last)?;
        }
        self.fills.put(
            id,
            bucket,
            Fill {
                messages,
                bytes: messages * bytes_each,
            },
        );
        Ok(())
    }

    /// Chooses a bucket for each message. `present` are the present buckets.
    pub(super) async fn place_imported(
        &self,
        id: ConversationId,
        messages: &[Arc<Message>],
        present: &HashSet<Bucket>,
    ) -> Result<Vec<(Arc<Message>, Bucket)>> {
        let bytes: u64 = messages
            .iter()
            .map(|message| stored_bytes(message) as u64)
            .sum();
        let bytes_each = bytes / (messages.len() as u64).max(1);
        let unknown = present
            .iter()
            .filter(|bucket| self.fills.get(id, **bucket).is_none());
        concurrently(unknown.map(|bucket| self.fill_of(id, *bucket, bytes_each))).await?;
        let rates = MessageRates::of(messages);
        let place = |message: &Arc<Message>| {
            let bucket = self.room_for(id, message, rates.width_for(message));
            let fill = self.fills.get(id, bucket).unwrap_or_default();
            self.fills.put(
                id,
                bucket,
                Fill {
                    messages: fill.messages + 1,
                    bytes: fill.bytes + stored_bytes(message) as u64,
                },
            );
            (Arc::clone(message), bucket)
        };
        Ok(messages.iter().map(place).collect())
    }

    /// The first bucket with room, from the given width to narrower ones.
    fn room_for(&self, id: ConversationId, message: &Message, widest: Width) -> Bucket {
        let bucket = |width: Width| Bucket::holding(message.id.moment(), width);
        let fill = |width: Width| self.fills.get(id, bucket(width)).unwrap_or_default();
        let narrower = || Width::ALL.into_iter().filter(|width| *width >= widest);
        let wide =
            narrower().find(|width| *width != Width::Minute && fill(*width).is_below(WIDE_MAX));
        let any = || {
            Width::ALL
                .into_iter()
                .rev()
                .find(|width| fill(*width).is_below(NARROWEST_MAX))
        };
        bucket(wide.or_else(any).unwrap_or(Width::Minute))
    }

    /// Writes messages to their buckets, after listing these in the index.
    pub(super) async fn put_imported(
        &self,
        id: ConversationId,
        placed: &[(Arc<Message>, Bucket)],
    ) -> Result<()> {
        let mut by_bucket: BTreeMap<Bucket, Vec<&Message>> = BTreeMap::new();
        placed
            .iter()
            .for_each(|(message, bucket)| by_bucket.entry(*bucket).or_default().push(message));
        let oldest: Vec<_> = by_bucket
            .iter()
            .filter_map(|(bucket, messages)| Some((*bucket, *messages.first()?)))
            .collect();
        for piece in oldest.chunks(BATCH_ROWS_MAX) {
            let mut index = Writes::of_one_partition();
            for (bucket, message) in piece {
                self.messages.put_bucket(&mut index, id, *bucket);
                // A count that runs concurrently may lack these messages: its checkpoints must not stay.
                self.messages
                    .invalidate_late_counts(&mut index, message, *bucket);
            }
            self.executor.write_all(index).await?;
        }
        let mut batches = Vec::new();
        for (bucket, messages) in &by_bucket {
            let (mut writes, mut bytes) = (Writes::of_one_partition(), 0);
            for message in messages {
                if writes.len() == BATCH_ROWS_MAX
                    || bytes + stored_bytes(message) > BATCH_BYTES_MAX && !writes.is_empty()
                {
                    batches.push(std::mem::replace(&mut writes, Writes::of_one_partition()));
                    bytes = 0;
                }
                bytes += stored_bytes(message);
                self.messages.put_message(&mut writes, message, *bucket);
            }
            batches.push(writes);
        }
        concurrently(
            batches
                .into_iter()
                .map(|writes| self.executor.write_all(writes)),
        )
        .await?;
        Ok(())
    }
}

/// Rates of messages: the fill of each possible bucket, and the first and last moment in it.
struct MessageRates(HashMap<Bucket, (Fill, i64, i64)>);

impl MessageRates {
    fn of(messages: &[Arc<Message>]) -> Self {
        let mut rates = HashMap::new();
        for message in messages {
            let at = message.id.moment();
            for width in Width::ALL {
                let (fill, first, last): &mut (Fill, i64, i64) = rates
                    .entry(Bucket::holding(at, width))
                    .or_insert((Fill::default(), at.micros(), at.micros()));
                fill.messages += 1;
                fill.bytes += stored_bytes(message) as u64;
                (*first, *last) = ((*first).min(at.micros()), (*last).max(at.micros()));
            }
        }
        Self(rates)
    }

    /// The widest bucket that is not full at the present rate.
    fn width_for(&self, message: &Message) -> Width {
        let fits = |width: &Width| {
            let Some((fill, first, last)) =
                self.0.get(&Bucket::holding(message.id.moment(), *width))
            else {
                return true;
            };
            let expected = if fill.messages < RATED_MIN {
                *fill
            } else {
                fill.scaled(width.micros(), last - first)
            };
            expected.is_below(WIDE_MAX)
        };
        Width::ALL.into_iter().find(fits).unwrap_or(Width::Minute)
    }
}
