//! `wideroom export`: writes the whole store to a file or a pipe, with progress.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::io::AsyncWrite;

use crate::cli::error::Error;
use crate::cli::progress::Reporter;
use crate::cli::settings::{STORE, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::cli::token::parse_person;
use crate::cli::{RESUMABLE, print, storage};
use crate::config::{Config, StoreChoice};
use crate::model::UserId;
use crate::store::StoreAdmin;
use crate::transfer::export::{
    Damaged, Export, ExportCounts, ExportOutcome, ExportReport, Written,
};
use crate::transfer::partial::Partial;

enum ExportOutput {
    Stdout,
    /// Named pipe or device.
    Pipe(std::fs::File),
    File(PathBuf),
}

#[derive(clap::Args)]
pub(in crate::cli) struct ExportFlags {
    /// File, or `-` for standard output
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the data of this user alone
    #[arg(long, env = "WIDEROOM_USER", hide_env_values = true, value_name = "NAME", value_parser = parse_person)]
    user: Option<UserId>,
    #[command(flatten)]
    given: SettingFlags<STORE>,
}

pub(in crate::cli) fn run(flags: &ExportFlags) -> Result<(), Error> {
    let config = storage::existing(&flags.given)?;
    let (output, name) = (output(&flags.file)?, storage::name(&config));
    let user = flags.user.clone();
    signals::run(|stop| export(config, output, (name, user), stop))
}

fn output(path: &Path) -> Result<ExportOutput, Error> {
    if path.as_os_str() == "-" {
        return Ok(ExportOutput::Stdout);
    }
    let unwritable = |source| Error::Output {
        path: path.to_owned(),
        source,
    };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(ExportOutput::File(path.to_owned()))
        }
        Err(error) => Err(unwritable(error)),
        Ok(there) if there.is_dir() => Err(unwritable(io::ErrorKind::IsADirectory.into())),
        Ok(there) if there.is_file() => Ok(ExportOutput::File(path.to_owned())),
        Ok(_) => Ok(ExportOutput::Pipe(
            OpenOptions::new()
                .write(true)
                .open(path)
                .map_err(unwritable)?,
        )),
    }
}

async fn export(
    config: Config,
    output: ExportOutput,
    (name, user): (String, Option<UserId>),
    stop: Stop,
) -> Result<(), Error> {
    let work = async |store: &Arc<dyn StoreAdmin>, clock| {
        if matches!(config.store, StoreChoice::Cql(_)) {
            eprintln!(
                "wideroom: the file can miss what servers write during the export; stop them first for a move"
            );
        }
        let export = Export {
            store: Arc::clone(store),
            clock,
            stop,
            user,
        };
        match output {
            ExportOutput::Stdout => to_pipe(&export, tokio::io::stdout()).await,
            ExportOutput::Pipe(file) => to_pipe(&export, tokio::fs::File::from_std(file)).await,
            ExportOutput::File(path) => to_file(&export, path, name).await,
        }
    };
    storage::with_store(&config, work).await
}

async fn to_pipe(export: &Export, output: impl AsyncWrite + Unpin + Send) -> Result<(), Error> {
    let outcome = run_export(export, output, tokio::io::sink(), Written::default()).await?;
    if outcome.is_interrupted {
        return Err(Error::Interrupted("the output is incomplete"));
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
    let (mut partial, mut written) = opened.map_err(unwritable)?;
    if export.user.is_some() {
        partial.clear().map_err(unwritable)?;
        written = Written::default();
    }
    if written.is_begun() {
        let (lines, path) = (written.counts.lines, partial.path.display());
        eprintln!(
            "wideroom: resuming an interrupted export after line {lines} of {path}; remove that file to start anew"
        );
    }
    let journal = partial.journal(&written).map_err(unwritable)?;
    let outcome = run_export(
        export,
        partial.writer().map_err(unwritable)?,
        journal,
        written,
    )
    .await?;
    if outcome.is_interrupted {
        return Err(Error::Interrupted(RESUMABLE));
    }
    let finished = tokio::task::spawn_blocking(move || partial.finish())
        .await
        .expect("renaming a file does not panic");
    finished.map_err(unwritable)?;
    print(&summary(&outcome.counts))?;
    judge(&outcome)
}

/// Fails if the file misses a message, though it holds everything that is readable.
fn judge(outcome: &ExportOutcome) -> Result<(), Error> {
    match outcome.left_out {
        0 => Ok(()),
        count => Err(Error::LeftOut(count)),
    }
}

async fn run_export(
    export: &Export,
    output: impl AsyncWrite + Unpin + Send,
    journal: impl AsyncWrite + Unpin + Send,
    written: Written,
) -> Result<ExportOutcome, Error> {
    let mut reporter = Reporter::new(None, "{spinner} {pos} lines, {msg}");
    let before = written.counts.lines;
    let mut on_report = |report: ExportReport<'_>| match report {
        ExportReport::Written(counts) => {
            let rate = reporter.rate(counts.lines - before);
            let beside = format!("{} conversations, {rate} lines/s", counts.conversations);
            reporter.progress(
                counts.lines,
                &beside,
                &format!("{} lines written, {beside}", counts.lines),
            );
        }
        ExportReport::LeftOut(Damaged {
            conversation,
            message,
            why,
        }) => {
            reporter.line(&format!(
                "wideroom: left out: message {message}, conversation {conversation}: {why}"
            ));
        }
    };
    let outcome = export.run(output, journal, written, &mut on_report).await;
    reporter.end();
    Ok(outcome?)
}

fn summary(counts: &ExportCounts) -> String {
    let ExportCounts {
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
