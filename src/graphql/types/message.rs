//! Messages and what is attached to them.

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::resolver_utils::enum_value;
use async_graphql::{Context, ID, InputObject, Object, SimpleObject};
use futures_util::future::try_join;
use serde_json::value::RawValue;

use super::reaction::{self, Reaction};
use super::receipt::{self, DeliveryStatus, ReceiptEdge};
use super::{Conversation, MessageKind, User};
use crate::chat::AttachmentDraft;
use crate::graphql::connection::{Connection, Edge, PageArguments};
use crate::graphql::cursor::{Cursors, List};
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::{DateTime, Json, Uuid};
use crate::graphql::scope::{Scope, Session};
use crate::graphql::swift::{JsonText, Plain, Swift};
use crate::model::{self, ConversationId, MessageId, OrderKey};

pub(in crate::graphql) struct Message {
    scope: Scope,
    message: Arc<model::Message>,
}

impl Message {
    pub(in crate::graphql) fn new(scope: &Scope, message: Arc<model::Message>) -> Self {
        Self { scope: scope.clone(), message }
    }

    /// Where the viewer may see it. All that a request loads of a conversation shares one look at whether they may.
    pub(in crate::graphql) async fn load(scope: &Scope, conversation: ConversationId, id: MessageId) -> Result<Option<Self>> {
        let loaders = &scope.loaders;
        let (seen, message) = try_join(loaders.conversations.load(conversation), loaders.messages.load((conversation, id))).await?;
        Ok(seen.and(message).map(|message| Self::new(scope, message)))
    }

    /// The newest one at or before a place; none before the first.
    pub(in crate::graphql) async fn at(scope: &Scope, conversation: ConversationId, place: OrderKey) -> Result<Option<Self>> {
        if place == OrderKey::MIN {
            return Ok(None);
        }
        Ok(scope.loaders.messages_at.load((conversation, place)).await?.map(|message| Self::new(scope, message)))
    }
}

/// A message of a conversation.
#[Object]
impl Message {
    /// An opaque id, unique among all objects.
    pub(in crate::graphql) async fn id(&self) -> ID {
        GlobalId::Message(self.message.conversation, self.message.id).encode()
    }

    /// The clustering key, a timeuuid: messages are ordered by it.
    async fn uuid(&self) -> Uuid {
        Uuid(self.message.id.uuid())
    }

    /// Where it was sent.
    async fn conversation(&self) -> Result<Conversation> {
        Conversation::of(&self.scope, self.message.conversation).await
    }

    /// Who sent it.
    async fn sender(&self) -> User {
        User::new(&self.scope, self.message.sender.clone())
    }

    /// Whether its sender wrote it, or something happened.
    async fn kind(&self) -> MessageKind {
        self.message.kind.into()
    }

    /// The text. Null once deleted; empty only beside attachments, and in a SYSTEM message.
    async fn body(&self, ctx: &Context<'_>) -> Result<Option<&str>> {
        let body = self.message.content.as_ref().map(|content| content.body.as_str());
        Session::charge(ctx, body.map_or(0, str::len))?;
        Ok(body)
    }

    /// What is attached. None once deleted.
    async fn attachments(&self, ctx: &Context<'_>) -> Result<Vec<Attachment<'_>>> {
        let attachments: Vec<_> = self.message.content.iter().flat_map(|content| &content.attachments).map(Attachment).collect();
        Session::charge(ctx, attachments.iter().map(|Attachment(attachment)| attachment.url.len()).sum())?;
        Ok(attachments)
    }

    /// The client's own: the value that was sent, its keys in their order. Null once deleted. Of a SYSTEM message: `event`, one of joined, left, removed, renamed and roleChanged, and
    /// `usernames`, those whom it is about; beside them the new `name`, or the new `role`.
    async fn metadata(&self) -> Option<Json> {
        metadata(&self.message).map(|json| Json(json.get().to_owned()))
    }

    /// The message that it answers.
    async fn reply_to(&self) -> Nullable<Self> {
        nullable(async {
            match self.message.reply_to {
                Some(id) => Self::load(&self.scope, self.message.conversation, id).await,
                None => Ok(None),
            }
        })
        .await
    }

    /// The idempotencyKey of its send: how a client finds its own optimistic message again. Null to all but the sender.
    async fn client_key(&self) -> Option<&str> {
        self.scope.client_key(&self.message)
    }

    /// When it was sent: the time inside the timeuuid.
    async fn created_at(&self) -> DateTime {
        DateTime(self.message.id.moment())
    }

    /// When its content was last changed. Null where it never was.
    async fn edited_at(&self) -> Option<DateTime> {
        self.message.content.as_ref()?.edited_at.map(DateTime)
    }

    /// When it was deleted. Null where it is there.
    async fn deleted_at(&self) -> Option<DateTime> {
        self.message.deleted_at.map(DateTime)
    }

    /// The reactions to it, one for each emoji, by the bytes of these. None once deleted.
    async fn reactions(&self) -> Result<Vec<Reaction>> {
        reaction::reactions(&self.scope, &self.message).await
    }

    /// The least advanced state over the other participants who were there when it was sent and have not left; null where there is none of
    /// them, and in a large conversation.
    async fn status(&self) -> Nullable<DeliveryStatus> {
        nullable(receipt::status(&self.scope, &self.message)).await
    }

    /// How far it has come at each of the other participants who were there when it was sent and have not left, by the bytes of their
    /// usernames.
    async fn receipts(
        &self,
        #[graphql(desc = "At most this many, from the beginning or behind `after`. 0 to 100; 20 by default.")] first: Option<i32>,
        #[graphql(desc = "Only what follows this cursor.")] after: Option<String>,
        #[graphql(desc = "At most this many, from the end or before `before`. 0 to 100.")] last: Option<i32>,
        #[graphql(desc = "Only what precedes this cursor.")] before: Option<String>,
    ) -> Result<Connection<ReceiptEdge>> {
        receipt::receipts(&self.scope, &self.message, &PageArguments { first, after, last, before }).await
    }
}

/// What of a message's metadata may stand in an answer. A damaged row has none: `verify` names it.
fn metadata(message: &model::Message) -> Option<&RawValue> {
    message.content.as_ref()?.metadata.as_ref()?.json().ok()
}

impl Plain for Message {
    const TYPES: &'static [&'static str] = &["Message", "Node"];

