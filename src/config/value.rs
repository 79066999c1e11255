//! Text of values: times and sizes with a unit, switches, and optional values.

use std::str::FromStr;
use std::time::Duration;

/// Milliseconds of each unit. A value is shown in the largest unit that divides it.
const TIMES: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];
const SIZES: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// A time with its unit, such as `500ms`, `10s`, `15m`, `24h` or `30d`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let milliseconds = parse(text, &TIMES)
        .ok_or("must be a time with its unit, as 500ms, 10s, 15m, 24h or 30d")?;
    Ok(Duration::from_millis(milliseconds))
}

/// Text of a time, in the largest unit that divides it.
pub fn show_duration(duration: Duration) -> String {
    show(
        u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        &TIMES,
    )
}

pub(super) fn set_size<T: TryFrom<u64>>(to: &mut T, text: &str) -> Result<(), String> {
    let size = parse(text, &SIZES).and_then(|size| T::try_from(size).ok());
    *to = size.ok_or("must be a size with its unit, as 512KiB, 64MiB or 1GiB")?;
    Ok(())
}

/// Parses a time above zero.
pub(super) fn set_time(to: &mut Duration, text: &str) -> Result<(), String> {
    *to = Some(parse_duration(text)?)
        .filter(|time| !time.is_zero())
        .ok_or("must be longer than nothing")?;
    Ok(())
}

pub(super) fn set_count<T: TryFrom<u64>>(to: &mut T, text: &str) -> Result<(), String> {
    let count = text
        .parse()
        .ok()
        .filter(|count| *count > 0)
        .and_then(|count: u64| T::try_from(count).ok());
    *to = count.ok_or("must be a whole number from 1 on")?;
    Ok(())
}

pub(super) fn show_size(bytes: u64) -> String {
    show(bytes, &SIZES)
}

pub(super) fn set_bool(to: &mut bool, text: &str) -> Result<(), String> {
    *to = match text {
        "true" | "1" | "yes" | "on" => true,
        "false" | "0" | "no" | "off" => false,
        _ => return Err("must be true or false".to_owned()),
    };
    Ok(())
}

/// Parses `on` or `off`.
pub(super) fn show_switch(is_on: bool) -> String {
    if is_on {
        "on".to_owned()
    } else {
        "off".to_owned()
    }
}

pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

/// Parses an optional value; `none` clears it.
pub(super) fn set_option<T: From<String>>(to: &mut Option<T>, text: &str) -> Result<(), String> {
    *to = match text {
        "none" => None,
        "" => return Err("must not be empty".to_owned()),
        text => Some(text.to_owned().into()),
    };
    Ok(())
}

pub(super) fn set_parsed<T: FromStr<Err = String>>(to: &mut T, text: &str) -> Result<(), String> {
    *to = text.parse()?;
    Ok(())
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|char: char| !char.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

fn show(value: u64, units: &[(&str, u64)]) -> String {
    let fits = |(_, factor): &&(&str, u64)| value != 0 && value.is_multiple_of(*factor);
    let (unit, factor) = units.iter().rev().find(fits).unwrap_or(&units[0]);
    format!("{}{unit}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("24h"), Ok(Duration::from_secs(86_400)));
        assert_eq!(parse_duration("0s"), Ok(Duration::ZERO));
        for wrong in [
            "",
            "10",
            "h",
            "-1s",
            "1.5h",
            "10 s",
            "10y",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for milliseconds in [0, 1, 1_500, 10_000, 86_400_000] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(parse_duration(&show_duration(duration)), Ok(duration));
        }
        assert_eq!(show_duration(Duration::from_secs(10)), "10s");
        assert_eq!(show_size(1 << 30), "1GiB");
    }
}
