//! Programs of other languages, run to their good end: what one said is in the failure of its test, and nowhere else.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::program::Running;

/// Deadline against a hang, also where packages are fetched.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Last lines that a failure shows.
const LINES: usize = 60;

pub(crate) struct Tool {
    pub(crate) running: Running,
    said: File,
}

impl Tool {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let said = tempfile::tempfile().unwrap();
        command
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap());
        Self::logging(command, said)
    }

    /// One with which the test talks over its input and its output.
    pub(crate) fn spawn_talking(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self::logging(command, tempfile::tempfile().unwrap())
    }

    fn logging(command: &mut Command, said: File) -> Self {
        command.stderr(said.try_clone().unwrap());
        let running = Running::spawn(command);
        Self { running, said }
    }

    #[track_caller]
    pub(crate) fn ends_well(self, within: Duration) {
        self.end(within).unwrap_or_else(|said| panic!("{said}"));
    }

    /// How it failed and what it said, where it did not end, and well, in this time.
    pub(crate) fn end(mut self, within: Duration) -> Result<(), String> {
        let deadline = Instant::now() + within;
        let how = loop {
            match self.running.child.try_wait().unwrap() {
                Some(status) if status.success() => return Ok(()),
                Some(status) => break status.to_string(),
                None if Instant::now() > deadline => break format!("it did not end in {within:?}"),
                None => std::thread::sleep(LOOK_EVERY),
            }
        };
        let mut said = Vec::new();
        self.said.rewind().unwrap();
        self.said.read_to_end(&mut said).unwrap();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<_> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
        Err(format!("{how}\n{last}"))
    }
}

/// Runs one to its good end.
#[track_caller]
pub(crate) fn run(command: &mut Command) {
    Tool::spawn(command).ends_well(ENDS_WITHIN);
}
