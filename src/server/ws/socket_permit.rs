//! Permit of one WebSocket. Its bytes have a budget: one until `connection_init` is accepted, then one for each message.
//! Until a viewer is known the socket can be evicted for another.

use std::sync::Arc;

use axum::extract::ws::Message;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::protocol::Close;
use crate::server::connection::{ConnectionState, Evicted, Permit};

pub(super) struct SocketPermit {
    pub(super) permit: Permit,
    /// `None` in a test of the router without a connection.
    pub(super) connection: Option<Arc<ConnectionState>>,
}

impl SocketPermit {
    /// Sets the budget of each message, after `connection_init`.
    pub(super) fn accept(&self, message_budget: usize) {
        if let Some(connection) = &self.connection {
            connection.admit(message_budget);
        }
    }

    /// Accounts for a frame that the library hands over: a control frame, or a complete message.
    pub(super) fn read(&self, message: &Message) {
        let Some(connection) = &self.connection else {
            return;
        };
        match message {
            Message::Ping(payload) | Message::Pong(payload) => {
                connection.end_control_frame(payload.len());
            }
            Message::Text(_) | Message::Binary(_) | Message::Close(_) => connection.end_message(),
        }
    }

    /// Whether a message has begun and has not ended.
    pub(super) fn is_in_message(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.is_in_message())
    }

    /// Whether the client has sent bytes since the last call.
    pub(super) fn take_heard(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.take_heard())
    }

    /// Protects a socket with a viewer from eviction. Fails if the eviction came first.
    pub(super) fn admit(&self) -> Result<(), Close> {
        self.permit.set_busy().map_err(|Evicted| Close::EVICTED)
    }

    /// Whether the client has exhausted the budget of its bytes.
    pub(super) fn is_over_budget(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.is_over_budget())
    }

    /// Ready when a socket without a viewer must make room for another.
    pub(super) fn eviction(&self) -> BoxFuture<'static, ()> {
        let eviction = self.permit.eviction();
        async move { eviction.notified().await }.boxed()
    }
}
