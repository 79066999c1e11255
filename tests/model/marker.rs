//! The register of a read marker: the greater bytes are the later marker.

use proptest::prelude::*;
use wideroom::model::{MessageId, OrderKey, ReadMarker};

use crate::support::words::{START, id};

fn any_marker() -> impl Strategy<Value = ReadMarker> {
    let epoch = prop_oneof![
        prop::sample::select(vec![0, 1, 0xff, 0x100, u64::MAX]),
        any::<u64>()
    ];
    let byte = prop::sample::select(vec![0_u8, 1, 0x7f, 0x80, 0xff]);
    (epoch, prop::array::uniform16(byte)).prop_map(|(epoch, up_to)| ReadMarker {
        epoch,
        up_to: OrderKey(up_to),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_sort_as_epoch_and_place(one in any_marker(), other in any_marker()) {
        let by_parts = (one.epoch, one.up_to).cmp(&(other.epoch, other.up_to));
        prop_assert_eq!(one.to_bytes().cmp(&other.to_bytes()), by_parts);
        prop_assert_eq!(one.cmp(&other), by_parts);
        prop_assert_eq!(ReadMarker::from_bytes(one.to_bytes()), one);
    }

    #[test]
    fn the_greatest_marker_is_the_same_in_any_order(
        (markers, shuffled) in prop::collection::vec(any_marker(), 1..8).prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle()))
    ) {
        let keep = |markers: Vec<ReadMarker>| markers.into_iter().map(ReadMarker::to_bytes).fold([0; ReadMarker::BYTES], <[u8; 24]>::max);
        prop_assert_eq!(keep(markers), keep(shuffled));
    }

    #[test]
    fn a_send_after_the_epoch_counts_as_read(epoch in 0..40_i64, read in 0..40_i64, sent in proptest::option::of(0..40_i64)) {
        let marker = ReadMarker { epoch: START.plus_micros(epoch).micros().cast_unsigned(), up_to: id(read).order_key() };
        let counts = marker.with_sent(sent.map(id));
        let expected = if sent.is_some_and(|sent| sent > epoch) { read.max(sent.unwrap()) } else { read };
        prop_assert_eq!(counts, MessageId::order_key(id(expected)));
    }
}
