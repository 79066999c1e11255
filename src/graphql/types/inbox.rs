//! Inbox: its page and edges, its summary, and the filter of its entries.

use async_graphql::parser::types::Field;
use async_graphql::{Context, InputObject, Lookahead, Object, SimpleObject};

use super::ConversationKind;
use super::inbox_entry::{InboxEntry, ReadBefore, row};
use super::sync_fields::{JsonText, SyncFields, SyncList};
use crate::chat::{self, SummaryFields, VisibleConversation};
use crate::graphql::connection::PageInfo;
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::Result;
use crate::graphql::scope::ViewerScope;
use crate::model::{ConversationId, InboxRow, OrderKey};

/// Edge of an inbox entry.
#[derive(SimpleObject)]
pub(crate) struct InboxEntryEdge {
    /// Cursor for `after` and `before` of `Query.inbox`: the position of the entry at the time of
    /// this answer.
    cursor: String,
    /// The entry.
    node: InboxEntry,
}

impl SyncFields for InboxEntryEdge {
    const TYPES: &'static [&'static str] = &["InboxEntryEdge"];

    fn write_sync(&self, field: &Field, json: &mut JsonText) -> bool {
        match field.name.node.as_str() {
            "cursor" => json.put_plain(&self.cursor),
            "node" => json.object(&self.node, field),
            _ => false,
        }
    }
}

impl InboxEntryEdge {
    pub(crate) fn new(scope: &ViewerScope, row: InboxRow) -> Self {
        Self {
            cursor: row.key().encode(List::Inbox(&scope.viewer)),
            node: InboxEntry::new(scope, row),
        }
    }

    pub(crate) async fn load(
        scope: &ViewerScope,
        conversation: ConversationId,
    ) -> Result<Option<Self>> {
        Ok(row(scope, conversation)
            .await?
            .map(|row| Self::new(scope, row)))
    }

    pub(crate) async fn of_loaded(scope: &ViewerScope, entry: chat::LoadedEntry) -> Self {
        Self {
            cursor: entry.row.key().encode(List::Inbox(&scope.viewer)),
            node: InboxEntry::of_loaded(scope, entry).await,
        }
    }
}

/// Page of the viewer's inbox, the most recently active conversation first.
pub(crate) struct InboxEntryConnection {
    scope: ViewerScope,
    page: chat::InboxPage,
    /// Position before the read of the page, so that `inboxUpdated` delivers changes during the
    /// read.
    updates_position: OrderKey,
}

impl InboxEntryConnection {
    pub(crate) fn new(
        scope: &ViewerScope,
        page: chat::InboxPage,
        updates_position: OrderKey,
    ) -> Self {
        Self {
            scope: scope.clone(),
            page,
            updates_position,
        }
    }

    /// Entries with the selected values of all rows, read at once. A loader would add a wait and a
    /// cost for each row.
    async fn load_entries(&self, asked: &Lookahead<'_>) -> Vec<InboxEntry> {
        let InboxEntryConnection { scope, page, .. } = self;
        let rows: Vec<_> = page.items.iter().map(|(row, _)| *row).collect();
        let wanted = chat::PreviewFields {
            unread: asked.field("unreadCount").exists()
                || asked.field("unreadCountIsCapped").exists(),
            last_message: asked.field("lastMessage").exists(),
        };
        // After a failed read, the field that needs the value reads it again and reports the error.
        let previews = if wanted.unread || wanted.last_message {
            let read = scope.chat.inbox.previews(&scope.viewer, &rows, wanted);
            read.await.unwrap_or_default()
        } else {
            Vec::new()
        };
        let mut previews = previews.into_iter();
        let entry = |(row, conversation): &(InboxRow, VisibleConversation)| {
            let preview = previews.next().unwrap_or_default();
            let read = ReadBefore {
                conversation: Some(conversation.arc()),
                last_message: preview.last_message,
                unread: preview.unread,
                uncounted: None,
            };
            InboxEntry {
                scope: scope.clone(),
                row: *row,
                read,
            }
        };
        page.items.iter().map(entry).collect()
    }
}

