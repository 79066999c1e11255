//! Mutations of a user's safety: blocks and reports.

use async_graphql::{Context, ID, InputObject, Object, SimpleObject};

use super::mutate;
use crate::chat::ReportInput;
use crate::graphql::error::{Error, Nullable};
use crate::graphql::id::{GlobalId, conversation_of, message_of};
use crate::graphql::types::{InboxEntryEdge, ReportReason, User, UserEdge};

/// Input of `blockUser`.
#[derive(InputObject)]
pub(super) struct BlockUserInput {
    /// Username of another user.
    username: String,
}

/// Payload of `blockUser`.
#[derive(SimpleObject)]
pub(super) struct BlockUserPayload {
    /// The blocked user.
    user: User,
    /// Edge of the user in `Query.blockedUsers`.
    blocked_user_edge: UserEdge,
    /// Global id of the inbox entry that was removed: that of the direct conversation with the user.
    /// Null if there is none.
    removed_inbox_entry_id: Option<ID>,
}

/// Input of `unblockUser`.
#[derive(InputObject)]
pub(super) struct UnblockUserInput {
    /// Username of the blocked user.
    username: String,
}

/// Payload of `unblockUser`.
#[derive(SimpleObject)]
pub(super) struct UnblockUserPayload {
    /// The user.
    user: User,
    /// Edge of the direct conversation with the user, which is in the inbox again. Null if there is
    /// none.
    inbox_entry_edge: Option<InboxEntryEdge>,
}

/// Input of `reportMessage`.
#[derive(InputObject)]
pub(super) struct ReportMessageInput {
    /// Global id of the message.
    message_id: ID,
    /// Reason of the report.
    reason: ReportReason,
    /// Words to the services: at most 1 KiB of UTF-8, not blank.
    note: Option<String>,
}

/// Payload of `reportMessage`.
#[derive(SimpleObject)]
pub(super) struct ReportMessagePayload {
    /// Global id of the report, which only services can read.
    report_id: ID,
}

/// Input of `reportUser`.
#[derive(InputObject)]
pub(super) struct ReportUserInput {
    /// Username of another user.
    username: String,
    /// Global id of a conversation of the viewer that the report is about.
    conversation_id: Option<ID>,
    /// Reason of the report.
    reason: ReportReason,
    /// Words to the services: at most 1 KiB of UTF-8, not blank.
    note: Option<String>,
}

/// Payload of `reportUser`.
#[derive(SimpleObject)]
pub(super) struct ReportUserPayload {
    /// Global id of the report, which only services can read.
    report_id: ID,
}

#[derive(Default)]
pub(super) struct SafetyMutation;

#[Object]
impl SafetyMutation {
    /// Blocks a user. The direct conversation with the user leaves the viewer's inbox; the viewer can
    /// still read it by its id, and delete messages there. In groups, messages of the user are not
    /// unread. A group to which the user has added the viewer is hidden from the viewer until the block
    /// ends, unless the viewer has sent or read there; for everyone else the viewer takes part. The user
    /// sees the viewer as offline, and is not told of the block. The viewer may block 1,000 users; one more is CONFLICT. A second block
    /// changes nothing.
    async fn block_user(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The user to block.")] input: BlockUserInput,
    ) -> Nullable<BlockUserPayload> {
        mutate(ctx, async |scope| {
            let blocks = &scope.chat.blocks;
            let blocked = blocks.block(&scope.viewer, &input.username).await?;
            let entry_of = |id| GlobalId::InboxEntry(id, scope.viewer.clone()).encode();
            Ok(BlockUserPayload {
                user: User::new(&scope, blocked.key.user.clone()),
                removed_inbox_entry_id: blocked.removed.map(entry_of),
                blocked_user_edge: UserEdge::of_blocked(&scope, blocked.key),
            })
        })
        .await
    }

    /// Ends a block. The direct conversation with the user is in the inbox again, with nothing
    /// unread, and groups to which the user has added the viewer are too. Without a block, nothing changes.
    async fn unblock_user(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The user to unblock.")] input: UnblockUserInput,
    ) -> Nullable<UnblockUserPayload> {
        mutate(ctx, async |scope| {
            let blocks = &scope.chat.blocks;
            let unblocked = blocks.unblock(&scope.viewer, &input.username).await?;
            let inbox_entry_edge = match unblocked.direct {
                Some(direct) => InboxEntryEdge::load(&scope, direct)
                    .await
                    .map_err(Error::once_done)?,
                None => None,
            };
            Ok(UnblockUserPayload {
                user: User::new(&scope, unblocked.user),
                inbox_entry_edge,
            })
        })
        .await
    }

    /// Reports a message of another user to those who run the service, with a copy of its body and
    /// attachments. A user makes 10 reports an hour and 30 a day, and all users 2,000 a day; one more is
    /// RATE_LIMITED. No participant is told.
    async fn report_message(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The message, and the reason.")] input: ReportMessageInput,
    ) -> Nullable<ReportMessagePayload> {
        mutate(ctx, async |scope| {
            let (conversation, message) = message_of(&input.message_id)?;
            let report = ReportInput {
                reason: input.reason.into(),
                note: input.note,
            };
            let reports = &scope.chat.reports;
            let id = reports
                .report_message(&scope.caller, conversation, message, report)
                .await?;
            let report_id = GlobalId::Report(id).encode();
            Ok(ReportMessagePayload { report_id })
        })
        .await
    }

    /// Reports a user to those who run the service, within the same rates as `reportMessage`. The
    /// user is not told.
    async fn report_user(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The user, and the reason.")] input: ReportUserInput,
    ) -> Nullable<ReportUserPayload> {
        mutate(ctx, async |scope| {
            let conversation = input.conversation_id.as_ref();
            let conversation = conversation.map(conversation_of).transpose()?;
            let report = ReportInput {
                reason: input.reason.into(),
                note: input.note,
            };
            let reports = &scope.chat.reports;
            let id = reports
                .report_user(&scope.caller, &input.username, conversation, report)
                .await?;
            let report_id = GlobalId::Report(id).encode();
            Ok(ReportUserPayload { report_id })
        })
        .await
    }
}
