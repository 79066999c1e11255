//! Import: writes lines into a store, in batches. It is resumable and idempotent.
//!
//! After each batch a note in the store holds the position in the file, from which an interrupted
//! import resumes. A line whose conversation or message does not exist yet waits in the spool, a
//! file beside the store. Only reactions and pins wait for messages, and conversations wait for
//! nothing. So two passes over the spool at the end are enough, the second one for these.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::import_run::ImportRun;
use super::long_histories::LongHistories;
pub use super::reader::LineFault;
pub use super::rules::Losses;
use super::spool::Spool;
use crate::clock::Clock;
use crate::store::{self, StoreAdmin};

/// Bytes at the start of a file that identify it.
const FINGERPRINT_BYTES: u64 = 64 * 1024;

pub struct Import {
    pub store: Arc<dyn StoreAdmin>,
    pub clock: Arc<dyn Clock>,
    /// Folder for the spool of postponed lines.
    pub dir: PathBuf,
    /// Whether it may keep in another way what a store cannot keep as it is.
    pub is_lossy: bool,
    /// Ends the import after the current batch.
    pub stop: CancellationToken,
}

/// Counts of rows of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Count {
    pub added: u64,
    pub unchanged: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct ImportCounts {
    pub users: Count,
    pub conversations: Count,
    pub participants: Count,
    pub messages: Count,
    pub reactions: Count,
    #[serde(default)]
    pub pins: Count,
    #[serde(default)]
    pub reports: Count,
    pub broken_lines: u64,
    #[serde(default)]
    pub losses: Losses,
}

impl ImportCounts {
    pub fn rows(&self) -> u64 {
        [
            self.users,
            self.conversations,
            self.participants,
            self.messages,
            self.reactions,
            self.pins,
            self.reports,
        ]
        .iter()
        .map(|count| count.added + count.unchanged)
        .sum()
    }
}

/// Progress of an import, and the note from which a later run resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct ImportState {
    pub offset: u64,
    pub lines: u64,
    pub held_bytes: u64,
    /// An export begins with a header, and is complete if it has its end line.
    pub has_header: bool,
    pub has_end: bool,
    pub counts: ImportCounts,
}

/// Report of a running import.
pub enum ImportReport<'a> {
    /// The import resumes after an earlier run of this file.
    Resumed(&'a ImportState),
    Broken(&'a LineFault),
    Progress(&'a ImportState),
    /// All rows are there, and the messages of long conversations are counted.
    Counting {
        done: usize,
        all: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportOutcome {
    pub counts: ImportCounts,
    /// Whether the import was stopped before its end, and can resume.
    pub is_interrupted: bool,
}

/// The reason why an import ended early. Imported rows stay.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the file cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error("the program cannot write postponed lines to the data folder: {0}")]
    Hold(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

pub(super) type ImportReporter<'a> = dyn FnMut(ImportReport<'_>) + Send + 'a;

impl Import {
    /// Imports an input that can be read only once. A repeated run starts from the beginning, which is harmless.
    pub async fn pipe(
        &self,
        input: impl Read + Send + 'static,
        tell: &mut ImportReporter<'_>,
    ) -> Result<ImportOutcome, Error> {
        let run = ImportRun {
            import: self,
            note: None,
            spool: Spool::passing(&self.dir),
            progress: ImportState::default(),
            has_added: false,
            long: LongHistories::default(),
        };
        run.all(input, tell).await
    }

    /// Imports a file. Resumes an interrupted run of the same file.
    pub async fn file(
        &self,
        file: File,
        tell: &mut ImportReporter<'_>,
    ) -> Result<ImportOutcome, Error> {
        let prepared = tokio::task::spawn_blocking(move || fingerprint(file))
            .await
            .expect("reading a file does not panic");
        let (mut file, name) = prepared.map_err(Error::Read)?;
        let note = format!("import:{name}");
        let mut spool = Spool::kept(&self.dir, &name);
        let earlier = self
            .store
            .note(&note)
            .await?
            .and_then(|text| serde_json::from_str::<ImportState>(&text).ok());
        let mut progress = earlier.unwrap_or_default();
        if !spool
            .resume(progress.held_bytes)
            .await
            .map_err(Error::Hold)?
        {
            progress = ImportState::default();
        }
        if progress.lines > 0 {
            tell(ImportReport::Resumed(&progress));
        }
        file.seek(SeekFrom::Start(progress.offset))
            .map_err(Error::Read)?;
        ImportRun {
            import: self,
            note: Some(note),
            spool,
            progress,
            has_added: false,
            long: LongHistories::default(),
        }
        .all(file, tell)
        .await
    }
}

/// The fingerprint of a file: a hash of its length and its beginning.
fn fingerprint(mut file: File) -> io::Result<(File, String)> {
    let length = file.metadata()?.len();
    let mut hash = Sha256::new();
    hash.update(length.to_be_bytes());
    let mut beginning = Vec::new();
    (&mut file)
        .take(FINGERPRINT_BYTES)
        .read_to_end(&mut beginning)?;
    hash.update(&beginning);
    let name = hash
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok((file, name))
}

#[cfg(test)]
#[path = "import_test.rs"]
mod tests;
