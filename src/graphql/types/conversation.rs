//! Conversations.

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::{ID, Object, SimpleObject};

use super::sync_fields::{JsonText, SyncFields};
use super::{
    BanEdge, ConversationKind, HistoryVisibility, InboxEntry, LiveMessage, Message, MessageEdge,
    MessageFilter, MessageMatchConnection, Participant, ParticipantEdge, ParticipantRole,
    PinnedMessageEdge, SearchArguments, User, message::message_edge_by, missing, receipt,
};
use crate::chat::{HistoryRequest, VisibleConversation};
use crate::graphql::connection::{PageArguments, PageInfo, RelayConnection};
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::{Error, Nullable, Result, nullable};
use crate::graphql::id::{GlobalId, message_of};
use crate::graphql::scalar::{DateTime, Json, Uuid};
use crate::graphql::scope::ViewerScope;
use crate::model::{self, ConversationId, OrderKey};

pub(crate) struct Conversation {
    scope: ViewerScope,
    conversation: Arc<model::Conversation>,
}

impl Conversation {
    pub(crate) fn new(scope: &ViewerScope, conversation: Arc<model::Conversation>) -> Self {
        Self {
            scope: scope.clone(),
            conversation,
        }
    }

    /// Loads a conversation if there is one that the viewer may see.
    pub(crate) async fn load(
        scope: &ViewerScope,
        id: impl Into<Option<ConversationId>>,
    ) -> Result<Option<Self>> {
        let Some(id) = id.into() else {
            return Ok(None);
        };
        let visible = scope.loaders.conversations.load(id).await?;
        Ok(visible.map(|visible| Self::new(scope, visible.conversation)))
    }

    /// The conversation with the viewer's floor, which lies beside the membership.
    async fn visible(&self) -> Result<VisibleConversation> {
        let visible = self.scope.loaders.conversations.load(self.conversation.id);
        visible.await?.ok_or_else(|| missing("the conversation"))
    }

    async fn profile(&self) -> Result<Arc<model::ConversationProfile>> {
        let profiles = &self.scope.loaders.conversation_profiles;
        profiles.load(self.conversation.id).await
    }

    /// Loads a conversation of the viewer. A missing one is an error.
    pub(crate) async fn of(scope: &ViewerScope, id: ConversationId) -> Result<Self> {
        Self::load(scope, id)
            .await?
            .ok_or_else(|| missing("the conversation"))
    }

    /// Newest message that has this status at every other participant.
    async fn newest_with(&self, status: model::DeliveryStatus) -> Nullable<Message> {
        nullable(receipt::newest_with(
            &self.scope,
            self.conversation.id,
            status,
        ))
        .await
    }

    pub(super) fn creation_time(&self) -> DateTime {
        DateTime(self.conversation.created_at)
    }
}

impl SyncFields for Conversation {
    const TYPES: &'static [&'static str] = &["Conversation", "Node"];

    fn write_sync(&self, field: &Field, json: &mut JsonText) -> bool {
        let conversation = &*self.conversation;
        match field.name.node.as_str() {
            "id" => json.put_id(&GlobalId::Conversation(conversation.id)),
            "uuid" => json.put(conversation.id.0),
            "kind" => json.put_enum(ConversationKind::from(conversation.kind)),
            "name" => {
                json.put_text_or_null(conversation.name.as_ref().map(model::GroupName::as_str))
            }
            "createdAt" => json.put_time(conversation.created_at),
            _ => false,
        }
    }
}

/// A conversation that the viewer takes part in: direct or a group. It is large once it has had
/// more than 32 participants. A service with the scope `wideroom:read` sees every conversation.
#[Object]
impl Conversation {
    /// Opaque global id, unique among all objects. `Query.node` accepts it.
    pub(crate) async fn id(&self) -> ID {
        GlobalId::Conversation(self.conversation.id).encode()
    }

    /// UUID of the conversation: the partition key of its messages.
    async fn uuid(&self) -> Uuid {
        Uuid(self.conversation.id.0)
    }

    /// Kind: DIRECT (of two users, or of one user alone) or GROUP.
    async fn kind(&self) -> ConversationKind {
        self.conversation.kind.into()
    }

    /// Name of a group: 1 to 256 bytes. Null for a direct conversation, unless an import named it.
    async fn name(&self) -> Option<&str> {
        self.conversation
            .name
            .as_ref()
            .map(model::GroupName::as_str)
    }

    /// Description of a group: at most 1 KiB. Null if none is set.
    async fn description(&self) -> Nullable<String> {
        nullable(async { Ok(self.profile().await?.description.clone()) }).await
    }

