//! Client addresses: the peer of a connection, or the client that a trusted proxy names.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName};
use ipnet::IpNet;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whether a proxy, or a client that plays one, names an earlier address.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED_FOR)
}

/// Networks of proxies whose `X-Forwarded-For` the server believes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    pub(crate) fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Parses networks with commas between them, or `none`.
impl FromStr for TrustedProxies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network = |text: &str| {
            text.parse::<IpNet>()
                .ok()
                .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
        };
        let wrong = "must be networks or addresses with commas between them, as 10.0.0.0/8,192.168.1.7, or none";
        match text {
            "none" => Ok(Self::default()),
            text => text
                .split(',')
                .map(|part| network(part.trim()).ok_or_else(|| wrong.to_owned()))
                .collect::<Result<_, _>>()
                .map(Self),
        }
    }
}

impl fmt::Display for TrustedProxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let networks: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&networks.join(","))
    }
}

/// Peer address of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Address that pays while no user is known; of IPv6 the /64 of a household. The server neither shows nor logs it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ClientAddress(pub(crate) IpAddr);

impl ClientAddress {
    /// Reads `X-Forwarded-For` from the right: each proxy appends its client. Entries left of the last trusted proxy may be
    /// forged.
    pub(crate) fn of(Peer(peer): Peer, headers: &HeaderMap, proxies: &TrustedProxies) -> Self {
        let mut address = peer.to_canonical();
        // Lossy, so that an entry that is not text still ends the walk, like any entry that is no address.
        let lines: Vec<_> = headers
            .get_all(FORWARDED_FOR)
            .iter()
            .map(|line| String::from_utf8_lossy(line.as_bytes()))
            .collect();
        let mut named = lines.iter().rev().flat_map(|line| line.rsplit(','));
        while proxies.trust(address) {
            let Some(before) = named.next().and_then(|text| parse(text.trim())) else {
                break;
            };
            address = before.to_canonical();
        }
        Self::from(address)
    }
}

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
                address.to_bits() & !u128::from(u64::MAX),
            )),
        })
    }
}

/// Parses an address. Some proxies append the port.
fn parse(text: &str) -> Option<IpAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse()
        .ok()
        .or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn address(peer: &str, proxies: &str, forwarded: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in forwarded {
            headers.append(
                FORWARDED_FOR,
                HeaderValue::from_bytes(line.as_bytes()).unwrap(),
            );
        }
        ClientAddress::of(
            Peer(peer.parse().unwrap()),
            &headers,
            &proxies.parse().unwrap(),
        )
        .0
        .to_string()
    }

    #[test]
    fn the_header_of_an_unknown_proxy_is_ignored() {
        assert_eq!(
            address("203.0.113.5", "none", &["198.51.100.1"]),
            "203.0.113.5"
        );
        assert_eq!(
            address("203.0.113.5", "10.0.0.0/8", &["198.51.100.1"]),
            "203.0.113.5"
        );
    }

    #[test]
    fn the_header_of_a_trusted_proxy_counts_up_to_the_first_unknown_one() {
        let proxies = "10.0.0.0/8,2001:db8::/32";
        assert_eq!(
            address("10.1.1.1", proxies, &["198.51.100.1"]),
            "198.51.100.1"
        );
        assert_eq!(
            address("10.1.1.1", proxies, &["6.6.6.6, 198.51.100.1"]),
            "198.51.100.1",
            "what the client wrote itself"
        );
        assert_eq!(
            address("10.1.1.1", proxies, &["6.6.6.6, 198.51.100.1, 10.2.2.2"]),
            "198.51.100.1"
        );
        assert_eq!(
            address(
                "10.1.1.1",
                proxies,
                &["6.6.6.6", "198.51.100.1", "10.2.2.2"]
            ),
            "198.51.100.1"
        );
        assert_eq!(
            address("2001:db8::9", proxies, &["198.51.100.1:4711"]),
            "198.51.100.1"
        );
        assert_eq!(
            address("::ffff:10.1.1.1", proxies, &["[2001:4860::1]:443"]),
            "2001:4860::"
        );
    }

    #[test]
    fn a_proxy_that_names_no_client_counts_itself() {
        assert_eq!(address("10.1.1.1", "10.0.0.0/8", &[]), "10.1.1.1");
        assert_eq!(address("10.1.1.1", "10.0.0.0/8", &["unknown"]), "10.1.1.1");
        assert_eq!(
            address("10.1.1.1", "10.0.0.0/8", &["6.6.6.6", "é, 10.2.2.2"]),
            "10.2.2.2"
        );
        assert_eq!(
            address("10.1.1.1", "10.0.0.0/8", &["198.51.100.1, , 10.2.2.2"]),
            "10.2.2.2"
        );
        assert_eq!(
            address("10.1.1.1", "10.0.0.0/8", &["10.3.3.3, 10.2.2.2"]),
            "10.3.3.3"
        );
    }

    #[test]
    fn a_household_of_ipv6_is_one() {
        assert_eq!(
            address("2001:db8:1:2:3:4:5:6", "none", &[]),
            "2001:db8:1:2::"
        );
    }

    #[test]
    fn a_list_reads_back() {
        for text in ["none", "10.0.0.0/8", "10.0.0.0/8,::1/128"] {
            assert_eq!(text.parse::<TrustedProxies>().unwrap().to_string(), text);
        }
        assert_eq!(
            "192.168.1.7".parse::<TrustedProxies>().unwrap().to_string(),
            "192.168.1.7/32"
        );
        for text in ["", "10.0.0.0/40", "localhost", "10.0.0.0/8,,::1"] {
            assert!(text.parse::<TrustedProxies>().is_err(), "{text}");
        }
    }
}
