//! Mutations of services: profiles of users, suspensions, revoked tokens, erasures, and reports.
//!
//! The chat refuses everyone else before it looks at a target. Introspection hides these fields from
//! everyone else too.

use async_graphql::{Context, ID, InputObject, MaybeUndefined, Object, SimpleObject};

use super::{mutate, username};
use crate::chat::ProfileInput;
use crate::graphql::error::Nullable;
use crate::graphql::id::report_id;
use crate::graphql::scalar::{DateTime, Json};
use crate::graphql::scope::is_service;
use crate::graphql::types::{Job, Report, ReportState, User};
use crate::model::ServiceRight;

/// Input of `upsertUsers`.
#[derive(InputObject)]
pub(super) struct UpsertUsersInput {
    /// 1 to 100 users. A user who is named twice is changed twice, in this order.
    users: Vec<UserInput>,
}

/// Profile of one user. Omitted fields stay unchanged; null clears a field.
#[derive(InputObject)]
pub(super) struct UserInput {
    /// Username: 1 to 128 bytes, with something visible, without blanks at its ends, control characters
    /// and bidirectional controls. A user exists by being named.
    username: String,
    /// Display name: 1 to 128 bytes of UTF-8, not blank, without control, invisible or
    /// bidirectional format characters. Null clears it.
    display_name: MaybeUndefined<String>,
    /// URL of the user's picture: http or https, at most 2,048 bytes. Null clears it.
    avatar_url: MaybeUndefined<String>,
    /// The app's own data about the user: any JSON of at most 2 KiB, visible to everyone. Null
    /// clears it.
    metadata: MaybeUndefined<Json>,
}

/// Payload of `upsertUsers`.
#[derive(SimpleObject)]
pub(super) struct UpsertUsersPayload {
    /// The users, in the order of the input.
    users: Vec<User>,
}

/// Input of `suspendUser`.
#[derive(InputObject)]
pub(super) struct SuspendUserInput {
    /// Username of the user.
    username: String,
    /// End of the suspension. Without it, the suspension holds until `restoreUser`.
    until: Option<DateTime>,
    /// Reason, for services: at most 255 bytes without control characters.
    reason: Option<String>,
}

/// Payload of `suspendUser`.
#[derive(SimpleObject)]
pub(super) struct SuspendUserPayload {
    /// The user.
    user: User,
}

/// Input of `restoreUser`.
#[derive(InputObject)]
pub(super) struct RestoreUserInput {
    /// Username of the user.
    username: String,
}

/// Payload of `restoreUser`.
#[derive(SimpleObject)]
pub(super) struct RestoreUserPayload {
    /// The user.
    user: User,
}

/// Input of `revokeTokens`.
#[derive(InputObject)]
pub(super) struct RevokeTokensInput {
    /// Username of the user. Without it, the tokens of everyone are revoked, those of services
    /// included.
    username: Option<String>,
    /// Moment before which the refused tokens were issued; not in the future. Without it: now.
    issued_before: Option<DateTime>,
}

/// Payload of `revokeTokens`.
#[derive(SimpleObject)]
pub(super) struct RevokeTokensPayload {
    /// Tokens issued before this moment are refused: `issuedBefore`, rounded up to a whole second.
    revoked_before: DateTime,
}

/// Input of `eraseUser`.
#[derive(InputObject)]
pub(super) struct EraseUserInput {
    /// Username of the user.
    username: String,
}

/// Payload of `eraseUser`.
#[derive(SimpleObject)]
pub(super) struct EraseUserPayload {
    /// The job that erases the user.
    job: Job,
}

/// Input of `resolveReport`.
#[derive(InputObject)]
pub(super) struct ResolveReportInput {
    /// Global id of the report.
    report_id: ID,
    /// New state. OPEN opens the report again.
    state: ReportState,
}

/// Payload of `resolveReport`.
#[derive(SimpleObject)]
pub(super) struct ResolveReportPayload {
    /// The report.
    report: Report,
}

#[derive(Default)]
pub(super) struct ServiceMutation;

#[Object]
impl ServiceMutation {
    /// For services with the scope `wideroom:users`. Creates or changes the profiles of at most 100
    /// users. Omitted fields stay unchanged; null clears a field. All inputs are checked before the
    /// first change.
    #[graphql(visible = "is_service")]
    async fn upsert_users(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The users, with their new profile fields.")] input: UpsertUsersInput,
    ) -> Nullable<UpsertUsersPayload> {
        mutate(ctx, async |scope| {
            let profiles = input.users.into_iter().map(|user| {
                let profile = ProfileInput {
                    display_name: user.display_name.into(),
                    avatar_url: user.avatar_url.into(),
                    metadata: user.metadata.map_value(|json| json.0).into(),
                };
                (user.username, profile)
            });
            let users = scope
                .chat
                .writes
                .upsert_users(&scope.caller, profiles.collect())
                .await?;
            let users = users.into_iter().map(|user| User::new(&scope, user));
            let users = users.collect();
            Ok(UpsertUsersPayload { users })
        })
        .await
    }

