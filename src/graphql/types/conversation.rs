//! Conversations and their participants.

use std::sync::Arc;

use async_graphql::parser::types::Field;
use async_graphql::resolver_utils::enum_value;
use async_graphql::{ID, Object, SimpleObject};

use super::{ConversationKind, InboxEntry, Message, MessageEdge, ParticipantRole, User, message::message_edge_by, missing};
use crate::chat::HistoryRequest;
use crate::graphql::connection::{Connection, Edge, PageArguments};
use crate::graphql::cursor::{CursorKey, List};
use crate::graphql::error::{Error, Nullable, Result, nullable};
use crate::graphql::id::{GlobalId, message_id};
use crate::graphql::scalar::{DateTime, Uuid};
use crate::graphql::scope::Scope;
use crate::graphql::swift::{JsonText, Plain};
use crate::model::{self, ConversationId, OrderKey};

pub(in crate::graphql) struct Conversation {
    scope: Scope,
    conversation: Arc<model::Conversation>,
}

impl Conversation {
    pub(in crate::graphql) fn new(scope: &Scope, conversation: Arc<model::Conversation>) -> Self {
        Self { scope: scope.clone(), conversation }
    }

    pub(in crate::graphql) async fn load(scope: &Scope, id: ConversationId) -> Result<Option<Self>> {
        Ok(scope.loaders.conversations.load(id).await?.map(|conversation| Self::new(scope, conversation)))
    }

    /// One that the viewer is known to take part in.
    pub(in crate::graphql) async fn of(scope: &Scope, id: ConversationId) -> Result<Self> {
        Self::load(scope, id).await?.ok_or_else(|| missing("the conversation"))
    }
}

impl Plain for Conversation {
    const TYPES: &'static [&'static str] = &["Conversation", "Node"];

    fn plain(&self, field: &Field, json: &mut JsonText<'_>) -> bool {
        let conversation = &*self.conversation;
        match field.name.node.as_str() {
            "id" => json.put(GlobalId::Conversation(conversation.id).encode()),
            "uuid" => json.put(conversation.id.0),
            "kind" => json.put(enum_value(ConversationKind::from(conversation.kind))),
            "name" => json.put(conversation.name.as_ref().map(model::GroupName::as_str)),
            "createdAt" => json.put(DateTime(conversation.created_at)),
            _ => false,
        }
    }
}

/// A conversation that the viewer takes part in.
#[Object]
impl Conversation {
    /// An opaque id, unique among all objects.
    pub(in crate::graphql) async fn id(&self) -> ID {
        GlobalId::Conversation(self.conversation.id).encode()
    }

    /// The partition key.
    async fn uuid(&self) -> Uuid {
        Uuid(self.conversation.id.0)
    }

    /// Whether two people talk, or a group.
    async fn kind(&self) -> ConversationKind {
        self.conversation.kind.into()
    }

    /// A group's name; null for a direct conversation that has none.
    async fn name(&self) -> Option<&str> {
        self.conversation.name.as_ref().map(model::GroupName::as_str)
    }

    /// The other one of a direct conversation, or the viewer who talks to themselves; null in a group.
    async fn direct_peer(&self) -> Nullable<User> {
        nullable(async {
            let peer = self.scope.chat.direct_peer(&self.scope.viewer, &self.conversation).await?;
            Ok(peer.map(|user| User::new(&self.scope, user)))
        })
        .await
    }

    /// When it was started.
    async fn created_at(&self) -> DateTime {
        DateTime(self.conversation.created_at)
    }

    /// Who started it. Null where an import did not say.
    async fn created_by(&self) -> Option<User> {
        self.conversation.created_by.clone().map(|user| User::new(&self.scope, user))
    }

    /// Those who are in it now, by the bytes of their usernames.
    async fn participants(
        &self,
        #[graphql(desc = "At most this many, from the beginning or behind `after`. 0 to 100; 20 by default.")] first: Option<i32>,
        #[graphql(desc = "Only what follows this cursor.")] after: Option<String>,
        #[graphql(desc = "At most this many, from the end or before `before`. 0 to 100.")] last: Option<i32>,
        #[graphql(desc = "Only what precedes this cursor.")] before: Option<String>,
    ) -> Result<Connection<ParticipantEdge>> {
        let arguments = PageArguments { first, after, last, before };
        let request = arguments.request(List::Participants(self.conversation.id))?;
        let page = self.scope.chat.participants(self.conversation.id, &request).await?;
        let page = page.map(|participant| ParticipantEdge::new(&self.scope, participant));
        Ok(Connection { edges: page.items, has_previous: page.has_previous, has_next: page.has_next })
    }

