//! What is kept of all participants of a conversation together, in one cell of their partition: so that a count, a role and the version
//! of the membership are read with any row of it, and never by reading all of them.
//!
//! Every write that adds a participant, or changes one, writes the roster too, in the same mutation and on the condition that it is the
//! one that was seen. So it is exact, and changes of membership are serial.

use std::collections::BTreeMap;

use crate::model::{ConversationId, ConversationKind, Membership, OrderKey, Role, TimeUuid, UserId};
use crate::store::Result;
use crate::store::cql::Inner;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::executor::at_once;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, list, place, user};
use crate::store::cql::message::register::decode_membership;

pub(crate) const TABLE: &str = "participants_by_conversation";
/// Rows of one read by their keys.
pub(crate) const KEYS_AT_ONCE: usize = 20;
/// Rows of one read of all.
pub(crate) const ROWS_MAX: i32 = 1_000;
/// Earlier changes of membership that are known again when they are asked for once more.
const EARLIER_MAX: usize = 8;
/// The first byte says how the rest is to be read.
const VERSION: u8 = 1;

statements! {
    /// The statements of this file.
    Statements {
        roster: Read "SELECT roster, settled FROM participants_by_conversation WHERE conversation_id = ? LIMIT 1";
        some: Read "SELECT user_id, membership, roster FROM participants_by_conversation WHERE conversation_id = ? AND user_id IN ?";
        all: Read "SELECT user_id, membership FROM participants_by_conversation WHERE conversation_id = ? AND user_id > ? LIMIT ?";
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Roster {
    /// The SYSTEM message of the last change, or the change under which the conversation was made.
    pub(crate) version: Option<TimeUuid>,
    /// The versions before, the newest last.
    earlier: Vec<TimeUuid>,
    pub(crate) joined: u32,
    /// Of them, those who were given the role OWNER.
    pub(crate) owners: u32,
    /// Who counts as OWNER in a group where nobody was given that role.
    pub(crate) heir: Option<(UserId, Membership)>,
}

impl Roster {
    /// Of these, in a conversation of that kind.
    pub(crate) fn of<'a>(
        kind: ConversationKind,
        version: Option<TimeUuid>,
        all: impl Iterator<Item = (&'a UserId, &'a Membership)>,
    ) -> Self {
        let mut roster = Self { version, ..Self::default() };
        all.for_each(|(user, membership)| roster.add(kind, user, *membership));
        roster
    }

    /// Of a group whose OWNERs are known to be so many, at least one.
    pub(crate) fn counted(version: Option<TimeUuid>, joined: u32, owners: u32) -> Self {
        Self { version, joined, owners, ..Self::default() }
    }

    /// One more participant.
    pub(crate) fn add(&mut self, kind: ConversationKind, user: &UserId, membership: Membership) {
        if !membership.is_joined() {
            return;
        }
        self.joined += 1;
        self.owners += u32::from(membership.role == Role::Owner);
        let is_next = |(heir, of_heir): &(UserId, Membership)| membership.succession(user) < of_heir.succession(heir);
        if self.owners > 0 || kind != ConversationKind::Group {
            self.heir = None;
        } else if self.heir.as_ref().is_none_or(is_next) {
            self.heir = Some((user.clone(), membership));
        }
    }

    /// The same with the people of another.
    pub(crate) fn with_people_of(self, Self { joined, owners, heir, .. }: Self) -> Self {
        Self { joined, owners, heir, ..self }
    }

    /// The same under the next version.
    pub(crate) fn followed_by(self, after: &Self) -> Self {
        let mut earlier: Vec<_> = after.earlier.iter().copied().chain(after.version).collect();
        earlier.drain(..earlier.len().saturating_sub(EARLIER_MAX));
        Self { earlier, ..self }
    }

    /// Whether a change under this id was kept.
    pub(crate) fn has_seen(&self, version: TimeUuid) -> bool {
        self.version == Some(version) || self.earlier.contains(&version)
    }

    /// A membership as it counts.
    pub(crate) fn as_it_counts(&self, user: &UserId, given: Membership) -> Membership {
        let is_heir = given.is_joined() && self.heir.as_ref().is_some_and(|(heir, _)| heir == user);
        Membership { role: if is_heir { Role::Owner } else { given.role }, ..given }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(self, vec![VERSION]).expect("plain data serialises")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        match bytes.split_first() {
            Some((&VERSION, rest)) => postcard::from_bytes(rest).map_err(|error| corrupt(TABLE, error)),
            Some(_) | None => Err(corrupt(TABLE, "a roster of an unknown version")),
        }
    }

    /// Of a row that it stands beside. Where nobody ever was in the conversation: an empty one.
    pub(crate) fn beside(bytes: Option<&[u8]>) -> Result<Self> {
        bytes.map(Self::decode).transpose().map(Option::unwrap_or_default)
    }
}

/// A roster as it was read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) roster: Roster,
    /// The condition of the next write. `None` where there is none yet.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Up to which version everything that follows from a change was written.
    settled: Option<OrderKey>,
}

