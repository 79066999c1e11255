//! Commands: writes to a conversation as plain data, checked as far as possible without the store.

pub(crate) mod draft;
pub(crate) mod erasure;
pub(crate) mod group;
pub(crate) mod history;
pub(crate) mod pin;
pub(crate) mod profile;
pub(crate) mod reaction;
pub(crate) mod revision;

use crate::chat::access::authority::Authority;
use crate::chat::access::leave_epoch::RightsMoment;
use crate::chat::access::restrictions::AdmittedCaller;
use crate::chat::error::{Error, Result};
use crate::model::{Role, ServiceRight, Viewer};
use crate::store::Participation;

/// Check of a user who is about to write. The queue repeats it: a command may wait long, also for the hook.
#[derive(Debug, Clone)]
pub(crate) struct WriterCheck {
    /// `None` for the server itself.
    pub(crate) accepted: Option<AcceptedCaller>,
    pub(crate) authority: Authority,
    /// Whether silences and blocks hold nobody back: the command deletes.
    pub(crate) is_deletion: bool,
}

/// Caller of a command, with the moment before their rights were read.
#[derive(Debug, Clone)]
pub(crate) struct AcceptedCaller {
    pub(crate) admitted: AdmittedCaller,
    pub(crate) rights: RightsMoment,
}

impl WriterCheck {
    /// The right of the server itself.
    pub(crate) const fn of_server(authority: Authority) -> Self {
        Self {
            accepted: None,
            authority,
            is_deletion: true,
        }
    }
}

/// Seconds that a participant waits between two sends. In a direct conversation there is no such wait.
pub(crate) fn slow_mode_of(caller: &Viewer, participation: &Participation) -> u32 {
    match participation.membership.role {
        Role::Member if !caller.may(ServiceRight::Moderate) => {
            participation.conversation.slow_mode_seconds
        }
        Role::Member | Role::Admin | Role::Owner => 0,
    }
}

/// The rule of sends and edits in a group whose OWNERs have set a role for them. A service has the role that it takes part with.
pub(crate) fn require_send_role(participation: &Participation) -> Result<()> {
    let needed = participation.conversation.roles().send;
    if participation.membership.role.covers(needed) {
        return Ok(());
    }
    Err(Error::Forbidden(match needed {
        Role::Owner => "only an owner of this group may send and edit messages",
        Role::Admin | Role::Member => {
            "only an owner or admin of this group may send and edit messages"
        }
    }))
}

/// The rule of mentions of everyone.
pub(crate) fn require_everyone(participation: &Participation, everyone: bool) -> Result<()> {
    let Participation {
        conversation,
        membership,
    } = participation;
    if everyone && conversation.is_large && membership.role == Role::Member {
        return Err(Error::Forbidden(
            "only an owner or admin of a large conversation may mention everyone",
        ));
    }
    Ok(())
}
