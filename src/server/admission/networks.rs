//! Networks of IPv6: one client may have a /56 or a /48 of addresses, so what is counted by /64 counts by these too.
//!
//! A wider network may have more than one /64, as several households share it: so many times as much, by a setting for each.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tokio::time::Instant;

use super::address::ClientAddress;
use super::concurrency::{ConcurrencyLimit, ConcurrencyPermit};
use crate::metrics::{IntCounter, Metrics};
use crate::rate::{Buckets, Rate, TooFast};

/// How many times as much as a /64 each of the wider networks may have.
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

/// The first bits of an address of IPv6. IPv4 has no wider networks here: its neighbours are strangers.
fn network(ClientAddress(address): ClientAddress, bits: u32) -> Option<ClientAddress> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some(ClientAddress(IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & u128::MAX << (128 - bits),
        )))),
    }
}

/// A token bucket of each address, and of the networks around it.
pub(crate) struct AddressBuckets {
    own: Buckets,
    wider: [(u32, Buckets); 2],
}

impl AddressBuckets {
    pub(crate) fn new(what: &str, rate: Rate, factors: NetworkFactors) -> Self {
        let times = |factor: u32| Rate {
            count: rate.count.saturating_mul(factor),
            burst: rate.burst.saturating_mul(factor),
            ..rate
        };
        let wider = factors
            .wider()
            .map(|(bits, factor)| (bits, Buckets::new(&format!("{what}_{bits}"), times(factor))));
        Self {
            own: Buckets::new(what, rate),
            wider,
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.own.register(metrics);
        self.wider
            .iter()
            .for_each(|(_, buckets)| buckets.register(metrics));
    }

    /// How long one token of an address takes to come.
    pub(crate) fn token_every(&self) -> Duration {
        self.own.token_every()
    }

    /// Takes tokens of the address first: one that is too fast takes none of its neighbours'.
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

/// How many of something each address has, and each network around it.
pub(crate) struct AddressConcurrency {
    own: ConcurrencyLimit<ClientAddress>,
    wider: [(u32, ConcurrencyLimit<ClientAddress>); 2],
}

/// One that counts until it is dropped.
pub(crate) struct AddressPermit {
    _own: ConcurrencyPermit<ClientAddress>,
    _wider: [Option<ConcurrencyPermit<ClientAddress>>; 2],
}

impl AddressConcurrency {
    pub(crate) fn new(most: usize, factors: NetworkFactors, refused: &IntCounter) -> Self {
        let wider = factors.wider().map(|(bits, factor)| {
            (
                bits,
                ConcurrencyLimit::new(most.saturating_mul(factor as usize), refused.clone()),
            )
        });
        Self {
            own: ConcurrencyLimit::new(most, refused.clone()),
            wider,
        }
    }

    pub(crate) fn take(&self, address: ClientAddress) -> Option<AddressPermit> {
        let own = self.own.take(address)?;
        let mut counted = [None, None];
        for ((bits, counts), counted) in self.wider.iter().zip(&mut counted) {
            if let Some(network) = network(address, *bits) {
                *counted = Some(counts.take(network)?);
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

    /// Addresses of one network, each of a /64 of its own.
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
        // A refusal keeps nothing of what it had counted before.
        drop(of_56);
        of_48.extend(
            neighbours("2001:db8:1:0", 100)
                .into_iter()
                .filter_map(|address| counts.take(address)),
        );
        assert_eq!(of_48.len(), 32);
    }

    #[test]
    fn neighbours_of_ipv4_are_strangers() {
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
    fn rates_are_those_of_the_network_too() {
        let buckets =
            AddressBuckets::new("test", Rate::per_second(1, 3), NetworkFactors::default());
        let now = Instant::now();
        let taken = neighbours("2001:db8:1:0", 100)
            .iter()
            .filter(|address| buckets.take(address, 1, now).is_ok())
            .count();
        assert_eq!(taken, 12);
        // One that is over its own rate takes nothing of the network's.
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
