//! WebSocket of one user, over `graphql-transport-ws`. Payloads stay unparsed text, because a run receives very many of them.

use std::future::Future;
use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::document::Document;
use super::target::{LoadTarget, WAIT_MAX};
use crate::load::failure::Failure;

/// Small, because a run opens many sockets. The library's default allocates 128 KiB for each.
const BUFFER_BYTES: usize = 4 * 1024;
/// The server serialises the type of a message first.
const NEXT: &str = r#"{"type":"next""#;
const PING: &str = r#"{"type":"ping""#;
const PONG: &str = r#"{"type":"pong""#;
const ACK: &str = r#"{"type":"connection_ack""#;
const ERROR: &str = r#"{"type":"error""#;

pub struct LoadSocket {
    stream: WebSocketStream<TcpStream>,
}

impl LoadSocket {
    /// Connects and authenticates.
    pub async fn open(target: &Arc<LoadTarget>, user: &str) -> Result<Self, Failure> {
        let stream = target.connect().await?;
        let url = format!("ws://{}/graphql/ws", target.host());
        let mut request = url.into_client_request().map_err(failure)?;
        request.headers_mut().insert(
            "sec-websocket-protocol",
            HeaderValue::from_static("graphql-transport-ws"),
        );
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES);
        let handshake =
            with_deadline(client_async_with_config(request, stream, Some(config))).await?;
        let mut socket = Self {
            stream: handshake.map_err(failure)?.0,
        };
        let payload = json!({"Authorization": target.authorization(user)});
        socket
            .send(json!({"type": "connection_init", "payload": payload}).to_string())
            .await?;
        socket.wait_for(ACK).await?;
        Ok(socket)
    }

    /// Subscribes under an id that contains `number`, as unique as the ids of real clients.
    pub async fn subscribe(
        &mut self,
        number: usize,
        document: &Document,
        variables: &serde_json::Value,
    ) -> Result<(), Failure> {
        let id = format!("6f1c2b7e-0000-4000-8000-{number:012}");
        self.send(format!(
            r#"{{"type":"subscribe","id":"{id}","payload":{}}}"#,
            document.request_text(variables)
        ))
        .await
    }

    /// Next payload of a subscription. It has no deadline, because subscriptions may be silent.
    pub async fn next_payload(&mut self) -> Result<Utf8Bytes, Failure> {
        self.receive(NEXT).await
    }

    /// Sends a ping and waits for its pong, which proves that the server has read all earlier messages. A payload before the pong fails.
    pub(crate) async fn ping(&mut self) -> Result<(), Failure> {
        self.send(r#"{"type":"ping"}"#.to_owned()).await?;
        self.wait_for(PONG).await
    }

    async fn wait_for(&mut self, kind: &str) -> Result<(), Failure> {
        with_deadline(self.receive(kind)).await?.map(drop)
    }

    async fn send(&mut self, text: String) -> Result<(), Failure> {
        with_deadline(self.stream.send(Message::text(text)))
            .await?
            .map_err(failure)
    }

    /// Next message of this type. Answers pings on the way, and fails on errors.
    async fn receive(&mut self, kind: &str) -> Result<Utf8Bytes, Failure> {
        loop {
            let Some(message) = self.stream.next().await else {
                return Err(Failure::Disconnected("the stream ended".to_owned()));
            };
            match message.map_err(failure)? {
                Message::Text(text) if text.starts_with(kind) => return Ok(text),
                Message::Text(text) if text.starts_with(PING) => {
                    self.send(r#"{"type":"pong"}"#.to_owned()).await?
                }
                Message::Text(text) if text.starts_with(ERROR) => {
                    return Err(Failure::from_subscription_error(&text));
                }
                Message::Text(text) if text.starts_with(NEXT) => {
                    return Err(Failure::unexpected_message());
                }
                Message::Text(text) => {
                    return Err(Failure::Unexpected(text.chars().take(100).collect()));
                }
                Message::Close(frame) => return Err(Failure::from_close(frame)),
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

async fn with_deadline<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    timeout(WAIT_MAX, work).await.map_err(|_| Failure::Timeout)
}

fn failure(error: tungstenite::Error) -> Failure {
    if let tungstenite::Error::Http(response) = error {
        let (head, body) = response.into_parts();
        return Failure::from_answer(head.status.as_u16(), &body.unwrap_or_default());
    }
    Failure::Disconnected(error.to_string())
}
