//! Groups: their creation, and the group commands of the API, which are validated, then run in the queue of the conversation.
//!
//! A service may give a group a key of its own at the creation. Then the same call, from any server and through any kill, makes one group.

use std::sync::Arc;

use super::WriteService;
use super::command::draft::parse_key;
use super::command::group::{
    GroupCommand, GroupInput, parse_app_key, parse_group_name, parse_username, parse_usernames,
};
use super::conversation_creation::{ConversationDraft, CreationOutcome};
use super::group_policy::GroupPolicy;
use super::introduction::StrangerCharge;
use crate::chat::access::authority::Authority;
use crate::chat::error::{Error, Result};
use crate::model::{
    AppKey, AppKeyClaim, Conversation, ConversationId, ConversationKind, ConversationProfile,
    GroupName, IdempotencyKey, InputHash, PostingRoles, Role, Timestamp, UserId, Viewer,
};
use crate::store::FormVersion;

impl WriteService {
    /// Creates a group of the viewer, who is its OWNER, and these users. A retry with the same
    /// idempotency key returns the same group.
    pub async fn create_group(
        self: &Arc<Self>,
        caller: impl Into<Viewer>,
        input: GroupInput,
    ) -> Result<Arc<Conversation>> {
        let caller = &caller.into();
        let viewer = &caller.user;
        let group = self.parse_group(caller, input).await?;
        let (id, charge) = self.admit_group(caller, &group).await?;
        let ParsedGroup {
            name,
            users,
            hash,
            profile,
            roles,
            key: _,
        } = group;
        let role = |user: &UserId| match user == viewer {
            true => Role::Owner,
            false => Role::Member,
        };
        let participants = users
            .into_iter()
            .map(|user| (user.clone(), role(&user)))
            .collect();
        let has_app_key = profile.app_key.is_some();
        let new = ConversationDraft {
            id,
            kind: ConversationKind::Group,
            name: Some(name),
            participants,
            input_hash: Some(hash),
            profile,
            roles,
        };
        let existing = match self.create(viewer, new).await? {
            CreationOutcome::New(created) => return Ok(created),
            CreationOutcome::Existing(existing) => existing,
        };
        self.context.introductions.refund(viewer, charge);
        // An imported group with the app key may have no hash.
        let is_same = existing
            .input_hash
            .map_or(has_app_key, |known| known == hash);
        if is_same {
            self.context
                .access
                .require_conversation(viewer, existing.id)
                .await
        } else {
            Err(Error::Conflict)
        }
    }

    /// The input of a new group, validated.
    async fn parse_group(&self, caller: &Viewer, input: GroupInput) -> Result<ParsedGroup> {
        let viewer = &caller.user;
        let profile = input.profile.parse(caller)?;
        let app_key = input.app_key.as_deref();
        let profile = ConversationProfile {
            app_key: app_key.map(|key| parse_app_key(caller, key)).transpose()?,
            ..profile.apply(ConversationProfile::default())
        };
        let name = parse_group_name(&input.name)?;
        let others = parse_usernames(&input.usernames)?;
        let key = input.idempotency_key.as_deref();
        let key = key.map(parse_key).transpose()?;
        let mut roles = PostingRoles::default();
        for (act, role) in input.roles.changes() {
            roles = roles.with(act, role);
        }
        if !roles.is_default() {
            let forms = self.context.access.forms();
            forms.require(FormVersion::PARTS).await?;
        }
        let mut users: Vec<_> = others.into_iter().filter(|user| user != viewer).collect();
        users.push(viewer.clone());
        let hash = InputHash::of_group(name.as_str(), &users, &profile, roles);
        // Left out without a word: the viewer sees an absence, not its reason.
        users.retain(|user| user == viewer || !self.restrictions.is_suspended(user));
        Ok(ParsedGroup {
            name,
            users,
            hash,
            profile,
            roles,
            key,
        })
    }

    /// The id of a new group within all bounds, and the charge for its strangers.
    async fn admit_group(
        &self,
        caller: &Viewer,
        group: &ParsedGroup,
    ) -> Result<(ConversationId, StrangerCharge)> {
        let viewer = &caller.user;
        let app_key = group.profile.app_key.as_ref();
        let (id, may_exist) = match (app_key, &group.key) {
            (Some(key), _) => self.id_of_app_key(key, viewer, group.hash).await?,
            (None, Some(key)) => (ConversationId::group(viewer, key.as_str()), true),
            (None, None) => (ConversationId::random(), false),
        };
        // A retry finds the group of its first attempt: it is within all bounds, and introduces
        // nobody.
        if may_exist && self.has_taken_part(viewer, id).await? {
            return Ok((id, StrangerCharge::default()));
        }
        let charge = self.charge_group(caller, &group.users).await?;
        let Some(key) = app_key.filter(|_| !may_exist) else {
            return Ok((id, charge));
        };
        match self.claim_app_key(key, id, viewer, group.hash).await {
            Ok(id) => Ok((id, charge)),
            Err(error) => {
                self.context.introductions.refund(viewer, charge);
                Err(error)
            }
        }
    }

    /// The id of the group of an app key, and whether the key is claimed. Another input is a conflict.
    async fn id_of_app_key(
        &self,
        key: &AppKey,
        owner: &UserId,
        hash: InputHash,
    ) -> Result<(ConversationId, bool)> {
        match self.context.store.app_key_claim(key).await? {
            Some(claim) if !claim.is_of(InputHash::of_app_key(hash, owner)) => Err(Error::Conflict),
            Some(claim) => Ok((claim.conversation, true)),
            None => Ok((ConversationId::random(), false)),
        }
    }

    /// Claims an app key before the group is created. A server that dies in between leaves a claim, and the next
    /// call creates the group under its id.
    async fn claim_app_key(
        &self,
        key: &AppKey,
        id: ConversationId,
        owner: &UserId,
        hash: InputHash,
    ) -> Result<ConversationId> {
        let claim = AppKeyClaim {
            conversation: id,
            input_hash: Some(InputHash::of_app_key(hash, owner)),
        };
        let holder = self.context.store.claim_app_key(key, claim).await?;
        if holder.is_of(InputHash::of_app_key(hash, owner)) {
            Ok(holder.conversation)
        } else {
            Err(Error::Conflict)
        }
    }

    /// Checks the bounds of a new group, and charges for its strangers.
    async fn charge_group(&self, caller: &Viewer, users: &[UserId]) -> Result<StrangerCharge> {
        let viewer = &caller.user;
        let introductions = &self.context.introductions;
        introductions
            .check_conversation_bound(viewer, users, &["input", "usernames"])
            .await?;
        if users.len() > Conversation::FAN_OUT_MAX {
            introductions
                .check_large_bound(None, Some(viewer), users)
                .await?;
        }
        introductions.charge_strangers(caller, users).await
    }

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
    /// the history from a moment, but never before that from which the viewer sees it by joining; without one, as its
    /// visibility says. Returns all named users.
    pub async fn add_participants(
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
        let command = (command, self.check_of(caller, authority));
        self.queues.run(conversation, &caller.user, command).await
    }
}

/// Input of a new group, validated.
struct ParsedGroup {
    name: GroupName,
    /// Its participants, the viewer last.
    users: Vec<UserId>,
    hash: InputHash,
    profile: ConversationProfile,
    roles: PostingRoles,
    key: Option<IdempotencyKey>,
}
