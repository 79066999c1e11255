//! Nodes of the cluster: which of them answer, which one a request goes to, and probes of silent
//! ones.

pub(crate) mod choice;
pub(crate) mod clocks;
pub(crate) mod table;
pub(crate) mod watch;
