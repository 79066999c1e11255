//! Encodings of values that fill one cell: last messages, memberships and contents.

use crate::model::{
    Content, Membership, MembershipState, MessageId, OrderKey, Role, Timestamp, UserId,
};
use crate::store::Result;

use super::bucket::Bucket;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::value::user;

/// The newest message, with the bucket to read it from. A maximum register: its bytes begin with the order key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastMessage {
    pub(crate) id: MessageId,
    pub(crate) bucket: Bucket,
    pub(crate) sender: UserId,
}

impl LastMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(25 + self.sender.as_str().len());
        bytes.extend_from_slice(&self.id.order_key().0);
        bytes.push(self.bucket.width.number().cast_unsigned());
        bytes.extend_from_slice(&self.bucket.start.micros().to_be_bytes());
        bytes.extend_from_slice(self.sender.as_str().as_bytes());
        bytes
    }

    pub(crate) fn decode(table: &'static str, bytes: &[u8]) -> Result<Self> {
        let broken = || corrupt(table, "a last message is an order key, a bucket and a name");
        let (key, rest) = bytes.split_first_chunk::<16>().ok_or_else(broken)?;
        let (width, rest) = rest.split_first().ok_or_else(broken)?;
        let (start, sender) = rest.split_first_chunk::<8>().ok_or_else(broken)?;
        let sender = std::str::from_utf8(sender).map_err(|_| broken())?;
        Ok(Self {
            id: MessageId::from_order_key(OrderKey(*key)).ok_or_else(broken)?,
            bucket: Bucket::from_row(width.cast_signed(), i64::from_be_bytes(*start))?,
            sender: user(table, sender)?,
        })
    }
}

/// First byte of a membership from which on it is a version. Smaller ones are the state in version 1.
const MEMBERSHIP_VERSIONS: u8 = 16;

/// State, role and the moment of joining, if it is not that of creation.
pub(crate) fn encode_membership(membership: &Membership) -> Vec<u8> {
    let state = match membership.state {
        MembershipState::Joined => 0,
        MembershipState::Left => 1,
    };
    let role = match membership.role {
        Role::Owner => 0,
        Role::Admin => 1,
        Role::Member => 2,
    };
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
    let broken = || corrupt(table, "a membership is a state, a role and perhaps a time");
    // A later version decides on it: for this one, the user does not take part.
    let unknown = Membership {
        state: MembershipState::Left,
        role: Role::Member,
        since: None,
    };
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
    let role = match role {
        0 => Role::Owner,
        1 => Role::Admin,
        // An unknown role has the fewest rights.
        _ => Role::Member,
    };
    Ok(Membership { state, role, since })
}

/// The format of a content, in its first byte.
const CONTENT_VERSION: u8 = 1;

pub(crate) fn encode_content(content: &Content) -> Vec<u8> {
    postcard::to_extend(content, vec![CONTENT_VERSION]).expect("plain data serialises")
}

pub(crate) fn decode_content(bytes: &[u8]) -> Result<Content> {
    match bytes.split_first() {
        Some((&CONTENT_VERSION, rest)) => {
            postcard::from_bytes(rest).map_err(|error| corrupt("messages_by_conversation", error))
        }
        // A later version wrote it: the message is shown without a body.
        Some((version, _)) if *version > CONTENT_VERSION => Ok(Content::default()),
        Some(_) | None => Err(corrupt(
            "messages_by_conversation",
            "a content begins with its version",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::cql::message::bucket::Width;

    #[test]
    fn a_later_message_has_greater_bytes_whatever_its_bucket_and_sender() {
        let last = |micros: i64, rest: [u8; 8], width: Width, sender: &str| {
            let id = MessageId::new(Timestamp::from_micros(micros), rest);
            LastMessage {
                id,
                bucket: Bucket::holding(id.moment(), width),
                sender: UserId::parse(sender).unwrap(),
            }
        };
        let ascending = [
            last(5, [0; 8], Width::Minute, "zoe"),
            last(9, [0; 8], Width::Minute, "zoe"),
            last(9, [1; 8], Width::TenDays, "ann"),
            last(10, [0; 8], Width::TenDays, "ann"),
        ];
        assert!(
            ascending.is_sorted_by(|one, other| one.id < other.id && one.encode() < other.encode())
        );
        for one in ascending {
            assert_eq!(LastMessage::decode("t", &one.encode()).unwrap(), one);
        }
    }

    #[test]
    fn a_membership_survives_its_bytes() {
        for since in [None, Some(Timestamp::from_micros(7))] {
            for state in [MembershipState::Joined, MembershipState::Left] {
                for role in [Role::Owner, Role::Admin, Role::Member] {
                    let membership = Membership { state, role, since };
                    assert_eq!(
                        decode_membership("t", &encode_membership(&membership)).unwrap(),
                        membership
                    );
                }
            }
        }
        assert!(decode_membership("t", &[0]).is_err());
    }

    #[test]
    fn what_a_later_version_wrote_gives_nobody_a_right_and_no_message_a_body() {
        for bytes in [[16, 0, 7].as_slice(), &[16], &[2, 0], &[15, 1]] {
            let membership = decode_membership("t", bytes).unwrap();
            assert_eq!(membership.state, MembershipState::Left, "{bytes:?}");
        }
        let membership = decode_membership("t", &[0, 9]).unwrap();
        assert_eq!(membership.state, MembershipState::Joined);
        assert_eq!(membership.role, Role::Member);
        assert_eq!(decode_content(&[2, 7, 7, 7]).unwrap(), Content::default());
        assert!(decode_content(&[]).is_err() && decode_content(&[0, 1]).is_err());
    }
}
