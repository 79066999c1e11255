//! `wideroom health`: asks the server of a data folder whether it is alive.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hyper::{Method, StatusCode};
use tokio::time::timeout;

use super::admin_client::{reason, request, written_address};
use super::error::Error;
use super::print;
use super::settings::{DATA, SettingFlags};
use super::signals;
use crate::config::Config;
use crate::server::admin::READY_MAX;

/// Deadline of the answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
const _: () = assert!(ANSWER_MAX.as_secs() > READY_MAX.as_secs());

/// Reason why a server is not alive.
#[derive(Debug, thiserror::Error)]
pub(super) enum HealthError {
    #[error(
        "no server runs on {}, or its admin listener is off (--admin-listen)",
        .0.display()
    )]
    NoServer(PathBuf),
    #[error("{} cannot be read: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("the server at {address} does not answer: {reason}")]
    NoAnswer { address: SocketAddr, reason: String },
    #[error("the server at {address} is not alive: {reason}")]
    NotAlive { address: SocketAddr, reason: String },
}

#[derive(clap::Args)]
pub(super) struct HealthFlags {
    #[command(flatten)]
    given: SettingFlags<DATA>,
}

pub(super) fn run(flags: &HealthFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    signals::run(async move |_| Ok(ask(&config).await?))?;
    print("alive")
}

async fn ask(config: &Config) -> Result<(), HealthError> {
    let path = &config.data;
    let address = written_address(path).map_err(|source| HealthError::Folder {
        path: path.clone(),
        source,
    })?;
    let address = address.ok_or_else(|| HealthError::NoServer(path.clone()))?;
    let no_answer = |reason| HealthError::NoAnswer { address, reason };
    let response = timeout(ANSWER_MAX, request(address, None, Method::GET, "/healthz"))
        .await
        .map_err(|_| no_answer(format!("waited {} s", ANSWER_MAX.as_secs())))?
        .map_err(no_answer)?;
    if response.status() == StatusCode::OK {
        return Ok(());
    }
    Err(HealthError::NotAlive {
        address,
        reason: reason(response).await,
    })
}
