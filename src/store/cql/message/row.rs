//! Rows of messages: how they are encoded, decoded and found.

use futures_util::future::try_join_all;
use scylla::value::CqlTimeuuid;

use super::Messages;
use super::bucket::{Bucket, Width};
use super::content::{decode_content, encode_content};
use super::pin::decode_pin;
use crate::model::{ConversationId, IdempotencyKey, Message, MessageId, MessageKind, Timestamp};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{time_uuid, user, values};

const TABLE: &str = "messages_by_conversation";

/// The columns of a whole message, in the order of [`MessageColumns`].
macro_rules! message_columns {
    () => {
        "message_id, sender_id, kind, content, reply_to, client_key, deleted_at, has_reactions, pin"
    };
}
pub(crate) use message_columns;

/// The values of [`message_columns`]. A row without a sender is no message: an edit left it for a message that was never stored.
pub(crate) type MessageColumns = (
    CqlTimeuuid,
    Option<String>,
    Option<i8>,
    Option<Vec<u8>>,
    Option<CqlTimeuuid>,
    Option<String>,
    Option<i64>,
    Option<bool>,
    Option<Vec<u8>>,
);

statements! {
    INSERT_MESSAGE: Write "INSERT INTO messages_by_conversation (conversation_id, width, start, message_id, sender_id, kind, content, reply_to, client_key, deleted_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?";
    SELECT_MESSAGE: Read concat!("SELECT ", message_columns!(), " FROM messages_by_conversation WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?");
    UPDATE_CONTENT: Write "UPDATE messages_by_conversation USING TIMESTAMP ? SET content = ?, deleted_at = ? WHERE conversation_id = ? AND width = ? AND start = ? AND message_id = ?";
    INSERT_BUCKET: Write "INSERT INTO buckets_by_conversation (conversation_id, width, start) VALUES (?, ?, ?) USING TIMESTAMP ?";
}

impl Messages {
    /// Writes a message with the microsecond of its id, so that a retry changes nothing. A late message also invalidates the counts.
    pub(crate) fn put_message(&self, writes: &mut Writes, message: &Message, bucket: Bucket) {
        let kind: i8 = match message.kind {
            MessageKind::Text => 0,
            MessageKind::System => 1,
        };
        let values = values![
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
        writes.push(&INSERT_MESSAGE, values);
        self.invalidate_late_counts(writes, message, bucket);
    }

    /// A message and its bucket: from the bucket that is guessed, or else from one of the four that can hold it.
    pub(crate) async fn find_message(
        &self,
        conversation: ConversationId,
        id: MessageId,
        guess: Option<Bucket>,
    ) -> Result<Option<(Message, Bucket)>> {
        if let Some(bucket) = guess
            && let Some(message) = self.message_in(conversation, id, bucket).await?
        {
            return Ok(Some((message, bucket)));
        }
        let buckets = Width::ALL.map(|width| Bucket::holding(id.moment(), width));
        let found =
            try_join_all(buckets.map(|bucket| self.message_in(conversation, id, bucket))).await?;
        Ok(found
            .into_iter()
            .zip(buckets)
            .find_map(|(message, bucket)| Some((message?, bucket))))
    }

    pub(crate) async fn message_in(
        &self,
        conversation: ConversationId,
        id: MessageId,
        bucket: Bucket,
    ) -> Result<Option<Message>> {
        let values = values![conversation, bucket.width.number(), bucket.start, id];
        let row: Option<MessageColumns> = self.executor.read_one(&SELECT_MESSAGE, values).await?;
        row.map_or(Ok(None), |columns| decode_message(conversation, columns))
    }

    /// Lists a bucket in the index. The row never changes, so its timestamp is the start of the bucket.
    pub(crate) fn put_bucket(
        &self,
        writes: &mut Writes,
        conversation: ConversationId,
        bucket: Bucket,
    ) {
        self.index.note_late(conversation, bucket, self.clock.now());
        let values = values![
            conversation,
            bucket.width.number(),
            bucket.start,
            bucket.start
        ];
        writes.push(&INSERT_BUCKET, values);
    }
}

/// The message of a row; `None` if the row is no message.
pub(crate) fn decode_message(
    conversation: ConversationId,
    columns: MessageColumns,
) -> Result<Option<Message>> {
    let (id, sender, kind, content, reply_to, client_key, deleted_at, has_reactions, pin) = columns;
    let Some(sender) = sender else {
        return Ok(None);
    };
    let kind = match kind {
        Some(0) => MessageKind::Text,
        // A later version knows further kinds: for this one, they are no text of a user.
        Some(_) => MessageKind::System,
        None => return Err(corrupt(TABLE, "a message has a kind")),
    };
    let deleted_at = deleted_at.map(Timestamp::from_micros);
    let content = match content {
        // A deletion wins over every edit.
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
        // An erasure empties it.
        client_key: client_key
            .filter(|key| !key.is_empty())
            .map(|key| IdempotencyKey::parse(&key))
            .transpose()
            .map_err(|error| corrupt(TABLE, error))?,
        deleted_at,
        has_reactions: has_reactions.unwrap_or(false),
        // A deletion unpins, also if a pin arrived later.
        pin: match pin {
            Some(pin) if deleted_at.is_none() => Some(Box::new(decode_pin(TABLE, &pin)?)),
            Some(_) | None => None,
        },
    }))
}

impl Writes {
    /// Replaces the content of a message, or deletes it, with the microsecond of the change.
    pub(crate) fn put_content(&mut self, message: &Message, bucket: Bucket, at: Timestamp) {
        // Empty, not null: a page full of deletions must not be a page full of tombstones.
        let content = message
            .content
            .as_ref()
            .map_or_else(Vec::new, encode_content);
        let Bucket { width, start } = bucket;
        let values = values![
            at,
            content,
            message.deleted_at,
            message.conversation,
            width.number(),
            start,
            message.id
        ];
        self.push(&UPDATE_CONTENT, values);
    }
}
