//! Settings of a conversation, and what its participants see of its history.

use super::WriteService;
use super::command::group::GroupCommand;
use super::command::history::{ConversationSettings, HistoryCommand, parse_ttl};
use crate::chat::access::authority::Authority;
use crate::chat::error::{Error, Result};
use crate::model::{ConversationId, ConversationKind, Floor, MessageId, Role, Viewer};
use crate::store::FormVersion;

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
        let profile = settings.profile.parse(caller)?;
        let access = &self.context.access;
        let own = access.governing_of(caller, conversation).await?;
        let is_group = own.conversation.kind == ConversationKind::Group;
        let sets_history = settings.visibility.is_some() || ttl_seconds.is_some();
        let has_face = profile.description.is_some() || profile.avatar_url.is_some();
        let sets_roles = settings.roles.changes().next().is_some();
        let is_of_groups =
            settings.visibility.is_some() || slow_mode.is_some() || has_face || sets_roles;
        if !is_group && is_of_groups {
            return Err(Error::bad_input(
                &["input", "conversationId"],
                "the conversation is direct, not a group: it has an expiry and metadata alone",
            ));
        }
        if is_group && (sets_history || sets_roles) && own.membership.role != Role::Owner {
            return Err(Error::Forbidden(
                "only an owner of the group may set its history visibility, expiry and posting roles",
            ));
        }
        if (slow_mode.is_some() || has_face) && own.membership.role == Role::Member {
            return Err(Error::Forbidden(
                "only an owner or admin of the group may do that",
            ));
        }
        if sets_history {
            access.forms().require(FormVersion::HISTORY).await?;
        }
        if sets_roles {
            access.forms().require(FormVersion::PARTS).await?;
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
        for (act, role) in settings.roles.changes() {
            let command = GroupCommand::SetPostingRole(act, role);
            self.run_group_command(caller, conversation, command)
                .await?;
        }
        if !profile.is_empty() {
            self.run_group_command(caller, conversation, GroupCommand::SetProfile(profile))
                .await?;
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
        let own = self.participation_of(caller, conversation).await?;
        let viewer = &caller.user;
        let access = &self.context.access;
        access.require_unhidden(viewer, &own.conversation).await?;
        let found = self
            .participants
            .direct_peers(viewer, &[conversation])
            .await?;
        let peer = found.into_iter().flatten().find(|peer| peer != viewer);
        let command = HistoryCommand::SetExpiry { seconds, peer };
        self.enqueue_own_command(caller, conversation, command)
            .await
    }

    /// Removes everything that the conversation has now from the viewer's history.
    pub async fn clear_history(&self, caller: &Viewer, conversation: ConversationId) -> Result<()> {
        self.participation_of(caller, conversation).await?;
        let access = &self.context.access;
        access.forms().require(FormVersion::HISTORY).await?;
        let store = &self.context.store;
        let last = store.last_messages(&[conversation]).await?.pop().flatten();
        // Without a message there is nothing to clear.
        let Some(last) = last else { return Ok(()) };
        let up_to = last.order_key();
        self.enqueue_own_command(caller, conversation, HistoryCommand::Clear { up_to })
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

    /// Runs a command of a participant on their own part of the history.
    async fn enqueue_own_command(
        &self,
        caller: &Viewer,
        conversation: ConversationId,
        command: HistoryCommand,
    ) -> Result<()> {
        let (command, authority) = (GroupCommand::History(command), Authority::Membership);
        self.enqueue_group_command(caller, authority, conversation, command)
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
