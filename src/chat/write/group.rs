//! Group commands of the API: they are validated, then run in the queue of the conversation.

use super::WriteService;
use super::command::group::{GroupCommand, parse_group_name, parse_username, parse_usernames};
use super::conversation_queue::Work;
use super::group_policy::GroupPolicy;
use crate::chat::access::authority::Authority;
use crate::chat::error::{Error, Result};
use crate::model::{ConversationId, Role, Timestamp, UserId, Viewer};
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
        let mut users = parse_usernames(usernames)?;
        if users.is_empty() {
            let message = "name at least one user";
            return Err(Error::bad_input(&["input", "usernames"], message));
        }
        // Left out without a word: the viewer sees an absence, not its reason.
        users.retain(|user| !self.restrictions.is_suspended(user));
        let access = &self.context.access;
        access.governing_for_write(caller, conversation).await?;
        if visible_from.is_some() {
            access.forms().require(FormVersion::HISTORY).await?;
        }
        // A blocker takes part as everyone does; the group is hidden from them.
        self.check_introductions(caller, conversation, &users)
            .await?;
        let command = GroupCommand::Add(users.clone(), visible_from);
        self.run_group_command(caller, conversation, command)
            .await?;
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
        self.participation_of(caller, conversation).await?;
        let (command, authority) = (GroupCommand::Leave, Authority::Membership);
        self.enqueue_group_command(caller, authority, conversation, command)
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

    pub(super) async fn run_group_command(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        command: GroupCommand,
    ) -> Result<()> {
        // A stranger must not occupy the queue.
        let access = &self.context.access;
        access.governing_for_write(caller, conversation).await?;
        self.enqueue_group_command(caller, Authority::of(caller), conversation, command)
            .await
    }

    pub(super) async fn enqueue_group_command(
        &self,
        caller: &Viewer,
        authority: Authority,
        conversation: ConversationId,
        command: GroupCommand,
    ) -> Result<()> {
        let check = self.check_of(caller, authority);
        let work = |reply| Work::Group(command, check, reply);
        self.queues.run(conversation, &caller.user, work).await
    }
}
