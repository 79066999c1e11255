//! Execution of prepared documents for a viewer, over the chat.

use std::sync::Arc;

use async_graphql::parser::types::OperationType;
use async_graphql::{Response, Variables};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};

use super::error::settle_outcomes;
use super::execution::{
    AnswerBudget, DocumentBounds, DocumentCache, ExecutionLimits, Prepared, RequestError,
};
use super::fanout::{EventContent, EventResponse, SubscriptionGroups, ViewerIndependence};
use super::outbox_document::{OutboxDocument, RenderedEvent};
use super::schema::{self, SCHEMA, TYPES};
use super::scope::ExecutionContext;
use super::subscription::OutboxHandoff;
use super::{OnlineGuard, OperationExecutor};
use crate::chat::{Chat, OutboxUpdate, Refusal, RestrictionWatch};
use crate::metrics::Metrics;
use crate::model::{Timestamp, Viewer};
use crate::rate::Pace;

/// The API over a chat.
pub struct Api {
    chat: Chat,
    documents: DocumentCache,
    groups: Arc<SubscriptionGroups>,
}

impl Api {
    pub fn new(chat: Chat, bounds: DocumentBounds) -> Self {
        let documents = DocumentCache::new(bounds, Arc::clone(&TYPES));
        let open_stream = |request| SCHEMA.execute_stream(request).boxed();
        let groups = SubscriptionGroups::new(chat.clone(), open_stream);
        Self {
            chat,
            documents,
            groups,
        }
    }

    /// Adds the metrics of the document cache to those of the process.
    pub fn register(&self, metrics: &Metrics) {
        self.documents.counts().register(metrics);
    }

    /// Executes the document of a webhook for one event. `None` if the execution gave nothing.
    pub async fn render(
        &self,
        document: &OutboxDocument,
        update: OutboxUpdate,
    ) -> Option<RenderedEvent> {
        let budget = Arc::new(AnswerBudget::default());
        let viewer = Some(document.viewer().clone());
        let request = document
            .prepared()
            .request(Variables::default())
            .data(ExecutionContext::unpaced(self.chat.clone(), viewer, budget))
            .data(OutboxHandoff::new(Some(update)));
        // The document was validated when it was read.
        let mut responses = SCHEMA.execute_stream(request).boxed();
        responses.next().await.map(RenderedEvent::from)
    }

    fn context(&self, viewer: Option<Viewer>, limits: ExecutionLimits) -> ExecutionContext {
        ExecutionContext::new(self.chat.clone(), viewer, limits)
    }
}

impl OperationExecutor for Api {
    fn prepare(&self, query: &str, operation_name: Option<&str>) -> Result<Prepared, RequestError> {
        self.documents.prepare(query, operation_name)
    }

    fn execute<'a>(
        &'a self,
        prepared: &'a Prepared,
        variables: Variables,
        viewer: Option<Viewer>,
        budget: Arc<AnswerBudget>,
    ) -> BoxFuture<'a, Response> {
        Box::pin(async move {
            if viewer.is_some() {
                prepared.cache();
            }
            let limits = ExecutionLimits {
                budget,
                pace: Pace::free(),
            };
            let request = prepared
                .request(variables)
                .data(self.context(viewer.clone(), limits));
            // Boxed: each wrapper around the library's future would copy it and its response.
            let execution = SCHEMA.execute(request);
            let execution = execution.map(Box::new).boxed();
            let mut response = match &viewer {
                Some(viewer) => *self.chat.reading_for(&viewer.user, execution).await,
                None => *execution.await,
            };
            schema::describe(
                &prepared.definition().selection_set.node,
                &mut response.data,
            );
            if prepared.operation == OperationType::Mutation {
                settle_outcomes(&mut response.errors);
            }
            response
        })
    }

    fn arrive(&self, viewer: &Viewer) -> Option<OnlineGuard> {
        let guard = self.chat.presence.arrive(viewer)?;
        Some(Box::new(guard))
    }

    fn check_restrictions(
        &self,
        viewer: &Viewer,
        issued_at: Option<Timestamp>,
    ) -> Result<(), Refusal> {
        self.chat.restrictions.check(viewer, issued_at)
    }

    fn watch_restrictions(&self) -> RestrictionWatch {
        self.chat.restrictions.watch()
    }

    fn subscribe<'a>(
        &'a self,
        prepared: &'a Prepared,
        variables: Variables,
        viewer: Option<Viewer>,
        limits: ExecutionLimits,
    ) -> BoxFuture<'a, BoxStream<'static, EventResponse>> {
        Box::pin(async move {
            if viewer.is_some() {
                prepared.cache();
            }
            if let Some(independence) = ViewerIndependence::of(prepared) {
                return self
                    .groups
                    .subscribe(prepared.clone(), independence, variables, viewer, limits)
                    .await;
            }
            let budget = Arc::clone(&limits.budget);
            let request = prepared
                .request(variables)
                .data(self.context(viewer.clone(), limits));
            let responses = SCHEMA.execute_stream(request);
            let responses = responses
                .map(move |response| EventResponse {
                    content: EventContent::own(response, &budget),
                    has_more: false,
                })
                .boxed();
            let Some(Viewer { user: viewer, .. }) = viewer else {
                return responses;
            };
            let chat = self.chat.clone();
            stream::unfold(responses, move |mut responses| {
                let (chat, viewer) = (chat.clone(), viewer.clone());
                async move {
                    let response = chat.reading_for(&viewer, responses.next()).await?;
                    Some((response, responses))
                }
            })
            .boxed()
        })
    }
}
