//! The operators' door of a running server: where it is, and what it asks: whether the server lives, whether it is ready, and a copy of its store.

use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use axum::body::Bytes;
use futures_util::StreamExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Error;
use super::stop::Stop;
use crate::auth::{Auth, BACKUP_AUDIENCE, TokenRules};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::server;
use crate::server::admin::{self, Admin, NoBackup, Operated, Pieces};
use crate::store::embedded::Embedded;
use crate::store::{self, NOTE_IMPORTED_AT, Store};

/// Admin listener: metrics, health and backups for the operators of a server.
pub(super) struct Operators {
    pub(super) running: Arc<Running>,
    pub(super) metrics: Metrics,
    /// Whether somebody asked for the address.
    pub(super) is_given: bool,
}

impl Operators {
    /// Listens for them. The usual address may be another server's already, and nobody asked for it: then this one goes without.
    pub(super) fn listen(&self, config: &Config) -> Result<Option<TcpListener>, Error> {
        let Some(address) = config.admin_listen else {
            return Ok(None);
        };
        match server::listen(address) {
            Ok(listener) => Ok(Some(listener)),
            Err(error) if !self.is_given => {
                tracing::warn!(%address, %error, "the admin address is in use: metrics, health and backups are off. Set --admin-listen to another address, or to `off`");
                Ok(None)
            }
            Err(source) => Err(Error::AdminListen { address, source }),
        }
    }

    /// Serves them until the token is cancelled.
    pub(super) fn serve(
        self,
        listener: TcpListener,
        data: &Path,
        over: CancellationToken,
    ) -> Result<JoinHandle<()>, Error> {
        let rules = TokenRules {
            audience: Some(BACKUP_AUDIENCE.to_owned()),
            ..TokenRules::default()
        };
        let auth = Auth::open(data)?.with_rules(rules)?;
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, "the server listens for metrics, health and backups");
        }
        Ok(tokio::spawn(admin::run(
            listener,
            Admin {
                operated: self.running,
                metrics: self.metrics,
                auth,
            },
            over,
        )))
    }
}

pub(super) struct Running {
    pub(super) store: Arc<dyn Store>,
    /// The same, where it is in this process.
    pub(super) embedded: Option<Arc<Embedded>>,
    /// Verifies tokens of the public listener.
    pub(super) auth: Arc<Auth>,
    pub(super) stop: Stop,
}

#[async_trait]
impl Operated for Running {
    fn alive(&self) -> Result<(), String> {
        self.embedded
            .as_ref()
            .and_then(|store| store.failure())
            .map_or(Ok(()), Err)
    }

    async fn ready(&self) -> Result<(), String> {
        if self.stop.is_cancelled() {
            return Err("the server is stopping".to_owned());
        }
        self.store.health()?;
        // Something that every store has to look up.
        self.store
            .note(NOTE_IMPORTED_AT)
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn warning(&self) -> Option<String> {
        self.auth
            .key_fault()
            .map(|fault| format!("{fault}; tokens are checked by the keys from before"))
    }

    fn backup(&self) -> Result<Pieces, NoBackup> {
        let store = self.embedded.as_ref().ok_or(NoBackup::OnCluster)?;
        let pieces = store.copy().ok_or(NoBackup::UnderWay)?;
        let piece = |piece: store::Result<Vec<u8>>| match piece {
            Ok(piece) => Ok(Bytes::from(piece)),
            Err(error) => {
                tracing::error!(%error, "a backup failed; run it again");
                Err(io::Error::other(error.to_string()))
            }
        };
        Ok(pieces.map(piece).boxed())
    }
}
