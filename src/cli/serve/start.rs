//! Steps of a server's start between the opening of its store and its first request. Each waits for a store that is away.

use std::path::Path;
use std::sync::Arc;

use super::admin::RunningServer;
use super::sample;
use super::store_opening::StoreWait;
use crate::auth::Auth;
use crate::auth::exposure::{self, ExposedPath};
use crate::bus::Bus;
use crate::chat::{self, Chat, SendHook};
use crate::cli::error::Error;
use crate::clock::Clock;
use crate::config::{Config, StoreChoice};
use crate::graphql::{Api, OperationExecutor};
use crate::metrics::Metrics;
use crate::server::{Server, TrustedDocuments};
use crate::store::StoreAdmin;
use crate::webhook::{RetryPolicy, Webhooks};

/// Parts of a server that is ready to listen.
pub(super) struct Started {
    pub(super) chat: Chat,
    pub(super) server: Arc<Server>,
    pub(super) webhooks: Arc<Webhooks>,
}

/// Opens all parts of a server over its store. `None`: the server is to stop, and there is nothing to drain.
pub(super) async fn start(
    config: &Config,
    store: &Arc<dyn StoreAdmin>,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
    running: &RunningServer,
) -> Result<Option<Started>, Error> {
    let started = tokio::select! {
        started = open_parts(config, store, clock, metrics, running) => started.map(Some),
        () = running.stop.cancelled() => Ok(None),
    };
    if !matches!(started, Ok(Some(_)))
        && let Some(chat) = running.chat.get()
    {
        chat.finish().await;
    }
    started
}

async fn open_parts(
    config: &Config,
    store: &Arc<dyn StoreAdmin>,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
    running: &RunningServer,
) -> Result<Started, Error> {
    let mut wait = StoreWait::new(running);
    if config.demo {
        let mut has_begun = false;
        wait.until_done(async || {
            sample::load(store, clock.clone(), &config.data, &mut has_begun).await
        })
        .await?;
    }
    let bus = bus(config).await?;
    let bounds = chat::Bounds {
        token_life_max: config.tokens.life_max,
        ..config.chat.clone()
    };
    let opening = async || {
        let (bus, clock) = (bus.clone(), clock.clone());
        Ok(Chat::open(store.clone(), bus, clock, bounds.clone()).await?)
    };
    let chat = wait.until_done(opening).await?;
    chat.register(metrics);
    let _ = running.chat.set(chat.clone());
    if let Some(settings) = &config.before_send {
        exposure::warn(&settings.secret_file, ExposedPath::WebhookSecret);
        let hook = SendHook::open(settings)?;
        hook.register(metrics);
        chat.writes.set_hook(hook);
        tracing::info!(address = %settings.target, "the server asks a hook before each send and each edit");
    }
    let (server, api) = build(config, &chat, running.auth.clone(), clock.clone(), metrics)?;
    for webhook in &config.webhooks {
        exposure::warn(&webhook.secret_file, ExposedPath::WebhookSecret);
    }
    let opening = async || {
        let policy = RetryPolicy::default();
        Ok(Webhooks::open(&config.webhooks, policy, &chat, &api, metrics).await?)
    };
    let webhooks = Arc::new(wait.until_done(opening).await?);
    Ok(Started {
        chat,
        server,
        webhooks,
    })
}

/// Builds the API and the server around it, and registers their metrics.
fn build(
    config: &Config,
    chat: &Chat,
    auth: Arc<Auth>,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<(Arc<Server>, Arc<Api>), Error> {
    let api = Arc::new(Api::new(chat.clone(), config.documents.clone()));
    api.register(metrics);
    let trusted = config
        .trusted_documents
        .as_deref()
        .map(|path| trusted(path, api.as_ref()))
        .transpose()?;
    let server = Server::new(api.clone(), auth, clock, config.server.clone());
    let server = match trusted {
        Some(trusted) => server.with_trusted(trusted),
        None => server,
    };
    server.register(metrics);
    Ok((Arc::new(server), api))
}

/// Opens the bus: in this process, or also over NATS, which may be down at the start.
async fn bus(config: &Config) -> Result<Bus, Error> {
    match (&config.nats, &config.store) {
        (Some(nats), StoreChoice::Cql(store)) => Ok(Bus::with_nats(nats, &store.keyspace).await?),
        _ => Ok(Bus::default()),
    }
}

/// Reads the list of trusted documents. A list also holds old documents: one that the server would refuse is only logged.
fn trusted(path: &Path, executor: &dyn OperationExecutor) -> Result<TrustedDocuments, Error> {
    let trusted = TrustedDocuments::read(path).map_err(|source| Error::Trusted {
        path: path.to_owned(),
        source,
    })?;
    for text in trusted.texts() {
        if let Err(refused) = executor.prepare(text, None) {
            let start: String = text.chars().take(60).collect();
            tracing::warn!(document = start, %refused, "the server would refuse a trusted document; remove it from the list or raise the limit");
        }
    }
    tracing::info!(
        documents = trusted.count(),
        "the server runs trusted documents only"
    );
    Ok(trusted)
}
