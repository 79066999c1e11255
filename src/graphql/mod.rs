//! Translation between GraphQL and the chat. No rule lives here.
//!
//! A document is prepared once (`execution`: parsed, guarded, validated, merged, cached) and then
//! executed for a viewer. Resolvers (`query`, `mutation`, `subscription`, `types`)
//! translate arguments and results. Equal subscriptions share the executions of their events
//! (`fanout`).

mod api;
mod connection;
mod cursor;
mod error;
mod execution;
mod fanout;
mod id;
mod loader;
mod mutation;
mod outbox_document;
mod query;
mod scalar;
mod schema;
mod scope;
mod subscription;
mod types;

pub use api::Api;
pub use cursor::{CursorKey, List};
pub use error::{Code, RETRY_AFTER_MS};
pub use execution::{
    ANSWER_BYTES_MAX, AnswerAccount, AnswerBudget, CoercedVariables, DocumentBounds, DocumentCache,
    Exceeded, ExecutionLimits, HeldBytes, OperationCost, Prepared, RequestError, RequestErrorKind,
    SchemaTypes, is_request_error,
};
pub use fanout::{EventContent, EventResponse, SharedPayload, is_viewer_independent};
pub use mutation::Mutation;
pub use outbox_document::{OutboxDocument, RenderedEvent};
pub use query::Query;
pub use scalar::AnswerJson;
pub use schema::{ChatSchema, sdl, types_sdl};
pub use subscription::Subscription;

use std::sync::Arc;

use async_graphql::{Response, Variables};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;

pub use crate::chat::{Refusal, RestrictionWatch};
use crate::model::{Timestamp, Viewer};

/// Executes operations. The trait is object safe, so that the server does not depend on the schema.
pub trait OperationExecutor: Send + Sync + 'static {
    /// Parses and checks a document, or takes it from the cache.
    fn prepare(&self, query: &str, operation_name: Option<&str>) -> Result<Prepared, RequestError>;

    /// Executes a query or a mutation. If the text exceeds the budget, the execution stops and the
    /// budget records it.
    fn execute<'a>(
        &'a self,
        prepared: &'a Prepared,
        variables: Variables,
        viewer: Option<Viewer>,
        budget: Arc<AnswerBudget>,
    ) -> BoxFuture<'a, Response>;

    /// Marks a viewer as online until the guard is dropped. The server calls it for each socket and
    /// stream. `None` if a service acts in the user's name: the user is not there.
    fn arrive(&self, viewer: &Viewer) -> Option<OnlineGuard>;

    /// Whether a caller with a valid token is refused now, because the token was revoked or the user is
    /// suspended. `issued_at` is the token's. Reads memory alone.
    fn check_restrictions(
        &self,
        viewer: &Viewer,
        issued_at: Option<Timestamp>,
    ) -> Result<(), Refusal>;

    /// Receives a signal after each change of what [`Self::check_restrictions`] refuses.
    fn watch_restrictions(&self) -> RestrictionWatch;

    /// Opens a subscription. Dropping the stream closes it.
    fn subscribe<'a>(
        &'a self,
        prepared: &'a Prepared,
        variables: Variables,
        viewer: Option<Viewer>,
        limits: ExecutionLimits,
    ) -> BoxFuture<'a, BoxStream<'static, EventResponse>>;
}

/// Keeps a viewer online while it is held.
pub type OnlineGuard = Box<dyn Send + Sync>;
