//! Clients of a server: over HTTP, and over a WebSocket.

use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{HeaderMap, HeaderName};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::world::PATIENCE;

pub(crate) type WebSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Awaits a future under the deadline that all tests share.
pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what)
        .await
        .expect("it happens in time")
}

/// One HTTP request on a connection of its own: its status, headers and JSON.
pub(crate) async fn http(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let mut connection = connect(address).await.unwrap();
    exchange(&mut connection, method, path, headers, body)
        .await
        .unwrap()
}

type Connection = SendRequest<Full<Bytes>>;

/// The connection is gone: whether the request was done, nobody knows.
#[derive(Debug)]
pub(crate) struct Cut;

async fn connect(address: SocketAddr) -> Result<Connection, Cut> {
    let stream = soon(TcpStream::connect(address)).await.map_err(|_| Cut)?;
    stream.set_nodelay(true).map_err(|_| Cut)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Cut)?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn exchange(
    connection: &mut Connection,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Result<Reply, Cut> {
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost");
    // With this header the server answers errors with an HTTP status.
    if headers.iter().all(|(name, _)| *name != "accept") {
        request = request.header("accept", "application/graphql-response+json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    soon(connection.ready()).await.map_err(|_| Cut)?;
    let request = request
        .body(Full::new(Bytes::copy_from_slice(body)))
        .unwrap();
    let response = soon(connection.send_request(request))
        .await
        .map_err(|_| Cut)?;
    let (head, body) = response.into_parts();
    let bytes = soon(body.collect()).await.map_err(|_| Cut)?.to_bytes();
    Ok(Reply {
        status: head.status.as_u16(),
        headers: head.headers,
        body: serde_json::from_slice(&bytes).unwrap(),
    })
}

/// A user over HTTP, on one connection.
pub(crate) struct Caller {
    connection: Connection,
    authorization: String,
}

impl Caller {
    pub(crate) async fn connect(address: SocketAddr, token: &str) -> Result<Self, Cut> {
        Ok(Self {
            connection: connect(address).await?,
            authorization: format!("Bearer {token}"),
        })
    }

    pub(crate) async fn ask(&mut self, document: &str, variables: &Value) -> Result<Reply, Cut> {
        self.post(
            json!({ "query": document, "variables": variables })
                .to_string()
                .as_bytes(),
        )
        .await
    }

    /// Asks as a service for a user.
    pub(crate) async fn ask_as(
        &mut self,
        user: &str,
        document: &str,
        variables: &Value,
    ) -> Result<Reply, Cut> {
        let body = json!({ "query": document, "variables": variables }).to_string();
        let headers = [
            ("content-type", "application/json"),
            ("authorization", self.authorization.as_str()),
            ("wideroom-as", user),
        ];
        let path = "/graphql";
        exchange(
            &mut self.connection,
            "POST",
            path,
            &headers,
            body.as_bytes(),
        )
        .await
    }

    /// Any body, said to be JSON.
    pub(crate) async fn post(&mut self, body: &[u8]) -> Result<Reply, Cut> {
        let headers = [
            ("content-type", "application/json"),
            ("authorization", self.authorization.as_str()),
        ];
        exchange(&mut self.connection, "POST", "/graphql", &headers, body).await
    }

    /// The data of an answer without errors.
    pub(crate) async fn data(&mut self, document: &str, variables: &Value) -> Result<Value, Cut> {
        let reply = self.ask(document, variables).await?;
        Ok(reply.into_data(variables))
    }

    /// The same from a cluster that may be too busy, which is asked until it answers: for what may be done twice.
    pub(crate) async fn data_at_last(
        &mut self,
        document: &str,
        variables: &Value,
    ) -> Result<Value, Cut> {
        let answered = async {
            loop {
                let reply = self.ask(document, variables).await?;
                if reply.code() != "UNAVAILABLE" {
                    return Ok(reply.into_data(variables));
                }
            }
        };
        soon(answered).await
    }
}

pub(crate) async fn try_socket(
    address: SocketAddr,
    subprotocol: Option<&str>,
) -> Result<WebSocket, tungstenite::Error> {
    let headers: Vec<_> = subprotocol
        .map(|subprotocol| ("sec-websocket-protocol", subprotocol))
        .into_iter()
        .collect();
    try_socket_with(address, &headers).await
}

pub(crate) async fn try_socket_with(
    address: SocketAddr,
    headers: &[(&'static str, &str)],
) -> Result<WebSocket, tungstenite::Error> {
    try_socket_at(address, "/graphql/ws", headers).await
}

pub(crate) async fn try_socket_at(
    address: SocketAddr,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<WebSocket, tungstenite::Error> {
    let mut request = format!("ws://{address}{path}")
        .into_client_request()
        .unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    soon(tokio_tungstenite::connect_async(request))
        .await
        .map(|(socket, _)| socket)
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: HeaderMap,
    pub(crate) body: Value,
}

impl Reply {
    fn into_data(mut self, variables: &Value) -> Value {
        assert!(
            self.body.get("errors").is_none(),
            "{} for {variables}",
            self.body
        );
        self.body["data"].take()
    }

    pub(crate) fn header(&self, name: &'static str) -> &str {
        self.headers
            .get(HeaderName::from_static(name))
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn outcome(&self) -> &str {
        self.body["errors"][0]["extensions"]["outcome"]
            .as_str()
            .unwrap_or_default()
    }

    pub(crate) fn code(&self) -> &str {
        self.body["errors"][0]["extensions"]["code"]
            .as_str()
            .unwrap_or_default()
    }

    pub(crate) fn message(&self) -> &str {
        self.body["errors"][0]["message"]
            .as_str()
            .unwrap_or_default()
    }
}

/// The client's end of a WebSocket.
pub(crate) struct Socket(pub(crate) WebSocket);

impl Socket {
    /// Knocks, and is let in.
    pub(crate) async fn connect(address: SocketAddr, token: &str) -> Self {
        let mut socket = Self(
            try_socket(address, Some("graphql-transport-ws"))
                .await
                .unwrap(),
        );
        socket.init(Some(token)).await;
        socket
    }

    /// Introduces itself, and waits to be let in.
    pub(crate) async fn init(&mut self, token: Option<&str>) {
        let payload = token.map(|token| json!({ "Authorization": format!("Bearer {token}") }));
        self.say(&json!({ "type": "connection_init", "payload": payload }))
            .await;
        assert_eq!(self.hear().await, json!({ "type": "connection_ack" }));
    }

    pub(crate) async fn say(&mut self, message: &Value) {
        self.send(Message::text(message.to_string())).await;
    }

    pub(crate) async fn send(&mut self, message: Message) {
        soon(self.0.send(message)).await.unwrap();
    }

    pub(crate) async fn subscribe(&mut self, id: &str, query: &str) {
        self.say(&json!({ "type": "subscribe", "id": id, "payload": { "query": query } }))
            .await;
    }

    /// The next message. Nothing else may come, except pings.
    pub(crate) async fn hear(&mut self) -> Value {
        loop {
            let message = soon(self.0.next()).await.unwrap().unwrap();
            if message.is_ping() {
                continue;
            }
            let Message::Text(text) = message else {
                panic!("{message:?}")
            };
            return serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        }
    }

    /// The next frame, which is a ping. The library answers it as it reads on.
    pub(crate) async fn pinged(&mut self) {
        let frame = soon(self.0.next()).await.unwrap().unwrap();
        assert!(matches!(&frame, Message::Ping(_)), "{frame:?}");
    }

    /// Next payload of the operation with this id. Skips payloads of other operations.
    pub(crate) async fn told(&mut self, id: &str) -> Value {
        loop {
            let mut heard = self.hear().await;
            match heard["type"].as_str() {
                Some("next") if heard["id"] == id => return heard["payload"]["data"].take(),
                Some("next") => {}
                _ => panic!("{heard}"),
            }
        }
    }

    /// The next message, or `None` where the socket is closed instead.
    pub(crate) async fn hear_or_close(&mut self) -> Option<Value> {
        loop {
            match soon(self.0.next()).await {
                Some(Ok(Message::Ping(_))) => {}
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                _ => return None,
            }
        }
    }

    /// The close that comes, after whatever else: its code and reason.
    pub(crate) async fn closed(&mut self) -> (u16, String) {
        loop {
            match soon(self.0.next()).await {
                Some(Ok(Message::Close(Some(frame)))) => {
                    return (frame.code.into(), frame.reason.to_string());
                }
                Some(Ok(_)) => {}
                other => panic!("no closing frame, but {other:?}"),
            }
        }
    }

    /// Waits until the connection is gone, with or without a word.
    pub(crate) async fn gone(&mut self) {
        while let Some(Ok(_)) = soon(self.0.next()).await {}
    }
}
