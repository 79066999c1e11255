//! Bounds of the server: sizes, counts and deadlines of requests, streams and sockets.

use std::time::Duration;

use super::admission::{AdmissionBounds, TrustedProxies};
use super::connection::{HeadBounds, PaceBounds};
use super::origin::Origins;
use crate::graphql::ANSWER_BYTES_MAX;

/// What the server let in, and how long they wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerBounds {
    pub body_bytes: usize,
    pub variables_bytes: usize,
    /// Requests of one body, which are done one after the other. 0: a body is one request.
    pub batch: usize,
    /// Connections that are not WebSockets. For one more the connection that has been idle longest is closed.
    pub connections: usize,
    pub head: HeadBounds,
    /// The text of one answer, of one event of a subscription, or of all answers of one body.
    pub answer_bytes: usize,
    /// Who is read more slowly than this is cut off.
    pub pace: PaceBounds,
    /// From the head of a request to its answer.
    pub request: Duration,
    /// From the call to stop until what still runs is cut off.
    pub drain: Duration,
    pub streams: StreamBounds,
    pub sockets: SocketBounds,
    pub rates: AdmissionBounds,
    /// Whose pages may use the API from a browser, beside our own.
    pub origins: Origins,
    /// Who may say for whom they speak.
    pub proxies: TrustedProxies,
}

/// The same for subscriptions over HTTP, as Server-Sent Events or in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamBounds {
    /// Streams of this process. Each is also one of the connections, and should not be able to take them all.
    pub total: usize,
    /// After so long without a word there is a heartbeat.
    pub heartbeat: Duration,
}

/// The same for WebSockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketBounds {
    /// Sockets of this process. For one more the oldest that has no viewer is closed.
    pub total: usize,
    pub message_bytes: usize,
    /// Bytes that a socket may send until its `connection_init` is accepted.
    pub init_bytes: usize,
    /// Operations of one socket that run at once.
    pub operations: usize,
    /// Messages of one socket: so many a second, so many at once. Beyond that it is read more slowly.
    pub rate_per_second: u32,
    pub rate_burst: u32,
    /// A socket that has been over its rate for so long is closed.
    pub rate_patience: Duration,
    /// From the upgrade to a `connection_init` that names a viewer.
    pub init: Duration,
    pub ping: Duration,
    pub pong: Duration,
    /// The longest a written message may wait for the network; and what is written to any other connection, too.
    pub write: Duration,
    /// How long to wait for the other side's closing frame.
    pub close: Duration,
    pub queue_messages: usize,
    pub queue_bytes: usize,
}

impl Default for ServerBounds {
    fn default() -> Self {
        Self {
            body_bytes: 128 * 1024,
            variables_bytes: 64 * 1024,
            batch: 0,
            connections: 10_000,
            head: HeadBounds::default(),
            answer_bytes: ANSWER_BYTES_MAX,
            pace: PaceBounds::default(),
            request: Duration::from_secs(10),
            drain: Duration::from_secs(10),
            streams: StreamBounds::default(),
            sockets: SocketBounds::default(),
            rates: AdmissionBounds::default(),
            origins: Origins::default(),
            proxies: TrustedProxies::default(),
        }
    }
}

impl Default for StreamBounds {
    fn default() -> Self {
        // TrustedProxies commonly hang up after 15, 30 or 60 seconds of silence.
        Self {
            total: 5_000,
            heartbeat: Duration::from_secs(12),
        }
    }
}

impl Default for SocketBounds {
    fn default() -> Self {
        Self {
            total: 50_000,
            message_bytes: 128 * 1024,
            init_bytes: 16 * 1024,
            operations: 100,
            rate_per_second: 20,
            rate_burst: 60,
            rate_patience: Duration::from_secs(10),
            init: Duration::from_secs(10),
            ping: Duration::from_secs(25),
            pong: Duration::from_secs(10),
            write: Duration::from_secs(10),
            close: Duration::from_secs(2),
            queue_messages: 256,
            queue_bytes: 1024 * 1024,
        }
    }
}
