//! Logs: one subscriber for the process, to stderr, as text or as JSON lines.
//!
//! No message body, no token and no address of a person is ever logged.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the log filter cannot be read: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("the log is set up already")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Whether the filter can be read.
pub fn check(filter: &str) -> Result<(), Error> {
    EnvFilter::builder().parse(filter)?;
    Ok(())
}

/// Once per process. `filter` as `info` or `info,wideroom::store=debug`.
pub fn init(filter: &str, format: LogFormat) -> Result<(), Error> {
    // The driver tells of every node that comes and goes, and of each failed attempt: of that we say ourselves what matters.
    let quiet = if filter.contains("scylla") { "" } else { ",scylla=off" };
    let filter = EnvFilter::builder().parse(format!("{filter}{quiet}"))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).finish().try_init()?,
        LogFormat::Json => log.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}
