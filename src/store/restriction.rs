//! Changes of restrictions: suspensions and revoked tokens.

use crate::model::{Restriction, Suspension, Timestamp, UserId};

/// A user, or everyone for a revocation of all tokens.
pub type Restricted = Option<UserId>;

/// A change of one restriction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestrictionChange {
    Suspend(Suspension),
    Restore,
    /// Refuses the tokens issued before this moment. An earlier moment than the present one changes nothing.
    RevokeTokens(Timestamp),
}

impl RestrictionChange {
    /// The restriction after the change.
    pub fn apply(&self, before: Restriction) -> Restriction {
        match self {
            Self::Suspend(suspension) => Restriction {
                suspension: Some(suspension.clone()),
                ..before
            },
            Self::Restore => Restriction {
                suspension: None,
                ..before
            },
            Self::RevokeTokens(moment) => Restriction {
                tokens_from: before.tokens_from.max(Some(*moment)),
                ..before
            },
        }
    }
}

/// An entry of the log of changed restrictions and blocks, by which the servers of a store hear of
/// them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoggedRestriction {
    pub at: Timestamp,
    pub restricted: Restricted,
}
