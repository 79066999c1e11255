//! Changes of groups: runs a group command in the queue of its conversation.
//!
//! A decision is valid for the version of the membership that it was made on (compare-and-set). If
//! another server has changed the membership meanwhile, the policy decides again.

use std::sync::Arc;

use super::command::WriterCheck;
use super::command::group::GroupCommand;
use super::command::history::HistoryCommand;
use super::conversation_writer::{CommandResult, ConversationCommand, ConversationWriter};
use super::group_policy::{BanDecision, GroupDecision, GroupPolicy};
use super::outgoing::OutgoingEvents;
use super::unknown_outcome::retry_until_known;
use super::write_context::WriteContext;
use crate::chat::access::floor::{bound_before, expired_at};
use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::IdLease;
use crate::chat::removal::hour_of_change;
use crate::model::{
    Ban, Change, ChangeKind, Content, Conversation, Event, HistorySettings, MembershipState,
    Message, MessageKind, Metadata, OrderKey, PageRequest, Timestamp, UserId,
};
use crate::store::{
    self, Audience, BanChange, DueRemoval, MembershipChange, MembershipSnapshot,
    MembershipTransition, Renaming, TransitionKind,
};

/// Decisions on one command, each after another server has changed the membership.
const TRIES_MAX: usize = 8;

/// Users of one decision, with those who are passed over as successors.
const PASSED_OVER_MAX: usize = 256;

/// Outcome of one decision.
enum ChangeAttempt {
    /// With the events for the other servers.
    Published(Option<OutgoingEvents>),
    /// The membership has changed since the decision.
    Stale,
}

/// A group command, with the check of its caller.
impl ConversationCommand for (GroupCommand, WriterCheck) {
    type Outcome = ();

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    async fn run(self, writer: &ConversationWriter, actor: UserId) -> CommandResult<()> {
        let (command, check) = self;
        let changed = writer.change_group(&actor, &check, &command).await;
        changed.map(|outgoing| ((), outgoing))
    }
}

impl ConversationWriter {
    /// Runs a group command. Returns the events for the other servers.
    async fn change_group(
        &self,
        actor: &UserId,
        check: &WriterCheck,
        command: &GroupCommand,
    ) -> Result<Option<OutgoingEvents>> {
        let context = self.context();
        for _ in 0..TRIES_MAX {
            self.check_admission(check)?;
            let concerned = command.concerned(actor);
            let mut users = concerned.clone();
            let mut members = self.snapshot(&mut users).await?;
            let restrictions = &context.restrictions;
            if users.iter().any(|user| restrictions.is_suspended(user)) {
                self.fill_vacancy(actor).await?;
                users = concerned;
                members = self.snapshot(&mut users).await?;
            }
            if let GroupCommand::History(HistoryCommand::SetExpiry { .. }) = command {
                let access = &context.access;
                access
                    .require_unhidden(actor, &members.conversation)
                    .await?;
            }
            let now = context.in_flight.now();
            let policy = GroupPolicy::new(&users, check.authority, &members, now, command)?;
            let decision = policy.decide(command)?;
            let Some(decision) = self.with_effect(decision).await? else {
                let repeated = match command {
                    GroupCommand::Rename(_) => {
                        let kind = ChangeKind::ConversationRenamed;
                        context.repeated_setting(self.conversation(), kind).await
                    }
                    GroupCommand::SetSlowMode(_)
                    | GroupCommand::SetProfile(_)
                    | GroupCommand::SetPostingRole(..) => {
                        let kind = ChangeKind::ConversationUpdated;
                        context.repeated_setting(self.conversation(), kind).await
                    }
                    GroupCommand::Add(..)
                    | GroupCommand::History(_)
                    | GroupCommand::Remove(_)
                    | GroupCommand::SetRole(..)
                    | GroupCommand::Leave
                    | GroupCommand::Withdraw
                    | GroupCommand::Ban(_)
                    | GroupCommand::LiftBan(_)
                    | GroupCommand::Silence(..)
                    | GroupCommand::Unsilence(_) => {
                        let version = members.version;
                        context
                            .repeated_membership(self.conversation(), version)
                            .await
                    }
                };
                return Ok(repeated?);
            };
            self.check_large_bound(&members, &decision.transitions)
                .await?;
            let attempt = self.persist_and_publish(actor, &members, decision).await?;
            if let ChangeAttempt::Published(outgoing) = attempt {
                return Ok(outgoing);
            }
        }
        Err(Error::Busy)
    }

