//! Messages, with their attachments and steps.

mod attachment;
mod edge;
mod step;

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{Context, ID, Object};
use futures_util::future::try_join;
use serde_json::value::RawValue;

pub(super) use self::attachment::Attachment;
pub(crate) use self::attachment::AttachmentInput;
pub(super) use self::edge::message_edge_by;
pub(crate) use self::edge::{MessageEdge, message_edge, message_edge_at};
pub(crate) use self::step::{MessageStep, MessageStepInput};
use super::reaction::{self, Reaction};
use super::receipt::{self, DeliveryStatus, ReceiptEdge};
use super::sync_fields::{JsonText, SyncFields};
use super::{Conversation, MessageKind, User};
use crate::chat::VisibleConversation;
use crate::graphql::connection::{PageArguments, RelayConnection};
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::{DateTime, Json, Uuid};
use crate::graphql::scope::{ExecutionContext, ViewerScope};
use crate::model::{self, ConversationId, Mentions, MessageId, OrderKey};

pub(crate) struct Message {
    scope: ViewerScope,
    message: Arc<model::Message>,
}

impl Message {
    pub(crate) fn new(scope: &ViewerScope, message: Arc<model::Message>) -> Self {
        Self {
            scope: scope.clone(),
            message,
        }
    }

    /// Loads a message if there is one that the viewer may see. All loads of one request share one check of the
    /// membership.
    pub(crate) async fn load(
        scope: &ViewerScope,
        conversation: ConversationId,
        id: impl Into<Option<MessageId>>,
    ) -> Result<Option<Self>> {
        let Some(id) = id.into() else {
            return Ok(None);
        };
        let loaders = &scope.loaders;
        let (seen, message) = try_join(
            loaders.conversations.load(conversation),
            loaders.messages.load((conversation, id)),
        )
        .await?;
        Ok(Self::of_visible(scope, seen, message))
    }

    /// The message, if it lies above the floor of a viewer who sees its conversation.
    fn of_visible(
        scope: &ViewerScope,
        seen: Option<VisibleConversation>,
        message: Option<Arc<model::Message>>,
    ) -> Option<Self> {
        let (seen, message) = seen.zip(message)?;
        scope.note_looked_at(message.id.order_key());
        seen.shows(message.id).then(|| Self::new(scope, message))
    }

    fn model_steps(&self) -> &[model::MessageStep] {
        let content = self.message.content.as_ref();
        content.map_or(&[], |content| content.steps.as_slice())
    }

    /// Loads the newest message at or before a position. `None` if there is none above the floor.
    pub(crate) async fn at(
        scope: &ViewerScope,
        conversation: ConversationId,
        position: OrderKey,
    ) -> Result<Option<Self>> {
        if position == OrderKey::MIN {
            return Ok(None);
        }
        let loaders = &scope.loaders;
        let (seen, message) = try_join(
            loaders.conversations.load(conversation),
            loaders.messages_at.load((conversation, position)),
        )
        .await?;
        Ok(Self::of_visible(scope, seen, message))
    }
}

/// A message of a conversation. An edit or a deletion keeps its position in the history.
#[Object]
impl Message {
    /// Opaque global id, unique among all objects. `Query.node` accepts it.
    pub(crate) async fn id(&self) -> ID {
        GlobalId::Message(self.message.conversation, self.message.id).encode()
    }

    /// Timeuuid of the message: its clustering key. The order of messages follows its time.
    async fn uuid(&self) -> Uuid {
        Uuid(self.message.id.uuid())
    }

    /// Text that sorts the messages of a conversation in their order, bytewise.
    async fn order_key(&self) -> String {
        self.message.id.order_key().to_string()
    }

    /// The conversation of the message.
    async fn conversation(&self) -> Result<Conversation> {
        Conversation::of(&self.scope, self.message.conversation).await
    }

    /// Sender of the message.
    async fn sender(&self) -> User {
        User::new(&self.scope, self.message.sender.clone())
    }

    /// Kind: TEXT (written by the sender) or SYSTEM (an event of the conversation).
    async fn kind(&self) -> MessageKind {
        self.message.kind.into()
    }

