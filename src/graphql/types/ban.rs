//! Bans of conversations.

use async_graphql::{ID, Object, SimpleObject};

use super::User;
use crate::graphql::connection::{PageInfo, RelayConnection};
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;
use crate::model::{self, ConversationId};

pub(crate) struct Ban {
    scope: ViewerScope,
    conversation: ConversationId,
    ban: model::Ban,
}

impl Ban {
    pub(crate) fn new(scope: &ViewerScope, conversation: ConversationId, ban: model::Ban) -> Self {
        Self {
            scope: scope.clone(),
            conversation,
            ban,
        }
    }
}

/// Ban of a user from a group, for its OWNERs and ADMINs, and for services with the scope
/// `wideroom:moderate`.
#[Object]
impl Ban {
    /// Opaque global id, unique among all objects. `Query.node` accepts it.
    pub(crate) async fn id(&self) -> ID {
        GlobalId::Ban(self.conversation, self.ban.user.clone()).encode()
    }

    /// The banned user.
    async fn user(&self) -> User {
        User::new(&self.scope, self.ban.user.clone())
    }

    /// The user who banned.
    async fn banned_by(&self) -> User {
        User::new(&self.scope, self.ban.by.clone())
    }

    /// Time of the ban.
    async fn banned_at(&self) -> DateTime {
        DateTime(self.ban.at)
    }

    /// End of the ban. Null: until it is lifted.
    async fn until(&self) -> Option<DateTime> {
        self.ban.until.map(DateTime)
    }

    /// Reason that was given with the ban.
    async fn reason(&self) -> Option<&str> {
        self.ban.reason.as_deref()
    }
}

/// Edge of a ban.
#[derive(SimpleObject)]
pub(crate) struct BanEdge {
    /// Cursor for `after` and `before` of `Conversation.bans`.
    pub(super) cursor: String,
    /// The ban.
    node: Ban,
}

impl BanEdge {
    pub(crate) fn new(scope: &ViewerScope, conversation: ConversationId, ban: model::Ban) -> Self {
        Self {
            cursor: ban.user.encode(List::Bans(conversation)),
            node: Ban::new(scope, conversation, ban),
        }
    }
}

/// A page of bans, ordered by username (bytewise).
#[Object(name = "BanConnection")]
impl RelayConnection<BanEdge> {
    /// Edges of this page, in the order of the list.
    async fn edges(&self) -> &[BanEdge] {
        &self.edges
    }

    #[graphql(name = "pageInfo")]
    /// Position of this page in its list.
    async fn page(&self) -> &PageInfo {
        &self.page
    }
}
