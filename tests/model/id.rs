//! Order keys sort as Cassandra sorts timeuuids, and lose nothing.

use std::cmp::Ordering;

use proptest::prelude::*;
use scylla::value::CqlTimeuuid;
use uuid::Uuid;
use wideroom::model::{OrderKey, TimeUuid, Timestamp};

/// The first tick of 1970, in the 100 ns ticks of a UUID.
const TICKS_1970: u64 = 0x01B2_1DD2_1381_4000;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// A version 1 UUID of any tick from 1970 on, and of few ticks, so that many share one.
fn any_uuid() -> impl Strategy<Value = Uuid> {
    let ticks = prop_oneof![
        3 => (0..3_u64).prop_map(|tick| 0x01EF_E29B_A3E3_9830 + tick),
        1 => TICKS_1970..1 << 60,
        1 => (0..3_u64, 0..3_u64).prop_map(|(low, high)| 0x01EF_0000_0000_0000 + low + (high << 32)),
    ];
    let byte = prop_oneof![
        prop::sample::select(vec![0_u8, 1, 0x7f, 0x80, 0x81, 0xff]),
        any::<u8>()
    ];
    (ticks, prop::array::uniform8(byte)).prop_map(|(ticks, rest)| uuid_v1(ticks, rest))
}

fn uuid_v1(ticks: u64, mut rest: [u8; 8]) -> Uuid {
    rest[0] = rest[0] & 0x3f | 0x80;
    let [low, middle, high] = [
        ticks & 0xffff_ffff,
        ticks >> 32 & 0xffff,
        ticks >> 48 & 0x0fff | 0x1000,
    ];
    Uuid::from_fields(
        u32::try_from(low).unwrap(),
        u16::try_from(middle).unwrap(),
        u16::try_from(high).unwrap(),
        &rest,
    )
}

fn order_of_cassandra(one: Uuid, other: Uuid) -> Ordering {
    CqlTimeuuid::from(one).cmp(&CqlTimeuuid::from(other))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn ids_sort_as_cassandra_sorts_them(uuids in prop::collection::vec(any_uuid(), 2..12)) {
        let ids: Vec<_> = uuids.iter().map(|uuid| TimeUuid::from_uuid(*uuid).unwrap()).collect();
        for (one, id) in uuids.iter().zip(&ids) {
            for (other, other_id) in uuids.iter().zip(&ids) {
                prop_assert_eq!(id.cmp(other_id), order_of_cassandra(*one, *other), "{} and {}", one, other);
                prop_assert_eq!(id.order_key().0.cmp(&other_id.order_key().0), id.cmp(other_id), "as bytes, too");
            }
        }
    }

    #[test]
    fn an_id_survives_the_round_trip(uuid in any_uuid()) {
        let id = TimeUuid::from_uuid(uuid).unwrap();
        prop_assert_eq!(id.uuid(), uuid);
        prop_assert_eq!(TimeUuid::from_order_key(id.order_key()), Some(id));
        prop_assert_eq!(TimeUuid::parse(&id.to_string()), Some(id));
        prop_assert!(id.order_key().before() < id.order_key() && id.order_key() < OrderKey::MAX);
    }

    #[test]
    fn the_time_of_an_id_is_that_of_its_uuid(uuid in any_uuid()) {
        let id = TimeUuid::from_uuid(uuid).unwrap();
        let ticks = uuid.get_timestamp().unwrap().to_gregorian().0;
        let micros = i64::try_from((ticks - TICKS_1970) / 10).unwrap();
        prop_assert_eq!(id.moment(), Timestamp::from_micros(micros));
        prop_assume!(micros <= Timestamp::MAX.micros());
        prop_assert!(OrderKey::first_at(id.moment()) <= id.order_key());
        prop_assert!(id.order_key() < OrderKey::first_at(id.moment().plus_micros(1)) || id.moment() == Timestamp::MAX);
        prop_assert_eq!(TimeUuid::new(id.moment(), uuid.as_bytes()[8..].try_into().unwrap()).moment(), id.moment());
    }

    #[test]
    fn bytes_that_are_no_timeuuid_are_refused(bytes in prop::array::uniform16(any::<u8>())) {
        let uuid = Uuid::from_bytes(bytes);
        let is_one = uuid.get_version_num() == 1
            && uuid.get_variant() == uuid::Variant::RFC4122
            && uuid.get_timestamp().is_some_and(|time| time.to_gregorian().0 >= TICKS_1970);
        prop_assert_eq!(TimeUuid::from_uuid(uuid).is_some(), is_one);
        if let Some(id) = TimeUuid::from_order_key(OrderKey(bytes)) {
            prop_assert_eq!(TimeUuid::from_uuid(id.uuid()), Some(id), "what is taken for an id is one");
        }
    }
}
