//! Checkpoints: counts of messages, in the rows of the index.

use crate::model::OrderKey;
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;

/// The width in the index row of the summary, whose start is zero. No bucket has it.
pub(crate) const SUMMARY_WIDTH: i8 = -1;

/// The number of messages up to an order key, included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) up_to: OrderKey,
    pub(crate) count: u64,
}

impl Checkpoint {
    pub(crate) const NONE: Self = Self {
        up_to: OrderKey::MIN,
        count: 0,
    };
    /// An invalidated checkpoint. It has the greatest bytes, so it wins over any other of the same timestamp.
    pub(crate) const INVALIDATED: [u8; 24] = [0xff; 24];

    pub(crate) fn encode(self) -> Vec<u8> {
        [self.up_to.0.as_slice(), &self.count.to_be_bytes()].concat()
    }

    /// `None` for an invalidated one.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let broken = || {
            corrupt(
                "buckets_by_conversation",
                "a checkpoint is an order key and a count",
            )
        };
        let (up_to, count) = bytes.split_first_chunk::<16>().ok_or_else(broken)?;
        let count = u64::from_be_bytes(count.try_into().map_err(|_| broken())?);
        Ok((bytes != Self::INVALIDATED).then_some(Self {
            up_to: OrderKey(*up_to),
            count,
        }))
    }
}
