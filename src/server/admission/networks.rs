//! IPv6 networks: one client may own a /56 or a /48, so limits by /64 also hold for these.
//!
//! Several households may share a wider network, so its limits are those of a /64 times a factor.

use std::net::{IpAddr, Ipv6Addr};

use tokio::time::Instant;

use super::address::ClientAddress;
use super::concurrency::{ConcurrencyLimit, ConcurrencyPermit};
use crate::metrics::{IntCounter, Metrics};
use crate::rate::{Buckets, Rate, TooFast};

/// Factors of the limits of a /56 and a /48 over those of a /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetworkFactors {
    pub per_56: u32,
    pub per_48: u32,
}

impl Default for NetworkFactors {
    fn default() -> Self {
        Self {
            per_56: 4,
            per_48: 16,
        }
    }
}

impl NetworkFactors {
    fn wider(self) -> [(u32, u32); 2] {
        [(56, self.per_56), (48, self.per_48)]
    }
}

/// Network of an IPv6 address. `None` for IPv4, where neighbours are unrelated.
fn network(ClientAddress(address): ClientAddress, bits: u32) -> Option<ClientAddress> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(ClientAddress(IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & u128::MAX << (128 - bits),
        )))),
    }
}

/// Token buckets of each address and of its wider networks.
pub(crate) struct AddressBuckets {
    pub(super) own: Buckets,
    wider: [(u32, Buckets); 2],
}

impl AddressBuckets {
    pub(crate) fn new(name: &str, rate: Rate, factors: NetworkFactors) -> Self {
        let times = |factor: u32| Rate {
            count: rate.count.saturating_mul(factor),
            burst: rate.burst.saturating_mul(factor),
            ..rate
        };
        let wider = factors
            .wider()
            .map(|(bits, factor)| (bits, Buckets::new(&format!("{name}_{bits}"), times(factor))));
        Self {
            own: Buckets::new(name, rate),
            wider,
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.own.register(metrics);
        self.wider
            .iter()
            .for_each(|(_, buckets)| buckets.register(metrics));
    }

    /// Takes tokens of the address first: an address over its rate takes none of its network's.
    pub(crate) fn take(
        &self,
        address: &ClientAddress,
        tokens: u32,
        now: Instant,
    ) -> Result<(), TooFast> {
        self.own.take(address, tokens, now)?;
        for (bits, buckets) in &self.wider {
            if let Some(network) = network(*address, *bits) {
                buckets.take(&network, tokens, now)?;
            }
        }
        Ok(())
    }
}

/// Concurrency limits of each address and of its wider networks.
pub(crate) struct AddressConcurrency {
    own: ConcurrencyLimit<ClientAddress>,
    wider: [(u32, ConcurrencyLimit<ClientAddress>); 2],
}

/// Permit of an address and its networks, released when it is dropped.
pub(crate) struct AddressPermit {
    _own: ConcurrencyPermit<ClientAddress>,
    _wider: [Option<ConcurrencyPermit<ClientAddress>>; 2],
}

impl AddressConcurrency {
    pub(crate) fn new(max: usize, factors: NetworkFactors, refused: &IntCounter) -> Self {
        let wider = factors.wider().map(|(bits, factor)| {
            (
                bits,
                ConcurrencyLimit::new(max.saturating_mul(factor as usize), refused.clone()),
            )
        });
        Self {
            own: ConcurrencyLimit::new(max, refused.clone()),
            wider,
        }
    }

    pub(crate) fn take(&self, address: ClientAddress) -> Option<AddressPermit> {
        let own = self.own.acquire(address)?;
        let mut counted = [None, None];
        for ((bits, counts), counted) in self.wider.iter().zip(&mut counted) {
            if let Some(network) = network(address, *bits) {
                *counted = Some(counts.acquire(network)?);
            }
        }
        Some(AddressPermit {
            _own: own,
            _wider: counted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics;

    fn address(text: &str) -> ClientAddress {
        ClientAddress::from(text.parse::<IpAddr>().unwrap())
    }

    /// Addresses of one network, each in a /64 of its own.
    fn neighbours(prefix: &str, count: usize) -> Vec<ClientAddress> {
        (0..count)
            .map(|number| address(&format!("{prefix}{number:02x}::1")))
            .collect()
    }

    #[test]
    fn a_56_and_a_48_have_bounds_of_their_own() {
        let counts = AddressConcurrency::new(
            2,
            NetworkFactors::default(),
            &metrics::counter("refused", "In a test."),
        );
        let of_56: Vec<_> = neighbours("2001:db8:1:0", 100)
            .into_iter()
            .filter_map(|address| counts.take(address))
            .collect();
        assert_eq!(of_56.len(), 8);
        let others = (1..100).flat_map(|net| neighbours(&format!("2001:db8:1:{net:02x}"), 9));
        let mut of_48: Vec<_> = others.filter_map(|address| counts.take(address)).collect();
        assert_eq!(of_48.len(), 24);
        assert!(counts.take(address("2001:db8:2::1")).is_some());
        // A refusal releases the permits that it had acquired.
        drop(of_56);
        of_48.extend(
            neighbours("2001:db8:1:0", 100)
                .into_iter()
                .filter_map(|address| counts.take(address)),
        );
        assert_eq!(of_48.len(), 32);
    }

    #[test]
    fn ipv4_addresses_have_no_wider_network() {
        let counts = AddressConcurrency::new(
            1,
            NetworkFactors::default(),
            &metrics::counter("refused", "In a test."),
        );
        let held: Vec<_> = (0..=255)
            .filter_map(|last| counts.take(address(&format!("203.0.113.{last}"))))
            .collect();
        assert_eq!(held.len(), 256);
    }

    #[test]
    fn rates_also_hold_for_the_network() {
        let buckets =
            AddressBuckets::new("test", Rate::per_second(1, 3), NetworkFactors::default());
        let now = Instant::now();
        let taken = neighbours("2001:db8:1:0", 100)
            .iter()
            .filter(|address| buckets.take(address, 1, now).is_ok())
            .count();
        assert_eq!(taken, 12);
        // An address over its own rate takes none of the network's tokens.
        let one = address("2001:db8:1:100::1");
        assert_eq!(
            (0..1_000)
                .filter(|_| buckets.take(&one, 1, now).is_ok())
                .count(),
            3
        );
        assert_eq!(
            neighbours("2001:db8:1:1", 100)
                .iter()
                .skip(1)
                .filter(|address| buckets.take(address, 1, now).is_ok())
                .count(),
            9
        );
    }
}
