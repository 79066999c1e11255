//! Rows of the registry, and the times at which each is due for a renewal or its removal.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::store::cluster::{Registration, ServerId};

/// All rows of this server.
pub(super) struct RegistryRows {
    pub(super) server: ServerId,
    pub(super) by_registration: BTreeMap<Registration, RegistryRow>,
    /// Removals and renewals, by their time.
    pub(super) due: BTreeMap<(Instant, u64), Registration>,
    pub(super) number: u64,
    pub(super) lapsed: usize,
    /// Rows were lapsed, and the streams have yet to read the store again.
    pub(super) is_healing: bool,
}

pub(super) struct RegistryRow {
    pub(super) leases: usize,
    pub(super) state: RowState,
    /// Leases that wait for the row to be acknowledged, under any identity.
    pub(super) waiters: Vec<oneshot::Sender<Result<(), Arc<str>>>>,
    /// Number of the row's entry in `due`, and its time.
    pub(super) due: Option<(Instant, u64)>,
    /// Number of the last insertion that was started. The outcome of an earlier one no longer
    /// counts.
    pub(super) insertion: u64,
    /// Whether leases were handed out that the directory does not vouch for at the moment.
    pub(super) is_lapsed: bool,
    pub(super) is_announced: bool,
}

pub(super) enum RowState {
    Absent,
    Inserting,
    /// When the last acknowledged insertion began, and when the first one was acknowledged.
    Registered {
        began: Instant,
        acknowledged: Instant,
    },
}

impl RegistryRows {
    pub(super) fn new(server: ServerId) -> Self {
        Self {
            server,
            by_registration: BTreeMap::new(),
            due: BTreeMap::new(),
            number: 0,
            lapsed: 0,
            is_healing: false,
        }
    }

    pub(super) fn row(&mut self, registration: &Registration) -> &mut RegistryRow {
        let new = || RegistryRow {
            leases: 0,
            state: RowState::Absent,
            waiters: Vec::new(),
            due: None,
            insertion: 0,
            is_lapsed: false,
            is_announced: false,
        };
        self.by_registration
            .entry(registration.clone())
            .or_insert_with(new)
    }

    /// Sets when the row is looked at next. Each row has one entry at most.
    pub(super) fn schedule(&mut self, registration: &Registration, at: Instant) {
        self.number += 1;
        let entry = (at, self.number);
        let Some(row) = self.by_registration.get_mut(registration) else {
            return;
        };
        if let Some(before) = row.due.replace(entry) {
            self.due.remove(&before);
        }
        self.due.insert(entry, registration.clone());
    }
}
