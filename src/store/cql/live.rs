//! Live messages on a cluster: a partition for each, a list of each conversation, and the due queue.
//!
//! The list of writers changes by lightweight transactions alone. A row of text has its extent in its key, and the static
//! cells are registers with the moment as their write timestamp. Nothing is deleted: rows expire. The chat caches them.

use futures_util::future::try_join;
use scylla::value::Row;
use uuid::Uuid;

use super::Cql;
use crate::model::{
    ConversationId, IdempotencyKey, LiveKey, LiveMessage, LiveMessageId, LiveStop, LiveText,
    OutboxShard, Timestamp,
};
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::{concurrently, slot_by_slot};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{row_limit, user, values};
use crate::store::live::{
    DUE_LIVE_LIFETIME_MICROS, DueLiveQuery, LIVE_WRITERS_LIFETIME_MICROS, LiveListing, LiveStore,
    LiveTextQuery, LiveWrite, WriterClaim, begin_of_minute,
};
use crate::store::rules::live::{ClaimBytes, LiveCells, encode_register};
use crate::store::{Result, StoreFuture};

const TEXTS: &str = "live_texts";
const LIST: &str = "live_messages_by_conversation";
const DUE: &str = "due_by_minute";
const WRITERS_SECONDS: i32 = (LIVE_WRITERS_LIFETIME_MICROS / 1_000_000) as i32;
const DUE_SECONDS: i32 = (DUE_LIVE_LIFETIME_MICROS / 1_000_000) as i32;
/// Kind of an entry in the due queue.
const KIND_LIVE: i8 = 1;

statements! {
    CLAIM_FIRST_WRITER: Conditional "UPDATE live_texts USING TTL ? SET writers = ?, started = ? WHERE conversation_id = ? AND live_id = ? IF writers = null";
    CLAIM_NEXT_WRITER: Conditional "UPDATE live_texts USING TTL ? SET writers = ? WHERE conversation_id = ? AND live_id = ? IF writers = ?";
    SELECT_LIVE: Read "SELECT writers, started, touched, status, steps, stop, discarded FROM live_texts WHERE conversation_id = ? AND live_id = ? LIMIT 1";
    SELECT_LIVE_TEXTS: Read "SELECT position, content FROM live_texts WHERE conversation_id = ? AND live_id = ? AND (writer_number, text_end, position) > (?, ?, ?) AND (writer_number) <= (?) LIMIT ?";
    INSERT_LIVE_TEXT: Write "INSERT INTO live_texts (conversation_id, live_id, writer_number, text_end, position, content, touched, status, steps) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    TOUCH_LIVE: Write "INSERT INTO live_texts (conversation_id, live_id, touched, status, steps) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
    STOP_LIVE: Write "INSERT INTO live_texts (conversation_id, live_id, stop) VALUES (?, ?, ?) USING TIMESTAMP ?";
    DISCARD_LIVE: Write "INSERT INTO live_texts (conversation_id, live_id, discarded) VALUES (?, ?, ?) USING TIMESTAMP ?";
    LIST_LIVE: Write "INSERT INTO live_messages_by_conversation (conversation_id, minute, live_id, sender_id, key) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
    SELECT_LISTED_LIVES: Read "SELECT minute, live_id, sender_id, key FROM live_messages_by_conversation WHERE conversation_id = ? AND minute >= ? LIMIT ?";
    INSERT_DUE_LIVE: Write "INSERT INTO due_by_minute (minute, shard, due_id, kind, conversation_id, live_id, sender_id, key) VALUES (?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ? AND TTL ?";
    SELECT_DUE_LIVES: Poll "SELECT kind, conversation_id, live_id, sender_id, key FROM due_by_minute WHERE minute = ? AND shard = ? AND due_id > ? LIMIT ?";
}

type LiveBytes = Option<Vec<u8>>;
type LiveColumns = (
    LiveBytes,
    LiveBytes,
    Option<i64>,
    LiveBytes,
    LiveBytes,
    LiveBytes,
    LiveBytes,
);
type ListedColumns = (i32, Vec<u8>, Option<String>, Option<String>);
type DueColumns = (
    Option<i8>,
    Option<Uuid>,
    Option<Vec<u8>>,
    Option<String>,
    Option<String>,
);

