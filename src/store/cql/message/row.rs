//! The row of a message: how it is written, and how it is read back.

use scylla::value::CqlTimeuuid;

use super::bucket::Bucket;
use super::register::{decode_content, encode_content};
use crate::model::{ConversationId, IdempotencyKey, Message, MessageKind, Timestamp};
use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, time_uuid, user};

const TABLE: &str = "messages_by_conversation";

/// The columns of a message, for every statement that reads one whole, in the order of [`MessageColumns`].
macro_rules! message_columns {
    () => {
        "message_id, sender_id, kind, content, reply_to, client_key, deleted_at, has_reactions"
    };
}
pub(crate) use message_columns;

/// As [`message_columns`] come back. A row without sender is no message: what an edit wrote beside a message that never came.
pub(crate) type MessageColumns =
    (CqlTimeuuid, Option<String>, Option<i8>, Option<Vec<u8>>, Option<CqlTimeuuid>, Option<String>, Option<i64>, Option<bool>);

statements! {
    /// The statements of this file.
    Statements {
        insert: Write "INSERT INTO messages_by_conversation (conversation_id, width, start, message_id, sender_id, kind, content, reply_to, client_key, deleted_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
        bucket: Write "INSERT INTO buckets_by_conversation (conversation_id, width, start) VALUES (?, ?, ?) USING TIMESTAMP ?";
    }
}

impl Inner {
    /// Writes a message with its id's microsecond, so that the same again changes nothing. One that comes late is not in what was counted.
    pub(crate) fn put_message(&self, writes: &mut Writes, message: &Message, bucket: Bucket) {
        let kind: i8 = match message.kind {
            MessageKind::Text => 0,
            MessageKind::System => 1,
        };
        let values = cells![
            message.conversation,
            bucket.width.number(),
            bucket.start,
            message.id,
            &message.sender,
            kind,
            message.content.as_ref().map(encode_content),
            message.reply_to,
            message.client_key.as_ref().map(IdempotencyKey::as_str),
            message.deleted_at,
            message.id.moment(),
        ];
        writes.push(&self.statements.message_row.insert, values);
        self.uncount(writes, message, bucket);
    }

    /// Says that a bucket holds something. The row is never changed, so that its timestamp is its start.
    pub(crate) fn put_bucket(&self, writes: &mut Writes, conversation: ConversationId, bucket: Bucket) {
        self.index.note_late(conversation, bucket, self.clock.now());
        let values = cells![conversation, bucket.width.number(), bucket.start, bucket.start];
        writes.push(&self.statements.message_row.bucket, values);
    }
}

/// The message of a row; `None` where the row is none.
pub(crate) fn read_message(conversation: ConversationId, columns: MessageColumns) -> Result<Option<Message>> {
    let (id, sender, kind, content, reply_to, client_key, deleted_at, has_reactions) = columns;
    let Some(sender) = sender else { return Ok(None) };
    let kind = match kind {
        Some(0) => MessageKind::Text,
        Some(1) => MessageKind::System,
        Some(_) | None => return Err(corrupt(TABLE, "a message is of one of two kinds")),
    };
    let deleted_at = deleted_at.map(Timestamp::from_micros);
    let content = match content {
        // A deletion wins over whatever else was written.
        Some(content) if deleted_at.is_none() => Some(decode_content(&content)?),
        Some(_) | None => None,
    };
    Ok(Some(Message {
        conversation,
        id: time_uuid(TABLE, id)?,
        sender: user(TABLE, &sender)?,
        kind,
        content,
        reply_to: reply_to.map(|id| time_uuid(TABLE, id)).transpose()?,
        client_key: client_key.map(|key| IdempotencyKey::parse(&key)).transpose().map_err(|error| corrupt(TABLE, error))?,
        deleted_at,
        has_reactions: has_reactions.unwrap_or(false),
    }))
}
