//! The queries: arguments to words of the chat, and back.

use async_graphql::{Context, ID, Object};

use super::connection::PageArguments;
use super::cursor::List;
use super::error::{Error, Nullable, Result, nullable};
use super::id::conversation_id;
use super::scope::ViewerScope;
use super::types::{Conversation, InboxEntryConnection, InboxFilter, InboxSummary, Node, User};

/// Ids in one call of `nodes`.
const NODES_MAX: usize = 100;

pub struct Query;

/// Queries. Each answers for the viewer; an object that the viewer may not see answers like one that does not exist.
#[Object]
impl Query {
    /// Returns an object by its global id. Null if the viewer may see no such object.
    async fn node(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the object.")] id: ID,
    ) -> Nullable<Node> {
        nullable(async { Node::load(&ViewerScope::shared(ctx)?, &id).await }).await
    }

    /// Returns objects by their global ids, in order. Null for each id of which the viewer may see no object.
    async fn nodes(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global ids, at most 100.")] ids: Vec<ID>,
    ) -> Result<Vec<Nullable<Node>>> {
        if ids.len() > NODES_MAX {
            return Err(Error::bad_input(
                &["ids"],
                format!("at most {NODES_MAX} ids in one call"),
            ));
        }
        let scope = ViewerScope::shared(ctx)?;
        let loads = ids.iter().map(|id| nullable(Node::load(&scope, id)));
        Ok(futures_util::future::join_all(loads).await)
    }

    /// The authenticated user.
    async fn viewer(&self, ctx: &Context<'_>) -> Result<User> {
        let scope = ViewerScope::shared(ctx)?;
        let user = scope.viewer.clone();
        Ok(User::new(&scope, user))
    }

    /// Returns a conversation of the viewer by its global id.
    async fn conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the conversation.")] id: ID,
    ) -> Nullable<Conversation> {
        nullable(async {
            let scope = ViewerScope::shared(ctx)?;
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
        #[graphql(
            desc = "Number of entries from the most recently active or after `after`: 0 to 100. Default 20."
        )]
        first: Option<i32>,
        #[graphql(desc = "Returns only entries less recently active than this cursor's.")]
        after: Option<String>,
        #[graphql(
            desc = "Number of entries from the least recently active or before `before`: 0 to 100."
        )]
        last: Option<i32>,
        #[graphql(desc = "Returns only entries more recently active than this cursor's.")]
        before: Option<String>,
        #[graphql(desc = "Filter. Default: every entry that is not archived.")] filter: Option<
            InboxFilter,
        >,
    ) -> Result<InboxEntryConnection> {
        let scope = ViewerScope::shared(ctx)?;
        let request = PageArguments {
            first,
            after,
            last,
            before,
        }
        .request(List::Inbox(&scope.viewer))?;
        let updates_position = scope.chat.updates_position();
        let page = scope
            .chat
            .inbox(&scope.viewer, &filter.unwrap_or_default().into(), &request)
            .await?;
        scope.loaders.conversations.know(page.conversations()).await;
        Ok(InboxEntryConnection::new(&scope, page, updates_position))
    }

    /// For the badge on the app: how many of the viewer's conversations have unread messages and are neither muted nor archived.
    async fn inbox_summary(&self, ctx: &Context<'_>) -> Result<InboxSummary> {
        let scope = ViewerScope::shared(ctx)?;
        Ok(scope.chat.inbox_summary(&scope.viewer).await?.into())
    }
}
