//! Stretches of a history, and the ids that a statement names them by.
//!
//! A place is any order key, but a bound of a statement must be a timeuuid, and only some order keys are one: those whose time fits 60 bits
//! and whose ninth byte has the variant of the RFC. So a stretch is named by the first and the last timeuuid in it.

use std::ops::Bound;

use super::bucket::Bucket;
use crate::model::{Cut, OrderKey, TimeUuid, Timestamp};

/// The ninth byte of an order key that is one of a timeuuid is at most this: the variant's two bits, the sign bit turned.
const VARIANT_MAX: u8 = 0x3f;
const LAST: OrderKey = {
    let mut bytes = [0xff; 16];
    bytes[0] = 0x0f;
    bytes[8] = VARIANT_MAX;
    OrderKey(bytes)
};

/// The places from `start` on and before `end`. Empty where they are not in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: OrderKey,
    pub(crate) end: OrderKey,
}

impl Span {
    /// [`OrderKey::MAX`] is no id: nothing lies behind the end.
    pub(crate) const WHOLE: Self = Self { start: OrderKey::MIN, end: OrderKey::MAX };

    pub(crate) fn of_bucket(bucket: Bucket) -> Self {
        let (start, end) = bucket.places();
        Self { start, end }
    }

    pub(crate) fn of_cut(cut: &Cut<OrderKey>) -> Self {
        let start = match cut.start {
            Bound::Included(place) => place,
            Bound::Excluded(place) => behind(place),
            Bound::Unbounded => OrderKey::MIN,
        };
        let end = match cut.end {
            Bound::Included(place) => behind(place),
            Bound::Excluded(place) => place,
            Bound::Unbounded => OrderKey::MAX,
        };
        Self { start, end }
    }

    /// What of it is later than a place.
    pub(crate) fn behind(self, place: OrderKey) -> Self {
        self.from(behind(place))
    }

    pub(crate) fn from(self, place: OrderKey) -> Self {
        Self { start: self.start.max(place), ..self }
    }

    pub(crate) fn up_to(self, place: OrderKey) -> Self {
        self.before(behind(place))
    }

    pub(crate) fn before(self, place: OrderKey) -> Self {
        Self { end: self.end.min(place), ..self }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.start >= self.end
    }

    pub(crate) fn has(self, place: OrderKey) -> bool {
        self.start <= place && place < self.end
    }

    /// The first and the last timeuuid in it. `None` where it has none.
    pub(crate) fn ids(self) -> Option<(TimeUuid, TimeUuid)> {
        if self.is_empty() {
            return None;
        }
        let (first, last) = (id_from(self.start)?, id_up_to(self.end.before())?);
        (first <= last).then_some((first, last))
    }
}

/// The place after this one.
fn behind(place: OrderKey) -> OrderKey {
    OrderKey(u128::from_be_bytes(place.0).saturating_add(1).to_be_bytes())
}

/// The first timeuuid at or after a place.
fn id_from(place: OrderKey) -> Option<TimeUuid> {
    let mut key = place.max(OrderKey::first_at(Timestamp::ZERO));
    if key.0[8] > VARIANT_MAX {
        // All of this tick lie before it.
        let tick = u128::from_be_bytes(key.0) >> 64;
        key = OrderKey(((tick + 1) << 64).to_be_bytes());
    }
    TimeUuid::from_order_key(key)
}

/// The last timeuuid at or before a place.
fn id_up_to(place: OrderKey) -> Option<TimeUuid> {
    let mut key = place.min(LAST);
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
        prop::sample::select(vec![0_u8, 1, 0x3e, 0x3f, 0x40, 0x7f, 0x80, 0xbf, 0xc0, 0xfe, 0xff])
    }

    /// Keys that lie close together, at the ends of what an id can be too.
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
            let span = Span { start, end };
            let is_between = span.ids().is_some_and(|(first, last)| first <= id && id <= last);
            prop_assert_eq!(span.has(id.order_key()), is_between);
        }

        #[test]
        fn the_bounds_of_a_span_lie_in_it(start in any_key(), end in any_key()) {
            let span = Span { start, end };
            if let Some((first, last)) = span.ids() {
                prop_assert!(span.has(first.order_key()) && span.has(last.order_key()));
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
            prop_assert_eq!(Span::of_cut(&cut).has(key), is_in);
        }
    }

    #[test]
    fn what_lies_before_1970_or_beyond_sixty_bits_has_no_id() {
        let early = Span { start: OrderKey::MIN, end: OrderKey::first_at(Timestamp::ZERO) };
        assert_eq!(early.ids(), None);
        assert_eq!(Span::WHOLE.behind(LAST).ids(), None);
        assert!(Span::WHOLE.ids().is_some());
    }
}
