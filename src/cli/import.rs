//! `wideroom import`: brings a file or a pipe into the store, and says how it goes.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::progress::Reporter;
use super::stop::{self, Stop};
use super::{Error, GOES_ON, ImportFlags, open, print};
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::telemetry;
use crate::transfer::import::{Counts, Import, Outcome, Told};

enum Input {
    File(File),
    /// Read once: standard input, or a named pipe.
    Pipe(Box<dyn io::Read + Send>),
}

pub(super) fn run(flags: &ImportFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    // Only warnings and errors of the store are logged.
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
    let unreadable = |source| Error::Input {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(unreadable)?;
    let kind = file.metadata().map_err(unreadable)?.file_type();
    if kind.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    Ok(if kind.is_file() {
        Input::File(file)
    } else {
        Input::Pipe(Box::new(file))
    })
}

async fn import(config: Config, input: Input, stop: Stop) -> Result<(), Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = open::store(&config, clock.clone()).await?;
    let import = Import {
        store: store.clone(),
        clock,
        dir: config.data,
        stop,
    };
    let is_file = matches!(input, Input::File(_));
    let outcome = match input {
        Input::File(file) => {
            let mut teller = Teller::new(file.metadata().ok().map(|metadata| metadata.len()));
            let outcome = import.file(file, &mut |told| teller.tell(&told)).await;
            teller.reporter.end();
            outcome
        }
        Input::Pipe(pipe) => {
            let mut teller = Teller::new(None);
            let outcome = import.pipe(pipe, &mut |told| teller.tell(&told)).await;
            teller.reporter.end();
            outcome
        }
    };
    let closed = store.close().await;
    let Outcome {
        counts,
        is_interrupted,
    } = outcome?;
    closed?;
    print(&summary(&counts))?;
    match counts.broken_lines {
        _ if is_interrupted => Err(Error::Interrupted(if is_file {
            GOES_ON
        } else {
            "what was imported stays"
        })),
        0 => Ok(()),
        count => Err(Error::BrokenLines(count)),
    }
}

fn summary(counts: &Counts) -> String {
    let Counts {
        users,
        conversations,
        participants,
        messages,
        reactions,
        broken_lines,
    } = counts;
    let kinds = [
        ("users", users),
        ("conversations", conversations),
        ("participants", participants),
        ("messages", messages),
        ("reactions", reactions),
    ];
    let kinds = kinds.map(|(name, count)| format!("{name} {} / {}", count.added, count.unchanged));
    format!(
        "added / unchanged: {}; broken lines: {broken_lines}",
        kinds.join(", ")
    )
}

/// Progress of an import on stderr.
struct Teller {
    reporter: Reporter,
    /// Rows of an earlier run, which are not to this one's credit.
    rows_before: u64,
}

impl Teller {
    fn new(bytes: Option<u64>) -> Self {
        let template = match bytes {
            Some(_) => "{bar:40} {bytes}/{total_bytes}, {msg}, {eta} to go",
            None => "{spinner} {bytes}, {msg}",
        };
        Self {
            reporter: Reporter::new(bytes, template),
            rows_before: 0,
        }
    }

    fn tell(&mut self, told: &Told<'_>) {
        match told {
            Told::Resumed(progress) => {
                self.rows_before = progress.counts.rows();
                let lines = progress.lines;
                self.reporter.line(&format!("wideroom: an earlier import of this file was interrupted; going on after line {lines}"));
            }
            Told::Broken(fault) => self
                .reporter
                .line(&format!("line {}: {}", fault.line, fault.reason)),
            Told::Progress(progress) => {
                let rate = self
                    .reporter
                    .rate(progress.counts.rows().saturating_sub(self.rows_before));
                let bar = format!("{rate} rows/s");
                self.reporter.progress(
                    progress.offset,
                    &bar,
                    &format!("{} lines read, {bar}", progress.lines),
                );
            }
        }
    }
}
