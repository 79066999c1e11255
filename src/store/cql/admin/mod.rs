//! Administration: import, export and verification of the whole store, and the notes of the operator's tools.

pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod import_message;
mod import_plan;
pub(crate) mod import_write;
pub(crate) mod notes;
mod token_scan;
pub(crate) mod verify;
mod verify_conversation;
pub(crate) mod verify_history;
pub(crate) mod verify_mention;
pub(crate) mod verify_participant;

use std::sync::Arc;

use self::import_message::FillCache;
use super::driver::executor::Executor;
use super::inbox::Inboxes;
use super::message::Messages;
use super::participant::Participants;
use super::participant::ban::BanTable;
use super::participant::block::BlockTable;
use super::participant::report::ReportTable;
use super::participant::restriction::RestrictionTable;
use super::send::Sends;
use crate::clock::Clock;

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
