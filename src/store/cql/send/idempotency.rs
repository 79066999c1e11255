//! The claims of idempotency keys: of all who try under one key, one message is kept.
//!
//! A key is claimed before its message's id is used, by a lightweight transaction. The row says where the message goes, so that whoever
//! finishes it writes the same into the same bucket.

use scylla::DeserializeRow;
use scylla::value::CqlTimeuuid;
use uuid::Uuid;

use crate::model::{ConversationId, IdempotencyKey, InputHash, Message, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::at_once;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, time_uuid};
use crate::store::cql::message::bucket::Bucket;
use crate::store::{EarlierSend, NewMessage, Result};

const TABLE: &str = "sends_by_key";
/// A key that expires just now may be claimed by others meanwhile.
const TRIES_MAX: usize = 4;

statements! {
    /// The statements of this file. What a transaction writes has the cluster's own timestamp.
    Statements {
        claim: Conditional "INSERT INTO sends_by_key (conversation_id, sender_id, key, message_id, width, start, input_hash) VALUES (?, ?, ?, ?, ?, ?, ?) IF NOT EXISTS";
        claim_again: Conditional "UPDATE sends_by_key SET message_id = ?, width = ?, start = ?, input_hash = ? WHERE conversation_id = ? AND sender_id = ? AND key = ? IF message_id = ?";
        earlier: Read "SELECT message_id, input_hash FROM sends_by_key WHERE conversation_id = ? AND sender_id = ? AND key = ?";
    }
}

/// A message and the bucket that it goes into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed<'a> {
    pub(crate) new: &'a NewMessage,
    pub(crate) bucket: Bucket,
}

impl<'a> Placed<'a> {
    pub(crate) fn message(&self) -> &'a Message {
        &self.new.message
    }
}

/// What is there where a key was claimed before.
#[derive(DeserializeRow)]
#[expect(dead_code, reason = "an answer is matched by the names of all its columns")]
struct Claim {
    #[scylla(rename = "[applied]")]
    applied_: bool,
    #[scylla(rename = "conversation_id")]
    conversation_: Uuid,
    #[scylla(rename = "sender_id")]
    sender_: String,
    #[scylla(rename = "key")]
    key_: String,
    message_id: Option<CqlTimeuuid>,
    width: Option<i8>,
    start: Option<i64>,
    input_hash: Option<Vec<u8>>,
}

/// The outcome for one message.
enum Claimed {
    Ours(Bucket),
    Taken(EarlierSend),
}

/// Claims the keys of those that have one. Answers with those that are to be kept, each where its key says, and those whose key is taken.
pub(crate) async fn claim<'a>(inner: &Inner, placed: Vec<Placed<'a>>) -> Result<(Vec<Placed<'a>>, Vec<(usize, EarlierSend)>)> {
    let (mut kept, mut taken) = (Vec::with_capacity(placed.len()), Vec::new());
    let claims = at_once(placed.iter().map(|one| claim_one(inner, one)).collect()).await?;
    for (index, (one, claimed)) in placed.iter().zip(claims).enumerate() {
        match claimed {
            Claimed::Ours(bucket) => kept.push(Placed { bucket, ..*one }),
            Claimed::Taken(earlier) => taken.push((index, earlier)),
        }
    }
    Ok((kept, taken))
}

async fn claim_one(inner: &Inner, placed: &Placed<'_>) -> Result<Claimed> {
    let message = placed.message();
    let (Some(key), Some(hash)) = (&message.client_key, placed.new.input_hash) else { return Ok(Claimed::Ours(placed.bucket)) };
    for _ in 0..TRIES_MAX {
        let Bucket { width, start } = placed.bucket;
        let values = cells![message.conversation, &message.sender, key.as_str(), message.id, width.number(), start, hash.0.to_vec()];
        let there: Option<Claim> = inner.cluster.write_if(&inner.statements.claim.claim, values).await?;
        let Some(there) = there else { return Ok(Claimed::Ours(placed.bucket)) };
        let (Some(id), Some(width), Some(start)) = (there.message_id, there.width, there.start) else {
            return Err(corrupt(TABLE, "a claim has a message and its bucket"));
        };
        let earlier = read_earlier(id, there.input_hash)?;
        if earlier.message == message.id {
            return Ok(Claimed::Ours(Bucket::from_row(width, start)?));
        }
        if is_alive(inner, &earlier) {
            return Ok(Claimed::Taken(earlier));
        }
        // Its day is over, and the cluster has not forgotten it yet.
        let Bucket { width, start } = placed.bucket;
        let values = cells![
            message.id,
            width.number(),
            start,
            hash.0.to_vec(),
            message.conversation,
            &message.sender,
            key.as_str(),
            earlier.message,
        ];
        let there: Option<(bool, Option<CqlTimeuuid>)> = inner.cluster.write_if(&inner.statements.claim.claim_again, values).await?;
        if there.is_none() {
            return Ok(Claimed::Ours(placed.bucket));
        }
    }
    Err(crate::store::cql::driver::error::unavailable("an idempotency key is claimed again and again"))
}

fn read_earlier(id: CqlTimeuuid, hash: Option<Vec<u8>>) -> Result<EarlierSend> {
    let hash = hash.and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| corrupt(TABLE, "the hash of an input has 32 bytes"))?;
    Ok(EarlierSend { message: time_uuid(TABLE, id)?, input_hash: InputHash(hash) })
}

fn is_alive(inner: &Inner, earlier: &EarlierSend) -> bool {
    inner.clock.now() < earlier.message.moment().plus_micros(IdempotencyKey::LIFETIME_MICROS)
}

pub(crate) async fn earlier_sends(
    inner: &Inner,
    conversation: ConversationId,
    keys: &[(UserId, IdempotencyKey)],
) -> Result<Vec<Option<EarlierSend>>> {
    let each = async |(sender, key): &(UserId, IdempotencyKey)| {
        let values = cells![conversation, sender, key.as_str()];
        let row: Option<(Option<CqlTimeuuid>, Option<Vec<u8>>)> = inner.cluster.read_one(&inner.statements.claim.earlier, values).await?;
        let Some((Some(id), hash)) = row else { return Ok(None) };
        Ok(Some(read_earlier(id, hash)?).filter(|earlier| is_alive(inner, earlier)))
    };
    at_once(keys.iter().map(each).collect()).await
}
