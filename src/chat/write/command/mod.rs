//! Commands: writes to a conversation as plain data, checked as far as possible without the store.

pub(crate) mod draft;
pub(crate) mod erasure;
pub(crate) mod group;
pub(crate) mod history;
pub(crate) mod pin;
pub(crate) mod reaction;
pub(crate) mod revision;

use crate::chat::access::authority::Authority;

/// Check of a user who is about to write. The queue repeats it if memberships have changed since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriterCheck {
    /// Leave epoch before the check.
    pub(crate) leave_epoch: u64,
    pub(crate) authority: Authority,
    /// False for a deletion, and for a service under its own name.
    pub(crate) may_be_silenced: bool,
}
