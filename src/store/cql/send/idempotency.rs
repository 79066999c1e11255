//! Idempotency keys: of all sends with one key, only one message is stored.
//!
//! A send claims its key by a lightweight transaction before it uses the message's id. The claim has the id and the bucket, so a retry on
//! any server completes the same message in the same bucket.

use scylla::deserialize::row::{ColumnIterator, DeserializeRow};
use scylla::deserialize::value::DeserializeValue as _;
use scylla::deserialize::{DeserializationError, TypeCheckError};
use scylla::frame::response::result::ColumnSpec;
use scylla::value::{CqlTimeuuid, CqlValue, Row};

use super::Sends;
use crate::model::{ConversationId, IdempotencyKey, InputHash, Message, UserId};
use crate::store::cluster::KeyedSend;
use crate::store::cql::driver::error::{corrupt, unavailable};
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{time_uuid, values};
use crate::store::cql::message::bucket::Bucket;
use crate::store::{EarlierSend, NewMessage, Result, rules};

const TABLE: &str = "sends_by_key";
/// Attempts to claim a key that expires while other servers claim it too.
const TRIES_MAX: usize = 4;
/// A cell that was added to a claim expires so long before the claim: without the claim it would be
/// a row of its own.
const EXPIRES_EARLIER_MICROS: i64 = 60 * 1_000_000;

statements! {
    CLAIM_KEY: Claim "INSERT INTO sends_by_key (conversation_id, sender_id, key, message_id, width, start, input_hash) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS";
    RECLAIM_KEY: Conditional "UPDATE sends_by_key SET message_id = ?, width = ?, start = ?, input_hash = ? WHERE conversation_id = ? AND sender_id = ? AND key = ? IF message_id = ?";
    CLAIM_IMPORTED_KEY: Conditional "INSERT INTO sends_by_key (conversation_id, sender_id, key, message_id, width, start, input_hash) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS USING TTL ?";
    NOTE_DELIVERED: Write "UPDATE sends_by_key USING TIMESTAMP ? AND TTL ? SET is_delivered = ? WHERE conversation_id = ? AND sender_id = ? AND key = ?";
    SELECT_CLAIM: Read "SELECT message_id, input_hash, is_delivered FROM sends_by_key WHERE conversation_id = ? AND sender_id = ? AND key = ?";
}

/// A message and the bucket that was chosen for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlacedMessage<'a> {
    pub(super) new: &'a NewMessage,
    pub(super) bucket: Bucket,
    /// Whether an earlier attempt has stored it.
    pub(super) is_stored: bool,
}

impl<'a> PlacedMessage<'a> {
    pub(super) fn new(new: &'a NewMessage, bucket: Bucket) -> Self {
        Self {
            new,
            bucket,
            is_stored: false,
        }
    }

    pub(super) fn message(&self) -> &'a Message {
        &self.new.message
    }
}

/// The present claim of a key, as a failed compare-and-set returns it: all columns of the row, also
/// those that a later version has added.
#[derive(Default)]
struct ClaimRow {
    message_id: Option<CqlTimeuuid>,
    width: Option<i8>,
    start: Option<i64>,
    input_hash: Option<Vec<u8>>,
    is_delivered: bool,
}

impl<'frame, 'metadata> DeserializeRow<'frame, 'metadata> for ClaimRow {
    /// Each value is checked below.
    fn type_check(_: &[ColumnSpec<'_>]) -> Result<(), TypeCheckError> {
        Ok(())
    }

    fn deserialize(
        columns: ColumnIterator<'frame, 'metadata>,
    ) -> Result<Self, DeserializationError> {
        let mut claim = Self::default();
        for column in columns {
            let column = column?;
            let (name, kind) = (column.spec.name(), column.spec.typ());
            let known = ["message_id", "width", "start", "input_hash", "is_delivered"];
            if !known.contains(&name) {
                continue;
            }
            match <Option<CqlValue>>::deserialize(kind, column.slice)? {
                Some(CqlValue::Timeuuid(id)) if name == "message_id" => claim.message_id = Some(id),
                Some(CqlValue::TinyInt(width)) if name == "width" => claim.width = Some(width),
                Some(CqlValue::BigInt(start)) if name == "start" => claim.start = Some(start),
                Some(CqlValue::Blob(hash)) if name == "input_hash" => claim.input_hash = Some(hash),
                Some(CqlValue::Boolean(is_delivered)) => claim.is_delivered = is_delivered,
                Some(_) | None => {}
            }
        }
        Ok(claim)
    }
}

/// The outcome of a claim.
enum ClaimOutcome {
    Ours(Bucket),
    /// Claimed for the same message before. An earlier attempt may have stored it there.
    Resumed(Bucket),
    Taken(EarlierSend),
}

impl Sends {
    /// Claims the keys of messages. Returns the messages to store, each in the bucket of its claim, and those whose key is taken.
    pub(super) async fn claim_keys<'a>(
        &self,
        placed: Vec<PlacedMessage<'a>>,
    ) -> Result<(Vec<PlacedMessage<'a>>, Vec<(usize, EarlierSend)>)> {
        let (mut claimed, mut taken) = (Vec::with_capacity(placed.len()), Vec::new());
        let claims = concurrently(placed.iter().map(|one| self.claim_key(one))).await?;
        for (index, (one, outcome)) in placed.iter().zip(claims).enumerate() {
            match outcome {
                ClaimOutcome::Ours(bucket) => claimed.push(PlacedMessage { bucket, ..*one }),
                ClaimOutcome::Resumed(bucket) => {
                    let Message {
                        conversation, id, ..
                    } = *one.message();
                    let stored = self.messages.message_in(conversation, id, bucket).await?;
                    claimed.push(PlacedMessage {
                        bucket,
                        is_stored: stored.is_some(),
                        ..*one
                    });
                }
                ClaimOutcome::Taken(earlier) => taken.push((index, earlier)),
            }
        }
        Ok((claimed, taken))
    }

