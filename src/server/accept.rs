//! Connections: each is accepted when there is a place for it, answers at once, and is not waited for without end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::PaceBounds;
use super::address::Peer;
use super::gate::TooMany;
use super::stall::Impatient;

/// How long to wait where the system has no more file descriptors.
const EXHAUSTED: Duration = Duration::from_millis(200);

/// By what a listener takes connections.
pub(super) struct Terms {
    /// More wait to be accepted.
    pub(super) connections: usize,
    /// How long one may be silent before a request, or take to send its head.
    pub(super) head: Duration,
    /// The longest that what is written may wait for the network.
    pub(super) write: Duration,
    /// How fast what waits must be read.
    pub(super) pace: PaceBounds,
    /// Each answers what it has read, and ends.
    pub(super) stop: CancellationToken,
}

/// Accepts connections until it is dropped. One of a peer that has too many is hung up on, before it is read.
pub(super) async fn accept<P: Send + 'static>(
    listener: &TcpListener,
    router: &Router,
    connections: &TaskTracker,
    terms: &Terms,
    place_of: impl Fn(IpAddr) -> Result<P, TooMany>,
) {
    let places = Arc::new(Semaphore::new(terms.connections.min(Semaphore::MAX_PERMITS)));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let (stream, peer) = next(listener).await;
        let Ok(own) = place_of(peer.ip()) else { continue };
        let stream = Impatient::new(stream, terms.write, terms.pace);
        let service = Named { peer: Peer(peer.ip()), router: TowerToHyperService::new(router.clone()) };
        let (head, stop) = (terms.head, terms.stop.clone());
        connections.spawn(async move {
            serve(stream, service, head, stop).await;
            drop((place, own));
        });
    }
}

/// The router, told with each request where it came from.
struct Named {
    peer: Peer,
    router: TowerToHyperService<Router>,
}

impl Service<Request<Incoming>> for Named {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer);
        self.router.call(request)
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
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

/// One connection, until it ends or becomes a WebSocket. Asked to stop, it answers what it has read and ends.
async fn serve(stream: Impatient<TcpStream>, service: Named, head: Duration, stop: CancellationToken) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service).with_upgrades());
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
