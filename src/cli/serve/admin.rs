//! Admin listener of a running server, and the health, readiness and backup that it serves.

use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::auth::{Auth, BACKUP_AUDIENCE, TokenRules};
use crate::chat::Chat;
use crate::cli::error::Error;
use crate::cli::signals::Stop;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::server;
use crate::server::admin::{self, AdminBackend, AdminContext, BackupRefusal, BackupStream};
use crate::store::embedded::Embedded;
use crate::store::{self, Store};
use crate::webhook::Webhooks;

/// Answer before the webhooks are open.
const STARTING: &str = "the server is starting: try again";

/// AdminContext listener: metrics, health and backups for the operators of a server.
pub(super) struct AdminListener {
    pub(super) running: Arc<RunningServer>,
    pub(super) metrics: Metrics,
    /// Whether the operator set the address.
    pub(super) is_given: bool,
}

impl AdminListener {
    /// Binds the admin address. If another server has the default address, this one runs without.
    pub(super) fn bind(&self, config: &Config) -> Result<Option<TcpListener>, Error> {
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

    /// Serves until the token is cancelled.
    pub(super) fn serve(
        self,
        listener: TcpListener,
        data: &Path,
        end: CancellationToken,
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
            AdminContext {
                backend: self.running,
                metrics: self.metrics,
                auth,
            },
            end,
        )))
    }
}

pub(super) struct RunningServer {
    pub(super) store: Arc<dyn Store>,
    /// Same store, if it is embedded in this process.
    pub(super) embedded: Option<Arc<Embedded>>,
    /// Verifies tokens of the public listener.
    pub(super) auth: Arc<Auth>,
    /// Empty until the chat is open. The listener serves from then on.
    pub(super) chat: OnceLock<Chat>,
    /// Empty until the webhooks are open.
    pub(super) webhooks: OnceLock<Arc<Webhooks>>,
    pub(super) stop: Stop,
}

impl AdminBackend for RunningServer {
    fn alive(&self) -> Result<(), String> {
        self.embedded
            .as_ref()
            .and_then(|store| store.failure())
            .map_or(Ok(()), Err)
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            if self.stop.is_cancelled() {
                return Err("the server is stopping".to_owned());
            }
            self.store.health()?;
            if let Some(chat) = self.chat.get() {
                chat.health()?;
            }
            // A read that every store must look up.
            self.store
                .imported_at()
                .await
                .map(drop)
                .map_err(|error| error.to_string())
        })
    }

    fn warning(&self) -> Option<String> {
        self.auth
            .key_fault()
            .map(|fault| format!("{fault}; the server verifies tokens with the previous keys"))
    }

    fn webhooks(&self) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move {
            let webhooks = self.webhooks.get().ok_or(STARTING)?;
            webhooks.list().await.map_err(|error| error.to_string())
        })
    }

    fn redeliver<'a>(
        &'a self,
        webhook: &'a str,
        event: Option<&'a str>,
    ) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move {
            let webhooks = self.webhooks.get().ok_or(STARTING)?;
            let answer = webhooks.redeliver(webhook, event).await;
            answer
                .ok_or("this server has no webhook of this name")?
                .map_err(|error| error.to_string())
        })
    }

    fn backup(&self) -> Result<BackupStream, BackupRefusal> {
        let store = self.embedded.as_ref().ok_or(BackupRefusal::OnCluster)?;
        let chunks = store.copy().ok_or(BackupRefusal::UnderWay)?;
        let chunk = |chunk: store::Result<Vec<u8>>| match chunk {
            Ok(chunk) => Ok(Bytes::from(chunk)),
            Err(error) => {
                tracing::error!(%error, "a backup failed; run it again");
                Err(io::Error::other(error.to_string()))
            }
        };
        Ok(chunks.map(chunk).boxed())
    }
}
