//! `wideroom verify`: says what in the store does not agree with history, and repairs it where asked to.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::progress::Reporter;
use super::stop::{self, Stop};
use super::{Error, VerifyFlags, open, print};
use crate::clock::SystemClock;
use crate::config::Config;
use crate::store::{DAMAGED_MESSAGE, Finding, Store};
use crate::telemetry;

pub(super) fn run(flags: &VerifyFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    telemetry::init("warn", config.log_format)?;
    open::existing(&config)?;
    let repair = flags.repair;
    stop::run(move |stop| verify(config, repair, stop))
}

async fn verify(config: Config, repair: bool, stop: Stop) -> Result<(), Error> {
    let store = open::store(&config, Arc::new(SystemClock)).await?;
    let mut report = Report::default();
    let looked = look(&*store, repair, &stop, &mut report).await;
    let closed = store.close().await;
    let is_whole = looked?;
    closed?;
    for (what, kind) in &report.kinds {
        print(&kind.line(what))?;
    }
    match report.left() {
        _ if !is_whole => Err(Error::Interrupted("not all was looked at")),
        0 => print(&format!("sound: {} rows looked at", report.looked_at)),
        left if repair => Err(Error::NotRepaired(left)),
        left => Err(Error::NotSound(left)),
    }
}

/// Piece by piece. Whether it came to the end.
async fn look(
    store: &dyn Store,
    repair: bool,
    stop: &Stop,
    report: &mut Report,
) -> Result<bool, Error> {
    let mut reporter = Reporter::new(None, "{spinner} {pos} rows, {msg}");
    let mut place = None;
    let is_whole = loop {
        if stop.is_cancelled() {
            break false;
        }
        let verified = store.verify(place.as_ref(), repair).await?;
        report.looked_at += verified.looked_at;
        for finding in &verified.findings {
            if finding.what == DAMAGED_MESSAGE {
                reporter.line(&format!("wideroom: damaged: message {}", finding.example));
            }
            report.add(finding);
        }
        let rate = reporter.rate(report.looked_at);
        let beside = format!("{rate} rows/s, {} findings", report.findings());
        reporter.progress(
            report.looked_at,
            &beside,
            &format!("{} rows looked at, {beside}", report.looked_at),
        );
        place = verified.next;
        if place.is_none() {
            break true;
        }
    };
    reporter.end();
    Ok(is_whole)
}

/// Findings by kind.
#[derive(Default)]
struct Report {
    kinds: BTreeMap<&'static str, Kind>,
    looked_at: u64,
}

struct Kind {
    found: u64,
    repaired: u64,
    example: String,
}

impl Kind {
    fn line(&self, what: &str) -> String {
        let Self {
            found,
            repaired,
            example,
        } = self;
        let repaired = match *repaired {
            0 => String::new(),
            repaired if repaired == *found => ", repaired".to_owned(),
            repaired => format!(", {repaired} of them repaired"),
        };
        format!("{found} × {what} (as {example}){repaired}")
    }
}

impl Report {
    fn add(&mut self, finding: &Finding) {
        let kind = self.kinds.entry(finding.what).or_insert_with(|| Kind {
            found: 0,
            repaired: 0,
            example: finding.example.clone(),
        });
        kind.found += 1;
        kind.repaired += u64::from(finding.is_repaired);
    }

    fn findings(&self) -> u64 {
        self.kinds.values().map(|kind| kind.found).sum()
    }

    /// Number of findings that are not repaired.
    fn left(&self) -> u64 {
        self.kinds
            .values()
            .map(|kind| kind.found - kind.repaired)
            .sum()
    }
}