    /// For services with the scope `wideroom:users`. Suspends a user, who may not sign in or send
    /// until then, and whom no group adds. Every server closes the user's sockets and streams within
    /// 4 seconds. A second suspension replaces the first.
    #[graphql(visible = "is_service")]
    async fn suspend_user(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The user, the end and the reason.")] input: SuspendUserInput,
    ) -> Nullable<SuspendUserPayload> {
        mutate(ctx, async |scope| {
            let restrictions = &scope.chat.restrictions;
            restrictions.require(&scope.caller, ServiceRight::Users)?;
            let user = username(&input.username)?;
            let until = input.until.map(|until| until.0);
            restrictions
                .suspend(&scope.caller, &user, until, input.reason)
                .await?;
            let user = User::new(&scope, user);
            Ok(SuspendUserPayload { user })
        })
        .await
    }

    /// For services with the scope `wideroom:users`. Ends the suspension of a user.
    #[graphql(visible = "is_service")]
    async fn restore_user(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The user.")] input: RestoreUserInput,
    ) -> Nullable<RestoreUserPayload> {
        mutate(ctx, async |scope| {
            let restrictions = &scope.chat.restrictions;
            restrictions.require(&scope.caller, ServiceRight::Users)?;
            let user = username(&input.username)?;
            restrictions.restore(&scope.caller, &user).await?;
            let user = User::new(&scope, user);
            Ok(RestoreUserPayload { user })
        })
        .await
    }

    /// For services with the scope `wideroom:erase`. Erases a user in the background: suspends them,
    /// removes them from every conversation, deletes their messages, reactions, blocks, reports and
    /// profile, and puts `wideroom:erased` in place of their name where something of them stays. The name
    /// may stay for 35 days in logs, and in mentions and blocks by others. A second call returns the same
    /// job, unless the job failed or the user was restored since: then it begins again. An agent is refused: suspend it.
    #[graphql(visible = "is_service")]
    async fn erase_user(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The user.")] input: EraseUserInput,
    ) -> Nullable<EraseUserPayload> {
        mutate(ctx, async |scope| {
            let erasure = &scope.chat.erasure;
            let job = erasure.erase(&scope.caller, &input.username).await?;
            Ok(EraseUserPayload { job: Job::new(job) })
        })
        .await
    }

    /// For services with the scope `wideroom:moderate`. Sets the state of a report. Of two changes the
    /// later one wins.
    #[graphql(visible = "is_service")]
    async fn resolve_report(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The report, and its new state.")] input: ResolveReportInput,
    ) -> Nullable<ResolveReportPayload> {
        mutate(ctx, async |scope| {
            let (id, state) = (report_id(&input.report_id), input.state.into());
            let reports = &scope.chat.reports;
            let report = reports.resolve(&scope.caller, id, state).await?;
            let report = Report::new(&scope, report);
            Ok(ResolveReportPayload { report })
        })
        .await
    }

    /// For services with the scope `wideroom:users`. Refuses the tokens of a user, or of everyone, that
    /// were issued before a moment. Every server closes their sockets and streams within 4 seconds. Issue
    /// new tokens at or after `revokedBefore`. A revocation is never undone: one that a server's clock made
    /// while it was ahead holds until the clock has passed it. Where too many revocations are held the answer is
    /// RATE_LIMITED.
    #[graphql(visible = "is_service")]
    async fn revoke_tokens(
        &self,
        ctx: &Context<'_>,
        #[graphql(desc = "The user and the moment.")] input: RevokeTokensInput,
    ) -> Nullable<RevokeTokensPayload> {
        mutate(ctx, async |scope| {
            let restrictions = &scope.chat.restrictions;
            restrictions.require(&scope.caller, ServiceRight::Users)?;
            let user = input.username.as_deref().map(username).transpose()?;
            let moment = input.issued_before.map(|moment| moment.0);
            let revoked_before = restrictions
                .revoke_tokens(&scope.caller, user.as_ref(), moment)
                .await?;
            let revoked_before = DateTime(revoked_before);
            Ok(RevokeTokensPayload { revoked_before })
        })
        .await
    }
}
