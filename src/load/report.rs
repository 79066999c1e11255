//! What came out: the same figures as text for a person and as JSON for a program.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::Run;
use super::failure::{Error, advice};
use super::process::Spent;
use super::tally::Tally;

pub struct Report {
    shape: &'static str,
    url: String,
    run: String,
    /// The numbers that were asked for.
    settings: Value,
    about: String,
    counted: Counted,
    tally: Tally,
    spent: Spent,
    figures: Vec<Figure>,
    /// What must never be.
    faults: Vec<String>,
    is_interrupted: bool,
}

/// What is counted, and from when to when each is timed.
pub(super) struct Counted {
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    pub(super) timed: &'static str,
}

/// Something that only one shape has to say.
pub(super) struct Figure {
    /// In JSON.
    name: &'static str,
    value: f64,
    /// The number and what it says, for a person.
    words: String,
}

impl Figure {
    pub(super) fn new(name: &'static str, value: f64, words: String) -> Self {
        Self { name, value, words }
    }
}

impl Report {
    pub(super) fn new(
        run: &Run<'_>,
        (shape, settings): (&'static str, &impl serde::Serialize),
        about: String,
        counted: Counted,
        (tally, spent): (Tally, Spent),
    ) -> Self {
        let settings = serde_json::to_value(settings).expect("settings are numbers");
        let (url, is_interrupted) = (run.target.url().to_owned(), run.stop.is_cancelled());
        let run = run.id().to_owned();
        Self { shape, url, run, settings, about, counted, tally, spent, figures: Vec::new(), faults: Vec::new(), is_interrupted }
    }

    #[must_use]
    pub(super) fn with(mut self, figures: impl IntoIterator<Item = Figure>) -> Self {
        self.figures.extend(figures);
        self
    }

    #[must_use]
    pub(super) fn with_faults(mut self, faults: impl IntoIterator<Item = String>) -> Self {
        self.faults.extend(faults);
        self
    }

    fn seconds(&self) -> f64 {
        self.spent.elapsed.as_secs_f64()
    }

    fn rate(&self) -> f64 {
        self.tally.count() as f64 / self.seconds().max(1e-6)
    }

    /// µs of the server's processor for each.
    fn cost(&self) -> Option<f64> {
        self.spent.cpu_micros.filter(|_| self.tally.count() > 0).map(|micros| micros / self.tally.count() as f64)
    }

    fn cores(&self) -> Option<f64> {
        self.spent.cpu_micros.map(|micros| micros / 1e6 / self.seconds().max(1e-6))
    }

    fn resident_mib(&self) -> Option<f64> {
        self.spent.resident_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))
    }

    /// One object. What was not measured is not in it.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        let failures: Map<_, _> = self.tally.failures.iter().map(|(code, (count, _))| (code.clone(), json!(count))).collect();
        let known = [
            ("shape", json!(self.shape)),
            ("url", json!(self.url)),
            ("run", json!(self.run)),
            ("settings", self.settings.clone()),
            ("seconds", rounded(self.seconds())),
            ("of", json!(self.counted.many)),
            ("operations", json!(self.tally.count())),
            ("perSecond", rounded(self.rate())),
            ("failed", json!(self.tally.failed())),
            ("failures", Value::Object(failures)),
            ("faults", json!(self.faults)),
            ("interrupted", json!(self.is_interrupted)),
        ];
        object.extend(known.map(|(name, value)| (name.to_owned(), value)));
        let mut add = |name: &str, value: f64| drop(object.insert(name.to_owned(), rounded(value)));
        if let Some(spread) = self.tally.spread() {
            for (name, value) in [("p50Ms", spread.p50), ("p90Ms", spread.p90), ("p99Ms", spread.p99), ("maxMs", spread.max)] {
                add(name, value);
            }
        }
        let server = [("cpuMicrosEach", self.cost()), ("cpuCores", self.cores()), ("residentMib", self.resident_mib())];
        for (name, value) in server {
            value.into_iter().for_each(|value| add(name, value));
        }
        self.figures.iter().for_each(|figure| add(figure.name, figure.value));
        Value::Object(object)
    }

    pub fn text(&self) -> String {
        let Counted { one, many, timed } = self.counted;
        let mut text = format!("{}: {}\n", self.shape, self.about);
        let mut line = |name: &str, words: &str| writeln!(text, "  {name:<10}  {words}").expect("a text takes what is written");
        let (count, rate, seconds) = (grouped(self.tally.count()), grouped(self.rate().round() as u64), self.seconds());
        line(many, &format!("{count} in {seconds:.1} s, {rate} a second"));
        if let Some(spread) = self.tally.spread() {
            let [p50, p90, p99, max] = [spread.p50, spread.p90, spread.p99, spread.max].map(|value| format!("{value:.1}"));
            line("ms", &format!("p50 {p50}, p90 {p90}, p99 {p99}, max {max}: {timed}"));
        }
        if let (Some(cores), Some(resident)) = (self.cores(), self.resident_mib()) {
            let cost = self.cost().map(|micros| format!("{micros:.1} µs of CPU for each {one}, ")).unwrap_or_default();
            line("server", &format!("{cost}{cores:.2} cores busy, {resident:.1} MiB resident"));
        }
        self.figures.iter().for_each(|figure| line("", &figure.words));
        self.faults.iter().for_each(|fault| line("WRONG", fault));
        if self.tally.failures.is_empty() {
            line("failed", "none");
        }
        for (code, (count, sentence)) in &self.tally.failures {
            line("failed", &format!("{} {code}: {sentence}", grouped(*count)));
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// Whether all is as it must be.
    pub fn verdict(&self) -> Result<(), Error> {
        let failed = self.tally.failed();
        let codes: Vec<_> = self.tally.failures.keys().map(String::as_str).collect();
        let advice = codes.iter().find_map(|code| advice(code)).map(|advice| format!("; {advice}")).unwrap_or_default();
        match self.faults.first() {
            Some(fault) => Err(Error::Broken(format!("{fault}{advice}"))),
            None if failed > 0 => Err(Error::Failed { failed, all: failed + self.tally.count(), codes: codes.join(", "), advice }),
            None if self.is_interrupted => Err(Error::Cut),
            None => Ok(()),
        }
    }
}

/// To what can be told apart.
fn rounded(value: f64) -> Value {
    json!((value * 1e3).round() / 1e3)
}

/// With commas between the thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_told_apart() {
        let shown = [0, 7, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "7", "999", "1,000", "1,234,567"]);
    }
}
