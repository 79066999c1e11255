//! Brings lines into a store: in batches, resumable, and the same however often it is done.
//!
//! After each batch a note in the store says how far the file was read, so that an interrupted import goes on there. Lines whose
//! conversation or message is not there yet wait in a file beside the store. Conversations wait for nothing, and reactions alone wait for
//! messages: so one more look at the end, and one at the reactions after it, settle them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use super::reader::LineFault;
use super::reader::{BATCH_ROWS_MAX, LineBatch, LineReader, Numbering, Unit};
use super::spool::Spool;
use crate::clock::Clock;
use crate::model::id::pair_key;
use crate::model::{ConversationId, ConversationKind, UserId};
use crate::store::{self, ImportRow, Imported, StoreAdmin};

/// Bytes at the start of a file that identify it.
const FINGERPRINT_BYTES: u64 = 64 * 1024;
/// Batches that are read ahead of the store.
const BATCHES_AHEAD: usize = 2;

pub struct Import {
    pub store: Arc<dyn StoreAdmin>,
    pub clock: Arc<dyn Clock>,
    /// Folder for the spool of postponed lines.
    pub dir: PathBuf,
    /// Ends the import after the batch under way.
    pub stop: CancellationToken,
}

/// Rows of one kind.
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
    pub broken_lines: u64,
}

impl ImportCounts {
    pub fn rows(&self) -> u64 {
        [
            self.users,
            self.conversations,
            self.participants,
            self.messages,
            self.reactions,
        ]
        .iter()
        .map(|count| count.added + count.unchanged)
        .sum()
    }
}

/// How far it came: also the note from which a later run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct ImportState {
    pub offset: u64,
    pub lines: u64,
    pub held_bytes: u64,
    /// An export begins with a header, and is whole where it has its end.
    pub has_header: bool,
    pub has_end: bool,
    pub counts: ImportCounts,
}

/// ImportState of a running import.
pub enum ImportReport<'a> {
    /// An earlier run came this far with this file.
    Resumed(&'a ImportState),
    Broken(&'a LineFault),
    Progress(&'a ImportState),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportOutcome {
    pub counts: ImportCounts,
    /// It was stopped, and can go on.
    pub is_interrupted: bool,
}

/// Why an import ended early. What was brought in stays.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the file cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error("lines cannot be held back in the data folder: {0}")]
    Hold(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

type ImportReporter<'a> = dyn FnMut(ImportReport<'_>) + Send + 'a;

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
        };
        run.all(input, tell).await
    }

    /// A file. Where an earlier run of the same file was interrupted, this one goes on.
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
        }
        .all(file, tell)
        .await
    }
}

/// A file is recognised by its length and its beginning.
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

/// One import under way.
struct ImportRun<'a> {
    import: &'a Import,
    note: Option<String>,
    spool: Spool,
    progress: ImportState,
    has_added: bool,
}

/// Handling of a line whose conversation or message does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    Hold,
    Name,
}

