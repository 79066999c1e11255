//! Tests of the choice of buckets.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const START: i64 = 1_767_225_600_000_000;
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

fn id(micros: i64) -> TimeUuid {
    TimeUuid::new(
        Timestamp::from_micros(START + micros),
        [0x80, 0, 1, 0, 0, 0, 0, 0],
    )
}

/// The fill of each bucket after these messages, each with its microsecond and bytes.
fn fill(
    chooser: &mut BucketChooser,
    messages: impl IntoIterator<Item = (i64, usize)>,
) -> HashMap<Bucket, Fill> {
    let mut fills: HashMap<Bucket, Fill> = HashMap::new();
    for (micros, bytes) in messages {
        let Some(bucket) = chooser.choose(id(micros), bytes) else {
            continue;
        };
        assert!(bucket.can_hold(id(micros)));
        assert_eq!(chooser.bucket_of(id(micros)), Some(bucket));
        let fill = fills.entry(bucket).or_default();
        fill.messages += 1;
        fill.bytes += bytes as u64;
    }
    fills
}

fn assert_bounded(fills: &HashMap<Bucket, Fill>) {
    for (bucket, fill) in fills {
        assert!(
            fill.messages < 100_000 && fill.bytes < 50_000_000,
            "{bucket:?} holds {fill:?}"
        );
    }
}

#[test]
fn a_hundred_thousand_messages_of_one_minute_lie_in_few_partitions_within_the_bound() {
    let mut chooser = BucketChooser::from(None);
    let fills = fill(&mut chooser, (0..100_000).map(|n| (n * 600, 400)));
    assert_bounded(&fills);
    assert_eq!(
        fills.values().map(|fill| fill.messages).sum::<u64>(),
        100_000,
        "none is refused"
    );
    assert!(fills.len() <= 4, "{fills:?}");
}

#[test]
fn messages_of_the_greatest_size_are_refused_before_a_partition_is_too_big() {
    let mut chooser = BucketChooser::from(None);
    let fills = fill(&mut chooser, (0..4_000).map(|n| (n * 10_000, 27_000)));
    assert_bounded(&fills);
    assert!(chooser.choose(id(4_000 * 10_000), 27_000).is_none());
    assert!(
        chooser.choose(id(60 * SECOND), 27_000).is_some(),
        "the next minute takes more"
    );
}

#[test]
fn the_width_follows_the_rate_both_ways() {
    let mut chooser = BucketChooser::from(None);
    // A message each 100 ms for two hours, then one an hour for three months.
    let fast = (0..72_000).map(|n| (n * SECOND / 10, 100));
    fill(&mut chooser, fast);
    assert_eq!(
        chooser.current.width,
        Width::Minute,
        "{:?}",
        chooser.current
    );
    let slow = fill(&mut chooser, (3..2_000).map(|n| (n * 3_600 * SECOND, 100)));
    // The day and the ten days of the rush are full.
    assert!(slow.len() < 45, "{slow:?}");
    assert_eq!(chooser.current.width, Width::TenDays);
}

#[test]
fn a_steady_rate_fills_buckets_to_their_target() {
    let mut chooser = BucketChooser::from(None);
    // 5,000 an hour.
    let fills = fill(&mut chooser, (0..500_000).map(|n| (n * 720_000, 100)));
    let hours = fills
        .keys()
        .filter(|bucket| bucket.width == Width::Hour)
        .count();
    assert!(hours > 80 && fills.len() < 110, "{fills:?}");
}

#[test]
fn a_chooser_continues_in_the_bucket_of_the_newest_message() {
    let last = Bucket::holding(id(0).moment(), Width::Minute);
    assert_eq!(BucketChooser::from(Some(last)).choose(id(1), 1), Some(last));
    let width_after = |micros| {
        BucketChooser::from(Some(last))
            .choose(id(micros), 1)
            .unwrap()
            .width
    };
    assert_eq!(width_after(60 * SECOND), Width::Minute);
    assert_eq!(width_after(3_601 * SECOND), Width::Hour);
    assert_eq!(width_after(DAY), Width::Day);
    assert_eq!(width_after(400 * DAY), Width::TenDays);
}

/// Servers that write to one conversation, each with a chooser, and the rows of all of them.
struct Servers {
    choosers: Vec<BucketChooser>,
    rows: HashMap<Bucket, Vec<Timestamp>>,
    head: Option<(TimeUuid, Bucket)>,
    measurements: usize,
}

impl Servers {
    fn new(count: usize) -> Self {
        Self {
            choosers: (0..count).map(|_| BucketChooser::from(None)).collect(),
            rows: HashMap::new(),
            head: None,
            measurements: 0,
        }
    }

