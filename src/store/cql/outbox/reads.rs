//! Reads of the outbox: the lanes of some minutes of a shard, merged.

use std::collections::{BTreeMap, HashMap};

use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use super::lanes::LANES;
use super::{Outbox, SLOT_MICROS, TABLE, number_of, slot_of};
use crate::model::{ConversationId, OrderKey, OutboxRow, TimeUuid, Timestamp};
use crate::store::cql::driver::executor::{PARTITIONS_MAX, concurrently};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, row_limit, time_uuid, time_uuid_bound, values};
use crate::store::{OutboxPage, OutboxRead, Result, rules};

/// Minutes of one statement, each with its lanes: no more partitions than one statement may name.
const SLOTS_AT_ONCE: i32 = 4;
const _: () = assert!(SLOTS_AT_ONCE as usize * LANES as usize <= PARTITIONS_MAX);
/// Statements of one page, so that a page over minutes without events ends.
const STATEMENTS_MAX: usize = 16;

statements! {
    SELECT_OUTBOX: Read "SELECT lane, slot, event_id, conversation_id, payload FROM outbox_by_shard WHERE shard = ? AND lane IN ? AND slot IN ? AND event_id > ? AND event_id <= ? PER PARTITION LIMIT ?";
}

type Columns = (i8, i32, CqlTimeuuid, Uuid, Option<Vec<u8>>);

impl Outbox {
    pub(crate) async fn pages(
        &self,
        reads: &[OutboxRead],
        up_to: OrderKey,
        limit: usize,
    ) -> Result<Vec<OutboxPage>> {
        let pages = reads.iter().map(|read| self.page(*read, up_to, limit));
        concurrently(pages).await
    }

    async fn page(&self, read: OutboxRead, up_to: OrderKey, limit: usize) -> Result<OutboxPage> {
        let mut page = OutboxPage {
            rows: Vec::new(),
            read_to: read.after,
        };
        for _ in 0..STATEMENTS_MAX {
            if page.read_to >= up_to || page.rows.len() >= limit {
                break;
            }
            let after = page.read_to;
            let first = slot_of(after.moment());
            let last = slot_of(up_to.moment()).min(first.saturating_add(SLOTS_AT_ONCE - 1));
            let end = up_to.min(last_of_slot(last));
            let values = values![
                number_of(read.shard),
                list(0..LANES),
                list(first..=last),
                time_uuid_bound(after),
                time_uuid_bound(end),
                row_limit(limit + 1)
            ];
            let rows: Vec<Columns> = self.executor.read(&SELECT_OUTBOX, values).await?;
            let (mut found, read_to) = merged(rows, end, limit)?;
            page.rows.append(&mut found);
            page.read_to = read_to;
        }
        Ok(page)
    }
}

/// The greatest position in a minute.
fn last_of_slot(slot: i32) -> OrderKey {
    let next = Timestamp::from_micros((i64::from(slot) + 1) * SLOT_MICROS);
    OrderKey::first_at(next).before()
}

/// The rows of several partitions in the order of their ids, up to where each partition was read:
/// one with more than `limit` rows may hold more. A row that two attempts wrote to two lanes comes
/// once.
fn merged(rows: Vec<Columns>, end: OrderKey, limit: usize) -> Result<(Vec<OutboxRow>, OrderKey)> {
    let mut found = BTreeMap::new();
    let mut partitions: HashMap<_, Vec<TimeUuid>> = HashMap::new();
    for (lane, slot, id, conversation, payload) in rows {
        let id = time_uuid(TABLE, id)?;
        partitions.entry((lane, slot)).or_default().push(id);
        found.insert((id, ConversationId(conversation)), payload);
    }
    let read_to = partitions
        .values()
        .map(|ids| rules::outbox::read_to(ids, limit, end))
        .min()
        .unwrap_or(end);
    let decoded = found
        .into_iter()
        .take_while(|((id, _), _)| id.order_key() <= read_to)
        .map(|((id, conversation), payload)| {
            rules::outbox::decode(id, conversation, &payload.unwrap_or_default())
        });
    Ok((decoded.collect::<Result<_>>()?, read_to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::OutboxEvent;

    fn id(micros: i64) -> TimeUuid {
        TimeUuid::new(Timestamp::from_micros(micros), [0; 8])
    }

    fn row(lane: i8, slot: i32, micros: i64) -> Columns {
        let id = id(micros);
        let row = OutboxRow {
            id,
            conversation: ConversationId(uuid::Uuid::nil()),
            events: vec![OutboxEvent::message_added(id)],
        };
        let payload = rules::outbox::encode(&row);
        let conversation = row.conversation.0;
        (lane, slot, id.uuid().into(), conversation, Some(payload))
    }

    fn micros_of(rows: &[OutboxRow]) -> Vec<i64> {
        rows.iter().map(|row| row.id.moment().micros()).collect()
    }

    #[test]
    fn lanes_are_merged_up_to_where_all_were_read() {
        let end = OrderKey::first_at(Timestamp::from_micros(100));
        let rows = || {
            vec![
                row(0, 0, 10),
                row(0, 0, 30),
                row(1, 0, 20),
                row(1, 0, 30),
                row(1, 0, 90),
                row(3, 0, 5),
            ]
        };
        let (all, read_to) = merged(rows(), end, 9).unwrap();
        assert_eq!(micros_of(&all), [5, 10, 20, 30, 90]);
        assert_eq!(read_to, end);
        let (some, read_to) = merged(rows(), end, 2).unwrap();
        assert_eq!(micros_of(&some), [5, 10, 20, 30], "lane 1 holds more");
        assert_eq!(read_to, id(90).order_key().before());
        let (few, _) = merged(rows(), end, 1).unwrap();
        assert_eq!(micros_of(&few), [5, 10, 20], "the lanes 0 and 1 hold more");
        let (none, read_to) = merged(Vec::new(), end, 2).unwrap();
        assert!(none.is_empty());
        assert_eq!(read_to, end);
    }

    #[test]
    fn a_minute_ends_before_the_next_one() {
        let last = last_of_slot(7);
        assert_eq!(slot_of(last.moment()), 7);
        assert_eq!(slot_of(TimeUuid::first_after(last).moment()), 8);
    }
}
