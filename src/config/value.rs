//! Text of values: times and sizes with a unit, switches, and optional values.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A [`super::Setting`]: its kind, the command that accepts it, its name, its variable, its field, its help, and the result
/// beyond a bound. A setting of no kind has the placeholder of its value in place of one, and says how its value is shown and parsed.
macro_rules! setting {
    (@beyond) => { None };
    (@beyond $beyond:literal) => { Some($beyond) };
    (@ $value_name:expr, |$value:ident| $shown:expr, |$text:ident| $parsed:expr;
        $scope:ident $name:tt $environment:literal $($field:ident).+ $help:literal $(, $beyond:literal)?) => {
        Setting {
            name: $name,
            environment: $environment,
            scope: Scope::$scope,
            value_name: $value_name,
            help: $help,
            beyond: setting!(@beyond $($beyond)?),
            get: |config| {
                let $value = &config.$($field).+;
                $shown
            },
            set: |config, $text| {
                config.$($field).+ = $parsed;
                Ok(())
            },
        }
    };
    (size $($rest:tt)+) => {
        setting!(@ Some("SIZE"), |size| value::show_size(*size as u64), |text| value::parse_size(text)?; $($rest)+)
    };
    (count $($rest:tt)+) => {
        setting!(@ Some("COUNT"), |count| count.to_string(), |text| value::parse_count(text)?; $($rest)+)
    };
    (time $($rest:tt)+) => {
        setting!(@ Some("TIME"), |time| value::show_duration(*time), |text| value::parse_time(text)?; $($rest)+)
    };
    (delay $($rest:tt)+) => {
        setting!(@ Some("TIME"), |time| value::show_duration(*time), |text| value::parse_duration(text)?; $($rest)+)
    };
    (flag $($rest:tt)+) => {
        setting!(@ None, |is_on| is_on.to_string(), |text| value::parse_bool(text)?; $($rest)+)
    };
    (switch $($rest:tt)+) => {
        setting!(@ Some("on|off"), |is_on| value::show_switch(*is_on), |text| value::parse_switch(text)?; $($rest)+)
    };
    (file $($rest:tt)+) => {
        setting!(@ Some("FILE"), |path| value::show_option(path.as_ref(), "none", |path| path.display().to_string()),
            |text| value::parse_option(text, "none", value::parse_text)?; $($rest)+)
    };
    (choice $value_name:literal [$($choice:literal $variant:path),+] $wrong:literal, $($rest:tt)+) => {
        setting!(@ Some($value_name), |value| match value { $($variant => $choice.to_owned(),)+ },
            |text| match text { $($choice => $variant,)+ _ => return Err($wrong.to_owned()) }; $($rest)+)
    };
    ($scope:ident $name:tt $environment:literal $value_name:literal $($field:ident).+ $help:literal $(, $beyond:literal)?;
        |$value:ident| $shown:expr, |$text:ident| $parsed:expr) => {
        setting!(@ Some($value_name), |$value| $shown, |$text| $parsed;
            $scope $name $environment $($field).+ $help $(, $beyond)?)
    };
}

pub(super) use setting;

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

pub(super) fn parse_size<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let size = parse(text, &SIZES).and_then(|size| T::try_from(size).ok());
    size.ok_or_else(|| "must be a size with its unit, as 512KiB, 64MiB or 1GiB".to_owned())
}

/// Parses a time above zero.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let time = Some(parse_duration(text)?).filter(|time| !time.is_zero());
    time.ok_or_else(|| "must be longer than zero".to_owned())
}

/// Parses a time within bounds; `wrong` names them.
pub(super) fn parse_time_within(
    text: &str,
    bounds: RangeInclusive<Duration>,
    wrong: &str,
) -> Result<Duration, String> {
    let time = Some(parse_duration(text)?).filter(|time| bounds.contains(time));
    time.ok_or_else(|| wrong.to_owned())
}

pub(super) fn parse_count<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let count: Option<u64> = text.parse().ok().filter(|count| *count > 0);
    let count = count.and_then(|count| T::try_from(count).ok());
    count.ok_or_else(|| "must be a whole number from 1 on".to_owned())
}

pub(super) fn show_size(bytes: u64) -> String {
    show(bytes, &SIZES)
}

pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

pub(super) fn show_switch(is_on: bool) -> String {
    if is_on { "on" } else { "off" }.to_owned()
}

/// Parses `on` or `off`.
pub(super) fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err("must be on or off".to_owned()),
    }
}

/// Text of an optional value; `none` stands for no value.
pub(super) fn show_option<T>(
    value: Option<T>,
    none: &str,
    show: impl FnOnce(T) -> String,
) -> String {
    value.map_or_else(|| none.to_owned(), show)
}

/// Parses an optional value; `none` clears it.
pub(super) fn parse_option<T>(
    text: &str,
    none: &str,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    (text != none).then(|| parse(text)).transpose()
}

/// Parses a name or a path.
pub(super) fn parse_text<T: From<String>>(text: &str) -> Result<T, String> {
    match text {
        "" => Err("must not be empty".to_owned()),
        text => Ok(text.to_owned().into()),
    }
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
