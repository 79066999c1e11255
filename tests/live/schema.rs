//! A small schema for the server: it echoes, fails, waits, counts and panics on demand.

use std::sync::Arc;
use std::time::Duration;

use async_graphql::{
    Context, Error, ErrorExtensions, Object, Request, Response, Schema, Subscription, Variables,
};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, Stream};
use futures_util::{StreamExt, future};
use tokio::sync::watch;
use wideroom::graphql::{
    self, AnswerBudget, DocumentBounds, DocumentCache, ExecutionLimits, OnlineGuard,
    OperationExecutor, Prepared, Refusal, RequestError, RestrictionWatch, SchemaTypes,
};
use wideroom::model::{Timestamp, Viewer};

/// How many of `forever`, `flood` and `slow` are alive.
type Alive = Arc<watch::Sender<usize>>;

pub(super) struct TestApi {
    schema: Schema<Query, Mutation, Told>,
    documents: DocumentCache,
}

impl TestApi {
    pub(super) fn new(alive: Alive) -> Self {
        let schema = Schema::build(Query, Mutation, Told).data(alive).finish();
        let documents = DocumentCache::new(
            DocumentBounds::default(),
            SchemaTypes::of(&schema.sdl()).into(),
        );
        Self { schema, documents }
    }

    fn request(prepared: &Prepared, variables: Variables, viewer: Option<Viewer>) -> Request {
        prepared.request(variables).data(viewer)
    }
}

impl OperationExecutor for TestApi {
    fn prepare(&self, query: &str, operation_name: Option<&str>) -> Result<Prepared, RequestError> {
        self.documents.prepare(query, operation_name)
    }

    fn execute<'a>(
        &'a self,
        prepared: &'a Prepared,
        variables: Variables,
        viewer: Option<Viewer>,
        _: Arc<AnswerBudget>,
    ) -> BoxFuture<'a, Response> {
        Box::pin(
            self.schema
                .execute(Self::request(prepared, variables, viewer)),
        )
    }

    fn arrive(&self, viewer: &Viewer) -> Option<OnlineGuard> {
        (!viewer.is_acted_for()).then(|| Box::new(()) as OnlineGuard)
    }

    fn check_restrictions(&self, _: &Viewer, _: Option<Timestamp>) -> Result<(), Refusal> {
        Ok(())
    }

    fn watch_restrictions(&self) -> RestrictionWatch {
        RestrictionWatch::none()
    }

    fn subscribe<'a>(
        &'a self,
        prepared: &'a Prepared,
        variables: Variables,
        viewer: Option<Viewer>,
        _: ExecutionLimits,
    ) -> BoxFuture<'a, BoxStream<'static, graphql::EventResponse>> {
        let has_more = prepared.name.as_deref() == Some(REPLAY);
        Box::pin(async move {
            self.schema
                .execute_stream(Self::request(prepared, variables, viewer))
                .map(move |response| graphql::EventResponse {
                    has_more,
                    ..response.into()
                })
                .boxed()
        })
    }
}

/// Name of a subscription whose events all say that the next one is at hand.
pub(super) const REPLAY: &str = "Replay";

pub(super) struct Query;

#[Object]
impl Query {
    async fn echo(&self, text: String) -> String {
        text
    }

    async fn number(&self, n: i32) -> i32 {
        n
    }

    async fn me(&self, context: &Context<'_>) -> Result<String, Error> {
        let viewer = context
            .data::<Option<Viewer>>()?
            .as_ref()
            .map(|viewer| viewer.user.to_string());
        viewer.ok_or_else(|| {
            Error::new("Sign in first.")
                .extend_with(|_, extensions| extensions.set("code", "UNAUTHENTICATED"))
        })
    }

    /// The service behind the call.
    async fn service(&self, context: &Context<'_>) -> Result<Option<String>, Error> {
        let viewer = context.data::<Option<Viewer>>()?.as_ref();
        Ok(viewer
            .and_then(Viewer::service_name)
            .map(ToString::to_string))
    }

    /// The library hands an error of `Result<Option<_>>` to the parent; this way round it stays with the field.
    async fn missing(&self) -> Option<Result<String, Error>> {
        Some(Err(Error::new("There is no such thing.").extend_with(
            |_, extensions| extensions.set("code", "NOT_FOUND"),
        )))
    }

    async fn wait(&self) -> bool {
        future::pending().await
    }

    async fn panic(&self, #[graphql(default)] really_not: bool) -> bool {
        assert!(really_not, "on demand");
        true
    }

    async fn large(&self, bytes: usize) -> String {
        "x".repeat(bytes)
    }
}

pub(super) struct Mutation;

#[Object]
impl Mutation {
    async fn say(&self, text: String) -> String {
        text
    }

    async fn wait(&self) -> bool {
        future::pending().await
    }

    async fn write_live_message(&self, text: String) -> String {
        text
    }

    async fn slow(&self, context: &Context<'_>, ms: u64) -> Result<bool, Error> {
        let _alive = Guard::new(context.data::<Alive>()?);
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(true)
    }
}

pub(super) struct Told;

#[Subscription(name = "Subscription")]
impl Told {
    /// The user and the service behind the call.
    async fn whose(&self, context: &Context<'_>) -> Result<impl Stream<Item = String>, Error> {
        let viewer = context.data::<Option<Viewer>>()?.clone().unwrap();
        let service = viewer.service_name().map(ToString::to_string);
        let whose = format!("{} by {}", viewer.user, service.unwrap_or_default());
        Ok(stream::iter([whose]))
    }

    async fn count(&self, to: i32) -> impl Stream<Item = i32> {
        stream::iter(0..to)
    }

    async fn forever(&self, context: &Context<'_>) -> Result<impl Stream<Item = i32>, Error> {
        let alive = Guard::new(context.data::<Alive>()?);
        Ok(stream::iter([0])
            .chain(stream::pending())
            .map(move |number| {
                let _alive = &alive;
                number
            }))
    }

    async fn broken(&self) -> impl Stream<Item = Faulty> {
        stream::iter([Faulty])
    }

    async fn refused(&self) -> Result<stream::Empty<i32>, Error> {
        Err(Error::new("There is no such thing.")
            .extend_with(|_, extensions| extensions.set("code", "NOT_FOUND")))
    }

    async fn panic(&self) -> impl Stream<Item = i32> {
        stream::iter([0, 1]).inspect(|&number| assert!(number < 1, "on demand"))
    }

    async fn flood(
        &self,
        context: &Context<'_>,
        bytes: usize,
    ) -> Result<impl Stream<Item = String>, Error> {
        let alive = Guard::new(context.data::<Alive>()?);
        Ok(stream::repeat_with(move || {
            let _alive = &alive;
            "x".repeat(bytes)
        }))
    }
}

pub(super) struct Faulty;

#[Object]
impl Faulty {
    async fn fault(&self) -> Result<bool, Error> {
        Err(Error::new("It is broken.")
            .extend_with(|_, extensions| extensions.set("code", "UNAVAILABLE")))
    }
}

/// Counts itself while it lives.
struct Guard(Alive);

impl Guard {
    fn new(alive: &Alive) -> Self {
        alive.send_modify(|alive| *alive += 1);
        Self(Arc::clone(alive))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.send_modify(|alive| *alive -= 1);
    }
}
