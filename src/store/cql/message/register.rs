//! Encodings of values that fill one cell: last messages, memberships and contents.

use crate::model::{
    Content, Membership, MembershipState, Mentions, MessageId, OrderKey, Parts, Role, Silence,
    Timestamp, UserId,
};
use crate::store::Result;

use super::bucket::Bucket;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::next_version;
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
    let bytes = next_version::known(bytes);
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

/// The format of a content, in its first byte.
const CONTENT_VERSION: u8 = 1;
/// The format of a content with mentions, which follow the fields of the first version.
const MENTIONING_VERSION: u8 = 2;

/// The format of a content with parts, which follow the mentions. It is the last one: a later version
/// adds parts.
const PARTS_VERSION: u8 = 3;

/// Opening of a text that the next version, where it is pretended, has a new form for.
const NEW_BODY: &str = "next: ";

pub(crate) fn encode_content(content: &Content) -> Vec<u8> {
    let parts = content.parts();
    let bytes = if !parts.is_empty() {
        postcard::to_extend(&(content, &content.mentions, parts), vec![PARTS_VERSION])
    } else if content.mentions.is_empty() {
        postcard::to_extend(content, vec![CONTENT_VERSION])
    } else {
        postcard::to_extend(&(content, &content.mentions), vec![MENTIONING_VERSION])
    };
    let is_new = content.body.as_str().starts_with(NEW_BODY);
    next_version::encode(bytes.expect("plain data serialises"), is_new)
}

