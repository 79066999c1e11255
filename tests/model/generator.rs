//! The generator of ids, under clocks that step as they like.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use wideroom::clock::{Clock, IdGenerator, ManualClock};
use wideroom::model::{TimeUuid, Timestamp};

use crate::support::words::START;

/// One call of the id generator.
#[derive(Debug, Clone)]
enum Step {
    Clock(i64),
    Next,
    Observe(i64, [u8; 8]),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (-5_000_000..5_000_000_i64).prop_map(Step::Clock),
        1 => (-3..4_i64).prop_map(Step::Clock),
        6 => Just(Step::Next),
        2 => (-50..50_i64, any::<[u8; 8]>()).prop_map(|(micros, rest)| Step::Observe(micros, rest)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ids_ascend_whatever_the_clock_does(rest in any::<[u8; 8]>(), steps in prop::collection::vec(any_step(), 1..80)) {
        let (clock, generator) = (ManualClock::at(START), IdGenerator::new(rest));
        let mut newest: Option<TimeUuid> = None;
        for step in steps {
            match step {
                Step::Clock(by) => clock.set(clock.now().plus_micros(by)),
                Step::Next => {
                    let id = generator.next(clock.now());
                    prop_assert!(id.moment() >= clock.now());
                    prop_assert!(newest.is_none_or(|newest| id > newest && id.moment() > newest.moment()));
                    prop_assert_eq!(id.moment(), generator.last());
                    prop_assert_eq!(TimeUuid::from_uuid(id.uuid()), Some(id));
                    newest = Some(id);
                }
                Step::Observe(by, rest) => {
                    let seen = TimeUuid::new(generator.last().max(START).plus_micros(by), rest);
                    generator.observe(seen);
                    newest = newest.max(Some(seen));
                }
            }
        }
    }
}

#[test]
fn threads_get_ids_of_distinct_microseconds() {
    let (clock, generator) = (Arc::new(ManualClock::at(START)), IdGenerator::random());
    let ids: Vec<Vec<TimeUuid>> = std::thread::scope(|scope| {
        let give = |thread: i64| {
            let (clock, generator) = (clock.clone(), &generator);
            scope.spawn(move || {
                let mut ids = Vec::new();
                for n in 0..2_000 {
                    // Each thread pulls the clock its own way.
                    clock.set(START.plus_micros((n * 37 * (thread + 1)) % 1_000));
                    ids.push(generator.next(clock.now()));
                }
                ids
            })
        };
        let threads: Vec<_> = (0..6).map(give).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(
        ids.iter()
            .all(|of_thread| of_thread.is_sorted_by(|one, next| one < next)),
        "each thread sees them ascend"
    );
    let moments: BTreeSet<Timestamp> = ids.iter().flatten().map(|id| id.moment()).collect();
    assert_eq!(moments.len(), 12_000);
}

#[test]
fn two_generators_make_different_ids_of_one_moment() {
    let (one, other) = (IdGenerator::random(), IdGenerator::random());
    let (first, second) = (one.next(START), other.next(START));
    assert_eq!(first.moment(), second.moment());
    assert_ne!(first, second);
}

#[test]
fn the_node_of_an_id_says_that_it_is_random() {
    let id = IdGenerator::new([0; 8]).next(START);
    assert_eq!(
        id.uuid().as_bytes()[10] & 1,
        1,
        "the multicast bit of the node"
    );
    assert_eq!(
        (id.uuid().get_version_num(), id.uuid().get_variant()),
        (1, uuid::Variant::RFC4122)
    );
}
