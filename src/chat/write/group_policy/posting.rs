//! Decisions on posting roles: the role of a group that sending, adding participants or pinning needs.

use serde_json::json;

use super::{GroupDecision, GroupPolicy};
use crate::chat::error::{Error, Result};
use crate::model::{ChangeKind, HistorySettings, PostingAct, Role};

impl GroupPolicy<'_> {
    /// Sets the role of an act. `None` is the default.
    pub(super) fn set_posting_role(
        &self,
        act: PostingAct,
        role: Option<Role>,
    ) -> Result<Option<GroupDecision>> {
        self.require_owner()?;
        let before = self.settings();
        let roles = before.roles.with(act, role);
        if roles == before.roles {
            return Ok(None);
        }
        let (event, role) = match act {
            PostingAct::Send => ("sendRoleChanged", Some(roles.send)),
            PostingAct::Add => ("addRoleChanged", Some(roles.add)),
            PostingAct::Pin => ("pinRoleChanged", roles.pin),
        };
        Ok(Some(GroupDecision {
            history: Some(HistorySettings { roles, ..before }),
            changes: vec![(ChangeKind::ConversationUpdated, self.actor.clone())],
            metadata: Some(json!({"event": event, "usernames": [], "role": role})),
            ..GroupDecision::default()
        }))
    }

    pub(super) fn require_add_role(&self) -> Result<()> {
        let needed = self.settings().roles.add;
        if self.membership.role.covers(needed) {
            return Ok(());
        }
        Err(Error::Forbidden(match needed {
            Role::Owner => "only an owner of the group may add participants",
            Role::Admin | Role::Member => "only an owner or admin of the group may do that",
        }))
    }
}
