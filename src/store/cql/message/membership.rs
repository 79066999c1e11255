//! Memberships, as the bytes of one cell.

use crate::model::{Membership, MembershipState, OrderKey, Role, Silence, Timestamp};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::next_version;

/// First byte of a membership from which on it is a version. Smaller ones are the state in version 1.
const MEMBERSHIP_VERSIONS: u8 = 16;
/// Version with the end of a ban, and with a silence.
const MEMBERSHIP_VERSION_2: u8 = 16;
/// The same with bounds of the history, which follow: the positions after which messages are visible, and the expiry
/// asked for.
const MEMBERSHIP_VERSION_3: u8 = 17;

/// Moments that follow a membership of version 2, in this order.
const HAS_SINCE: u8 = 1;
const HAS_BANNED_UNTIL: u8 = 2;
const HAS_SILENCE: u8 = 4;
const HAS_SILENCED_UNTIL: u8 = 8;

/// State, role and the moment of joining, if it is not that of creation. A ban or a silence takes version 2,
/// which servers of the first version do not read.
pub(crate) fn encode_membership(membership: &Membership) -> Vec<u8> {
    let has_left = membership.state == MembershipState::Left;
    next_version::encode(membership_bytes(membership), has_left)
}

fn membership_bytes(membership: &Membership) -> Vec<u8> {
    let state = match membership.state {
        MembershipState::Joined => 0,
        MembershipState::Left => 1,
        MembershipState::Banned => 2,
    };
    let role = match membership.role {
        Role::Owner => 0,
        Role::Admin => 1,
        Role::Member => 2,
    };
    if !membership.is_plain() {
        let silence = membership.silence;
        let moments = [
            (HAS_SINCE, membership.since),
            (HAS_BANNED_UNTIL, membership.banned_until),
            (HAS_SILENCE, silence.map(|silence| silence.since)),
            (
                HAS_SILENCED_UNTIL,
                silence.and_then(|silence| silence.until),
            ),
        ];
        let present = || {
            moments
                .iter()
                .filter_map(|(flag, moment)| Some((flag, (*moment)?)))
        };
        let flags = present().fold(0, |flags, (flag, _)| flags | flag);
        let version = if membership.has_floor() {
            MEMBERSHIP_VERSION_3
        } else {
            MEMBERSHIP_VERSION_2
        };
        let mut bytes = vec![version, state, role, flags];
        bytes.extend(present().flat_map(|(_, moment)| moment.micros().to_be_bytes()));
        if membership.has_floor() {
            bytes.extend(membership.visible_from.0);
            bytes.extend(membership.cleared_up_to.0);
            let asked = membership.asked_ttl_seconds;
            bytes.extend(asked.iter().flat_map(|seconds| seconds.to_be_bytes()));
        }
        return bytes;
    }
    let mut bytes = vec![state, role];
    bytes.extend(
        membership
            .since
            .iter()
            .flat_map(|since| since.micros().to_be_bytes()),
    );
    bytes
}

pub(crate) fn decode_membership(table: &'static str, bytes: &[u8]) -> Result<Membership> {
    let bytes = next_version::decode(bytes);
    let broken = || corrupt(table, "a membership is a state, a role and perhaps a time");
    // A later version decides on it: for this one, the user does not take part.
    let unknown = Membership {
        state: MembershipState::Left,
        ..Membership::joined(Role::Member)
    };
    if let Some((&version @ (MEMBERSHIP_VERSION_2 | MEMBERSHIP_VERSION_3), rest)) =
        bytes.split_first()
    {
        let (decoded, bounds) = decode_membership_2(rest).ok_or_else(broken)?;
        let Some(membership) = decoded else {
            return Ok(unknown);
        };
        if version == MEMBERSHIP_VERSION_2 {
            return Ok(membership);
        }
        return with_bounds(membership, bounds).ok_or_else(broken);
    }
    if bytes
        .first()
        .is_some_and(|first| *first >= MEMBERSHIP_VERSIONS)
    {
        return Ok(unknown);
    }
    let ([state, role], since) = bytes.split_first_chunk::<2>().ok_or_else(broken)?;
    let since = match since {
        [] => None,
        micros => Some(Timestamp::from_micros(i64::from_be_bytes(
            micros.try_into().map_err(|_| broken())?,
        ))),
    };
    let state = match state {
        0 => MembershipState::Joined,
        1 => MembershipState::Left,
        _ => return Ok(unknown),
    };
    Ok(Membership {
        state,
        since,
        ..Membership::joined(decode_role(*role))
    })
}

fn decode_role(number: u8) -> Role {
    match number {
        0 => Role::Owner,
        1 => Role::Admin,
        // An unknown role has the fewest rights.
        _ => Role::Member,
    }
}

