//! What the doors call: documents are prepared once, then executed for a viewer.

pub mod document;
pub mod guard;
mod lexer;

use async_graphql::Variables;
use futures_util::stream::BoxStream;

pub use self::document::{Documents, Prepared, Refused};
pub use self::guard::DocumentBounds;
use crate::model::UserId;

/// Answers operations. Object safe, so that the doors know no schema.
#[async_trait::async_trait]
pub trait Executor: Send + Sync + 'static {
    /// The parsed, guarded, cached document, or why it is refused.
    fn prepare(&self, query: &str, operation_name: Option<&str>) -> Result<Prepared, Refused>;

    /// Answers a query or a mutation.
    async fn execute(&self, prepared: &Prepared, variables: Variables, viewer: Option<UserId>) -> async_graphql::Response;

    /// Answers a subscription until the stream is dropped.
    fn subscribe(&self, prepared: &Prepared, variables: Variables, viewer: Option<UserId>) -> BoxStream<'static, async_graphql::Response>;
}
