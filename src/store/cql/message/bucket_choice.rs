//! Into which bucket the next message of a conversation goes, so that no partition grows over its bound and a quiet conversation has few.
//!
//! A partition stays under 100,000 messages and 50 MB. The width of a new bucket follows the rate of the last one, both ways; a bucket that
//! is full is left at once for a narrower one. Each server counts what it put there itself: what it leaves free is for the others.
//!
//! A message that is written again goes where it went, although the width has changed meanwhile: where a run of messages began is
//! remembered with its bucket.

use std::collections::VecDeque;

use super::bucket::{Bucket, Width};
use crate::model::{OrderKey, TimeUuid, Timestamp};

/// What one server puts into a bucket that has a narrower one below it.
const WIDE_MAX: Fill = Fill { messages: 20_000, bytes: 10 << 20 };
/// And into one of the narrowest.
const NARROWEST_MAX: Fill = Fill { messages: 80_000, bytes: 40 << 20 };
/// What a new bucket should come to hold.
const AIM: Fill = Fill { messages: 10_000, bytes: 5 << 20 };
/// More than a batch has messages: each of them can have a bucket of its own.
const RUNS_MAX: usize = 128;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Fill {
    messages: u64,
    bytes: u64,
}

impl Fill {
    const fn has_room_below(self, bound: Self) -> bool {
        self.messages < bound.messages && self.bytes < bound.bytes
    }

    /// As much as comes in `of` micros, where this came in `elapsed`.
    fn scaled(self, of: i64, elapsed: i64) -> Self {
        let scale = |value: u64| {
            let scaled = u128::from(value) * u128::from(of.unsigned_abs()) / u128::from(elapsed.max(1).unsigned_abs());
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Self { messages: scale(self.messages), bytes: scale(self.bytes) }
    }
}

/// The way of one conversation through its buckets.
#[derive(Debug)]
pub(crate) struct Course {
    current: Bucket,
    /// From when on the rate is taken: its start, or when the one before was full.
    since: Timestamp,
    /// What is not known of the current one, having been there before: as much as it was made for.
    is_resumed: bool,
    /// The last bucket of each width, and what this server put there.
    fills: [(Bucket, Fill); Width::ALL.len()],
    /// From which message on which bucket was taken, ascending.
    runs: VecDeque<(OrderKey, Bucket)>,
    newest: Option<OrderKey>,
}

impl Course {
    /// Of a conversation whose newest message lies in this bucket; `None` for one without messages.
    pub(crate) fn from(last: Option<Bucket>) -> Self {
        let fills = Width::ALL.map(|width| (Bucket::holding(Timestamp::ZERO, width), Fill::default()));
        let mut course =
            Self { current: fills[0].0, since: Timestamp::ZERO, is_resumed: false, fills, runs: VecDeque::new(), newest: None };
        if let Some(last) = last {
            (course.current, course.since) = (last, last.start);
            course.is_resumed = true;
            course.fills[last.width as usize].0 = last;
        }
        course
    }

    /// Where a message of so many bytes goes. The same one once more: the same bucket. `None` where even the narrowest is full.
    pub(crate) fn place(&mut self, id: TimeUuid, bytes: usize) -> Option<Bucket> {
        let place = id.order_key();
        if let Some(bucket) = self.placed(id) {
            return Some(bucket);
        }
        let is_new = self.newest.is_none_or(|newest| newest < place);
        if !is_new || id.moment() < self.current.start {
            let bucket = Bucket::holding(id.moment(), self.current.width);
            self.remember(id, bucket);
            return Some(bucket);
        }
        let bucket = if self.current.can_hold(id) && self.has_room(self.current) { self.current } else { self.next(id)? };
        if self.runs.back().is_none_or(|(_, last)| *last != bucket) {
            self.remember(id, bucket);
        }
        if bucket != self.current {
            self.since = if self.current.can_hold(id) { id.moment() } else { bucket.start };
            self.current = bucket;
            self.is_resumed = false;
        }
        self.newest = Some(place);
        let fill = &mut self.fills[bucket.width as usize];
        if fill.0 != bucket {
            *fill = (bucket, Fill::default());
        }
        fill.1.messages += 1;
        fill.1.bytes += bytes as u64;
        Some(bucket)
    }

    /// Where a message went, as far as that is remembered.
    pub(crate) fn placed(&self, id: TimeUuid) -> Option<Bucket> {
        let place = id.order_key();
        if self.newest.is_none_or(|newest| newest < place) {
            return None;
        }
        let behind = self.runs.partition_point(|(first, _)| *first <= place);
        let (_, bucket) = self.runs.get(behind.checked_sub(1)?)?;
        bucket.can_hold(id).then_some(*bucket)
    }

    /// A message was found there.
    pub(crate) fn remember(&mut self, id: TimeUuid, bucket: Bucket) {
        let place = id.order_key();
        let behind = self.runs.partition_point(|(first, _)| *first <= place);
        self.runs.insert(behind, (place, bucket));
        self.newest = self.newest.max(Some(place));
        if self.runs.len() > RUNS_MAX {
            self.runs.pop_front();
        }
    }

