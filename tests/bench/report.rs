//! How figures are printed.

use wideroom::load::OperationStats;

use crate::measure::Spread;

/// Ratios and what was aimed at, to be read at the end.
#[derive(Default)]
pub struct Verdicts(Vec<String>);

impl Verdicts {
    pub fn at_most(&mut self, what: &str, ratio: f64, aim: f64) {
        self.push(what, ratio, format!("at most {aim}"), ratio <= aim);
    }

    pub fn at_least(&mut self, what: &str, ratio: f64, aim: f64) {
        self.push(what, ratio, format!("at least {aim}"), ratio >= aim);
    }

    /// `is_good` changes a word and nothing else.
    fn push(&mut self, what: &str, ratio: f64, aim: String, is_good: bool) {
        let word = if is_good { "met" } else { "MISSED" };
        self.0
            .push(format!("ratio {ratio:>5.2}  (aim {aim}: {word})  {what}"));
    }

    pub fn print(&self) {
        if self.0.is_empty() {
            return;
        }
        println!("\nWhat was aimed at");
        self.0.iter().for_each(|line| println!("  {line}"));
    }
}

/// A number with its thousands apart: small ones with a digit behind the point.
pub fn number(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The median, and from where to where it went.
pub fn spread(spread: &Spread) -> String {
    format!(
        "{:>8} {:>17}",
        number(spread.median()),
        format!("{}…{}", number(spread.min()), number(spread.max()))
    )
}

/// The times that half and 99 of 100 operations did not exceed, in milliseconds.
pub fn p50_p99(latencies: &OperationStats) -> [f64; 2] {
    let percentiles = latencies.percentiles().expect("something was measured");
    [percentiles.p50, percentiles.p99]
}

pub fn heading(text: &str) {
    println!("\n{text}");
}
