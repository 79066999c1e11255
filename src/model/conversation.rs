//! Conversations and their participants.

mod posting;
mod profile;

pub use self::posting::{PostingAct, PostingRoles};
pub use self::profile::{AppKey, AppKeyClaim, ConversationProfile};
use super::text::{parse_line, parse_name};
use super::{ConversationId, InputHash, MessageId, OrderKey, TextError, Timestamp, UserId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ConversationKind {
    Direct,
    Group,
}

/// Properties of a conversation, without its messages and participants.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Conversation {
    pub id: ConversationId,
    pub kind: ConversationKind,
    pub name: Option<GroupName>,
    pub created_at: Timestamp,
    pub created_by: Option<UserId>,
    /// Hash of the input that created it. `None` without an idempotency key.
    pub input_hash: Option<InputHash>,
    /// Seconds that a MEMBER waits between two sends. 0: no wait.
    pub slow_mode_seconds: u32,
    /// The part of its history that its participants see. The encodings of the first versions leave it out.
    #[serde(skip)]
    pub history: HistorySettings,
    /// Whether it has, or once had, more than [`Conversation::FAN_OUT_MAX`] participants. Sends to it write no inbox rows.
    pub is_large: bool,
}

impl Conversation {
    /// The roles that posting in it needs.
    pub fn roles(&self) -> PostingRoles {
        self.history.roles
    }

    /// Whether it is large with so many participants. A large one stays so.
    pub fn is_large_with(&self, participants: u64) -> bool {
        self.is_large || participants > Self::FAN_OUT_MAX as u64
    }

    /// Maximum number of participants whose inbox rows a send writes. A conversation that exceeds it stays large forever.
    pub const FAN_OUT_MAX: usize = 32;
    /// Large conversations that an inbox merges with its own rows, unless the user acted in more of them.
    pub const LARGE_MERGED_MAX: usize = 200;
    /// Large conversations of one user that a store lists.
    pub const LARGE_LISTED_MAX: usize = 1_000;
    pub const PARTICIPANTS_MAX: usize = 20_000;
    pub const SLOW_MODE_SECONDS_MAX: u32 = 21_600;
    /// Maximum number of usernames in one mutation.
    pub const USERNAMES_MAX: usize = 50;
}

/// History that a new participant sees.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HistoryVisibility {
    #[default]
    All,
    /// Messages from the moment of joining.
    SinceJoined,
}

/// Settings of a conversation that are one value, always written as a whole on the condition of the membership's version: the
/// bounds of its history for all its participants, and the posting roles.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct HistorySettings {
    pub visibility: HistoryVisibility,
    /// Seconds after which a message expires. `None`: never.
    pub ttl_seconds: Option<u32>,
    /// Messages up to here are gone for everyone. It never goes back.
    pub floor: OrderKey,
    /// The encodings of the first version leave them out.
    #[serde(skip)]
    pub roles: PostingRoles,
}

impl HistorySettings {
    pub const TTL_SECONDS_MIN: u32 = 60;
    /// Ten years.
    pub const TTL_SECONDS_MAX: u32 = 315_576_000;
}

/// Lower bound of the messages that a user sees in a conversation: those after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Floor {
    /// The bound now, with the expiry of messages.
    pub key: OrderKey,
    /// The bound without the expiry. It moves by an act of a user alone.
    pub fixed: OrderKey,
}

impl Floor {
    /// Everything is visible.
    pub const NONE: Self = Self {
        key: OrderKey::MIN,
        fixed: OrderKey::MIN,
    };

    pub fn shows(self, message: MessageId) -> bool {
        message.order_key() > self.key
    }

    /// The moment before which no message is visible, apart from the expiry. `None` if all are.
    pub fn visible_from(self) -> Option<Timestamp> {
        (self.fixed > OrderKey::MIN).then(|| self.fixed.moment().plus_micros(1))
    }
}

/// A participant's own part of their floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnFloor {
    /// It bounds all events of the conversation. The rest of the floor bounds those of messages alone.
    pub visible_from: OrderKey,
    pub cleared_up_to: OrderKey,
}

impl OwnFloor {
    pub const NONE: Self = Self {
        visible_from: OrderKey::MIN,
        cleared_up_to: OrderKey::MIN,
    };

    /// The bound of messages.
    pub fn key(self) -> OrderKey {
        self.visible_from.max(self.cleared_up_to)
    }
}

/// Name of a group conversation: one line of bounded length.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct GroupName(String);

impl GroupName {
    pub const BYTES_MAX: usize = 256;

