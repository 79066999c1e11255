//! Logging of this process to stderr, as text or as JSON lines.
//!
//! The server never logs message bodies, tokens or addresses of users.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;

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

/// Initialises logging, once per process. Examples of `filter`: `info`, `info,wideroom::store=debug`.
pub fn init(filter: &str, format: LogFormat) -> Result<(), Error> {
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
            .try_init()?,
        LogFormat::Json => log.json().flatten_event(true).finish().try_init()?,
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
