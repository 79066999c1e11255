//! Schedule of removals: how wide a bucket of an expiring history is, and the hour in which all of it may be removed.

use crate::model::Timestamp;

const SECOND_MICROS: i64 = 1_000_000;
const MINUTE_MICROS: i64 = 60 * SECOND_MICROS;
pub(in crate::store) const HOUR_MICROS: i64 = 60 * MINUTE_MICROS;
const DAY_MICROS: i64 = 24 * HOUR_MICROS;

/// Widths of buckets, the widest first.
pub(in crate::store) const WIDTHS_MICROS: [i64; 4] =
    [10 * DAY_MICROS, DAY_MICROS, HOUR_MICROS, MINUTE_MICROS];

/// Time from the expiry of a message to its removal at the earliest. A change of the expiry that was decided before the
/// removal is visible by then, whatever the clocks of the servers.
pub const REMOVAL_DELAY_MICROS: i64 = HOUR_MICROS;

/// Hours for which the list of removals keeps an entry beyond its hour.
pub const DUE_KEPT_HOURS: u32 = 35 * 24;

/// The greatest width of the buckets of messages that expire: a tenth of the expiry, or a minute.
pub fn widest_micros(ttl_seconds: u32) -> i64 {
    let tenth = i64::from(ttl_seconds) * SECOND_MICROS / 10;
    WIDTHS_MICROS
        .into_iter()
        .find(|width| *width <= tenth)
        .unwrap_or(MINUTE_MICROS)
}

/// The hour of a moment, counted from 1970.
pub fn hour_of(moment: Timestamp) -> u32 {
    u32::try_from(moment.micros().div_euclid(HOUR_MICROS)).unwrap_or_default()
}

/// The hour from whose begin on all messages before a moment may be removed.
pub fn removal_hour(end: Timestamp, ttl_seconds: u32) -> u32 {
    let expired_at = end.plus_micros(i64::from(ttl_seconds) * SECOND_MICROS);
    hour_of(expired_at.plus_micros(REMOVAL_DELAY_MICROS)) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_at_most_a_tenth_of_the_expiry_wide() {
        let widest = |seconds| widest_micros(seconds) / SECOND_MICROS;
        let (minute, hour, day) = (60, 3_600, 86_400);
        for (seconds, expected) in [
            (60, minute),
            (day / 3, minute),
            (10 * hour - 1, minute),
            (10 * hour, hour),
            (day, hour),
            (10 * day, day),
            (99 * day, day),
            (100 * day, 10 * day),
            (3_652 * day, 10 * day),
        ] {
            assert_eq!(widest(seconds), i64::from(expected), "{seconds} s");
        }
    }

    #[test]
    fn a_bucket_is_due_once_all_of_it_has_expired_for_a_while() {
        let at = |micros| Timestamp::from_micros(micros);
        for end in [0, 1, HOUR_MICROS - 1, HOUR_MICROS, 7 * DAY_MICROS + 5] {
            let begin = i64::from(removal_hour(at(end), 60)) * HOUR_MICROS;
            let earliest = end + MINUTE_MICROS + REMOVAL_DELAY_MICROS;
            assert!(
                (earliest..=earliest + HOUR_MICROS).contains(&begin),
                "{end}"
            );
        }
    }
}
