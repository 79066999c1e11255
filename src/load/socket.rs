//! One user on one WebSocket, in the words of `graphql-transport-ws`. What is told is not taken apart here: there is much of it.

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
use super::failure::Failure;
use super::target::{Target, WAIT_MAX};

/// Small, because there are many sockets: the library would take 128 KiB for each, at once.
const BUFFER_BYTES: usize = 4 * 1024;
/// The type stands first in what this server says.
const NEXT: &str = r#"{"type":"next""#;
const PING: &str = r#"{"type":"ping""#;
const PONG: &str = r#"{"type":"pong""#;
const ACK: &str = r#"{"type":"connection_ack""#;
const ERROR: &str = r#"{"type":"error""#;

pub(super) struct Socket {
    stream: WebSocketStream<TcpStream>,
}

impl Socket {
    /// Open, and let in.
    pub(super) async fn open(target: &Arc<Target>, user: &str) -> Result<Self, Failure> {
        let stream = target.connect().await?;
        let url = format!("ws://{}/graphql/ws", target.host());
        let mut request = url.into_client_request().map_err(failure)?;
        request.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static("graphql-transport-ws"));
        let config = WebSocketConfig::default().read_buffer_size(BUFFER_BYTES).write_buffer_size(BUFFER_BYTES);
        let opened = in_time(client_async_with_config(request, stream, Some(config))).await?;
        let mut socket = Self { stream: opened.map_err(failure)?.0 };
        let payload = json!({"Authorization": target.authorization(user)});
        socket.say(json!({"type": "connection_init", "payload": payload}).to_string()).await?;
        socket.wait_for(ACK).await?;
        Ok(socket)
    }

    /// Each has an id of its own, as clients do.
    pub(super) async fn subscribe(&mut self, number: usize, document: &Document, variables: &serde_json::Value) -> Result<(), Failure> {
        let id = format!("6f1c2b7e-0000-4000-8000-{number:012}");
        self.say(format!(r#"{{"type":"subscribe","id":"{id}","payload":{}}}"#, document.text(variables))).await
    }

    /// The next that a subscription tells, for which there is no deadline.
    pub(super) async fn told(&mut self) -> Result<Utf8Bytes, Failure> {
        self.hear(NEXT).await
    }

    /// Until the server has read everything that was said. Nothing may be told before its answer.
    pub(super) async fn echo(&mut self) -> Result<(), Failure> {
        self.say(r#"{"type":"ping"}"#.to_owned()).await?;
        self.wait_for(PONG).await
    }

    async fn wait_for(&mut self, kind: &str) -> Result<(), Failure> {
        in_time(self.hear(kind)).await?.map(drop)
    }

    async fn say(&mut self, text: String) -> Result<(), Failure> {
        in_time(self.stream.send(Message::text(text))).await?.map_err(failure)
    }

    /// The next of this kind. Pings are answered, and an error is one.
    async fn hear(&mut self, kind: &str) -> Result<Utf8Bytes, Failure> {
        loop {
            let Some(message) = self.stream.next().await else { return Err(Failure::Cut("it ended".to_owned())) };
            match message.map_err(failure)? {
                Message::Text(text) if text.starts_with(kind) => return Ok(text),
                Message::Text(text) if text.starts_with(PING) => self.say(r#"{"type":"pong"}"#.to_owned()).await?,
                Message::Text(text) if text.starts_with(ERROR) => return Err(Failure::of_subscription(&text)),
                Message::Text(text) if text.starts_with(NEXT) => return Err(Failure::stray()),
                Message::Text(text) => return Err(Failure::Foreign(text.chars().take(100).collect())),
                Message::Close(frame) => return Err(Failure::of_close(frame)),
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

async fn in_time<T>(what: impl Future<Output = T>) -> Result<T, Failure> {
    timeout(WAIT_MAX, what).await.map_err(|_| Failure::Late)
}

fn failure(error: tungstenite::Error) -> Failure {
    if let tungstenite::Error::Http(response) = error {
        let (head, body) = response.into_parts();
        return Failure::of_answer(head.status.as_u16(), &body.unwrap_or_default());
    }
    Failure::Cut(error.to_string())
}
