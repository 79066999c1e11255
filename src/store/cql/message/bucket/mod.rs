//! Buckets: the partitions of a conversation's messages, and the bounds that keep them small.
//!
//! A bucket is an interval of time, of one of four widths, that begins at a multiple of its width. Width and start are in the partition key:
//! a message lies in exactly one partition, and the key alone says which ids a partition can hold. Servers may choose different widths, so
//! buckets may overlap; a page merges all buckets that meet its range.

pub(crate) mod checkpoint;
pub(crate) mod choice;
pub(crate) mod id_range;
pub(crate) mod index;
mod interval_set;
pub(crate) mod last_message;
pub(crate) mod merge;
pub(crate) mod removal;
pub(crate) mod view;

use std::ops::AddAssign;

use crate::model::{Message, OrderKey, TimeUuid, Timestamp};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::message::content::encode_content;
use crate::store::rules::expiry;

const MINUTE_MICROS: i64 = 60 * 1_000_000;

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

/// The width of a bucket. The discriminants are stored, so the order never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Width {
    TenDays,
    Day,
    Hour,
    Minute,
}

impl Width {
    pub(crate) const ALL: [Self; 4] = [Self::TenDays, Self::Day, Self::Hour, Self::Minute];

    pub(crate) const fn micros(self) -> i64 {
        match self {
            Self::TenDays => 10 * 24 * 60 * MINUTE_MICROS,
            Self::Day => 24 * 60 * MINUTE_MICROS,
            Self::Hour => 60 * MINUTE_MICROS,
            Self::Minute => MINUTE_MICROS,
        }
    }

    pub(crate) const fn number(self) -> i8 {
        self as i8
    }

    /// The widest one for messages that expire after these seconds.
    pub(crate) fn widest(ttl_seconds: Option<u32>) -> Self {
        let widest = ttl_seconds.map_or(i64::MAX, expiry::widest_micros);
        Self::ALL
            .into_iter()
            .find(|width| width.micros() <= widest)
            .unwrap_or(Self::Minute)
    }

    pub(crate) fn from_number(number: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|width| width.number() == number)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Bucket {
    pub(crate) width: Width,
    /// A multiple of the width, since 1970.
    pub(crate) start: Timestamp,
}

impl Bucket {
    /// The bucket of a width that holds a moment.
    pub(crate) const fn holding(moment: Timestamp, width: Width) -> Self {
        let micros = moment.micros();
        Self {
            width,
            start: Timestamp::from_micros(micros - micros % width.micros()),
        }
    }

    pub(crate) fn from_row(width: i8, start: i64) -> Result<Self> {
        let width = Width::from_number(width)
            .ok_or_else(|| corrupt("buckets_by_conversation", "a width is one of four"))?;
        Ok(Self {
            width,
            start: Timestamp::from_micros(start),
        })
    }

    /// The first moment after the bucket.
    pub(crate) const fn end(self) -> Timestamp {
        self.start.plus_micros(self.width.micros())
    }

    pub(crate) fn can_hold(self, id: TimeUuid) -> bool {
        (self.start..self.end()).contains(&id.moment())
    }

    /// The order keys that it can hold: from the first one (included) to the second (excluded).
    pub(crate) fn order_keys(self) -> (OrderKey, OrderKey) {
        (
            OrderKey::first_at(self.start),
            OrderKey::first_at(self.end()),
        )
    }
}

/// Messages and bytes in a bucket.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_lies_in_one_bucket_of_each_width() {
        let moment = Timestamp::parse("2026-03-15T12:05:59.999999Z").unwrap();
        for width in Width::ALL {
            let bucket = Bucket::holding(moment, width);
            assert!(bucket.start <= moment && moment < bucket.end());
            assert_eq!(bucket.start.micros() % width.micros(), 0);
            assert_eq!(Bucket::holding(bucket.end(), width).start, bucket.end());
            assert_eq!(
                Bucket::from_row(width.number(), bucket.start.micros()).unwrap(),
                bucket
            );
        }
        assert_eq!(
            Bucket::holding(moment, Width::Hour).start.to_string(),
            "2026-03-15T12:00:00.000000Z"
        );
    }
}
