//! `wideroom serve`: assembles all parts of the server, and shuts them down in order.

mod admin;
mod descriptors;
mod sample;
mod start;
mod store_opening;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt as _;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::admin::{AdminListener, RunningServer};
use self::start::Started;
use self::store_opening::ServedStore;
use crate::auth::exposure::{self, ExposedPath};
use crate::auth::{Auth, KEY_FILE};
use crate::cli::admin_client::written_address;
use crate::cli::error::Error;
use crate::cli::settings::{SERVE, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::cli::{print, process, storage, warnings};
use crate::clock::{Clock, SystemClock};
use crate::config::{ADMIN_LISTEN, Config, PageChoice, StoreChoice};
use crate::metrics::Metrics;
use crate::model::UserId;
use crate::server;
use crate::server::pages::{self, PageOptions};
use crate::store::StoreAdmin;
use crate::telemetry;

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
    let listen = |source| Error::Listen {
        address: config.listen,
        source,
    };
    let socket = server::bind(config.listen).map_err(listen)?;
    let address = socket.local_addr().map_err(listen)?;
    let Some(started) = start::start(config, store, &clock, metrics, running).await? else {
        return Ok(());
    };
    let Started {
        chat,
        server,
        webhooks,
    } = started;
    let listener = server::accept_on(socket).map_err(listen)?;
    let _ = running.webhooks.set(Arc::clone(&webhooks));
    let pages = page_router(config, running.auth.clone(), clock);
    descriptors::log(&config.server);
    print(&greeting(address, config))?;
    // The runtime's hook logs a panic of these tasks.
    let removals = tokio::spawn(chat.removals.worker().run());
    let settler = tokio::spawn(chat.lives.settler().run());
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
    settler.abort();
    clock_watch.abort();
    request_log.abort();
    ended.log_left_out();
    webhooks.finish().await;
    chat.finish().await;
    served.map_err(Error::Serve)
}

/// Routes of the pages. Those of the client are there without pages, too.
fn page_router(config: &Config, auth: Arc<Auth>, clock: Arc<dyn Clock>) -> Router {
    if config.has_pages() {
        let (demo_users, demo_agents) = if config.demo {
            (sample::users(), vec![sample::ECHO.to_owned()])
        } else {
            Default::default()
        };
        return pages::router(PageOptions {
            demo_users,
            demo_agents,
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

/// Issues tokens for the users of the sample and its agent. Only a server with `--demo` accepts them.
fn issue(auth: Arc<Auth>, clock: Arc<dyn Clock>) -> pages::Issue {
    Arc::new(move |name| {
        let user = UserId::parse(name)
            .ok()
            .filter(|user| !user.is_agent() || name == sample::ECHO)?;
        Some(auth.issue_demo(&user, DEMO_TOKEN_LIFE, clock.now()))
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