    /// A name that a client gives.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        parse_name(text, Self::BYTES_MAX)?;
        Ok(Self(text.to_owned()))
    }

    /// A name that is kept already, or that an export has: earlier versions took invisible characters too.
    pub fn from_history(text: &str) -> Result<Self, TextError> {
        parse_line(text, Self::BYTES_MAX)?;
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Role {
    Owner,
    Admin,
    Member,
}

impl Role {
    /// Whether it has the rights of another role.
    pub fn covers(self, needed: Self) -> bool {
        match needed {
            Self::Member => true,
            Self::Admin => self != Self::Member,
            Self::Owner => self == Self::Owner,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum MembershipState {
    Joined,
    Left,
    /// Banned, whether the user was ever a participant or not. See [`Membership::banned_until`].
    Banned,
}

/// Silence of a participant, who reads but may not write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Silence {
    pub since: Timestamp,
    /// `None`: until it is lifted.
    pub until: Option<Timestamp>,
}

impl Silence {
    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// Membership of one user in one conversation: a single value, always written as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Membership {
    pub state: MembershipState,
    pub role: Role,
    /// Time of the last change of `state`. `None` for participants since the creation of the conversation.
    pub since: Option<Timestamp>,
    /// End of a ban. `None`: until it is lifted. Only a banned user has one. Encodings of the first
    /// version leave this and the next field out.
    #[serde(skip)]
    pub banned_until: Option<Timestamp>,
    /// It stays with a user who leaves and comes back. An end by time needs no write.
    #[serde(skip)]
    pub silence: Option<Silence>,
    /// The user sees the messages after this position. Each joining sets it anew.
    #[serde(skip)]
    pub visible_from: OrderKey,
    /// The user has cleared the history up to here. It never goes back.
    #[serde(skip)]
    pub cleared_up_to: OrderKey,
    /// Expiry that a participant of a direct conversation asks for. `None`: no expiry.
    #[serde(skip)]
    pub asked_ttl_seconds: Option<u32>,
}

impl Membership {
    pub const fn joined(role: Role) -> Self {
        Self {
            state: MembershipState::Joined,
            role,
            since: None,
            banned_until: None,
            silence: None,
            visible_from: OrderKey::MIN,
            cleared_up_to: OrderKey::MIN,
            asked_ttl_seconds: None,
        }
    }

    pub fn is_joined(&self) -> bool {
        self.state == MembershipState::Joined
    }

    pub fn is_banned_at(&self, now: Timestamp) -> bool {
        self.state == MembershipState::Banned && self.banned_until.is_none_or(|until| now < until)
    }

    /// The silence, unless it has ended.
    pub fn silence_at(&self, now: Timestamp) -> Option<Silence> {
        self.silence.filter(|silence| silence.holds_at(now))
    }

    /// The state, role and time alone: all that the first encoding holds.
    pub fn is_plain(&self) -> bool {
        self.state != MembershipState::Banned && self.silence.is_none() && !self.has_floor()
    }

    /// Whether it bounds the history, or asks for a bound. Only the third encoding holds that.
    pub fn has_floor(&self) -> bool {
        self.own_floor() != OwnFloor::NONE || self.asked_ttl_seconds.is_some()
    }

    pub fn own_floor(&self) -> OwnFloor {
        OwnFloor {
            visible_from: self.visible_from,
            cleared_up_to: self.cleared_up_to,
        }
    }

    /// Sort key of the succession when the last OWNER leaves; the smallest inherits the role. ADMINs come before MEMBERs, then the longest
    /// membership, then the username (bytewise).
    pub fn succession<'a>(&self, user: &'a UserId) -> (bool, Option<Timestamp>, &'a UserId) {
        (self.role != Role::Admin, self.since, user)
    }
}

/// Participant of a conversation, with the two watermarks of receipts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    pub conversation: ConversationId,
    pub user: UserId,
    pub membership: Membership,
    /// [`OrderKey::MIN`] before the first read. It never decreases, unlike the read marker of the inbox.
    pub read_up_to: OrderKey,
    /// Whether a service moved that marker in the user's name, before the user acted.
    pub is_read_by_service: bool,
    pub delivered_up_to: OrderKey,
}

/// Ban of a user from a conversation. The membership decides; this says who banned the user, and why.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ban {
    pub user: UserId,
    pub by: UserId,
    pub at: Timestamp,
    /// `None`: until it is lifted.
    pub until: Option<Timestamp>,
    pub reason: Option<String>,
}

impl Ban {
    /// Bans of one conversation at most.
    pub const COUNT_MAX: usize = 10_000;
    pub const REASON_BYTES_MAX: usize = 255;

    pub fn holds_at(&self, now: Timestamp) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}
