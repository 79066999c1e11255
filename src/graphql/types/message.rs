//! Messages and their attachments.

mod step;

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{Context, ID, InputObject, Object, SimpleObject};
use futures_util::future::try_join;
use serde_json::value::RawValue;

pub(in crate::graphql) use self::step::{MessageStep, MessageStepInput};
use super::reaction::{self, Reaction};
use super::receipt::{self, DeliveryStatus, ReceiptEdge};
use super::sync_fields::{JsonText, SyncFields, SyncList, SyncObject};
use super::{Conversation, MessageKind, User};
use crate::chat::{AttachmentDraft, VisibleConversation};
use crate::graphql::connection::{Edge, PageArguments, PageInfo, RelayConnection};
use crate::graphql::cursor::{CursorEncoder, List};
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::{DateTime, Json, Uuid};
use crate::graphql::scope::{ExecutionContext, ViewerScope};
use crate::model::{self, ConversationId, Mentions, MessageId, OrderKey};

pub(in crate::graphql) struct Message {
    scope: ViewerScope,
    message: Arc<model::Message>,
}

impl Message {
    pub(in crate::graphql) fn new(scope: &ViewerScope, message: Arc<model::Message>) -> Self {
        Self {
            scope: scope.clone(),
            message,
        }
    }

    /// Loads a message if the viewer may see it. All loads of one request share one check of the
    /// membership.
    pub(in crate::graphql) async fn load(
        scope: &ViewerScope,
        conversation: ConversationId,
        id: MessageId,
    ) -> Result<Option<Self>> {
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

    /// Loads the newest message at or before a position. `None` if there is none above the floor.
    pub(in crate::graphql) async fn at(
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
    pub(in crate::graphql) async fn id(&self) -> ID {
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
        nullable(async {
            match self.message.reply_to {
                Some(id) => Self::load(&self.scope, self.message.conversation, id).await,
                None => Ok(None),
            }
        })
        .await
    }

    /// The `idempotencyKey` of `sendMessage`, by which a client matches its optimistic message.
    /// Null for every viewer but the sender.
    async fn client_key(&self) -> Option<&str> {
        self.scope.client_key(&self.message)
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
            &PageArguments {
                first,
                after,
                last,
                before,
            },
        )
        .await
    }
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
            "isPinned" => json.put(message.current_pin().is_some()),
            "deletedAt" => json.put_time_or_null(message.deleted_at),
            _ => false,
        }
    }
}

/// Description of a file that is stored elsewhere, such as a picture. Wideroom never fetches the
/// file.
pub(super) struct Attachment<'a>(pub(super) &'a model::Attachment);

/// Description of a file that is stored elsewhere, such as a picture. Wideroom never fetches the
/// file.
#[Object]
impl Attachment<'_> {
    /// URL of the file: http or https.
    async fn url(&self) -> &str {
        &self.0.url
    }

    /// Media type, such as `image/png`.
    async fn mime_type(&self) -> &str {
        &self.0.mime_type
    }

    /// File name. Null if the sender gave none.
    async fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Size of the file in bytes: a whole number, at most 2^53.
    async fn size_bytes(&self) -> Option<f64> {
        self.0.size_bytes.map(|size| size as f64)
    }

    /// Width in pixels.
    async fn width(&self) -> Option<i32> {
        self.0.width.and_then(|width| i32::try_from(width).ok())
    }

    /// Height in pixels.
    async fn height(&self) -> Option<i32> {
        self.0.height.and_then(|height| i32::try_from(height).ok())
    }

    /// Duration of a sound or a video, in milliseconds.
    async fn duration_ms(&self) -> Option<i32> {
        let duration = self.0.duration_ms;
        duration.and_then(|duration| i32::try_from(duration).ok())
    }

    /// URL of a small picture of the file: http or https.
    async fn thumbnail_url(&self) -> Option<&str> {
        self.0.thumbnail_url.as_deref()
    }
}

/// Attachment of a message. A message has at most 10. Their texts take at most 8 KiB together, each
/// attachment counting 32 bytes more.
#[derive(InputObject)]
pub(in crate::graphql) struct AttachmentInput {
    /// URL of the file: http or https, at most 2,048 bytes.
    url: String,
    /// Media type, such as `image/png`: at most 127 bytes.
    mime_type: String,
    /// File name: at most 255 bytes.
    name: Option<String>,
    /// Size of the file in bytes: a whole number, at most 2^53.
    size_bytes: Option<f64>,
    /// Width in pixels.
    width: Option<i32>,
    /// Height in pixels.
    height: Option<i32>,
    /// Duration of a sound or a video, in milliseconds.
    duration_ms: Option<i32>,
    /// URL of a small picture of the file: http or https, at most 2,048 bytes.
    thumbnail_url: Option<String>,
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
            duration_ms: input.duration_ms,
            thumbnail_url: input.thumbnail_url,
        }
    }
}

/// Edge of a message.
#[derive(SimpleObject)]
pub(in crate::graphql) struct MessageEdge {
    /// Cursor for `after` and `before` of `Conversation.messages`, and for `messageAdded(after:)`.
    cursor: String,
    /// The message.
    node: SyncObject<Message>,
}

impl SyncFields for MessageEdge {
    const TYPES: &'static [&'static str] = &["MessageEdge"];

    fn write_sync(&self, field: &Field, json: &mut JsonText) -> bool {
        match field.name.node.as_str() {
            "cursor" => json.put_plain(&self.cursor),
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

pub(in crate::graphql) fn message_edge(
    scope: &ViewerScope,
    message: Arc<model::Message>,
) -> MessageEdge {
    message_edge_by(
        &List::Messages(message.conversation).cursors(),
        scope,
        message,
    )
}

/// Edge whose cursor resumes a stream of messages at this position.
pub(in crate::graphql) fn message_edge_at(
    scope: &ViewerScope,
    message: Arc<model::Message>,
    position: &OrderKey,
) -> MessageEdge {
    let cursors = List::Messages(message.conversation).cursors();
    MessageEdge {
        cursor: cursors.of(position),
        node: SyncObject(Message::new(scope, message)),
    }
}

/// Edge with a cursor of this encoder.
pub(super) fn message_edge_by(
    cursors: &CursorEncoder,
    scope: &ViewerScope,
    message: Arc<model::Message>,
) -> MessageEdge {
    MessageEdge {
        cursor: cursors.of(&message.id.order_key()),
        node: SyncObject(Message::new(scope, message)),
    }
}

/// Page of messages, newest first.
#[Object(name = "MessageConnection")]
impl RelayConnection<MessageEdge> {
    /// Edges of this page, newest first.
    async fn edges(&self) -> SyncList<&MessageEdge> {
        SyncList(self.edges.iter().collect())
    }

    #[graphql(name = "pageInfo")]
    /// Position of this page in its list.
    async fn page(&self) -> PageInfo {
        self.page_info()
    }
}
