//! Timestamps in microseconds, the precision of `createdAt` and of write timestamps.

use std::fmt;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Microseconds since 1970-01-01T00:00:00Z. Never negative, and never after the year 9999.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Timestamp(i64);

impl Timestamp {
    pub const ZERO: Self = Self(0);
    /// The last microsecond of the year 9999, beyond which RFC 3339 has no text.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// Clamps values to [`Timestamp::ZERO`]..=[`Timestamp::MAX`].
    pub const fn from_micros(micros: i64) -> Self {
        if micros < 0 {
            Self::ZERO
        } else if micros > Self::MAX.0 {
            Self::MAX
        } else {
            Self(micros)
        }
    }

    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Parses RFC 3339 with any offset, and truncates to microseconds.
    pub fn parse(text: &str) -> Option<Self> {
        let moment = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        let micros = i64::try_from(moment.unix_timestamp_nanos().div_euclid(1_000)).ok()?;
        (0..=Self::MAX.0).contains(&micros).then_some(Self(micros))
    }

    pub const fn plus_micros(self, micros: i64) -> Self {
        Self::from_micros(self.0.saturating_add(micros))
    }
}

impl Timestamp {
    /// RFC 3339 in UTC, always with six fractional digits, so equal timestamps have equal texts.
    pub fn text(self) -> TimestampText {
        // A damaged row may hold any number.
        let Self(moment) = Self::from_micros(self.0);
        let (seconds, micros) = (moment / 1_000_000, moment % 1_000_000);
        let moment = OffsetDateTime::from_unix_timestamp(seconds)
            .expect("a timestamp lies between 1970 and 9999");
        let (date, (hour, minute, second)) = (moment.date(), moment.to_hms());
        let year = date.year().unsigned_abs();
        let micros = u32::try_from(micros).expect("a timestamp is never negative");
        // Each row of a page has a timestamp, and interpreting a format description costs several times as much.
        let pairs = [
            (0, two_digits(year / 100)),
            (2, two_digits(year)),
            (5, two_digits(u8::from(date.month()).into())),
            (8, two_digits(date.day().into())),
            (11, two_digits(hour.into())),
            (14, two_digits(minute.into())),
            (17, two_digits(second.into())),
            (20, two_digits(micros / 10_000)),
            (22, two_digits(micros / 100)),
            (24, two_digits(micros)),
        ];
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        for (at, [tens, ones]) in pairs {
            (text[at], text[at + 1]) = (tens, ones);
        }
        TimestampText(text)
    }
}

/// The last two digits of a number.
fn two_digits(number: u32) -> [u8; 2] {
    [number / 10 % 10, number % 10]
        .map(|digit| b'0' + u8::try_from(digit).expect("a digit is less than 10"))
}

/// Text of a timestamp, without an allocation.
pub struct TimestampText([u8; 27]);

impl TimestampText {
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits are text")
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Timestamp {
    /// Writes [`Timestamp::text`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_the_round_trip() {
        let moment = Timestamp::parse("2026-03-15T12:05:00.123456789+02:00").unwrap();
        assert_eq!(moment.to_string(), "2026-03-15T10:05:00.123456Z");
        assert_eq!(Timestamp::parse(&moment.to_string()), Some(moment));
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999999Z");
    }

    #[test]
    fn a_damaged_time_has_a_text() {
        assert_eq!(Timestamp(-1).to_string(), "1970-01-01T00:00:00.000000Z");
        assert_eq!(Timestamp(i64::MAX).to_string(), Timestamp::MAX.to_string());
    }

    #[test]
    fn times_before_1970_are_refused() {
        assert_eq!(Timestamp::parse("1969-12-31T23:59:59Z"), None);
        assert_eq!(Timestamp::parse("yesterday"), None);
    }
}
