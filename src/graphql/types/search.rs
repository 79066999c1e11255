//! Search: messages that match a query and a filter.

use std::sync::Arc;

use async_graphql::{Enum, InputObject, SimpleObject};

use super::{ConversationKind, Message, sync_fields::SyncObject};
use crate::analysis;
use crate::chat::{self, MatchPage, VisibleConversation};
use crate::graphql::connection::{PageArguments, PageInfo};
use crate::graphql::cursor::{CursorEncoder, CursorKey, List};
use crate::graphql::error::{Error, Result};
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::ViewerScope;

/// Content that a message carries beside its text.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "chat::ContentKind")]
pub(crate) enum MessageContent {
    /// A link (`http://` or `https://`) in the body.
    Link,
    /// An attachment whose media type is `image/…`.
    Image,
    /// An attachment whose media type is `video/…`.
    Video,
    /// An attachment whose media type is `audio/…`.
    Audio,
    /// An attachment of any other media type.
    File,
}

/// Filter of a search. A message must match all given fields.
#[derive(InputObject)]
pub(crate) struct MessageFilter {
    /// Usernames: only messages of these senders. 1 to 10.
    sender_usernames: Option<Vec<String>>,
    /// Usernames: only messages that mention one of these users, or everyone. 1 to 10.
    mentioned_usernames: Option<Vec<String>>,
    /// Only messages that carry all of these. Without a query it is the gallery of a conversation.
    has: Option<Vec<MessageContent>>,
    /// Only messages sent at this time or later.
    from: Option<DateTime>,
    /// Only messages sent before this time.
    until: Option<DateTime>,
    /// Only messages of conversations of this kind. Not within a conversation.
    conversation_kind: Option<ConversationKind>,
}

impl From<MessageFilter> for chat::SearchFilter {
    fn from(filter: MessageFilter) -> Self {
        let kinds = |kinds: Vec<MessageContent>| kinds.into_iter().map(Into::into).collect();
        Self {
            sender_usernames: filter.sender_usernames,
            mentioned_usernames: filter.mentioned_usernames,
            has: filter.has.map(kinds),
            from: filter.from.map(|from| from.0),
            until: filter.until.map(|until| until.0),
            conversation_kind: filter.conversation_kind.map(Into::into),
        }
    }
}

/// Part of a snippet: a match, or the text between matches.
#[derive(SimpleObject)]
pub(crate) struct SnippetPart {
    /// The text, as it stands in the message.
    text: String,
    /// True if the text matches the query: a client highlights it.
    is_match: bool,
}

impl From<analysis::SnippetSpan> for SnippetPart {
    fn from(part: analysis::SnippetSpan) -> Self {
        Self {
            text: part.text,
            is_match: part.is_match,
        }
    }
}

/// Edge of a message that matches a search.
#[derive(SimpleObject)]
pub(crate) struct MessageMatchEdge {
    /// Cursor for `after` of the same search.
    cursor: String,
    /// The message.
    node: SyncObject<Message>,
    /// About 200 characters of the body, or of the name of the attachment that matched, around the
    /// first match. Empty without a query.
    snippet: Vec<SnippetPart>,
}

/// Page of messages that match a search, newest first.
#[derive(SimpleObject)]
pub(crate) struct MessageMatchConnection {
    /// Edges of this page, newest first. It may hold fewer than requested with `hasNextPage` true:
    /// continue after `endCursor`.
    edges: Vec<MessageMatchEdge>,
    /// Position of this page in its list.
    page_info: PageInfo,
    /// True if the viewer has more conversations than the search looks into.
    is_capped: bool,
}

/// Arguments of `searchMessages`.
pub(crate) struct SearchArguments {
    pub(crate) query: Option<String>,
    pub(crate) filter: Option<MessageFilter>,
    pub(crate) first: Option<i32>,
    pub(crate) after: Option<String>,
}

impl MessageMatchConnection {
    /// A page of the viewer's conversations.
    pub(crate) async fn across(scope: &ViewerScope, arguments: SearchArguments) -> Result<Self> {
        let (search, page) = arguments.split()?;
        let list = List::Matches(&scope.viewer, search.fingerprint());
        let request = page.request(list)?;
        let found = scope
            .chat
            .search
            .across(&scope.viewer, &search, request.count, request.after)
            .await?;
        Ok(Self::new(scope, found, &list.cursors(), |message| {
            chat::SearchKey {
                position: message.id.order_key(),
                conversation: message.conversation,
            }
        }))
    }

    /// A page of one conversation, which the viewer may read.
    pub(crate) async fn in_conversation(
        scope: &ViewerScope,
        visible: &VisibleConversation,
        arguments: SearchArguments,
    ) -> Result<Self> {
        let has_kind = |filter: &MessageFilter| filter.conversation_kind.is_some();
        if arguments.filter.as_ref().is_some_and(has_kind) {
            return Err(Error::bad_input(
                &["filter", "conversationKind"],
                "a search within a conversation takes no `conversationKind`",
            ));
        }
        let (search, page) = arguments.split()?;
        let list = List::MatchesIn(visible.conversation.id, search.fingerprint());
        let request = page.request(list)?;
        let found = scope
            .chat
            .search
            .in_conversation(
                &scope.viewer,
                visible,
                &search,
                request.count,
                request.after,
            )
            .await?;
        Ok(Self::new(scope, found, &list.cursors(), |message| {
            message.id.order_key()
        }))
    }

    fn new<K: CursorKey>(
        scope: &ViewerScope,
        page: MatchPage<K>,
        cursors: &CursorEncoder,
        key: impl Fn(&crate::model::Message) -> K,
    ) -> Self {
        let edge = |found: chat::MessageMatch| MessageMatchEdge {
            cursor: cursors.of(&key(&found.message)),
            node: SyncObject(Message::new(scope, Arc::clone(&found.message))),
            snippet: found.snippet.into_iter().map(Into::into).collect(),
        };
        let edges: Vec<_> = page.matches.into_iter().map(edge).collect();
        Self {
            page_info: PageInfo {
                has_next_page: page.has_next,
                has_previous_page: false,
                start_cursor: edges.first().map(|edge| edge.cursor.clone()),
                end_cursor: page.end.map(|end| cursors.of(&end)),
            },
            edges,
            is_capped: page.is_capped,
        }
    }
}

impl SearchArguments {
    fn split(self) -> Result<(chat::Search, PageArguments)> {
        let search = chat::Search::parse(chat::SearchInput {
            query: self.query,
            filter: self.filter.map(Into::into),
        })?;
        let page = PageArguments::forward(self.first, self.after);
        Ok((search, page))
    }
}