    /// URL of the picture of a group: http or https, at most 2,048 bytes. Null if none is set.
    async fn avatar_url(&self) -> Nullable<String> {
        nullable(async { Ok(self.profile().await?.avatar_url.clone()) }).await
    }

    /// The app's own data about the conversation, as JSON of at most 2 KiB. Services write it, participants
    /// see it. Null if none is set.
    async fn metadata(&self) -> Nullable<Json> {
        nullable(async {
            let profile = self.profile().await?;
            let json = profile.metadata.as_ref().and_then(|one| one.json().ok());
            Ok(json.map(|json| Json(json.get().to_owned())))
        })
        .await
    }

    /// Key of the app's own, unique in the deployment: given by a service at the creation of a group, never changed. Null if none
    /// is.
    async fn app_key(&self) -> Nullable<String> {
        nullable(async {
            let profile = self.profile().await?;
            Ok(profile.app_key.as_ref().map(|key| key.as_str().to_owned()))
        })
        .await
    }

    /// The other participant of a direct conversation; the viewer in a conversation with oneself.
    /// Null for a group, after the erasure of the other one, and for a service that takes no part.
    async fn direct_peer(&self) -> Nullable<User> {
        nullable(async {
            if self.conversation.kind != model::ConversationKind::Direct {
                return Ok(None);
            }
            let peer = self
                .scope
                .loaders
                .direct_peers
                .load(self.conversation.id)
                .await?;
            Ok(peer.map(|peer| User::new(&self.scope, peer)))
        })
        .await
    }

    /// Time of creation.
    async fn created_at(&self) -> DateTime {
        self.creation_time()
    }

    /// User who created the conversation. Null if an import did not name the creator.
    async fn created_by(&self) -> Option<User> {
        self.conversation
            .created_by
            .clone()
            .map(|user| User::new(&self.scope, user))
    }

    /// The viewer's participation: their role, and whether they may write. Null for a service that
    /// takes no part.
    async fn viewer_participant(&self) -> Nullable<Participant> {
        nullable(async {
            let Self {
                scope,
                conversation,
            } = self;
            let participants = &scope.chat.participants;
            let found = participants
                .participant(&scope.caller, conversation.id, &scope.viewer)
                .await?;
            Ok(found.map(|participant| Participant::new(scope, participant)))
        })
        .await
    }

    /// Bans of a group that hold now, ordered by username (bytewise). Null for everyone but its
    /// OWNERs and ADMINs, and services with the scope `wideroom:moderate`. Without `first` and `last`
    /// a page has 20.
    async fn bans(
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
    ) -> Nullable<RelayConnection<BanEdge>> {
        nullable(async {
            let arguments = PageArguments::new(first, after, last, before);
            let (scope, id) = (&self.scope, self.conversation.id);
            let request = arguments.request(List::Bans(id))?;
            let page = scope.chat.participants.bans(&scope.caller, id, &request);
            let page = page.await?;
            let edges = page.map(|page| page.map(|ban| BanEdge::new(scope, id, ban)));
            Ok(edges.map(|page| RelayConnection::new(page, |edge| &edge.cursor)))
        })
        .await
    }

