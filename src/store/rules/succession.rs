//! Succession: the effective OWNER of a group in which no participant has that role.

use crate::model::{ConversationKind, Membership, Role, UserId};

/// The present participants of a conversation: their number, the stored OWNERs among them, and the
/// successor.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(in crate::store) struct Succession {
    pub(in crate::store) joined: u32,
    pub(in crate::store) owners: u32,
    /// The participant who counts as OWNER. `None` if a stored OWNER remains.
    pub(in crate::store) successor: Option<(UserId, Membership)>,
}

impl Succession {
    pub(in crate::store) fn of<'a>(
        kind: ConversationKind,
        memberships: impl IntoIterator<Item = (&'a UserId, &'a Membership)>,
    ) -> Self {
        let mut succession = Self::default();
        memberships
            .into_iter()
            .for_each(|(user, membership)| succession.add(kind, user, *membership));
        succession
    }

    /// Adds a participant; a former one has no part in the succession.
    pub(in crate::store) fn add(
        &mut self,
        kind: ConversationKind,
        user: &UserId,
        membership: Membership,
    ) {
        if !membership.is_joined() {
            return;
        }
        self.joined += 1;
        self.owners += u32::from(membership.role == Role::Owner);
        let precedes = |(successor, of_successor): &(UserId, Membership)| {
            membership.succession(user) < of_successor.succession(successor)
        };
        if self.owners > 0 || kind != ConversationKind::Group {
            self.successor = None;
        } else if self.successor.as_ref().is_none_or(precedes) {
            self.successor = Some((user.clone(), membership));
        }
    }

    pub(in crate::store) fn heir(self) -> Option<UserId> {
        self.successor.map(|(user, _)| user)
    }
}

/// A stored membership with its effective role: that of OWNER for the present heir.
pub(in crate::store) fn effective(
    heir: Option<&UserId>,
    user: &UserId,
    stored: Membership,
) -> Membership {
    let is_heir = stored.is_joined() && heir == Some(user);
    Membership {
        role: if is_heir { Role::Owner } else { stored.role },
        ..stored
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MembershipState, Timestamp};

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn since(role: Role, micros: i64) -> Membership {
        Membership {
            since: Some(Timestamp::from_micros(micros)),
            ..Membership::joined(role)
        }
    }

    #[test]
    fn the_oldest_admin_else_the_oldest_participant_succeeds() {
        let mut succession = Succession::default();
        for (name, membership, expected) in [
            ("cat", since(Role::Member, 5), Some("cat")),
            ("ben", since(Role::Member, 5), Some("ben")),
            ("dan", since(Role::Member, 7), Some("ben")),
            ("eve", since(Role::Admin, 9), Some("eve")),
            ("ann", since(Role::Owner, 10), None),
            ("abe", since(Role::Admin, 1), None),
        ] {
            succession.add(ConversationKind::Group, &user(name), membership);
            let heir = succession.clone().heir();
            assert_eq!(heir, expected.map(user), "{name}");
        }
        assert_eq!((succession.joined, succession.owners), (6, 1));
    }

    #[test]
    fn former_participants_and_direct_conversations_have_no_heir() {
        let left = Membership {
            state: MembershipState::Left,
            ..since(Role::Admin, 1)
        };
        let (ann, ben) = (user("ann"), user("ben"));
        let all = [(&ann, &left), (&ben, &since(Role::Member, 2))];
        let of = |kind| Succession::of(kind, all).heir();
        assert_eq!(of(ConversationKind::Group), Some(ben.clone()));
        assert_eq!(of(ConversationKind::Direct), None);
        assert_eq!(effective(Some(&ann), &ann, left).role, Role::Admin);
        let stored = Membership::joined(Role::Member);
        assert_eq!(effective(Some(&ben), &ben, stored).role, Role::Owner);
        assert_eq!(effective(Some(&ben), &ann, stored).role, Role::Member);
    }
}
