//! Bounds of the server: sizes, counts and deadlines of requests, streams and sockets.

use std::time::Duration;

use super::admission::{AdmissionBounds, TrustedProxies};
use super::connection::{HeadBounds, PaceBounds};
use super::origin::Origins;
use super::request_log::RequestLines;
use crate::graphql::ANSWER_BYTES_MAX;

/// Limits and deadlines of the public listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerBounds {
    pub body_bytes: usize,
    pub variables_bytes: usize,
    /// Requests in one body, executed in order. 0 refuses batches.
    pub batch: usize,
    /// Connections that are not WebSockets. A further one evicts the connection that was idle longest.
    pub connections: usize,
    pub head: HeadBounds,
    /// Bytes of one answer, of one event of a subscription, or of all answers of a batch.
    pub answer_bytes: usize,
    /// Whether large answers are compressed for clients that accept it.
    pub compression: bool,
    /// Slowest accepted reader.
    pub pace: PaceBounds,
    /// Time from the head of a request to its answer.
    pub request: Duration,
    /// Time from which a request is logged as slow. `None` logs none.
    pub slow_request: Option<Duration>,
    pub log_requests: RequestLines,
    /// Time from the shutdown until the server cuts what still runs.
    pub drain: Duration,
    pub streams: StreamBounds,
    pub sockets: SocketBounds,
    pub rates: AdmissionBounds,
    /// Origins whose pages may use the API, besides our own.
    pub origins: Origins,
    /// Proxies whose `X-Forwarded-For` the server believes.
    pub proxies: TrustedProxies,
    /// Whether the server refuses requests that came through a proxy: it is for this machine alone.
    pub is_local: bool,
}

/// Limits of subscriptions over HTTP, as Server-Sent Events or multipart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamBounds {
    /// Streams of this process. Each occupies a connection; streams must not occupy all of them.
    pub total: usize,
    /// Longest silence before a heartbeat.
    pub heartbeat: Duration,
}

/// Limits of WebSockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketBounds {
    /// Sockets of this process. A further one evicts the oldest socket without a viewer.
    pub total: usize,
    pub message_bytes: usize,
    /// Bytes that a socket may send before its `connection_init` is accepted.
    pub init_bytes: usize,
    /// Concurrent operations of one socket.
    pub operations: usize,
    /// Rate and burst of messages of one socket. Beyond them the server reads more slowly.
    pub rate_per_second: u32,
    pub rate_burst: u32,
    /// Time over the rate after which the server closes the socket.
    pub rate_patience: Duration,
    /// Time from the upgrade to a `connection_init` with a token.
    pub init: Duration,
    pub ping: Duration,
    pub pong: Duration,
    /// Longest wait of a write for the network, on every connection.
    pub write: Duration,
    /// Wait for the client's closing frame.
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
            compression: false,
            pace: PaceBounds::default(),
            request: Duration::from_secs(10),
            slow_request: Some(Duration::from_secs(1)),
            log_requests: RequestLines::All,
            drain: Duration::from_secs(10),
            streams: StreamBounds::default(),
            sockets: SocketBounds::default(),
            rates: AdmissionBounds::default(),
            origins: Origins::default(),
            proxies: TrustedProxies::default(),
            is_local: false,
        }
    }
}

impl Default for StreamBounds {
    fn default() -> Self {
        // Proxies commonly hang up after 15, 30 or 60 seconds of silence.
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
