//! `wideroom serve`: the one place where all parts are put together, and taken apart in order.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio_util::sync::CancellationToken;

use super::operate::{Operators, Running};
use super::settings::{Given, SERVE};
use super::stop::{self, Stop};
use super::{Error, open, print, process};
use crate::auth::exposure::{self, Content};
use crate::auth::{Auth, KEY_FILE};
use crate::bus::Bus;
use crate::chat::Chat;
use crate::clock::{Clock, SystemClock};
use crate::config::{ADMIN_LISTEN, Config, PageChoice, StoreChoice};
use crate::graphql::{Api, Executor};
use crate::metrics::Metrics;
use crate::model::UserId;
use crate::server::pages::{self, PageOptions};
use crate::server::{self, Doors, TrustedDocuments};
use crate::store::{InstrumentedStore, NOTE_IMPORTED_AT, Store};
use crate::telemetry;
use crate::transfer::import::{Import, Told};
use crate::transfer::line::Line;

/// Sample data of `--demo`.
const SAMPLE: &str = include_str!("demo.jsonl");
const DEMO_TOKEN_LIFE: Duration = Duration::from_secs(24 * 3_600);

pub(super) fn run(given: &Given<SERVE>) -> Result<(), Error> {
    let (config, sources) = given.resolve()?;
    let is_admin_given = sources.contains_key(ADMIN_LISTEN);
    telemetry::init(&config.log, config.log_format)?;
    open::folder(&config)?;
    let auth = Auth::open(&config.data)?.with_rules(config.tokens.clone())?;
    let auth = Arc::new(if config.demo { auth.with_demo() } else { auth });
    exposure::warn(&config.data, Content::DataFolder);
    exposure::warn(&config.data.join(KEY_FILE), Content::Secret);
    stop::run(move |stop| serve(config, is_admin_given, auth, stop))
}

async fn serve(
    config: Config,
    is_admin_given: bool,
    auth: Arc<Auth>,
    stop: Stop,
) -> Result<(), Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let metrics = Metrics::default();
    let (store, embedded): (Arc<dyn Store>, _) = match &config.store {
        StoreChoice::Embedded => {
            let store = Arc::new(open::embedded(&config, clock.clone()).await?);
            store.register(&metrics);
            (store.clone(), Some(store))
        }
        StoreChoice::Cql(address) => (Arc::new(open::cluster(address, clock.clone()).await?), None),
    };
    let measured = Arc::new(InstrumentedStore::new(store));
    measured.register(&metrics);
    process::register(&metrics);
    let store: Arc<dyn Store> = measured;
    let running = Arc::new(Running {
        store: store.clone(),
        embedded,
        auth: auth.clone(),
        stop: stop.clone(),
    });
    let operators = Operators {
        running,
        metrics,
        is_given: is_admin_given,
    };
    let served = serve_store(&config, &store, auth, clock, operators, stop).await;
    let closed = store.close().await;
    served?;
    closed?;
    tracing::info!("the server has shut down cleanly");
    Ok(())
}

async fn serve_store(
    config: &Config,
    store: &Arc<dyn Store>,
    auth: Arc<Auth>,
    clock: Arc<dyn Clock>,
    operators: Operators,
    stop: Stop,
) -> Result<(), Error> {
    if config.demo {
        load_sample(store, clock.clone(), &config.data).await?;
    }
    let listen = |source| Error::Listen {
        address: config.listen,
        source,
    };
    let listener = server::listen(config.listen).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let admin_listener = operators.listen(config)?;
    let chat = Chat::open(
        store.clone(),
        bus(config).await?,
        clock.clone(),
        config.chat.clone(),
    )
    .await?;
    if !chat.ahead_of_clock().is_zero() {
        tracing::warn!(ahead = ?chat.ahead_of_clock(), "the clock is behind the newest id in the store; new ids continue after that id. Set the clock");
    }
    chat.register(&operators.metrics);
    let api = Arc::new(Api::new(chat.clone(), config.documents.clone()));
    api.register(&operators.metrics);
    let trusted = config
        .trusted_documents
        .as_deref()
        .map(|path| trusted(path, api.as_ref()))
        .transpose()?;
    let doors = Doors::new(api, auth.clone(), clock.clone(), config.doors.clone());
    let doors = Arc::new(if let Some(trusted) = trusted {
        doors.with_trusted(trusted)
    } else {
        doors
    });
    doors.register(&operators.metrics);
    let over = CancellationToken::new();
    let looked_after = admin_listener
        .map(|listener| operators.serve(listener, &config.data, over.clone()))
        .transpose()?;
    let demo_users = if config.demo {
        sample_users()
    } else {
        Vec::new()
    };
    let pages = if config.has_pages() {
        pages::router(PageOptions {
            demo_users,
            issue: issue(auth, clock),
        })
    } else {
        Router::new()
    };
    if config.pages == PageChoice::Auto && !config.has_pages() {
        tracing::info!(
            "the pages are not served on an address that others can reach: --pages on serves them"
        );
    }
    print(&greeting(address, config))?;
    let drain = config.doors.drain;
    let stopping = async move {
        stop.cancelled().await;
        tracing::info!(?drain, "the server is stopping");
    };
    let served = server::run(listener, doors, pages, stopping).await;
    chat.finish().await;
    over.cancel();
    if let Some(looked_after) = looked_after {
        // A panic in it would have been logged by the runtime's hook.
        let _ = looked_after.await;
    }
    served.map_err(Error::Serve)
}

/// The bus, and where servers tell each other, the way to them. NATS may come later, and go.
async fn bus(config: &Config) -> Result<Bus, Error> {
    match (&config.nats, &config.store) {
        (Some(nats), StoreChoice::Cql(store)) => Ok(Bus::with_nats(nats, &store.keyspace).await?),
        _ => Ok(Bus::default()),
    }
}

/// The list of the only documents that are run. Lists hold old documents too, so that one which would be refused is only named.
fn trusted(path: &Path, executor: &dyn Executor) -> Result<TrustedDocuments, Error> {
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

/// Tokens for the people of the sample, as the pages hand them out in a demo. No other server accepts them.
fn issue(auth: Arc<Auth>, clock: Arc<dyn Clock>) -> pages::Issue {
    Arc::new(move |name| {
        Some(auth.issue_demo(&UserId::parse(name).ok()?, DEMO_TOKEN_LIFE, clock.now()))
    })
}

fn sample_users() -> Vec<String> {
    let user = |line: &str| {
        if let Ok(Line::User(user)) = Line::parse(line.as_bytes()) {
            Some(user.username)
        } else {
            None
        }
    };
    SAMPLE.lines().filter_map(user).collect()
}

/// Into a store that has nothing yet. One that has is served as it is, so that a demo may be started again.
async fn load_sample(
    store: &Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    data: &Path,
) -> Result<(), Error> {
    if store.newest_id().await?.is_some() || store.note(NOTE_IMPORTED_AT).await?.is_some() {
        tracing::info!("the store is not empty; the server does not load the sample");
        return Ok(());
    }
    let import = Import {
        store: store.clone(),
        clock,
        dir: data.to_owned(),
        stop: CancellationToken::new(),
    };
    let tell = &mut |told: Told<'_>| {
        if let Told::Broken(fault) = told {
            tracing::warn!(
                line = fault.line,
                reason = fault.reason,
                "the import skipped a line of the sample"
            );
        }
    };
    let counts = import.pipe(SAMPLE.as_bytes(), tell).await?.counts;
    tracing::info!(
        conversations = counts.conversations.added,
        messages = counts.messages.added,
        "the server loaded the sample"
    );
    Ok(())
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