    /// Text of the message. Null once the message is deleted. Empty only beside attachments and in
    /// a SYSTEM message.
    async fn body(&self, ctx: &Context<'_>) -> Result<Option<&str>> {
        let body = self
            .message
            .content
            .as_ref()
            .map(|content| content.body.as_str());
        ExecutionContext::charge(ctx, body.map_or(0, str::len))?;
        Ok(body)
    }

    /// Attachments: at most 10. Empty once the message is deleted.
    async fn attachments(&self, ctx: &Context<'_>) -> Result<Vec<Attachment<'_>>> {
        let attachments: Vec<_> = self
            .message
            .content
            .iter()
            .flat_map(|content| &content.attachments)
            .map(Attachment)
            .collect();
        ExecutionContext::charge(
            ctx,
            attachments
                .iter()
                .map(|Attachment(attachment)| attachment.url.len())
                .sum(),
        )?;
        Ok(attachments)
    }

    /// Metadata of the sending client, unchanged: any JSON value, its keys in order. Null once the
    /// message is deleted. In a SYSTEM message it is an object with `event` (joined, left, removed,
    /// renamed, roleChanged, visibilityChanged, expiryChanged, sendRoleChanged, addRoleChanged or pinRoleChanged), `usernames` (the affected users), and
    /// the new `name`, `role`, `visibility` or `seconds`.
    async fn metadata(&self) -> Option<Json> {
        metadata(&self.message).map(|json| Json(json.get().to_owned()))
    }

    /// Message that this one replies to. Null if it is no reply, and if the viewer does not see that
    /// message: it has expired, was truncated or cleared, or is older than what the viewer sees.
    async fn reply_to(&self) -> Nullable<Self> {
        let Self { scope, message } = self;
        nullable(Self::load(scope, message.conversation, message.reply_to)).await
    }

    /// The `idempotencyKey` of `sendMessage`, by which a client matches its optimistic message.
    /// Null for every viewer but the sender.
    async fn client_key(&self) -> Option<&str> {
        self.scope.client_key(&self.message)
    }

    /// Global id under which `liveMessages` showed the message while it was written, whether it was or not. Null
    /// without an `idempotencyKey`, and once the sender is erased.
    async fn live_message_id(&self) -> Nullable<ID> {
        nullable(async {
            let message = &self.message;
            let Some(key) = &message.client_key else {
                return Ok(None);
            };
            let lives = &self.scope.chat.lives;
            let live = lives.key_of(message.conversation, &message.sender, key);
            Ok(Some(GlobalId::LiveMessage(live.await?).encode()))
        })
        .await
    }

    /// Time of sending: the time in `uuid`.
    async fn created_at(&self) -> DateTime {
        DateTime(self.message.id.moment())
    }

    /// Time of the last edit. Null if the message was never edited.
    async fn edited_at(&self) -> Option<DateTime> {
        self.message.content.as_ref()?.edited_at.map(DateTime)
    }

    /// Time of deletion. Null if the message is not deleted.
    async fn deleted_at(&self) -> Option<DateTime> {
        self.message.deleted_at.map(DateTime)
    }

    /// Time at which the message expires, by the expiry in force now: no event comes then, and clients drop
    /// the message. Null if it never expires.
    async fn expires_at(&self) -> Nullable<DateTime> {
        nullable(async {
            let id = self.message.conversation;
            let seen = self.scope.loaders.conversations.load(id).await?;
            let ttl = seen.and_then(|seen| self.scope.chat.access.ttl_seconds(&seen));
            let expiry = |seconds: u32| {
                let sent_at = self.message.id.moment();
                DateTime(sent_at.plus_micros(i64::from(seconds) * 1_000_000))
            };
            Ok(ttl.map(expiry))
        })
        .await
    }

    /// Users whom the sender named as mentioned, ordered by username (bytewise): at most 50. Only
    /// participants are counted and notified. Empty once the message is deleted.
    async fn mentions(&self) -> Vec<User> {
        let mentions = self.message.mentions();
        let users = mentions.into_iter().flat_map(Mentions::users);
        users
            .map(|user| User::new(&self.scope, user.clone()))
            .collect()
    }

    /// True if the message mentions every participant.
    async fn mentions_everyone(&self) -> bool {
        mentions_everyone(&self.message)
    }

    /// True if the message is pinned. A deletion unpins.
    async fn is_pinned(&self) -> bool {
        self.message.current_pin().is_some()
    }

    /// Steps of the work behind the message, such as calls of tools, in the sender's order: at most 20. Empty
    /// once the message is deleted.
    async fn steps(&self, ctx: &Context<'_>) -> Result<Vec<MessageStep<'_>>> {
        let steps = self.model_steps();
        ExecutionContext::charge(ctx, steps.iter().map(model::MessageStep::bytes).sum())?;
        Ok(steps.iter().map(MessageStep).collect())
    }

    /// True if the writer fell silent while it wrote the message, and the server sent what there was. An edit
    /// ends it.
    async fn is_interrupted(&self) -> bool {
        is_interrupted(&self.message)
    }

    /// Reactions, one for each emoji, ordered by the emoji (bytewise): at most 20. Empty once the
    /// message is deleted.
    async fn reactions(&self) -> Result<Vec<Reaction>> {
        reaction::reactions(&self.scope, &self.message).await
    }

    /// Least advanced delivery status among the other participants. Users who joined later or have
    /// left do not count, nor do agents. Null without such participants, and in a large conversation.
    async fn status(&self) -> Nullable<DeliveryStatus> {
        nullable(receipt::status(&self.scope, &self.message)).await
    }

    /// Delivery status at each of the other participants, ordered by username (bytewise), without
    /// users who joined later or have left, and without agents. Without `first` and `last` a page has 20.
    async fn receipts(
        &self,
        #[graphql(
            desc = "Number of edges from the start of the list, or after `after`: 0 to 100."
        )]
        first: Option<i32>,
        #[graphql(desc = "Cursor of an edge: returns only later ones.")] after: Option<String>,
        #[graphql(
            desc = "Number of edges from the end of the list, or before `before`: 0 to 100. Excludes `first`."
        )]
        last: Option<i32>,
        #[graphql(desc = "Cursor of an edge: returns only earlier ones.")] before: Option<String>,
    ) -> Result<RelayConnection<ReceiptEdge>> {
        receipt::receipts(
            &self.scope,
            &self.message,
            &PageArguments::new(first, after, last, before),
        )
        .await
    }
}

