//! Users, as anybody may see them who names them.

use async_graphql::{ID, Object};

use crate::graphql::error::{Nullable, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scope::Scope;
use crate::model::UserId;

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
}
