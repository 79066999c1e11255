//! Changes of groups: runs a group command in the queue of its conversation.
//!
//! A decision is valid for the version of the membership that it was made on (compare-and-set). If
//! another server has changed the membership meanwhile, the policy decides again.

use std::sync::Arc;

use super::command::group::GroupCommand;
use super::conversation_writer::ConversationWriter;
use super::group_policy::{GroupDecision, GroupPolicy};
use super::outgoing::OutgoingEvents;
use super::unknown_outcome::retry_until_known;
use crate::chat::error::{Error, Result};
use crate::chat::in_flight_ids::IdLease;
use crate::model::{
    Change, ChangeKind, Content, Conversation, Event, Message, MessageKind, Metadata, PageRequest,
    UserId,
};
use crate::store::{
    self, Audience, MembershipChange, MembershipSnapshot, MembershipTransition, Renaming,
    TransitionKind,
};

/// Decisions on one command, each after another server has changed the membership.
const TRIES_MAX: usize = 8;

/// Outcome of one decision.
enum ChangeAttempt {
    /// With the events for the other servers.
    Published(Option<OutgoingEvents>),
    /// The membership has changed since the decision.
    Stale,
}

impl ConversationWriter {
    /// Runs a group command. Returns the events for the other servers.
    pub(crate) async fn change_group(
        &self,
        actor: &UserId,
        command: &GroupCommand,
    ) -> Result<Option<OutgoingEvents>> {
        let context = self.context();
        let users = command.concerned(actor);
        for _ in 0..TRIES_MAX {
            let members = context
                .store
                .membership_snapshot(self.conversation(), &users)
                .await?;
            let members = members.ok_or(Error::NotFound("the conversation"))?;
            // The ids of this change are greater than the version, whatever clock has allocated
            // that.
            context
                .in_flight
                .observe(self.conversation(), members.version);
            let Some(decision) = GroupPolicy::new(&users, &members)?.decide(command)? else {
                let repeated = match command {
                    GroupCommand::Rename(_) => context.repeated_renaming(self.conversation()).await,
                    GroupCommand::Add(_)
                    | GroupCommand::Remove(_)
                    | GroupCommand::SetRole(..)
                    | GroupCommand::Leave => {
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
            mut transitions,
            changes,
            metadata,
        } = decision;
        let lease = self
            .context()
            .in_flight
            .allocate(self.conversation(), changes.len() + 1)
            .await?;
        let message = Arc::new(self.system_message(actor, &lease, &metadata));
        let change = |(id, (kind, user)): (_, (ChangeKind, UserId))| Change {
            id,
            kind,
            message: message.id,
            user,
        };
        let changes: Vec<_> = lease
            .ids()
            .iter()
            .copied()
            .zip(changes)
            .map(change)
            .collect();
        for transition in transitions
            .iter_mut()
            .filter(|transition| transition.kind != TransitionKind::Stays)
        {
            transition.membership.since = Some(message.id.moment());
        }
        let (lease, audience) = match name {
            Some(name) => {
                let change = changes.first().cloned().expect("a new name is one change");
                let message = Arc::clone(&message);
                let renaming = Renaming {
                    name,
                    change,
                    message,
                };
                let (lease, audience) = self.persist_renaming(lease, &renaming).await?;
                (lease, Some(audience))
            }
            None => {
                let change = MembershipChange {
                    seen: members.version,
                    transitions: transitions.clone(),
                    changes: changes.clone(),
                    message: Arc::clone(&message),
                };
                self.persist_membership(lease, &change).await?
            }
        };
        let Some(audience) = audience else {
            return Ok(ChangeAttempt::Stale);
        };
        let outgoing =
            self.publish_group_change(&changes, &transitions, message, &audience, &lease);
        Ok(ChangeAttempt::Published(outgoing))
    }

    async fn persist_renaming(
        &self,
        lease: IdLease,
        renaming: &Renaming,
    ) -> store::Result<(IdLease, Audience)> {
        let store = &self.context().store;
        retry_until_known(&self.context().unsettled, lease, || {
            store.rename_conversation(self.conversation(), renaming)
        })
        .await
    }

    async fn persist_membership(
        &self,
        lease: IdLease,
        change: &MembershipChange,
    ) -> store::Result<(IdLease, Option<Audience>)> {
        let store = &self.context().store;
        retry_until_known(&self.context().unsettled, lease, || {
            store.change_membership(self.conversation(), change)
        })
        .await
    }

    fn system_message(
        &self,
        actor: &UserId,
        lease: &IdLease,
        metadata: &serde_json::Value,
    ) -> Message {
        let metadata = Metadata::new(metadata, Metadata::SYSTEM_BYTES_MAX)
            .expect("usernames and their number are bounded");
        Message {
            conversation: self.conversation(),
            id: lease.newest(),
            sender: actor.clone(),
            kind: MessageKind::System,
            content: Some(Content {
                metadata: Some(metadata),
                ..Content::default()
            }),
            reply_to: None,
            client_key: None,
            deleted_at: None,
            has_reactions: false,
        }
    }

    fn publish_group_change(
        &self,
        changes: &[Change],
        transitions: &[MembershipTransition],
        message: Arc<Message>,
        audience: &Audience,
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
        if leavers.clone().next().is_some() {
            context.access.leave_epoch().advance();
        }
        for change in changes {
            let event = Event::Changed(self.conversation(), change.clone());
            publication.event(change.id, event);
        }
        publication.event(message.id, Event::MessageAdded(Arc::clone(&message)));
        publication.audience(message.id, audience);
        // Participants of a large conversation subscribe to its topic, but users who have just
        // joined or left do not.
        let others = joiners.filter(|_| audience.users.is_none()).chain(leavers);
        publication.inboxes(lease.newest(), others);
        publication.finish()
    }
}
