//! Load on a running server, and what it took: a client like any other, that knows nothing but the API.
//!
//! Each [`Shape`] makes people and conversations of its own through the API, puts its load on the server, and answers with a [`Report`].
//! The people of a run are `bench-RUN-0001` and so on, so that no two runs meet. Every wait has a deadline, and no failure is hidden: each
//! is counted by its code.

mod crowd;
mod document;
mod drive;
mod failure;
mod fanout;
mod files;
mod http;
mod idle;
mod inboxes;
mod marks;
mod pages;
mod process;
mod report;
mod sends;
mod socket;
mod stage;
mod storm;
mod tally;
mod target;
mod text;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serializer;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::failure::{Error, Failure};
pub use self::fanout::Fanout;
pub use self::idle::Idle;
pub use self::inboxes::Inboxes;
pub use self::marks::Marks;
pub use self::pages::Pages;
pub use self::process::Process;
use self::process::Watch;
pub use self::report::Report;
pub use self::sends::Sends;
pub use self::storm::Storm;
pub use self::target::Target;
use crate::config;

/// A kind of load, with its numbers. What is serialised are these.
pub trait Shape: serde::Serialize {
    fn run(&self, run: &mut Run<'_>) -> impl Future<Output = Result<Report, Error>>;
}

/// How far it is: so many of so many, and what of.
pub struct Told<'a> {
    pub what: &'a str,
    pub place: u64,
    pub of: u64,
    /// In words.
    pub line: &'a str,
}

/// One run of a shape, and what it has to do with the world.
pub struct Run<'a> {
    target: Arc<Target>,
    /// The server's, where it is on this machine.
    process: Option<Process>,
    /// Cancelled: it ends where it is, and answers with what there is.
    stop: CancellationToken,
    tell: &'a mut dyn FnMut(&Told<'_>),
    id: String,
}

impl<'a> Run<'a> {
    pub fn new(target: Target, process: Option<Process>, stop: CancellationToken, tell: &'a mut dyn FnMut(&Told<'_>)) -> Self {
        let mut id = Uuid::new_v4().simple().to_string();
        id.truncate(8);
        Self { target: Arc::new(target), process, stop, tell, id }
    }

    /// By what its people, groups and keys are told from those of other runs.
    fn id(&self) -> &str {
        &self.id
    }

    /// The name of one of its people.
    fn person(&self, number: usize) -> String {
        format!("bench-{}-{:04}", self.id, number + 1)
    }

    fn tell(&mut self, what: &str, place: u64, of: u64, line: &str) {
        (self.tell)(&Told { what, place, of, line });
    }

    /// From now on it is seen what the server spends.
    fn watch(&self) -> Watch {
        Watch::begin(self.process)
    }

    /// What must be done before there is anything to report.
    async fn unless_stopped<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Error> {
        tokio::select! {
            done = work => done.map_err(|failure| Error::refused(&self.target, failure)),
            () = self.stop.cancelled() => Err(Error::Interrupted),
        }
    }
}

/// How long a load may go on.
fn parse_length(text: &str) -> Result<Duration, String> {
    let length = config::parse_duration(text)?;
    let is_some = (Duration::from_millis(100)..=Duration::from_secs(24 * 3_600)).contains(&length);
    if is_some { Ok(length) } else { Err("must be from 100ms to 24h".to_owned()) }
}

fn in_seconds<S: Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(length.as_secs_f64())
}
