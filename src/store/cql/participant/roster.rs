//! Roster: the summary of a conversation's participants, in one static cell of their partition.
//!
//! Any row of the partition returns it, so a count, a role or the version of the membership never needs all rows. Every write that adds or
//! changes a participant also writes the roster, in the same mutation, by compare-and-set: the roster is exact, and changes of membership
//! are serial.

use std::collections::BTreeMap;

use super::{KEYS_AT_ONCE, Participants, present};
use crate::model::{ConversationId, ConversationKind, Membership, OrderKey, TimeUuid, UserId};
use crate::store::Result;
use crate::store::cql::driver::error::{corrupt, unavailable};
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{list, order_key, user, values};
use crate::store::cql::message::membership::decode_membership;
use crate::store::rules::succession::{self, Succession};

pub(crate) const TABLE: &str = "participants_by_conversation";
/// Earlier versions in a roster, by which a retried change is recognised.
const EARLIER_MAX: usize = 8;
/// The format of a roster, in its first byte.
const VERSION: u8 = 1;

statements! {
    SELECT_ROSTER: Read "SELECT roster, settled, history, present FROM participants_by_conversation WHERE conversation_id = ? LIMIT 1";
    SELECT_MEMBERSHIPS: Read "SELECT user_id, membership, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id IN ?";
}

#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Roster {
    /// The SYSTEM message of the last change, or the change under which the conversation was created.
    pub(crate) version: Option<TimeUuid>,
    /// The versions before, the newest last.
    earlier: Vec<TimeUuid>,
    pub(crate) participants: Succession,
}

impl Roster {
    /// The roster of these participants, in a conversation of this kind.
    pub(crate) fn of<'a>(
        kind: ConversationKind,
        version: Option<TimeUuid>,
        all: impl Iterator<Item = (&'a UserId, &'a Membership)>,
    ) -> Self {
        let mut participants = Succession::of(kind, all);
        // The encoding has no silence, and the role needs none.
        if let Some((_, membership)) = &mut participants.successor {
            membership.silence = None;
        }
        Self {
            version,
            participants,
            ..Self::default()
        }
    }

    /// The roster of a group with at least one OWNER, by its counts.
    pub(crate) fn counted(version: Option<TimeUuid>, joined: u32, owners: u32) -> Self {
        let participants = Succession {
            joined,
            owners,
            successor: None,
        };
        Self {
            version,
            participants,
            ..Self::default()
        }
    }

    /// This roster as the next version after another one.
    pub(crate) fn followed_by(self, after: &Self) -> Self {
        let mut earlier: Vec<_> = after.earlier.iter().copied().chain(after.version).collect();
        earlier.drain(..earlier.len().saturating_sub(EARLIER_MAX));
        Self { earlier, ..self }
    }

    /// The version before this one.
    pub(crate) fn version_before(&self) -> Option<TimeUuid> {
        self.earlier.last().copied()
    }

    /// Whether a change with this id was already decided.
    pub(crate) fn has_seen(&self, version: TimeUuid) -> bool {
        self.version == Some(version) || self.earlier.contains(&version)
    }

    /// A membership with its effective role, succession included.
    pub(crate) fn effective(&self, user: &UserId, stored: Membership) -> Membership {
        let heir = self.participants.successor.as_ref().map(|(heir, _)| heir);
        succession::effective(heir, user, stored)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).expect("plain data serialises")
    }

    /// `None` for a roster that a later version wrote.
    fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => {
                let roster = postcard::from_bytes(rest);
                roster.map(Some).map_err(|error| corrupt(TABLE, error))
            }
            Some((version, _)) if *version > VERSION => Ok(None),
            Some(_) | None => Err(corrupt(TABLE, "a roster begins with its version")),
        }
    }

    /// Decodes the roster cell of a row for a reader; an empty roster if the conversation never had a participant, or a later version
    /// wrote it.
    pub(crate) fn decode_optional(bytes: Option<&[u8]>) -> Result<Self> {
        let roster = bytes.map(Self::decode).transpose()?;
        Ok(roster.flatten().unwrap_or_default())
    }

    /// The same for a writer, who must know what it replaces.
    fn decode_for_write(bytes: Option<&[u8]>) -> Result<Self> {
        match bytes.map(Self::decode).transpose()? {
            None => Ok(Self::default()),
            Some(Some(roster)) => Ok(roster),
            Some(None) => Err(unavailable("a later version manages these participants")),
        }
    }
}

/// A roster as it was read, for a later compare-and-set.
#[derive(Debug, Clone, Default)]
pub(crate) struct RosterSnapshot {
    pub(crate) roster: Roster,
    /// The condition of the next write. `None` if there is no roster yet.
    pub(crate) bytes: Option<Vec<u8>>,
    /// The last version whose writes are all complete.
    settled: Option<OrderKey>,
    /// The names of the participants, if their cell is that of this roster.
    pub(crate) present: Option<Vec<UserId>>,
}

impl RosterSnapshot {
    pub(crate) fn is_settled(&self) -> bool {
        self.roster
            .version
            .is_none_or(|version| self.settled >= Some(version.order_key()))
    }
}

/// The cells of a roster, undecoded: a send compares them, and an unreadable one stops no send.
pub(crate) struct RosterCells {
    pub(crate) bytes: Option<Vec<u8>>,
    settled: Option<Vec<u8>>,
    /// Settings of the history.
    pub(crate) history: Option<Vec<u8>>,
    present: Option<Vec<u8>>,
}

