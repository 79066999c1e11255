//! Requests to the cluster: their permits, their hedges, the state of the batch log, and their
//! metrics.

pub(crate) mod batch_log;
pub(crate) mod hedging;
pub(crate) mod metrics;
pub(crate) mod permits;
