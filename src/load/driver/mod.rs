//! Building blocks of the workloads: request workers, conversations to load, and crowds of subscribers.

pub(crate) mod fixture;
pub(crate) mod requests;
pub(crate) mod subscribers;
