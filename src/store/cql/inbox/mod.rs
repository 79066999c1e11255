//! Inboxes: rows of their entries, pages by the activity index, flags, and what changed since a position.

pub(crate) mod activity_index;
mod changes;
pub(crate) mod flags;
pub(crate) mod large;
pub(crate) mod mention;
pub(crate) mod notify_all;
mod page;
mod preview;
pub(crate) mod row;
pub(crate) mod writes;

use std::sync::Arc;

use self::row::LongInboxes;
use super::driver::executor::Executor;
use super::driver::statement::Statement;
use super::message::Messages;
use crate::clock::Clock;
use crate::model::Timestamp;
use crate::store::unread_list::LongUnreadLists;

pub(crate) const STATEMENTS: &[&[&Statement]] = &[
    activity_index::STATEMENTS,
    changes::STATEMENTS,
    flags::STATEMENTS,
    large::STATEMENTS,
    mention::STATEMENTS,
    notify_all::STATEMENTS,
    row::STATEMENTS,
    writes::STATEMENTS,
];

/// Inboxes of users, with a cache of those that are too long to be read whole.
pub(crate) struct Inboxes {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
    messages: Arc<Messages>,
    long_inboxes: LongInboxes,
    /// The version of a list is the moment before the first read for it.
    mention_lists: LongUnreadLists<Timestamp>,
}

impl Inboxes {
    pub(crate) fn new(
        executor: Arc<Executor>,
        clock: Arc<dyn Clock>,
        messages: Arc<Messages>,
    ) -> Self {
        Self {
            executor,
            clock,
            messages,
            long_inboxes: LongInboxes::new(),
            mention_lists: LongUnreadLists::new(),
        }
    }
}