    /// The decision, unless it sets the profile that the conversation has: policies do not read it.
    async fn with_effect(&self, decision: Option<GroupDecision>) -> Result<Option<GroupDecision>> {
        let Some(to) = decision.as_ref().and_then(|one| one.profile.as_ref()) else {
            return Ok(decision);
        };
        let store = &self.context().store;
        let found = store.conversation_profiles(&[self.conversation()]).await?;
        let profile = found.into_iter().next().unwrap_or_default();
        let changes = to.apply(profile.clone()) != profile;
        Ok(decision.filter(|_| changes))
    }

    /// The memberships on which a change is decided. Suspended users, and those from whom a block hides the group,
    /// are passed over as successors, unless nobody else is left or too many were passed over: the store is asked as if
    /// they left too.
    async fn snapshot(&self, users: &mut Vec<UserId>) -> Result<MembershipSnapshot> {
        let WriteContext {
            store,
            access,
            restrictions,
            in_flight,
            ..
        } = self.context().as_ref();
        let mut first_heir = None;
        loop {
            let members = store.membership_snapshot(self.conversation(), users);
            let members = members.await?.ok_or(Error::NotFound("the conversation"))?;
            // The ids of a change are greater than the version, whatever clock has allocated that.
            in_flight.observe(self.conversation(), members.version);
            match &members.successor {
                Some((heir, _))
                    if users.len() < PASSED_OVER_MAX
                        && (restrictions.is_suspended(heir)
                            || access
                                .hidden_groups()
                                .hides(heir, self.conversation())
                                .await?) =>
                {
                    users.push(heir.clone());
                    first_heir = first_heir.or(members.successor);
                }
                Some(_) => return Ok(members),
                None => {
                    return Ok(MembershipSnapshot {
                        successor: first_heir,
                        ..members
                    });
                }
            }
        }
    }

    /// Makes the first active successor OWNER, if the OWNER of a group is one by succession alone, and suspended.
    /// A later restoration changes nothing back.
    async fn fill_vacancy(&self, actor: &UserId) -> Result<()> {
        let mut passed_over = Vec::new();
        let members = self.snapshot(&mut passed_over).await?;
        let Some(decision) = GroupPolicy::succession(&passed_over, &members) else {
            return Ok(());
        };
        let attempt = self.persist_and_publish(actor, &members, decision).await?;
        if let ChangeAttempt::Published(outgoing) = attempt {
            self.context().deliver_then(outgoing, drop);
        }
        Ok(())
    }

    /// Refuses the change if it would exceed a user's bound of large conversations.
    async fn check_large_bound(
        &self,
        members: &MembershipSnapshot,
        transitions: &[MembershipTransition],
    ) -> Result<()> {
        let id = self.conversation();
        let mut users: Vec<_> = transitions
            .iter()
            .filter(|transition| transition.kind == TransitionKind::Joins)
            .map(|transition| transition.user.clone())
            .collect();
        let count = members.participant_count + users.len() as u64;
        if users.is_empty()
            || (!members.conversation.is_large && count <= Conversation::FAN_OUT_MAX as u64)
        {
            return Ok(());
        }
        let context = self.context();
        if !members.conversation.is_large {
            let page = PageRequest::first(Conversation::FAN_OUT_MAX);
            let present = context.store.participants(id, &page).await?.items;
            users.extend(present.into_iter().map(|participant| participant.user));
        }
        let creator = members.conversation.created_by.as_ref();
        context
            .introductions
            .check_large_bound(Some(id), creator, &users)
            .await
    }

