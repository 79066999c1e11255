//! A run of an import: batches into the store, progress into its note, lines that wait into the spool.

mod split_markers;

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::import::{
    Count, Error, Import, ImportCounts, ImportOutcome, ImportReport, ImportReporter, ImportState,
};
use super::long_histories::LongHistories;
use super::reader::{BATCH_ROWS_MAX, LineBatch, LineFault, LineReader, Numbering, Unit};
use super::rules::ImportRules;
use super::spool::Spool;
use crate::model::id::pair_key;
use crate::model::{ConversationId, ConversationKind, UserId};
use crate::store::{self, ImportRow, Imported};

/// Batches that are read before the store takes them.
const BATCHES_AHEAD: usize = 2;

/// A running import.
pub(super) struct ImportRun<'a> {
    pub(super) import: &'a Import,
    pub(super) note: Option<String>,
    pub(super) spool: Spool,
    pub(super) progress: ImportState,
    pub(super) has_added: bool,
    pub(super) long: LongHistories,
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
    pub(super) async fn all(
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
        // Imported messages may have expired, or lie below a floor.
        store.note_scheduled_retention(store::RESCHEDULE).await?;
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
        for are_of_messages in [false, true] {
            let Some(held) = self.spool.read().await.map_err(Error::Hold)? else {
                break;
            };
            let mut batches = self.read(held, Numbering::Written);
            while let Some(mut batch) = self.next(&mut batches).await? {
                batch
                    .units
                    .retain(|unit| is_of_message(unit) == are_of_messages);
                self.keep(batch, IfMissing::Name, tell).await?;
                tell(ImportReport::Progress(&self.progress));
            }
        }
        let is_interrupted = self.import.stop.is_cancelled();
        if self.progress.has_header && !self.progress.has_end && !is_interrupted {
            let reason =
                "the file is not whole: it begins as an export, and its end is missing".to_owned();
            let line = self.progress.lines + 1;
            self.broken(&LineFault { line, reason }, tell);
        }
        if is_interrupted {
            self.progress = before_held;
        } else {
            self.count_long(tell).await;
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

    /// Counts long histories. All rows are there, so a count that fails is left to the first reader.
    async fn count_long(&mut self, tell: &mut ImportReporter<'_>) {
        let long = self.long.take();
        let all = long.len();
        for (done, conversation) in long.into_iter().enumerate() {
            if self.import.stop.is_cancelled() {
                return;
            }
            tell(ImportReport::Counting { done, all });
            if let Err(error) = self.import.store.count_imported(conversation).await {
                tracing::warn!(%conversation, %error, "the messages of an imported conversation are not counted; the first reader of its messageCount waits for that");
                return;
            }
        }
    }

    /// Reads batches on a thread of its own, as many as the channel holds. The thread ends with the
    /// input, or when the receiver is dropped.
    fn read(
        &self,
        input: impl Read + Send + 'static,
        numbering: Numbering,
    ) -> mpsc::Receiver<io::Result<LineBatch>> {
        let (sender, receiver) = mpsc::channel(BATCHES_AHEAD);
        let position = if numbering == Numbering::Counted {
            (self.progress.lines, self.progress.offset)
        } else {
            (0, 0)
        };
        let rules = ImportRules {
            is_lossy: self.import.is_lossy,
            is_export: self.progress.has_header,
        };
        let clock = self.import.clock.clone();
        let mut reader = LineReader::new(input, numbering, clock, rules, position);
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

    /// The next batch. `None` at the end, or if the import was stopped.
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
        rows.iter().for_each(|row| self.long.note(row));
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
        // In an export of ours each part is a message of its own.
        if self.import.is_lossy && !self.progress.has_header {
            self.read_to_last_parts(&batch).await?;
        }
        Ok(())
    }

    /// Refuses a second direct conversation of two users as a whole. The store takes rows one by one,
    /// and would import half of it.
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
                        format!("these users have another direct conversation already: {kept}");
                    let line = unit.number;
                    batch.faults.push(LineFault { line, reason });
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
        if fates.contains(&Imported::Added) {
            self.progress.counts.losses.add(unit.losses);
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
        let line = unit.number;
        self.broken(&LineFault { line, reason }, tell);
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
            ImportRow::User { .. } | ImportRow::EveryoneRevoked(_) | ImportRow::Block { .. } => {
                &mut self.users
            }
            ImportRow::Conversation { .. } => &mut self.conversations,
            ImportRow::Participant { .. } => &mut self.participants,
            ImportRow::Message(_) | ImportRow::ChangedMessage(..) => &mut self.messages,
            ImportRow::Reaction { .. } => &mut self.reactions,
            ImportRow::Pin { .. } => &mut self.pins,
            ImportRow::Report(_) => &mut self.reports,
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

/// Whether the line waits for a message.
fn is_of_message(unit: &Unit) -> bool {
    matches!(
        unit.rows[..],
        [ImportRow::Reaction { .. } | ImportRow::Pin { .. }]
    )
}

fn absent(rows: &[ImportRow], fates: &[Imported]) -> String {
    if let (
        [ImportRow::Reaction { message, .. } | ImportRow::Pin { message, .. }],
        [Imported::MessageMissing],
    ) = (rows, fates)
    {
        return format!("message {message} is not in the file or in the store");
    }
    let conversation = rows.iter().find_map(ImportRow::conversation);
    format!(
        "conversation {} is not in the file or in the store",
        conversation.map(|id| id.to_string()).unwrap_or_default()
    )
}
