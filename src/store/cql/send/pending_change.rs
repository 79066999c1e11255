//! Pending change: what a decided change of membership still has to write, and its formats.

pub(crate) mod completion;

use crate::model::{
    Ban, Change, ChangeId, ChangeKind, ConversationId, HistorySettings, Membership, Message,
    PostingRoles, TimeUuid, UserId,
};
use crate::store::cql::driver::error::{corrupt, unavailable};
use crate::store::cql::message::bucket::Bucket;
use crate::store::cql::participant::roster::TABLE;
use crate::store::{BanChange, MembershipChange, MembershipTransition, Result, TransitionKind};

/// The format of a change that a message announces, in its first byte.
const VERSION: u8 = 1;
/// The format of a change without a message, or with bans. Servers of the first version do not read it.
const VERSION_2: u8 = 2;
/// The format of a change of the settings of a history, which follow the second version.
const VERSION_3: u8 = 3;
/// The same with posting roles, which follow the third version.
const VERSION_4: u8 = 4;
/// First byte of one without a version, which earlier versions wrote: the length of the
/// conversation's id.
const UNVERSIONED: u8 = 16;

/// Everything that a decided change still has to write. It stays in the partition until the next change.
pub(super) struct PendingChange {
    conversation: ConversationId,
    pub(super) version: TimeUuid,
    announcement: Option<Announcement>,
    pub(super) was_large: bool,
    transitions: Vec<PendingTransition>,
    changes: Vec<(ChangeId, ChangeKind, UserId)>,
    bans: Vec<BanChange>,
    history: Option<HistorySettings>,
    /// The users who have cleared the history.
    cleared: Vec<UserId>,
}

/// The SYSTEM message of a change, and its bucket, whichever server writes it.
type Announcement = (Message, (i8, i64));

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct PendingTransition {
    user: UserId,
    /// Whether the user joins or leaves; `None` if the user stays.
    joins: Option<bool>,
    membership: Membership,
}

/// Encoding of the first version.
#[derive(serde::Serialize, serde::Deserialize)]
struct AnnouncedChange {
    message: Message,
    bucket: (i8, i64),
    was_large: bool,
    transitions: Vec<PendingTransition>,
    changes: Vec<(ChangeId, ChangeKind, UserId)>,
}

/// Encoding of the second version.
#[derive(serde::Serialize, serde::Deserialize)]
struct ModerationChange {
    conversation: ConversationId,
    version: TimeUuid,
    announcement: Option<Announcement>,
    was_large: bool,
    transitions: Vec<PendingTransition>,
    changes: Vec<(ChangeId, ChangeKind, UserId)>,
    set_bans: Vec<Ban>,
    lifted_bans: Vec<UserId>,
}

/// Encoding of the third version.
type HistoryChange = (ModerationChange, Option<HistorySettings>, Vec<UserId>);
/// Encoding of the fourth version.
type PostingChange = (
    ModerationChange,
    Option<HistorySettings>,
    Vec<UserId>,
    PostingRoles,
);

impl From<AnnouncedChange> for PendingChange {
    fn from(change: AnnouncedChange) -> Self {
        Self {
            conversation: change.message.conversation,
            version: change.message.id,
            announcement: Some((change.message, change.bucket)),
            was_large: change.was_large,
            transitions: change.transitions,
            changes: change.changes,
            bans: Vec::new(),
            history: None,
            cleared: Vec::new(),
        }
    }
}

impl From<ModerationChange> for PendingChange {
    fn from(change: ModerationChange) -> Self {
        let set = change.set_bans.into_iter().map(BanChange::Set);
        let lifted = change.lifted_bans.into_iter().map(BanChange::Lift);
        Self {
            conversation: change.conversation,
            version: change.version,
            announcement: change.announcement,
            was_large: change.was_large,
            transitions: change.transitions,
            changes: change.changes,
            bans: set.chain(lifted).collect(),
            history: None,
            cleared: Vec::new(),
        }
    }
}

