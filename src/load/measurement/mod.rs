//! Measurements: latencies and failures of operations, and the resources of the server's process.

mod operations;
mod process;

pub(crate) use self::operations::StatsRecorder;
pub use self::operations::{OperationStats, Percentiles};
pub use self::process::{Process, Usage, UsageMeter};
