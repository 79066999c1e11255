//! Where the load goes, and as whom: an address, and tokens for whoever is needed.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

use super::failure::{Error, Failure};
use crate::auth::Auth;
use crate::clock::{Clock as _, SystemClock};
use crate::model::UserId;

/// Longer than any load.
const TOKEN_LIFE: Duration = Duration::from_secs(2 * 24 * 3_600);
/// For a connection, and for each answer: longer than a server takes by its own bounds.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(20);

pub struct Target {
    url: String,
    host: String,
    addresses: Vec<SocketAddr>,
    auth: Auth,
}

impl Target {
    /// The server at this URL, whose tokens are signed like that. Blocks.
    pub fn new(url: &str, auth: Auth) -> Result<Self, Error> {
        let wrong = || Error::Url("must be http://HOST:PORT".to_owned());
        let parsed = Url::parse(url).map_err(|_| wrong())?;
        if parsed.scheme() == "https" {
            return Err(Error::Url("TLS is not spoken here: name the server itself, not the proxy before it".to_owned()));
        }
        let is_bare = parsed.scheme() == "http" && parsed.path() == "/" && parsed.username().is_empty() && parsed.query().is_none();
        let host = parsed.host_str().filter(|_| is_bare).ok_or_else(wrong)?;
        let port = parsed.port_or_known_default().ok_or_else(wrong)?;
        let host = format!("{host}:{port}");
        let url = format!("http://{host}");
        let addresses = parsed.socket_addrs(|| None).map_err(|source| Error::Away { url: url.clone(), source })?;
        Ok(Self { url, host, addresses, auth })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// As HTTP has it.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// What `Authorization` says for this user.
    pub(super) fn authorization(&self, user: &str) -> String {
        let user = UserId::parse(user).expect("the people of a run have short names");
        format!("Bearer {}", self.auth.issue(&user, TOKEN_LIFE, SystemClock.now()))
    }

    pub(super) async fn connect(&self) -> Result<TcpStream, Failure> {
        let connected = timeout(WAIT_MAX, TcpStream::connect(self.addresses.as_slice())).await.map_err(|_| Failure::Late)?;
        let stream = connected.map_err(Failure::Connect)?;
        stream.set_nodelay(true).map_err(Failure::Connect)?;
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_a_host_and_a_port() {
        let target = |url| Target::new(url, Auth::with_secret(&[7; 32]));
        for (url, shown) in [("http://127.0.0.1:8080", "http://127.0.0.1:8080"), ("http://[::1]/", "http://[::1]:80")] {
            assert_eq!(target(url).map(|target| target.url).unwrap_or_default(), shown);
        }
        for wrong in ["127.0.0.1:8080", "ftp://127.0.0.1", "http://127.0.0.1/graphql", "http://a@127.0.0.1", "https://127.0.0.1", ""] {
            assert!(matches!(target(wrong), Err(Error::Url(_))), "{wrong}");
        }
    }
}
