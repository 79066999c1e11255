//! `wideroom serve`: assembles all parts of the server, and shuts them down in order.

mod admin;
mod descriptors;
mod sample;
mod store_opening;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt as _;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::admin::{AdminListener, RunningServer};
use self::store_opening::ServedStore;
use crate::auth::exposure::{self, ExposedPath};
use crate::auth::{Auth, KEY_FILE};
use crate::bus::Bus;
use crate::chat::{self, Chat, SendHook};
use crate::cli::admin_client::written_address;
use crate::cli::error::Error;
use crate::cli::settings::{SERVE, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::cli::{print, process, storage, warnings};
use crate::clock::{Clock, SystemClock};
use crate::config::{ADMIN_LISTEN, Config, PageChoice, StoreChoice};
use crate::graphql::{Api, OperationExecutor};
use crate::metrics::Metrics;
use crate::model::UserId;
use crate::server::pages::{self, PageOptions};
use crate::server::{self, Server, TrustedDocuments};
use crate::store::StoreAdmin;
use crate::telemetry;
use crate::webhook::{RetryPolicy, Webhooks};

const DEMO_TOKEN_LIFE: Duration = Duration::from_secs(24 * 3_600);

pub(super) fn run(given: &SettingFlags<SERVE>) -> Result<(), Error> {
    let (mut config, sources) = given.resolve()?;
    let is_admin_given = sources.contains_key(ADMIN_LISTEN);
    telemetry::init_server(&config.log, config.log_format)?;
    for warning in warnings(&config) {
        tracing::warn!("{warning}");
    }
    descriptors::fit(&mut config.server);
    config.server.is_local = config.demo;
    storage::create_folder(&config)?;
    let auth = Auth::open(&config.data)?.with_rules(config.tokens.clone())?;
    let auth = Arc::new(if config.demo { auth.with_demo() } else { auth });
    exposure::warn(&config.data, ExposedPath::DataFolder);
    exposure::warn(&config.data.join(KEY_FILE), ExposedPath::Secret);
    signals::run(move |stop| serve(config, is_admin_given, auth, stop))
}

async fn serve(
    config: Config,
    is_admin_given: bool,
    auth: Arc<Auth>,
    stop: Stop,
) -> Result<(), Error> {
    signals::survive_hangup().map_err(Error::Runtime)?;
    let log_task = tokio::spawn(telemetry::renew_quota());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Metrics::default();
    process::register(&metrics);
    if let Some(keys) = auth.provider_keys() {
        tokio::spawn(keys.refresh());
    }
    let running = Arc::new(RunningServer::new(auth, stop.clone()));
    let admin = AdminListener {
        running: running.clone(),
        metrics: metrics.clone(),
        is_given: is_admin_given,
    };
    let end = CancellationToken::new();
    let running_admin = admin.start(&config, end.clone())?;
    let admin_address = running_admin.as_ref().and_then(|admin| admin.address);
    // Another server may have the folder still, and its address in it.
    let is_shared = matches!(config.store, StoreChoice::Cql(_));
    let is_free = is_shared || matches!(written_address(&config.data), Ok(None));
    if is_free && admin_address.is_some() {
        admin::note_address(&config, admin_address);
    }
    let opening = ServedStore::open_with_retries(&config, &clock, &metrics, &running);
    let served = tokio::select! {
        opened = opening => {
            let opened = opened?;
            if !is_shared {
                admin::note_address(&config, admin_address);
            }
            serve_store(&config, opened, clock, &metrics, &running).await
        }
        () = stop.cancelled() => Ok(()),
    };
    end.cancel();
    if let Some(admin) = running_admin {
        // The runtime's hook logs a panic of this task.
        let _ = admin.task.await;
    }
    log_task.abort();
    telemetry::log_left_out();
    served?;
    tracing::info!("the server has shut down cleanly");
    Ok(())
}

/// Serves a store until the server is to stop, then closes it.
async fn serve_store(
    config: &Config,
    opened: ServedStore,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
    running: &RunningServer,
) -> Result<(), Error> {
    let store = opened.store.clone();
    let lost = opened.lost();
    let _ = running.store.set(opened);
    let serving = serve_chat(config, &store, clock, metrics, running);
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        error = lost => {
            // Clients are sent away as after a signal: another server may answer them.
            running.stop.cancel();
            let _ = serving.await;
            Err(error.into())
        }
    };
    let closed = store.close().await;
    served?;
    Ok(closed?)
}

