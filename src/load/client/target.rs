//! The server under load: its address, and bearer tokens for the users of a run.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use crate::auth::Auth;
use crate::clock::{Clock as _, SystemClock};
use crate::load::failure::{Error, Failure};
use crate::model::{ServiceRights, UserId};

/// Longer than any run lasts.
const TOKEN_LIFE: Duration = Duration::from_secs(2 * 24 * 3_600);
/// Deadline of a connection attempt and of each answer. Longer than the deadlines of the server.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(20);

pub struct LoadTarget {
    url: String,
    host: String,
    addresses: Vec<SocketAddr>,
    auth: Auth,
}

impl LoadTarget {
    /// Resolves the host of the URL, which blocks. `auth` signs tokens that the server accepts.
    pub fn new(url: &str, auth: Auth) -> Result<Self, Error> {
        let wrong = || Error::Url("must be http://HOST:PORT".to_owned());
        let parsed = Url::parse(url).map_err(|_| wrong())?;
        if parsed.scheme() == "https" {
            return Err(Error::Url(
                "wideroom bench does not support TLS: give the address of the server itself, not of a proxy in front of it".to_owned(),
            ));
        }
        let is_bare = parsed.scheme() == "http"
            && parsed.path() == "/"
            && parsed.username().is_empty()
            && parsed.query().is_none();
        let host = parsed.host_str().filter(|_| is_bare).ok_or_else(wrong)?;
        let port = parsed.port_or_known_default().ok_or_else(wrong)?;
        let host = format!("{host}:{port}");
        let url = format!("http://{host}");
        let addresses = parsed
            .socket_addrs(|| None)
            .map_err(|source| Error::Unreachable {
                url: url.clone(),
                source,
            })?;
        Ok(Self {
            url,
            host,
            addresses,
            auth,
        })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Value of the `Host` header.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Value of the `Authorization` header for this user.
    pub(crate) fn authorization(&self, user: &str) -> String {
        let now = SystemClock.now();
        let token = self.auth.issue(&username(user), TOKEN_LIFE, now);
        format!("Bearer {token}")
    }

    /// Value of the `Authorization` header for a service of this name.
    pub(crate) fn service_authorization(&self, name: &str) -> String {
        let (rights, now) = (ServiceRights::ALL, SystemClock.now());
        let token = self
            .auth
            .issue_service(&username(name), rights, TOKEN_LIFE, now);
        format!("Bearer {token}")
    }

    pub(crate) async fn connect(&self) -> Result<TcpStream, Failure> {
        let connected = timeout(WAIT_MAX, TcpStream::connect(self.addresses.as_slice()))
            .await
            .map_err(|_| Failure::Timeout)?;
        let stream = connected.map_err(Failure::Connect)?;
        stream.set_nodelay(true).map_err(Failure::Connect)?;
        Ok(stream)
    }
}

fn username(name: &str) -> UserId {
    UserId::parse(name).expect("usernames of a run are short")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_a_host_and_a_port() {
        let target = |url| LoadTarget::new(url, Auth::with_secret(&[7; 32]));
        for (url, shown) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]/", "http://[::1]:80"),
        ] {
            assert_eq!(
                target(url).map(|target| target.url).unwrap_or_default(),
                shown
            );
        }
        for wrong in [
            "127.0.0.1:8080",
            "ftp://127.0.0.1",
            "http://127.0.0.1/graphql",
            "http://a@127.0.0.1",
            "https://127.0.0.1",
            "",
        ] {
            assert!(matches!(target(wrong), Err(Error::Url(_))), "{wrong}");
        }
    }
}