    fn plain(&self, field: &Field, json: &mut JsonText<'_>) -> bool {
        let message = &*self.message;
        match field.name.node.as_str() {
            "id" => json.put(GlobalId::Message(message.conversation, message.id).encode()),
            "uuid" => json.put(message.id.uuid()),
            "sender" => json.object(&User::new(&self.scope, message.sender.clone()), field),
            "kind" => json.put(enum_value(MessageKind::from(message.kind))),
            "body" => json.put(message.content.as_ref().map(|content| content.body.as_str())),
            "metadata" => json.put(metadata(message)),
            "clientKey" => json.put(self.scope.client_key(message)),
            "createdAt" => json.put(DateTime(message.id.moment())),
            "editedAt" => json.put(message.content.as_ref().and_then(|content| content.edited_at).map(DateTime)),
            "deletedAt" => json.put(message.deleted_at.map(DateTime)),
            _ => false,
        }
    }
}

/// A description of something that lies elsewhere, such as a picture. Wideroom never fetches it.
struct Attachment<'a>(&'a model::Attachment);

/// A description of something that lies elsewhere, such as a picture. Wideroom never fetches it.
#[Object]
impl Attachment<'_> {
    /// Where it lies: an https or http URL.
    async fn url(&self) -> &str {
        &self.0.url
    }

    /// Its media type, such as image/png.
    async fn mime_type(&self) -> &str {
        &self.0.mime_type
    }

    /// The name of the file.
    async fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Its size in bytes, a whole number.
    async fn size_bytes(&self) -> Option<f64> {
        self.0.size_bytes.map(|size| size as f64)
    }

    /// Its width in pixels.
    async fn width(&self) -> Option<i32> {
        self.0.width.and_then(|width| i32::try_from(width).ok())
    }

    /// Its height in pixels.
    async fn height(&self) -> Option<i32> {
        self.0.height.and_then(|height| i32::try_from(height).ok())
    }
}

/// Something to attach: at most 10, together at most 8 KiB.
#[derive(InputObject)]
pub(in crate::graphql) struct AttachmentInput {
    /// Where it lies: an https or http URL of at most 2,048 bytes.
    url: String,
    /// Its media type, such as image/png: at most 127 bytes.
    mime_type: String,
    /// The name of the file: at most 255 bytes.
    name: Option<String>,
    /// Its size in bytes, a whole number.
    size_bytes: Option<f64>,
    /// Its width in pixels.
    width: Option<i32>,
    /// Its height in pixels.
    height: Option<i32>,
}

impl From<AttachmentInput> for AttachmentDraft {
    fn from(input: AttachmentInput) -> Self {
        Self {
            url: input.url,
            mime_type: input.mime_type,
            name: input.name,
            size_bytes: input.size_bytes,
            width: input.width,
            height: input.height,
        }
    }
}

/// A message in a list.
#[derive(SimpleObject)]
pub(in crate::graphql) struct MessageEdge {
    /// For `after` and `before` of `Conversation.messages`, and for `after` of `messageAdded`.
    cursor: String,
    /// The message.
    node: Swift<Message>,
}

impl Plain for MessageEdge {
    const TYPES: &'static [&'static str] = &["MessageEdge"];

    fn plain(&self, field: &Field, json: &mut JsonText<'_>) -> bool {
        match field.name.node.as_str() {
            "cursor" => json.put(&self.cursor),
            "node" => json.object(&self.node.0, field),
            _ => false,
        }
    }
}

impl Edge for MessageEdge {
    fn cursor(&self) -> &str {
        &self.cursor
    }
}

pub(in crate::graphql) fn message_edge(scope: &Scope, message: Arc<model::Message>) -> MessageEdge {
    message_edge_by(&List::Messages(message.conversation).cursors(), scope, message)
}

/// The same, where many are made.
pub(super) fn message_edge_by(cursors: &Cursors, scope: &Scope, message: Arc<model::Message>) -> MessageEdge {
    MessageEdge { cursor: cursors.of(&message.id.order_key()), node: Swift(Message::new(scope, message)) }
}
