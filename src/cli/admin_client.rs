//! Client of the admin listener of a running server, for the commands that ask it.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::error::Error;
use super::settings::{DATA, SettingFlags};
use crate::auth::{Auth, BACKUP_AUDIENCE, KEY_FILE, TokenRules};
use crate::clock::{Clock as _, SystemClock};
use crate::config::{self, ADMIN_LISTEN, Config, SettingSource};
use crate::model::UserId;

/// File of the data folder that holds the address of the admin listener of the running server.
const ADDRESS_FILE: &str = "admin-address";
/// Deadline for the body of a refusal.
const ANSWER_MAX: Duration = Duration::from_secs(60);
const TOKEN_LIFE: Duration = Duration::from_secs(60);
const REASON_BYTES_MAX: usize = 4 * 1024;

/// Writes the address of the admin listener where `wideroom health` finds it. Without a listener, removes that of an
/// earlier server.
pub(super) fn write_address(data: &Path, address: Option<SocketAddr>) -> io::Result<()> {
    let path = data.join(ADDRESS_FILE);
    match address {
        Some(address) => fs::write(path, format!("{address}\n")),
        None => match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        },
    }
}

/// Address that the server of a data folder wrote. `None` without a server, or if its admin listener is off.
pub(super) fn written_address(data: &Path) -> io::Result<Option<SocketAddr>> {
    match fs::read_to_string(data.join(ADDRESS_FILE)) {
        Ok(text) => Ok(text.trim().parse().ok().map(reachable)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Flags of a command that asks the admin listener.
#[derive(clap::Args)]
pub(super) struct AdminFlags {
    /// Admin address of the server [default: 127.0.0.1:9090]
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

impl AdminFlags {
    /// The configuration, with the address of the flag where one is given. An empty variable counts as unset.
    pub(super) fn config(&self) -> Result<Config, Error> {
        let mut config = self.given.config()?;
        if let Some(text) = self.admin_listen.as_deref().filter(|text| !text.is_empty()) {
            let setting = config::settings()
                .find(|setting| setting.name == ADMIN_LISTEN)
                .expect("it is one of the settings");
            config.set(setting, text, &SettingSource::Flag)?;
        }
        config.admin_listen = config.admin_listen.map(reachable);
        Ok(config)
    }
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
        return Err(Error::NoServerKey(data.to_owned()));
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

/// Sends a request to an admin listener.
pub(super) async fn request(
    address: SocketAddr,
    token: Option<&str>,
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
        .header(header::HOST, address.to_string());
    let builder = match token {
        Some(token) => builder.header(header::AUTHORIZATION, format!("Bearer {token}")),
        None => builder,
    };
    let request = builder
        .body(Empty::new())
        .expect("the request is well-formed");
    sender
        .send_request(request)
        .await
        .map_err(|error| error.to_string())
}

/// One line that says why the server refuses.
pub(super) async fn reason(response: Response<Incoming>) -> String {
    let status = response.status();
    let body = timeout(
        ANSWER_MAX,
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
    line.map_or_else(|| format!("the server answers {status}"), str::to_owned)
}
