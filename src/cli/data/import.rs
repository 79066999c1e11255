//! `wideroom import`: loads a file or a pipe into the store, with progress.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cli::error::Error;
use crate::cli::progress::Reporter;
use crate::cli::settings::{STORE, SettingFlags};
use crate::cli::signals::{self, Stop};
use crate::cli::{RESUMABLE, print, storage};
use crate::config::Config;
use crate::store::StoreAdmin;
use crate::store::cluster::BEAT_EVERY;
use crate::telemetry;
use crate::transfer::import::{Import, ImportCounts, ImportOutcome, ImportReport, Losses};

/// A running server beats twice meanwhile.
const BEATS_WATCHED: Duration = Duration::from_secs(8);
const _: () = assert!(BEATS_WATCHED.as_secs() > 2 * BEAT_EVERY.as_secs());
const BEATS_EVERY: Duration = Duration::from_millis(500);

enum ImportInput {
    File(File),
    /// Standard input or a named pipe, which can be read once.
    Pipe(Box<dyn io::Read + Send>),
}

#[derive(clap::Args)]
pub(in crate::cli) struct ImportFlags {
    /// File, or `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Keep in another way what the store cannot keep as it is, and count it at the end
    #[arg(long)]
    lossy: bool,
    #[command(flatten)]
    given: SettingFlags<STORE>,
}

pub(in crate::cli) fn run(flags: &ImportFlags) -> Result<(), Error> {
    let config = flags.given.config()?;
    // Only warnings and errors of the store are logged.
    telemetry::init("warn", config.log_format)?;
    // Opened before the store, so that a wrong name changes nothing.
    let input = input(&flags.file)?;
    storage::create_folder(&config)?;
    signals::run(|stop| import(config, input, flags.lossy, stop))
}

fn input(path: &Path) -> Result<ImportInput, Error> {
    if path.as_os_str() == "-" {
        return Ok(ImportInput::Pipe(Box::new(io::stdin())));
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
        ImportInput::File(file)
    } else {
        ImportInput::Pipe(Box::new(file))
    })
}

async fn import(
    config: Config,
    input: ImportInput,
    is_lossy: bool,
    stop: Stop,
) -> Result<(), Error> {
    let is_file = matches!(input, ImportInput::File(_));
    let work = async |store: &Arc<dyn StoreAdmin>, clock| {
        let advice = "stop all of them, then import; they would learn of the data late";
        refuse_while_served(&**store, advice).await?;
        let import = Import {
            store: Arc::clone(store),
            clock,
            dir: config.data.clone(),
            is_lossy,
            stop,
        };
        let (mut progress, outcome);
        match input {
            ImportInput::File(file) => {
                progress = ImportProgress::new(file.metadata().ok().map(|metadata| metadata.len()));
                outcome = import
                    .file(file, &mut |report| progress.show(&report))
                    .await;
            }
            ImportInput::Pipe(pipe) => {
                progress = ImportProgress::new(None);
                outcome = import
                    .pipe(pipe, &mut |report| progress.show(&report))
                    .await;
            }
        }
        progress.reporter.end();
        Ok(outcome?)
    };
    let ImportOutcome {
        counts,
        is_interrupted,
    } = storage::with_store(&config, work).await?;
    print(&summary(&counts))?;
    if is_lossy {
        print(&losses(&counts.losses))?;
    }
    match counts.broken_lines {
        _ if is_interrupted => Err(Error::Interrupted(if is_file {
            RESUMABLE
        } else {
            "imported data stays"
        })),
        0 => Ok(()),
        count => Err(Error::BrokenLines(count)),
    }
}

/// Refuses a cluster on which servers run: they would learn of the change late. The beat of a server that
/// was killed stands still, and does not count.
pub(super) async fn refuse_while_served(
    store: &dyn StoreAdmin,
    advice: &'static str,
) -> Result<(), Error> {
    let Some(cluster) = store.cluster() else {
        return Ok(());
    };
    let before = cluster.beats().await?;
    let end = Instant::now() + BEATS_WATCHED;
    while !before.is_empty() && Instant::now() < end {
        tokio::time::sleep(BEATS_EVERY).await;
        let now = cluster.beats().await?;
        let servers = now.iter().filter(|beat| !before.contains(beat)).count();
        if servers > 0 {
            return Err(Error::Served { servers, advice });
        }
    }
    Ok(())
}

fn summary(counts: &ImportCounts) -> String {
    let ImportCounts {
        users,
        conversations,
        participants,
        messages,
        reactions,
        pins,
        reports,
        broken_lines,
        losses: _,
    } = counts;
    let kinds = [
        ("users", users),
        ("conversations", conversations),
        ("participants", participants),
        ("messages", messages),
        ("reactions", reactions),
        ("pins", pins),
        ("reports", reports),
    ];
    let kinds = kinds.map(|(name, count)| format!("{name} {} / {}", count.added, count.unchanged));
    format!(
        "added / unchanged: {}; broken lines: {broken_lines}",
        kinds.join(", ")
    )
}

fn losses(losses: &Losses) -> String {
    let Losses {
        split_messages,
        added_messages,
        named_emoji,
    } = losses;
    format!(
        "kept in another way: {split_messages} messages in {added_messages} further ones, {named_emoji} reactions by the name of a custom emoji"
    )
}

/// Progress of an import on stderr.
struct ImportProgress {
    reporter: Reporter,
    /// Rows of an earlier run, which the rate of this one leaves out.
    rows_before: u64,
    /// Bytes of the input that are imported.
    offset: u64,
}

impl ImportProgress {
    fn new(bytes: Option<u64>) -> Self {
        let template = match bytes {
            Some(_) => "{bar:40} {bytes}/{total_bytes}, {msg}, {eta} to go",
            None => "{spinner} {bytes}, {msg}",
        };
        Self {
            reporter: Reporter::new(bytes, template),
            rows_before: 0,
            offset: 0,
        }
    }

    fn show(&mut self, report: &ImportReport<'_>) {
        match report {
            ImportReport::Resumed(progress) => {
                self.rows_before = progress.counts.rows();
                let lines = progress.lines;
                self.reporter.line(&format!(
                    "wideroom: resuming an interrupted import of this file after line {lines}"
                ));
            }
            ImportReport::Broken(fault) => self
                .reporter
                .line(&format!("line {}: {}", fault.line, fault.reason)),
            ImportReport::Progress(progress) => {
                self.offset = progress.offset;
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
            ImportReport::Counting { done, all } => {
                let line = format!("counting the messages of long conversations, {done} of {all}");
                self.reporter.progress(self.offset, &line, &line);
            }
        }
    }
}
