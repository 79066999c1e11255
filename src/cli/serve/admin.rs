//! Admin listener of a running server, and the health, readiness and backup that it serves.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::body::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::auth::{Auth, BACKUP_AUDIENCE, TokenRules};
use crate::chat::Chat;
use crate::cli::admin_client::write_address;
use crate::cli::error::Error;
use crate::cli::signals::Stop;
use crate::config::Config;
use crate::metrics::Metrics;
use crate::server;
use crate::server::admin::{self, AdminBackend, AdminContext, BackupRefusal, BackupStream};
use crate::store;
use crate::webhook::Webhooks;

use super::store_opening::ServedStore;

/// Answer before the chat and the webhooks are open.
pub(super) const STARTING: &str = "the server is starting: try again";

/// AdminContext listener: metrics, health and backups for the operators of a server.
pub(super) struct AdminListener {
    pub(super) running: Arc<RunningServer>,
    pub(super) metrics: Metrics,
    /// Whether the operator set the address.
    pub(super) is_given: bool,
}

impl AdminListener {
    /// Binds the admin address, and serves until the token is cancelled.
    pub(super) fn start(
        self,
        config: &Config,
        end: CancellationToken,
    ) -> Result<Option<RunningAdmin>, Error> {
        let Some(listener) = self.bind(config)? else {
            return Ok(None);
        };
        let address = listener.local_addr().ok();
        let rules = TokenRules {
            audience: Some(BACKUP_AUDIENCE.to_owned()),
            ..TokenRules::default()
        };
        let auth = Auth::open(&config.data)?.with_rules(rules)?;
        if let Some(address) = address {
            tracing::info!(%address, "the server listens for metrics, health and backups");
        }
        let context = AdminContext {
            backend: self.running,
            metrics: self.metrics,
            auth,
        };
        let task = tokio::spawn(admin::run(listener, context, end));
        Ok(Some(RunningAdmin { address, task }))
    }

    /// Binds the admin address. If another server has the default address, this one runs without.
    fn bind(&self, config: &Config) -> Result<Option<TcpListener>, Error> {
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
}

/// Admin listener that serves.
pub(super) struct RunningAdmin {
    pub(super) address: Option<SocketAddr>,
    /// Ends with the token.
    pub(super) task: JoinHandle<()>,
}

/// Notes the admin address in the data folder, where `wideroom health` finds it. A folder with a store belongs to the server
/// that has opened it.
pub(super) fn note_address(config: &Config, address: Option<SocketAddr>) {
    if let Err(error) = write_address(&config.data, address) {
        // An embedded store that cannot write its folder ends the start with a line of its own.
        tracing::info!(%error, "the server failed to note its admin address in the data folder: `wideroom health` does not find it");
    }
}

pub(super) struct RunningServer {
    /// Empty until the store is open.
    pub(super) store: OnceLock<ServedStore>,
    /// Reason why the server has not started yet.
    pub(super) waits_for: Mutex<String>,
    /// Verifies tokens of the public listener.
    pub(super) auth: Arc<Auth>,
    /// Empty until the chat is open.
    pub(super) chat: OnceLock<Chat>,
    /// Empty until the server listens, after the webhooks are open.
    pub(super) webhooks: OnceLock<Arc<Webhooks>>,
    pub(super) stop: Stop,
}

impl RunningServer {
    pub(super) fn new(auth: Arc<Auth>, stop: Stop) -> Self {
        Self {
            store: OnceLock::new(),
            waits_for: Mutex::new(STARTING.to_owned()),
            auth,
            chat: OnceLock::new(),
            webhooks: OnceLock::new(),
            stop,
        }
    }
}

impl AdminBackend for RunningServer {
    fn alive(&self) -> Result<(), String> {
        self.store
            .get()
            .and_then(|store| store.embedded.as_ref()?.failure())
            .map_or(Ok(()), Err)
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async move {
            if self.stop.is_cancelled() {
                return Err("the server is stopping".to_owned());
            }
            let Some(store) = self.store.get() else {
                return Err(self.waits_for.lock().clone());
            };
            if let Some(missing) = self.auth.missing_keys() {
                return Err(missing);
            }
            store.store.health()?;
            let (Some(chat), Some(_)) = (self.chat.get(), self.webhooks.get()) else {
                return Err(self.waits_for.lock().clone());
            };
            chat.health()?;
            store.answers().await.map_err(|error| error.to_string())
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
        let store = self.store.get().ok_or(BackupRefusal::Starting)?;
        let store = store.embedded.as_ref().ok_or(BackupRefusal::OnCluster)?;
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