    async fn claim_key(&self, placed: &PlacedMessage<'_>) -> Result<ClaimOutcome> {
        let message = placed.message();
        let (Some(key), Some(hash)) = (&message.client_key, placed.new.input_hash) else {
            return Ok(ClaimOutcome::Ours(placed.bucket));
        };
        for _ in 0..TRIES_MAX {
            let Bucket { width, start } = placed.bucket;
            let values = values![
                message.conversation,
                &message.sender,
                key.as_str(),
                message.id,
                width.number(),
                start,
                hash.0.to_vec()
            ];
            let present: Option<ClaimRow> = self.executor.write_if(&CLAIM_KEY, values).await?;
            let Some(present) = present else {
                return Ok(ClaimOutcome::Ours(placed.bucket));
            };
            let (Some(id), Some(width), Some(start)) =
                (present.message_id, present.width, present.start)
            else {
                return Err(corrupt(TABLE, "a claim has a message and its bucket"));
            };
            let earlier = read_earlier(id, present.input_hash, present.is_delivered)?;
            if earlier.message == message.id {
                return Ok(ClaimOutcome::Resumed(Bucket::from_row(width, start)?));
            }
            if self.is_alive(&earlier) {
                return Ok(ClaimOutcome::Taken(earlier));
            }
            // The claim is older than a day, and the cluster has not deleted it yet.
            let Bucket { width, start } = placed.bucket;
            let values = values![
                message.id,
                width.number(),
                start,
                hash.0.to_vec(),
                message.conversation,
                &message.sender,
                key.as_str(),
                earlier.message,
            ];
            let present: Option<(bool, Option<CqlTimeuuid>)> =
                self.executor.write_if(&RECLAIM_KEY, values).await?;
            if present.is_none() {
                return Ok(ClaimOutcome::Ours(placed.bucket));
            }
        }
        Err(unavailable("an idempotency key is claimed again and again"))
    }
}

fn read_earlier(id: CqlTimeuuid, hash: Option<Vec<u8>>, is_delivered: bool) -> Result<EarlierSend> {
    let hash = hash
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| corrupt(TABLE, "the hash of an input has 32 bytes"))?;
    Ok(EarlierSend {
        message: time_uuid(TABLE, id)?,
        input_hash: InputHash(hash),
        is_delivered,
    })
}

impl Sends {
    fn is_alive(&self, earlier: &EarlierSend) -> bool {
        self.clock.now()
            < earlier
                .message
                .moment()
                .plus_micros(IdempotencyKey::LIFETIME_MICROS)
    }

    pub(crate) async fn earlier_sends(
        &self,
        conversation: ConversationId,
        keys: &[(UserId, IdempotencyKey)],
    ) -> Result<Vec<Option<EarlierSend>>> {
        let each = async |(sender, key): &(UserId, IdempotencyKey)| {
            let values = values![conversation, sender, key.as_str()];
            type Columns = (Option<CqlTimeuuid>, Option<Vec<u8>>, Option<bool>);
            let row: Option<Columns> = self.executor.read_one(&SELECT_CLAIM, values).await?;
            let Some((Some(id), hash, is_delivered)) = row else {
                return Ok(None);
            };
            let earlier = read_earlier(id, hash, is_delivered == Some(true))?;
            Ok(Some(earlier).filter(|earlier| self.is_alive(earlier)))
        };
        concurrently(keys.iter().map(each)).await
    }

    /// Notes in the claim of a key that its message was delivered after a retry.
    pub(crate) async fn note_delivered(&self, send: &KeyedSend) -> Result<()> {
        let now = self.clock.now().micros();
        let expires_at = send.message.moment().micros() + IdempotencyKey::LIFETIME_MICROS;
        let seconds_left = (expires_at - EXPIRES_EARLIER_MICROS - now) / 1_000_000;
        // A TTL of 0 would never expire.
        let Some(seconds_left) = i32::try_from(seconds_left).ok().filter(|left| *left > 0) else {
            return Ok(());
        };
        let KeyedSend {
            conversation,
            sender,
            key,
            ..
        } = send;
        let values = values![now, seconds_left, true, *conversation, sender, key.as_str()];
        self.executor.write(&NOTE_DELIVERED, values).await
    }

    /// Claims the key of a young imported message, so that a retry of a send from before the import is recognised. An existing claim stays.
    pub(crate) async fn claim_imported_key(
        &self,
        message: &Message,
        bucket: Bucket,
        hash: Option<InputHash>,
    ) -> Result<()> {
        let Some(key) = &message.client_key else {
            return Ok(());
        };
        let now = self.clock.now();
        let Some(until) = rules::import::key_expiry(message, now) else {
            return Ok(());
        };
        // A TTL of 0 would never expire.
        let seconds_left = ((until.micros() - now.micros()) / 1_000_000).max(1);
        let hash = hash.unwrap_or_else(|| InputHash::of_imported(message));
        let hash = hash.0.to_vec();
        let (width, start) = (bucket.width.number(), bucket.start);
        let seconds_left = i32::try_from(seconds_left).unwrap_or(i32::MAX);
        let values = values![
            message.conversation,
            &message.sender,
            key.as_str(),
            message.id,
            width,
            start,
            hash,
            seconds_left
        ];
        self.executor
            .write_if::<Row>(&CLAIM_IMPORTED_KEY, values)
            .await?;
        Ok(())
    }
}