impl ImportRun<'_> {
    /// Expires all cursors issued before the import, because they know nothing of imported rows. The expiry is persisted first, so that a
    /// crash cannot skip it, and revoked if the import added nothing.
    async fn all(
        mut self,
        input: impl Read + Send + 'static,
        tell: &mut ImportReporter<'_>,
    ) -> Result<ImportOutcome, Error> {
        let store = Arc::clone(&self.import.store);
        let before = store.note(store::NOTE_IMPORTED_AT).await?;
        store
            .set_note(
                store::NOTE_IMPORTED_AT,
                Some(&self.import.clock.now().to_string()),
            )
            .await?;
        let outcome = self.bring_in(input, tell).await?;
        if !self.has_added {
            store
                .set_note(store::NOTE_IMPORTED_AT, before.as_deref())
                .await?;
        }
        Ok(outcome)
    }

    async fn bring_in(
        &mut self,
        input: impl Read + Send + 'static,
        tell: &mut ImportReporter<'_>,
    ) -> Result<ImportOutcome, Error> {
        let mut batches = self.read(input, Numbering::Counted);
        while let Some(batch) = self.next(&mut batches).await? {
            let (offset, lines) = (batch.offset, batch.lines);
            self.progress.has_header |= batch.has_header;
            self.progress.has_end |= batch.has_end;
            self.keep(batch, IfMissing::Hold, tell).await?;
            (self.progress.offset, self.progress.lines) = (offset, lines);
            self.spool.sync().await.map_err(Error::Hold)?;
            self.progress.held_bytes = self.spool.bytes();
            self.write_note().await?;
            tell(ImportReport::Progress(&self.progress));
        }
        let before_held = self.progress;
        for are_reactions in [false, true] {
            let Some(held) = self.spool.read().await.map_err(Error::Hold)? else {
                break;
            };
            let mut batches = self.read(held, Numbering::Written);
            while let Some(mut batch) = self.next(&mut batches).await? {
                batch
                    .units
                    .retain(|unit| is_reaction(unit) == are_reactions);
                self.keep(batch, IfMissing::Name, tell).await?;
                tell(ImportReport::Progress(&self.progress));
            }
        }
        let is_interrupted = self.import.stop.is_cancelled();
        if self.progress.has_header && !self.progress.has_end && !is_interrupted {
            let reason =
                "the file is not whole: it begins as an export, and its end is missing".to_owned();
            self.broken(
                &LineFault {
                    line: self.progress.lines + 1,
                    reason,
                },
                tell,
            );
        }
        if is_interrupted {
            self.progress = before_held;
        } else {
            if let Some(note) = &self.note {
                self.import.store.set_note(note, None).await?;
            }
            self.spool.remove().await.map_err(Error::Hold)?;
        }
        Ok(ImportOutcome {
            counts: self.progress.counts,
            is_interrupted,
        })
    }

    /// Reads ahead on a thread of its own, as far as the channel goes. It ends with the input, or when nobody takes its batches.
    fn read(
        &self,
        input: impl Read + Send + 'static,
        numbering: Numbering,
    ) -> mpsc::Receiver<io::Result<LineBatch>> {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let (lines, offset) = if numbering == Numbering::Counted {
            (self.progress.lines, self.progress.offset)
        } else {
            (0, 0)
        };
        let mut reader =
            LineReader::new(input, numbering, self.import.clock.clone(), lines, offset);
        tokio::task::spawn_blocking(move || {
            while let Some(batch) = reader.batch().transpose() {
                let is_last = batch.is_err();
                if sender.blocking_send(batch).is_err() || is_last {
                    break;
                }
            }
        });
        receiver
    }

    /// `None` at the end, and when the import is to stop.
    async fn next(
        &self,
        batches: &mut mpsc::Receiver<io::Result<LineBatch>>,
    ) -> Result<Option<LineBatch>, Error> {
        tokio::select! {
            biased;
            () = self.import.stop.cancelled() => Ok(None),
            batch = batches.recv() => batch.transpose().map_err(Error::Read),
        }
    }

    async fn keep(
        &mut self,
        mut batch: LineBatch,
        missing: IfMissing,
        tell: &mut ImportReporter<'_>,
    ) -> Result<(), Error> {
        self.leave_out_second_pairs(&mut batch).await?;
        for fault in &batch.faults {
            self.broken(fault, tell);
        }
        let rows: Vec<_> = batch
            .units
            .iter()
            .flat_map(|unit| unit.rows.iter().cloned())
            .collect();
        let mut fates = Vec::with_capacity(rows.len());
        for chunk in rows.chunks(BATCH_ROWS_MAX) {
            fates.extend(self.import.store.import(chunk).await?);
        }
        self.has_added |= fates.contains(&Imported::Added);
        let mut fates = &fates[..];
        for unit in &batch.units {
            let (own, rest) = fates.split_at(unit.rows.len());
            fates = rest;
            self.judge(unit, own, missing, tell).await?;
        }
        Ok(())
    }

    /// Two people have one direct conversation. The store would keep half of a second one, as it takes its rows one by one.
    async fn leave_out_second_pairs(&self, batch: &mut LineBatch) -> Result<(), Error> {
        let mut pairs = HashMap::new();
        let mut units = Vec::with_capacity(batch.units.len());
        for unit in batch.units.drain(..) {
            if let Some((id, one, other)) = direct(&unit.rows) {
                let earlier = *pairs.entry(pair_key(one, other)).or_insert(id);
                let kept = self
                    .import
                    .store
                    .direct_conversation(one, other)
                    .await?
                    .unwrap_or(earlier);
                if kept != id {
                    let reason =
                        format!("these two have another direct conversation already: {kept}");
                    batch.faults.push(LineFault {
                        line: unit.number,
                        reason,
                    });
                    continue;
                }
            }
            units.push(unit);
        }
        batch.units = units;
        Ok(())
    }

    async fn judge(
        &mut self,
        unit: &Unit,
        fates: &[Imported],
        missing: IfMissing,
        tell: &mut ImportReporter<'_>,
    ) -> Result<(), Error> {
        let refused = fates.iter().find_map(|fate| {
            if let Imported::Refused(reason) = fate {
                Some(*reason)
            } else {
                None
            }
        });
        let is_missing = fates.iter().any(|fate| {
            matches!(
                fate,
                Imported::ConversationMissing | Imported::MessageMissing
            )
        });
        if refused.is_none() && is_missing && missing == IfMissing::Hold {
            return self.spool.push(unit).await.map_err(Error::Hold);
        }
        for (row, fate) in unit.rows.iter().zip(fates) {
            let count = self.progress.counts.of(row);
            match fate {
                Imported::Added => count.added += 1,
                Imported::Unchanged => count.unchanged += 1,
                Imported::ConversationMissing | Imported::MessageMissing | Imported::Refused(_) => {
                }
            }
        }
        let reason = match refused {
            Some(reason) => reason.to_owned(),
            None if is_missing => absent(&unit.rows, fates),
            None => return Ok(()),
        };
        self.broken(
            &LineFault {
                line: unit.number,
                reason,
            },
            tell,
        );
        Ok(())
    }

    fn broken(&mut self, fault: &LineFault, tell: &mut ImportReporter<'_>) {
        self.progress.counts.broken_lines += 1;
        tell(ImportReport::Broken(fault));
    }

    async fn write_note(&self) -> Result<(), Error> {
        let Some(note) = &self.note else {
            return Ok(());
        };
        let text = serde_json::to_string(&self.progress).expect("plain numbers serialise");
        Ok(self.import.store.set_note(note, Some(&text)).await?)
    }
}

