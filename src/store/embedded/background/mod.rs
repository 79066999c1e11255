//! Background work in the embedded store: erasures of users, and the search index. Live messages, whose rows expire.

mod erasure;
pub(super) mod live;
mod search;
