//! `wideroom verify`: compares derived data with messages and participants, and repairs it with `--repair`.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::reindex::each_index;
use crate::chat::IndexUpkeep;
use crate::cli::error::Error;
use crate::cli::progress::Reporter;
use crate::cli::settings::{STORE, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::cli::{print, storage};
use crate::clock::Clock;
use crate::config::Config;
use crate::store::{DAMAGED_MESSAGE, Finding, StoreAdmin};

/// Finding of a conversation whose search index lacks messages.
const INCOMPLETE_INDEX: &str = "a conversation whose search index lacks messages";

#[derive(clap::Args)]
pub(in crate::cli) struct VerifyFlags {
    /// Rebuild derived data that disagrees
    #[arg(long, env = "WIDEROOM_REPAIR", hide_env_values = true)]
    repair: bool,
    #[command(flatten)]
    given: SettingFlags<STORE>,
}

pub(in crate::cli) fn run(flags: &VerifyFlags) -> Result<(), Error> {
    let config = storage::existing(&flags.given)?;
    let repair = flags.repair;
    signals::run(move |stop| verify(config, repair, stop))
}

async fn verify(config: Config, repair: bool, stop: Stop) -> Result<(), Error> {
    let mut report = VerifyReport::default();
    let work = async |store: &Arc<dyn StoreAdmin>, clock| {
        Ok(check(&**store, repair, &stop, &mut report).await?
            && check_index(store, clock, repair, &stop, &mut report).await?)
    };
    let is_complete = storage::with_store(&config, work).await?;
    for (what, kind) in &report.kinds {
        print(&kind.line(what))?;
    }
    match report.left() {
        _ if !is_complete => Err(Error::Interrupted("part of the store was not checked")),
        0 => print(&format!("sound: {} rows checked", report.checked)),
        left if repair => Err(Error::NotRepaired(left)),
        left => Err(Error::NotSound(left)),
    }
}

/// Checks the store range by range. Returns whether it reached the end.
async fn check(
    store: &dyn StoreAdmin,
    repair: bool,
    stop: &Stop,
    report: &mut VerifyReport,
) -> Result<bool, Error> {
    let mut reporter = Reporter::new(None, "{spinner} {pos} rows, {msg}");
    let mut position = None;
    let is_complete = loop {
        if stop.is_cancelled() {
            break false;
        }
        let verified = store.verify(position.as_ref(), repair).await?;
        report.checked += verified.looked_at;
        for finding in &verified.findings {
            if finding.what == DAMAGED_MESSAGE {
                reporter.line(&format!("wideroom: damaged: message {}", finding.example));
            }
            report.add(finding);
        }
        let rate = reporter.rate(report.checked);
        let beside = format!("{rate} rows/s, {} findings", report.findings());
        reporter.progress(
            report.checked,
            &beside,
            &format!("{} rows checked, {beside}", report.checked),
        );
        position = verified.next;
        if position.is_none() {
            break true;
        }
    };
    reporter.end();
    Ok(is_complete)
}

/// Compares the search index with history, conversation by conversation. Returns whether it reached the end.
async fn check_index(
    store: &Arc<dyn StoreAdmin>,
    clock: Arc<dyn Clock>,
    repair: bool,
    stop: &Stop,
    report: &mut VerifyReport,
) -> Result<bool, Error> {
    let mut reporter = Reporter::new(None, "{spinner} {pos} conversations of the search index");
    let mut checked = 0;
    let check = async |upkeep: &IndexUpkeep, id| {
        if upkeep.missing(id).await? > 0 {
            if repair {
                upkeep.rebuild(id).await?;
            }
            report.add(&Finding {
                what: INCOMPLETE_INDEX,
                example: id.to_string(),
                is_repaired: repair,
            });
        }
        checked += 1;
        let line = format!("the search index of {checked} conversations checked");
        reporter.progress(checked, "", &line);
        Ok(())
    };
    let is_complete = each_index(store, clock, stop, check).await;
    reporter.end();
    is_complete
}

/// Findings by kind.
#[derive(Default)]
struct VerifyReport {
    kinds: BTreeMap<&'static str, FindingCount>,
    checked: u64,
}

struct FindingCount {
    found: u64,
    repaired: u64,
    example: String,
}

impl FindingCount {
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

impl VerifyReport {
    fn add(&mut self, finding: &Finding) {
        let kind = self
            .kinds
            .entry(finding.what)
            .or_insert_with(|| FindingCount {
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
