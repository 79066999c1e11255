//! Address of a cluster: `cql://[user:password@]host[:port][,host2…]/keyspace[?dc=…&tls=…&timeout=…]`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const PORT: u16 = 9042;
const CONTACT_POINTS_MAX: usize = 32;
const KEYSPACE_BYTES_MAX: usize = 48;

/// A cluster, and the keyspace in it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// `host:port` each. The first node that answers lists all others.
    pub contact_points: Vec<String>,
    pub keyspace: String,
    pub credentials: Option<Credentials>,
    /// The one data centre that all servers of a deployment use.
    pub data_centre: Option<String>,
    pub tls: Tls,
    /// The deadline of one attempt, the driver's retries included.
    pub timeout: Duration,
}

impl Address {
    /// As a setting has it, with all its options, but without user and password.
    pub fn to_setting(&self) -> String {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let tls = match &self.tls {
            Tls::Off => None,
            Tls::System => Some("tls=on".to_owned()),
            Tls::Roots(file) => Some(format!("tls={}", encode(&file.to_string_lossy()))),
        };
        let timeout = (self.timeout != Self::TIMEOUT)
            .then(|| format!("timeout={}ms", self.timeout.as_millis()));
        let dc = self
            .data_centre
            .as_deref()
            .map(|name| format!("dc={}", encode(name)));
        let options: Vec<_> = [dc, tls, timeout].into_iter().flatten().collect();
        if options.is_empty() {
            self.to_string()
        } else {
            format!("{self}?{}", options.join("&"))
        }
    }

    pub const TIMEOUT: Duration = Duration::from_secs(2);
    pub const TIMEOUT_MAX: Duration = Duration::from_secs(10);
}

#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub user: String,
    pub password: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Tls {
    #[default]
    Off,
    /// The cluster's certificates are checked against the system's roots.
    System,
    /// Against those of this PEM file.
    Roots(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("must begin with cql://")]
    Scheme,
    #[error("must name a host, as in cql://127.0.0.1/wideroom")]
    Host,
    // Without the text, which may contain a part of a password that is not percent-encoded.
    #[error(
        "has an invalid port; in a user name or a password, write `/` as %2F, `@` as %40 and `:` as %3A"
    )]
    Port,
    #[error(
        "must name a keyspace, as in cql://127.0.0.1/wideroom: 1 to 48 letters, digits and underscores, a letter first"
    )]
    Keyspace,
    #[error("must have a password after the user name: cql://user:password@host/keyspace")]
    Credentials,
    #[error("has the unknown option {0}: the options are dc, tls and timeout")]
    Option(String),
    #[error(
        "has a timeout out of bounds: write timeout=100ms to timeout=10s, as counts and the polls of the other servers wait no longer for a row that becomes visible late"
    )]
    Timeout,
    #[error("has a part that is not UTF-8 after percent-decoding")]
    Text,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let rest = text.strip_prefix("cql://").ok_or(AddressError::Scheme)?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, keyspace) = rest.split_once('/').ok_or(AddressError::Keyspace)?;
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(parse_credentials(credentials)?), hosts),
            None => (None, authority),
        };
        let contact_points = hosts
            .split(',')
            .map(contact_point)
            .collect::<Result<Vec<_>, _>>()?;
        if contact_points.len() > CONTACT_POINTS_MAX {
            return Err(AddressError::Host);
        }
        let keyspace = parse_keyspace(keyspace)?;
        let mut address = Self {
            contact_points,
            keyspace,
            credentials,
            data_centre: None,
            tls: Tls::Off,
            timeout: Self::TIMEOUT,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("dc", name)) if !name.is_empty() => address.data_centre = Some(decode(name)?),
                Some(("tls", "on")) => address.tls = Tls::System,
                Some(("tls", "off")) => address.tls = Tls::Off,
                Some(("tls", file)) if !file.is_empty() => {
                    address.tls = Tls::Roots(decode(file)?.into())
                }
                Some(("timeout", time)) => {
                    address.timeout = parse_timeout(time).ok_or(AddressError::Timeout)?
                }
                Some((name, _)) => {
                    return Err(AddressError::Option(name.chars().take(32).collect()));
                }
                None => return Err(AddressError::Option(option.chars().take(32).collect())),
            }
        }
        Ok(address)
    }
}

fn decode(text: &str) -> Result<String, AddressError> {
    percent_decode_str(text)
        .decode_utf8()
        .map(Into::into)
        .map_err(|_| AddressError::Text)
}

fn parse_credentials(text: &str) -> Result<Credentials, AddressError> {
    let (user, password) = text
        .split_once(':')
        .filter(|(user, _)| !user.is_empty())
        .ok_or(AddressError::Credentials)?;
    Ok(Credentials {
        user: decode(user)?,
        password: decode(password)?,
    })
}

