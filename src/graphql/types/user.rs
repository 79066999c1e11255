//! Users, as anybody may see them who names them.

use async_graphql::parser::types::Field;
use async_graphql::{ID, Object, SimpleObject};

use crate::graphql::error::{Nullable, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::Scope;
use crate::graphql::swift::{JsonText, Plain};
use crate::model::{self, UserId};

/// Whether a user is here just now.
#[derive(SimpleObject)]
pub(in crate::graphql) struct Presence {
    /// Whether the user has a socket or a stream open, or had one a few seconds ago: on this server, or on another that told of it.
    is_online: bool,
    /// When the user was here last: to the minute while they are, and in whatever server they were. Null for one who never was.
    last_seen_at: Option<DateTime>,
}

impl From<model::Presence> for Presence {
    fn from(presence: model::Presence) -> Self {
        Self { is_online: presence.is_online, last_seen_at: presence.last_seen_at.map(DateTime) }
    }
}

pub(in crate::graphql) struct User {
    scope: Scope,
    user: UserId,
}

impl User {
    pub(in crate::graphql) fn new(scope: &Scope, user: UserId) -> Self {
        Self { scope: scope.clone(), user }
    }
}

/// A user. One exists by being named; only a profile is added to the name.
#[Object]
impl User {
    /// An opaque id, unique among all objects.
    pub(in crate::graphql) async fn id(&self) -> ID {
        GlobalId::User(self.user.clone()).encode()
    }

    /// The name by which the user signs in: 1 to 128 bytes, compared byte by byte.
    async fn username(&self) -> &str {
        self.user.as_str()
    }

    /// How the user wants to be called. Null where they did not say.
    async fn display_name(&self) -> Nullable<String> {
        nullable(async { Ok(self.scope.loaders.profiles.load(self.user.clone()).await?.and_then(|profile| profile.display_name)) }).await
    }

    /// A picture of the user. Null where they have none.
    async fn avatar_url(&self) -> Nullable<String> {
        nullable(async { Ok(self.scope.loaders.profiles.load(self.user.clone()).await?.and_then(|profile| profile.avatar_url)) }).await
    }

    /// Whether the user is here. Null for one with whom the viewer has no direct conversation, and none of the last 200 groups of at most 32.
    async fn presence(&self) -> Nullable<Presence> {
        nullable(async { Ok(self.scope.loaders.presences.load(self.user.clone()).await?.map(Presence::from)) }).await
    }
}

impl Plain for User {
    const TYPES: &'static [&'static str] = &["User", "Node"];

    fn plain(&self, field: &Field, json: &mut JsonText<'_>) -> bool {
        match field.name.node.as_str() {
            "id" => json.put(GlobalId::User(self.user.clone()).encode()),
            "username" => json.put(self.user.as_str()),
            _ => false,
        }
    }
}
