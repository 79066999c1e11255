//! Peer of the server: the library's own HTTP and WebSocket handlers (`async-graphql-axum`) over an
//! executor of ours.
//!
//! Documents, rules and store are the same; only the transport differs. So a difference in an
//! answer or in a cost is a difference of the transports.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use async_graphql::http::ALL_WEBSOCKET_PROTOCOLS;
use async_graphql::parser::types::OperationType;
use async_graphql::{Data, Executor, Name, Request, Response, ServerError, Value};
use async_graphql_axum::{GraphQLBatchRequest, GraphQLProtocol, GraphQLResponse, GraphQLWebSocket};
use axum::Router;
use axum::extract::{State, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::response::IntoResponse;
use axum::routing::any;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use wideroom::auth::Auth;
use wideroom::graphql::{
    CoercedVariables, EventContent, EventResponse, ExecutionLimits, OperationExecutor, Prepared,
    RequestError, SharedPayload,
};
use wideroom::model::Viewer;
use wideroom::model::metadata::RESERVED_KEY;
use wideroom::rate::Pace;

/// Router of the library's handlers, on the same paths as ours.
pub(crate) fn router(executor: Arc<dyn OperationExecutor>, auth: Arc<Auth>) -> Router {
    let peer = Peer {
        executor: PreparedExecutor(executor),
        auth,
    };
    Router::new()
        .route("/graphql", any(http))
        .route("/graphql/ws", any(upgrade))
        .with_state(peer)
}

/// Serves the router in this process until the token is cancelled, and returns its address.
pub(crate) fn serve(router: Router, stop: CancellationToken) -> SocketAddr {
    let listener = wideroom::server::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = axum::serve(listener, router);
    tokio::spawn(async move {
        tokio::select! {
            ended = serving => ended.unwrap(),
            () = stop.cancelled() => {}
        }
    });
    address
}

#[derive(Clone)]
struct Peer {
    executor: PreparedExecutor,
    auth: Arc<Auth>,
}

impl Peer {
    /// User of a `Bearer` token, if it is valid.
    fn viewer(&self, authorization: &str) -> Option<Viewer> {
        let token = authorization.strip_prefix("Bearer ")?;
        Some(self.auth.verify(token).ok()?.user.into())
    }
}

/// Viewer of a request or of a socket, as the library hands it to the executor.
#[derive(Clone)]
struct SessionViewer(Option<Viewer>);

impl SessionViewer {
    fn of(data: &Data) -> Option<Viewer> {
        let viewer = data.get(&TypeId::of::<Self>())?;
        viewer.downcast_ref::<Self>()?.0.clone()
    }
}

async fn http(
    State(peer): State<Peer>,
    headers: HeaderMap,
    request: GraphQLBatchRequest,
) -> GraphQLResponse {
    let viewer = headers
        .get(AUTHORIZATION)
        .and_then(|value| peer.viewer(value.to_str().ok()?));
    let request = request.into_inner().data(SessionViewer(viewer));
    peer.executor.execute_batch(request).await.into()
}

async fn upgrade(
    State(peer): State<Peer>,
    protocol: GraphQLProtocol,
    upgrade: WebSocketUpgrade,
) -> impl IntoResponse {
    upgrade
        .protocols(ALL_WEBSOCKET_PROTOCOLS)
        .on_upgrade(move |socket| {
            let executor = peer.executor.clone();
            GraphQLWebSocket::new(socket, executor, protocol)
                .on_connection_init(move |payload| async move {
                    let authorization = payload["Authorization"].as_str().unwrap_or_default();
                    let viewer = peer.viewer(authorization);
                    let viewer = viewer.ok_or("The token is invalid.")?;
                    let mut data = Data::default();
                    data.insert(SessionViewer(Some(viewer)));
                    Ok(data)
                })
                .serve()
        })
}

/// Executor that the library drives. It prepares each document as our server does, cache included.
#[derive(Clone)]
pub(crate) struct PreparedExecutor(pub(crate) Arc<dyn OperationExecutor>);

impl PreparedExecutor {
    fn prepare(&self, request: Request) -> Result<(Prepared, CoercedVariables), RequestError> {
        let prepared = self
            .0
            .prepare(&request.query, request.operation_name.as_deref())?;
        let variables = prepared.coerce(request.variables)?;
        Ok((prepared, variables))
    }
}

impl Executor for PreparedExecutor {
    async fn execute(&self, request: Request) -> Response {
        let viewer = SessionViewer::of(&request.data);
        match self.prepare(request) {
            Ok((prepared, ready)) => {
                self.0
                    .execute(&prepared, ready.variables, viewer, Arc::default())
                    .await
            }
            Err(refused) => refusal(refused),
        }
    }

    fn execute_stream(
        &self,
        request: Request,
        session: Option<Arc<Data>>,
    ) -> BoxStream<'static, Response> {
        let viewer = session.and_then(|session| SessionViewer::of(&session));
        let (prepared, ready) = match self.prepare(request) {
            Ok(prepared) => prepared,
            Err(refused) => return stream::iter([refusal(refused)]).boxed(),
        };
        let executor = Arc::clone(&self.0);
        let responses = async move {
            if prepared.operation != OperationType::Subscription {
                let budget = Arc::default();
                let response = executor.execute(&prepared, ready.variables, viewer, budget);
                return stream::iter([response.await]).boxed();
            }
            let limits = ExecutionLimits {
                budget: Arc::default(),
                pace: Pace::free(),
            };
            let events = executor.subscribe(&prepared, ready.variables, viewer, limits);
            events.await.map(response).boxed()
        };
        stream::once(responses).flatten().boxed()
    }
}

fn refusal(refused: RequestError) -> Response {
    let mut error = ServerError::new(refused.message, None);
    error.locations = refused.positions;
    Response::from_errors(vec![error])
}

fn response(event: EventResponse) -> Response {
    match event.content {
        EventContent::Own(response) => *response,
        EventContent::Shared(payload) => shared(&payload),
    }
}

/// Response with the data of a shared payload as raw JSON, which the library writes as it is.
fn shared(payload: &SharedPayload) -> Response {
    #[derive(serde::Deserialize)]
    struct Payload<'a> {
        #[serde(borrow)]
        data: &'a RawValue,
        #[serde(default)]
        extensions: BTreeMap<String, Value>,
    }
    let payload: Payload<'_> = serde_json::from_str(payload.get()).expect("the payload is JSON");
    let raw = (Name::new(RESERVED_KEY), Value::from(payload.data.get()));
    let data = Value::Object([raw].into_iter().collect());
    let response = Response::new(data);
    let extensions = payload.extensions.into_iter();
    extensions.fold(response, |response, (name, value)| {
        response.extension(name, value)
    })
}
