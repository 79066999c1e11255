//! Administration: import, export and verification of the whole store, and the notes of the operator's tools.

mod export;
mod import;
mod import_message;
mod import_plan;
mod import_write;
mod notes;
mod token_scan;
mod verify;
mod verify_conversation;
mod verify_history;
mod verify_mention;
mod verify_participant;

use std::sync::Arc;

use self::import_message::FillCache;
use super::driver::executor::Executor;
use super::driver::statement::Statement;
use super::inbox::Inboxes;
use super::message::Messages;
use super::participant::Participants;
use super::participant::ban::BanTable;
use super::participant::block::BlockTable;
use super::participant::report::ReportTable;
use super::participant::restriction::RestrictionTable;
use super::send::Sends;
use crate::clock::Clock;

pub(crate) const STATEMENTS: &[&[&Statement]] = &[
    export::STATEMENTS,
    import::STATEMENTS,
    import_message::STATEMENTS,
    import_write::STATEMENTS,
    notes::STATEMENTS,
    verify::STATEMENTS,
    verify_participant::STATEMENTS,
    verify_history::STATEMENTS,
    verify_mention::STATEMENTS,
];

/// Operations on the whole store, with a cache of how full the buckets are that imports write to.
pub(crate) struct Admin {
    executor: Arc<Executor>,
    clock: Arc<dyn Clock>,
    messages: Arc<Messages>,
    participants: Arc<Participants>,
    inboxes: Arc<Inboxes>,
    sends: Arc<Sends>,
    restrictions: RestrictionTable,
    blocks: BlockTable,
    bans: BanTable,
    reports: ReportTable,
    fills: FillCache,
}

impl Admin {
    pub(crate) fn new(
        executor: Arc<Executor>,
        clock: Arc<dyn Clock>,
        messages: Arc<Messages>,
        participants: Arc<Participants>,
        inboxes: Arc<Inboxes>,
        sends: Arc<Sends>,
    ) -> Self {
        let restrictions = RestrictionTable::new(Arc::clone(&executor), Arc::clone(&clock));
        let blocks = BlockTable::new(Arc::clone(&executor), Arc::clone(&clock));
        let bans = BanTable::new(Arc::clone(&executor), Arc::clone(&clock));
        let reports = ReportTable::new(Arc::clone(&executor), Arc::clone(&clock));
        Self {
            executor,
            clock,
            messages,
            participants,
            inboxes,
            sends,
            restrictions,
            blocks,
            bans,
            reports,
            fills: FillCache::new(),
        }
    }
}
