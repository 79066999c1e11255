//! Encoding of values in the embedded store: a version byte, then postcard.
//!
//! A maximum register is the version byte and its own bytes, so that the greater value is the later one.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::key::Listing;
use crate::model::{
    self, ActPosition, Ban, ChangeId, Content, Conversation, ConversationId, ConversationKind,
    Flags, HistorySettings, IdempotencyKey, InputHash, Membership, Mentions, Message, MessageId,
    MessageKind, NotificationLevel, OrderKey, Pin, Profile, ReadMarker, Silence, TimeUuid,
    Timestamp, UserId, conversation::GroupName,
};
use crate::store::UnreadReader;
use crate::store::rules::import::activity;

/// Version of all values but messages.
const VERSION: u8 = 1;
/// Version of messages that were never pinned. Version 1 ends before `has_reactions`.
const MESSAGE_VERSION: u8 = 2;
/// Version of messages with a pin, which follows `has_reactions`.
const PINNED_MESSAGE_VERSION: u8 = 3;
/// Version of messages with mentions, which follow `has_reactions` and the pin, if there is one.
const MENTIONING_MESSAGE_VERSION: u8 = 4;

#[derive(Debug, thiserror::Error)]
pub(in crate::store::embedded) enum DecodeError {
    #[error("it is empty")]
    Empty,
    #[error("it has version {0}, which is not known")]
    Version(u8),
    #[error("it has bytes that belong to nothing")]
    Trailing,
    #[error("it has the wrong length")]
    Length,
    #[error("it is the position of no message")]
    Position,
    #[error(transparent)]
    Postcard(#[from] postcard::Error),
}

pub(in crate::store::embedded) fn encode(record: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(record, vec![VERSION]).expect("plain data serialises")
}

pub(in crate::store::embedded) fn decode<T: DeserializeOwned>(
    bytes: &[u8],
) -> Result<T, DecodeError> {
    let (record, rest) = postcard::take_from_bytes(body(bytes)?)?;
    if rest.is_empty() {
        Ok(record)
    } else {
        Err(DecodeError::Trailing)
    }
}

fn body(bytes: &[u8]) -> Result<&[u8], DecodeError> {
    match bytes.split_first() {
        None => Err(DecodeError::Empty),
        Some((&VERSION, body)) => Ok(body),
        Some((version, _)) => Err(DecodeError::Version(*version)),
    }
}

/// Splits the version from the body of a message.
fn message_body(bytes: &[u8]) -> Result<(&[u8], u8), DecodeError> {
    match bytes.split_first() {
        None => Err(DecodeError::Empty),
        Some((
            version @ (&VERSION
            | &MESSAGE_VERSION
            | &PINNED_MESSAGE_VERSION
            | &MENTIONING_MESSAGE_VERSION),
            body,
        )) => Ok((body, *version)),
        Some((version, _)) => Err(DecodeError::Version(*version)),
    }
}

pub(in crate::store::embedded) fn encode_position(position: OrderKey) -> Vec<u8> {
    [&[VERSION], position.0.as_slice()].concat()
}

pub(in crate::store::embedded) fn decode_position(bytes: &[u8]) -> Result<OrderKey, DecodeError> {
    Ok(OrderKey(
        body(bytes)?.try_into().map_err(|_| DecodeError::Length)?,
    ))
}

pub(in crate::store::embedded) fn encode_act(act: ActPosition) -> Vec<u8> {
    [&[VERSION], act.to_bytes().as_slice()].concat()
}

pub(in crate::store::embedded) fn decode_act(bytes: &[u8]) -> Result<ActPosition, DecodeError> {
    ActPosition::from_bytes(body(bytes)?).ok_or(DecodeError::Length)
}

pub(in crate::store::embedded) fn encode_marker(marker: ReadMarker) -> Vec<u8> {
    [&[VERSION], marker.to_bytes().as_slice()].concat()
}

pub(in crate::store::embedded) fn decode_marker(bytes: &[u8]) -> Result<ReadMarker, DecodeError> {
    Ok(ReadMarker::from_bytes(
        body(bytes)?.try_into().map_err(|_| DecodeError::Length)?,
    ))
}

/// A block as a maximum register: the id of its last change, and whether it is on.
pub(in crate::store::embedded) fn encode_block(change: ChangeId, is_on: bool) -> Vec<u8> {
    [
        &[VERSION],
        change.order_key().0.as_slice(),
        &[u8::from(is_on)],
    ]
    .concat()
}

pub(in crate::store::embedded) fn decode_block(
    bytes: &[u8],
) -> Result<(ChangeId, bool), DecodeError> {
    let (change, is_on) = body(bytes)?
        .split_first_chunk::<16>()
        .ok_or(DecodeError::Length)?;
    let change = ChangeId::from_order_key(OrderKey(*change)).ok_or(DecodeError::Position)?;
    match is_on {
        [is_on @ (0 | 1)] => Ok((change, *is_on == 1)),
        _ => Err(DecodeError::Length),
    }
}

/// Codec of flags, for a compare-and-set.
pub(in crate::store::embedded) const FLAGS: RecordCodec<Flags> = (decode_flags, encode_flags);

/// Flags of an entry. The level follows the flags of the first version, and is left out if it is the
/// default.
pub(in crate::store::embedded) fn encode_flags(flags: &Flags) -> Vec<u8> {
    let mut bytes = encode(flags);
    bytes.extend(flags.level.map(NotificationLevel::number));
    bytes
}

pub(in crate::store::embedded) fn decode_flags(bytes: &[u8]) -> Result<Flags, DecodeError> {
    let (flags, rest) = postcard::take_from_bytes::<Flags>(body(bytes)?)?;
    let level = match rest {
        [] => None,
        [level] => NotificationLevel::from_number(*level),
        _ => return Err(DecodeError::Trailing),
    };
    Ok(Flags { level, ..flags })
}

/// Version of memberships with a ban or a silence.
const MEMBERSHIP_VERSION: u8 = 2;
/// The same with bounds of the history: the positions after which messages are visible, and the expiry asked for.
const BOUNDED_MEMBERSHIP_VERSION: u8 = 3;

type HistoryBounds = (OrderKey, OrderKey, Option<u32>);

/// A membership. The end of a ban and a silence follow the fields of the first version.
pub(in crate::store::embedded) fn encode_membership(membership: &Membership) -> Vec<u8> {
    if membership.is_plain() {
        return encode(membership);
    }
    let silence = membership
        .silence
        .map(|silence| (silence.since, silence.until));
    let fields = (membership, membership.banned_until, silence);
    let bytes = if membership.has_floor() {
        let bounds: HistoryBounds = (
            membership.visible_from,
            membership.cleared_up_to,
            membership.asked_ttl_seconds,
        );
        postcard::to_extend(&fields, vec![BOUNDED_MEMBERSHIP_VERSION])
            .and_then(|bytes| postcard::to_extend(&bounds, bytes))
    } else {
        postcard::to_extend(&fields, vec![MEMBERSHIP_VERSION])
    };
    bytes.expect("plain data serialises")
}

pub(in crate::store::embedded) fn decode_membership(
    bytes: &[u8],
) -> Result<Membership, DecodeError> {
    type Moderated = (
        Membership,
        Option<Timestamp>,
        Option<(Timestamp, Option<Timestamp>)>,
    );
    let Some((&version @ (MEMBERSHIP_VERSION | BOUNDED_MEMBERSHIP_VERSION), body)) =
        bytes.split_first()
    else {
        return decode(bytes);
    };
    let ((membership, banned_until, silence), rest) = postcard::take_from_bytes::<Moderated>(body)?;
    let (bounds, rest) = if version == BOUNDED_MEMBERSHIP_VERSION {
        postcard::take_from_bytes::<HistoryBounds>(rest)?
    } else {
        (HistoryBounds::default(), rest)
    };
    if !rest.is_empty() {
        return Err(DecodeError::Trailing);
    }
    let (visible_from, cleared_up_to, asked_ttl_seconds) = bounds;
    Ok(Membership {
        banned_until,
        silence: silence.map(|(since, until)| Silence { since, until }),
        visible_from,
        cleared_up_to,
        asked_ttl_seconds,
        ..membership
    })
}

/// A ban without its key.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::store::embedded) struct BanRecord {
    by: UserId,
    at: Timestamp,
    until: Option<Timestamp>,
    reason: Option<String>,
}

