//! The admission of a socket: until a viewer is known it has a budget of bytes, and makes room for others where sockets are short.

use std::future::pending;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::protocol::Close;
use crate::server::permits::{Evicted, Permit};
use crate::server::phase::ConnectionPhase;

pub(super) struct Admission {
    pub(super) permit: Permit,
    /// `None`: there is no connection below it, as in a test of the router alone.
    pub(super) phase: Option<Arc<ConnectionPhase>>,
}

impl Admission {
    /// `connection_init` was accepted: messages have their own bound from now on.
    pub(super) fn accept(&self) {
        if let Some(phase) = &self.phase {
            phase.admit();
        }
    }

    /// A viewer is known: the socket is not evicted any more. Fails where that came first.
    pub(super) fn admit(&self) -> Result<(), Close> {
        self.permit.busy().map_err(|Evicted| Close::evicted())
    }

    /// Ready when a socket without a viewer is to be closed, with the reason.
    pub(super) fn end(&self, init_bytes: usize) -> BoxFuture<'static, Close> {
        let eviction = self.permit.eviction();
        let over_budget = self.phase.as_ref().map(|phase| phase.over_budget());
        let over_budget = async move {
            match over_budget {
                Some(over_budget) => over_budget.notified().await,
                None => pending().await,
            }
        };
        let end = async move {
            tokio::select! {
                () = eviction.notified() => Close::evicted(),
                () = over_budget => Close::too_much_before_init(init_bytes),
            }
        };
        end.boxed()
    }
}
