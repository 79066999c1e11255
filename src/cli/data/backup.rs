//! `wideroom backup DIR`: copies the store of a running server into a folder that another server can be started on.
//!
//! With `--keep` DIR holds dated copies, of which the newest stay.
//!
//! The server only reads. If this process fails, the server keeps running, and every server refuses the incomplete folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use hyper::{Method, StatusCode};
use tokio::time::timeout;

use super::dated_backups;
use crate::auth::{Auth, KEY_FILE, KeyFileError};
use crate::cli::admin_client::{AdminFlags, operator_token, reason, request};
use crate::cli::error::Error;
use crate::cli::print;
use crate::cli::progress::Reporter;
use crate::cli::signals::{self, Stop};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::store::embedded::{Copy, CopyError};

/// Deadline for the server's response, and for each chunk after it.
const WAIT_MAX: Duration = Duration::from_secs(60);
const BAR: &str = "{bar:40} {pos} of about {len} rows, {msg} rows/s, {eta} to go";

/// Reason for a failed backup.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum BackupError {
    #[error(
        "a backup needs the running server's --admin-listen, which is off; without a server, copy the data folder"
    )]
    Off,
    #[error(
        "no server answers at {address}: {reason}; name its address with --admin-listen; without a server, copy the data folder"
    )]
    NoServer { address: SocketAddr, reason: String },
    #[error("the server at {address} refuses the backup: {reason}")]
    Refused { address: SocketAddr, reason: String },
    #[error("the server ended the backup before its end: {0}; run the backup again")]
    BrokeOff(String),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error("the backup is whole, and the program cannot delete older backups: {0}")]
    Retention(#[source] io::Error),
    #[error("the key of the data folder cannot be copied: {0}")]
    Key(#[source] io::Error),
    #[error(transparent)]
    NewKey(KeyFileError),
}

#[derive(clap::Args)]
pub(in crate::cli) struct BackupFlags {
    /// Folder of the copy; with --keep, of the dated copies
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Copy into a dated folder in DIR, and afterwards delete the oldest dated copies but so many
    #[arg(long, env = "WIDEROOM_KEEP", hide_env_values = true, value_name = "COPIES", value_parser = clap::value_parser!(u16).range(1..))]
    keep: Option<u16>,
    /// Create a new key for the copy: tokens of the original do not open the copy, nor tokens of the copy the original
    #[arg(long, env = "WIDEROOM_NEW_KEY", hide_env_values = true)]
    new_key: bool,
    #[command(flatten)]
    admin: AdminFlags,
}

pub(in crate::cli) fn run(flags: &BackupFlags) -> Result<(), Error> {
    let config = flags.admin.config()?;
    let (dir, new_key) = (flags.dir.clone(), flags.new_key);
    let Some(keep) = flags.keep else {
        return signals::run(async move |stop| backup(&config, &dir, new_key, stop).await);
    };
    let now = SystemClock.now();
    let copy = dated_backups::dated(&dir, now);
    let folder = copy.clone();
    let copied = signals::run(async move |stop| backup(&config, &folder, new_key, stop).await);
    copied.inspect_err(|_| {
        // It is empty, unless the command has said what is left in it.
        let _ = fs::remove_dir(&copy);
    })?;
    let removed = dated_backups::mark(&copy)
        .and_then(|()| dated_backups::retain(&flags.dir, keep.into(), now));
    match removed.map_err(BackupError::Retention)? {
        0 => Ok(()),
        removed => print(&format!("{removed} older copies deleted, {keep} stay")),
    }
}

async fn backup(config: &Config, dir: &Path, new_key: bool, stop: Stop) -> Result<(), Error> {
    let address = config.admin_listen.ok_or(BackupError::Off)?;
    let token = operator_token(&config.data)?;
    let started = Instant::now();
    // Created before the request, so that a wrong folder costs the server nothing.
    let mut copy = tokio::task::block_in_place(|| Copy::begin(dir)).map_err(BackupError::Copy)?;
    let copied = tokio::select! {
        copied = fetch(address, &token, &mut copy) => copied,
        () = stop.cancelled() => Err(BackupError::Interrupted),
    };
    let copied = copied.and_then(|()| {
        if new_key {
            create_key(dir)
        } else {
            copy_key(&config.data, dir).map_err(BackupError::Key)
        }
    });
    if let Err(error) = copied {
        // The key may not exist yet.
        let _ = fs::remove_file(dir.join(KEY_FILE));
        if let Err(left) = tokio::task::block_in_place(|| copy.abandon()) {
            let _ = writeln!(
                io::stderr(),
                "wideroom: {} holds an unfinished backup: {left}",
                dir.display()
            );
        }
        return Err(error.into());
    }
    let rows = tokio::task::block_in_place(|| copy.finish()).map_err(BackupError::Copy)?;
    print(&format!(
        "{rows} rows in {:.1} s; to serve them: wideroom serve --data {}",
        started.elapsed().as_secs_f64(),
        dir.display()
    ))
}

async fn fetch(address: SocketAddr, token: &str, copy: &mut Copy) -> Result<(), BackupError> {
    let no_server = |reason: String| BackupError::NoServer { address, reason };
    let response = timeout(
        WAIT_MAX,
        request(address, Some(token), Method::POST, "/backup"),
    )
    .await
    .map_err(|_| no_server("the server does not answer".to_owned()))?;
    let response = response.map_err(no_server)?;
    if response.status() != StatusCode::OK {
        return Err(BackupError::Refused {
            address,
            reason: reason(response).await,
        });
    }
    let mut body = response.into_body();
    let mut reporter = None;
    loop {
        let frame = timeout(WAIT_MAX, body.frame())
            .await
            .map_err(|_| BackupError::BrokeOff("the server sends nothing more".to_owned()))?;
        let Some(frame) = frame else { break };
        if let Ok(chunk) = frame
            .map_err(|error| BackupError::BrokeOff(error.to_string()))?
            .into_data()
        {
            tokio::task::block_in_place(|| copy.take(&chunk))?;
            let (rows, about) = copy.progress();
            let reporter = reporter.get_or_insert_with(|| Reporter::new(Some(about), BAR));
            let rate = reporter.rate(rows);
            reporter.progress(
                rows,
                &rate,
                &format!("{rows} of about {about} rows, {rate} rows/s"),
            );
        }
    }
    if let Some(reporter) = reporter {
        reporter.end();
    }
    Ok(())
}

/// Copies the key, so that tokens of the original open the copy too. The copy is private to its owner (0600).
fn copy_key(data: &Path, dir: &Path) -> io::Result<()> {
    let mut copy = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(dir.join(KEY_FILE))?;
    io::copy(&mut File::open(data.join(KEY_FILE))?, &mut copy)?;
    copy.sync_all()
}

/// Creates a new key: tokens of the original do not open the copy, nor tokens of the copy the original.
fn create_key(dir: &Path) -> Result<(), BackupError> {
    Auth::open(dir).map(drop).map_err(BackupError::NewKey)
}
