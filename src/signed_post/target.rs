//! Address of a receiver, checked when the configuration is read.

use std::sync::Arc;
use std::{fmt, io};

use tokio::io::DuplexStream;
use url::{Host, Url};

/// Longest address.
const URL_BYTES_MAX: usize = 2_048;

/// Opens connections to a receiver in this process, in place of TCP: a test in virtual time has no sockets.
#[derive(Clone)]
pub struct Dialer(pub Arc<dyn Fn() -> io::Result<DuplexStream> + Send + Sync>);

impl PartialEq for Dialer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Dialer {}

/// Address of a receiver: `https://…`, or `http://…` where the operator allows it.
#[derive(Clone, PartialEq, Eq)]
pub struct PostTarget {
    pub(super) dialer: Option<Dialer>,
    pub(super) is_https: bool,
    /// Host to connect to, without the brackets of an IPv6 address.
    pub(super) host: String,
    pub(super) port: u16,
    /// Value of `Host`.
    pub(super) authority: String,
    /// Path and query.
    pub(super) path: String,
}

impl PostTarget {
    /// Parses an address. `Err` never repeats it, because its query may hold a secret.
    pub fn parse(text: &str, allow_http: bool) -> Result<Self, String> {
        let malformed = || "must be an https:// address".to_owned();
        if text.len() > URL_BYTES_MAX {
            return Err(format!("must have at most {URL_BYTES_MAX} bytes"));
        }
        let url = Url::parse(text).map_err(|_| malformed())?;
        let is_https = match url.scheme() {
            "https" => true,
            "http" if allow_http => false,
            "http" => {
                return Err(
                    "must begin with https://; plain http needs `allow_http = true`".to_owned(),
                );
            }
            _ => return Err(malformed()),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must hold no user and no password".to_owned());
        }
        let host = match url.host().ok_or_else(malformed)? {
            Host::Domain(name) => name.to_owned(),
            Host::Ipv4(address) => address.to_string(),
            Host::Ipv6(address) => address.to_string(),
        };
        let shown = url.host_str().ok_or_else(malformed)?;
        let authority = match url.port() {
            Some(port) => format!("{shown}:{port}"),
            None => shown.to_owned(),
        };
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        Ok(Self {
            dialer: None,
            is_https,
            host,
            port: url.port_or_known_default().ok_or_else(malformed)?,
            authority,
            path,
        })
    }

    /// The same target, whose connections this dialer opens.
    pub fn dialed_by(self, dialer: Dialer) -> Self {
        Self {
            dialer: Some(dialer),
            ..self
        }
    }
}

/// Without the query, which may hold a secret.
impl fmt::Display for PostTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        let path = self.path.split('?').next().unwrap_or_default();
        write!(f, "{scheme}://{}{path}", self.authority)
    }
}

impl fmt::Debug for PostTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_apart() {
        let target = PostTarget::parse("https://hooks.example/a/b?key=secret", false).unwrap();
        assert_eq!((target.host.as_str(), target.port), ("hooks.example", 443));
        assert_eq!(target.authority, "hooks.example");
        assert_eq!(target.path, "/a/b?key=secret");
        assert_eq!(target.to_string(), "https://hooks.example/a/b");
        let local = PostTarget::parse("http://[::1]:8099", true).unwrap();
        assert_eq!((local.host.as_str(), local.port), ("::1", 8099));
        assert_eq!(
            (local.authority.as_str(), local.path.as_str()),
            ("[::1]:8099", "/")
        );
    }

    #[test]
    fn plain_http_needs_leave_and_other_addresses_are_refused() {
        let plain = PostTarget::parse("http://localhost/", false).unwrap_err();
        assert!(plain.contains("allow_http"), "{plain}");
        for text in [
            "",
            "hooks.example",
            "ftp://hooks.example",
            "https://",
            "https://user:hunter2@hooks.example/",
            &format!("https://hooks.example/{}", "a".repeat(URL_BYTES_MAX)),
        ] {
            let error = PostTarget::parse(text, true).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
