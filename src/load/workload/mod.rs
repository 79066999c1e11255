//! Workloads: one file for each subcommand of `wideroom bench`.

mod fanout;
mod idle;
mod inbox;
mod live;
mod mark_read;
mod page;
mod send;
mod storm;

use std::future::Future;
use std::time::Duration;

use serde::Serializer;

pub use self::fanout::FanoutLoad;
pub use self::idle::IdleLoad;
pub use self::inbox::InboxLoad;
pub use self::live::LiveLoad;
pub use self::mark_read::MarkReadLoad;
pub use self::page::PageLoad;
pub use self::send::SendLoad;
pub use self::storm::StormLoad;
use super::failure::Error;
use super::report::LoadReport;
use super::run::LoadRun;
use crate::config;

/// A kind of load with its settings, which are serialised into the report.
pub trait Workload: serde::Serialize {
    fn run(&self, run: &mut LoadRun<'_>) -> impl Future<Output = Result<LoadReport, Error>>;
}

fn parse_load_duration(text: &str) -> Result<Duration, String> {
    let duration = config::parse_duration(text)?;
    let is_allowed =
        (Duration::from_millis(100)..=Duration::from_secs(24 * 3_600)).contains(&duration);
    if is_allowed {
        Ok(duration)
    } else {
        Err("must be from 100ms to 24h".to_owned())
    }
}

fn as_seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