impl BanRecord {
    pub(in crate::store::embedded) fn encode(ban: &Ban) -> Vec<u8> {
        encode(&Self {
            by: ban.by.clone(),
            at: ban.at,
            until: ban.until,
            reason: ban.reason.clone(),
        })
    }

    pub(in crate::store::embedded) fn into_ban(self, user: UserId) -> Ban {
        let Self {
            by,
            at,
            until,
            reason,
        } = self;
        Ban {
            user,
            by,
            at,
            until,
            reason,
        }
    }
}

/// Codec of profiles, for a compare-and-set.
pub(in crate::store::embedded) const PROFILE: RecordCodec<Profile> =
    (decode_profile, encode_profile);

/// Functions that decode and encode a record.
pub(in crate::store::embedded) type RecordCodec<T> =
    (fn(&[u8]) -> Result<T, DecodeError>, fn(&T) -> Vec<u8>);

/// A profile. Its metadata follows the fields of the first version, and is left out where there is none.
pub(in crate::store::embedded) fn encode_profile(profile: &Profile) -> Vec<u8> {
    let Profile {
        display_name,
        avatar_url,
        metadata,
        last_seen_at,
    } = profile;
    let bytes = encode(&(display_name, avatar_url, last_seen_at));
    match metadata {
        Some(metadata) => postcard::to_extend(metadata, bytes).expect("plain data serialises"),
        None => bytes,
    }
}

