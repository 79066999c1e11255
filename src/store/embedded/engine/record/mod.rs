//! Encoding of values in the embedded store: a version byte, then postcard.
//!
//! A maximum register is the version byte and its own bytes, so that the greater value is the later one.

mod conversation;
mod message;
mod user;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(crate) use self::conversation::{ConversationRecord, HeadRecord, RosterRecord};
pub(crate) use self::message::{MessageLead, MessageRecord};
pub(crate) use self::user::{
    FLAGS, PROFILE, decode_block, decode_flags, decode_membership, decode_profile, encode_block,
    encode_flags, encode_membership, encode_profile,
};
use crate::model::{
    self, ActPosition, ConversationId, InputHash, MessageId, OrderKey, ReadMarker, TimeUuid,
    Timestamp, UserId,
};

/// Version of all values but messages.
const VERSION: u8 = 1;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the value is empty")]
    Empty,
    #[error("the value has the unknown version {0}")]
    Version(u8),
    #[error("the value has bytes after its last field")]
    Trailing,
    #[error("the value has the wrong length")]
    Length,
    #[error("the value is not the position of a message")]
    Position,
    #[error(transparent)]
    Postcard(#[from] postcard::Error),
}

pub(crate) fn encode(record: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(record, vec![VERSION]).expect("plain data serialises")
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    let mut rest = body(bytes)?;
    let record = take(&mut rest)?;
    end(rest)?;
    Ok(record)
}

/// Takes the next field of a value.
fn take<T: DeserializeOwned>(rest: &mut &[u8]) -> Result<T, DecodeError> {
    let (field, behind) = postcard::take_from_bytes(rest)?;
    *rest = behind;
    Ok(field)
}

/// Takes a field that follows those of the first version, and is left out where it has its default.
fn take_optional<T: DeserializeOwned>(rest: &mut &[u8]) -> Result<Option<T>, DecodeError> {
    (!rest.is_empty()).then(|| take(rest)).transpose()
}

/// The end of a value, behind its last field.
fn end(rest: &[u8]) -> Result<(), DecodeError> {
    if rest.is_empty() {
        Ok(())
    } else {
        Err(DecodeError::Trailing)
    }
}

fn body(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    match bytes.split_first() {
        None => Err(DecodeError::Empty),
        Some((&VERSION, body)) => Ok(body),
        Some((version, _)) => Err(DecodeError::Version(*version)),
    }
}

pub(crate) fn encode_position(position: OrderKey) -> Vec<u8> {
    [&[VERSION], position.0.as_slice()].concat()
}

pub(crate) fn decode_position(bytes: &[u8]) -> Result<OrderKey, DecodeError> {
    Ok(OrderKey(
        body(bytes)?.try_into().map_err(|_| DecodeError::Length)?,
    ))
}

pub(crate) fn encode_act(act: ActPosition) -> Vec<u8> {
    [&[VERSION], act.to_bytes().as_slice()].concat()
}

pub(crate) fn decode_act(bytes: &[u8]) -> Result<ActPosition, DecodeError> {
    ActPosition::from_bytes(body(bytes)?).ok_or(DecodeError::Length)
}

pub(crate) fn encode_marker(marker: ReadMarker) -> Vec<u8> {
    [&[VERSION], marker.to_bytes().as_slice()].concat()
}

pub(crate) fn decode_marker(bytes: &[u8]) -> Result<ReadMarker, DecodeError> {
    Ok(ReadMarker::from_bytes(
        body(bytes)?.try_into().map_err(|_| DecodeError::Length)?,
    ))
}

/// Functions that decode and encode a record.
pub(crate) type RecordCodec<T> = (fn(&[u8]) -> Result<T, DecodeError>, fn(&T) -> Vec<u8>);

/// A used idempotency key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SendRecord {
    pub(crate) message: MessageId,
    pub(crate) input_hash: InputHash,
    pub(crate) expires_at: Timestamp,
}

/// A change of a user's inbox other than a new message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChangeRecord {
    pub(crate) conversation: ConversationId,
    pub(crate) kind: LoggedChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LoggedChangeKind {
    ConversationMade,
    MarkerMoved,
    MessageChanged,
    FlagsSet,
    MembershipChanged,
}

/// A change of a conversation without its key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ConversationChangeRecord {
    pub(crate) kind: model::ChangeKind,
    pub(crate) message: MessageId,
    pub(crate) user: UserId,
}

/// Commit record, written with each commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct CommitRecord {
    pub(crate) number: u64,
    /// Greatest id ever stored.
    pub(crate) newest_id: Option<TimeUuid>,
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