async fn serve_chat(
    config: &Config,
    store: &Arc<dyn StoreAdmin>,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
    running: &RunningServer,
) -> Result<(), Error> {
    // Before the greeting: who reads it may press Ctrl-C at once.
    let mut interrupts = signals::interrupts().map_err(Error::Runtime)?;
    if config.demo {
        sample::load(store, clock.clone(), &config.data).await?;
    }
    let listen = |source| Error::Listen {
        address: config.listen,
        source,
    };
    let listener = server::listen(config.listen).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let chat = Chat::open(
        store.clone(),
        bus(config).await?,
        clock.clone(),
        chat::Bounds {
            token_life_max: config.tokens.life_max,
            ..config.chat.clone()
        },
    )
    .await?;
    chat.register(metrics);
    if let Some(settings) = &config.before_send {
        exposure::warn(&settings.secret_file, ExposedPath::WebhookSecret);
        let hook = SendHook::open(settings)?;
        hook.register(metrics);
        chat.writes.set_hook(hook);
        tracing::info!(address = %settings.target, "the server asks a hook before each send and each edit");
    }
    let _ = running.chat.set(chat.clone());
    let (server, api) = build(config, &chat, running.auth.clone(), clock.clone(), metrics)?;
    let webhooks = open_webhooks(config, &chat, &api, metrics).await?;
    let _ = running.webhooks.set(Arc::clone(&webhooks));
    let pages = page_router(config, running.auth.clone(), clock);
    descriptors::log(&config.server);
    print(&greeting(address, config))?;
    // The runtime's hook logs a panic of these tasks.
    let removals = tokio::spawn(chat.removals.worker().run());
    let watched = chat.clone();
    let clock_watch = tokio::spawn(async move { watched.watch_lead().await });
    let logged = Arc::clone(&server);
    let request_log = tokio::spawn(async move { logged.renew_request_log().await });
    let (delay, drain) = (config.drain_delay, config.server.drain);
    let (leaving, ended) = (Arc::clone(&server), Arc::clone(&server));
    let stop = running.stop.clone();
    let stopping = async move {
        stop.cancelled().await;
        let is_interrupted = interrupts.recv().now_or_never().is_some();
        let delay = if is_interrupted {
            Duration::ZERO
        } else {
            delay
        };
        tracing::info!(?delay, ?drain, "the server is stopping");
        leaving.leave();
        sleep(delay).await;
    };
    let served = server::run(listener, server, pages, stopping).await;
    removals.abort();
    clock_watch.abort();
    request_log.abort();
    ended.log_left_out();
    webhooks.finish().await;
    chat.finish().await;
    served.map_err(Error::Serve)
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

/// Opens the webhooks of the configuration.
async fn open_webhooks(
    config: &Config,
    chat: &Chat,
    api: &Arc<Api>,
    metrics: &Metrics,
) -> Result<Arc<Webhooks>, Error> {
    for webhook in &config.webhooks {
        exposure::warn(&webhook.secret_file, ExposedPath::WebhookSecret);
    }
    let policy = RetryPolicy::default();
    let webhooks = Webhooks::open(&config.webhooks, policy, chat, api, metrics).await?;
    Ok(Arc::new(webhooks))
}

/// Routes of the pages. Those of the client are there without pages, too.
fn page_router(config: &Config, auth: Arc<Auth>, clock: Arc<dyn Clock>) -> Router {
    if config.has_pages() {
        let demo_users = if config.demo {
            sample::users()
        } else {
            Vec::new()
        };
        return pages::router(PageOptions {
            demo_users,
            issue: issue(auth, clock),
        });
    }
    if config.pages == PageChoice::Auto {
        tracing::info!(
            "the server does not serve its pages on an address that others can reach; set --pages on to serve them"
        );
    }
    pages::client::router()
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

/// Issues tokens for the users of the sample. Only a server with `--demo` accepts them.
fn issue(auth: Arc<Auth>, clock: Arc<dyn Clock>) -> pages::Issue {
    Arc::new(move |name| {
        Some(auth.issue_demo(&UserId::parse(name).ok()?, DEMO_TOKEN_LIFE, clock.now()))
    })
}

/// Greeting on stdout: the address of the server and the next steps.
fn greeting(address: SocketAddr, config: &Config) -> String {
    let mut lines = vec![format!("Wideroom listens on http://{address}")];
    if config.has_pages() {
        lines.push(format!("  open    http://{address}/"));
    }
    if address.ip().is_loopback() && !config.tokens.has_keys_of_its_own() {
        let data = if config.data == Config::default().data {
            String::new()
        } else {
            format!(" --data {}", config.data.display())
        };
        let user = if config.demo { "alice" } else { "NAME" };
        lines.push(format!("  token   wideroom token --user {user}{data}"));
    }
    lines.join("\n")
}
