//! Records of users: their profiles and blocks, and their flags and memberships in a conversation.

use super::{DecodeError, RecordCodec, VERSION, body, decode, encode, end, take, take_optional};
use crate::model::{
    ChangeId, Flags, Membership, NotificationLevel, OrderKey, Profile, Silence, Timestamp,
};

/// A block as a maximum register: the id of its last change, and whether it is on.
pub(crate) fn encode_block(change: ChangeId, is_on: bool) -> Vec<u8> {
    [
        &[VERSION],
        change.order_key().0.as_slice(),
        &[u8::from(is_on)],
    ]
    .concat()
}

pub(crate) fn decode_block(bytes: &[u8]) -> Result<(ChangeId, bool), DecodeError> {
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
pub(crate) const FLAGS: RecordCodec<Flags> = (decode_flags, encode_flags);

/// Flags of an entry. The level follows the flags of the first version, and is left out if it is the
/// default.
pub(crate) fn encode_flags(flags: &Flags) -> Vec<u8> {
    let mut bytes = encode(flags);
    bytes.extend(flags.level.map(NotificationLevel::number));
    bytes
}

pub(crate) fn decode_flags(bytes: &[u8]) -> Result<Flags, DecodeError> {
    let mut rest = body(bytes)?;
    let flags: Flags = take(&mut rest)?;
    let level = match rest {
        [] => None,
        [level] => NotificationLevel::from_repr(*level),
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
pub(crate) fn encode_membership(membership: &Membership) -> Vec<u8> {
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

pub(crate) fn decode_membership(bytes: &[u8]) -> Result<Membership, DecodeError> {
    type Moderated = (
        Membership,
        Option<Timestamp>,
        Option<(Timestamp, Option<Timestamp>)>,
    );
    let Some((&version @ (MEMBERSHIP_VERSION | BOUNDED_MEMBERSHIP_VERSION), mut rest)) =
        bytes.split_first()
    else {
        return decode(bytes);
    };
    let (membership, banned_until, silence): Moderated = take(&mut rest)?;
    let (visible_from, cleared_up_to, asked_ttl_seconds) = match version {
        BOUNDED_MEMBERSHIP_VERSION => take(&mut rest)?,
        _ => HistoryBounds::default(),
    };
    end(rest)?;
    Ok(Membership {
        banned_until,
        silence: silence.map(|(since, until)| Silence { since, until }),
        visible_from,
        cleared_up_to,
        asked_ttl_seconds,
        ..membership
    })
}

/// Codec of profiles, for a compare-and-set.
pub(crate) const PROFILE: RecordCodec<Profile> = (decode_profile, encode_profile);

/// A profile. Its metadata follows the fields of the first version, and is left out where there is none.
pub(crate) fn encode_profile(profile: &Profile) -> Vec<u8> {
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

pub(crate) fn decode_profile(bytes: &[u8]) -> Result<Profile, DecodeError> {
    let mut rest = body(bytes)?;
    let (display_name, avatar_url, last_seen_at) = take(&mut rest)?;
    let metadata = take_optional(&mut rest)?;
    end(rest)?;
    Ok(Profile {
        display_name,
        avatar_url,
        metadata,
        last_seen_at,
    })
}