    /// How many are in it now.
    async fn participant_count(&self) -> Result<i32> {
        let count = self.scope.loaders.participant_counts.load(self.conversation.id).await?;
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// Newest first: the clustering order. `from` and `until` cut a time range, of which `hasNextPage` and `hasPreviousPage` then speak;
    /// `around` centres the page on a message of this conversation and goes with neither cursors nor a range.
    #[expect(clippy::too_many_arguments, reason = "each is an argument of the field, as the contract has them")]
    async fn messages(
        &self,
        #[graphql(desc = "At most this many, from the newest or behind `after`. 0 to 100; 20 by default.")] first: Option<i32>,
        #[graphql(desc = "Only messages older than this cursor's.")] after: Option<String>,
        #[graphql(desc = "At most this many, from the oldest or before `before`. 0 to 100.")] last: Option<i32>,
        #[graphql(desc = "Only messages newer than this cursor's.")] before: Option<String>,
        #[graphql(desc = "Only messages sent at this moment or later.")] from: Option<DateTime>,
        #[graphql(desc = "Only messages sent before this moment.")] until: Option<DateTime>,
        #[graphql(desc = "The id of the message that is to stand in the middle of the page.")] around: Option<ID>,
    ) -> Result<Connection<MessageEdge>> {
        let arguments = PageArguments { first, after, last, before };
        let request = match around {
            None => HistoryRequest::Page {
                page: arguments.request(List::Messages(self.conversation.id))?,
                from: from.map(|from| from.0),
                until: until.map(|until| until.0),
            },
            Some(_) if arguments.has_cursor() || from.is_some() || until.is_some() => {
                return Err(Error::bad_input(&["around"], "`around` goes with neither cursors nor a range"));
            }
            Some(id) => {
                let (_, count) = arguments.direction_and_count()?;
                let message = message_id(&id).filter(|(conversation, _)| *conversation == self.conversation.id);
                let (_, message) = message.ok_or_else(|| missing("the message"))?;
                HistoryRequest::Around { message, count }
            }
        };
        let page = self.scope.chat.history(self.conversation.id, &request).await?;
        let cursors = List::Messages(self.conversation.id).cursors();
        let page = page.map(|message| message_edge_by(&cursors, &self.scope, message));
        Ok(Connection { edges: page.items, has_previous: page.has_previous, has_next: page.has_next })
    }

    /// How many messages there are, deleted ones included: exact, at a cost that does not grow with history.
    async fn message_count(&self) -> Result<i32> {
        let count = self.scope.loaders.message_counts.load(self.conversation.id).await?;
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }

    /// The newest message. Null where there is none yet.
    async fn last_message(&self) -> Nullable<Message> {
        nullable(async {
            match self.scope.loaders.last_messages.load(self.conversation.id).await? {
                Some(id) => Message::load(&self.scope, self.conversation.id, id).await,
                None => Ok(None),
            }
        })
        .await
    }

    /// The viewer's inbox entry for it.
    async fn inbox_entry(&self) -> Nullable<InboxEntry> {
        nullable(async { InboxEntry::load(&self.scope, self.conversation.id).await }).await
    }

    /// The position of the event stream now. Take it first, then read, then subscribe after it: nothing falls between.
    async fn events_cursor(&self) -> Result<String> {
        let position = self.scope.chat.events_position(self.conversation.id).await?;
        Ok(position.encode(List::Events(self.conversation.id)))
    }
}

pub(in crate::graphql) struct Participant {
    scope: Scope,
    participant: model::Participant,
}

impl Participant {
    pub(in crate::graphql) fn new(scope: &Scope, participant: model::Participant) -> Self {
        Self { scope: scope.clone(), participant }
    }

    async fn message_at(&self, place: OrderKey) -> Result<Option<Message>> {
        Message::at(&self.scope, self.participant.conversation, place).await
    }
}

/// A user in a conversation.
#[Object]
impl Participant {
    /// An opaque id, unique among all objects.
    pub(in crate::graphql) async fn id(&self) -> ID {
        GlobalId::Participant(self.participant.conversation, self.participant.user.clone()).encode()
    }

    /// Who it is.
    async fn user(&self) -> User {
        User::new(&self.scope, self.participant.user.clone())
    }

    /// In which conversation.
    async fn conversation(&self) -> Result<Conversation> {
        Conversation::of(&self.scope, self.participant.conversation).await
    }

    /// What they may do.
    async fn role(&self) -> ParticipantRole {
        self.participant.membership.role.into()
    }

    /// Since when they take part.
    async fn joined_at(&self) -> Result<DateTime> {
        match self.participant.membership.since {
            Some(since) => Ok(DateTime(since)),
            None => Ok(DateTime(Conversation::of(&self.scope, self.participant.conversation).await?.conversation.created_at)),
        }
    }

    /// The last message that they have read. Null where they have read none. It never goes back.
    async fn read_up_to(&self) -> Nullable<Message> {
        nullable(async { self.message_at(self.participant.read_up_to).await }).await
    }

    /// The last message that reached one of their devices. What was read was delivered.
    async fn delivered_up_to(&self) -> Nullable<Message> {
        nullable(async { self.message_at(self.participant.delivered_up_to.max(self.participant.read_up_to)).await }).await
    }
}

/// A participant in a list.
#[derive(SimpleObject)]
pub(in crate::graphql) struct ParticipantEdge {
    /// For `after` and `before` of this list.
    cursor: String,
    /// The participant.
    node: Participant,
}

impl ParticipantEdge {
    pub(in crate::graphql) fn new(scope: &Scope, participant: model::Participant) -> Self {
        let cursor = participant.user.encode(List::Participants(participant.conversation));
        Self { cursor, node: Participant::new(scope, participant) }
    }
}

impl Edge for ParticipantEdge {
    fn cursor(&self) -> &str {
        &self.cursor
    }
}