fn id_bytes(live: LiveKey) -> Vec<u8> {
    live.id.0.as_bytes().to_vec()
}

/// Id of an entry in the due queue. Its order is that of the ids of live messages.
fn due_id(live: LiveKey) -> Vec<u8> {
    [
        live.id.0.as_bytes().as_slice(),
        live.conversation.0.as_bytes(),
    ]
    .concat()
}

fn live_id(table: &'static str, bytes: &[u8]) -> Result<LiveMessageId> {
    let id = Uuid::from_slice(bytes).map_err(|error| corrupt(table, error))?;
    Ok(LiveMessageId(id))
}

fn number(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn listing(
    table: &'static str,
    (minute, live): (u32, LiveKey),
    (sender, key): (Option<String>, Option<String>),
) -> Result<LiveListing> {
    let (Some(sender), Some(key)) = (sender, key) else {
        return Err(corrupt(table, "a row has a sender and a key"));
    };
    Ok(LiveListing {
        minute,
        live,
        sender: user(table, &sender)?,
        key: IdempotencyKey::parse(&key).map_err(|error| corrupt(table, error))?,
    })
}

impl Cql {
    async fn live_message(&self, live: LiveKey) -> Result<Option<LiveMessage>> {
        let values = values![live.conversation, id_bytes(live)];
        let row: Option<LiveColumns> = self.executor.read_one(&SELECT_LIVE, values).await?;
        let Some((writers, start, touched, status, steps, stop, discarded)) = row else {
            return Ok(None);
        };
        let cells = LiveCells {
            writers,
            start,
            touched: touched.map(Timestamp::from_micros),
            status,
            steps,
            stop,
            discarded,
        };
        cells.decode(live)
    }

    async fn due_of_minute(
        &self,
        query: &DueLiveQuery,
        minute: u32,
        limit: usize,
    ) -> Result<Vec<LiveListing>> {
        let after = query.after.filter(|(after, _)| *after == minute);
        // No id is empty.
        let after = after.map_or_else(Vec::new, |(_, live)| due_id(live));
        let shard = query.shard.number().cast_signed();
        let values = values![number(minute), shard, after, row_limit(limit)];
        let rows: Vec<DueColumns> = self.executor.read(&SELECT_DUE_LIVES, values).await?;
        let each = rows
            .into_iter()
            .map(|(kind, conversation, id, sender, key)| {
                let (Some(KIND_LIVE), Some(conversation), Some(id)) = (kind, conversation, id)
                else {
                    return Err(corrupt(DUE, "an entry is a live message"));
                };
                let live = LiveKey {
                    conversation: ConversationId(conversation),
                    id: live_id(DUE, &id)?,
                };
                listing(DUE, (minute, live), (sender, key))
            });
        each.collect()
    }
}

impl LiveStore for Cql {
    fn claim_live_writer<'a>(
        &'a self,
        live: LiveKey,
        claim: &'a WriterClaim,
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let (conversation, id) = (live.conversation, id_bytes(live));
            let ClaimBytes {
                seen,
                writers,
                start,
            } = ClaimBytes::new(claim);
            let refused: Option<Row> = match seen {
                None => {
                    let values = values![WRITERS_SECONDS, writers, start, conversation, id];
                    self.executor.write_if(&CLAIM_FIRST_WRITER, values).await?
                }
                Some(seen) => {
                    let values = values![WRITERS_SECONDS, writers, conversation, id, seen];
                    self.executor.write_if(&CLAIM_NEXT_WRITER, values).await?
                }
            };
            Ok(refused.is_none())
        })
    }

    fn live_messages<'a>(
        &'a self,
        keys: &'a [LiveKey],
    ) -> StoreFuture<'a, Vec<Option<LiveMessage>>> {
        let each = keys.iter().map(|live| self.live_message(*live));
        Box::pin(concurrently(each))
    }

    fn live_texts<'a>(&'a self, query: &'a LiveTextQuery) -> StoreFuture<'a, Vec<LiveText>> {
        Box::pin(async move {
            let writer = query.writer.get().cast_signed();
            let values = values![
                query.live.conversation,
                id_bytes(query.live),
                writer,
                number(query.after.end),
                number(query.after.position),
                writer,
                row_limit(query.limit)
            ];
            let rows: Vec<(i32, Option<String>)> =
                self.executor.read(&SELECT_LIVE_TEXTS, values).await?;
            let text = |(position, content): (i32, Option<String>)| {
                let position = u32::try_from(position).ok()?;
                LiveText::new(position, content?)
            };
            let texts = rows.into_iter().map(|row| {
                text(row).ok_or_else(|| corrupt(TEXTS, "a row has a text within the longest body"))
            });
            texts.collect()
        })
    }

    fn write_live<'a>(&'a self, live: LiveKey, write: &'a LiveWrite) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let (conversation, id, at) = (live.conversation, id_bytes(live), write.at);
            let status = write.status.as_ref();
            let status = status.map(|status| encode_register(at, status));
            let steps = write.steps.as_ref();
            let steps = steps.map(|steps| encode_register(at, steps));
            let Some(text) = &write.text else {
                let values = values![conversation, id, at, status, steps, at];
                return self.executor.write(&TOUCH_LIVE, values).await;
            };
            let extent = text.extent();
            let values = values![
                conversation,
                id,
                write.writer.get().cast_signed(),
                number(extent.end),
                number(extent.position),
                text.text(),
                at,
                status,
                steps,
                at
            ];
            self.executor.write(&INSERT_LIVE_TEXT, values).await
        })
    }

    fn stop_live<'a>(&'a self, live: LiveKey, stop: &'a LiveStop) -> StoreFuture<'a, ()> {
        let register = encode_register(stop.at, stop);
        let values = values![live.conversation, id_bytes(live), register, stop.at];
        Box::pin(self.executor.write(&STOP_LIVE, values))
    }

    fn discard_live(&self, live: LiveKey, at: Timestamp) -> StoreFuture<'_, ()> {
        let register = encode_register(at, &());
        let values = values![live.conversation, id_bytes(live), register, at];
        Box::pin(self.executor.write(&DISCARD_LIVE, values))
    }

    fn list_live<'a>(&'a self, listing: &'a LiveListing, due_minute: u32) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let LiveListing {
                minute,
                live,
                sender,
                key,
            } = listing;
            // A repetition writes the same cells.
            let at = begin_of_minute(*minute);
            let (conversation, id) = (live.conversation, id_bytes(*live));
            let values = values![
                conversation,
                number(*minute),
                id.clone(),
                sender,
                key.as_str(),
                at
            ];
            let listed = self.executor.write(&LIST_LIVE, values);
            let values = values![
                number(due_minute),
                OutboxShard::of(conversation).number().cast_signed(),
                due_id(*live),
                KIND_LIVE,
                conversation,
                id,
                sender,
                key.as_str(),
                at,
                DUE_SECONDS
            ];
            let due = self.executor.write(&INSERT_DUE_LIVE, values);
            try_join(listed, due).await.map(drop)
        })
    }

    fn listed_lives(
        &self,
        conversation: ConversationId,
        from_minute: u32,
        limit: usize,
    ) -> StoreFuture<'_, Vec<LiveListing>> {
        Box::pin(async move {
            let values = values![conversation, number(from_minute), row_limit(limit)];
            let rows: Vec<ListedColumns> = self.executor.read(&SELECT_LISTED_LIVES, values).await?;
            let each = rows.into_iter().map(|(minute, id, sender, key)| {
                let live = LiveKey {
                    conversation,
                    id: live_id(LIST, &id)?,
                };
                let minute = u32::try_from(minute).unwrap_or_default();
                listing(LIST, (minute, live), (sender, key))
            });
            each.collect()
        })
    }

    fn due_lives<'a>(&'a self, query: &'a DueLiveQuery) -> StoreFuture<'a, Vec<LiveListing>> {
        let first = query.after.map_or(query.from, |(minute, _)| minute);
        let read = move |minute, left| self.due_of_minute(query, minute, left);
        Box::pin(slot_by_slot(first..=query.up_to, query.limit, read))
    }
}
