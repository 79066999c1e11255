//! Bans, silence and slow mode of a group.
//!
//! A server of the version before reads none of them, so they are written only after the end of an
//! upgrade.

use super::WriteService;
use super::command::group::{BanDraft, BanInput, GroupCommand, parse_username};
use crate::chat::access::restrictions::{check_reason, check_until};
use crate::chat::error::{Error, Result};
use crate::model::{Ban, Conversation, ConversationId, Timestamp, UserId, Viewer};
use crate::store::FormVersion;

const USERNAME_PATH: &[&str] = &["input", "username"];

/// A user who was banned.
pub struct Banned {
    pub ban: Ban,
    /// Whether the user took part until then.
    pub was_participant: bool,
}

impl WriteService {
    /// Removes a user from a group, if they take part, and keeps them out until a moment, or until the
    /// ban is lifted. A second ban replaces the first.
    pub async fn ban(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        input: BanInput,
    ) -> Result<Banned> {
        let BanInput {
            username,
            until,
            reason,
            remove_reactions,
        } = input;
        let caller = &caller.into();
        let user = parse_other(&caller.user, &username)?;
        check_until(until, self.context.in_flight.now())?;
        let reason = reason.filter(|reason| !reason.is_empty());
        reason.as_deref().map(check_reason).transpose()?;
        let access = &self.context.access;
        self.require_governing(caller, conversation).await?;
        access.forms().require(FormVersion::MODERATION).await?;
        let store = &self.context.store;
        let earlier = self
            .participants
            .participant(caller, conversation, &user)
            .await?;
        let count = store.ban_count(conversation, Ban::COUNT_MAX).await?;
        let users = std::slice::from_ref(&user);
        if count >= Ban::COUNT_MAX && store.bans_of(conversation, users).await?[0].is_none() {
            return Err(Error::TooMany(
                "this group has 10,000 bans, which is the most: lift some of them first",
            ));
        }
        let command = GroupCommand::Ban(BanDraft {
            user: user.clone(),
            until,
            reason: reason.clone(),
        });
        self.run_group_command(caller, conversation, command)
            .await?;
        if remove_reactions {
            // The ban is done: a repetition removes the rest.
            let removed = self.take_newest_reactions_back(&user, conversation);
            removed.await.map_err(|_| Error::OutcomeUnknown)?;
        }
        let stored = store.bans_of(conversation, users).await?.pop().flatten();
        let ban = stored.unwrap_or_else(|| Ban {
            // It was lifted, or has ended, just now.
            by: caller.user.clone(),
            at: self.context.in_flight.now(),
            user,
            until,
            reason,
        });
        Ok(Banned {
            ban,
            was_participant: earlier.is_some(),
        })
    }

    /// Ends a ban. Returns the user, unless they were not banned.
    pub async fn lift_ban(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        username: &str,
    ) -> Result<Option<UserId>> {
        let caller = &caller.into();
        let user = parse_username(username)?;
        self.require_governing(caller, conversation).await?;
        let users = std::slice::from_ref(&user);
        // Read before the write, because nothing may fail after it.
        let bans = self.context.store.bans_of(conversation, users).await?;
        self.run_group_command(caller, conversation, GroupCommand::LiftBan(user.clone()))
            .await?;
        Ok(bans.into_iter().flatten().next().map(|_| user))
    }

    /// Makes a participant of a group read but not write, until a moment or until lifted. A second
    /// silence replaces the first.
    pub async fn silence(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        username: &str,
        until: Option<Timestamp>,
    ) -> Result<UserId> {
        let caller = &caller.into();
        let user = parse_other(&caller.user, username)?;
        check_until(until, self.context.in_flight.now())?;
        let access = &self.context.access;
        self.require_governing(caller, conversation).await?;
        access.forms().require(FormVersion::MODERATION).await?;
        let command = GroupCommand::Silence(user.clone(), until);
        self.run_group_command(caller, conversation, command)
            .await?;
        Ok(user)
    }

    /// Ends the silence of a participant. Without one, nothing changes.
    pub async fn unsilence(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        username: &str,
    ) -> Result<UserId> {
        let caller = &caller.into();
        let user = parse_other(&caller.user, username)?;
        let command = GroupCommand::Unsilence(user.clone());
        self.run_group_command(caller, conversation, command)
            .await?;
        Ok(user)
    }

    /// Sets the seconds that a MEMBER of a group waits between two sends. The same seconds again change
    /// nothing.
    pub(crate) async fn set_slow_mode(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        seconds: u32,
    ) -> Result<()> {
        let caller = &caller.into();
        let access = &self.context.access;
        self.require_governing(caller, conversation).await?;
        access.forms().require(FormVersion::MODERATION).await?;
        self.run_group_command(caller, conversation, GroupCommand::SetSlowMode(seconds))
            .await
    }

    /// Refuses a caller who neither takes part nor is a service that moderates.
    async fn require_governing(&self, caller: &Viewer, conversation: ConversationId) -> Result<()> {
        let access = &self.context.access;
        access.governing_of(caller, conversation).await?;
        Ok(())
    }

    pub(crate) fn parse_slow_mode(seconds: i32) -> Result<u32> {
        let seconds = u32::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds <= Conversation::SLOW_MODE_SECONDS_MAX);
        seconds.ok_or_else(|| {
            let message = format!(
                "slowModeSeconds is 0 to {}",
                Conversation::SLOW_MODE_SECONDS_MAX
            );
            Error::bad_input(&["input", "slowModeSeconds"], message)
        })
    }
}

fn parse_other(viewer: &UserId, username: &str) -> Result<UserId> {
    let user = parse_username(username)?;
    if user == *viewer {
        return Err(Error::bad_input(
            USERNAME_PATH,
            "you cannot do that to yourself",
        ));
    }
    Ok(user)
}