pub(in crate::store::embedded) fn decode_profile(bytes: &[u8]) -> Result<Profile, DecodeError> {
    let ((display_name, avatar_url, last_seen_at), rest) = postcard::take_from_bytes(body(bytes)?)?;
    let (metadata, rest) = match rest {
        [] => (None, rest),
        rest => {
            let (metadata, rest) = postcard::take_from_bytes(rest)?;
            (Some(metadata), rest)
        }
    };
    if !rest.is_empty() {
        return Err(DecodeError::Trailing);
    }
    Ok(Profile {
        display_name,
        avatar_url,
        metadata,
        last_seen_at,
    })
}

/// A message without its key. The fields that an unread count needs come first, see [`MessageLead`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::store::embedded) struct MessageRecord {
    sender: UserId,
    kind: MessageKind,
    deleted_at: Option<Timestamp>,
    reply_to: Option<MessageId>,
    client_key: Option<IdempotencyKey>,
    content: Option<Content>,
    #[serde(skip)]
    has_reactions: bool,
    #[serde(skip)]
    pin: Option<Box<Pin>>,
}

/// Prefix of a [`MessageRecord`]: enough for an unread count, without the body.
#[derive(Debug, Deserialize)]
pub(in crate::store::embedded) struct MessageLead<'a> {
    /// Bytes of the name: a count compares them, and need not check that they are UTF-8.
    sender: &'a [u8],
    kind: MessageKind,
    deleted_at: Option<Timestamp>,
}

impl<'a> MessageLead<'a> {
    pub(in crate::store::embedded) fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        Ok(postcard::take_from_bytes(message_body(bytes)?.0)?.0)
    }

    /// As [`Message::counts_as_unread_for`].
    pub(in crate::store::embedded) fn counts_as_unread_for(
        &self,
        reader: UnreadReader<'_>,
    ) -> bool {
        self.kind == MessageKind::Text
            && self.deleted_at.is_none()
            && reader.counts_bytes(self.sender)
    }
}

impl MessageRecord {
    pub(in crate::store::embedded) fn encode(message: &Message) -> Vec<u8> {
        let Message {
            conversation: _,
            id: _,
            sender,
            kind,
            content,
            reply_to,
            client_key,
            deleted_at,
            has_reactions,
            pin,
        } = message;
        // The fields in the order of the record, without a copy of the body.
        let fields = (
            sender,
            kind,
            deleted_at,
            reply_to,
            client_key,
            content,
            has_reactions,
        );
        let encoded = |version| postcard::to_extend(&fields, vec![version]);
        let mentions = content.as_ref().map(|content| &content.mentions);
        let bytes = match (mentions.filter(|mentions| !mentions.is_empty()), pin) {
            (Some(mentions), pin) => encoded(MENTIONING_MESSAGE_VERSION)
                .and_then(|bytes| postcard::to_extend(&(pin, mentions), bytes)),
            (None, None) => encoded(MESSAGE_VERSION),
            (None, Some(pin)) => {
                encoded(PINNED_MESSAGE_VERSION).and_then(|bytes| postcard::to_extend(pin, bytes))
            }
        };
        bytes.expect("plain data serialises")
    }

    pub(in crate::store::embedded) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (body, version) = message_body(bytes)?;
        let (record, rest) = postcard::take_from_bytes::<Self>(body)?;
        match (version, rest) {
            (VERSION, []) => Ok(record),
            (MESSAGE_VERSION, [has_reactions @ (0 | 1)]) => Ok(Self {
                has_reactions: *has_reactions == 1,
                ..record
            }),
            (PINNED_MESSAGE_VERSION, [has_reactions @ (0 | 1), pin @ ..]) => {
                let (pin, rest) = postcard::take_from_bytes(pin)?;
                if !rest.is_empty() {
                    return Err(DecodeError::Trailing);
                }
                Ok(Self {
                    has_reactions: *has_reactions == 1,
                    pin: Some(pin),
                    ..record
                })
            }
            (MENTIONING_MESSAGE_VERSION, [has_reactions @ (0 | 1), rest @ ..]) => {
                let ((pin, mentions), rest) =
                    postcard::take_from_bytes::<(Option<Box<Pin>>, Mentions)>(rest)?;
                let Some(content) = record.content.filter(|_| rest.is_empty()) else {
                    return Err(DecodeError::Trailing);
                };
                Ok(Self {
                    has_reactions: *has_reactions == 1,
                    pin,
                    content: Some(Content {
                        mentions,
                        ..content
                    }),
                    ..record
                })
            }
            _ => Err(DecodeError::Trailing),
        }
    }

    pub(in crate::store::embedded) fn into_message(
        self,
        conversation: ConversationId,
        id: MessageId,
    ) -> Message {
        let Self {
            sender,
            kind,
            deleted_at,
            reply_to,
            client_key,
            content,
            has_reactions,
            pin,
        } = self;
        Message {
            conversation,
            id,
            sender,
            kind,
            content,
            reply_to,
            client_key,
            deleted_at,
            has_reactions,
            pin,
        }
    }
}

