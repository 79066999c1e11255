//! Real server with the whole API on an embedded store, for tests that need both sockets and a chat.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use wideroom::auth::Auth;
use wideroom::chat::{Bounds, Chat};
use wideroom::clock::{Clock, SystemClock};
use wideroom::graphql::{Api, DocumentBounds};
use wideroom::metrics::Metrics;
use wideroom::model::{ServiceRight, ServiceRights, UserId};
use wideroom::server::{self, AdmissionBounds, Server, ServerBounds};
use wideroom::store::StoreAdmin as _;
use wideroom::store::embedded::{Embedded, Options};
use wideroom::webhook::{RetryPolicy, WebhookError, WebhookSettings, Webhooks};

use crate::support::client::{Caller, Socket};
use crate::support::peer;
use crate::support::world::{Actor, chat_on};

const SECRET: &[u8] = b"thirty-two bytes for a test key.";
const LIFE: Duration = Duration::from_secs(600);

pub(super) struct ChatServer {
    pub(super) address: SocketAddr,
    pub(super) chat: Chat,
    api: Arc<Api>,
    metrics: Metrics,
    stop: CancellationToken,
    _folder: TempDir,
}

impl ChatServer {
    pub(super) async fn start(bounds: ServerBounds, chat: Bounds) -> Self {
        Self::open(bounds, chat, false, Arc::new(SystemClock)).await
    }

    /// Server whose store alone has this clock.
    pub(super) async fn with_clock_of_store(
        bounds: ServerBounds,
        chat: Bounds,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self::open(bounds, chat, false, clock).await
    }

    /// Server of a deployment with an outbox.
    pub(super) async fn with_outbox() -> Self {
        Self::with_outbox_and(Bounds::default()).await
    }

    pub(super) async fn with_outbox_and(chat: Bounds) -> Self {
        Self::open(ServerBounds::default(), chat, true, Arc::new(SystemClock)).await
    }

    async fn open(
        bounds: ServerBounds,
        chat: Bounds,
        has_outbox: bool,
        clock_of_store: Arc<dyn Clock>,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            path: folder.path().to_owned(),
            cache_bytes: 16 << 20,
            free_bytes_min: 0,
            accept_loss: false,
        };
        let store = Arc::new(Embedded::open(options, clock_of_store).await.unwrap());
        if has_outbox {
            store.set_outbox(Some(SystemClock.now())).await.unwrap();
        }
        // The rates of the chat are not under test here.
        let metrics = Metrics::default();
        store.register(&metrics);
        let chat = chat_on(store, Arc::new(SystemClock), chat).await;
        let api = Arc::new(Api::new(chat.clone(), DocumentBounds::default()));
        api.register(&metrics);
        let server = Arc::new(Server::new(
            api.clone(),
            Arc::new(Auth::with_secret(SECRET)),
            Arc::new(SystemClock),
            bounds,
        ));
        server.register(&metrics);
        let listener = server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        tokio::spawn(server::run(
            listener,
            server,
            Router::new(),
            stop.clone().cancelled_owned(),
        ));
        Self {
            address,
            chat,
            api,
            metrics,
            stop,
            _folder: folder,
        }
    }

    /// Webhooks of this server.
    pub(super) async fn webhooks(
        &self,
        all: &[WebhookSettings],
        policy: RetryPolicy,
    ) -> Result<Webhooks, WebhookError> {
        self.webhooks_with(all, policy, &self.metrics).await
    }

    /// The same with metrics of their own.
    pub(super) async fn webhooks_with(
        &self,
        all: &[WebhookSettings],
        policy: RetryPolicy,
        metrics: &Metrics,
    ) -> Result<Webhooks, WebhookError> {
        Webhooks::open(all, policy, &self.chat, &self.api, metrics).await
    }

    /// Address of the library's own handlers over the same API.
    pub(super) fn peer(&self) -> SocketAddr {
        let router = peer::router(
            Arc::clone(&self.api) as _,
            Arc::new(Auth::with_secret(SECRET)),
        );
        peer::serve(router, self.stop.clone())
    }

    pub(super) fn token(&self, name: &str) -> String {
        Auth::with_secret(SECRET).issue(&UserId::parse(name).unwrap(), LIFE, SystemClock.now())
    }

    /// Token of a service, issued so many seconds from now.
    pub(super) fn service_token(&self, name: &str, offset: i64) -> String {
        issue_service(name, ServiceRights::ALL, offset)
    }

    /// Token of a service that reads the outbox alone.
    pub(super) fn outbox_token(&self) -> String {
        let rights = [ServiceRight::Outbox].into_iter().collect();
        issue_service("push", rights, 0)
    }

    /// User who calls the API in this process and pays nothing.
    pub(super) fn user(&self, name: &str) -> Actor {
        Actor::of(&self.api, &UserId::parse(name).unwrap())
    }

    /// User over HTTP.
    pub(super) async fn caller(&self, name: &str) -> Caller {
        Caller::connect(self.address, &self.token(name))
            .await
            .unwrap()
    }

    /// User over a WebSocket, after `connection_ack`.
    pub(super) async fn socket(&self, name: &str) -> Socket {
        Socket::connect(self.address, &self.token(name)).await
    }

    /// Value of one series, named as `/metrics` prints it.
    pub(super) fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{series} is not in:\n{text}"))
            .parse()
            .unwrap()
    }
}

/// Bounds of a server that refuses nobody for the rate of requests.
pub(super) fn without_rates() -> ServerBounds {
    let rates = AdmissionBounds {
        is_on: false,
        ..AdmissionBounds::default()
    };
    ServerBounds {
        rates,
        ..ServerBounds::default()
    }
}

impl Drop for ChatServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn issue_service(name: &str, rights: ServiceRights, offset: i64) -> String {
    let moment = SystemClock.now().plus_micros(offset * 1_000_000);
    Auth::with_secret(SECRET).issue_service(&UserId::parse(name).unwrap(), rights, LIFE, moment)
}