/// As `2s` or `500ms`.
fn parse_timeout(text: &str) -> Option<Duration> {
    let timeout = match text.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(millis.parse().ok()?),
        None => Duration::from_secs(text.strip_suffix('s')?.parse().ok()?),
    };
    (Duration::from_millis(100)..=Address::TIMEOUT_MAX)
        .contains(&timeout)
        .then_some(timeout)
}

/// A host with its port. An IPv6 address is in brackets.
fn contact_point(text: &str) -> Result<String, AddressError> {
    let name_ends_at = text.rfind(']').map_or(0, |bracket| bracket + 1);
    let (host, port) = match text[name_ends_at..].rfind(':') {
        Some(colon) => {
            let (host, port) = text.split_at(name_ends_at + colon);
            (host, port[1..].parse().map_err(|_| AddressError::Port)?)
        }
        None => (text, PORT),
    };
    let is_name = |host: &str| {
        host.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
    };
    if host.is_empty() || !is_name(host) {
        return Err(AddressError::Host);
    }
    Ok(format!("{host}:{port}"))
}

fn parse_keyspace(text: &str) -> Result<String, AddressError> {
    let is_plain = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let begins_well = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic());
    if is_plain && begins_well && text.len() <= KEYSPACE_BYTES_MAX {
        Ok(text.to_owned())
    } else {
        Err(AddressError::Keyspace)
    }
}

impl fmt::Display for Address {
    /// Without user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cql://{}/{}",
            self.contact_points.join(","),
            self.keyspace
        )
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        text.parse()
            .map_err(|error: AddressError| error.to_string())
    }

    #[test]
    fn an_address_names_hosts_keyspace_and_options() {
        let address = parse("cql://ann:p%40ss%2Fw@10.0.0.1,db.example:9043,[::1]:9044/chat?dc=north&tls=%2Fetc%2Fca.pem").unwrap();
        assert_eq!(
            address.contact_points,
            ["10.0.0.1:9042", "db.example:9043", "[::1]:9044"]
        );
        assert_eq!(address.keyspace, "chat");
        assert_eq!(address.data_centre.as_deref(), Some("north"));
        assert_eq!(address.tls, Tls::Roots("/etc/ca.pem".into()));
        let credentials = address.credentials.as_ref().unwrap();
        assert_eq!(
            (credentials.user.as_str(), credentials.password.as_str()),
            ("ann", "p@ss/w")
        );
        assert_eq!(parse("cql://h/k?tls=on").unwrap().tls, Tls::System);
        assert_eq!(parse("cql://h/k").unwrap().timeout, Duration::from_secs(2));
        assert_eq!(
            parse("cql://h/k?timeout=500ms").unwrap().timeout,
            Duration::from_millis(500)
        );
        assert_eq!(
            parse("cql://h/k?dc=a&timeout=10s").unwrap().timeout,
            Duration::from_secs(10)
        );
    }

    #[test]
    fn a_password_is_never_shown() {
        let address = parse("cql://ann:secret@h/k").unwrap();
        assert_eq!(
            format!("{address} {address:?}"),
            "cql://h:9042/k cql://h:9042/k"
        );
    }

    #[test]
    fn as_a_setting_it_is_all_of_it_but_the_password() {
        for text in [
            "cql://h:9042/k",
            "cql://h:9042,i:1/k?dc=north%20east&tls=%2Fetc%2Fca%2Epem&timeout=500ms",
            "cql://h:9042/k?tls=on",
        ] {
            let address = parse(text).unwrap();
            assert_eq!(address.to_setting(), text);
        }
        assert_eq!(
            parse("cql://ann:secret@h/k?tls=on").unwrap().to_setting(),
            "cql://h:9042/k?tls=on"
        );
        assert!(!parse("cql://ann:s3cr/et@h/k").unwrap_err().contains("s3cr"));
    }

    #[test]
    fn what_is_no_address_says_why() {
        for (text, part) in [
            ("http://h/k", "cql://"),
            ("cql:///k", "a host"),
            ("cql://h", "keyspace"),
            ("cql://h/", "keyspace"),
            ("cql://h/9k", "keyspace"),
            ("cql://h/k;drop", "keyspace"),
            ("cql://h:x/k", "port"),
            ("cql://ann@h/k", "password"),
            ("cql://h/k?rack=1", "rack"),
            ("cql://h/k?tls", "tls"),
            ("cql://h/k?timeout=2", "timeout"),
            ("cql://h/k?timeout=1ms", "timeout"),
            ("cql://h/k?timeout=10001ms", "timeout=10s"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
