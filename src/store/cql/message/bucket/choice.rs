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

use super::{Bucket, Fill, NARROWEST_MAX, WIDE_MAX, Width};
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
    /// New buckets are not wider. Messages that expire have narrow ones, which are removed as a whole.
    widest: Width,
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
            widest: Width::TenDays,
            meter: Meter::default(),
        };
        if let Some(last) = last {
            (chooser.current, chooser.since) = (last, last.start);
            chooser.is_resumed = true;
            chooser.fills[last.width as usize].0 = last;
        }
        chooser
    }

    pub(crate) fn set_widest(&mut self, widest: Width) {
        self.widest = widest;
    }

    /// The bucket of a message; the same one when the message is retried. `None` if even the narrowest bucket is full.
    pub(crate) fn choose(&mut self, id: TimeUuid, bytes: usize) -> Option<Bucket> {
        let position = id.order_key();
        if let Some(bucket) = self.bucket_of(id) {
            return Some(bucket);
        }
        let is_new = self.newest.is_none_or(|newest| newest < position);
        if !is_new || id.moment() < self.current.start {
            let bucket = Bucket::holding(id.moment(), self.current.width.max(self.widest));
            self.remember(id, bucket);
            return Some(bucket);
        }
        let is_narrow = self.current.width >= self.widest;
        let bucket = if is_narrow && self.current.can_hold(id) && self.has_room(self.current) {
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
            .into_iter()
            .filter(|width| *width >= self.widest)
            .map(|width| Bucket::holding(id.moment(), width))
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
#[path = "choice_test.rs"]
mod tests;
