//! Bucket choice: picks the partition of each new message, so that no partition exceeds its bound and a quiet conversation has few.
//!
//! A partition stays under 100,000 messages and 50 MB, of all servers together. The width of a new bucket follows the rate of the last one,
//! both ways. A full bucket is left at once for a narrower one.
//!
//! Each server counts its own messages. To bound those of all servers, a chooser follows the bucket of the newest message, whichever server
//! wrote it, and asks for a measurement of its bucket: after [`MEASURE_MESSAGES`] of its own messages, or after [`MEASURE_MICROS`]. The room
//! between the bound at which a bucket is left and that of a partition is for what the servers write between two measurements.
//!
//! A retried message goes to the bucket of the first try, although the width may have changed meanwhile: the chooser remembers the bucket of
//! each run of messages.

use std::collections::VecDeque;

use super::bucket::{Bucket, Width};
use super::bucket_fill::{Fill, NARROWEST_MAX, WIDE_MAX};
use crate::model::{OrderKey, TimeUuid, Timestamp};

/// The fill that a new bucket should reach.
const TARGET: Fill = Fill {
    messages: 10_000,
    bytes: 5 << 20,
};
/// Own messages after which a bucket is measured again.
const MEASURE_MESSAGES: u64 = 500;
/// Time after which a bucket is measured again. Up to 160 servers keep the bound by their own messages alone, so a server that sends one now
/// and then need not measure after each.
const MEASURE_MICROS: i64 = 10 * 60 * 1_000_000;
/// Messages that come so far apart do not fill a bucket: the widest one then holds at most 14,400 of them.
const SPARSE_MICROS: i64 = 60 * 1_000_000;
/// The newest messages whose span is the present rate.
pub(crate) const SAMPLE_MESSAGES: usize = 200;
/// Runs that are remembered. A batch has fewer messages, and each may have a bucket of its own.
const RUNS_MAX: usize = 128;

/// Chooser of buckets for one conversation.
#[derive(Debug)]
pub(crate) struct BucketChooser {
    current: Bucket,
    /// Since when the rate is measured: the start of the current bucket, or the moment at which the one before was full.
    since: Timestamp,
    /// Whether the current bucket was there before this chooser. Its fill is unknown then, and assumed to be the target.
    is_resumed: bool,
    /// The last bucket of each width, with the messages that this server put there.
    fills: [(Bucket, Fill); Width::ALL.len()],
    /// The first message of each run, with its bucket, ascending.
    runs: VecDeque<(OrderKey, Bucket)>,
    newest: Option<OrderKey>,
    /// The newest message of any server.
    newest_of_all: Option<TimeUuid>,
    meter: Meter,
}

/// Knowledge of a chooser about the messages of all servers.
#[derive(Debug, Default)]
struct Meter {
    measured_at: Timestamp,
    /// Own messages since then.
    own: u64,
    /// Whether messages came close together since then.
    is_lively: bool,
    /// The time of the oldest message of the sample, and the number of messages since.
    sample: Option<(Timestamp, u64)>,
    /// All own messages: their average size stands for that of all servers' messages.
    total: Fill,
}

/// A measured bucket: the messages of all servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BucketMeasurement {
    pub(crate) bucket: Bucket,
    pub(crate) messages: u64,
    /// The newest messages, at most [`SAMPLE_MESSAGES`], and the time of the oldest among them.
    pub(crate) sample: Option<(Timestamp, u64)>,
}

impl BucketChooser {
    /// A chooser that continues after the bucket of the newest message; `None` for a conversation without messages.
    pub(crate) fn from(last: Option<Bucket>) -> Self {
        let fills =
            Width::ALL.map(|width| (Bucket::holding(Timestamp::ZERO, width), Fill::default()));
        let mut chooser = Self {
            current: fills[0].0,
            since: Timestamp::ZERO,
            is_resumed: false,
            fills,
            runs: VecDeque::new(),
            newest: None,
            newest_of_all: None,
            meter: Meter::default(),
        };
        if let Some(last) = last {
            (chooser.current, chooser.since) = (last, last.start);
            chooser.is_resumed = true;
            chooser.fills[last.width as usize].0 = last;
        }
        chooser
    }

    /// The bucket of a message; the same one when the message is retried. `None` if even the narrowest bucket is full.
    pub(crate) fn choose(&mut self, id: TimeUuid, bytes: usize) -> Option<Bucket> {
        let position = id.order_key();
        if let Some(bucket) = self.bucket_of(id) {
            return Some(bucket);
        }
        let is_new = self.newest.is_none_or(|newest| newest < position);
        if !is_new || id.moment() < self.current.start {
            let bucket = Bucket::holding(id.moment(), self.current.width);
            self.remember(id, bucket);
            return Some(bucket);
        }
        let bucket = if self.current.can_hold(id) && self.has_room(self.current) {
            self.current
        } else {
            self.next(id)?
        };
        if self.runs.back().is_none_or(|(_, last)| *last != bucket) {
            self.remember(id, bucket);
        }
        if bucket != self.current {
            self.since = if self.current.can_hold(id) {
                id.moment()
            } else {
                bucket.start
            };
            self.current = bucket;
            self.is_resumed = false;
        }
        self.newest = Some(position);
        let fill = &mut self.fills[bucket.width as usize];
        if fill.0 != bucket {
            *fill = (bucket, Fill::default());
        }
        let one = Fill {
            messages: 1,
            bytes: bytes as u64,
        };
        fill.1 += one;
        self.meter.total += one;
        self.meter.own += 1;
        if let Some((_, count)) = &mut self.meter.sample {
            *count += 1;
        }
        self.note_newest(id);
        Some(bucket)
    }

