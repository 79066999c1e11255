//! Group commands of the API: they are validated, then run in the queue of the conversation.
//!
//! A server of the version before reads no ban, silence or slow mode, so they are written only after the end
//! of an upgrade.

use super::WriteService;
use super::command::group::{
    BanDraft, GroupCommand, parse_group_name, parse_username, parse_usernames,
};
use super::conversation_queue::Work;
use super::group_policy::GroupPolicy;
use crate::chat::error::{Error, Result};
use crate::model::{Ban, Conversation, ConversationId, Role, Timestamp, UserId, Viewer};
use crate::store::FormVersion;

impl WriteService {
    /// Renames a group. The same name again changes nothing.
    pub async fn rename(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        name: &str,
    ) -> Result<()> {
        let name = parse_group_name(name)?;
        self.run_group_command(viewer, conversation, GroupCommand::Rename(name))
            .await
    }

    /// Adds users to a group as MEMBERs. Users who take part already keep their roles. Returns all
    /// named users.
    pub async fn add_participants(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        usernames: &[String],
    ) -> Result<Vec<UserId>> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let mut users = parse_usernames(usernames)?;
        // Left out without a word: the viewer sees an absence, not its reason.
        users.retain(|user| !self.restrictions.is_suspended(user));
        let access = &self.context.access;
        access.participation_for_write(viewer, conversation).await?;
        let blockers = access.blocks().blockers_of(viewer, &users).await?;
        let mut added = users.clone();
        added.retain(|user| !blockers.contains(user));
        self.check_introductions(caller, conversation, &added)
            .await?;
        self.run_group_command(viewer, conversation, GroupCommand::Add(added))
            .await?;
        // A blocker who takes part already is among them, as every participant is.
        Ok(users)
    }

    /// Removes a user from a group. Without effect if the user does not take part. Returns the user
    /// if they ever took part.
    pub async fn remove_participant(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        username: &str,
    ) -> Result<Option<UserId>> {
        let user = parse_username(username)?;
        if user == *viewer {
            return Err(Error::bad_input(
                &["input", "username"],
                "to remove yourself, leave the conversation",
            ));
        }
        // Read before the write, because nothing may fail after it.
        let was_participant = self
            .participants
            .current_or_former(&viewer.into(), conversation, &user)
            .await?
            .is_some();
        self.run_group_command(viewer, conversation, GroupCommand::Remove(user.clone()))
            .await?;
        Ok(was_participant.then_some(user))
    }

    /// Sets the role of a participant. The same role again changes nothing.
    pub async fn set_role(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        username: &str,
        role: Role,
    ) -> Result<UserId> {
        let user = parse_username(username)?;
        let command = GroupCommand::SetRole(user.clone(), role);
        self.run_group_command(viewer, conversation, command)
            .await?;
        Ok(user)
    }

    /// Removes the viewer from a group.
    pub async fn leave(&self, viewer: &UserId, conversation: ConversationId) -> Result<()> {
        self.run_group_command(viewer, conversation, GroupCommand::Leave)
            .await
    }

    /// Whether the viewer may introduce the new ones among these users. It reads much, so it runs
    /// outside the queue of the conversation. A viewer who may not add users is refused first, and
    /// pays nothing.
    async fn check_introductions(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        users: &[UserId],
    ) -> Result<()> {
        let viewer = &caller.user;
        let command = GroupCommand::Add(users.to_vec());
        let concerned = command.concerned(viewer);
        let members = self
            .context
            .store
            .membership_snapshot(conversation, &concerned)
            .await?
            .ok_or(Error::NotFound("the conversation"))?;
        let now = self.context.in_flight.now();
        let Some(decision) = GroupPolicy::new(&concerned, &members, now)?.decide(&command)? else {
            return Ok(());
        };
        let new: Vec<_> = decision
            .transitions
            .into_iter()
            .map(|transition| transition.user)
            .collect();
        let introductions = &self.context.introductions;
        introductions
            .check_conversation_bound(viewer, &new, &["input", "usernames"])
            .await?;
        introductions.charge_strangers(caller, &new).await.map(drop)
    }

    async fn run_group_command(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        command: GroupCommand,
    ) -> Result<()> {
        // A stranger must not occupy the queue.
        self.context
            .access
            .participation_for_write(viewer, conversation)
            .await?;
        self.queues
            .run(conversation, viewer, |reply| Work::Group(command, reply))
            .await
    }
}

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
        viewer: &UserId,
        conversation: ConversationId,
        username: &str,
        until: Option<Timestamp>,
        reason: Option<String>,
    ) -> Result<Banned> {
        let user = parse_other(viewer, username)?;
        self.check_until(until)?;
        let reason = reason.filter(|reason| !reason.is_empty());
        check_reason(reason.as_deref())?;
        let access = &self.context.access;
        access.participation(viewer, conversation).await?;
        access.forms().require(FormVersion::MODERATION).await?;
        let store = &self.context.store;
        let earlier = self
            .participants
            .participant(&viewer.into(), conversation, &user)
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
        self.run_group_command(viewer, conversation, command)
            .await?;
        let stored = store.bans_of(conversation, users).await?.pop().flatten();
        let ban = stored.unwrap_or_else(|| Ban {
            // It was lifted, or has ended, just now.
            by: viewer.clone(),
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
        viewer: &UserId,
        conversation: ConversationId,
        username: &str,
    ) -> Result<Option<UserId>> {
        let user = parse_username(username)?;
        self.context
            .access
            .participation(viewer, conversation)
            .await?;
        let users = std::slice::from_ref(&user);
        // Read before the write, because nothing may fail after it.
        let bans = self.context.store.bans_of(conversation, users).await?;
        self.run_group_command(viewer, conversation, GroupCommand::LiftBan(user.clone()))
            .await?;
        Ok(bans.into_iter().flatten().next().map(|_| user))
    }

    /// Makes a participant of a group read but not write, until a moment or until lifted. A second
    /// silence replaces the first.
    pub async fn silence(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        username: &str,
        until: Option<Timestamp>,
    ) -> Result<UserId> {
        let user = parse_other(viewer, username)?;
        self.check_until(until)?;
        let access = &self.context.access;
        access.participation(viewer, conversation).await?;
        access.forms().require(FormVersion::MODERATION).await?;
        let command = GroupCommand::Silence(user.clone(), until);
        self.run_group_command(viewer, conversation, command)
            .await?;
        Ok(user)
    }

    /// Ends the silence of a participant. Without one, nothing changes.
    pub async fn unsilence(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        username: &str,
    ) -> Result<UserId> {
        let user = parse_other(viewer, username)?;
        let command = GroupCommand::Unsilence(user.clone());
        self.run_group_command(viewer, conversation, command)
            .await?;
        Ok(user)
    }

    /// Sets the seconds that a MEMBER of a group waits between two sends. The same seconds again change
    /// nothing.
    pub async fn set_slow_mode(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        seconds: i32,
    ) -> Result<()> {
        let seconds = u32::try_from(seconds)
            .ok()
            .filter(|seconds| *seconds <= Conversation::SLOW_MODE_SECONDS_MAX);
        let seconds = seconds.ok_or_else(|| {
            let message = format!(
                "slowModeSeconds is 0 to {}",
                Conversation::SLOW_MODE_SECONDS_MAX
            );
            Error::bad_input(&["input", "slowModeSeconds"], message)
        })?;
        let access = &self.context.access;
        access.participation(viewer, conversation).await?;
        access.forms().require(FormVersion::MODERATION).await?;
        self.run_group_command(viewer, conversation, GroupCommand::SetSlowMode(seconds))
            .await
    }

    fn check_until(&self, until: Option<Timestamp>) -> Result<()> {
        if until.is_some_and(|until| until <= self.context.in_flight.now()) {
            return Err(Error::bad_input(
                &["input", "until"],
                "until must be in the future",
            ));
        }
        Ok(())
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

fn check_reason(reason: Option<&str>) -> Result<()> {
    let is_text = |reason: &str| {
        reason.len() <= Ban::REASON_BYTES_MAX && !reason.chars().any(char::is_control)
    };
    if reason.is_none_or(is_text) {
        return Ok(());
    }
    let message = format!(
        "a reason has at most {} bytes and no control characters",
        Ban::REASON_BYTES_MAX
    );
    Err(Error::bad_input(&["input", "reason"], message))
}
