//! Reactions to a message, one for each emoji.

use std::sync::Arc;

use async_graphql::Object;

use super::User;
use crate::graphql::connection::PageArguments;
use crate::graphql::error::Result;
use crate::graphql::scope::ViewerScope;
use crate::model;

pub(in crate::graphql) struct Reaction {
    scope: ViewerScope,
    all: Arc<[model::Reaction]>,
    place: usize,
}

impl Reaction {
    fn reaction(&self) -> &model::Reaction {
        &self.all[self.place]
    }
}

/// Reactions to a message with one emoji.
#[Object]
impl Reaction {
    /// The emoji, fully qualified.
    async fn emoji(&self) -> &str {
        self.reaction().emoji.as_str()
    }

    /// Number of users with this reaction: exact up to 1,000.
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

    /// First users with this reaction, ordered by username (bytewise).
    async fn users(
        &self,
        #[graphql(desc = "Number of users: 0 to 100. Default 20.")] first: Option<i32>,
    ) -> Result<Vec<User>> {
        let (_, count) = PageArguments {
            first,
            ..PageArguments::default()
        }
        .direction_and_count()?;
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
    // Most messages have none, and that costs no read.
    if !message.has_reactions || message.deleted_at.is_some() {
        return Ok(Vec::new());
    }
    let all = scope
        .loaders
        .reactions
        .load((message.conversation, message.id))
        .await?;
    Ok((0..all.len())
        .map(|place| Reaction {
            scope: scope.clone(),
            all: Arc::clone(&all),
            place,
        })
        .collect())
}
