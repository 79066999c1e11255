//! Imported messages: which are there, and into which buckets the others go.
//!
//! The time of each is given, so its rate is known before it is written: what lies in these rows says how wide a bucket may be, and what
//! was put into a bucket before says when it is full. A full one is left for a narrower one beside it, so a partition keeps its bound
//! whatever the order of rows.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use lru::LruCache;
use scylla::value::CqlTimeuuid;

use crate::model::{ConversationId, Message, MessageId, TimeUuid};
use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::{Writes, at_once};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, list, pair, time_uuid};
use crate::store::cql::message::bucket::{Bucket, Width};
use crate::store::cql::message::register::encode_content;
use crate::store::cql::participant::roster::{KEYS_AT_ONCE, ROWS_MAX};

const TABLE: &str = "messages_by_conversation";
/// What a bucket takes that has a narrower one below it, and what any takes where all narrower ones are full.
const WIDE_MAX: Fill = Fill { messages: 20_000, bytes: 10 << 20 };
const ANY_MAX: Fill = Fill { messages: 80_000, bytes: 40 << 20 };
/// Fewer messages say nothing of their rate.
const RATED_MIN: u64 = 100;
/// Buckets whose fill is remembered.
const FILLS_MAX: NonZeroUsize = NonZeroUsize::new(100_000).expect("it is not zero");
const BATCH_BYTES_MAX: usize = 32 << 10;
const BATCH_ROWS_MAX: usize = 64;
/// What the cluster adds to the cells of a row, rounded up.
const ROW_BYTES: usize = 160;

statements! {
    /// The statements of this file.
    Statements {
        buckets: Read "SELECT width, start FROM buckets_by_conversation WHERE conversation_id = ? AND (width, start) IN ?";
        there: Read "SELECT message_id, sender_id FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id IN ?";
        ids: Read "SELECT message_id FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id < ? LIMIT ?";
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Fill {
    messages: u64,
    bytes: u64,
}

impl Fill {
    fn has_room_below(self, bound: Self) -> bool {
        self.messages < bound.messages && self.bytes < bound.bytes
    }
}

/// What this process has put into buckets, or found there.
pub(crate) struct Filling(Mutex<LruCache<(ConversationId, Bucket), Fill>>);

impl Filling {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(LruCache::new(FILLS_MAX)))
    }

    fn get(&self, conversation: ConversationId, bucket: Bucket) -> Option<Fill> {
        self.0.lock().expect("no panic while holding fills").get(&(conversation, bucket)).copied()
    }

    fn put(&self, conversation: ConversationId, bucket: Bucket, fill: Fill) {
        self.0.lock().expect("no panic while holding fills").put((conversation, bucket), fill);
    }
}

/// What a message takes, rounded up.
fn bytes_of(message: &Message) -> usize {
    let content = message.content.as_ref().map_or(0, |content| encode_content(content).len());
    content + message.sender.as_str().len() + message.client_key.as_ref().map_or(0, |key| key.as_str().len()) + ROW_BYTES
}

type There = (HashMap<MessageId, Option<Bucket>>, HashSet<Bucket>);

impl Inner {
    /// Which of these messages are there, and the buckets that may hold one of them.
    pub(crate) async fn messages_there(&self, id: ConversationId, messages: &[MessageId]) -> Result<There> {
        let holding = |width: Width| messages.iter().map(move |message| Bucket::holding(message.moment(), width));
        let candidates: Vec<_> = Width::ALL.into_iter().flat_map(holding).collect::<BTreeSet<_>>().into_iter().collect();
        let index = candidates.chunks(KEYS_AT_ONCE).map(|piece| {
            let keys = list(piece.iter().map(|bucket| pair(bucket.width.number(), bucket.start)));
            self.cluster.read::<(i8, i64)>(&self.statements.import_message.buckets, cells![id, keys])
        });
        let rows = at_once(index.collect()).await?;
        let buckets = rows.into_iter().flatten().map(|(width, start)| Bucket::from_row(width, start)).collect::<Result<HashSet<_>>>()?;
        let mut reads = Vec::new();
        for bucket in &buckets {
            let within: Vec<_> = messages.iter().filter(|message| bucket.can_hold(**message)).collect();
            for piece in within.chunks(KEYS_AT_ONCE) {
                let keys = list(piece.iter().map(|message| **message));
                let values = cells![id, bucket.width.number(), bucket.start, keys];
                reads.push(async {
                    type Columns = (CqlTimeuuid, Option<String>);
                    let rows = self.cluster.read::<Columns>(&self.statements.import_message.there, values).await?;
                    let rows = rows.into_iter().filter(|(_, sender)| sender.is_some());
                    rows.map(|(message, _)| Ok((time_uuid(TABLE, message)?, Some(*bucket)))).collect::<Result<Vec<_>>>()
                });
            }
        }
        let there = at_once(reads).await?.into_iter().flatten().collect();
        Ok((there, buckets))
    }

    /// How much lies in a bucket that was there before: of its bytes, as if its messages were like these.
    async fn fill_of(&self, id: ConversationId, bucket: Bucket, bytes_each: u64) -> Result<()> {
        let mut before = TimeUuid::new(bucket.end(), [0x80; 8]);
        let mut messages = 0;
        while messages < ANY_MAX.messages {
            let values = cells![id, bucket.width.number(), bucket.start, before, ROWS_MAX];
            let rows = self.cluster.read::<(CqlTimeuuid,)>(&self.statements.import_message.ids, values).await?;
            messages += rows.len() as u64;
            let Some((last,)) = rows.last().filter(|_| rows.len() == ROWS_MAX.unsigned_abs() as usize) else { break };
            before = time_uuid(TABLE, *last)?;
        }
        self.filling.put(id, bucket, Fill { messages, bytes: messages * bytes_each });
        Ok(())
    }

