//! Ranges of order keys, and the timeuuids by which a statement bounds them.
//!
//! A bound of a statement must be a timeuuid, and only some order keys are one: their time fits 60 bits, and their ninth byte has the
//! variant of the RFC. A range is therefore sent as the first and the last timeuuid in it.

use std::ops::Bound;

use super::Bucket;
use crate::model::{Cut, OrderKey, TimeUuid, Timestamp};

/// The greatest ninth byte of an order key that is a timeuuid: the two bits of the variant, with the sign bit flipped.
const VARIANT_MAX: u8 = 0x3f;
const LAST: OrderKey = {
    let mut bytes = [0xff; 16];
    bytes[0] = 0x0f;
    bytes[8] = VARIANT_MAX;
    OrderKey(bytes)
};

/// The order keys from `start` (included) to `end` (excluded). Empty if `start` is not before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdRange {
    pub(crate) start: OrderKey,
    pub(crate) end: OrderKey,
}

impl IdRange {
    /// All ids: [`OrderKey::MAX`] is not one.
    pub(crate) const WHOLE: Self = Self {
        start: OrderKey::MIN,
        end: OrderKey::MAX,
    };

    pub(crate) fn of_bucket(bucket: Bucket) -> Self {
        let (start, end) = bucket.order_keys();
        Self { start, end }
    }

    pub(crate) fn of_cut(cut: &Cut<OrderKey>) -> Self {
        let start = match cut.start {
            Bound::Included(key) => key,
            Bound::Excluded(key) => successor(key),
            Bound::Unbounded => OrderKey::MIN,
        };
        let end = match cut.end {
            Bound::Included(key) => successor(key),
            Bound::Excluded(key) => key,
            Bound::Unbounded => OrderKey::MAX,
        };
        Self { start, end }
    }

    /// The part after a key.
    pub(crate) fn after(self, key: OrderKey) -> Self {
        self.from(successor(key))
    }

    pub(crate) fn from(self, key: OrderKey) -> Self {
        Self {
            start: self.start.max(key),
            ..self
        }
    }

    pub(crate) fn up_to(self, key: OrderKey) -> Self {
        self.before(successor(key))
    }

    pub(crate) fn before(self, key: OrderKey) -> Self {
        Self {
            end: self.end.min(key),
            ..self
        }
    }

    pub(crate) fn intersect(self, other: Self) -> Self {
        Self {
            start: self.start.max(other.start),
            end: self.end.min(other.end),
        }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start >= self.end
    }

    pub(crate) fn contains(self, key: OrderKey) -> bool {
        self.start <= key && key < self.end
    }

    /// The first and the last timeuuid of the range. `None` if it has none.
    pub(crate) fn ids(self) -> Option<(TimeUuid, TimeUuid)> {
        if self.is_empty() {
            return None;
        }
        let (first, last) = (id_from(self.start)?, id_up_to(self.end.before())?);
        (first <= last).then_some((first, last))
    }
}

/// The next order key.
fn successor(key: OrderKey) -> OrderKey {
    OrderKey(u128::from_be_bytes(key.0).saturating_add(1).to_be_bytes())
}

/// The first timeuuid at or after a key.
fn id_from(key: OrderKey) -> Option<TimeUuid> {
    let mut key = key.max(OrderKey::first_at(Timestamp::ZERO));
    if key.0[8] > VARIANT_MAX {
        // All ids of this tick are smaller.
        let tick = u128::from_be_bytes(key.0) >> 64;
        key = OrderKey(((tick + 1) << 64).to_be_bytes());
    }
    TimeUuid::from_order_key(key)
}

/// The last timeuuid at or before a key.
fn id_up_to(key: OrderKey) -> Option<TimeUuid> {
    let mut key = key.min(LAST);
    if key.0[8] > VARIANT_MAX {
        key.0[8..].fill(0xff);
        key.0[8] = VARIANT_MAX;
    }
    TimeUuid::from_order_key(key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_byte() -> impl Strategy<Value = u8> {
        prop::sample::select(vec![
            0_u8, 1, 0x3e, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xfe, 0xff,
        ])
    }

    /// Keys close to each other, and at both ends of the ids.
    fn any_key() -> impl Strategy<Value = OrderKey> {
        let tick = prop_oneof![
            4 => (0..3_i64).prop_map(|micros| OrderKey::first_at(Timestamp::from_micros(1_700_000_000_000_000 + micros))),
            1 => Just(OrderKey::first_at(Timestamp::ZERO)),
            1 => Just(OrderKey::first_at(Timestamp::ZERO).before()),
            1 => Just(OrderKey::first_at(Timestamp::MAX)),
            1 => prop::sample::select(vec![OrderKey::MIN, LAST, OrderKey::MAX]),
        ];
        (tick, any_byte(), any_byte(), any_byte()).prop_map(|(mut key, first, middle, last)| {
            key.0[8] = first;
            key.0[11] = middle;
            key.0[15] = last;
            key
        })
    }

    fn any_id() -> impl Strategy<Value = TimeUuid> {
        any_key().prop_filter_map("no id", TimeUuid::from_order_key)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_ids_of_a_span_are_those_whose_places_it_has(start in any_key(), end in any_key(), id in any_id()) {
            let range = IdRange { start, end };
            let is_between = range.ids().is_some_and(|(first, last)| first <= id && id <= last);
            prop_assert_eq!(range.contains(id.order_key()), is_between);
        }

        #[test]
        fn the_bounds_of_a_span_lie_in_it(start in any_key(), end in any_key()) {
            let range = IdRange { start, end };
            if let Some((first, last)) = range.ids() {
                prop_assert!(range.contains(first.order_key()) && range.contains(last.order_key()));
            }
        }

        #[test]
        fn a_cut_is_the_span_of_its_bounds(start in any_key(), end in any_key(), id in any_id(), which in 0..4_u8) {
            let key = id.order_key();
            let (cut, is_in) = match which {
                0 => (Cut { start: Bound::Included(start), end: Bound::Excluded(end) }, start <= key && key < end),
                1 => (Cut { start: Bound::Excluded(start), end: Bound::Included(end) }, start < key && key <= end),
                2 => (Cut { start: Bound::Unbounded, end: Bound::Included(end) }, key <= end),
                _ => (Cut { start: Bound::Excluded(start), end: Bound::Unbounded }, start < key),
            };
            prop_assert_eq!(IdRange::of_cut(&cut).contains(key), is_in);
        }
    }

    #[test]
    fn what_lies_before_1970_or_beyond_sixty_bits_has_no_id() {
        let early = IdRange {
            start: OrderKey::MIN,
            end: OrderKey::first_at(Timestamp::ZERO),
        };
        assert_eq!(early.ids(), None);
        assert_eq!(IdRange::WHOLE.after(LAST).ids(), None);
        assert!(IdRange::WHOLE.ids().is_some());
    }
}
