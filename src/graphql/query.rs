//! The queries: each translates its arguments for the chat, and the result into types of the API.

use async_graphql::{Context, ID, Object};

use super::connection::{PageArguments, RelayConnection};
use super::cursor::List;
use super::error::{Error, Nullable, Result, nullable};
use super::id::conversation_id;
use super::scope::{ViewerScope, is_service};
use super::types::{
    Conversation, ConversationEdge, ConversationKind, InboxEntryConnection, InboxFilter,
    InboxSummary, MessageFilter, MessageMatchConnection, Node, ReportConnection, ReportState,
    SearchArguments, User, UserEdge,
};
use crate::model::{AppKey, ServiceRight, UserId};

/// Maximum number of ids in one call of `nodes`.
const NODES_MAX: usize = 100;

pub struct Query;

/// Queries of the viewer: the user of the request's token. An object that the viewer may not see
/// answers like one that does not exist: null, or the error NOT_FOUND.
///
/// Each error has a code in `extensions.code`: UNAUTHENTICATED (no valid token), FORBIDDEN,
/// NOT_FOUND, BAD_USER_INPUT (`extensions.inputPath` names the input), CONFLICT, RATE_LIMITED
/// (`extensions.retryAfterMs` says when to retry), CURSOR_EXPIRED, UNAVAILABLE (retry later) or
/// INTERNAL.
#[Object]
impl Query {
    /// Returns an object by its global id. Null if there is none that the viewer may see.
    async fn node(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the object.")] id: ID,
    ) -> Nullable<Node> {
        nullable(async { Node::load(&ViewerScope::shared(ctx)?, &id).await }).await
    }