    /// A server sends: it has read the head before, and measures afterwards.
    fn send(&mut self, server: usize, micros: i64) {
        let chooser = &mut self.choosers[server];
        if let Some((newest, bucket)) = self.head {
            chooser.follow(newest, bucket);
        }
        let id = id(micros);
        let bucket = chooser.choose(id, 200).unwrap();
        self.head = Some((id, bucket));
        self.rows.entry(bucket).or_default().push(id.moment());
        if let Some(bucket) = chooser.take_measurement(id.moment()) {
            self.measurements += 1;
            let rows = self.rows.get(&bucket).map_or(&[][..], Vec::as_slice);
            let newest = &rows[rows.len().saturating_sub(SAMPLE_MESSAGES)..];
            chooser.note_measurement(BucketMeasurement {
                bucket,
                messages: rows.len() as u64,
                sample: newest.first().map(|oldest| (*oldest, newest.len() as u64)),
            });
        }
    }

    fn fullest(&self) -> usize {
        self.rows.values().map(Vec::len).max().unwrap_or(0)
    }
}

#[test]
fn twenty_servers_together_keep_the_bound_of_a_partition() {
    // 0.2 messages/s of all servers for ten days: 172,800 messages, 8,640 of each.
    let mut servers = Servers::new(20);
    for n in 0..172_800_i64 {
        servers.send(usize::try_from(n * 7 % 20).unwrap(), n * 5 * SECOND);
    }
    assert!(
        servers.fullest() <= 20_000 + 20 * 500,
        "{}",
        servers.fullest()
    );
    // A day's messages exceed the target of a bucket, so the full one is followed by hours.
    assert!(
        servers.rows.len() <= 10 * 24,
        "{} buckets",
        servers.rows.len()
    );
    assert!(
        servers.measurements <= 172_800 / 5,
        "{}",
        servers.measurements
    );
    // Then 40 messages/s for half an hour.
    for n in 0..72_000_i64 {
        let micros = 10 * DAY + n * SECOND / 40;
        servers.send(usize::try_from(n * 7 % 20).unwrap(), micros);
    }
    assert!(
        servers.fullest() <= 20_000 + 20 * 500,
        "{}",
        servers.fullest()
    );
}

#[test]
fn a_quiet_conversation_is_never_measured() {
    let mut servers = Servers::new(3);
    for n in 0..400_i64 {
        servers.send(usize::try_from(n % 3).unwrap(), n * 90 * SECOND);
    }
    assert_eq!(servers.measurements, 0);
    assert_eq!(servers.rows.len(), 1);
}

#[test]
fn a_chooser_follows_the_newest_message_of_another_server() {
    let mut chooser = BucketChooser::from(None);
    let own = chooser.choose(id(0), 1).unwrap();
    let narrow = Bucket::holding(id(SECOND).moment(), Width::Hour);
    chooser.follow(id(SECOND), narrow);
    assert_eq!(chooser.choose(id(2 * SECOND), 1), Some(narrow));
    assert_eq!(
        chooser.choose(id(0), 1),
        Some(own),
        "a retry stays in its bucket"
    );
    chooser.follow(id(SECOND), own);
    assert_eq!(
        chooser.choose(id(3 * SECOND), 1),
        Some(narrow),
        "a head that was read before leads nowhere"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn no_partition_is_too_big_and_each_message_stays_where_it_is(
        stretches in prop::collection::vec((1_i64..30_000, 1_i64..5_000_000, 1_usize..28_000), 1..12),
        pauses in prop::collection::vec(0_i64..(20 * DAY), 12),
    ) {
        let mut chooser = BucketChooser::from(None);
        let mut micros = 0;
        let mut messages = Vec::new();
        for ((count, gap, bytes), pause) in stretches.into_iter().zip(pauses) {
            messages.extend((0..count).map(|n| (micros + n * gap, bytes)));
            micros += count * gap + pause;
        }
        let mut fills: HashMap<Bucket, Fill> = HashMap::new();
        let mut last: VecDeque<(TimeUuid, Bucket)> = VecDeque::new();
        for (n, (micros, bytes)) in messages.into_iter().enumerate() {
            let Some(bucket) = chooser.choose(id(micros), bytes) else { continue };
            prop_assert!(bucket.can_hold(id(micros)));
            let fill = fills.entry(bucket).or_default();
            fill.messages += 1;
            fill.bytes += bytes as u64;
            last.push_back((id(micros), bucket));
            if last.len() > 64 {
                last.pop_front();
            }
            if n % 997 == 0 {
                let before = chooser.fills;
                for (id, bucket) in &last {
                    prop_assert_eq!(chooser.choose(*id, bytes), Some(*bucket));
                }
                prop_assert_eq!(before, chooser.fills, "a retried message is not counted again");
            }
        }
        assert_bounded(&fills);
    }
}