    /// Current participants, ordered by username (bytewise). Without `first` and `last` a page has
    /// 20.
    async fn participants(
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
        #[graphql(
            desc = "Beginning of the usernames, compared bytewise: at most 128 bytes. Returns only these, as for a mention picker. Display names are not searched."
        )]
        username_prefix: Option<String>,
    ) -> Result<RelayConnection<ParticipantEdge>> {
        let arguments = PageArguments::new(first, after, last, before);
        let request = arguments.request(List::Participants(self.conversation.id))?;
        let page = self
            .scope
            .chat
            .participants
            .page(
                self.conversation.id,
                username_prefix.as_deref().unwrap_or_default(),
                &request,
            )
            .await?;
        let page = page.map(|participant| ParticipantEdge::new(&self.scope, participant));
        Ok(RelayConnection::new(page, |edge| &edge.cursor))
    }

    /// Messages of this conversation that match, newest first. A page may hold fewer messages than
    /// requested with `hasNextPage` true; `endCursor` is then further on. Never capped.
    async fn search_messages(
        &self,
        #[graphql(
            desc = "Words that must all occur, in the body or in a name of an attachment. The last word may be the beginning of one. Text in quotation marks is a phrase. Case, accents and spellings such as ß and ss count as equal. `+` and `#` behind a word count, as in C++. At most 200 characters."
        )]
        query: Option<String>,
        #[graphql(desc = "Filter. Without it, a query is needed.")] filter: Option<MessageFilter>,
        #[graphql(desc = "Number of messages: 0 to 100. Default 20.")] first: Option<i32>,
        #[graphql(desc = "Cursor of the same search: returns only older messages.")] after: Option<
            String,
        >,
    ) -> Result<MessageMatchConnection> {
        let arguments = SearchArguments {
            query,
            filter,
            first,
            after,
        };
        let visible = self.visible().await?;
        MessageMatchConnection::in_conversation(&self.scope, &visible, arguments).await
    }

    /// Messages that participants are writing in view of the others, the last begun first: at most 8.
    async fn live_messages(&self) -> Result<Vec<LiveMessage>> {
        let lives = &self.scope.chat.lives;
        let writing = lives.writing(&self.scope.caller, self.conversation.id);
        let writing = writing.await?.into_iter();
        Ok(writing
            .map(|view| LiveMessage::new(&self.scope, view))
            .collect())
    }

    /// Number of current participants.
    async fn participant_count(&self) -> Result<i32> {
        let count = self
            .scope
            .loaders
            .participant_counts
            .load(self.conversation.id)
            .await?;
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// Seconds that a MEMBER of a group waits between two sends; earlier ones are RATE_LIMITED. 0: no
    /// wait.
    async fn slow_mode_seconds(&self) -> i32 {
        i32::try_from(self.conversation.slow_mode_seconds).unwrap_or(i32::MAX)
    }

    /// Role that sending and editing in a group need: MEMBER is everyone. Reactions, marks and deletions of one's own need
    /// none.
    async fn send_role(&self) -> ParticipantRole {
        self.conversation.roles().send.into()
    }

    /// Role that adding participants to a group needs: ADMIN unless it is set.
    async fn add_role(&self) -> ParticipantRole {
        self.conversation.roles().add.into()
    }

    /// Role that pinning needs. Null: MEMBER in a small conversation, ADMIN in a large one.
    async fn pin_role(&self) -> Option<ParticipantRole> {
        self.conversation.roles().pin.map(Into::into)
    }

    /// History that new participants see: ALL, or SINCE_JOINED (messages from the moment of joining).
    async fn history_visibility(&self) -> HistoryVisibility {
        self.conversation.history.visibility.into()
    }

    /// Seconds after which a message expires, those sent before it was set included. Null: never. In a
    /// direct conversation the longer of what its two participants ask for. A message that was sent
    /// while the server's clock was ahead expires later by as much.
    async fn message_ttl_seconds(&self) -> Option<i32> {
        let seconds = self.conversation.history.ttl_seconds;
        seconds.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX))
    }

    /// Messages, newest first. Without `first` and `last` a page has 20. `from` and `until` cut a
    /// time range; `hasNextPage` and `hasPreviousPage` then describe that range. `around` centers
    /// the page on a message and excludes cursors and ranges.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is an argument of the field, as the contract has them"
    )]
    async fn messages(
        &self,
        #[graphql(
            desc = "Number of messages from the newest one, or after `after`, towards older ones: 0 to 100."
        )]
        first: Option<i32>,
        #[graphql(desc = "Cursor of a message: returns only older ones.")] after: Option<String>,
        #[graphql(
            desc = "Number of messages from the oldest one, or before `before`, towards newer ones: 0 to 100. Excludes `first`."
        )]
        last: Option<i32>,
        #[graphql(desc = "Cursor of a message: returns only newer ones.")] before: Option<String>,
        #[graphql(desc = "Returns only messages sent at this time or later.")] from: Option<
            DateTime,
        >,
        #[graphql(desc = "Returns only messages sent before this time.")] until: Option<DateTime>,
        #[graphql(
            desc = "Global id of a message of this conversation: returns the page around it. Excludes cursors, `from` and `until`."
        )]
        around: Option<ID>,
    ) -> Result<RelayConnection<MessageEdge>> {
        let arguments = PageArguments::new(first, after, last, before);
        let request = match around {
            None => HistoryRequest::Page {
                page: arguments.request(List::Messages(self.conversation.id))?,
                from: from.map(|from| from.0),
                until: until.map(|until| until.0),
            },
            Some(_) if arguments.has_cursor() || from.is_some() || until.is_some() => {
                return Err(Error::bad_input(
                    &["around"],
                    "`around` goes with neither cursors nor a range",
                ));
            }
            Some(id) => {
                let (_, count) = arguments.direction_and_count()?;
                let (conversation, message) = message_of(&id)?;
                if conversation != self.conversation.id {
                    return Err(missing("the message"));
                }
                HistoryRequest::Around { message, count }
            }
        };
        // A shared execution does not tell which older message the flags of the page depend on.
        self.scope.note_looked_at(OrderKey::MIN);
        let floor = self.visible().await?.floor;
        let page = self
            .scope
            .chat
            .history
            .page(self.conversation.id, floor, &request)
            .await?;
        let cursors = List::Messages(self.conversation.id).cursors();
        let page = page.map(|message| message_edge_by(&cursors, &self.scope, message));
        Ok(RelayConnection::new(page, |edge| &edge.cursor))
    }

    /// Exact number of messages that the viewer sees, including deleted ones.
    async fn message_count(&self) -> Result<i32> {
        self.scope.note_looked_at(OrderKey::MIN);
        let visible = self.visible().await?;
        let count = self
            .scope
            .loaders
            .message_counts
            .load(visible.count_key())
            .await?;
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// Newest message that the viewer sees. Null if there is none.
    async fn last_message(&self) -> Nullable<Message> {
        nullable(async {
            let id = self.conversation.id;
            let last = self.scope.loaders.last_messages.load(id).await?;
            Message::load(&self.scope, id, last).await
        })
        .await
    }

    /// Newest message that every other participant has received, agents not counted: a message of the viewer has at least
    /// the status DELIVERED exactly up to it. Null if a participant has received none, without
    /// others, and in a large conversation.
    async fn delivered_to_all_up_to(&self) -> Nullable<Message> {
        self.newest_with(model::DeliveryStatus::Delivered).await
    }

    /// Newest message that every other participant has read, agents not counted: a message of the viewer has the status
    /// READ exactly up to it. Null if a participant has read none, without others, and in a large
    /// conversation.
    async fn read_by_all_up_to(&self) -> Nullable<Message> {
        self.newest_with(model::DeliveryStatus::Read).await
    }

    /// The viewer's inbox entry of this conversation.
    async fn inbox_entry(&self) -> Nullable<InboxEntry> {
        nullable(InboxEntry::load(&self.scope, self.conversation.id)).await
    }

    /// Pinned messages, the last pinned first: at most 100. Without `first` and `last` a page has 20.
    async fn pinned_messages(
        &self,
        #[graphql(
            desc = "Number of messages from the start of the list, or after `after`: 0 to 100."
        )]
        first: Option<i32>,
        #[graphql(desc = "Cursor of a message: returns only messages that were pinned earlier.")]
        after: Option<String>,
        #[graphql(
            desc = "Number of messages from the end of the list, or before `before`: 0 to 100. Excludes `first`."
        )]
        last: Option<i32>,
        #[graphql(desc = "Cursor of a message: returns only messages that were pinned later.")]
        before: Option<String>,
    ) -> Result<RelayConnection<PinnedMessageEdge>> {
        let arguments = PageArguments::new(first, after, last, before);
        let id = self.conversation.id;
        let request = arguments.request(List::Pinned(id))?;
        let floor = self.visible().await?.floor;
        let history = &self.scope.chat.history;
        let page = history.pinned_page(id, floor, &request).await?;
        let edge = |message| PinnedMessageEdge::of(&self.scope, &message);
        let page = model::Page {
            items: page.items.into_iter().filter_map(edge).collect(),
            has_previous: page.has_previous,
            has_next: page.has_next,
        };
        Ok(RelayConnection::new(page, |edge| &edge.cursor))
    }

    /// Current position of the event stream. Fetch it with the data or before it, then subscribe to
    /// `conversationEvents` or `messageAdded` with it as `after`: no event is lost in between, and a
    /// few may be delivered that the data shows already.
    async fn events_cursor(&self) -> Result<String> {
        let position = self
            .scope
            .chat
            .history
            .events_position(self.conversation.id)
            .await?;
        // The fields of a query are resolved in any order, and an event may be persisted between a
        // page and this read.
        let position = position.min(self.scope.watermark);
        Ok(position.encode(List::Events(self.conversation.id)))
    }
}

/// Edge of a conversation.
#[derive(SimpleObject)]
pub(crate) struct ConversationEdge {
    /// Cursor for `after` of the list.
    pub(crate) cursor: String,
    /// The conversation.
    pub(crate) node: Conversation,
}

/// A page of conversations. It may hold fewer than requested with `hasNextPage` true; `endCursor` is
/// then further on.
#[Object(name = "ConversationConnection")]
impl RelayConnection<ConversationEdge> {
    /// Edges of this page, in the order of the list.
    async fn edges(&self) -> &[ConversationEdge] {
        &self.edges
    }

    #[graphql(name = "pageInfo")]
    /// Position of this page in its list.
    async fn page(&self) -> &PageInfo {
        &self.page
    }
}
