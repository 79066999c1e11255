//! Group commands of the API: they are validated, then run in the queue of the conversation.
//!
//! A server of the version before reads no ban, silence or slow mode, so they are written only after the end
//! of an upgrade.

use super::WriteService;
use super::command::group::{
    BanDraft, GroupCommand, parse_group_name, parse_username, parse_usernames,
};
use super::command::history::{ConversationSettings, HistoryCommand, parse_ttl};
use super::conversation_queue::Work;
use super::group_policy::GroupPolicy;
use crate::chat::access::authority::Authority;
use crate::chat::error::{Error, Result};
use crate::model::{
    Ban, Conversation, ConversationId, ConversationKind, Floor, MessageId, Role, Timestamp, UserId,
    Viewer,
};
use crate::store::FormVersion;

impl WriteService {
    /// Renames a group. The same name again changes nothing.
    pub async fn rename(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        name: &str,
    ) -> Result<()> {
        let name = parse_group_name(name)?;
        self.run_group_command(&caller.into(), conversation, GroupCommand::Rename(name))
            .await
    }

    /// Adds users to a group as MEMBERs. Users who take part already keep their roles. The new ones see
    /// the history as its visibility says. Returns all named users.
    pub async fn add_participants(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        usernames: &[String],
    ) -> Result<Vec<UserId>> {
        self.add_participants_from(caller, conversation, usernames, None)
            .await
    }