    /// Chooses a bucket for each message. `there` are the buckets that hold something already.
    pub(crate) async fn place_imported(
        &self,
        id: ConversationId,
        messages: &[Arc<Message>],
        there: &HashSet<Bucket>,
    ) -> Result<Vec<(Arc<Message>, Bucket)>> {
        let bytes: u64 = messages.iter().map(|message| bytes_of(message) as u64).sum();
        let bytes_each = bytes / (messages.len() as u64).max(1);
        let unknown = there.iter().filter(|bucket| self.filling.get(id, **bucket).is_none());
        at_once(unknown.map(|bucket| self.fill_of(id, *bucket, bytes_each)).collect()).await?;
        let crowds = Crowds::of(messages);
        let place = |message: &Arc<Message>| {
            let bucket = self.room_for(id, message, crowds.width_for(message));
            let fill = self.filling.get(id, bucket).unwrap_or_default();
            self.filling.put(id, bucket, Fill { messages: fill.messages + 1, bytes: fill.bytes + bytes_of(message) as u64 });
            (Arc::clone(message), bucket)
        };
        Ok(messages.iter().map(place).collect())
    }

    /// The first bucket with room, from that width on to narrower ones.
    fn room_for(&self, id: ConversationId, message: &Message, widest: Width) -> Bucket {
        let bucket = |width: Width| Bucket::holding(message.id.moment(), width);
        let fill = |width: Width| self.filling.get(id, bucket(width)).unwrap_or_default();
        let narrower = || Width::ALL.into_iter().filter(|width| *width >= widest);
        let wide = narrower().find(|width| *width != Width::Minute && fill(*width).has_room_below(WIDE_MAX));
        let any = || Width::ALL.into_iter().rev().find(|width| fill(*width).has_room_below(ANY_MAX));
        bucket(wide.or_else(any).unwrap_or(Width::Minute))
    }

    /// Writes messages, each where it was placed, once the index says that there is something.
    pub(crate) async fn put_imported(&self, id: ConversationId, placed: &[(Arc<Message>, Bucket)]) -> Result<()> {
        let mut by_bucket: BTreeMap<Bucket, Vec<&Message>> = BTreeMap::new();
        placed.iter().for_each(|(message, bucket)| by_bucket.entry(*bucket).or_default().push(message));
        let now = self.clock.now();
        by_bucket.keys().for_each(|bucket| self.index.note_late(id, *bucket, now));
        let oldest: Vec<_> = by_bucket.iter().filter_map(|(bucket, messages)| Some((*bucket, *messages.first()?))).collect();
        for piece in oldest.chunks(BATCH_ROWS_MAX) {
            let mut index = Writes::of_one_partition();
            for (bucket, message) in piece {
                self.put_bucket(&mut index, id, *bucket);
                // A count that began before the messages are there is not to last.
                self.uncount(&mut index, message, *bucket);
            }
            self.cluster.write_all(index).await?;
        }
        let mut batches = Vec::new();
        for (bucket, messages) in &by_bucket {
            let (mut writes, mut bytes) = (Writes::of_one_partition(), 0);
            for message in messages {
                if writes.len() == BATCH_ROWS_MAX || bytes + bytes_of(message) > BATCH_BYTES_MAX && !writes.is_empty() {
                    batches.push(std::mem::replace(&mut writes, Writes::of_one_partition()));
                    bytes = 0;
                }
                bytes += bytes_of(message);
                self.put_message(&mut writes, message, *bucket);
            }
            batches.push(writes);
        }
        at_once(batches.into_iter().map(|writes| self.cluster.write_all(writes)).collect()).await?;
        Ok(())
    }
}

/// How close together messages lie: of each wide bucket, how many are in it, and over how long.
struct Crowds(HashMap<Bucket, (Fill, i64, i64)>);

impl Crowds {
    fn of(messages: &[Arc<Message>]) -> Self {
        let mut crowds = HashMap::new();
        for message in messages {
            let at = message.id.moment();
            for width in Width::ALL {
                let (fill, first, last): &mut (Fill, i64, i64) =
                    crowds.entry(Bucket::holding(at, width)).or_insert((Fill::default(), at.micros(), at.micros()));
                fill.messages += 1;
                fill.bytes += bytes_of(message) as u64;
                (*first, *last) = ((*first).min(at.micros()), (*last).max(at.micros()));
            }
        }
        Self(crowds)
    }

    /// The widest bucket that would not be full, were it to go on like this.
    fn width_for(&self, message: &Message) -> Width {
        let fits = |width: &Width| {
            let Some((fill, first, last)) = self.0.get(&Bucket::holding(message.id.moment(), *width)) else { return true };
            let scaled = |value: u64| {
                if fill.messages < RATED_MIN {
                    return value;
                }
                let span = (last - first).max(1).unsigned_abs();
                u64::try_from(u128::from(value) * u128::from(width.micros().unsigned_abs()) / u128::from(span)).unwrap_or(u64::MAX)
            };
            Fill { messages: scaled(fill.messages), bytes: scaled(fill.bytes) }.has_room_below(WIDE_MAX)
        };
        Width::ALL.into_iter().find(fits).unwrap_or(Width::Minute)
    }
}