/// Page of the viewer's inbox, the most recently active conversation first.
#[Object]
impl InboxEntryConnection {
    /// Edges of this page. A filtered page may be short or even empty while `hasNextPage` is true:
    /// continue after `endCursor`.
    async fn edges(&self, ctx: &Context<'_>) -> SyncList<InboxEntryEdge> {
        let entries = self.load_entries(&ctx.look_ahead().field("node")).await;
        let cursors = List::Inbox(&self.scope.viewer).cursors();
        let edge = |node: InboxEntry| InboxEntryEdge {
            cursor: cursors.of(&node.row.key()),
            node,
        };
        SyncList(entries.into_iter().map(edge).collect())
    }

    /// Position of this page in its list.
    async fn page_info(&self) -> PageInfo {
        let cursor = |key: crate::model::InboxKey| key.encode(List::Inbox(&self.scope.viewer));
        PageInfo {
            has_next_page: self.page.has_next,
            has_previous_page: self.page.has_previous,
            start_cursor: self.page.start.map(cursor),
            end_cursor: self.page.end.map(cursor),
        }
    }

    /// Cursor for `inboxUpdated(after:)`. The subscription then delivers every change since this
    /// page was read.
    async fn updates_cursor(&self) -> String {
        self.updates_position
            .encode(List::Updates(&self.scope.viewer))
    }
}

/// Numbers for the badge of an app.
#[derive(SimpleObject)]
pub(crate) struct InboxSummary {
    /// Number of conversations with unread messages, without muted and archived ones. Exact up to
    /// 100, among the 1,000 most recently active entries.
    unread_conversation_count: i32,
    /// Number of those conversations with an unread mention: exact as `unreadConversationCount` is.
    mentioned_conversation_count: i32,
    /// Unread messages of the 100 most recently active of these conversations, each up to its cap;
    /// `isCapped` beyond.
    unread_message_count: i32,
    /// True if one of the counts may be higher.
    is_capped: bool,
}

impl InboxSummary {
    /// The counts that a document selects of a summary.
    pub(crate) fn selected(summary: &Lookahead<'_>) -> SummaryFields {
        SummaryFields {
            mentions: summary.field("mentionedConversationCount").exists(),
            messages: summary.field("unreadMessageCount").exists(),
        }
    }
}

impl From<chat::InboxSummary> for InboxSummary {
    fn from(summary: chat::InboxSummary) -> Self {
        let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        Self {
            unread_conversation_count: count(summary.unread_conversation_count),
            mentioned_conversation_count: count(summary.mentioned_conversation_count),
            unread_message_count: count(summary.unread_message_count),
            is_capped: summary.is_capped,
        }
    }
}

/// Filter of inbox entries. An entry must match all given fields. Archived entries are left out by
/// default.
#[derive(InputObject, Default)]
pub(crate) struct InboxFilter {
    /// DIRECT returns only direct conversations, GROUP only groups.
    kind: Option<ConversationKind>,
    /// True returns only entries with unread messages. False returns all.
    unread_only: Option<bool>,
    /// True returns only entries with unread mentions. False returns all.
    mentioned_only: Option<bool>,
    /// True returns only archived entries. False (default) returns only the others.
    archived: Option<bool>,
    /// True returns only pinned entries. False returns only the others.
    pinned: Option<bool>,
}

impl From<InboxFilter> for chat::InboxFilter {
    fn from(filter: InboxFilter) -> Self {
        Self {
            kind: filter.kind.map(Into::into),
            unread_only: filter.unread_only.unwrap_or_default(),
            mentioned_only: filter.mentioned_only.unwrap_or_default(),
            archived: filter.archived.unwrap_or_default(),
            pinned: filter.pinned,
        }
    }
}
