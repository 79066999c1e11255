//! Users: public profiles, and their presence.

use crate::chat::BlockKey;
use async_graphql::parser::types::Field;
use async_graphql::{ID, Object, SimpleObject};

use super::sync_fields::{JsonText, SyncFields};
use crate::graphql::connection::{PageInfo, RelayConnection};
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::{DateTime, Json};
use crate::graphql::scope::ViewerScope;
use crate::model::{self, Profile, UserId};

/// Presence of a user.
#[derive(SimpleObject)]
pub(crate) struct Presence {
    /// True if the user has a WebSocket or an HTTP stream open on any server, or had one a few
    /// seconds ago.
    is_online: bool,
    /// Time when the user was last online: the end of the last connection, or a moment of the present
    /// one that is by default at most 15 minutes old. Null if never.
    last_seen_at: Option<DateTime>,
}

impl From<model::Presence> for Presence {
    fn from(presence: model::Presence) -> Self {
        Self {
            is_online: presence.is_online,
            last_seen_at: presence.last_seen_at.map(DateTime),
        }
    }
}

/// Suspension of a user, who may not sign in or send while it holds, and whom no group adds. A direct
/// conversation with the user can be started.
#[derive(SimpleObject)]
pub(crate) struct Suspension {
    /// Time of the suspension.
    since: DateTime,
    /// End of the suspension. Null: until a service restores the user.
    until: Option<DateTime>,
    /// Reason that the service gave.
    reason: Option<String>,
}

impl From<model::Suspension> for Suspension {
    fn from(suspension: model::Suspension) -> Self {
        Self {
            since: DateTime(suspension.since),
            until: suspension.until.map(DateTime),
            reason: suspension.reason,
        }
    }
}

pub(crate) struct User {
    scope: ViewerScope,
    user: UserId,
}

impl User {
    pub(crate) fn new(scope: &ViewerScope, user: UserId) -> Self {
        Self {
            scope: scope.clone(),
            user,
        }
    }

    /// A field of the profile. Null without a profile.
    fn of_profile<T>(
        &self,
        field: impl FnOnce(Profile) -> Option<T>,
    ) -> impl Future<Output = Nullable<T>> {
        nullable(async move {
            let profile = self.scope.loaders.profiles.load(self.user.clone()).await?;
            Ok(profile.and_then(field))
        })
    }
}

/// A user. Users exist once a token or a conversation names them; a profile is optional.
#[Object]
impl User {
    /// Opaque global id, unique among all objects. `Query.node` accepts it.
    pub(crate) async fn id(&self) -> ID {
        GlobalId::User(self.user.clone()).encode()
    }

    /// Unique name: the `sub` claim of the user's tokens. 1 to 128 bytes, compared bytewise.
    async fn username(&self) -> &str {
        self.user.as_str()
    }

    /// True if the user is an agent: a program, not a person. Show it beside the name. An agent has no inbox, no presence and no
    /// receipts, and hears of messages by the streams of a conversation, or by the outbox. Its username begins with `agent:`.
    async fn is_agent(&self) -> bool {
        self.user.is_agent()
    }

    /// Display name: at most 128 bytes. Null if none is set. It is not unique: show `username`
    /// beside it.
    async fn display_name(&self) -> Nullable<String> {
        self.of_profile(|profile| profile.display_name).await
    }

    /// URL of the user's picture: http or https, at most 2,048 bytes. Null if none is set.
    async fn avatar_url(&self) -> Nullable<String> {
        self.of_profile(|profile| profile.avatar_url).await
    }

    /// The app's own data about the user, as JSON. Services write it, everyone sees it. Null if none
    /// is set.
    async fn metadata(&self) -> Nullable<Json> {
        let json = |profile: Profile| {
            let metadata = profile.metadata?;
            Some(Json(metadata.json().ok()?.get().to_owned()))
        };
        self.of_profile(json).await
    }

    /// Suspension that holds now. Null for everyone but services with the scope `wideroom:users`.
    async fn suspension(&self) -> Nullable<Suspension> {
        nullable(async {
            let users = [self.user.clone()];
            let restrictions = &self.scope.chat.restrictions;
            let found = restrictions.of_users(&self.scope.caller, &users).await?;
            let found = found.into_iter().next();
            let suspension = found.and_then(|restriction| restriction.suspension);
            Ok(suspension.map(Suspension::from))
        })
        .await
    }

    /// True if the viewer blocks the user. A client folds the messages of such a sender in a group.
    async fn viewer_has_blocked(&self) -> Result<bool> {
        match self.scope.has_blocked(&self.user) {
            Some(known) => Ok(known),
            None => {
                let Self { scope, user } = self;
                Ok(scope.chat.blocks.has(&scope.viewer, user).await?)
            }
        }
    }

    /// Presence of the user. Null unless the user and the viewer share a direct conversation, or
    /// one of the viewer's newest 200 groups of at most 32 participants. If the viewer brought the
    /// user into it, the user must have sent or read a message there. Null for a user whom the
    /// viewer has blocked, and for an agent.
    async fn presence(&self) -> Nullable<Presence> {
        nullable(async {
            Ok(self
                .scope
                .loaders
                .presences
                .load(self.user.clone())
                .await?
                .map(Presence::from))
        })
        .await
    }
}

impl SyncFields for User {
    const TYPES: &'static [&'static str] = &["User", "Node"];

    fn write_sync(&self, field: &Field, json: &mut JsonText) -> bool {
        match field.name.node.as_str() {
            "id" => json.put_id(&GlobalId::User(self.user.clone())),
            "username" => json.put_text(self.user.as_str()),
            "isAgent" => json.put(self.user.is_agent()),
            "viewerHasBlocked" => self
                .scope
                .has_blocked(&self.user)
                .is_some_and(|has_blocked| json.put(has_blocked)),
            _ => false,
        }
    }
}

/// Edge of a user.
#[derive(SimpleObject)]
pub(crate) struct UserEdge {
    /// Cursor for `after` and `before` of the list.
    pub(crate) cursor: String,
    /// The user.
    pub(crate) node: User,
}

impl UserEdge {
    /// Edge of `Query.blockedUsers`.
    pub(crate) fn of_blocked(scope: &ViewerScope, key: BlockKey) -> Self {
        Self {
            cursor: key.encode(List::Blocked(&scope.viewer)),
            node: User::new(scope, key.user),
        }
    }
}

/// A page of users.
#[Object(name = "UserConnection")]
impl RelayConnection<UserEdge> {
    /// Edges of this page, in the order of the list.
    async fn edges(&self) -> &[UserEdge] {
        &self.edges
    }

    #[graphql(name = "pageInfo")]
    /// Position of this page in its list.
    async fn page(&self) -> &PageInfo {
        &self.page
    }
}
