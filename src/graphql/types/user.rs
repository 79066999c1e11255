//! Users, as anybody may see them who names them.

use async_graphql::parser::types::Field;
use async_graphql::{ID, Object, SimpleObject};

use super::sync_fields::{JsonText, SyncFields};
use crate::graphql::error::{Nullable, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;
use crate::model::{self, UserId};

/// Presence of a user.
#[derive(SimpleObject)]
pub(in crate::graphql) struct Presence {
    /// Whether the user has a socket or a stream open, or had one a few seconds ago: on this server, or on another that told of it.
    is_online: bool,
    /// Time when the user was last online, accurate to a minute. Null if the user never was.
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

pub(in crate::graphql) struct User {
    scope: ViewerScope,
    user: UserId,
}

impl User {
    pub(in crate::graphql) fn new(scope: &ViewerScope, user: UserId) -> Self {
        Self {
            scope: scope.clone(),
            user,
        }
    }
}

/// A user. A user exists once a token or a conversation names them; a profile is optional.
#[Object]
impl User {
    /// Opaque global id, unique among all objects.
    pub(in crate::graphql) async fn id(&self) -> ID {
        GlobalId::User(self.user.clone()).encode()
    }

    /// Unique name, the `sub` of the user's tokens: 1 to 128 bytes, compared bytewise.
    async fn username(&self) -> &str {
        self.user.as_str()
    }

    /// Display name. Null if none is set. It is not unique: show `username` beside it.
    async fn display_name(&self) -> Nullable<String> {
        nullable(async {
            Ok(self
                .scope
                .loaders
                .profiles
                .load(self.user.clone())
                .await?
                .and_then(|profile| profile.display_name))
        })
        .await
    }

    /// URL of the user's picture. Null if none is set.
    async fn avatar_url(&self) -> Nullable<String> {
        nullable(async {
            Ok(self
                .scope
                .loaders
                .profiles
                .load(self.user.clone())
                .await?
                .and_then(|profile| profile.avatar_url))
        })
        .await
    }

    /// Whether the user is here. Null for one with whom the viewer has no direct conversation, and none of the last 200 groups of at most 32.
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

    fn write_sync(&self, field: &Field, json: &mut JsonText<'_>) -> bool {
        match field.name.node.as_str() {
            "id" => json.put(GlobalId::User(self.user.clone()).encode()),
            "username" => json.put(self.user.as_str()),
            _ => false,
        }
    }
}