/// The bounds of the history that follow a membership of version 3. `None` if the bytes are none.
fn with_bounds(membership: Membership, bounds: &[u8]) -> Option<Membership> {
    let (visible_from, rest) = bounds.split_first_chunk::<16>()?;
    let (cleared_up_to, asked) = rest.split_first_chunk::<16>()?;
    let asked_ttl_seconds = match asked {
        [] => None,
        asked => Some(u32::from_be_bytes(asked.try_into().ok()?)),
    };
    Some(Membership {
        visible_from: OrderKey(*visible_from),
        cleared_up_to: OrderKey(*cleared_up_to),
        asked_ttl_seconds,
        ..membership
    })
}

/// A membership of version 2, and the bytes after it. `None` if the bytes are none; the inner one for a state of a
/// later version.
fn decode_membership_2(bytes: &[u8]) -> Option<(Option<Membership>, &[u8])> {
    let ([state, role, flags], mut rest) = bytes.split_first_chunk::<3>()?;
    let mut moment = |flag: u8| -> Option<Option<Timestamp>> {
        if flags & flag == 0 {
            return Some(None);
        }
        let (micros, after) = rest.split_first_chunk::<8>()?;
        rest = after;
        Some(Some(Timestamp::from_micros(i64::from_be_bytes(*micros))))
    };
    let (since, banned_until) = (moment(HAS_SINCE)?, moment(HAS_BANNED_UNTIL)?);
    let (silenced, silenced_until) = (moment(HAS_SILENCE)?, moment(HAS_SILENCED_UNTIL)?);
    let state = match state {
        0 => MembershipState::Joined,
        1 => MembershipState::Left,
        2 => MembershipState::Banned,
        _ => return Some((None, rest)),
    };
    let membership = Membership {
        state,
        since,
        banned_until,
        silence: silenced.map(|since| Silence {
            since,
            until: silenced_until,
        }),
        ..Membership::joined(decode_role(*role))
    };
    Some((Some(membership), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_membership_with_bounds_survives_its_bytes() {
        let key = |byte: u8| OrderKey([byte; 16]);
        let plain = Membership::joined(Role::Member);
        let silence = Some(Silence {
            since: Timestamp::from_micros(7),
            until: None,
        });
        for bounded in [
            Membership {
                visible_from: key(1),
                ..plain
            },
            Membership {
                cleared_up_to: key(2),
                since: Some(Timestamp::from_micros(9)),
                ..plain
            },
            Membership {
                asked_ttl_seconds: Some(60),
                ..plain
            },
            Membership {
                visible_from: key(1),
                cleared_up_to: key(2),
                asked_ttl_seconds: Some(u32::MAX),
                silence,
                ..plain
            },
        ] {
            let bytes = encode_membership(&bounded);
            assert_eq!(bytes[0], MEMBERSHIP_VERSION_3);
            assert_eq!(decode_membership("t", &bytes).unwrap(), bounded);
            for length in 1..bytes.len() {
                let decoded = decode_membership("t", &bytes[..length]);
                assert!(decoded.is_err() || decoded.unwrap() != bounded);
            }
        }
    }

    #[test]
    fn a_membership_survives_its_bytes() {
        for since in [None, Some(Timestamp::from_micros(7))] {
            for state in [MembershipState::Joined, MembershipState::Left] {
                for role in [Role::Owner, Role::Admin, Role::Member] {
                    let membership = Membership {
                        state,
                        since,
                        ..Membership::joined(role)
                    };
                    let bytes = encode_membership(&membership);
                    assert!(bytes[0] < MEMBERSHIP_VERSIONS, "as in version 1");
                    assert_eq!(decode_membership("t", &bytes).unwrap(), membership);
                }
            }
        }
        let moment = |micros| Some(Timestamp::from_micros(micros));
        for since in [None, moment(7)] {
            for until in [None, moment(9)] {
                let banned = Membership {
                    state: MembershipState::Banned,
                    since,
                    banned_until: until,
                    ..Membership::joined(Role::Admin)
                };
                let silence = Some(Silence {
                    since: Timestamp::from_micros(3),
                    until,
                });
                let silenced = Membership {
                    since,
                    silence,
                    ..Membership::joined(Role::Member)
                };
                for membership in [banned, silenced, Membership { silence, ..banned }] {
                    let bytes = encode_membership(&membership);
                    assert_eq!(bytes[0], MEMBERSHIP_VERSION_2);
                    assert_eq!(decode_membership("t", &bytes).unwrap(), membership);
                }
            }
        }
        assert!(decode_membership("t", &[16, 0, 2]).is_err());
        assert!(decode_membership("t", &[16, 0, 2, 1, 7]).is_err());
        assert!(decode_membership("t", &[0]).is_err());
    }

    #[test]
    fn a_membership_of_a_later_version_gives_no_rights() {
        for bytes in [
            [18, 0, 7].as_slice(),
            &[18],
            &[2, 0],
            &[15, 1],
            &[16, 9, 0, 0],
        ] {
            let membership = decode_membership("t", bytes).unwrap();
            assert_eq!(membership.state, MembershipState::Left, "{bytes:?}");
        }
        let membership = decode_membership("t", &[0, 9]).unwrap();
        assert_eq!(membership.state, MembershipState::Joined);
        assert_eq!(membership.role, Role::Member);
    }
}
