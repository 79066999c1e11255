//! The translation between GraphQL and the chat. No rule lives here.
//!
//! A document is prepared once (parsed, guarded, kept), then executed for a viewer; the first time under validation.

mod api;
mod budget;
mod connection;
mod cost;
mod cursor;
mod document;
mod error;
mod free;
mod guard;
mod id;
mod introspection;
mod lexer;
mod literal;
mod loader;
mod mutation;
mod query;
mod scalar;
mod scope;
mod shared;
mod subscription;
mod subscription_root;
mod swift;
mod types;
mod updates;
mod variable;

pub use api::Api;
pub use budget::{ANSWER_BYTES_MAX, AnswerAccount, AnswerBudget, Exceeded, HeldBytes};
pub use cost::Cost;
pub use cursor::{CursorKey, List};
pub use document::{Documents, Prepared, Ready, Refused, RefusedKind};
pub use error::{Code, RETRY_AFTER_MS};
pub use guard::DocumentBounds;
pub use mutation::Mutation;
pub use query::Query;
pub use shared::{Payload, Told};
pub use subscription::Subscription;

use std::sync::Arc;

use async_graphql::{Response, SDLExportOptions, Schema, ValidationMode, Value, Variables};
use futures_util::stream::BoxStream;

use crate::model::UserId;
use crate::rate::Pace;

/// The schema that is served, and committed as `schema.graphql`.
pub type ChatSchema = Schema<Query, Mutation, Subscription>;

/// Answers operations. Object safe, so that the doors know no schema.
#[async_trait::async_trait]
pub trait Executor: Send + Sync + 'static {
    /// The parsed, guarded, cached document, or why it is refused.
    fn prepare(&self, query: &str, operation_name: Option<&str>) -> Result<Prepared, Refused>;

    /// Answers a query or a mutation. Where the text goes over the budget, the execution stops and the budget says so.
    async fn execute(
        &self,
        prepared: &Prepared,
        variables: Variables,
        viewer: Option<UserId>,
        budget: Arc<AnswerBudget>,
    ) -> Response;

    /// A viewer has opened something that lasts: they are here until this is dropped.
    fn arrive(&self, viewer: &UserId) -> Here;

    /// Opens a subscription, which is answered until the stream is dropped.
    async fn subscribe(
        &self,
        prepared: &Prepared,
        variables: Variables,
        viewer: Option<UserId>,
        terms: Terms,
    ) -> BoxStream<'static, Told>;
}

/// How much and how fast a subscription may answer.
#[derive(Clone)]
pub struct Terms {
    /// The budget of one event: the reader rewinds it after each.
    pub budget: Arc<AnswerBudget>,
    /// The pace at which events are executed.
    pub pace: Pace,
}

/// As long as it is held, a viewer is here.
pub type Here = Box<dyn Send + Sync>;

fn schema(validation: ValidationMode) -> ChatSchema {
    Schema::build(Query, Mutation, Subscription)
        .disable_suggestions()
        .validation_mode(validation)
        .finish()
}

/// The schema in its text form.
pub fn sdl() -> String {
    let options = SDLExportOptions::new()
        .include_specified_by()
        .use_space_ident()
        .indent_width(2);
    schema(ValidationMode::Strict).sdl_with_options(options.prefer_single_line_descriptions())
}

/// True where nothing was executed: errors of execution have a path, those of a request have none.
pub fn is_refusal(response: &Response) -> bool {
    response.data == Value::Null
        && !response.errors.is_empty()
        && response.errors.iter().all(|error| error.path.is_empty())
}