impl Seen {
    pub(crate) fn is_settled(&self) -> bool {
        self.roster.version.is_none_or(|version| self.settled >= Some(version.order_key()))
    }
}

impl Inner {
    pub(crate) async fn roster(&self, conversation: ConversationId) -> Result<Seen> {
        type Columns = (Option<Vec<u8>>, Option<Vec<u8>>);
        let row = self.cluster.read_one::<Columns>(&self.statements.roster.roster, cells![conversation]).await?;
        let Some((bytes, settled)) = row else { return Ok(Seen::default()) };
        let settled = settled.map(|bytes| place(TABLE, &bytes)).transpose()?;
        Ok(Seen { roster: Roster::beside(bytes.as_deref())?, bytes, settled })
    }

    /// The memberships of some, as they were given. `None` where they are not of the roster that was seen.
    pub(crate) async fn memberships_of<'a>(
        &self,
        conversation: ConversationId,
        users: impl Iterator<Item = &'a UserId>,
        seen: &Seen,
    ) -> Result<Option<BTreeMap<UserId, Membership>>> {
        type Columns = (String, Option<Vec<u8>>, Option<Vec<u8>>);
        let users: Vec<_> = users.collect();
        let reads: Vec<_> = users
            .chunks(KEYS_AT_ONCE)
            .map(|piece| cells![conversation, list(piece.iter().copied())])
            .map(|values| self.cluster.read::<Columns>(&self.statements.roster.some, values))
            .collect();
        let mut found = BTreeMap::new();
        for (name, membership, roster) in at_once(reads).await?.into_iter().flatten() {
            let Some(membership) = membership else { continue };
            if roster != seen.bytes {
                return Ok(None);
            }
            found.insert(user(TABLE, &name)?, decode_membership(TABLE, &membership)?);
        }
        Ok(Some(found))
    }

    /// All memberships of a conversation, also those that have ended, as they were given.
    pub(crate) async fn memberships(&self, conversation: ConversationId) -> Result<BTreeMap<UserId, Membership>> {
        type Columns = (String, Option<Vec<u8>>);
        let mut found = BTreeMap::new();
        let mut after = String::new();
        loop {
            let values = cells![conversation, after.as_str(), ROWS_MAX];
            let rows = self.cluster.read::<Columns>(&self.statements.roster.all, values).await?;
            let is_last = rows.len() < ROWS_MAX.unsigned_abs() as usize;
            for (name, membership) in rows {
                if let Some(membership) = membership {
                    found.insert(user(TABLE, &name)?, decode_membership(TABLE, &membership)?);
                }
                after = name;
            }
            if is_last {
                return Ok(found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Timestamp;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn since(role: Role, micros: i64) -> Membership {
        Membership { since: Some(Timestamp::from_micros(micros)), ..Membership::joined(role) }
    }

    fn id(micros: i64) -> TimeUuid {
        TimeUuid::new(Timestamp::from_micros(micros), [0; 8])
    }

    #[test]
    fn the_oldest_admin_else_the_oldest_follows() {
        let mut roster = Roster::default();
        let heir = |roster: &Roster| roster.heir.as_ref().map(|(user, _)| user.as_str().to_owned());
        for (name, membership, expected) in [
            ("cat", since(Role::Member, 5), Some("cat")),
            ("ben", since(Role::Member, 5), Some("ben")),
            ("dan", since(Role::Member, 7), Some("ben")),
            ("eve", since(Role::Admin, 9), Some("eve")),
            ("ann", since(Role::Owner, 10), None),
            ("abe", since(Role::Admin, 1), None),
        ] {
            roster.add(ConversationKind::Group, &user(name), membership);
            assert_eq!(heir(&roster).as_deref(), expected, "{name}");
        }
        assert_eq!((roster.joined, roster.owners), (6, 1));
        assert_eq!(Roster::decode(&roster.encode()).unwrap(), roster);
        assert!(Roster::decode(&[9]).is_err());
    }

    #[test]
    fn a_change_is_known_again_for_a_while() {
        let mut roster = Roster { version: Some(id(0)), ..Roster::default() };
        for micros in 1..20 {
            let after = Roster { version: Some(id(micros)), ..Roster::default() };
            roster = after.followed_by(&roster);
        }
        assert!(roster.has_seen(id(19)) && roster.has_seen(id(11)));
        assert!(!roster.has_seen(id(10)) && !roster.has_seen(id(20)));
    }
}
