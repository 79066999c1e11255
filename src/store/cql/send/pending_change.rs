//! Pending change: what a decided change of membership still has to write, and its formats.

pub(crate) mod completion;

use crate::model::{
    Ban, Change, ChangeId, ChangeKind, ConversationId, HistorySettings, Membership, Message,
    TimeUuid, UserId,
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
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct PendingChange {
    conversation: ConversationId,
    pub(super) version: TimeUuid,
    announcement: Option<Announcement>,
    pub(super) was_large: bool,
    transitions: Vec<PendingTransition>,
    changes: Vec<(ChangeId, ChangeKind, UserId)>,
    #[serde(skip)]
    bans: Vec<BanChange>,
    #[serde(skip)]
    history: Option<HistorySettings>,
    /// The users who have cleared the history.
    #[serde(skip)]
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

/// Encoding of the first version: the message, its bucket, whether the conversation was large, and the same as in the others.
type AnnouncedChange = (
    Message,
    (i8, i64),
    bool,
    Vec<PendingTransition>,
    Vec<(ChangeId, ChangeKind, UserId)>,
);
/// Encoding of the second version: the bans that are set, and those that are lifted, follow the change.
type ModerationChange = (PendingChange, Vec<Ban>, Vec<UserId>);
/// Settings of the history, and who has cleared it: they follow in the third version.
type PendingHistory = (Option<HistorySettings>, Vec<UserId>);

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
        let bytes = match &self.announcement {
            Some((message, bucket)) if self.bans.is_empty() && !self.bounds_history() => {
                let (transitions, changes) = (&self.transitions, &self.changes);
                let change = (message, bucket, self.was_large, transitions, changes);
                postcard::to_extend(&change, vec![VERSION])
            }
            Some(_) | None => {
                let (mut set, mut lifted) = (Vec::new(), Vec::new());
                for ban in &self.bans {
                    match ban {
                        BanChange::Set(ban) => set.push(ban),
                        BanChange::Lift(user) => lifted.push(user),
                    }
                }
                let change = (self, set, lifted);
                let bounds = (&self.history, &self.cleared);
                let roles = self.history.map(|history| history.roles);
                let roles = roles.filter(|roles| !roles.is_default());
                if let Some(roles) = roles {
                    postcard::to_extend(&(change, bounds, roles), vec![VERSION_4])
                } else if self.bounds_history() {
                    postcard::to_extend(&(change, bounds), vec![VERSION_3])
                } else {
                    postcard::to_extend(&change, vec![VERSION_2])
                }
            }
        };
        bytes.expect("plain data serialises")
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let decoded = match bytes.split_first() {
            Some((&VERSION, body)) => Self::decode_announced(body),
            Some((&UNVERSIONED, _)) => Self::decode_announced(bytes),
            Some((version @ VERSION_2..=VERSION_4, body)) => Self::decode_since_2(*version, body),
            Some((version, _)) if *version > VERSION_4 => {
                return Err(unavailable("a later version has to complete a change"));
            }
            Some(_) | None => {
                return Err(corrupt(TABLE, "a pending change begins with its version"));
            }
        };
        decoded.map_err(|error| corrupt(TABLE, error))
    }

    fn decode_announced(body: &[u8]) -> postcard::Result<Self> {
        let (message, bucket, was_large, transitions, changes) =
            postcard::from_bytes::<AnnouncedChange>(body)?;
        let none = Self::forgotten(message.conversation, message.id);
        Ok(Self {
            announcement: Some((message, bucket)),
            was_large,
            transitions,
            changes,
            ..none
        })
    }

    fn decode_since_2(version: u8, body: &[u8]) -> postcard::Result<Self> {
        let ((change, set, lifted), rest) = postcard::take_from_bytes::<ModerationChange>(body)?;
        let ((mut history, cleared), rest) = match version {
            VERSION_2 => (PendingHistory::default(), rest),
            _ => postcard::take_from_bytes(rest)?,
        };
        if let (VERSION_4, Some(history)) = (version, &mut history) {
            history.roles = postcard::from_bytes(rest)?;
        }
        let set = set.into_iter().map(BanChange::Set);
        Ok(Self {
            bans: set.chain(lifted.into_iter().map(BanChange::Lift)).collect(),
            history,
            cleared,
            ..change
        })
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
    use crate::model::{MessageKind, PostingRoles, Role, Timestamp};

    #[test]
    fn a_pending_change_is_read_with_and_without_its_version() {
        let id = TimeUuid::new(Timestamp::from_micros(7), [0; 8]);
        let user = UserId::parse("anna").unwrap();
        let message = Message {
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
        };
        let transition = PendingTransition {
            user: user.clone(),
            joins: Some(true),
            membership: Membership::joined(Role::Member),
        };
        let changes = vec![(id, ChangeKind::ParticipantAdded, user.clone())];
        let announced: AnnouncedChange = (message, (1, 2), false, vec![transition], changes);
        let earlier = postcard::to_stdvec(&announced).unwrap();
        let pending = PendingChange::decode_announced(&earlier).unwrap();
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
