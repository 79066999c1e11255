//! Live messages: messages while they are written.

use async_graphql::{Context, Enum, ID, Object};

use super::message::MessageStep;
use super::{Conversation, Message, User};
use crate::chat::LiveView;
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::{ExecutionContext, ViewerScope};
use crate::model::{self, LiveKey};

/// State of a live message.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::LiveMessageState")]
pub(crate) enum LiveMessageState {
    /// It is being written.
    Writing,
    /// It has become a message.
    Sent,
    /// It ended without a message.
    Discarded,
}

pub(crate) struct LiveMessage {
    scope: ViewerScope,
    view: LiveView,
}

impl LiveMessage {
    pub(crate) fn new(scope: &ViewerScope, view: LiveView) -> Self {
        Self {
            scope: scope.clone(),
            view,
        }
    }

    /// Loads a live message if the viewer may see it, ended or not.
    pub(crate) async fn load(scope: &ViewerScope, live: LiveKey) -> Result<Option<Self>> {
        let found = scope.chat.lives.view(&scope.caller, live).await?;
        Ok(found.map(|view| Self::new(scope, view)))
    }
}

/// A message while it is written. It is in no history, count, search, inbox or outbox; `sendMessage` with its key makes it
/// a message. It is kept for 24 hours.
#[Object]
impl LiveMessage {
    /// Opaque global id, unique among all objects. `Query.node` accepts it.
    pub(crate) async fn id(&self) -> ID {
        GlobalId::LiveMessage(self.view.message.key).encode()
    }

    /// The conversation in which it is written.
    async fn conversation(&self) -> Result<Conversation> {
        Conversation::of(&self.scope, self.view.message.key.conversation).await
    }

    /// User who writes it.
    async fn sender(&self) -> User {
        User::new(&self.scope, self.view.message.start.sender.clone())
    }

    /// Message that it replies to. Null if it is no reply, and if the viewer does not see that message.
    async fn reply_to(&self) -> Nullable<Message> {
        let message = &self.view.message;
        let (conversation, id) = (message.key.conversation, message.start.reply_to);
        nullable(Message::load(&self.scope, conversation, id)).await
    }

    /// Text so far: at most 16 KiB of UTF-8.
    async fn body(&self, ctx: &Context<'_>) -> Result<&str> {
        ExecutionContext::charge(ctx, self.view.body.len())?;
        Ok(&self.view.body)
    }

    /// State of the work in the writer's words, such as `thinking`. Null if the writer gave none.
    async fn status(&self) -> Option<&str> {
        self.view
            .message
            .status
            .as_ref()
            .map(model::LiveStatus::as_str)
    }

    /// Steps of the work behind it, in the order that the writer gave: at most 20.
    async fn steps(&self) -> Vec<MessageStep<'_>> {
        let steps = self.view.message.steps.as_slice();
        steps.iter().map(MessageStep).collect()
    }

    /// State: WRITING, SENT or DISCARDED.
    async fn state(&self) -> LiveMessageState {
        self.view.state().into()
    }

    /// User who asked the writer to stop. Null if nobody has.
    async fn stop_requested_by(&self) -> Option<User> {
        let stop = self.view.message.stop.as_ref()?;
        Some(User::new(&self.scope, stop.by.clone()))
    }

    /// Time of its first write.
    async fn started_at(&self) -> DateTime {
        DateTime(self.view.message.start.at)
    }

    /// The message that it became. Null unless it is SENT.
    async fn message(&self) -> Nullable<Message> {
        let conversation = self.view.message.key.conversation;
        nullable(Message::load(&self.scope, conversation, self.view.sent)).await
    }
}
