//! Records of conversations: their settings, their heads, and their rosters.

use serde::{Deserialize, Serialize};

use super::{DecodeError, body, encode, end, take, take_optional};
use crate::model::{
    ChangeId, Conversation, ConversationId, ConversationKind, HistorySettings, InputHash,
    MessageId, PostingRoles, TimeUuid, Timestamp, UserId, conversation::GroupName,
};
use crate::store::embedded::engine::key::Listing;
use crate::store::rules::import::activity;

/// A conversation without its key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ConversationRecord {
    kind: ConversationKind,
    name: Option<GroupName>,
    created_at: Timestamp,
    created_by: Option<UserId>,
    input_hash: Option<InputHash>,
    is_large: bool,
    #[serde(skip)]
    slow_mode_seconds: u32,
    #[serde(skip)]
    history: HistorySettings,
}

impl ConversationRecord {
    pub(crate) fn encode(conversation: &Conversation) -> Vec<u8> {
        let Conversation {
            id: _,
            kind,
            name,
            created_at,
            created_by,
            input_hash,
            is_large,
            slow_mode_seconds,
            history,
        } = conversation.clone();
        let bytes = encode(&Self {
            kind,
            name,
            created_at,
            created_by,
            input_hash,
            is_large,
            slow_mode_seconds,
            history,
        });
        // They follow the fields of the first version, and are left out where there are none.
        let extended = if !history.roles.is_default() {
            postcard::to_extend(&(slow_mode_seconds, history, history.roles), bytes)
        } else if history != HistorySettings::default() {
            postcard::to_extend(&(slow_mode_seconds, history), bytes)
        } else if slow_mode_seconds > 0 {
            postcard::to_extend(&slow_mode_seconds, bytes)
        } else {
            Ok(bytes)
        };
        extended.expect("plain data serialises")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut rest = body(bytes)?;
        let record: Self = take(&mut rest)?;
        let slow_mode_seconds = take_optional(&mut rest)?.unwrap_or_default();
        let history: HistorySettings = take_optional(&mut rest)?.unwrap_or_default();
        let roles = take_optional(&mut rest)?.unwrap_or(PostingRoles::DEFAULT);
        end(rest)?;
        Ok(Self {
            slow_mode_seconds,
            history: HistorySettings { roles, ..history },
            ..record
        })
    }

    pub(crate) fn into_conversation(self, id: ConversationId) -> Conversation {
        let Self {
            kind,
            name,
            created_at,
            created_by,
            input_hash,
            is_large,
            slow_mode_seconds,
            history,
        } = self;
        Conversation {
            id,
            kind,
            name,
            created_at,
            created_by,
            input_hash,
            slow_mode_seconds,
            history,
            is_large,
        }
    }
}

/// Head of a conversation: the values that its messages and participants change, written as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeadRecord {
    pub(crate) last_message: Option<MessageId>,
    /// Sort key of the inboxes.
    pub(crate) last_activity: Timestamp,
    /// Activity given by an import: it counts if it is later than the last message.
    pub(crate) given_activity: Option<Timestamp>,
    pub(crate) message_count: u64,
    /// Number of current participants.
    pub(crate) participant_count: u64,
    pub(crate) newest_change: Option<ChangeId>,
    /// See [`Listing::Busy`].
    pub(crate) is_busy: bool,
}

impl HeadRecord {
    pub(crate) fn new(created_at: Timestamp, given_activity: Option<Timestamp>) -> Self {
        Self {
            last_message: None,
            last_activity: activity(created_at, given_activity, None),
            given_activity,
            message_count: 0,
            participant_count: 0,
            newest_change: None,
            is_busy: false,
        }
    }

    /// Index that lists the conversation in the inboxes of its participants.
    pub(crate) fn listing(&self, is_large: bool) -> Listing {
        match (is_large, self.is_busy) {
            (true, _) => Listing::Large,
            (false, true) => Listing::Busy,
            (false, false) => Listing::Active(self.last_activity),
        }
    }

    /// Counts one more message, at any position. The activity is the time of the last message, or a later given one.
    pub(crate) fn count(&mut self, id: MessageId) {
        let last = self.last_message.map_or(id, |last| last.max(id));
        self.last_message = Some(last);
        self.last_activity = activity(self.last_activity, self.given_activity, Some(last));
        self.message_count += 1;
    }
}

/// Membership version and owner count of a conversation. Defaults to no version and no owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct RosterRecord {
    /// See [`crate::store::MembershipSnapshot::version`].
    pub(crate) version: Option<TimeUuid>,
    /// Number of current participants whose stored role is OWNER.
    pub(crate) owner_count: u64,
}
