//! Ports of the loopback that stay free while a server is down, so that it starts again at its address.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that systems give to clients and to listeners that name none, and above those of the tests' Cassandra.
const FIRST: u16 = 30_000;
const COUNT: u16 = 2_700;

/// A port that nobody listens at, and that nobody else of this process is told of for a long time.
pub(crate) fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Another run on this machine begins elsewhere.
    let begin = std::process::id().wrapping_mul(97) % u32::from(COUNT);
    let mut ports = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed) % COUNT)
        .map(|next| FIRST + (u16::try_from(begin).unwrap() + next) % COUNT);
    ports
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("the iterator does not end")
}