impl ImportCounts {
    fn of(&mut self, row: &ImportRow) -> &mut Count {
        match row {
            ImportRow::User { .. } => &mut self.users,
            ImportRow::Conversation { .. } => &mut self.conversations,
            ImportRow::Participant { .. } => &mut self.participants,
            ImportRow::Message(_) => &mut self.messages,
            ImportRow::Reaction { .. } => &mut self.reactions,
        }
    }
}

/// The pair of a direct conversation, if one unit holds all of it.
fn direct(rows: &[ImportRow]) -> Option<(ConversationId, &UserId, &UserId)> {
    let ImportRow::Conversation { conversation, .. } = rows.first()? else {
        return None;
    };
    if conversation.kind != ConversationKind::Direct {
        return None;
    }
    let users: Vec<_> = rows
        .iter()
        .filter_map(|row| {
            if let ImportRow::Participant { user, .. } = row {
                Some(user)
            } else {
                None
            }
        })
        .collect();
    let (one, other) = store::pair_of_participants(conversation.id, &users)?;
    Some((conversation.id, one, other))
}

fn is_reaction(unit: &Unit) -> bool {
    matches!(unit.rows[..], [ImportRow::Reaction { .. }])
}

fn absent(rows: &[ImportRow], fates: &[Imported]) -> String {
    if let ([ImportRow::Reaction { message, .. }], [Imported::MessageMissing]) = (rows, fates) {
        return format!("message {message} is not in the file or in the store");
    }
    let conversation = rows.iter().find_map(ImportRow::conversation);
    format!(
        "conversation {} is not in the file or in the store",
        conversation.map(|id| id.to_string()).unwrap_or_default()
    )
}

#[cfg(test)]
#[path = "import_test.rs"]
mod tests;
