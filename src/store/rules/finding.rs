//! Findings of a verification. Each text is the same for all findings of its kind, on both engines.

use crate::store::DAMAGED_MESSAGE;

pub(in crate::store) const HEAD: &str = "a conversation whose head does not agree with its history";
pub(in crate::store) const COUNT: &str = "a message count that does not agree with the history";
pub(in crate::store) const ROSTER: &str = "a roster that does not agree with its participants";
pub(in crate::store) const LARGE: &str =
    "a conversation with more than 32 participants that is not marked large";
pub(in crate::store) const ENTRY: &str = "an inbox that lacks a conversation";
pub(in crate::store) const STRAY: &str = "an inbox entry of a user who is no participant";
pub(in crate::store) const AGENT: &str = "an inbox entry of an agent, which has no inbox";
pub(in crate::store) const PAIR: &str = "a direct conversation that its participants do not find";
/// Nothing repairs it: an operator decides which of the two stays.
pub(in crate::store) const TWICE: &str = "two direct conversations of the same participants";
pub(in crate::store) const APP_KEY: &str = "a conversation that its app key does not find";
/// Nothing repairs it: an operator decides which of the two has the key.
pub(in crate::store) const APP_KEY_OF_ANOTHER: &str =
    "a conversation whose app key is claimed for another one";
pub(in crate::store) const REACTION_MARK: &str =
    "a message that does not say that it has reactions";

pub(in crate::store) const PIN: &str = "a pinned message that its conversation does not list";
pub(in crate::store) const PIN_STRAY: &str = "a listed pin of a message that is not pinned";

pub(in crate::store) const MENTION: &str = "a message whose mentions are not counted";
pub(in crate::store) const MENTION_STRAY: &str = "a counted mention that no message has";
pub(in crate::store) const BAN: &str = "a ban of a user who is not banned";
/// Nothing repairs it: who banned the user is not known. An ADMIN lifts the ban.
pub(in crate::store) const BAN_MISSING: &str = "a banned user whom no list of bans names";

pub(in crate::store) const RESOLUTION_STRAY: &str = "a resolution of a report that does not exist";

pub(in crate::store) const RESTRICTED: &str = "a restricted user whom no export names";

pub(in crate::store) const BLOCKER: &str = "a user with blocks whom no export names";

/// Findings of the embedded store alone, but for `UNREADABLE`.
pub(in crate::store) const PAIR_NOWHERE: &str = "a pair that leads to no conversation of its users";
pub(in crate::store) const ORPHAN: &str = "a reaction to a message that does not exist";
pub(in crate::store) const UNREADABLE: &str = "a row that cannot be read";

/// Findings of the store on a cluster alone.
pub(in crate::store) const AHEAD: &str = "a conversation whose head is ahead of its history";
pub(in crate::store) const MENTION_BEHIND: &str =
    "an inbox entry that does not know of its newest mention";
pub(in crate::store) const BEHIND: &str = "an inbox entry that is behind its conversation";
pub(in crate::store) const HINT: &str = "an inbox entry that no page of the inbox finds";
pub(in crate::store) const HISTORY: &str =
    "a conversation whose two copies of its history's settings differ";
pub(in crate::store) const BUCKET: &str = "a bucket of messages that the index does not know";

/// Whether a repair can correct a finding of this kind.
pub(in crate::store) fn is_repairable(what: &str) -> bool {
    ![
        UNREADABLE,
        TWICE,
        APP_KEY_OF_ANOTHER,
        DAMAGED_MESSAGE,
        BAN_MISSING,
    ]
    .contains(&what)
}
