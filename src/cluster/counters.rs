//! Metrics of the cluster: notices, follow-ups, errors by lane, and how long ago the last full poll
//! began.

use crate::metrics::{self, IntCounter, IntCounterVec, Metrics};

pub(super) struct Counters {
    pub(super) notices_sent: IntCounter,
    pub(super) notices_received: IntCounter,
    pub(super) hedges: IntCounter,
    pub(super) mailbox_errors: IntCounter,
    pub(super) route_errors: IntCounter,
    /// Failed reads of this server's own mailbox, by lane.
    pub(super) lane_errors: IntCounterVec,
    pub(super) follow_errors: IntCounter,
    pub(super) rereads: IntCounter,
    pub(super) identities: IntCounter,
    pub(super) restarts: IntCounter,
}

impl Counters {
    pub(super) fn new() -> Self {
        let counter = metrics::counter;
        Self {
            notices_sent: counter(
                "wideroom_cluster_notices_sent_total",
                "Notices that another server's mailbox has acknowledged.",
            ),
            notices_received: counter(
                "wideroom_cluster_notices_received_total",
                "Notices of other servers, each counted once.",
            ),
            hedges: counter(
                "wideroom_cluster_mailbox_hedges_total",
                "Second writes of a notice because a lane was silent.",
            ),
            mailbox_errors: counter(
                "wideroom_cluster_mailbox_errors_total",
                "Attempts to deliver a notice that no lane acknowledged.",
            ),
            route_errors: counter(
                "wideroom_cluster_route_errors_total",
                "Failed reads of the servers to notify.",
            ),
            lane_errors: metrics::counters(
                "wideroom_cluster_lane_errors_total",
                "Failed reads of this server's mailbox, by lane.",
                &["lane"],
            ),
            follow_errors: counter(
                "wideroom_cluster_follow_errors_total",
                "Failed attempts to load what a notice names.",
            ),
            rereads: counter(
                "wideroom_cluster_rereads_total",
                "Times that all streams of this server read the store from their cursors.",
            ),
            identities: counter(
                "wideroom_cluster_identities_total",
                "Identities that this process has registered under.",
            ),
            restarts: counter(
                "wideroom_cluster_poller_restarts_total",
                "Restarts of the poller after a panic.",
            ),
        }
    }

    pub(super) fn register(&self, metrics: &Metrics) {
        metrics.add(self.notices_sent.clone());
        metrics.add(self.notices_received.clone());
        metrics.add(self.hedges.clone());
        metrics.add(self.mailbox_errors.clone());
        metrics.add(self.route_errors.clone());
        metrics.add(self.lane_errors.clone());
        metrics.add(self.follow_errors.clone());
        metrics.add(self.rereads.clone());
        metrics.add(self.identities.clone());
        metrics.add(self.restarts.clone());
    }
}
