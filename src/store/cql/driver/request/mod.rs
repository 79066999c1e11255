//! Requests to the cluster: their permits, their hedges, the state of the batch log, the bulkhead
//! around ranges without a quorum, and their metrics.

pub(crate) mod batch_log;
pub(crate) mod hedging;
pub(crate) mod metrics;
pub(crate) mod permits;
pub(crate) mod range_limiter;
