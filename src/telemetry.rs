//! Logging of this process to stderr, as text or as JSON lines.
//!
//! The server never logs message bodies, tokens or addresses of users. Its warnings and errors have a quota by their place in the
//! code: a fault that repeats for each request does not fill the disk.

use std::sync::LazyLock;

use tokio::time::{MissedTickBehavior, interval};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::LogFormat;
use crate::log_quota::{self, LogQuota};

/// Warnings and errors of one place in the code in a minute.
const LINES_MAX: u32 = 60;

/// Lines by their module and their line in its file.
static QUOTA: LazyLock<LogQuota<(&str, u32)>> = LazyLock::new(LogQuota::default);

/// Leaves out warnings and errors beyond their quota.
struct QuotaLayer;

impl<S: Subscriber> Layer<S> for QuotaLayer {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let of = event.metadata();
        let place = (of.target(), of.line().unwrap_or_default());
        *of.level() > Level::WARN || QUOTA.admits(&place, LINES_MAX)
    }
}

/// Renews the quota of the server's warnings and errors, and logs how many were left out. Runs until it is dropped.
pub async fn renew_quota() {
    let mut periods = interval(log_quota::PERIOD);
    periods.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        periods.tick().await;
        log_left_out();
    }
}

/// Logs how many warnings and errors were left out since the last renewal.
pub fn log_left_out() {
    for ((module, line), lines) in QUOTA.renew() {
        tracing::warn!(
            lines,
            place = format!("{module}:{line}"),
            "the log left out further lines of this place"
        );
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the log filter is invalid: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error(
        "the log filter is invalid: `{0}` is no level; write error, warn, info, debug, trace or off"
    )]
    Level(String),
    #[error("the log is already initialised")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Fails if the filter is invalid. A misspelt level would be the name of a module, and mute all others.
pub fn check(filter: &str) -> Result<(), Error> {
    let is_level = |part: &str| part.is_empty() || part.parse::<LevelFilter>().is_ok();
    let is_module =
        |part: &str| part.starts_with("wideroom") || part.contains(['=', ':', '[', '{']);
    let mut parts = filter.split(',').map(str::trim);
    if let Some(wrong) = parts.find(|part| !is_level(part) && !is_module(part))
        && !filter.contains('[')
    {
        return Err(Error::Level(wrong.to_owned()));
    }
    EnvFilter::builder().parse(filter)?;
    Ok(())
}

/// Initialises the log of a command, once per process. Examples of `filter`: `info`, `info,wideroom::store=debug`.
pub fn init(filter: &str, format: LogFormat) -> Result<(), Error> {
    start(filter, format, None)
}

/// The same for a server, whose repeated warnings and errors have a quota: see [`renew_quota`].
pub fn init_server(filter: &str, format: LogFormat) -> Result<(), Error> {
    start(filter, format, Some(QuotaLayer))
}

fn start(filter: &str, format: LogFormat, quota: Option<QuotaLayer>) -> Result<(), Error> {
    check(filter)?;
    // The Scylla driver logs every node that comes or goes and every failed attempt. The store logs the relevant failures itself.
    let quiet = if filter.contains("scylla") {
        ""
    } else {
        ",scylla=off"
    };
    let filter = EnvFilter::builder().parse(format!("{filter}{quiet}"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .finish()
            .with(quota)
            .try_init()?,
        LogFormat::Json => log
            .json()
            .flatten_event(true)
            .finish()
            .with(quota)
            .try_init()?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_level_is_refused() {
        for filter in [
            "info",
            "WARN",
            "off",
            "info,wideroom::store=debug",
            "wideroom=debug",
            "hyper::proto",
            "",
        ] {
            assert!(check(filter).is_ok(), "{filter}");
        }
        for filter in ["warning", "info,verbose", "inf"] {
            assert!(matches!(check(filter), Err(Error::Level(_))), "{filter}");
        }
        assert!(check("info,wideroom::store=warning").is_err());
    }
}
