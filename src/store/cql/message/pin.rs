//! Pins: one register for each message that was ever pinned, in the message and in a table of its conversation.
//!
//! Both cells have the same bytes and the microsecond of the change, so the later change stays. In the
//! table the end of a pin expires. The list of those that are on ([`super::pin_list`]) is what readers read.

use scylla::value::CqlTimeuuid;

use super::Messages;
use super::bucket::Bucket;
use crate::model::{ChangeId, ConversationId, MessageId, Pin};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, row_limit, time_uuid, values};

const TABLE: &str = "pins_by_conversation";
/// Rows of one read.
const ROWS_MAX: usize = 1_000;
/// TTL of the end of a pin, in seconds. A pin that is on has none.
const END_SECONDS: i32 = (Pin::END_LIFETIME_MICROS / 1_000_000) as i32;

statements! {
    UPDATE_LISTED_PIN: Write "UPDATE pins_by_conversation USING TIMESTAMP ? AND TTL ? SET pin = ? WHERE conversation_id = ? AND message_id = ?";
    UPDATE_MESSAGE_PIN: Write "UPDATE messages_by_conversation USING TIMESTAMP ? SET pin = ? WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
    SELECT_FIRST_PINS: Read "SELECT message_id, pin FROM pins_by_conversation WHERE conversation_id = ? LIMIT ?";
    SELECT_NEXT_PINS: Read "SELECT message_id, pin FROM pins_by_conversation WHERE conversation_id = ? AND message_id > ? LIMIT ?";
    SELECT_PIN: Read "SELECT pin FROM pins_by_conversation WHERE conversation_id = ? AND message_id = ?";
}

/// The pin in a cell of either table.
pub(crate) fn decode_pin(table: &'static str, bytes: &[u8]) -> Result<Pin> {
    Pin::from_bytes(bytes).ok_or_else(|| {
        corrupt(
            table,
            "a pin is the order key of its change, a flag and a name",
        )
    })
}

impl Messages {
    /// The registers of a conversation's pins, ended ones included.
    pub(crate) async fn pin_registers(
        &self,
        conversation: ConversationId,
    ) -> Result<Vec<(MessageId, Pin)>> {
        type Columns = (CqlTimeuuid, Option<Vec<u8>>);
        let mut found: Vec<(MessageId, Pin)> = Vec::new();
        let mut after: Option<CqlTimeuuid> = None;
        loop {
            let rows: Vec<Columns> = match after {
                None => {
                    let values = values![conversation, row_limit(ROWS_MAX)];
                    self.executor.read(&SELECT_FIRST_PINS, values).await?
                }
                Some(after) => {
                    let after = time_uuid(TABLE, after)?;
                    let values = values![conversation, after, row_limit(ROWS_MAX)];
                    self.executor.read(&SELECT_NEXT_PINS, values).await?
                }
            };
            let is_last = rows.len() < ROWS_MAX;
            after = rows.last().map(|(message, _)| *message);
            for (message, pin) in rows {
                if let Some(pin) = pin {
                    found.push((time_uuid(TABLE, message)?, decode_pin(TABLE, &pin)?));
                }
            }
            if is_last || found.len() >= Pin::KEPT_MAX {
                return Ok(found);
            }
        }
    }

    /// Whether the store has a pin of a message, or the end of one.
    pub(crate) async fn has_pin(
        &self,
        conversation: ConversationId,
        message: MessageId,
    ) -> Result<bool> {
        let values = values![conversation, message];
        let pin: Option<Vec<u8>> = self.executor.read_cell(&SELECT_PIN, values).await?;
        Ok(pin.is_some())
    }

    /// Imports a pin, with the lowest timestamp. The caller lists it.
    pub(crate) async fn put_imported_pin(
        &self,
        conversation: ConversationId,
        message: MessageId,
        bucket: Bucket,
        pin: &Pin,
    ) -> Result<()> {
        let mut writes = Writes::logged();
        writes.put_pin_at((conversation, message), bucket, pin, REGISTER_TIMESTAMP);
        self.executor.write_all(writes).await
    }
}

/// The end of a message's pin by a later change.
pub(crate) fn end_of(pin: &Pin, change: ChangeId) -> Pin {
    Pin {
        change,
        by: pin.by.clone(),
        is_on: false,
    }
}

impl Writes {
    /// Writes a pin or its end, with the microsecond of its change.
    pub(crate) fn put_pin(
        &mut self,
        (conversation, message): (ConversationId, MessageId),
        bucket: Bucket,
        pin: &Pin,
    ) {
        self.put_pin_at(
            (conversation, message),
            bucket,
            pin,
            pin.change.moment().micros(),
        );
    }

    /// The same, with another write timestamp.
    pub(crate) fn put_pin_at(
        &mut self,
        (conversation, message): (ConversationId, MessageId),
        Bucket { width, start }: Bucket,
        pin: &Pin,
        timestamp: i64,
    ) {
        self.put_listed_pin((conversation, message), pin, timestamp);
        let values = values![
            timestamp,
            pin.to_bytes(),
            conversation,
            width.number(),
            start,
            message
        ];
        self.push(&UPDATE_MESSAGE_PIN, values);
    }

    /// Writes the row of the list alone.
    pub(crate) fn put_listed_pin(
        &mut self,
        (conversation, message): (ConversationId, MessageId),
        pin: &Pin,
        timestamp: i64,
    ) {
        let ttl = if pin.is_on { 0 } else { END_SECONDS };
        let values = values![timestamp, ttl, pin.to_bytes(), conversation, message];
        self.push(&UPDATE_LISTED_PIN, values);
    }
}
