//! Command to change a group: its name, its participants or their roles.

use super::history::{HistoryCommand, PostingRolesInput};
use super::profile::ConversationProfileInput;
use crate::chat::access::authority::Authority;
use crate::chat::error::{Error, Result};
use crate::model::{
    AppKey, Conversation, GroupName, PostingAct, Role, Timestamp, UserId, UserIdError, Viewer,
};
use crate::store::ConversationProfileChange;

#[derive(Debug)]
pub(crate) enum GroupCommand {
    Rename(GroupName),
    /// With the moment from which they see the history.
    Add(Vec<UserId>, Option<Timestamp>),
    Remove(UserId),
    SetRole(UserId, Role),
    Leave,
    /// Leave a conversation of any kind, without a SYSTEM message.
    Withdraw,
    Ban(BanDraft),
    LiftBan(UserId),
    /// Until a moment, or until lifted.
    Silence(UserId, Option<Timestamp>),
    Unsilence(UserId),
    SetSlowMode(u32),
    SetProfile(ConversationProfileChange),
    /// `None`: the default.
    SetPostingRole(PostingAct, Option<Role>),
    History(HistoryCommand),
}

/// New group as a client gives it.
#[derive(Debug, Clone, Default)]
pub struct GroupInput {
    pub name: String,
    pub usernames: Vec<String>,
    pub idempotency_key: Option<String>,
    /// For services. With it, the idempotency key has no effect.
    pub app_key: Option<String>,
    pub profile: ConversationProfileInput,
    pub roles: PostingRolesInput,
}

/// A ban as a client gives it.
#[derive(Debug, Clone, Default)]
pub struct BanInput {
    pub username: String,
    /// `None`: until it is lifted.
    pub until: Option<Timestamp>,
    pub reason: Option<String>,
    /// Whether the user's reactions to the newest messages go too.
    pub remove_reactions: bool,
}

/// Ban to be decided.
#[derive(Debug)]
pub(crate) struct BanDraft {
    pub(crate) user: UserId,
    pub(crate) until: Option<Timestamp>,
    pub(crate) reason: Option<String>,
}

impl GroupCommand {
    /// Approximate size in a queue.
    pub(crate) fn bytes(&self) -> usize {
        let named = match self {
            Self::Add(users, _) => users.iter().map(|user| user.as_str().len()).sum(),
            Self::Ban(draft) => draft.reason.as_ref().map_or(0, String::len),
            // The most that its fields have.
            Self::SetProfile(_) => 5 * 1_024,
            Self::Rename(_)
            | Self::Remove(_)
            | Self::SetRole(..)
            | Self::Leave
            | Self::Withdraw
            | Self::LiftBan(_)
            | Self::Silence(..)
            | Self::Unsilence(_)
            | Self::SetSlowMode(_)
            | Self::SetPostingRole(..)
            | Self::History(_) => 0,
        };
        named + 512
    }

    /// Whether a silenced participant may give it: what concerns themselves alone.
    pub(crate) fn is_for_silenced(&self) -> bool {
        matches!(
            self,
            Self::Leave | Self::Withdraw | Self::History(HistoryCommand::Clear { .. })
        )
    }

    /// Whether direct conversations have it, and not only groups.
    pub(crate) fn is_for_direct(&self, authority: Authority) -> bool {
        match self {
            Self::History(command) => command.is_for_direct(authority),
            Self::Withdraw => true,
            // Services set the metadata of a direct conversation.
            Self::SetProfile(to) => to.description.is_none() && to.avatar_url.is_none(),
            Self::Rename(_)
            | Self::Add(..)
            | Self::Remove(_)
            | Self::SetRole(..)
            | Self::Leave
            | Self::Ban(_)
            | Self::LiftBan(_)
            | Self::Silence(..)
            | Self::Unsilence(_)
            | Self::SetSlowMode(_)
            | Self::SetPostingRole(..) => false,
        }
    }

    /// The users on whose memberships the decision depends: the actor first, then the named users.
    pub(crate) fn concerned(&self, actor: &UserId) -> Vec<UserId> {
        let named = match self {
            Self::Add(users, _) => users.as_slice(),
            Self::Remove(user)
            | Self::SetRole(user, _)
            | Self::Ban(BanDraft { user, .. })
            | Self::LiftBan(user)
            | Self::Silence(user, _)
            | Self::Unsilence(user) => std::slice::from_ref(user),
            Self::History(HistoryCommand::SetExpiry {
                peer: Some(peer), ..
            }) => std::slice::from_ref(peer),
            Self::Rename(_)
            | Self::Leave
            | Self::Withdraw
            | Self::SetSlowMode(_)
            | Self::SetProfile(_)
            | Self::SetPostingRole(..)
            | Self::History(_) => &[],
        };
        std::iter::once(actor)
            .chain(named.iter().filter(|user| *user != actor))
            .cloned()
            .collect()
    }
}

/// The key of an app, which services alone give.
pub(crate) fn parse_app_key(caller: &Viewer, key: &str) -> Result<AppKey> {
    if caller.service_name().is_none() {
        return Err(Error::Forbidden("only a service may give an app key"));
    }
    AppKey::parse(key)
        .map_err(|error| Error::bad_input(&["input", "appKey"], format!("the appKey {error}")))
}

pub(crate) fn parse_group_name(name: &str) -> Result<GroupName> {
    GroupName::parse(name)
        .map_err(|error| Error::bad_input(&["input", "name"], format!("the name {error}")))
}

pub(crate) fn parse_username(username: &str) -> Result<UserId> {
    UserId::parse_living(username).map_err(|error| Error::bad_input(&["input", "username"], error))
}

/// The name of a user who is added.
pub(crate) fn parse_added(username: &str) -> Result<UserId> {
    UserId::parse_new(username).map_err(|error| Error::bad_input(&["input", "username"], error))
}

/// The names of users who are added. Sorts them and removes duplicates.
pub(crate) fn parse_usernames(usernames: &[String]) -> Result<Vec<UserId>> {
    const PATH: &[&str] = &["input", "usernames"];
    if usernames.len() > Conversation::USERNAMES_MAX {
        return Err(Error::bad_input(
            PATH,
            format!(
                "at most {} usernames in one call",
                Conversation::USERNAMES_MAX
            ),
        ));
    }
    let mut users = usernames
        .iter()
        .map(|name| UserId::parse_new(name))
        .collect::<Result<Vec<_>, UserIdError>>();
    if let Ok(users) = &mut users {
        users.sort_unstable();
        users.dedup();
    }
    users.map_err(|error| Error::bad_input(PATH, error))
}