pub(crate) fn decode_content(bytes: &[u8]) -> Result<Content> {
    match next_version::known(bytes).split_first() {
        Some((&CONTENT_VERSION, rest)) => {
            postcard::from_bytes(rest).map_err(|error| corrupt("messages_by_conversation", error))
        }
        Some((&MENTIONING_VERSION, rest)) => {
            let (content, mentions): (Content, Mentions) = postcard::from_bytes(rest)
                .map_err(|error| corrupt("messages_by_conversation", error))?;
            Ok(Content {
                mentions,
                ..content
            })
        }
        Some((&PARTS_VERSION, rest)) => {
            let (content, mentions, parts): (Content, Mentions, Parts) = postcard::from_bytes(rest)
                .map_err(|error| corrupt("messages_by_conversation", error))?;
            let content = Content {
                mentions,
                ..content
            };
            let content = content.with_parts(parts);
            content.map_err(|error| corrupt("messages_by_conversation", error))
        }
        // A later version wrote it: the message is shown without a body.
        Some((version, _)) if *version > PARTS_VERSION => Ok(Content::default()),
        Some(_) | None => Err(corrupt(
            "messages_by_conversation",
            "a content begins with its version",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Attachment, Body, MessageStep, MessageStepState, MessageSteps, Metadata};
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
    fn a_content_has_the_second_version_only_with_mentions() {
        let plain = Content::default();
        let users = vec![UserId::parse("ann").unwrap()];
        let mentioning = Content {
            mentions: Mentions::new(users, true),
            ..plain.clone()
        };
        for (content, version) in [(plain, CONTENT_VERSION), (mentioning, MENTIONING_VERSION)] {
            let bytes = encode_content(&content);
            assert_eq!(bytes[0], version);
            assert_eq!(decode_content(&bytes).unwrap(), content);
        }
    }

    /// The encoding of contents of version 0.2, as it was released.
    mod version_0_2 {
        use super::super::*;
        use crate::model::{Body, Metadata};

        #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        pub(super) struct Attachment {
            pub(super) url: String,
            pub(super) mime_type: String,
            pub(super) name: Option<String>,
            pub(super) size_bytes: Option<u64>,
            pub(super) width: Option<u32>,
            pub(super) height: Option<u32>,
        }

        #[derive(Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        pub(super) struct Content {
            pub(super) body: Body,
            pub(super) attachments: Vec<Attachment>,
            pub(super) metadata: Option<Metadata>,
            pub(super) edited_at: Option<Timestamp>,
        }

        pub(super) fn encode(content: &Content, mentions: &Mentions) -> Vec<u8> {
            if mentions.is_empty() {
                postcard::to_extend(content, vec![1]).unwrap()
            } else {
                postcard::to_extend(&(content, mentions), vec![2]).unwrap()
            }
        }

        pub(super) fn decode(bytes: &[u8]) -> (Content, Mentions) {
            match bytes.split_first().unwrap() {
                (1, rest) => (postcard::from_bytes(rest).unwrap(), Mentions::default()),
                (2, rest) => postcard::from_bytes(rest).unwrap(),
                (_, _) => (Content::default(), Mentions::default()),
            }
        }
    }

    fn attachment(url: &str, duration_ms: Option<u32>, thumbnail: Option<&str>) -> Attachment {
        Attachment {
            url: url.to_owned(),
            mime_type: "video/mp4".to_owned(),
            name: Some("clip".to_owned()),
            size_bytes: Some(1 << 40),
            width: None,
            height: Some(9),
            duration_ms,
            thumbnail_url: thumbnail.map(str::to_owned),
        }
    }

    #[test]
    fn version_0_2_and_this_one_read_each_other_where_there_is_no_part() {
        let users = vec![UserId::parse("ann").unwrap()];
        for mentions in [Mentions::default(), Mentions::new(users, true)] {
            for attachments in [vec![], vec![attachment("https://a", None, None)]] {
                let content = Content {
                    body: Body::parse("Hello".to_owned(), 16, false).unwrap(),
                    metadata: Some(Metadata::parse("{\"a\":1}", 64).unwrap()),
                    edited_at: Some(Timestamp::from_micros(7)),
                    mentions: mentions.clone(),
                    attachments,
                    ..Content::default()
                };
                let known = content
                    .attachments
                    .iter()
                    .map(|one| version_0_2::Attachment {
                        url: one.url.clone(),
                        mime_type: one.mime_type.clone(),
                        name: one.name.clone(),
                        size_bytes: one.size_bytes,
                        width: one.width,
                        height: one.height,
                    });
                let earlier = version_0_2::Content {
                    body: content.body.clone(),
                    attachments: known.collect(),
                    metadata: content.metadata.clone(),
                    edited_at: content.edited_at,
                };
                let bytes = encode_content(&content);
                assert_eq!(bytes, version_0_2::encode(&earlier, &mentions));
                assert_eq!(decode_content(&bytes).unwrap(), content);
                assert_eq!(version_0_2::decode(&bytes), (earlier, mentions.clone()));
            }
        }
    }

    #[test]
    fn steps_and_an_interruption_are_parts() {
        let steps = MessageSteps::parse(vec![MessageStep {
            key: "1".to_owned(),
            title: "Read".to_owned(),
            state: MessageStepState::Waiting,
            detail: Some("two\nlines".to_owned()),
        }]);
        let steps = steps.unwrap();
        for (steps, is_interrupted) in [
            (steps.clone(), false),
            (steps, true),
            (MessageSteps::default(), true),
        ] {
            let content = Content {
                steps,
                is_interrupted,
                ..Content::default()
            };
            assert!(content.has_parts());
            let bytes = encode_content(&content);
            assert_eq!(bytes[0], PARTS_VERSION);
            assert_eq!(decode_content(&bytes).unwrap(), content);
        }
        assert!(!Content::default().has_parts());
    }

    #[test]
    fn parts_come_back_and_unknown_ones_are_kept() {
        let mut unknown = Parts::default();
        unknown.put(7, vec![1, 2, 3]);
        let users = vec![UserId::parse("ann").unwrap()];
        let clip = attachment("https://a", Some(1_500), Some("https://a/small"));
        let plain = attachment("https://b", None, None);
        for (attachments, unknown_parts) in [
            (vec![plain.clone(), clip.clone()], Parts::default()),
            (vec![clip], unknown.clone()),
            (vec![plain], unknown),
        ] {
            let content = Content {
                attachments,
                unknown_parts,
                mentions: Mentions::new(users.clone(), false),
                ..Content::default()
            };
            let bytes = encode_content(&content);
            assert_eq!(bytes[0], PARTS_VERSION);
            assert_eq!(decode_content(&bytes).unwrap(), content);
            let shown = version_0_2::decode(&bytes);
            assert_eq!(shown, Default::default(), "0.2 shows no body");
        }
    }

    #[test]
    fn what_a_later_version_wrote_gives_nobody_a_right_and_no_message_a_body() {
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
        assert_eq!(decode_content(&[4, 7, 7, 7]).unwrap(), Content::default());
        assert!(decode_content(&[]).is_err() && decode_content(&[0, 1]).is_err());
    }
}
