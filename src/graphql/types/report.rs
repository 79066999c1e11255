//! Reports of users and messages, for services.

use async_graphql::{Context, Enum, ID, Object, SimpleObject};

use super::message::Attachment;
use super::{Conversation, Message, User};
use crate::chat::ReportPage;
use crate::graphql::connection::PageInfo;
use crate::graphql::cursor::{CursorKey as _, List};
use crate::graphql::error::{Nullable, Result, nullable};
use crate::graphql::id::GlobalId;
use crate::graphql::scalar::DateTime;
use crate::graphql::scope::{ExecutionContext, ViewerScope};
use crate::model::{self, OrderKey, ReportId};

/// Reason of a report. A later version may add values: clients need a default branch.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::ReportReason")]
pub(crate) enum ReportReason {
    /// Unwanted advertising, or the same text again and again.
    Spam,
    /// Harassment or bullying.
    Harassment,
    /// Hatred of a group of people.
    Hate,
    /// Sexual content.
    Sexual,
    /// Violence, or a threat of it.
    Violence,
    /// Self-harm, or encouragement of it.
    SelfHarm,
    /// A breach of the law.
    Illegal,
    /// Another reason, which the note may name.
    Other,
}

/// State of a report.
#[derive(Enum, Debug, Clone, Copy, PartialEq, Eq)]
#[graphql(remote = "model::ReportState")]
pub(crate) enum ReportState {
    /// No service has resolved the report.
    Open,
    /// Resolved without an action.
    Dismissed,
    /// Resolved with an action.
    Acted,
}

pub(crate) struct Report {
    scope: ViewerScope,
    report: model::Report,
}

impl Report {
    pub(crate) fn new(scope: &ViewerScope, report: model::Report) -> Self {
        Self {
            scope: scope.clone(),
            report,
        }
    }

    /// Loads a report, for services that moderate. `None` for everyone else.
    pub(crate) async fn load(scope: &ViewerScope, id: ReportId) -> Result<Option<Self>> {
        let found = scope.chat.reports.report(&scope.caller, id).await?;
        Ok(found.map(|report| Self::new(scope, report)))
    }
}

/// Report of a user or a message, for services with the scope `wideroom:moderate`. It is deleted after
/// 400 days.
#[Object]
impl Report {
    /// Opaque global id, unique among all objects. `Query.node` accepts it.
    pub(crate) async fn id(&self) -> ID {
        GlobalId::Report(self.report.id).encode()
    }

    /// The user who reported.
    async fn reporter(&self) -> User {
        User::new(&self.scope, self.report.reporter.clone())
    }

    /// Reason of the report.
    async fn reason(&self) -> ReportReason {
        self.report.reason.into()
    }

    /// Words of the reporter.
    async fn note(&self, ctx: &Context<'_>) -> Result<Option<&str>> {
        let note = self.report.note.as_deref();
        ExecutionContext::charge(ctx, note.map_or(0, str::len))?;
        Ok(note)
    }

    /// The reported user: the sender of the message, or the user who was named.
    async fn user(&self) -> User {
        User::new(&self.scope, self.report.user.clone())
    }

    /// The reported message in its current state. Null without one.
    async fn message(&self) -> Nullable<Message> {
        nullable(async {
            match self.report.conversation {
                Some(id) => Message::load(&self.scope, id, self.report.message).await,
                None => Ok(None),
            }
        })
        .await
    }

    /// The conversation that the reporter named, or that of the message. Null without one.
    async fn conversation(&self) -> Nullable<Conversation> {
        nullable(Conversation::load(&self.scope, self.report.conversation)).await
    }

    /// Body of the message at the time of the report: at most its first 4 KiB. Null without a
    /// message, for one that was deleted by then, and after an erasure.
    async fn body_then(&self, ctx: &Context<'_>) -> Result<Option<&str>> {
        let body = self.report.body.as_deref();
        ExecutionContext::charge(ctx, body.map_or(0, str::len))?;
        Ok(body)
    }

    /// Attachments of the message at the time of the report.
    async fn attachments_then(&self, ctx: &Context<'_>) -> Result<Vec<Attachment<'_>>> {
        let attachments = self.report.attachments.iter();
        let bytes = attachments.clone().map(|one| one.url.len()).sum();
        ExecutionContext::charge(ctx, bytes)?;
        Ok(attachments.map(Attachment).collect())
    }

    /// Time of the report.
    async fn created_at(&self) -> DateTime {
        DateTime(self.report.id.moment())
    }

    /// State: OPEN until a service resolves the report.
    async fn state(&self) -> ReportState {
        self.report.state().into()
    }

    /// The service that resolved the report. Null while it is open.
    async fn resolved_by(&self) -> Option<User> {
        let resolution = self.report.resolution.as_ref()?;
        Some(User::new(&self.scope, resolution.by.clone()))
    }

    /// Time of the resolution. Null while the report is open.
    async fn resolved_at(&self) -> Option<DateTime> {
        Some(DateTime(self.report.resolution.as_ref()?.at))
    }
}

/// Edge of a report.
#[derive(SimpleObject)]
pub(crate) struct ReportEdge {
    /// Cursor for `after` and `before` of `Query.reports`.
    cursor: String,
    /// The report.
    node: Report,
}

pub(crate) struct ReportConnection {
    edges: Vec<ReportEdge>,
    page: PageInfo,
}

impl ReportConnection {
    pub(crate) fn new(scope: &ViewerScope, page: ReportPage) -> Self {
        let cursor = |position: OrderKey| position.encode(List::Reports);
        let edge = |report: model::Report| ReportEdge {
            cursor: cursor(report.id.order_key()),
            node: Report::new(scope, report),
        };
        Self {
            edges: page.items.into_iter().map(edge).collect(),
            page: PageInfo {
                has_next_page: page.has_next,
                has_previous_page: page.has_previous,
                start_cursor: page.start.map(cursor),
                end_cursor: page.end.map(cursor),
            },
        }
    }
}

/// A page of reports, the newest first. With a state it may hold fewer reports than requested;
/// `endCursor` is then further on.
#[Object]
impl ReportConnection {
    /// Edges of this page, in the order of the list.
    async fn edges(&self) -> &[ReportEdge] {
        &self.edges
    }

    #[graphql(name = "pageInfo")]
    /// Position of this page in its list.
    async fn page(&self) -> &PageInfo {
        &self.page
    }
}