fn is_interrupted(message: &model::Message) -> bool {
    let content = message.content.as_ref();
    content.is_some_and(|content| content.is_interrupted)
}

fn mentions_everyone(message: &model::Message) -> bool {
    message.mentions().is_some_and(|mentions| mentions.everyone)
}

/// Metadata as valid JSON. A corrupt row has none; `wideroom verify` reports it.
fn metadata(message: &model::Message) -> Option<&RawValue> {
    message.content.as_ref()?.metadata.as_ref()?.json().ok()
}

impl SyncFields for Message {
    const TYPES: &'static [&'static str] = &["Message", "Node"];

    fn write_sync(&self, field: &Field, json: &mut JsonText) -> bool {
        let message = &*self.message;
        match field.name.node.as_str() {
            "id" => json.put_id(&GlobalId::Message(message.conversation, message.id)),
            "uuid" => json.put(message.id.uuid()),
            "orderKey" => json.put_plain(&message.id.order_key().to_string()),
            "sender" => json.object(&User::new(&self.scope, message.sender.clone()), field),
            "kind" => json.put_enum(MessageKind::from(message.kind)),
            "body" => json.put_text_or_null(
                message
                    .content
                    .as_ref()
                    .map(|content| content.body.as_str()),
            ),
            "metadata" => json.put(metadata(message)),
            "clientKey" => json.put_text_or_null(self.scope.client_key(message)),
            "createdAt" => json.put_time(message.id.moment()),
            "editedAt" => json.put_time_or_null(
                message
                    .content
                    .as_ref()
                    .and_then(|content| content.edited_at),
            ),
            "mentions" if message.mentions().is_none() => json.put([(); 0]),
            "mentionsEveryone" => json.put(mentions_everyone(message)),
            "liveMessageId" if message.client_key.is_none() => json.put_text_or_null(None),
            "isInterrupted" => json.put(is_interrupted(message)),
            "steps" if self.model_steps().is_empty() => json.put([(); 0]),
            "isPinned" => json.put(message.current_pin().is_some()),
            "deletedAt" => json.put_time_or_null(message.deleted_at),
            _ => false,
        }
    }
}