impl RosterCells {
    /// The names of the participants, if their cell is that of this roster.
    pub(super) fn present(&self) -> Option<Vec<UserId>> {
        present::decode(self.present.as_deref(), self.bytes.as_deref())
    }

    /// An unreadable roster counts as settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.snapshot()
            .map_or(true, |snapshot| snapshot.is_settled())
    }

    fn snapshot(&self) -> Result<RosterSnapshot> {
        let settled = self.settled.as_deref();
        Ok(RosterSnapshot {
            roster: Roster::decode_for_write(self.bytes.as_deref())?,
            bytes: self.bytes.clone(),
            settled: settled.map(|bytes| order_key(TABLE, bytes)).transpose()?,
            present: self.present(),
        })
    }
}

impl Participants {
    pub(crate) async fn roster_cells(&self, conversation: ConversationId) -> Result<RosterCells> {
        type Columns = (
            Option<Vec<u8>>,
            Option<Vec<u8>>,
            Option<Vec<u8>>,
            Option<Vec<u8>>,
        );
        let row = self
            .executor
            .read_one::<Columns>(&SELECT_ROSTER, values![conversation])
            .await?;
        let (bytes, settled, history, present) = row.unwrap_or_default();
        Ok(RosterCells {
            bytes,
            settled,
            history,
            present,
        })
    }

    pub(crate) async fn roster(&self, conversation: ConversationId) -> Result<RosterSnapshot> {
        self.roster_cells(conversation).await?.snapshot()
    }

    /// The stored memberships of some users. `None` if the roster has changed since it was read.
    pub(crate) async fn memberships_of<'a>(
        &self,
        conversation: ConversationId,
        users: impl Iterator<Item = &'a UserId>,
        seen: &RosterSnapshot,
    ) -> Result<Option<BTreeMap<UserId, Membership>>> {
        type Columns = (String, Option<Vec<u8>>, Option<Vec<u8>>);
        let users: Vec<_> = users.collect();
        let reads: Vec<_> = users
            .chunks(KEYS_AT_ONCE)
            .map(|piece| values![conversation, list(piece.iter().copied())])
            .map(|values| self.executor.read::<Columns>(&SELECT_MEMBERSHIPS, values))
            .collect();
        let mut found = BTreeMap::new();
        for (name, membership, roster) in concurrently(reads).await?.into_iter().flatten() {
            let Some(membership) = membership else {
                continue;
            };
            if roster != seen.bytes {
                return Ok(None);
            }
            found.insert(user(TABLE, &name)?, decode_membership(TABLE, &membership)?);
        }
        Ok(Some(found))
    }
}

impl Participants {
    /// The names of the participants now.
    pub(crate) async fn present(&self, conversation: ConversationId) -> Result<Vec<UserId>> {
        let seen = self.roster_cells(conversation).await?;
        self.present_under(conversation, &seen).await
    }

    /// The names of the participants, under a roster that was read. Without the cell, they may be newer than it.
    pub(crate) async fn present_under(
        &self,
        conversation: ConversationId,
        seen: &RosterCells,
    ) -> Result<Vec<UserId>> {
        match seen.present() {
            Some(names) => Ok(names),
            None => Ok(present::joined(&self.memberships(conversation).await?)),
        }
    }

    /// The stored memberships of at least the present participants. `None` if the roster has changed since it was read.
    pub(crate) async fn present_memberships(
        &self,
        conversation: ConversationId,
        seen: &RosterSnapshot,
    ) -> Result<Option<BTreeMap<UserId, Membership>>> {
        match &seen.present {
            Some(names) => self.memberships_of(conversation, names.iter(), seen).await,
            None => self.memberships(conversation).await.map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Role, Timestamp};

    fn id(micros: i64) -> TimeUuid {
        TimeUuid::new(Timestamp::from_micros(micros), [0; 8])
    }

    #[test]
    fn a_roster_is_encoded_as_its_counts_and_its_successor() {
        let ann = UserId::parse("ann").unwrap();
        let membership = Membership::joined(Role::Admin);
        let all = [(&ann, &membership)].into_iter();
        let roster = Roster::of(ConversationKind::Group, Some(id(3)), all);
        let earlier: Vec<TimeUuid> = Vec::new();
        let fields = (Some(id(3)), earlier, 1_u32, 0_u32, Some((&ann, membership)));
        let bytes = postcard::to_extend(&fields, vec![VERSION]).unwrap();
        assert_eq!(roster.encode(), bytes, "the encoding of the first version");
        assert_eq!(Roster::decode(&bytes).unwrap(), Some(roster));
        assert_eq!(
            Roster::decode_optional(Some(&[9])).unwrap(),
            Roster::default()
        );
        assert!(Roster::decode_for_write(Some(&[9])).is_err());
        assert!(Roster::decode_optional(Some(&[0])).is_err());
    }

    #[test]
    fn a_retried_change_is_recognised_for_a_while() {
        let mut roster = Roster {
            version: Some(id(0)),
            ..Roster::default()
        };
        for micros in 1..20 {
            let after = Roster {
                version: Some(id(micros)),
                ..Roster::default()
            };
            roster = after.followed_by(&roster);
        }
        assert!(roster.has_seen(id(19)) && roster.has_seen(id(11)));
        assert!(!roster.has_seen(id(10)) && !roster.has_seen(id(20)));
    }
}
