//! The queries: arguments to words of the chat, and back.

use async_graphql::{Context, ID, Object};

use super::connection::PageArguments;
use super::cursor::List;
use super::error::{Error, Nullable, Result, nullable};
use super::id::conversation_id;
use super::scope::Scope;
use super::types::{Conversation, InboxEntryConnection, InboxFilter, InboxSummary, Node, User};

/// Ids in one call of `nodes`.
const NODES_MAX: usize = 100;

pub struct Query;

/// What can be read. All of it is the viewer's own: what others may see answers like what does not exist.
#[Object]
impl Query {
    /// Any object by its id. Null where there is none that the viewer may see.
    async fn node(&self, ctx: &Context<'_>, #[graphql(desc = "The object's id.")] id: ID) -> Nullable<Node> {
        nullable(async { Node::load(&Scope::shared(ctx)?, &id).await }).await
    }

    /// Objects by their ids, at most 100: answered in order, null where there is none that the viewer may see.
    async fn nodes(&self, ctx: &Context<'_>, #[graphql(desc = "The objects' ids.")] ids: Vec<ID>) -> Result<Vec<Nullable<Node>>> {
        if ids.len() > NODES_MAX {
            return Err(Error::bad_input(&["ids"], format!("at most {NODES_MAX} ids in one call")));
        }
        let scope = Scope::shared(ctx)?;
        let loads = ids.iter().map(|id| nullable(Node::load(&scope, id)));
        Ok(futures_util::future::join_all(loads).await)
    }

    /// The caller.
    async fn viewer(&self, ctx: &Context<'_>) -> Result<User> {
        let scope = Scope::shared(ctx)?;
        let user = scope.viewer.clone();
        Ok(User::new(&scope, user))
    }

    /// A conversation of the viewer by its id.
    async fn conversation(&self, ctx: &Context<'_>, #[graphql(desc = "The conversation's id.")] id: ID) -> Nullable<Conversation> {
        nullable(async {
            let scope = Scope::shared(ctx)?;
            match conversation_id(&id) {
                Some(id) => Conversation::load(&scope, id).await,
                None => Ok(None),
            }
        })
        .await
    }

    /// The viewer's conversations, the most recently active first.
    async fn inbox(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "At most this many, from the most recent or behind `after`. 0 to 100; 20 by default.")] first: Option<i32>,
        #[graphql(desc = "Only what is less recent than this cursor.")] after: Option<String>,
        #[graphql(desc = "At most this many, from the least recent or before `before`. 0 to 100.")] last: Option<i32>,
        #[graphql(desc = "Only what is more recent than this cursor.")] before: Option<String>,
        #[graphql(desc = "Which entries are wanted: by default all that are not archived.")] filter: Option<InboxFilter>,
    ) -> Result<InboxEntryConnection> {
        let scope = Scope::shared(ctx)?;
        let request = PageArguments { first, after, last, before }.request(List::Inbox(&scope.viewer))?;
        let updates_position = scope.chat.updates_position();
        let page = scope.chat.inbox(&scope.viewer, &filter.unwrap_or_default().into(), &request).await?;
        scope.loaders.conversations.know(page.conversations()).await;
        Ok(InboxEntryConnection::new(&scope, page, updates_position))
    }

    /// For the badge on the app: how many of the viewer's conversations have unread messages and are neither muted nor archived.
    async fn inbox_summary(&self, ctx: &Context<'_>) -> Result<InboxSummary> {
        let scope = Scope::shared(ctx)?;
        Ok(scope.chat.inbox_summary(&scope.viewer).await?.into())
    }
}