    /// Returns objects by their global ids, in the order of the ids. An element is null if there is
    /// no such object that the viewer may see.
    async fn nodes(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global ids: at most 100.")] ids: Vec<ID>,
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

    /// The user of the request's token.
    async fn viewer(&self, ctx: &Context<'_>) -> Result<User> {
        let scope = ViewerScope::shared(ctx)?;
        let user = scope.viewer.clone();
        Ok(User::new(&scope, user))
    }

    /// Returns a conversation by its global id. Null unless the viewer takes part in it.
    async fn conversation(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Global id of the conversation.")] id: ID,
    ) -> Nullable<Conversation> {
        nullable(async {
            let scope = ViewerScope::shared(ctx)?;
            Conversation::load(&scope, conversation_id(&id)).await
        })
        .await
    }

    /// Returns the conversation that the app knows under this key. Null unless the viewer takes part in it.
    async fn conversation_by_app_key(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Key that a service gave at the creation: 1 to 128 bytes.")]
        app_key: String,
    ) -> Nullable<Conversation> {
        nullable(async {
            let scope = ViewerScope::shared(ctx)?;
            let key = AppKey::parse(&app_key)
                .map_err(|error| Error::bad_input(&["appKey"], format!("the appKey {error}")))?;
            let id = scope.chat.participants.by_app_key(&key).await?;
            Conversation::load(&scope, id).await
        })
        .await
    }

    /// The viewer's inbox: conversations, the most recently active first. Without `first` and
    /// `last` a page has 20 entries. Empty for an agent.
    async fn inbox(
        &self,
        ctx: &Context<'_>,
        #[graphql(
            desc = "Number of entries from the start of the list, or after `after`: 0 to 100."
        )]
        first: Option<i32>,
        #[graphql(desc = "Cursor of an entry: returns only less recently active ones.")]
        after: Option<String>,
        #[graphql(
            desc = "Number of entries from the end of the list, or before `before`: 0 to 100. Excludes `first`."
        )]
        last: Option<i32>,
        #[graphql(desc = "Cursor of an entry: returns only more recently active ones.")]
        before: Option<String>,
        #[graphql(desc = "Filter. Without it, archived entries are left out.")] filter: Option<
            InboxFilter,
        >,
    ) -> Result<InboxEntryConnection> {
        let scope = ViewerScope::shared(ctx)?;
        let request =
            PageArguments::new(first, after, last, before).request(List::Inbox(&scope.viewer))?;
        let updates_position = scope.chat.streams.inbox_position(&scope.viewer);
        let page = scope
            .chat
            .inbox
            .page(&scope.viewer, &filter.unwrap_or_default().into(), &request)
            .await?;
        scope
            .loaders
            .conversations
            .prime(page.conversations())
            .await;
        Ok(InboxEntryConnection::new(&scope, page, updates_position))
    }

    /// Users whom the viewer has blocked, the newest block first.
    async fn blocked_users(
        &self,
        ctx: &Context<'_>,
        #[graphql(
            desc = "Number of users from the start of the list, or after `after`: 0 to 100."
        )]
        first: Option<i32>,
        #[graphql(desc = "Cursor of a user: returns only users who were blocked earlier.")]
        after: Option<String>,
        #[graphql(
            desc = "Number of users from the end of the list, or before `before`: 0 to 100. Excludes `first`."
        )]
        last: Option<i32>,
        #[graphql(desc = "Cursor of a user: returns only users who were blocked later.")]
        before: Option<String>,
    ) -> Result<RelayConnection<UserEdge>> {
        let scope = ViewerScope::shared(ctx)?;
        let request =
            PageArguments::new(first, after, last, before).request(List::Blocked(&scope.viewer))?;
        let page = scope.chat.blocks.page(&scope.viewer, &request).await?;
        let page = page.map(|key| UserEdge::of_blocked(&scope, key));
        Ok(RelayConnection::new(page, |edge| &edge.cursor))
    }

    /// Messages in the viewer's conversations that match, newest first, archived conversations
    /// included. The search looks into the 1,000 most recently active conversations. A page may hold
    /// fewer messages than requested with `hasNextPage` true; `endCursor` is then further on. Empty for an
    /// agent, which searches within one conversation.
    async fn search_messages(
        &self,
        ctx: &Context<'_>,
        #[graphql(
            desc = "Words that must all occur, in the body or in a name of an attachment. The last word may be the beginning of one. Text in quotation marks is a phrase. Case, accents and spellings such as ß and ss count as equal. `+` and `#` behind a word count, as in C++. At most 200 characters."
        )]
        query: Option<String>,
        #[graphql(desc = "Filter. Without it, a query is needed.")] filter: Option<MessageFilter>,
        #[graphql(desc = "Number of messages: 0 to 100. Default 20.")] first: Option<i32>,
        #[graphql(desc = "Cursor of the same search: returns only older messages.")] after: Option<
            String,
        >,
    ) -> Result<MessageMatchConnection> {
        let arguments = SearchArguments {
            query,
            filter,
            first,
            after,
        };
        MessageMatchConnection::across(&ViewerScope::shared(ctx)?, arguments).await
    }

    /// For services with the scope `wideroom:moderate`. Reports of users and messages, the newest
    /// first. With a state, a page may hold fewer reports than requested with `hasNextPage` true;
    /// `endCursor` is then further on.
    #[graphql(visible = "is_service")]
    async fn reports(
        &self,
        ctx: &Context<'_>,
        #[graphql(
            desc = "Number of reports from the start of the list, or after `after`: 0 to 100."
        )]
        first: Option<i32>,
        #[graphql(desc = "Cursor of a report: returns only older ones.")] after: Option<String>,
        #[graphql(
            desc = "Number of reports from the end of the list, or before `before`: 0 to 100. Excludes `first`."
        )]
        last: Option<i32>,
        #[graphql(desc = "Cursor of a report: returns only newer ones.")] before: Option<String>,
        #[graphql(desc = "Only reports in this state.")] state: Option<ReportState>,
    ) -> Result<ReportConnection> {
        let scope = ViewerScope::shared(ctx)?;
        let restrictions = &scope.chat.restrictions;
        restrictions.require(&scope.caller, ServiceRight::Moderate)?;
        let request = PageArguments::new(first, after, last, before).request(List::Reports)?;
        let state = state.map(Into::into);
        let page = scope.chat.reports.page(&scope.caller, state, &request);
        Ok(ReportConnection::new(&scope, page.await?))
    }

    /// For services with the scope `wideroom:read`. Users with a profile, in an order of the store's
    /// own. A user exists by being named: without a profile they are not listed.
    #[graphql(visible = "is_service")]
    async fn users(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Number of users: 0 to 100. Default 20.")] first: Option<i32>,
        #[graphql(desc = "Cursor of a user: returns only later ones of the list.")] after: Option<
            String,
        >,
    ) -> Result<RelayConnection<UserEdge>> {
        let scope = ViewerScope::shared(ctx)?;
        let restrictions = &scope.chat.restrictions;
        restrictions.require(&scope.caller, ServiceRight::Read)?;
        let request = PageArguments::forward(first, after).request(List::Users)?;
        let page = scope.chat.listing.users(&scope.caller, request).await?;
        Ok(RelayConnection::of_scan(
            page,
            List::Users,
            |cursor, user, ()| UserEdge {
                cursor,
                node: User::new(&scope, user),
            },
        ))
    }

    /// For services with the scope `wideroom:read`. Conversations, in an order of the store's own;
    /// with `participantUsername` those of that user's inbox, archived ones included, the most
    /// recently active first. A page reads at most 1,000 rows: with a filter it may hold fewer
    /// conversations than requested with `hasNextPage` true; `endCursor` is then further on.
    #[graphql(visible = "is_service")]
    async fn conversations(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "Number of conversations: 0 to 100. Default 20.")] first: Option<i32>,
        #[graphql(desc = "Cursor of a conversation of the same list: returns only later ones.")]
        after: Option<String>,
        #[graphql(desc = "Only conversations in which this user takes part.")]
        participant_username: Option<String>,
        #[graphql(desc = "Only conversations of this kind.")] kind: Option<ConversationKind>,
    ) -> Result<RelayConnection<ConversationEdge>> {
        let scope = ViewerScope::shared(ctx)?;
        let restrictions = &scope.chat.restrictions;
        restrictions.require(&scope.caller, ServiceRight::Read)?;
        let (listing, kind) = (&scope.chat.listing, kind.map(Into::into));
        let page = PageArguments::forward(first, after);
        let node = |conversation| Conversation::new(&scope, conversation);
        let Some(user) = participant_username else {
            let list = List::Conversations;
            let page = listing.conversations(&scope.caller, kind, page.request(list)?);
            let edge = |cursor, _, found| ConversationEdge {
                cursor,
                node: node(found),
            };
            return Ok(RelayConnection::of_scan(page.await?, list, edge));
        };
        let user = UserId::parse(&user)
            .map_err(|error| Error::bad_input(&["participantUsername"], error.to_string()))?;
        let list = List::ConversationsOf(&user);
        let page = listing.conversations_of(&scope.caller, &user, kind, page.request(list)?);
        let edge = |cursor, _, found| ConversationEdge {
            cursor,
            node: node(found),
        };
        Ok(RelayConnection::of_scan(page.await?, list, edge))
    }

    /// Numbers for the badge of an app. Zero for an agent.
    async fn inbox_summary(&self, ctx: &Context<'_>) -> Result<InboxSummary> {
        let scope = ViewerScope::shared(ctx)?;
        let wanted = InboxSummary::selected(&ctx.look_ahead());
        let summary = scope.chat.inbox.summary(&scope.viewer, wanted);
        Ok(summary.await?.into())
    }
}
