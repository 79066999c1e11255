//! Load generator behind `wideroom bench`: a client that uses only the public API of a running server.
//!
//! Each [`Workload`] creates its own users and conversations through the API, puts load on the server, and returns a [`LoadReport`].
//! Usernames start with `bench-RUN-`, so two runs never share data. Every wait has a deadline, and every failure is counted by its code.
//!
//! The clients and the measurements are public: `cargo bench` uses them too.
//!
//! The modules depend on each other in one direction: `workload → driver → report → run → measurement | client → failure`.

mod client;
mod driver;
mod failure;
mod measurement;
mod report;
mod run;
mod workload;

pub use self::client::{Document, HttpClient, LoadSocket, LoadTarget};
pub use self::failure::{Error, Failure};
pub use self::measurement::{OperationStats, Percentiles, Process, Usage, UsageMeter};
pub use self::report::LoadReport;
pub use self::run::{LoadProgress, LoadRun};
pub use self::workload::{
    FanoutLoad, IdleLoad, InboxLoad, LiveLoad, MarkReadLoad, PageLoad, SendLoad, StormLoad,
    Workload,
};