    /// Follows the newest message of another server to its bucket. So the servers do not fill one bucket each, and all leave a full one.
    pub(crate) fn follow(&mut self, newest: TimeUuid, bucket: Bucket) {
        if self.newest_of_all >= Some(newest) {
            return;
        }
        self.note_newest(newest);
        if bucket != self.current {
            self.since = bucket.start.max(self.since);
            self.current = bucket;
            self.is_resumed = true;
        }
    }

    fn note_newest(&mut self, id: TimeUuid) {
        if let Some(before) = self.newest_of_all {
            let gap = id.moment().micros() - before.moment().micros();
            self.meter.is_lively |= gap < SPARSE_MICROS;
        }
        self.newest_of_all = self.newest_of_all.max(Some(id));
    }

    /// The bucket to measure now, if it is time. The next one is due later, also if this one fails.
    pub(crate) fn take_measurement(&mut self, now: Timestamp) -> Option<Bucket> {
        let meter = &mut self.meter;
        let is_old = meter.measured_at.plus_micros(MEASURE_MICROS) <= now;
        if meter.own < MEASURE_MESSAGES && !(is_old && meter.is_lively) {
            return None;
        }
        (meter.measured_at, meter.own, meter.is_lively) = (now, 0, false);
        Some(self.current)
    }

    /// Takes the messages of all servers into account.
    pub(crate) fn note_measurement(&mut self, measurement: BucketMeasurement) {
        let BucketMeasurement {
            bucket,
            messages,
            sample,
        } = measurement;
        self.meter.sample = sample;
        let all = self.meter.total.scaled_to(messages);
        let fill = &mut self.fills[bucket.width as usize];
        if fill.0 != bucket {
            *fill = (bucket, Fill::default());
        }
        fill.1 = fill.1.max(all);
        if bucket == self.current {
            self.is_resumed = false;
        }
    }

    /// The bucket that a message went to, if it is still remembered.
    pub(crate) fn bucket_of(&self, id: TimeUuid) -> Option<Bucket> {
        let position = id.order_key();
        if self.newest.is_none_or(|newest| newest < position) {
            return None;
        }
        let behind = self.runs.partition_point(|(first, _)| *first <= position);
        let (_, bucket) = self.runs.get(behind.checked_sub(1)?)?;
        bucket.can_hold(id).then_some(*bucket)
    }

    /// Remembers that a message lies in a bucket.
    pub(crate) fn remember(&mut self, id: TimeUuid, bucket: Bucket) {
        let position = id.order_key();
        let behind = self.runs.partition_point(|(first, _)| *first <= position);
        self.runs.insert(behind, (position, bucket));
        self.newest = self.newest.max(Some(position));
        if self.runs.len() > RUNS_MAX {
            self.runs.pop_front();
        }
    }

    /// The widest bucket that stays below its target at the present rate.
    fn next(&self, id: TimeUuid) -> Option<Bucket> {
        let elapsed = id.moment().micros() - self.since.micros();
        let mut last = self.fill(self.current);
        if self.is_resumed {
            last.messages = last.messages.max(TARGET.messages);
        }
        // A bucket that became full says little about the rate at its end: it may have been quiet until a moment ago.
        let present = self
            .meter
            .sample
            .filter(|_| !self.has_room(self.current))
            .map(|(from, count)| {
                let sampled = self.meter.total.scaled_to(count);
                (sampled, id.moment().micros() - from.micros())
            });
        let fits = |bucket: &Bucket| {
            let width = bucket.width.micros();
            let mut expected = last.scaled(width, elapsed);
            if let Some((sampled, span)) = present {
                expected = expected.max(sampled.scaled(width, span));
            }
            let is_wide_enough =
                expected.messages <= TARGET.messages && expected.bytes <= TARGET.bytes;
            self.has_room(*bucket) && (is_wide_enough || bucket.width == Width::Minute)
        };
        Width::ALL
            .map(|width| Bucket::holding(id.moment(), width))
            .into_iter()
            .find(fits)
    }

    fn has_room(&self, bucket: Bucket) -> bool {
        self.fill(bucket)
            .is_below(if bucket.width == Width::Minute {
                NARROWEST_MAX
            } else {
                WIDE_MAX
            })
    }

    fn fill(&self, bucket: Bucket) -> Fill {
        let (last, fill) = self.fills[bucket.width as usize];
        if last == bucket {
            fill
        } else {
            Fill::default()
        }
    }
}

#[cfg(test)]
mod tests {
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
}
