//! Pairs: the users by whom a direct conversation is found.
//!
//! A live creation names all its participants: one of them makes a conversation with oneself. An
//! import brings them row by row and in any order, so a lone participant may wait for the other:
//! there the id of the conversation says whether it is one with oneself
//! ([`ConversationId::is_with_oneself`]), on every engine and however the rows are cut into calls.

use crate::model::{ConversationId, ConversationKind, UserId};
use crate::store::NewConversation;

/// Two users, or twice the same.
type Pair<'a> = (&'a UserId, &'a UserId);

/// Refusal of a participant whose pair another conversation has.
pub(in crate::store) const TAKEN: &str = "these users have another direct conversation already";
const WITH_ONESELF: &str = "the id is of a conversation with oneself";
const FULL: &str = "a direct conversation has at most two participants";

/// The pair that a live creation claims.
pub(in crate::store) fn of_new(new: &NewConversation) -> Option<Pair<'_>> {
    match (new.conversation.kind, new.participants.as_slice()) {
        (ConversationKind::Direct, [(one, _)]) => Some((one, one)),
        (ConversationKind::Direct, [(one, _), (other, _)]) => Some((one, other)),
        (ConversationKind::Direct | ConversationKind::Group, _) => None,
    }
}

/// The pair of a direct conversation with these present and former participants. `None` while it
/// waits for the second one.
pub fn of_stored<'a>(id: ConversationId, participants: &[&'a UserId]) -> Option<Pair<'a>> {
    match participants {
        [one] if id.is_with_oneself(one) => Some((one, one)),
        [one, other] => Some((one, other)),
        _ => None,
    }
}

/// The pair that one more imported participant completes; the error is the sentence of the refusal.
pub(in crate::store) fn of_imported<'a>(
    id: ConversationId,
    present: &[&'a UserId],
    added: &'a UserId,
) -> Result<Option<Pair<'a>>, &'static str> {
    match present {
        [] if id.is_with_oneself(added) => Ok(Some((added, added))),
        [] => Ok(None),
        [one] if id.is_with_oneself(one) || id.is_with_oneself(added) => Err(WITH_ONESELF),
        [one] => Ok(Some((one, added))),
        [_, _, ..] => Err(FULL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DirectIds;

    #[test]
    fn an_imported_participant_alone_has_a_pair_if_the_id_says_so() {
        let [ann, ben, cat] = ["ann", "ben", "cat"].map(|name| UserId::parse(name).unwrap());
        let own = DirectIds::new([7; 32]).id(&ann, &ann);
        let given = ConversationId::random();
        for (id, present, added, expected) in [
            (own, &[][..], &ann, Ok(Some((&ann, &ann)))),
            (own, &[], &ben, Ok(None)),
            (own, &[&ann], &ben, Err(WITH_ONESELF)),
            (own, &[&ben], &ann, Err(WITH_ONESELF)),
            (given, &[], &ann, Ok(None)),
            (given, &[&ann], &ben, Ok(Some((&ann, &ben)))),
            (given, &[&ann, &ben], &cat, Err(FULL)),
        ] {
            let found = of_imported(id, present, added);
            assert_eq!(found, expected, "{present:?} and {added}");
        }
        assert_eq!(of_stored(own, &[&ann]), Some((&ann, &ann)));
        assert_eq!(of_stored(given, &[&ann]), None);
        assert_eq!(of_stored(given, &[&ann, &ben]), Some((&ann, &ben)));
    }
}
