//! `wideroom export`: writes everything of the store to a file or a pipe, and says how it goes.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::AsyncWrite;

use super::progress::Reporter;
use super::stop::{self, Stop};
use super::{Error, ExportFlags, GOES_ON, open, print};
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, StoreChoice};
use crate::telemetry;
use crate::transfer::export::{Counts, Damaged, Export, Outcome, Report, Written};
use crate::transfer::partial::Partial;

enum Output {
    Stdout,
    /// A pipe or a device with a name.
    Pipe(std::fs::File),
    File(PathBuf),
}

pub(super) fn run(flags: &ExportFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    telemetry::init("warn", config.log_format)?;
    open::existing(&config)?;
    let (output, name) = (output(&flags.file)?, open::name(&config));
    stop::run(|stop| export(config, output, name, stop))
}

fn output(path: &Path) -> Result<Output, Error> {
    if path.as_os_str() == "-" {
        return Ok(Output::Stdout);
    }
    let unwritable = |source| Error::Output {
        path: path.to_owned(),
        source,
    };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Output::File(path.to_owned())),
        Err(error) => Err(unwritable(error)),
        Ok(there) if there.is_dir() => Err(unwritable(io::ErrorKind::IsADirectory.into())),
        Ok(there) if there.is_file() => Ok(Output::File(path.to_owned())),
        Ok(_) => Ok(Output::Pipe(
            OpenOptions::new()
                .write(true)
                .open(path)
                .map_err(unwritable)?,
        )),
    }
}

async fn export(config: Config, output: Output, name: String, stop: Stop) -> Result<(), Error> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = open::store(&config, clock.clone()).await?;
    if matches!(config.store, StoreChoice::Cql(_)) {
        eprintln!(
            "wideroom: what servers write meanwhile may be missing from the file: for a move, stop them first"
        );
    }
    let export = Export {
        store: store.clone(),
        clock,
        stop,
    };
    let outcome = match output {
        Output::Stdout => to_pipe(&export, tokio::io::stdout()).await,
        Output::Pipe(file) => to_pipe(&export, tokio::fs::File::from_std(file)).await,
        Output::File(path) => to_file(&export, path, name).await,
    };
    let closed = store.close().await;
    outcome?;
    Ok(closed?)
}

async fn to_pipe(export: &Export, output: impl AsyncWrite + Unpin + Send) -> Result<(), Error> {
    let outcome = told(export, output, tokio::io::sink(), Written::default()).await?;
    if outcome.is_interrupted {
        return Err(Error::Interrupted("what was written is not whole"));
    }
    eprintln!("{}", summary(&outcome.counts));
    judge(&outcome)
}

async fn to_file(export: &Export, path: PathBuf, store: String) -> Result<(), Error> {
    let unwritable = |source| Error::Output {
        path: path.clone(),
        source,
    };
    let target = path.clone();
    let opened = tokio::task::spawn_blocking(move || Partial::open(&target, &store))
        .await
        .expect("opening a file does not panic");
    let (partial, written) = opened.map_err(unwritable)?;
    if written.is_begun() {
        let (lines, path) = (written.counts.lines, partial.path.display());
        eprintln!(
            "wideroom: an earlier export was interrupted; going on after line {lines} of {path}, which may be removed to begin anew"
        );
    }
    let journal = partial.journal(&written).map_err(unwritable)?;
    let outcome = told(
        export,
        partial.writer().map_err(unwritable)?,
        journal,
        written,
    )
    .await?;
    if outcome.is_interrupted {
        return Err(Error::Interrupted(GOES_ON));
    }
    let finished = tokio::task::spawn_blocking(move || partial.finish())
        .await
        .expect("renaming a file does not panic");
    finished.map_err(unwritable)?;
    print(&summary(&outcome.counts))?;
    judge(&outcome)
}

/// A file that lacks something is no success, though all that could be read is in it.
fn judge(outcome: &Outcome) -> Result<(), Error> {
    match outcome.left_out {
        0 => Ok(()),
        count => Err(Error::LeftOut(count)),
    }
}

async fn told(
    export: &Export,
    output: impl AsyncWrite + Unpin + Send,
    journal: impl AsyncWrite + Unpin + Send,
    written: Written,
) -> Result<Outcome, Error> {
    let mut reporter = Reporter::new(None, "{spinner} {pos} lines, {msg}");
    let before = written.counts.lines;
    let mut tell = |report: Report<'_>| match report {
        Report::Written(counts) => {
            let rate = reporter.rate(counts.lines - before);
            let beside = format!("{} conversations, {rate} lines/s", counts.conversations);
            reporter.progress(
                counts.lines,
                &beside,
                &format!("{} lines written, {beside}", counts.lines),
            );
        }
        Report::LeftOut(Damaged {
            conversation,
            message,
            why,
        }) => {
            reporter.line(&format!(
                "wideroom: left out: message {message}, conversation {conversation}: {why}"
            ));
        }
    };
    let outcome = export.run(output, journal, written, &mut tell).await;
    reporter.end();
    Ok(outcome?)
}

fn summary(counts: &Counts) -> String {
    let Counts {
        users,
        conversations,
        participants,
        messages,
        reactions,
        lines: _,
    } = counts;
    format!(
        "exported: users {users}, conversations {conversations}, participants {participants}, messages {messages}, reactions {reactions}"
    )
}
