//! Executes prepared documents for a viewer.

use async_graphql::parser::types::OperationType;
use async_graphql::{Request, Response, ValidationMode, Variables};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;

use super::error::settle_outcomes;
use super::scope::Session;
use super::{ChatSchema, DocumentBounds, Documents, Executor, Here, Prepared, Refused, is_refusal, schema};
use crate::chat::Chat;
use crate::model::UserId;

/// The API over a chat.
pub struct Api {
    chat: Chat,
    /// Validates each document.
    strict: ChatSchema,
    /// For documents that were found valid.
    swift: ChatSchema,
    documents: Documents,
}

impl Api {
    pub fn new(chat: Chat, bounds: DocumentBounds) -> Self {
        let schema = |validation| schema(bounds.complexity, validation);
        let (strict, swift) = (schema(ValidationMode::Strict), schema(ValidationMode::Fast));
        let documents = Documents::new(bounds, &strict.sdl());
        Self { chat, strict, swift, documents }
    }

    fn schema(&self, prepared: &Prepared) -> &ChatSchema {
        if prepared.is_valid() { &self.swift } else { &self.strict }
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
        let mut response = self.schema(prepared).execute(self.request(prepared, variables, viewer)).await;
        note(prepared, &response);
        if prepared.operation == OperationType::Mutation {
            settle_outcomes(&mut response.errors);
        }
        response
    }

    fn arrive(&self, viewer: &UserId) -> Here {
        Box::new(self.chat.arrive(viewer))
    }

    fn subscribe(&self, prepared: &Prepared, variables: Variables, viewer: Option<UserId>) -> BoxStream<'static, Response> {
        let responses = self.schema(prepared).execute_stream(self.request(prepared, variables, viewer));
        let prepared = prepared.clone();
        responses.inspect(move |response| note(&prepared, response)).boxed()
    }
}

/// What was executed had passed validation.
fn note(prepared: &Prepared, response: &Response) {
    if !prepared.is_valid() && !is_refusal(response) {
        prepared.passed();
    }
}
