//! Participants of conversations.

use async_graphql::{ID, Object, SimpleObject};

use super::{Conversation, Message, ParticipantRole, User};
use crate::graphql::connection::{PageInfo, RelayConnection};
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;
use crate::model::{self, OrderKey};

pub(crate) struct Participant {
    scope: ViewerScope,
    participant: model::Participant,
}

impl Participant {
    pub(crate) fn new(scope: &ViewerScope, participant: model::Participant) -> Self {
        Self {
            scope: scope.clone(),
            participant,
        }
    }

    fn silence(&self) -> Option<model::Silence> {
        let participants = &self.scope.chat.participants;
        participants.silence(&self.participant.membership)
    }

    async fn message_at(&self, position: OrderKey) -> Result<Option<Message>> {
        Message::at(&self.scope, self.participant.conversation, position).await
    }
}

/// Participation of a user in a conversation.
#[Object]
impl Participant {
    /// Opaque global id, unique among all objects. `Query.node` accepts it.
    pub(crate) async fn id(&self) -> ID {
        GlobalId::Participant(self.participant.conversation, self.participant.user.clone()).encode()
    }

    /// The user.
    async fn user(&self) -> User {
        User::new(&self.scope, self.participant.user.clone())
    }

    /// The conversation.
    async fn conversation(&self) -> Result<Conversation> {
        Conversation::of(&self.scope, self.participant.conversation).await
    }

    /// Role of the participant.
    async fn role(&self) -> ParticipantRole {
        self.participant.membership.role.into()
    }

    /// Time when the user joined, or joined again.
    async fn joined_at(&self) -> Result<DateTime> {
        match self.participant.membership.since {
            Some(since) => Ok(DateTime(since)),
            None => Ok(Conversation::of(&self.scope, self.participant.conversation)
                .await?
                .creation_time()),
        }
    }

    /// True if the participant reads but may not write.
    async fn is_silenced(&self) -> bool {
        self.silence().is_some()
    }

    /// End of the silence. Null while `isSilenced`: until it is lifted.
    async fn silenced_until(&self) -> Option<DateTime> {
        self.silence()?.until.map(DateTime)
    }

    /// Expiry in seconds that this participant of a direct conversation asks for. Null: none.
    async fn asked_message_ttl_seconds(&self) -> Option<i32> {
        let seconds = self.participant.membership.asked_ttl_seconds;
        seconds.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX))
    }

    /// Newest message that the participant has read. Null if none, or if the viewer does not see it. It
    /// never moves back, not even with `markUnread`.
    async fn read_up_to(&self) -> Nullable<Message> {
        nullable(async { self.message_at(self.participant.read_up_to).await }).await
    }

    /// Newest message delivered to a device of the participant. Null if none, or if the viewer does not
    /// see it. A read message counts as delivered.
    async fn delivered_up_to(&self) -> Nullable<Message> {
        nullable(async {
            self.message_at(
                self.participant
                    .delivered_up_to
                    .max(self.participant.read_up_to),
            )
            .await
        })
        .await
    }
}

/// Edge of a participant.
#[derive(SimpleObject)]
pub(crate) struct ParticipantEdge {
    /// Cursor for `after` and `before` of `Conversation.participants`.
    pub(super) cursor: String,
    /// The participant.
    node: Participant,
}

impl ParticipantEdge {
    pub(crate) fn new(scope: &ViewerScope, participant: model::Participant) -> Self {
        let cursor = participant
            .user
            .encode(List::Participants(participant.conversation));
        Self {
            cursor,
            node: Participant::new(scope, participant),
        }
    }
}

/// A page of participants, ordered by username (bytewise).
#[Object(name = "ParticipantConnection")]
impl RelayConnection<ParticipantEdge> {
    /// Edges of this page, in the order of the list.
    async fn edges(&self) -> &[ParticipantEdge] {
        &self.edges
    }

    #[graphql(name = "pageInfo")]
    /// Position of this page in its list.
    async fn page(&self) -> &PageInfo {
        &self.page
    }
}
