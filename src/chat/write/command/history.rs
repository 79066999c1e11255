//! Commands on the history of a conversation: its visibility, its expiry, a truncation, and a user's clearing.

use super::profile::ConversationProfileInput;
use crate::chat::access::authority::Authority;
use crate::chat::error::{Error, Result};
use crate::model::{
    HistorySettings, HistoryVisibility, MessageId, OrderKey, PostingAct, Role, UserId,
};

#[derive(Debug)]
pub(crate) enum HistoryCommand {
    SetVisibility(HistoryVisibility),
    SetExpiry {
        /// `None`: messages never expire.
        seconds: Option<u32>,
        /// The other participant of a direct conversation.
        peer: Option<UserId>,
    },
    Truncate {
        up_to: MessageId,
    },
    /// For the actor alone.
    Clear {
        up_to: OrderKey,
    },
}

impl HistoryCommand {
    /// Whether direct conversations have it, and not only groups.
    pub(crate) fn is_for_direct(&self, authority: Authority) -> bool {
        match self {
            Self::SetVisibility(_) => false,
            Self::SetExpiry { .. } | Self::Clear { .. } => true,
            Self::Truncate { .. } => authority == Authority::Service,
        }
    }
}

/// Settings of a conversation, as a client gives them. `None` leaves a setting unchanged.
#[derive(Debug, Clone, Default)]
pub struct ConversationSettings {
    pub visibility: Option<HistoryVisibility>,
    /// `Some(None)`: messages never expire.
    pub ttl_seconds: Option<Option<i32>>,
    pub slow_mode_seconds: Option<i32>,
    pub profile: ConversationProfileInput,
    pub roles: PostingRolesInput,
}

/// Posting roles as a client gives them. `None` leaves a role unchanged; `Some(None)` is its default.
#[derive(Debug, Clone, Copy, Default)]
pub struct PostingRolesInput {
    pub send: Option<Option<Role>>,
    pub add: Option<Option<Role>>,
    pub pin: Option<Option<Role>>,
}

impl PostingRolesInput {
    /// The roles that are set.
    pub(crate) fn changes(self) -> impl Iterator<Item = (PostingAct, Option<Role>)> {
        let given = [
            (PostingAct::Send, self.send),
            (PostingAct::Add, self.add),
            (PostingAct::Pin, self.pin),
        ];
        given
            .into_iter()
            .filter_map(|(act, role)| Some((act, role?)))
    }
}

/// An expiry as a client gives it. `None`: messages never expire.
pub(crate) fn parse_ttl(seconds: Option<i32>) -> Result<Option<u32>> {
    const RANGE: std::ops::RangeInclusive<u32> =
        HistorySettings::TTL_SECONDS_MIN..=HistorySettings::TTL_SECONDS_MAX;
    let parse = |seconds: i32| {
        let seconds = u32::try_from(seconds).ok();
        seconds
            .filter(|seconds| RANGE.contains(seconds))
            .ok_or_else(|| {
                let message = format!(
                    "messageTtlSeconds is {} to {}",
                    HistorySettings::TTL_SECONDS_MIN,
                    HistorySettings::TTL_SECONDS_MAX
                );
                Error::bad_input(&["input", "messageTtlSeconds"], message)
            })
    };
    seconds.map(parse).transpose()
}
