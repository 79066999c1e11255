//! Typing: signals that are published and never persisted.
//!
//! A signal lasts a few seconds. Each subscriber ends it by its own timer, so a client that
//! disconnects, or a lost signal, leaves nobody typing forever.

use std::sync::Arc;

use crate::chat::access::Access;
use crate::chat::bounds::RateBounds;
use crate::chat::components::Components;
use crate::chat::error::Result;
use crate::chat::publisher::Publisher;
use crate::chat::rate_limit::RateLimit;
use crate::metrics::Metrics;
use crate::model::{Conversation, ConversationId, Viewer};
use crate::rate::Rate;

pub struct TypingService {
    access: Arc<Access>,
    publisher: Arc<Publisher>,
    signals: RateLimit,
}

impl TypingService {
    pub(crate) fn new(components: &Components, bounds: &RateBounds) -> Self {
        let rate = Rate {
            count: 1,
            per: bounds.typing_interval,
            burst: 1,
        };
        Self {
            access: Arc::clone(&components.access),
            publisher: Arc::clone(&components.publisher),
            signals: RateLimit::new("typing", rate, bounds.is_on),
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.signals.register(metrics);
    }

    /// Publishes that the viewer has started or stopped typing. Returns the conversation.
    pub async fn set(
        &self,
        caller: impl Into<Viewer>,
        id: ConversationId,
        is_typing: bool,
    ) -> Result<Arc<Conversation>> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let participation = match self.access.participation(viewer, id).await {
            Ok(participation) => participation,
            Err(error) => return Err(self.access.refusal(caller, id, error).await),
        };
        self.access.require_unsilenced(caller, &participation)?;
        let conversation = participation.conversation;
        self.access.require_unhidden(viewer, &conversation).await?;
        self.signals.take(&(viewer, id, is_typing))?;
        self.publisher.publish_typing(viewer, id, is_typing);
        Ok(conversation)
    }
}
