//! Loopback addresses and ports that nobody uses: many runs of these tests may share a machine.

use std::net::TcpListener;

use uuid::Uuid;

/// Addresses of the nodes of a ring: node N has the address that ends in N, and all nodes use the same two ports.
#[derive(Clone)]
pub(super) struct Net {
    /// The first three parts of every address.
    pub(super) prefix: String,
    pub(super) cql_port: u16,
    pub(super) storage_port: u16,
}

impl Net {
    /// Chosen at random and then looked at, so that of two who choose at once none gets in the other's way.
    pub(super) fn free(nodes: u8) -> Self {
        (0..100)
            .map(|_| Self::any())
            .find(|net| net.is_free(nodes))
            .expect("a free address on this machine's loopback")
    }

    fn any() -> Self {
        let [a, b, c, d, e, f, ..] = *Uuid::new_v4().as_bytes();
        // Only Linux has all of 127.0.0.0/8. What connects from there comes from 127.0.0.1, and so takes none of these ports.
        let prefix = if cfg!(target_os = "linux") {
            format!("127.{}.{b}", a % 253 + 1)
        } else {
            "127.0.0".to_owned()
        };
        // Below those that systems give to clients.
        let port = |first, one, other| first + u16::from_be_bytes([one, other]) % 10_000;
        Self {
            prefix,
            cql_port: port(10_000, c, d),
            storage_port: port(20_000, e, f),
        }
    }

    fn is_free(&self, nodes: u8) -> bool {
        let ports = [self.cql_port, self.storage_port];
        (1..=nodes).all(|node| {
            ports
                .iter()
                .all(|port| TcpListener::bind((self.host(node), *port)).is_ok())
        })
    }

    pub(super) fn host(&self, node: u8) -> String {
        format!("{}.{node}", self.prefix)
    }

    /// CQL address of a node.
    pub(super) fn contact_point(&self, node: u8) -> String {
        format!("{}:{}", self.host(node), self.cql_port)
    }
}