    /// The same with the moment from which the new ones see the history: never before that from which
    /// the viewer sees it by joining.
    pub async fn add_participants_from(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        usernames: &[String],
        visible_from: Option<Timestamp>,
    ) -> Result<Vec<UserId>> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let mut users = parse_usernames(usernames)?;
        // Left out without a word: the viewer sees an absence, not its reason.
        users.retain(|user| !self.restrictions.is_suspended(user));
        let access = &self.context.access;
        access.governing_for_write(caller, conversation).await?;
        if visible_from.is_some() {
            access.forms().require(FormVersion::HISTORY).await?;
        }
        let blockers = access.blocks().blockers_of(viewer, &users).await?;
        let mut added = users.clone();
        added.retain(|user| !blockers.contains(user));
        self.check_introductions(caller, conversation, &added)
            .await?;
        self.run_group_command(caller, conversation, GroupCommand::Add(added, visible_from))
            .await?;
        // A blocker who takes part already is among them, as every participant is.
        Ok(users)
    }

    /// Removes a user from a group. Without effect if the user does not take part. Returns the user
    /// if they ever took part.
    pub async fn remove_participant(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        username: &str,
    ) -> Result<Option<UserId>> {
        let caller = &caller.into();
        let user = parse_username(username)?;
        if user == caller.user {
            return Err(Error::bad_input(
                &["input", "username"],
                "to remove yourself, leave the conversation",
            ));
        }
        // Read before the write, because nothing may fail after it.
        let was_participant = self
            .participants
            .current_or_former(caller, conversation, &user)
            .await?
            .is_some();
        self.run_group_command(caller, conversation, GroupCommand::Remove(user.clone()))
            .await?;
        Ok(was_participant.then_some(user))
    }

    /// Sets the role of a participant. The same role again changes nothing.
    pub async fn set_role(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        username: &str,
        role: Role,
    ) -> Result<UserId> {
        let user = parse_username(username)?;
        let command = GroupCommand::SetRole(user.clone(), role);
        self.run_group_command(&caller.into(), conversation, command)
            .await?;
        Ok(user)
    }

    /// Removes the viewer from a group.
    pub async fn leave(
        &self,
        caller: impl Into<Viewer>,
        conversation: ConversationId,
    ) -> Result<()> {
        let caller = &caller.into();
        let access = &self.context.access;
        let own = access.participation_for_write(&caller.user, conversation);
        if let Err(error) = own.await {
            return Err(access.refusal(caller, conversation, error).await);
        }
        let (command, authority) = (GroupCommand::Leave, Authority::Membership);
        self.enqueue_group_command(&caller.user, authority, conversation, command)
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
        let command = GroupCommand::Add(users.to_vec(), None);
        let concerned = command.concerned(viewer);
        let members = self
            .context
            .store
            .membership_snapshot(conversation, &concerned)
            .await?
            .ok_or(Error::NotFound("the conversation"))?;
        let now = self.context.in_flight.now();
        let authority = Authority::of(caller);
        let policy = GroupPolicy::new(&concerned, authority, &members, now, &command)?;
        let Some(decision) = policy.decide(&command)? else {
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
        caller: &Viewer,
        conversation: ConversationId,
        command: GroupCommand,
    ) -> Result<()> {
        // A stranger must not occupy the queue.
        let access = &self.context.access;
        access.governing_for_write(caller, conversation).await?;
        let authority = Authority::of(caller);
        self.enqueue_group_command(&caller.user, authority, conversation, command)
            .await
    }

    async fn enqueue_group_command(
        &self,
        actor: &UserId,
        authority: Authority,
        conversation: ConversationId,
        command: GroupCommand,
    ) -> Result<()> {
        let work = |reply| Work::Group(command, authority, reply);
        self.queues.run(conversation, actor, work).await
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
        caller: impl Into<Viewer>,
        conversation: ConversationId,
        username: &str,
        until: Option<Timestamp>,
        reason: Option<String>,
    ) -> Result<Banned> {
        let caller = &caller.into();
        let user = parse_other(&caller.user, username)?;
        self.check_until(until)?;
        let reason = reason.filter(|reason| !reason.is_empty());
        check_reason(reason.as_deref())?;
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
        self.check_until(until)?;
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

    /// Refuses a caller who neither takes part nor is a service under its own name.
    async fn require_governing(&self, caller: &Viewer, conversation: ConversationId) -> Result<()> {
        let (user, authority) = (&caller.user, Authority::of(caller));
        let access = &self.context.access;
        access.governing(user, authority, conversation).await?;
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

impl WriteService {
    /// Changes settings of a conversation. The same settings again change nothing. All of them are
    /// checked before the first one is written.
    pub async fn update_settings(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        settings: ConversationSettings,
    ) -> Result<()> {
        let ttl_seconds = settings.ttl_seconds.map(parse_ttl).transpose()?;
        let slow_mode = settings.slow_mode_seconds;
        let slow_mode = slow_mode.map(Self::parse_slow_mode).transpose()?;
        let access = &self.context.access;
        let authority = Authority::of(caller);
        let own = access
            .governing(&caller.user, authority, conversation)
            .await?;
        let is_group = own.conversation.kind == ConversationKind::Group;
        let sets_history = settings.visibility.is_some() || ttl_seconds.is_some();
        if !is_group && (settings.visibility.is_some() || slow_mode.is_some()) {
            return Err(Error::bad_input(
                &["input", "conversationId"],
                "the conversation is direct, not a group: it has an expiry alone",
            ));
        }
        if is_group && sets_history && own.membership.role != Role::Owner {
            return Err(Error::Forbidden(
                "only an owner of the group may set its history visibility and expiry",
            ));
        }
        if slow_mode.is_some() && own.membership.role == Role::Member {
            return Err(Error::Forbidden(
                "only an owner or admin of the group may do that",
            ));
        }
        if sets_history {
            access.forms().require(FormVersion::HISTORY).await?;
        }
        if let Some(visibility) = settings.visibility {
            let command = GroupCommand::History(HistoryCommand::SetVisibility(visibility));
            self.run_group_command(caller, conversation, command)
                .await?;
        }
        if let Some(seconds) = ttl_seconds {
            if is_group {
                let peer = None;
                let command = HistoryCommand::SetExpiry { seconds, peer };
                self.run_group_command(caller, conversation, GroupCommand::History(command))
                    .await?;
            } else {
                self.ask_expiry(caller, conversation, seconds).await?;
            }
        }
        if let Some(seconds) = slow_mode {
            self.set_slow_mode(caller, conversation, seconds).await?;
        }
        Ok(())
    }

    /// Asks for an expiry of a direct conversation, which only its participants do.
    async fn ask_expiry(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        seconds: Option<u32>,
    ) -> Result<()> {
        self.require_participant(caller, conversation).await?;
        let viewer = &caller.user;
        let found = self
            .participants
            .direct_peers(viewer, &[conversation])
            .await?;
        let peer = found.into_iter().flatten().find(|peer| peer != viewer);
        let command = HistoryCommand::SetExpiry { seconds, peer };
        self.enqueue_own_command(viewer, conversation, command)
            .await
    }

    /// Removes everything that the conversation has now from the viewer's history.
    pub async fn clear_history(&self, caller: &Viewer, conversation: ConversationId) -> Result<()> {
        self.require_participant(caller, conversation).await?;
        let access = &self.context.access;
        access.forms().require(FormVersion::HISTORY).await?;
        let store = &self.context.store;
        let last = store.last_messages(&[conversation]).await?.pop().flatten();
        // Without a message there is nothing to clear.
        let Some(last) = last else { return Ok(()) };
        let up_to = last.order_key();
        self.enqueue_own_command(&caller.user, conversation, HistoryCommand::Clear { up_to })
            .await
    }

    /// Removes all messages up to this one, for everyone.
    pub async fn truncate(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        up_to: MessageId,
    ) -> Result<()> {
        let access = &self.context.access;
        let own = access.governing_for_write(caller, conversation).await?;
        access.forms().require(FormVersion::HISTORY).await?;
        let floor = access.floor_of(&own);
        let history = &self.context.history;
        history.require_message(conversation, up_to, floor).await?;
        let command = GroupCommand::History(HistoryCommand::Truncate { up_to });
        self.run_group_command(caller, conversation, command).await
    }

    /// Refuses a caller who does not take part.
    async fn require_participant(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
    ) -> Result<()> {
        let access = &self.context.access;
        let own = access.participation_for_write(&caller.user, conversation);
        match own.await {
            Ok(_) => Ok(()),
            Err(error) => Err(access.refusal(caller, conversation, error).await),
        }
    }

    /// Runs a command of a participant on their own part of the history.
    async fn enqueue_own_command(
        &self,
        viewer: &UserId,
        conversation: ConversationId,
        command: HistoryCommand,
    ) -> Result<()> {
        let (command, authority) = (GroupCommand::History(command), Authority::Membership);
        self.enqueue_group_command(viewer, authority, conversation, command)
            .await
    }

    /// Refuses a message at or below the floor as one that does not exist.
    pub(crate) fn require_above(message: MessageId, floor: Floor) -> Result<()> {
        if floor.shows(message) {
            Ok(())
        } else {
            Err(Error::NotFound("the message"))
        }
    }
}