/// A conversation without its key.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::store::embedded) struct ConversationRecord {
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
    pub(in crate::store::embedded) fn encode(conversation: &Conversation) -> Vec<u8> {
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
        let extended = if history != HistorySettings::default() {
            postcard::to_extend(&(slow_mode_seconds, history), bytes)
        } else if slow_mode_seconds > 0 {
            postcard::to_extend(&slow_mode_seconds, bytes)
        } else {
            Ok(bytes)
        };
        extended.expect("plain data serialises")
    }

    pub(in crate::store::embedded) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (record, rest) = postcard::take_from_bytes::<Self>(body(bytes)?)?;
        let (slow_mode_seconds, rest) = match rest {
            [] => (0, rest),
            rest => postcard::take_from_bytes(rest)?,
        };
        let (history, rest) = match rest {
            [] => (HistorySettings::default(), rest),
            rest => postcard::take_from_bytes(rest)?,
        };
        if !rest.is_empty() {
            return Err(DecodeError::Trailing);
        }
        Ok(Self {
            slow_mode_seconds,
            history,
            ..record
        })
    }

    pub(in crate::store::embedded) fn into_conversation(self, id: ConversationId) -> Conversation {
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
pub(in crate::store::embedded) struct HeadRecord {
    pub(in crate::store::embedded) last_message: Option<MessageId>,
    /// Sort key of the inboxes.
    pub(in crate::store::embedded) last_activity: Timestamp,
    /// Activity given by an import: it counts if it is later than the last message.
    pub(in crate::store::embedded) given_activity: Option<Timestamp>,
    pub(in crate::store::embedded) message_count: u64,
    /// Number of current participants.
    pub(in crate::store::embedded) participant_count: u64,
    pub(in crate::store::embedded) newest_change: Option<ChangeId>,
    /// See [`Listing::Busy`].
    pub(in crate::store::embedded) is_busy: bool,
}

impl HeadRecord {
    pub(in crate::store::embedded) fn new(
        created_at: Timestamp,
        given_activity: Option<Timestamp>,
    ) -> Self {
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
    pub(in crate::store::embedded) fn listing(&self, is_large: bool) -> Listing {
        match (is_large, self.is_busy) {
            (true, _) => Listing::Large,
            (false, true) => Listing::Busy,
            (false, false) => Listing::Active(self.last_activity),
        }
    }

    /// Counts one more message, at any position. The activity is the time of the last message, or a later given one.
    pub(in crate::store::embedded) fn count(&mut self, id: MessageId) {
        let last = self.last_message.map_or(id, |last| last.max(id));
        self.last_message = Some(last);
        self.last_activity = activity(self.last_activity, self.given_activity, Some(last));
        self.message_count += 1;
    }
}

/// Membership version and owner count of a conversation. Defaults to no version and no owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(in crate::store::embedded) struct RosterRecord {
    /// See [`crate::store::MembershipSnapshot::version`].
    pub(in crate::store::embedded) version: Option<TimeUuid>,
    /// Number of current participants whose stored role is OWNER.
    pub(in crate::store::embedded) owner_count: u64,
}

/// A used idempotency key.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::store::embedded) struct SendRecord {
    pub(in crate::store::embedded) message: MessageId,
    pub(in crate::store::embedded) input_hash: InputHash,
    pub(in crate::store::embedded) expires_at: Timestamp,
}

/// A change of a user's inbox other than a new message.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::store::embedded) struct ChangeRecord {
    pub(in crate::store::embedded) conversation: ConversationId,
    pub(in crate::store::embedded) kind: LoggedChangeKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::store::embedded) enum LoggedChangeKind {
    ConversationMade,
    MarkerMoved,
    MessageChanged,
    FlagsSet,
    MembershipChanged,
}

/// A change of a conversation without its key.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::store::embedded) struct ConversationChangeRecord {
    pub(in crate::store::embedded) kind: model::ChangeKind,
    pub(in crate::store::embedded) message: MessageId,
    pub(in crate::store::embedded) user: UserId,
}

/// Commit record, written with each commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(in crate::store::embedded) struct CommitRecord {
    pub(in crate::store::embedded) number: u64,
    /// Greatest id ever stored.
    pub(in crate::store::embedded) newest_id: Option<TimeUuid>,
}

#[cfg(test)]
#[path = "record_test.rs"]
mod tests;
