//! The running server, and who knocks at them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http_body_util::Full;
use hyper::Response;
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite;
use tokio_util::sync::CancellationToken;
use wideroom::auth::Auth;
use wideroom::clock::{Clock, SystemClock};
use wideroom::model::{ServiceRights, UserId};
use wideroom::server::{self, Server, ServerBounds, TrustedDocuments};

use super::schema::TestApi;
use crate::support::client;
pub(super) use crate::support::client::{Reply, Socket, WebSocket, soon};

/// Lifetime of a token that outlives its test.
const LIFE: Duration = Duration::from_secs(600);
/// Lifetime of a token whose end a test waits for: a busy machine needs less to take it.
pub(super) const SHORT_LIFE: Duration = Duration::from_secs(6);
pub(super) const SECRET: &[u8] = b"thirty-two bytes for a test key.";

pub(super) struct World {
    address: SocketAddr,
    pub(super) server: Arc<Server>,
    alive: watch::Receiver<usize>,
    stop: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

impl World {
    pub(super) async fn start() -> Self {
        Self::with(ServerBounds::default()).await
    }

    pub(super) async fn with(bounds: ServerBounds) -> Self {
        Self::with_doors(bounds, |server| server).await
    }

    /// Only the documents of this list are run.
    pub(super) async fn trusting(list: &Value) -> Self {
        let list = TrustedDocuments::parse(list.to_string().as_bytes()).unwrap();
        Self::with_doors(ServerBounds::default(), |server| server.with_trusted(list)).await
    }

    async fn with_doors(bounds: ServerBounds, fit: impl FnOnce(Server) -> Server) -> Self {
        let (alive, watched) = watch::channel(0);
        let api = Arc::new(TestApi::new(Arc::new(alive)));
        let server = Arc::new(fit(Server::new(
            api,
            Arc::new(Auth::with_secret(SECRET)),
            Arc::new(SystemClock),
            bounds,
        )));
        let listener = server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server::run(
            listener,
            Arc::clone(&server),
            Router::new(),
            stop.clone().cancelled_owned(),
        ));
        Self {
            address,
            server,
            alive: watched,
            stop,
            serving,
        }
    }

    pub(super) fn token(&self, name: &str, ttl: Duration) -> String {
        issue(SECRET, name, ttl)
    }

    /// A token with the scope of a service.
    pub(super) fn service_token(&self, name: &str) -> String {
        self.scoped_token(name, ServiceRights::ALL)
    }

    pub(super) fn scoped_token(&self, name: &str, rights: ServiceRights) -> String {
        let service = UserId::parse(name).unwrap();
        Auth::with_secret(SECRET).issue_service(&service, rights, LIFE, SystemClock.now())
    }

    pub(super) fn forged(&self) -> String {
        issue(
            b"another key of thirty-two bytes.",
            "mallory",
            Duration::from_secs(60),
        )
    }

    pub(super) fn expired(&self) -> String {
        let past = SystemClock.now().plus_micros(-3_600_000_000);
        Auth::with_secret(SECRET).issue(
            &UserId::parse("alice").unwrap(),
            Duration::from_secs(60),
            past,
        )
    }

    /// Waits until so many of `forever`, `flood` and `slow` live.
    pub(super) async fn alive(&self, count: usize) {
        soon(self.alive.clone().wait_for(|alive| *alive == count))
            .await
            .unwrap();
    }

    pub(super) fn stop(&self) {
        self.stop.cancel();
    }

    pub(super) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub(super) async fn stopped(self) {
        soon(self.serving).await.unwrap().unwrap();
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/graphql", self.address)
    }

    pub(super) async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// One HTTP request, whose answer is still to be read.
    pub(super) async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response<Incoming> {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(self.tcp().await))
                .await
                .unwrap();
        tokio::spawn(connection);
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        soon(
            sender.send_request(
                request
                    .body(Full::new(Bytes::copy_from_slice(body)))
                    .unwrap(),
            ),
        )
        .await
        .unwrap()
    }

    /// One HTTP request: its status, headers and JSON.
    pub(super) async fn http(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        client::http(self.address, method, path, headers, body).await
    }

    pub(super) async fn post(&self, body: &Value) -> Reply {
        self.http(
            "POST",
            "/graphql",
            &[("content-type", "application/json")],
            body.to_string().as_bytes(),
        )
        .await
    }

    pub(super) async fn get(&self, query: &str) -> Reply {
        self.http("GET", &format!("/graphql?{query}"), &[], b"")
            .await
    }

    /// A socket that has not said anything yet.
    pub(super) async fn socket(&self) -> Socket {
        self.socket_of(Some("graphql-transport-ws")).await
    }

    pub(super) async fn socket_of(&self, subprotocol: Option<&str>) -> Socket {
        Socket(self.try_socket(subprotocol).await.unwrap())
    }

    pub(super) async fn try_socket(
        &self,
        subprotocol: Option<&str>,
    ) -> Result<WebSocket, tungstenite::Error> {
        client::try_socket(self.address, subprotocol).await
    }

    /// A socket as a browser or a proxy asks for one; or the status of the refusal, its code and its headers.
    pub(super) async fn socket_with(
        &self,
        headers: &[(&'static str, &str)],
    ) -> Result<Socket, Refusal> {
        let headers = [
            &[("sec-websocket-protocol", "graphql-transport-ws")],
            headers,
        ]
        .concat();
        match client::try_socket_with(self.address, &headers).await {
            Ok(socket) => Ok(Socket(socket)),
            Err(tungstenite::Error::Http(response)) => {
                let body: Value =
                    serde_json::from_slice(response.body().as_deref().unwrap()).unwrap();
                let error = body["errors"][0]["extensions"].clone();
                Err(Refusal {
                    status: response.status().as_u16(),
                    error,
                })
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    /// The same at a path of its own, where it must be opened.
    pub(super) async fn socket_at(&self, path: &str, headers: &[(&'static str, &str)]) -> Socket {
        let protocol = [("sec-websocket-protocol", "graphql-transport-ws")];
        let headers = [&protocol, headers].concat();
        let opened = client::try_socket_at(self.address, path, &headers).await;
        Socket(opened.unwrap())
    }

    /// A socket of alice's, after `connection_ack`.
    pub(super) async fn open(&self) -> Socket {
        let mut socket = self.socket().await;
        socket.init(Some(&self.token("alice", LIFE))).await;
        socket
    }
}

/// Why a socket was not opened.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) error: Value,
}

fn issue(secret: &[u8], name: &str, ttl: Duration) -> String {
    Auth::with_secret(secret).issue(&UserId::parse(name).unwrap(), ttl, SystemClock.now())
}
