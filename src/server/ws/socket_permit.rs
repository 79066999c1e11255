//! Permit of one WebSocket. Until a viewer is known the socket has a byte budget and can be evicted for another.

use std::future::pending;
use std::sync::Arc;

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
    /// Lifts the byte budget after `connection_init`: the bound of messages applies from now on.
    pub(super) fn accept(&self) {
        if let Some(connection) = &self.connection {
            connection.admit();
        }
    }

    /// Protects a socket with a viewer from eviction. Fails if the eviction came first.
    pub(super) fn admit(&self) -> Result<(), Close> {
        self.permit.set_busy().map_err(|Evicted| Close::evicted())
    }

    /// Ready when a socket without a viewer must close, with the reason.
    pub(super) fn eviction(&self, init_bytes: usize) -> BoxFuture<'static, Close> {
        let eviction = self.permit.eviction();
        let over_budget = self
            .connection
            .as_ref()
            .map(|connection| connection.over_budget());
        let over_budget = async move {
            match over_budget {
                Some(over_budget) => over_budget.notified().await,
                None => pending().await,
            }
        };
        let close = async move {
            tokio::select! {
                () = eviction.notified() => Close::evicted(),
                () = over_budget => Close::too_much_before_init(init_bytes),
            }
        };
        close.boxed()
    }
}
