//! Last message of a conversation, as the bytes of one cell.

use super::Bucket;
use crate::model::{MessageId, OrderKey, UserId};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::value::user;

/// The newest message, with the bucket to read it from. A maximum register: its bytes begin with the order key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastMessage {
    pub(crate) id: MessageId,
    pub(crate) bucket: Bucket,
    pub(crate) sender: UserId,
}

impl LastMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(25 + self.sender.as_str().len());
        bytes.extend_from_slice(&self.id.order_key().0);
        bytes.push(self.bucket.width.number().cast_unsigned());
        bytes.extend_from_slice(&self.bucket.start.micros().to_be_bytes());
        bytes.extend_from_slice(self.sender.as_str().as_bytes());
        bytes
    }

    pub(crate) fn decode(table: &'static str, bytes: &[u8]) -> Result<Self> {
        let broken = || corrupt(table, "a last message is an order key, a bucket and a name");
        let (key, rest) = bytes.split_first_chunk::<16>().ok_or_else(broken)?;
        let (width, rest) = rest.split_first().ok_or_else(broken)?;
        let (start, sender) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
        let sender = std::str::from_utf8(sender).map_err(|_| broken())?;
        Ok(Self {
            id: MessageId::from_order_key(OrderKey(*key)).ok_or_else(broken)?,
            bucket: Bucket::from_row(width.cast_signed(), i64::from_be_bytes(*start))?,
            sender: user(table, sender)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;
    use crate::store::cql::message::bucket::Width;

    #[test]
    fn a_later_message_has_greater_bytes_whatever_its_bucket_and_sender() {
        let last = |micros: i64, rest: [u8; 8], width: Width, sender: &str| {
            let id = MessageId::new(Timestamp::from_micros(micros), rest);
            LastMessage {
                id,
                bucket: Bucket::holding(id.moment(), width),
                sender: UserId::parse(sender).unwrap(),
            }
        };
        let ascending = [
            last(5, [0; 8], Width::Minute, "zoe"),
            last(9, [0; 8], Width::Minute, "zoe"),
            last(9, [1; 8], Width::TenDays, "ann"),
            last(10, [0; 8], Width::TenDays, "ann"),
        ];
        assert!(
            ascending.is_sorted_by(|one, other| one.id < other.id && one.encode() < other.encode())
        );
        for one in ascending {
            assert_eq!(LastMessage::decode("t", &one.encode()).unwrap(), one);
        }
    }
}
