//! Reactions to a message, one for each emoji.

use std::sync::Arc;

use async_graphql::Object;

use super::User;
use crate::graphql::connection::PageArguments;
use crate::graphql::error::Result;
use crate::graphql::scope::ViewerScope;
use crate::model;

pub(crate) struct Reaction {
    scope: ViewerScope,
    all: Arc<[model::Reaction]>,
    index: usize,
}

impl Reaction {
    fn reaction(&self) -> &model::Reaction {
        &self.all[self.index]
    }
}

/// All reactions to a message with the same emoji.
#[Object]
impl Reaction {
    /// The emoji in its fully qualified form. A reaction from an import may have the name of a custom emoji of another
    /// system instead, as `:name:`.
    async fn emoji(&self) -> &str {
        self.reaction().emoji.as_str()
    }

    /// Number of users with this reaction. Exact up to 1,000, then 1,000.
    async fn count(&self) -> u32 {
        self.reaction().count
    }

    /// True if there may be more users than `count`.
    async fn count_is_capped(&self) -> bool {
        self.reaction().is_capped
    }

    /// True if the viewer has this reaction.
    async fn viewer_has_reacted(&self) -> bool {
        self.reaction().has_viewer
    }

    /// Users with this reaction, ordered by username (bytewise): the first ones only, without
    /// pages.
    async fn users(
        &self,
        #[graphql(desc = "Number of users: 0 to 100. Default: 20.")] first: Option<i32>,
    ) -> Result<Vec<User>> {
        let (_, count) = PageArguments::forward(first, None).direction_and_count()?;
        Ok(self
            .reaction()
            .users
            .iter()
            .take(count)
            .map(|user| User::new(&self.scope, user.clone()))
            .collect())
    }
}

pub(super) async fn reactions(
    scope: &ViewerScope,
    message: &model::Message,
) -> Result<Vec<Reaction>> {
    // Most messages have no reaction; their row shows it without another read.
    if !message.has_reactions || message.deleted_at.is_some() {
        return Ok(Vec::new());
    }
    let all = scope
        .loaders
        .reactions
        .load((message.conversation, message.id))
        .await?;
    Ok((0..all.len())
        .map(|index| Reaction {
            scope: scope.clone(),
            all: Arc::clone(&all),
            index,
        })
        .collect())
}
