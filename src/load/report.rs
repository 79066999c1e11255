//! Report of a run: the same figures as text for people and as JSON for programs.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::failure::{Error, advice};
use super::measurement::{OperationStats, Usage};
use super::run::LoadRun;

pub struct LoadReport {
    workload: &'static str,
    url: String,
    run: String,
    settings: Value,
    description: String,
    operation: OperationName,
    stats: OperationStats,
    usage: Usage,
    figures: Vec<Figure>,
    /// Broken guarantees of the server, such as lost messages.
    faults: Vec<String>,
    is_interrupted: bool,
}

/// Name of the measured operation.
pub(crate) struct OperationName {
    pub(crate) singular: &'static str,
    pub(crate) plural: &'static str,
    /// Start and end of a latency, in words.
    pub(crate) timed: &'static str,
}

/// Figure of one workload only.
pub(crate) struct Figure {
    /// Key in JSON.
    name: &'static str,
    value: f64,
    /// Line of the text report.
    text: String,
}

impl Figure {
    pub(crate) fn new(name: &'static str, value: f64, text: String) -> Self {
        Self { name, value, text }
    }
}

impl LoadReport {
    pub(crate) fn new(
        run: &LoadRun<'_>,
        (workload, settings): (&'static str, &impl serde::Serialize),
        description: String,
        operation: OperationName,
        (stats, usage): (OperationStats, Usage),
    ) -> Self {
        let settings = serde_json::to_value(settings).expect("settings are plain values");
        let (url, is_interrupted) = (run.target.url().to_owned(), run.stop.is_cancelled());
        let run = run.id().to_owned();
        Self {
            workload,
            url,
            run,
            settings,
            description,
            operation,
            stats,
            usage,
            figures: Vec::new(),
            faults: Vec::new(),
            is_interrupted,
        }
    }

    #[must_use]
    pub(crate) fn with(mut self, figures: impl IntoIterator<Item = Figure>) -> Self {
        self.figures.extend(figures);
        self
    }

    #[must_use]
    pub(crate) fn with_faults(mut self, faults: impl IntoIterator<Item = String>) -> Self {
        self.faults.extend(faults);
        self
    }

    fn seconds(&self) -> f64 {
        self.usage.elapsed.as_secs_f64()
    }

    fn rate(&self) -> f64 {
        self.stats.count() as f64 / self.seconds().max(1e-6)
    }

    /// CPU time of the server for each operation, in µs.
    fn cpu_micros_each(&self) -> Option<f64> {
        self.usage
            .cpu_micros
            .filter(|_| self.stats.count() > 0)
            .map(|micros| micros / self.stats.count() as f64)
    }

    fn cores(&self) -> Option<f64> {
        self.usage
            .cpu_micros
            .map(|micros| micros / 1e6 / self.seconds().max(1e-6))
    }

    fn resident_mib(&self) -> Option<f64> {
        self.usage
            .resident_bytes
            .map(|bytes| bytes as f64 / f64::from(1 << 20))
    }

    /// One JSON object. A figure that was not measured has no key.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        let failures: Map<_, _> = self
            .stats
            .failures
            .iter()
            .map(|(code, (count, _))| (code.clone(), json!(count)))
            .collect();
        let always = [
            ("workload", json!(self.workload)),
            ("url", json!(self.url)),
            ("run", json!(self.run)),
            ("settings", self.settings.clone()),
            ("seconds", rounded(self.seconds())),
            ("of", json!(self.operation.plural)),
            ("operations", json!(self.stats.count())),
            ("perSecond", rounded(self.rate())),
            ("failed", json!(self.stats.failed())),
            ("failures", Value::Object(failures)),
            ("faults", json!(self.faults)),
            ("interrupted", json!(self.is_interrupted)),
        ];
        object.extend(always.map(|(name, value)| (name.to_owned(), value)));
        let mut add = |name: &str, value: f64| drop(object.insert(name.to_owned(), rounded(value)));
        if let Some(percentiles) = self.stats.percentiles() {
            for (name, value) in [
                ("p50Ms", percentiles.p50),
                ("p90Ms", percentiles.p90),
                ("p99Ms", percentiles.p99),
                ("p999Ms", percentiles.p999),
                ("maxMs", percentiles.max),
            ] {
                add(name, value);
            }
        }
        let server = [
            ("cpuMicrosEach", self.cpu_micros_each()),
            ("cpuCores", self.cores()),
            ("residentMib", self.resident_mib()),
        ];
        for (name, value) in server {
            value.into_iter().for_each(|value| add(name, value));
        }
        self.figures
            .iter()
            .for_each(|figure| add(figure.name, figure.value));
        Value::Object(object)
    }

    pub fn text(&self) -> String {
        let OperationName {
            singular,
            plural,
            timed,
        } = self.operation;
        let mut text = format!("{}: {}\n", self.workload, self.description);
        let mut line = |name: &str, value: &str| {
            writeln!(text, "  {name:<10}  {value}").expect("writing to a string does not fail")
        };
        let (count, rate, seconds) = (
            grouped(self.stats.count()),
            grouped(self.rate().round() as u64),
            self.seconds(),
        );
        line(
            plural,
            &format!("{count} in {seconds:.1} s, {rate} a second"),
        );
        if let Some(percentiles) = self.stats.percentiles() {
            let [p50, p90, p99, p999, max] = [
                percentiles.p50,
                percentiles.p90,
                percentiles.p99,
                percentiles.p999,
                percentiles.max,
            ]
            .map(|value| format!("{value:.1}"));
            line(
                "ms",
                &format!("p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max}: {timed}"),
            );
        }
        if let (Some(cores), Some(resident)) = (self.cores(), self.resident_mib()) {
            let cost = self
                .cpu_micros_each()
                .map(|micros| format!("{micros:.1} µs of CPU for each {singular}, "))
                .unwrap_or_default();
            line(
                "server",
                &format!("{cost}{cores:.2} cores busy, {resident:.1} MiB resident"),
            );
        }
        self.figures
            .iter()
            .for_each(|figure| line("", &figure.text));
        self.faults.iter().for_each(|fault| line("WRONG", fault));
        if self.stats.failures.is_empty() {
            line("failed", "none");
        }
        for (code, (count, sentence)) in &self.stats.failures {
            line("failed", &format!("{} {code}: {sentence}", grouped(*count)));
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// An error if an operation failed, the server broke a guarantee, or the run was interrupted.
    pub fn verdict(&self) -> Result<(), Error> {
        let failed = self.stats.failed();
        let codes: Vec<_> = self.stats.failures.keys().map(String::as_str).collect();
        let advice = codes
            .iter()
            .find_map(|code| advice(code))
            .map(|advice| format!("; {advice}"))
            .unwrap_or_default();
        match self.faults.first() {
            Some(fault) => Err(Error::Incorrect(format!("{fault}{advice}"))),
            None if failed > 0 => Err(Error::Failed {
                failed,
                all: failed + self.stats.count(),
                codes: codes.join(", "),
                advice,
            }),
            None if self.is_interrupted => Err(Error::Partial),
            None => Ok(()),
        }
    }
}

/// Rounded to three decimals.
fn rounded(value: f64) -> Value {
    json!((value * 1e3).round() / 1e3)
}

/// Digits with commas between the thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
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
    fn commas_separate_thousands() {
        let shown = [0, 7, 999, 1_000, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "7", "999", "1,000", "1,234,567"]);
    }
}
