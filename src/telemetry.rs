//! Logging of this process to stderr, as text or as JSON lines.
//!
//! The server never logs message bodies, tokens or addresses of users.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the log filter is invalid: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    #[error("the log is already initialised")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Fails if the filter is invalid.
pub fn check(filter: &str) -> Result<(), Error> {
    EnvFilter::builder().parse(filter)?;
    Ok(())
}

/// Initialises logging, once per process. Examples of `filter`: `info`, `info,wideroom::store=debug`.
pub fn init(filter: &str, format: LogFormat) -> Result<(), Error> {
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
            .try_init()?,
        LogFormat::Json => log.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}
