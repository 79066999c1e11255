//! Bucket choice: picks the partition of each new message, so that no partition exceeds its bound and a quiet conversation has few.
//!
//! A partition stays under 100,000 messages and 50 MB. The width of a new bucket follows the rate of the last one, both ways. A full bucket
//! is left at once for a narrower one. Each server counts only its own messages; the room that it leaves is for the other servers.
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
        fill.1.messages += 1;
        fill.1.bytes += bytes as u64;
        Some(bucket)
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
        let fits = |bucket: &Bucket| {
            let expected = last.scaled(bucket.width.micros(), elapsed);
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
