//! Restrictions in the embedded store: one small record for each restricted user, and one for everyone.

use super::Embedded;
use super::read_context::ReadContext;
use crate::model::{Direction, Profile, Restriction, UserId};
use crate::store::embedded::engine::committer::{Condition, Op, Write};
use crate::store::embedded::engine::db::InTable;
use crate::store::embedded::engine::key;
use crate::store::embedded::engine::record;
use crate::store::{Restricted, RestrictionChange, Result};

impl Embedded {
    pub(super) async fn changed_restriction(
        &self,
        restricted: &Restricted,
        change: &RestrictionChange,
    ) -> Result<Restriction> {
        if let Some(user) = restricted {
            // A restricted user is in exports, with a profile or without.
            let profile = record::encode_profile(&Profile::default());
            let user_row = Write {
                ops: vec![Op::Put(key::user(user), profile)],
                conditions: vec![Condition::Absent(key::user(user))],
                ..Write::default()
            };
            self.write(user_row).await?;
        }
        let key = key::restriction(restricted);
        let apply = |before| change.apply(before);
        if let Some(after) = self.change(key.clone(), apply, Write::default).await? {
            return Ok(after);
        }
        self.read(move |context| Ok(context.view().record(&key)?.unwrap_or_default()))
            .await
    }
}

pub(super) fn of_users(context: &ReadContext, users: &[UserId]) -> Result<Vec<Restriction>> {
    let view = context.view();
    let each = |user: &UserId| {
        let found = view.record(&key::restriction(&Some(user.clone())))?;
        Ok(found.unwrap_or_default())
    };
    users.iter().map(each).collect()
}

/// All restrictions that are not empty.
pub(super) fn all(context: &ReadContext) -> Result<Vec<(Restricted, Restriction)>> {
    let view = context.view();
    let mut found = Vec::new();
    for row in view.scan(key::restrictions(), Direction::Forward) {
        let (key, value) = row?;
        let restricted = key::restricted_of(&key).in_table("restrictions")?;
        let restriction: Restriction = record::decode(&value).in_table("restrictions")?;
        if !restriction.is_empty() {
            found.push((restricted, restriction));
        }
    }
    Ok(found)
}
