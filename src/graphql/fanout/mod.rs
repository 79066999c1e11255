//! Fan-out of subscriptions: one execution for all subscribers with equal documents and variables,
//! if no field depends on the viewer.
//!
//! Each subscriber keeps its own stream of the chat, with its own position and its own membership
//! check before each event. Only the payload is shared: the first subscriber to reach an event
//! executes the document, and the others of its [`SubscriptionGroup`] reuse the bytes. Equal
//! updates have equal keys (`chat::UpdateKey`). A response with errors is never shared.
//!
//! The subscriber that executes pays for it from the bucket of its user; the others pay nothing. A
//! subscriber without tokens waits for them, or until another one has executed the event, and holds
//! no lock meanwhile. A shared execution never shows a `clientKey`; the senders whose key it left
//! out execute the document on their own.

mod group;
mod group_key;
mod handoff;
mod payload_cache;
mod pooled_execution;
mod response;
mod update;
mod viewer_independence;

use std::sync::Arc;

use async_graphql::{Request, Response, Variables};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};

use self::group::SubscriptionGroup;
use self::group_key::GroupKey;
pub(in crate::graphql) use self::handoff::{StreamHandoff, UpdateFeed};
use self::payload_cache::PayloadCache;
pub use self::response::{EventContent, EventResponse, SharedPayload};
pub(in crate::graphql) use self::update::{StreamItem, UpdateStream};
pub(in crate::graphql) use self::viewer_independence::ViewerIndependence;
pub use self::viewer_independence::is_viewer_independent;
use super::execution::{AnswerBudget, ExecutionLimits, Prepared};
use super::scope::ExecutionContext;
use crate::chat::Chat;
use crate::model::Viewer;
use crate::weak_map::WeakMap;

/// Starts the execution of a subscription by the schema.
type OpenStream = dyn Fn(Request) -> BoxStream<'static, Response> + Send + Sync;

/// All groups of equal subscriptions.
pub(in crate::graphql) struct SubscriptionGroups {
    chat: Chat,
    open_stream: Box<OpenStream>,
    groups: WeakMap<GroupKey, SubscriptionGroup>,
    payloads: PayloadCache,
}

impl SubscriptionGroups {
    pub(in crate::graphql) fn new(
        chat: Chat,
        open_stream: impl Fn(Request) -> BoxStream<'static, Response> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            chat,
            open_stream: Box::new(open_stream),
            groups: WeakMap::default(),
            payloads: PayloadCache::default(),
        })
    }

    /// Opens a subscription without fields of the viewer.
    pub(in crate::graphql) async fn subscribe(
        self: &Arc<Self>,
        prepared: Prepared,
        independence: ViewerIndependence,
        variables: Variables,
        viewer: Option<Viewer>,
        limits: ExecutionLimits,
    ) -> BoxStream<'static, EventResponse> {
        let slot = Arc::default();
        let handoff = StreamHandoff::Opening(Arc::clone(&slot));
        let answer = self
            .open(
                &prepared,
                variables.clone(),
                viewer,
                Arc::clone(&limits.budget),
                handoff,
            )
            .next()
            .await;
        match (answer, StreamHandoff::take(&slot)) {
            (Some(refusal), _) => stream::iter([EventResponse::from(refusal)]).boxed(),
            (None, Some(updates)) => self
                .group(prepared, independence, variables)
                .stream(updates, limits),
            (None, None) => stream::empty().boxed(),
        }
    }

    /// Starts an execution that hands its stream over, or receives its updates from another stream.
    fn open(
        &self,
        prepared: &Prepared,
        variables: Variables,
        viewer: Option<Viewer>,
        budget: Arc<AnswerBudget>,
        handoff: StreamHandoff,
    ) -> BoxStream<'static, Response> {
        let context = ExecutionContext::unpaced(self.chat.clone(), viewer, budget);
        let request = prepared.request(variables).data(context).data(handoff);
        (self.open_stream)(request)
    }

    /// The group of this document and these variables. Creates it for its first subscriber.
    fn group(
        self: &Arc<Self>,
        prepared: Prepared,
        independence: ViewerIndependence,
        variables: Variables,
    ) -> Arc<SubscriptionGroup> {
        let key = GroupKey::new(&prepared, &variables);
        self.groups.get_or_insert_with(key, || {
            SubscriptionGroup::new(Arc::clone(self), independence, prepared, variables)
        })
    }
}
