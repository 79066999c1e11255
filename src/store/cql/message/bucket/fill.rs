//! Fill of a bucket: how many messages and bytes it holds, and the bounds that keep a partition small.

use std::ops::AddAssign;

use crate::model::Message;
use crate::store::cql::message::register::encode_content;

/// The most that a bucket takes if a narrower one exists.
pub(crate) const WIDE_MAX: Fill = Fill {
    messages: 20_000,
    bytes: 10 << 20,
};
/// The most that a bucket of the narrowest width takes.
pub(crate) const NARROWEST_MAX: Fill = Fill {
    messages: 80_000,
    bytes: 40 << 20,
};
/// Bytes that the cluster adds to the cells of a row, rounded up.
pub(crate) const ROW_BYTES: usize = 160;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl Fill {
    pub(crate) const fn is_below(self, bound: Self) -> bool {
        self.messages < bound.messages && self.bytes < bound.bytes
    }

    /// The fill by so many messages of the size that these ones have on average.
    pub(crate) fn scaled_to(self, messages: u64) -> Self {
        let bytes =
            u128::from(self.bytes) * u128::from(messages) / u128::from(self.messages.max(1));
        Self {
            messages,
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
        }
    }

    /// The greater of two fills, by messages and by bytes.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            messages: self.messages.max(other.messages),
            bytes: self.bytes.max(other.bytes),
        }
    }

    /// The fill after `micros`, at the rate at which this one came in `elapsed` microseconds.
    pub(crate) fn scaled(self, micros: i64, elapsed: i64) -> Self {
        let scale = |value: u64| {
            let scaled = u128::from(value) * u128::from(micros.unsigned_abs())
                / u128::from(elapsed.max(1).unsigned_abs());
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Self {
            messages: scale(self.messages),
            bytes: scale(self.bytes),
        }
    }
}

impl AddAssign for Fill {
    fn add_assign(&mut self, other: Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

/// Bytes of a message in its partition, rounded up.
pub(crate) fn stored_bytes(message: &Message) -> usize {
    let content = message
        .content
        .as_ref()
        .map_or(0, |content| encode_content(content).len());
    content
        + message.sender.as_str().len()
        + message
            .client_key
            .as_ref()
            .map_or(0, |key| key.as_str().len())
        + ROW_BYTES
}
