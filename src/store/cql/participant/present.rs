//! Present participants of a small conversation: their names in one static cell beside the roster, so that no send and no change of
//! the membership reads the rows of former ones.
//!
//! The compare-and-set of the roster writes the cell, which names that roster by a digest. Any other write of the roster (by an
//! import, a repair, or a server of version 0.2) voids it by that. Without a valid cell, all rows are read.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use crate::model::{Conversation, Membership, UserId};

/// The format of the cell, in its first byte.
const VERSION: u8 = 1;
const DIGEST_BYTES: usize = 16;
/// A cell that is valid for no roster.
pub(crate) const VOID: Vec<u8> = Vec::new();

fn digest(roster: &[u8]) -> [u8; DIGEST_BYTES] {
    let whole = Sha256::digest(roster);
    *whole.first_chunk().expect("a digest has 32 bytes")
}

/// The cell for a roster. `None` for the many participants of a large conversation.
pub(crate) fn encode<'a>(
    roster: &[u8],
    names: impl Iterator<Item = &'a UserId>,
) -> Option<Vec<u8>> {
    let names: Vec<_> = names.take(Conversation::FAN_OUT_MAX + 1).collect();
    if names.len() > Conversation::FAN_OUT_MAX {
        return None;
    }
    let cell = postcard::to_extend(&(digest(roster), names), vec![VERSION]);
    Some(cell.expect("plain data serialises"))
}

/// The names of a cell. `None` for a cell of another roster, or one that this version cannot read.
pub(super) fn decode(cell: Option<&[u8]>, roster: Option<&[u8]>) -> Option<Vec<UserId>> {
    let (Some((&VERSION, rest)), Some(roster)) = (cell?.split_first(), roster) else {
        return None;
    };
    let (of, names): ([u8; DIGEST_BYTES], Vec<UserId>) = postcard::from_bytes(rest).ok()?;
    (of == digest(roster)).then_some(names)
}

/// The participants among memberships.
pub(crate) fn joined(all: &BTreeMap<UserId, Membership>) -> Vec<UserId> {
    all.iter()
        .filter(|(_, membership)| membership.is_joined())
        .map(|(user, _)| user.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_valid_for_its_roster_alone() {
        let names: Vec<_> = ["ann", "ben"]
            .map(|name| UserId::parse(name).unwrap())
            .into();
        let cell = encode(b"roster", names.iter()).unwrap();
        assert_eq!(decode(Some(&cell), Some(b"roster")), Some(names));
        assert_eq!(decode(Some(&cell), Some(b"another")), None);
        assert_eq!(decode(Some(&cell), None), None);
        assert_eq!(decode(Some(&VOID), Some(b"roster")), None);
        assert_eq!(decode(None, Some(b"roster")), None);
        let later = [&[VERSION + 1], &cell[1..]].concat();
        assert_eq!(decode(Some(&later), Some(b"roster")), None);
    }

    #[test]
    fn a_large_conversation_has_no_cell() {
        let name = |number: usize| UserId::parse(&format!("user{number}")).unwrap();
        let names: Vec<_> = (0..=Conversation::FAN_OUT_MAX).map(name).collect();
        assert_eq!(encode(b"roster", names.iter()), None);
        assert!(encode(b"roster", names[1..].iter()).is_some());
    }
}