    async fn persist_and_publish(
        &self,
        actor: &UserId,
        members: &MembershipSnapshot,
        decision: GroupDecision,
    ) -> Result<ChangeAttempt> {
        let GroupDecision {
            name,
            slow_mode_seconds,
            profile,
            history,
            expired_by,
            is_visible_since_joining,
            mut transitions,
            changes,
            bans,
            metadata,
        } = decision;
        // The message has the last id. Without one, the last change has it.
        let id_count = match metadata {
            Some(_) => changes.len() + 1,
            None => changes.len().max(1),
        };
        let lease = self
            .context()
            .in_flight
            .allocate(self.conversation(), id_count)
            .await?;
        let version = lease.newest();
        let message = metadata.map(|metadata| self.system_message(actor, &lease, &metadata));
        let message = message.map(Arc::new);
        let is_announced = message.is_some();
        let change = |(id, (kind, user)): (_, (ChangeKind, UserId))| Change {
            id,
            kind,
            message: if is_announced { version } else { id },
            user,
        };
        let changes: Vec<_> = lease
            .ids()
            .iter()
            .copied()
            .zip(changes)
            .map(change)
            .collect();
        for transition in &mut transitions {
            let is_banned = transition.membership.state == MembershipState::Banned;
            if transition.kind.moves() || is_banned {
                transition.membership.since = Some(version.moment());
            }
            if transition.kind == TransitionKind::Joins && is_visible_since_joining {
                transition.membership.visible_from = bound_before(version.moment());
            }
        }
        // The position of the change, unless ids lead the clock by which messages expire.
        let at = version.moment().min(self.context().in_flight.now());
        let expired = expired_by.map_or(OrderKey::MIN, |seconds| expired_at(at, seconds));
        let history = history.map(|history| HistorySettings {
            floor: history.floor.max(expired),
            ..history
        });
        let bans = bans
            .into_iter()
            .map(|ban| ban_change(actor, ban, version.moment()))
            .collect();
        let (id, context) = (self.conversation(), self.context());
        let (store, unsettled) = (&context.store, &context.unsettled);
        let (lease, audience) = match (name, slow_mode_seconds, &message, &profile) {
            (_, _, _, Some(profile)) => {
                let change = changes.first().expect("a new profile is one change");
                let (lease, audience) = retry_until_known(unsettled, lease, || {
                    store.change_conversation_profile(id, profile, change)
                })
                .await?;
                (lease, Some(audience))
            }
            (Some(name), _, Some(message), None) => {
                let change = changes.first().cloned().expect("a new name is one change");
                let message = Arc::clone(message);
                let renaming = Renaming {
                    name,
                    change,
                    message,
                };
                let (lease, audience) = retry_until_known(unsettled, lease, || {
                    store.rename_conversation(id, &renaming)
                })
                .await?;
                (lease, Some(audience))
            }
            (_, Some(seconds), _, None) => {
                let change = changes.first().expect("a new setting is one change");
                let (lease, ()) = retry_until_known(unsettled, lease, || {
                    store.set_slow_mode(id, seconds, change)
                })
                .await?;
                (lease, Some(Audience { users: None }))
            }
            (_, None, message, None) => {
                // Whatever becomes of the change, its removal from the disk is listed.
                if history.is_some() {
                    self.schedule_removal().await?;
                }
                let change = MembershipChange {
                    seen: members.version,
                    transitions: transitions.clone(),
                    changes: changes.clone(),
                    message: message.clone(),
                    version,
                    bans,
                    history,
                };
                retry_until_known(unsettled, lease, || store.change_membership(id, &change)).await?
            }
        };
        let Some(audience) = audience else {
            return Ok(ChangeAttempt::Stale);
        };
        // The write may have taken longer than the first entry waits.
        if history.is_some()
            && let Err(error) = self.schedule_removal().await
        {
            tracing::warn!(%error, "the server failed to list a change of a floor a second time");
        }
        let is_shown = profile.is_some();
        let outgoing = self.publish_group_change(
            &changes,
            &transitions,
            message,
            (&audience, is_shown),
            &lease,
        );
        Ok(ChangeAttempt::Published(outgoing))
    }

