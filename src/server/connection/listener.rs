//! Connections: each is accepted when there is a place for it, answers at once, and is not waited for without end.

use std::future::{Future, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::permits::{Evicted, Permits};
use super::state::{ConnectionState, RequestBody, ResponseBody};
use super::transport::{HeadBounds, Transport};
use super::write_timeout::{PaceBounds, WriteTimeout};
use crate::server::admission::{Peer, TooManyConnections};

/// How long to wait where the system has no more file descriptors.
const EXHAUSTED: Duration = Duration::from_millis(200);

/// The smallest buffer that hyper reads into.
const BUFFER_MIN: usize = 8 * 1024;

/// By what a listener takes connections.
pub(crate) struct ListenerConfig {
    /// For one more the connection that has been idle longest is closed. Where none is idle, the newcomer waits.
    pub(crate) connections: usize,
    pub(crate) head: HeadBounds,
    /// The longest that what is written may wait for the network.
    pub(crate) write: Duration,
    /// How fast what waits must be read.
    pub(crate) pace: PaceBounds,
    /// Each answers what it has read, and ends.
    pub(crate) stop: CancellationToken,
}

/// Accepts connections until it is dropped. One of a peer that has too many is hung up on, before it is read.
pub(crate) async fn accept<P: Send + 'static>(
    listener: &TcpListener,
    router: &Router,
    connections: &TaskTracker,
    config: &ListenerConfig,
    place_of: impl Fn(IpAddr) -> Result<P, TooManyConnections>,
) {
    let permits = Permits::new(config.connections);
    loop {
        let (stream, peer) = next(listener).await;
        // ParsedBody first, so that one address cannot evict the connections of others.
        let Ok(own) = place_of(peer.ip()) else {
            continue;
        };
        let phase = ConnectionState::new(Peer(peer.ip()), permits.acquire().await);
        let stream = Transport::new(
            WriteTimeout::new(stream, config.write, config.pace),
            Arc::clone(&phase),
            config.head,
        );
        let service = Exchanges {
            phase: Arc::clone(&phase),
            router: TowerToHyperService::new(router.clone()),
        };
        let (head, stop) = (config.head, config.stop.clone());
        connections.spawn(async move {
            let eviction = phase.eviction();
            tokio::select! {
                () = serve(stream, service, head, stop) => {}
                () = eviction.notified() => tracing::debug!("an idle connection makes room for another"),
            }
            phase.release();
            drop(own);
        });
    }
}

/// The router, with the phase of the connection around each request.
struct Exchanges {
    phase: Arc<ConnectionState>,
    router: TowerToHyperService<Router>,
}

impl Service<Request<Incoming>> for Exchanges {
    type Response = Response<ResponseBody>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let under_way = match self.phase.begin() {
            Ok(under_way) => under_way,
            Err(Evicted) => {
                return Box::pin(ready(Err(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "evicted for another connection",
                ))));
            }
        };
        let mut request = request.map(|body| RequestBody::new(body, Arc::clone(&self.phase)));
        request.extensions_mut().insert(Arc::clone(&self.phase));
        let answer = self.router.call(request);
        Box::pin(async move {
            let Ok(mut answer) = answer.await;
            // hyper finds out only after it has written the head. A client that is not told would ask again on a connection that closes.
            if under_way.has_unread() {
                answer
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(answer.map(|body| ResponseBody::new(body, under_way)))
        })
    }
}

async fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without this the answer to a small request may wait 40 ms for the other side's acknowledgement.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "the server failed to disable Nagle's algorithm on a connection");
                }
                return (stream, peer);
            }
            // That one was gone before it was accepted; the next one is not.
            Err(error) if is_of_the_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "the server cannot accept connections and retries; check the limit of open files");
                tokio::time::sleep(EXHAUSTED).await;
            }
        }
    }
}

fn is_of_the_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// One connection, until it ends or becomes a WebSocket. ParsedBody to stop, it answers what it has read and ends.
async fn serve(
    stream: Transport<WriteTimeout<TcpStream>>,
    service: Exchanges,
    head: HeadBounds,
    stop: CancellationToken,
) {
    let mut builder = http1::Builder::new();
    // The buffer bounds what an incomplete head takes; hyper asks for a little more than the smallest bound.
    builder
        .max_headers(head.headers)
        .max_header_size(head.bytes)
        .max_buf_size(head.bytes.max(BUFFER_MIN));
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head.idle);
    let mut connection = pin!(
        builder
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
    );
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended with an error");
    }
}
