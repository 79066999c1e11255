//! Executes prepared documents for a viewer.

use std::sync::Arc;

use async_graphql::parser::types::OperationType;
use async_graphql::{Request, Response, ValidationMode, Variables};
use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};

use super::budget::AnswerBudget;
use super::error::settle_outcomes;
use super::scope::Session;
use super::shared::{Shared, Told};
use super::{
    ChatSchema, DocumentBounds, Documents, Executor, Here, Prepared, Refused, Terms, is_refusal,
    schema,
};
use crate::chat::Chat;
use crate::metrics::Metrics;
use crate::model::UserId;
use crate::rate::Pace;

/// The API over a chat.
pub struct Api {
    chat: Chat,
    schemas: Schemas,
    documents: Documents,
    shared: Arc<Shared>,
}

impl Api {
    pub fn new(chat: Chat, bounds: DocumentBounds) -> Self {
        let schemas = Schemas::new();
        let documents = Documents::new(bounds, &schemas.strict.sdl());
        let shared = Shared::new(schemas.clone(), chat.clone());
        Self {
            chat,
            schemas,
            documents,
            shared,
        }
    }

    /// Tells what it counts of itself.
    pub fn register(&self, metrics: &Metrics) {
        self.documents.meter().register(metrics);
    }

    fn request(
        &self,
        prepared: &Prepared,
        variables: Variables,
        viewer: Option<UserId>,
        terms: Terms,
    ) -> Request {
        request(prepared, variables).data(Session::new(self.chat.clone(), viewer, terms))
    }
}

/// It wants a session yet.
pub(super) fn request(prepared: &Prepared, variables: Variables) -> Request {
    let mut request = Request::new("").variables(variables);
    request.operation_name = prepared.name.as_ref().map(ToString::to_string);
    request.set_parsed_query(prepared.document.as_ref().clone());
    request
}

#[async_trait]
impl Executor for Api {
    fn prepare(&self, query: &str, operation_name: Option<&str>) -> Result<Prepared, Refused> {
        self.documents.prepare(query, operation_name)
    }

    async fn execute(
        &self,
        prepared: &Prepared,
        variables: Variables,
        viewer: Option<UserId>,
        budget: Arc<AnswerBudget>,
    ) -> Response {
        let is_authenticated = viewer.is_some();
        let terms = Terms {
            budget,
            pace: Pace::free(),
        };
        let execution = self.schemas.of(prepared).execute(self.request(
            prepared,
            variables,
            viewer.clone(),
            terms,
        ));
        let mut response = match &viewer {
            Some(viewer) => self.chat.reading_for(viewer, execution).await,
            None => execution.await,
        };
        note(prepared, is_authenticated, &response);
        if prepared.operation == OperationType::Mutation {
            settle_outcomes(&mut response.errors);
        }
        response
    }

    fn arrive(&self, viewer: &UserId) -> Here {
        Box::new(self.chat.arrive(viewer))
    }

    async fn subscribe(
        &self,
        prepared: &Prepared,
        variables: Variables,
        viewer: Option<UserId>,
        terms: Terms,
    ) -> BoxStream<'static, Told> {
        if let Some(free) = prepared.free() {
            return self
                .shared
                .subscribe(prepared.clone(), free, variables, viewer, terms)
                .await;
        }
        let responses = self.schemas.of(prepared).execute_stream(self.request(
            prepared,
            variables,
            viewer.clone(),
            terms,
        ));
        let (prepared, is_authenticated) = (prepared.clone(), viewer.is_some());
        let responses = responses
            .inspect(move |response| note(&prepared, is_authenticated, response))
            .map(Told::Own)
            .boxed();
        let Some(viewer) = viewer else {
            return responses;
        };
        let chat = self.chat.clone();
        stream::unfold(responses, move |mut responses| {
            let (chat, viewer) = (chat.clone(), viewer.clone());
            async move {
                let told = chat.reading_for(&viewer, responses.next()).await?;
                Some((told, responses))
            }
        })
        .boxed()
    }
}

/// What was executed had passed validation.
fn note(prepared: &Prepared, is_authenticated: bool, response: &Response) {
    if !prepared.is_valid() && !is_refusal(response) {
        prepared.passed(is_authenticated);
    }
}

/// The schema, for documents that were not validated yet and for those that were.
#[derive(Clone)]
pub(super) struct Schemas {
    strict: ChatSchema,
    swift: ChatSchema,
}

impl Schemas {
    fn new() -> Self {
        Self {
            strict: schema(ValidationMode::Strict),
            swift: schema(ValidationMode::Fast),
        }
    }

    pub(super) fn of(&self, prepared: &Prepared) -> &ChatSchema {
        if prepared.is_valid() {
            &self.swift
        } else {
            &self.strict
        }
    }
}
