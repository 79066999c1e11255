//! Executes prepared documents for a viewer.

use async_graphql::parser::types::OperationType;
use async_graphql::{Request, Response, Variables};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use super::error::settle_outcomes;
use super::scope::Session;
use super::{ChatSchema, DocumentBounds, Documents, Executor, Here, Prepared, Refused, schema};
use crate::chat::Chat;
use crate::metrics::Metrics;
use crate::model::UserId;

/// The API over a chat.
pub struct Api {
    chat: Chat,
    schema: ChatSchema,
    documents: Documents,
}

impl Api {
    pub fn new(chat: Chat, bounds: DocumentBounds) -> Self {
        Self { chat, schema: schema(bounds.complexity), documents: Documents::new(bounds) }
    }

    /// Tells what it counts of itself.
    pub fn register(&self, metrics: &Metrics) {
        self.documents.meter().register(metrics);
    }

    fn request(&self, prepared: &Prepared, variables: Variables, viewer: Option<UserId>) -> Request {
        let mut request = Request::new("").variables(variables).data(Session::new(self.chat.clone(), viewer));
        request.operation_name = prepared.name.as_ref().map(ToString::to_string);
        request.set_parsed_query(prepared.document.as_ref().clone());
        request
    }
}

#[async_trait]
impl Executor for Api {
    fn prepare(&self, query: &str, operation_name: Option<&str>) -> Result<Prepared, Refused> {
        self.documents.prepare(query, operation_name)
    }

    async fn execute(&self, prepared: &Prepared, variables: Variables, viewer: Option<UserId>) -> Response {
        let mut response = self.schema.execute(self.request(prepared, variables, viewer)).await;
        if prepared.operation == OperationType::Mutation {
            settle_outcomes(&mut response.errors);
        }
        response
    }

    fn arrive(&self, viewer: &UserId) -> Here {
        Box::new(self.chat.arrive(viewer))
    }

    fn subscribe(&self, prepared: &Prepared, variables: Variables, viewer: Option<UserId>) -> BoxStream<'static, Response> {
        self.schema.execute_stream(self.request(prepared, variables, viewer)).boxed()
    }
}
