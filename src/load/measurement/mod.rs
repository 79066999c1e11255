//! Measurements: latencies and failures of operations, and the resources of the server's process.

mod operations;
mod process;

pub(crate) use self::operations::{OperationStats, Percentiles, StatsRecorder};
pub use self::process::Process;
pub(crate) use self::process::{Usage, UsageMeter};
