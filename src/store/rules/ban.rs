//! Bans as bytes: a version, then the rest. The banned user is in the key.

use crate::model::{Ban, Timestamp, UserId};
use crate::store::{Error, Result};

const TABLE: &str = "bans_by_conversation";
const VERSION: u8 = 1;

type BanFields = (UserId, Timestamp, Option<Timestamp>, Option<String>);

pub(in crate::store) fn encode(ban: &Ban) -> Vec<u8> {
    let Ban {
        user: _,
        by,
        at,
        until,
        reason,
    } = ban;
    postcard::to_extend(&(by, at, until, reason), vec![VERSION]).expect("plain data serialises")
}

/// `None` for a ban that a later version wrote.
pub(in crate::store) fn decode(user: UserId, bytes: &[u8]) -> Result<Option<Ban>> {
    let corrupt = |cause| Error::Corrupt {
        table: TABLE,
        cause,
    };
    let rest = match bytes.split_first() {
        Some((&VERSION, rest)) => rest,
        Some((version, _)) if *version > VERSION => return Ok(None),
        Some(_) | None => return Err(corrupt("a ban begins with its version".into())),
    };
    let (by, at, until, reason): BanFields =
        postcard::from_bytes(rest).map_err(|error| corrupt(Box::new(error)))?;
    Ok(Some(Ban {
        user,
        by,
        at,
        until,
        reason,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_survives_its_bytes_and_one_of_a_later_version_is_left_out() {
        let user = || UserId::parse("ben").unwrap();
        let ban = Ban {
            user: user(),
            by: UserId::parse("anna").unwrap(),
            at: Timestamp::from_micros(7),
            until: Some(Timestamp::from_micros(9)),
            reason: Some("spam".to_owned()),
        };
        let bytes = encode(&ban);
        assert_eq!(decode(user(), &bytes).unwrap(), Some(ban));
        assert_eq!(decode(user(), &[VERSION + 1, 7]).unwrap(), None);
        assert!(decode(user(), &[]).is_err() && decode(user(), &[0]).is_err());
    }
}
