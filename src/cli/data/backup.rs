//! `wideroom backup DIR`: copies the store of a running server into a folder that another server can be started on.
//!
//! The server only reads. If this process fails, the server keeps running, and every server refuses the incomplete folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::auth::{Auth, BACKUP_AUDIENCE, KEY_FILE, KeyFileError, TokenRules};
use crate::cli::error::Error;
use crate::cli::print;
use crate::cli::progress::Reporter;
use crate::cli::settings::{DATA, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::clock::{Clock as _, SystemClock};
use crate::config::{self, ADMIN_LISTEN, Config, SettingSource};
use crate::model::UserId;
use crate::store::embedded::{Copy, CopyError};

/// Deadline for the server's response, and for each chunk after it.
const WAIT_MAX: Duration = Duration::from_secs(60);
const TOKEN_LIFE: Duration = Duration::from_secs(60);
const REASON_BYTES_MAX: usize = 4 * 1024;
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
    #[error("{0} holds no key of a server: name its data folder with --data")]
    NoKey(String),
    #[error("the server broke off: {0}")]
    BrokeOff(String),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error("the key of the data folder cannot be copied: {0}")]
    Key(#[source] io::Error),
    #[error(transparent)]
    NewKey(KeyFileError),
}

#[derive(clap::Args)]
pub(in crate::cli) struct BackupFlags {
    /// Folder of the copy
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Create a new key for the copy: tokens of the original do not open the copy, nor tokens of the copy the original
    #[arg(long, env = "WIDEROOM_NEW_KEY", hide_env_values = true)]
    new_key: bool,
    /// Admin address of the server, for metrics, health and backups [default: 127.0.0.1:9090]
    #[arg(
        long,
        env = "WIDEROOM_ADMIN_LISTEN",
        hide_env_values = true,
        value_name = "ADDRESS"
    )]
    admin_listen: Option<String>,
    #[command(flatten)]
    given: SettingFlags<DATA>,
}

pub(in crate::cli) fn run(flags: &BackupFlags) -> Result<(), Error> {
    let mut config = flags.given.config()?;
    config.admin_listen = admin_address(&config, flags.admin_listen.as_deref())?;
    let (dir, new_key) = (flags.dir.clone(), flags.new_key);
    signals::run(async move |stop| Ok(backup(&config, &dir, new_key, stop).await?))
}

/// Address of the admin listener: that of the flag, else that of the configuration. An empty variable counts as unset.
pub(super) fn admin_address(
    config: &Config,
    given: Option<&str>,
) -> Result<Option<SocketAddr>, Error> {
    let mut config = config.clone();
    if let Some(text) = given.filter(|text| !text.is_empty()) {
        let setting = config::settings()
            .find(|setting| setting.name == ADMIN_LISTEN)
            .expect("it is one of the settings");
        config.set(setting, text, &SettingSource::Flag)?;
    }
    Ok(config.admin_listen.map(reachable))
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

/// Maps the unspecified address of a listener to the loopback address.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Signs a token with the key in the server's data folder. A folder without a key is an error, because a new key would be useless.
pub(super) fn operator_token(data: &Path) -> Result<String, Error> {
    if !data.join(KEY_FILE).exists() {
        return Err(BackupError::NoKey(data.display().to_string()).into());
    }
    let rules = TokenRules {
        audience: Some(BACKUP_AUDIENCE.to_owned()),
        ..TokenRules::default()
    };
    let operator = UserId::parse("operator").expect("it is a name");
    Ok(Auth::open(data)?
        .with_rules(rules)?
        .issue(&operator, TOKEN_LIFE, SystemClock.now()))
}

async fn fetch(address: SocketAddr, token: &str, copy: &mut Copy) -> Result<(), BackupError> {
    let no_server = |reason: String| BackupError::NoServer { address, reason };
    let response = timeout(WAIT_MAX, request(address, token, Method::POST, "/backup"))
        .await
        .map_err(|_| no_server("it does not answer".to_owned()))?;
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
            .map_err(|_| BackupError::BrokeOff("it sends nothing more".to_owned()))?;
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

pub(super) async fn request(
    address: SocketAddr,
    token: &str,
    method: Method,
    path: &str,
) -> Result<Response<Incoming>, String> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| error.to_string())?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, Empty<Bytes>>(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
    tokio::spawn(connection);
    let builder = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, address.to_string())
        .header(header::AUTHORIZATION, format!("Bearer {token}"));
    let request = builder
        .body(Empty::new())
        .expect("the request is well-formed");
    sender
        .send_request(request)
        .await
        .map_err(|error| error.to_string())
}

pub(super) async fn reason(response: Response<Incoming>) -> String {
    let status = response.status();
    let body = timeout(
        WAIT_MAX,
        Limited::new(response.into_body(), REASON_BYTES_MAX).collect(),
    )
    .await;
    let text = body
        .ok()
        .and_then(Result::ok)
        .and_then(|body| String::from_utf8(body.to_bytes().into()).ok());
    // Leaves out the page of some other server.
    let line = text
        .as_deref()
        .map(str::trim)
        .filter(|text| !text.is_empty() && text.lines().count() == 1);
    line.map_or_else(|| format!("it answers {status}"), str::to_owned)
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
