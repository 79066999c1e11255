//! Cells of live messages as bytes: a version, then the rest. A register begins with its moment, so that the later one is
//! greater.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::model::{
    IdempotencyKey, LiveKey, LiveMessage, LiveStart, LiveStatus, LiveStop, LiveWriters,
    MessageSteps, Timestamp, UserId,
};
use crate::store::live::WriterClaim;
use crate::store::{Error, Result};

const TABLE: &str = "live_texts";
const LIST: &str = "live_messages_by_conversation";
const VERSION: u8 = 1;

fn corrupt(
    table: &'static str,
    cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> Error {
    Error::Corrupt {
        table,
        cause: cause.into(),
    }
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(value, vec![VERSION]).expect("plain data serialises")
}

fn decode<T: DeserializeOwned>(table: &'static str, bytes: &[u8]) -> Result<T> {
    let Some((&VERSION, body)) = bytes.split_first() else {
        return Err(corrupt(table, "a cell begins with its version"));
    };
    postcard::from_bytes(body).map_err(|error| corrupt(table, error))
}

/// Bytes of a claim: the list that it expects, the list that it writes, and the start of a live message that it begins.
pub(in crate::store) struct ClaimBytes {
    pub(in crate::store) seen: Option<Vec<u8>>,
    pub(in crate::store) writers: Vec<u8>,
    pub(in crate::store) start: Option<Vec<u8>>,
}

impl ClaimBytes {
    pub(in crate::store) fn new(claim: &WriterClaim) -> Self {
        match claim {
            WriterClaim::First { start, writers } => Self {
                seen: None,
                writers: encode(writers),
                start: Some(encode(start)),
            },
            WriterClaim::Next { seen, to } => Self {
                seen: Some(encode(seen)),
                writers: encode(to),
                start: None,
            },
        }
    }
}

/// Bytes of a register at a moment.
pub(in crate::store) fn encode_register(at: Timestamp, value: &impl Serialize) -> Vec<u8> {
    let mut bytes = at.micros().to_be_bytes().to_vec();
    bytes.push(VERSION);
    postcard::to_extend(value, bytes).expect("plain data serialises")
}

/// The moment of a register.
pub(in crate::store) fn register_moment(bytes: &[u8]) -> Result<Timestamp> {
    let micros = bytes.first_chunk::<8>();
    let micros = micros.ok_or_else(|| corrupt(TABLE, "a register begins with its moment"))?;
    Ok(Timestamp::from_micros(i64::from_be_bytes(*micros)))
}

fn register<T: DeserializeOwned>(bytes: Option<&Vec<u8>>) -> Result<Option<T>> {
    let value = |bytes: &Vec<u8>| decode(TABLE, bytes.get(8..).unwrap_or_default());
    bytes.map(value).transpose()
}

/// Sender and key in the list of a conversation, and in the due queue.
pub(in crate::store) fn encode_listed(sender: &UserId, key: &IdempotencyKey) -> Vec<u8> {
    encode(&(sender, key))
}

pub(in crate::store) fn decode_listed(bytes: &[u8]) -> Result<(UserId, IdempotencyKey)> {
    decode(LIST, bytes)
}

/// Cells of a live message as they are stored.
#[derive(Debug, Default)]
pub(in crate::store) struct LiveCells {
    pub(in crate::store) writers: Option<Vec<u8>>,
    pub(in crate::store) start: Option<Vec<u8>>,
    pub(in crate::store) touched: Option<Timestamp>,
    pub(in crate::store) status: Option<Vec<u8>>,
    pub(in crate::store) steps: Option<Vec<u8>>,
    pub(in crate::store) stop: Option<Vec<u8>>,
    pub(in crate::store) discarded: Option<Vec<u8>>,
}

impl LiveCells {
    pub(in crate::store) fn writers(&self) -> Result<Option<LiveWriters>> {
        let bytes = self.writers.as_deref();
        bytes.map(|bytes| decode(TABLE, bytes)).transpose()
    }

    /// The time of the last write. A claim counts.
    fn touched_at(&self, writers: &LiveWriters) -> Option<Timestamp> {
        self.touched.max(writers.claimed_at())
    }

    /// The live message of these cells. `None` if nobody has begun it.
    pub(in crate::store) fn decode(&self, key: LiveKey) -> Result<Option<LiveMessage>> {
        let (Some(writers), Some(start)) = (self.writers()?, &self.start) else {
            return Ok(None);
        };
        let start: LiveStart = decode(TABLE, start)?;
        let status: Option<Option<LiveStatus>> = register(self.status.as_ref())?;
        let steps: Option<MessageSteps> = register(self.steps.as_ref())?;
        let stop: Option<LiveStop> = register(self.stop.as_ref())?;
        let discarded = self.discarded.as_deref();
        Ok(Some(LiveMessage {
            key,
            touched_at: self.touched_at(&writers).unwrap_or(start.at),
            start,
            writers,
            status: status.flatten(),
            steps: steps.unwrap_or_default(),
            stop,
            discarded_at: discarded.map(register_moment).transpose()?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ConversationId, LiveMessageId, MessageStep, MessageStepState, WriterName};

    #[test]
    fn a_live_message_survives_the_round_trip() {
        let at = Timestamp::from_micros;
        let sender = UserId::parse("agent:helper").unwrap();
        let key = IdempotencyKey::parse("k").unwrap();
        let start = LiveStart {
            sender: sender.clone(),
            key: key.clone(),
            reply_to: None,
            at: at(1),
        };
        let name = |text| WriterName::parse(text).unwrap();
        let one = LiveWriters::default()
            .with_writer(name("a"), at(1))
            .unwrap();
        let two = one.with_writer(name("b"), at(5)).unwrap();
        let steps = MessageSteps::parse(vec![MessageStep {
            key: "1".to_owned(),
            title: "Read".to_owned(),
            state: MessageStepState::Waiting,
            detail: None,
        }]);
        let (steps, status) = (steps.unwrap(), LiveStatus::parse("thinking").unwrap());
        let stop = LiveStop {
            by: sender.clone(),
            at: at(7),
        };
        let first = ClaimBytes::new(&WriterClaim::First {
            start: start.clone(),
            writers: one.clone(),
        });
        let next = ClaimBytes::new(&WriterClaim::Next {
            seen: one,
            to: two.clone(),
        });
        assert_eq!(next.seen.as_ref(), Some(&first.writers));
        let cells = LiveCells {
            writers: Some(next.writers),
            start: first.start,
            touched: Some(at(4)),
            status: Some(encode_register(at(3), &Some(&status))),
            steps: Some(encode_register(at(3), &steps)),
            stop: Some(encode_register(at(7), &stop)),
            discarded: Some(encode_register(at(9), &())),
        };
        let live = LiveKey {
            conversation: ConversationId::random(),
            id: LiveMessageId(uuid::Uuid::from_u128(3)),
        };
        let read = LiveMessage {
            key: live,
            start,
            writers: two,
            touched_at: at(5),
            status: Some(status),
            steps,
            stop: Some(stop),
            discarded_at: Some(at(9)),
        };
        assert_eq!(cells.decode(live).unwrap(), Some(read));
        let unbegun = LiveCells {
            writers: None,
            ..cells
        };
        assert_eq!(unbegun.decode(live).unwrap(), None);
        let listed = encode_listed(&sender, &key);
        assert_eq!(decode_listed(&listed).unwrap(), (sender, key));
        assert!(decode_listed(&[]).is_err() && decode_listed(&[VERSION + 1]).is_err());
    }

    #[test]
    fn a_later_register_is_greater_and_may_clear() {
        let at = Timestamp::from_micros;
        let status = Some(LiveStatus::parse("thinking").unwrap());
        let (set, cleared) = (
            encode_register(at(1), &status),
            encode_register(at(2), &None::<LiveStatus>),
        );
        assert!(cleared > set);
        let read: Option<Option<LiveStatus>> = register(Some(&cleared)).unwrap();
        assert_eq!(read, Some(None));
        assert_eq!(register_moment(&set).unwrap(), at(1));
        assert!(register_moment(&[0; 7]).is_err());
    }
}