    async fn schedule_removal(&self) -> store::Result<()> {
        let due = DueRemoval {
            hour: hour_of_change(self.context().in_flight.now()),
            conversation: self.conversation(),
        };
        self.context().store.schedule_removal(due).await
    }

    fn system_message(
        &self,
        actor: &UserId,
        lease: &IdLease,
        metadata: &serde_json::Value,
    ) -> Message {
        let metadata = Metadata::new(metadata, Metadata::SYSTEM_BYTES_MAX)
            .expect("usernames and their number are bounded");
        Message::new(
            self.conversation(),
            lease.newest(),
            actor.clone(),
            MessageKind::System,
            Content {
                metadata: Some(metadata),
                ..Content::default()
            },
        )
    }

    fn publish_group_change(
        &self,
        changes: &[Change],
        transitions: &[MembershipTransition],
        message: Option<Arc<Message>>,
        (audience, is_shown): (&Audience, bool),
        lease: &IdLease,
    ) -> Option<OutgoingEvents> {
        let context = self.context();
        let mut publication = self.publication(lease);
        let with_kind = |kind| {
            transitions
                .iter()
                .filter(move |transition| transition.kind == kind)
                .map(|transition| &transition.user)
        };
        let (joiners, leavers) = (
            with_kind(TransitionKind::Joins),
            with_kind(TransitionKind::Leaves),
        );
        context.introductions.count_joiners(joiners.clone());
        // Commands that wait, and streams, check the membership again.
        let ends_rights = |change: &Change| {
            matches!(
                change.kind,
                ChangeKind::ParticipantUpdated
                    | ChangeKind::ConversationUpdated
                    | ChangeKind::HistoryRaised
            )
        };
        let clears = with_kind(TransitionKind::Clears);
        if leavers.clone().next().is_some()
            || clears.clone().next().is_some()
            || changes.iter().any(ends_rights)
        {
            context.access.leave_epoch().advance();
        }
        if changes
            .iter()
            .any(|change| change.kind == ChangeKind::RoleChanged)
        {
            context.access.leave_epoch().advance_rights();
        }
        for change in changes {
            let event = Event::Changed(self.conversation(), change.clone());
            publication.event(change.id, event);
        }
        // No inbox shows a change without a message, unless it is one of the profile, raises the floor of everyone, or
        // of one, or the user leaves.
        let Some(message) = message else {
            let is_raised = |change: &Change| change.kind == ChangeKind::HistoryRaised;
            if is_shown || changes.iter().any(is_raised) {
                publication.audience(lease.newest(), audience);
            }
            publication.inboxes(lease.newest(), clears.chain(leavers));
            return publication.finish();
        };
        publication.event(message.id, Event::MessageAdded(Arc::clone(&message)));
        publication.audience(message.id, audience);
        // Participants of a large conversation subscribe to its topic, but users who have just
        // joined or left do not.
        let others = joiners.filter(|_| audience.users.is_none()).chain(leavers);
        publication.inboxes(lease.newest(), others);
        publication.finish()
    }
}

fn ban_change(actor: &UserId, decision: BanDecision, at: Timestamp) -> BanChange {
    match decision {
        BanDecision::Set {
            user,
            until,
            reason,
        } => BanChange::Set(Ban {
            user,
            by: actor.clone(),
            at,
            until,
            reason,
        }),
        BanDecision::Lift(user) => BanChange::Lift(user),
    }
}
