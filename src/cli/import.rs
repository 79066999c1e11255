//! `wideroom import`: brings a file or a pipe into the store, and says how it goes.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::stop::{self, Stop};
use super::{Error, ImportFlags, open, print};
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::telemetry;
use crate::transfer::import::{Counts, Import, Outcome, Progress, Told};

/// Between two lines about the progress, where there is no terminal.
const TELL_EVERY: Duration = Duration::from_secs(5);

enum Input {
    File(File),
    /// Read once: standard input, or a named pipe.
    Pipe(Box<dyn io::Read + Send>),
}

pub(super) fn run(flags: &ImportFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    // What the store warns of is told, and nothing else.
    telemetry::init("warn", config.log_format)?;
    // Before the store is opened, so that a wrong name changes nothing.
    let input = input(&flags.file)?;
    open::folder(&config)?;
    stop::run(|stop| import(config, input, stop))
}

fn input(path: &Path) -> Result<Input, Error> {
    if path.as_os_str() == "-" {
        return Ok(Input::Pipe(Box::new(io::stdin())));
    }
    let unreadable = |source| Error::Input { path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let kind = file.metadata().map_err(unreadable)?.file_type();
    if kind.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    Ok(if kind.is_file() { Input::File(file) } else { Input::Pipe(Box::new(file)) })
}

async fn import(config: Config, input: Input, stop: Stop) -> Result<(), Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = open::store(&config, clock.clone()).await?;
    let import = Import { store: store.clone(), clock, dir: config.data, stop };
    let is_file = matches!(input, Input::File(_));
    let outcome = match input {
        Input::File(file) => {
            let mut reporter = Reporter::new(file.metadata().ok().map(|metadata| metadata.len()));
            let outcome = import.file(file, &mut |told| reporter.tell(&told)).await;
            reporter.end();
            outcome
        }
        Input::Pipe(pipe) => {
            let mut reporter = Reporter::new(None);
            let outcome = import.pipe(pipe, &mut |told| reporter.tell(&told)).await;
            reporter.end();
            outcome
        }
    };
    let closed = store.close().await;
    let Outcome { counts, is_interrupted } = outcome?;
    closed?;
    print(&summary(&counts))?;
    match counts.broken_lines {
        _ if is_interrupted => Err(Error::Interrupted { goes_on: is_file }),
        0 => Ok(()),
        count => Err(Error::BrokenLines(count)),
    }
}

fn summary(counts: &Counts) -> String {
    let Counts { users, conversations, participants, messages, broken_lines } = counts;
    let kinds = [("users", users), ("conversations", conversations), ("participants", participants), ("messages", messages)];
    let kinds = kinds.map(|(name, count)| format!("{name} {} / {}", count.added, count.unchanged));
    format!("added / unchanged: {}; broken lines: {broken_lines}", kinds.join(", "))
}

/// Tells on stderr: a bar on a terminal, else a line now and then.
struct Reporter {
    bar: Option<ProgressBar>,
    began: Instant,
    told: Instant,
    /// Rows of an earlier run, which are not to this one's credit.
    rows_before: u64,
}

impl Reporter {
    fn new(bytes: Option<u64>) -> Self {
        let bar = io::stderr().is_terminal().then(|| bar(bytes));
        Self { bar, began: Instant::now(), told: Instant::now(), rows_before: 0 }
    }

    fn tell(&mut self, told: &Told<'_>) {
        match told {
            Told::Resumed(progress) => {
                self.rows_before = progress.counts.rows();
                self.line(&format!("wideroom: an earlier import of this file was interrupted; going on after line {}", progress.lines));
            }
            Told::Broken(fault) => self.line(&format!("line {}: {}", fault.line, fault.reason)),
            Told::Progress(progress) => self.progress(progress),
        }
    }

    fn progress(&mut self, progress: &Progress) {
        let rows = progress.counts.rows().saturating_sub(self.rows_before);
        let rate = rows as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        if let Some(bar) = &self.bar {
            bar.set_position(progress.offset);
            bar.set_message(format!("{rate:.0} rows/s"));
        } else if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            self.line(&format!("wideroom: {} lines read, {rate:.0} rows/s", progress.lines));
        }
    }

    fn line(&self, text: &str) {
        let write = || {
            let _ = writeln!(io::stderr(), "{text}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => (ProgressBar::new(bytes), "{bar:40} {bytes}/{total_bytes}, {msg}, {eta} to go"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}, {msg}"),
    };
    bar.with_style(ProgressStyle::with_template(template).expect("the templates are well-formed"))
}