impl PendingChange {
    pub(super) fn of(
        conversation: ConversationId,
        change: &MembershipChange,
        announcement: Option<(Message, Bucket)>,
        was_large: bool,
    ) -> Self {
        let transition = |transition: &MembershipTransition| PendingTransition {
            user: transition.user.clone(),
            joins: match transition.kind {
                TransitionKind::Joins => Some(true),
                TransitionKind::Leaves => Some(false),
                TransitionKind::Stays | TransitionKind::Clears => None,
            },
            membership: transition.membership,
        };
        let placed = |(message, bucket): (Message, Bucket)| {
            (message, (bucket.width.number(), bucket.start.micros()))
        };
        Self {
            conversation,
            version: change.version,
            announcement: announcement.map(placed),
            was_large,
            transitions: change.transitions.iter().map(transition).collect(),
            changes: change
                .changes
                .iter()
                .map(|change| (change.id, change.kind, change.user.clone()))
                .collect(),
            bans: change.bans.clone(),
            history: change.history,
            cleared: (change.transitions.iter())
                .filter(|transition| transition.kind == TransitionKind::Clears)
                .map(|transition| transition.user.clone())
                .collect(),
        }
    }

    /// A change that is not the last one of the conversation, in place of the last one.
    pub(super) fn forgotten(conversation: ConversationId, version: TimeUuid) -> Self {
        Self {
            conversation,
            version,
            announcement: None,
            was_large: false,
            transitions: Vec::new(),
            changes: Vec::new(),
            bans: Vec::new(),
            history: None,
            cleared: Vec::new(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let (transitions, changes) = (self.transitions.clone(), self.changes.clone());
        let bytes = match (&self.announcement, self.bans.as_slice()) {
            (Some((message, bucket)), []) if !self.bounds_history() => {
                let change = AnnouncedChange {
                    message: message.clone(),
                    bucket: *bucket,
                    was_large: self.was_large,
                    transitions,
                    changes,
                };
                postcard::to_extend(&change, vec![VERSION])
            }
            (announcement, bans) => {
                let mut change = ModerationChange {
                    conversation: self.conversation,
                    version: self.version,
                    announcement: announcement.clone(),
                    was_large: self.was_large,
                    transitions,
                    changes,
                    set_bans: Vec::new(),
                    lifted_bans: Vec::new(),
                };
                for ban in bans {
                    match ban {
                        BanChange::Set(ban) => change.set_bans.push(ban.clone()),
                        BanChange::Lift(user) => change.lifted_bans.push(user.clone()),
                    }
                }
                let roles = self.history.map(|history| history.roles);
                let roles = roles.filter(|roles| !roles.is_default());
                if let Some(roles) = roles {
                    let change = (change, &self.history, &self.cleared, roles);
                    postcard::to_extend(&change, vec![VERSION_4])
                } else if self.bounds_history() {
                    let change = (change, &self.history, &self.cleared);
                    postcard::to_extend(&change, vec![VERSION_3])
                } else {
                    postcard::to_extend(&change, vec![VERSION_2])
                }
            }
        };
        bytes.expect("plain data serialises")
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let broken = |error| corrupt(TABLE, error);
        let announced = match bytes.split_first() {
            Some((&VERSION, body)) => body,
            Some((&UNVERSIONED, _)) => bytes,
            Some((&VERSION_2, body)) => {
                let change = postcard::from_bytes::<ModerationChange>(body);
                return change.map(Self::from).map_err(broken);
            }
            Some((&VERSION_3, body)) => {
                let decoded = postcard::from_bytes::<HistoryChange>(body);
                let (change, history, cleared) = decoded.map_err(broken)?;
                return Ok(Self {
                    history,
                    cleared,
                    ..Self::from(change)
                });
            }
            Some((&VERSION_4, body)) => {
                let decoded = postcard::from_bytes::<PostingChange>(body);
                let (change, history, cleared, roles) = decoded.map_err(broken)?;
                return Ok(Self {
                    history: history.map(|history| HistorySettings { roles, ..history }),
                    cleared,
                    ..Self::from(change)
                });
            }
            Some((version, _)) if *version > VERSION_4 => {
                return Err(unavailable("a later version has to complete a change"));
            }
            Some(_) | None => {
                return Err(corrupt(TABLE, "a pending change begins with its version"));
            }
        };
        let change = postcard::from_bytes::<AnnouncedChange>(announced);
        change.map(Self::from).map_err(broken)
    }

    /// Whether it changes the settings of the history, or a user has cleared it.
    fn bounds_history(&self) -> bool {
        self.history.is_some() || !self.cleared.is_empty()
    }

    fn changes(&self) -> impl Iterator<Item = Change> {
        self.changes.iter().map(|(id, kind, user)| Change {
            id: *id,
            kind: *kind,
            message: self.announcement.as_ref().map_or(*id, |_| self.version),
            user: user.clone(),
        })
    }

    /// The users who join or leave.
    fn moved(&self) -> impl Iterator<Item = &UserId> {
        self.transitions
            .iter()
            .filter(|transition| transition.joins.is_some())
            .map(|transition| &transition.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MessageKind, Role, Timestamp};

    #[test]
    fn a_pending_change_is_read_with_and_without_its_version() {
        let id = TimeUuid::new(Timestamp::from_micros(7), [0; 8]);
        let user = UserId::parse("anna").unwrap();
        let announced = AnnouncedChange {
            message: Message {
                conversation: ConversationId::random(),
                id,
                sender: user.clone(),
                kind: MessageKind::System,
                content: None,
                reply_to: None,
                client_key: None,
                deleted_at: None,
                has_reactions: false,
                pin: None,
            },
            bucket: (1, 2),
            was_large: false,
            transitions: vec![PendingTransition {
                user: user.clone(),
                joins: Some(true),
                membership: Membership::joined(Role::Member),
            }],
            changes: vec![(id, ChangeKind::ParticipantAdded, user.clone())],
        };
        let earlier = postcard::to_stdvec(&announced).unwrap();
        let pending = PendingChange::from(announced);
        let present = pending.encode();
        assert_eq!(present[0], VERSION);
        assert_eq!(earlier[0], UNVERSIONED);
        for bytes in [&present, &earlier] {
            let read = PendingChange::decode(bytes).unwrap();
            assert_eq!(read.encode(), present);
        }
        let mut later = present;
        later[0] = VERSION_4 + 1;
        assert!(matches!(
            PendingChange::decode(&later),
            Err(crate::store::Error::Unavailable(_))
        ));
        assert!(PendingChange::decode(&[]).is_err());

        let set = BanChange::Set(Ban {
            user: user.clone(),
            by: user.clone(),
            at: Timestamp::from_micros(7),
            until: None,
            reason: Some("spam".to_owned()),
        });
        let with_bans = PendingChange {
            announcement: None,
            bans: vec![set, BanChange::Lift(user)],
            ..pending
        };
        let bytes = with_bans.encode();
        assert_eq!(bytes[0], VERSION_2);
        let read = PendingChange::decode(&bytes).unwrap();
        assert_eq!((&read.bans, read.version), (&with_bans.bans, id));

        let roles = PostingRoles {
            send: Role::Admin,
            ..PostingRoles::DEFAULT
        };
        for (roles, version) in [(PostingRoles::DEFAULT, VERSION_3), (roles, VERSION_4)] {
            let history = HistorySettings {
                ttl_seconds: Some(60),
                roles,
                ..HistorySettings::default()
            };
            let changed = PendingChange {
                history: Some(history),
                ..PendingChange::decode(&bytes).unwrap()
            };
            let bytes = changed.encode();
            assert_eq!(bytes[0], version);
            assert_eq!(
                PendingChange::decode(&bytes).unwrap().history,
                Some(history)
            );
        }
    }
}