    /// The widest bucket that would not come to hold more than it should, were it to go on like this.
    fn next(&self, id: TimeUuid) -> Option<Bucket> {
        let elapsed = id.moment().micros() - self.since.micros();
        let mut last = self.fill(self.current);
        if self.is_resumed {
            last.messages = last.messages.max(AIM.messages);
        }
        let fits = |bucket: &Bucket| {
            let expected = last.scaled(bucket.width.micros(), elapsed);
            let is_wide_enough = expected.messages <= AIM.messages && expected.bytes <= AIM.bytes;
            self.has_room(*bucket) && (is_wide_enough || bucket.width == Width::Minute)
        };
        Width::ALL.map(|width| Bucket::holding(id.moment(), width)).into_iter().find(fits)
    }

    fn has_room(&self, bucket: Bucket) -> bool {
        self.fill(bucket).has_room_below(if bucket.width == Width::Minute { NARROWEST_MAX } else { WIDE_MAX })
    }

    fn fill(&self, bucket: Bucket) -> Fill {
        let (last, fill) = self.fills[bucket.width as usize];
        if last == bucket { fill } else { Fill::default() }
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
        TimeUuid::new(Timestamp::from_micros(START + micros), [0x80, 0, 1, 0, 0, 0, 0, 0])
    }

    /// What lies in each bucket after these messages: micros and bytes of each.
    fn fill(course: &mut Course, messages: impl IntoIterator<Item = (i64, usize)>) -> HashMap<Bucket, Fill> {
        let mut fills: HashMap<Bucket, Fill> = HashMap::new();
        for (micros, bytes) in messages {
            let Some(bucket) = course.place(id(micros), bytes) else { continue };
            assert!(bucket.can_hold(id(micros)));
            assert_eq!(course.placed(id(micros)), Some(bucket));
            let fill = fills.entry(bucket).or_default();
            fill.messages += 1;
            fill.bytes += bytes as u64;
        }
        fills
    }

    fn assert_bounded(fills: &HashMap<Bucket, Fill>) {
        for (bucket, fill) in fills {
            assert!(fill.messages < 100_000 && fill.bytes < 50_000_000, "{bucket:?} holds {fill:?}");
        }
    }

    #[test]
    fn a_hundred_thousand_messages_of_one_minute_lie_in_few_partitions_within_the_bound() {
        let mut course = Course::from(None);
        let fills = fill(&mut course, (0..100_000).map(|n| (n * 600, 400)));
        assert_bounded(&fills);
        assert_eq!(fills.values().map(|fill| fill.messages).sum::<u64>(), 100_000, "none is refused");
        assert!(fills.len() <= 4, "{fills:?}");
    }

    #[test]
    fn messages_of_the_greatest_size_are_refused_before_a_partition_is_too_big() {
        let mut course = Course::from(None);
        let fills = fill(&mut course, (0..4_000).map(|n| (n * 10_000, 27_000)));
        assert_bounded(&fills);
        assert!(course.place(id(4_000 * 10_000), 27_000).is_none());
        assert!(course.place(id(60 * SECOND), 27_000).is_some(), "the next minute takes more");
    }

    #[test]
    fn the_width_follows_the_rate_both_ways() {
        let mut course = Course::from(None);
        // A message each 100 ms for two hours, then one an hour for three months.
        let fast = (0..72_000).map(|n| (n * SECOND / 10, 100));
        fill(&mut course, fast);
        assert_eq!(course.current.width, Width::Minute, "{:?}", course.current);
        let slow = fill(&mut course, (3..2_000).map(|n| (n * 3_600 * SECOND, 100)));
        // The day and the ten days of the rush are full.
        assert!(slow.len() < 45, "{slow:?}");
        assert_eq!(course.current.width, Width::TenDays);
    }

    #[test]
    fn a_steady_rate_has_buckets_of_the_size_that_is_aimed_at() {
        let mut course = Course::from(None);
        // 5,000 an hour.
        let fills = fill(&mut course, (0..500_000).map(|n| (n * 720_000, 100)));
        let hours = fills.keys().filter(|bucket| bucket.width == Width::Hour).count();
        assert!(hours > 80 && fills.len() < 110, "{fills:?}");
    }

    #[test]
    fn what_was_there_before_is_gone_on_with() {
        let last = Bucket::holding(id(0).moment(), Width::Minute);
        assert_eq!(Course::from(Some(last)).place(id(1), 1), Some(last));
        let width_after = |micros| Course::from(Some(last)).place(id(micros), 1).unwrap().width;
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
            let mut course = Course::from(None);
            let mut micros = 0;
            let mut messages = Vec::new();
            for ((count, gap, bytes), pause) in stretches.into_iter().zip(pauses) {
                messages.extend((0..count).map(|n| (micros + n * gap, bytes)));
                micros += count * gap + pause;
            }
            let mut fills: HashMap<Bucket, Fill> = HashMap::new();
            let mut last: VecDeque<(TimeUuid, Bucket)> = VecDeque::new();
            for (n, (micros, bytes)) in messages.into_iter().enumerate() {
                let Some(bucket) = course.place(id(micros), bytes) else { continue };
                prop_assert!(bucket.can_hold(id(micros)));
                let fill = fills.entry(bucket).or_default();
                fill.messages += 1;
                fill.bytes += bytes as u64;
                last.push_back((id(micros), bucket));
                if last.len() > 64 {
                    last.pop_front();
                }
                if n % 997 == 0 {
                    let before = course.fills;
                    for (id, bucket) in &last {
                        prop_assert_eq!(course.place(*id, bytes), Some(*bucket));
                    }
                    prop_assert_eq!(before, course.fills, "what is written again is not counted again");
                }
            }
            assert_bounded(&fills);
        }
    }
}
