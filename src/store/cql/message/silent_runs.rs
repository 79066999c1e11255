//! Silent runs: ranges of a conversation whose messages count as unread for nobody, deleted ones and SYSTEM messages.
//!
//! A register beside the checkpoint of the conversation holds them, so that a count of any user on any server passes over them. It follows
//! the rules of the checkpoint: it covers only settled ids, its write timestamp is the moment at which its read began, and a later late
//! write voids it. While a server of version 0.2 may write, there are none.

use futures_util::future::try_join;

use super::Messages;
use super::bucket::checkpoint::SUMMARY_WIDTH;
use crate::model::{ConversationId, OrderKey, Timestamp};
use crate::store::Result;
use crate::store::cql::driver::error::corrupt;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::values;

/// Rows from which a run is worth its write.
const ROWS_WORTH: usize = 250;
/// Runs of one conversation. Beyond that the newest ones stay.
const RUNS_MAX: usize = 16;
const VERSION: u8 = 1;
const RUN_BYTES: usize = 32;

statements! {
    SELECT_SILENT: Read "SELECT silent, WRITETIME(silent) FROM buckets_by_conversation WHERE conversation_id = ? AND width = ? AND start = ?";
    UPDATE_SILENT: Write "UPDATE buckets_by_conversation USING TIMESTAMP ? SET silent = ? WHERE conversation_id = ? AND width = ? AND start = ?";
}

/// Messages after one position, up to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SilentRun {
    after: OrderKey,
    up_to: OrderKey,
}

/// The runs of a conversation, and those that a read finds.
#[derive(Debug, Default)]
pub(super) struct SilentRuns {
    /// When an old message may last have come late, ahead of all clocks.
    pub(super) late_at: Option<Timestamp>,
    /// Ascending and disjoint.
    stored: Vec<SilentRun>,
    found: Vec<SilentRun>,
    /// The run at which the read is, and its rows.
    open: Option<(SilentRun, usize)>,
}

impl SilentRuns {
    /// The end of the known run that follows a position at once.
    pub(super) fn end_at(&self, position: OrderKey) -> Option<OrderKey> {
        let at = |run: &&SilentRun| run.after <= position && position < run.up_to;
        self.stored.iter().find(at).map(|run| run.up_to)
    }

    /// The position after which the next known run begins.
    pub(super) fn next_after(&self, position: OrderKey) -> Option<OrderKey> {
        let mut starts = self.stored.iter().map(|run| run.after);
        starts.find(|start| *start > position)
    }

    /// Notes the next row, and the position before it.
    pub(super) fn note(&mut self, before: OrderKey, row: OrderKey, is_silent: bool) {
        if !is_silent {
            return self.close();
        }
        let next = SilentRun {
            after: before,
            up_to: row,
        };
        let (run, rows) = self.open.get_or_insert((next, 0));
        (run.up_to, *rows) = (row, *rows + 1);
    }

    /// Ends the run at which the read is.
    pub(super) fn close(&mut self) {
        let worth = self.open.take().filter(|(_, rows)| *rows >= ROWS_WORTH);
        self.found.extend(worth.map(|(run, _)| run));
    }

    /// The known and the found runs before a position. `None` if nothing was found.
    fn merged(&self, end: OrderKey) -> Option<Vec<SilentRun>> {
        let cut = |run: &SilentRun| SilentRun {
            up_to: run.up_to.min(end.before()),
            ..*run
        };
        let found = self.found.iter().map(cut);
        let mut found: Vec<_> = found.filter(|run| run.after < run.up_to).collect();
        if found.is_empty() {
            return None;
        }
        found.extend(&self.stored);
        found.sort_unstable();
        let mut merged: Vec<SilentRun> = Vec::with_capacity(found.len());
        for run in found {
            match merged.last_mut() {
                Some(last) if run.after <= last.up_to => last.up_to = last.up_to.max(run.up_to),
                Some(_) | None => merged.push(run),
            }
        }
        let oldest = merged.len().saturating_sub(RUNS_MAX);
        Some(merged.split_off(oldest))
    }
}

fn encode(runs: &[SilentRun]) -> Vec<u8> {
    let bytes = runs
        .iter()
        .flat_map(|run| run.after.0.into_iter().chain(run.up_to.0));
    std::iter::once(VERSION).chain(bytes).collect()
}

/// The runs of these bytes. None for those of a later version.
fn decode(bytes: &[u8]) -> Result<Vec<SilentRun>> {
    let Some((&VERSION, body)) = bytes.split_first() else {
        return Ok(Vec::new());
    };
    let run = |bytes: &[u8]| {
        let (after, up_to) = bytes.split_first_chunk::<16>()?;
        Some(SilentRun {
            after: OrderKey(*after),
            up_to: OrderKey(up_to.try_into().ok()?),
        })
    };
    let runs = body.chunks(RUN_BYTES).map(run).collect::<Option<_>>();
    runs.ok_or_else(|| corrupt("buckets_by_conversation", "a silent run has two order keys"))
}

impl Messages {
    pub(super) async fn silent_runs(&self, conversation: ConversationId) -> Result<SilentRuns> {
        type Columns = (Option<Vec<u8>>, Option<i64>);
        let values = values![conversation, SUMMARY_WIDTH, Timestamp::ZERO];
        let row = self.executor.read_one::<Columns>(&SELECT_SILENT, values);
        let (late_at, row) = try_join(self.late_write_at(conversation), row).await?;
        let (silent, silent_at) = row.unwrap_or_default();
        let is_kept = self.has_late_register().await?;
        let is_valid = is_kept && late_at <= silent_at.map(Timestamp::from_micros);
        let stored = match silent.filter(|_| is_valid) {
            Some(bytes) => decode(&bytes)?,
            None => Vec::new(),
        };
        Ok(SilentRuns {
            late_at,
            stored,
            ..SilentRuns::default()
        })
    }

    /// Persists the runs that a read found before a position. A failure costs only another read.
    pub(super) async fn put_silent_runs(
        &self,
        conversation: ConversationId,
        (runs, read_at): (&SilentRuns, Timestamp),
        end: OrderKey,
    ) {
        let Some(merged) = runs.merged(end).filter(|merged| *merged != runs.stored) else {
            return;
        };
        if !self.has_late_register().await.unwrap_or(false) {
            return;
        }
        let (bytes, start) = (encode(&merged), Timestamp::ZERO);
        let values = values![read_at, bytes, conversation, SUMMARY_WIDTH, start];
        if let Err(error) = self.executor.write(&UPDATE_SILENT, values).await {
            tracing::debug!(%conversation, %error, "the store failed to cache which messages count as unread for nobody");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u8) -> OrderKey {
        OrderKey([number; 16])
    }

    fn run(after: u8, up_to: u8) -> SilentRun {
        SilentRun {
            after: key(after),
            up_to: key(up_to),
        }
    }

    #[test]
    fn runs_that_touch_are_one() {
        let runs = SilentRuns {
            stored: vec![run(10, 20), run(40, 50)],
            found: vec![run(20, 30), run(45, 60)],
            ..SilentRuns::default()
        };
        let merged = runs.merged(OrderKey::MAX).unwrap();
        assert_eq!(merged, [run(10, 30), run(40, 60)]);
        assert_eq!(decode(&encode(&merged)).unwrap(), merged);
        let cut = runs.merged(key(55)).unwrap();
        assert_eq!(cut[1].up_to, key(55).before());
        assert_eq!(runs.end_at(key(10)), Some(key(20)));
        assert_eq!(runs.end_at(key(20)), None);
        assert_eq!(runs.next_after(key(20)), Some(key(40)));
        assert!(decode(&[VERSION, 1]).is_err());
    }

    #[test]
    fn only_a_long_run_is_found() {
        let mut runs = SilentRuns::default();
        for (rows, is_long) in [(ROWS_WORTH - 1, false), (ROWS_WORTH, true)] {
            for _ in 0..rows {
                runs.note(key(1), key(2), true);
            }
            runs.note(key(2), key(3), false);
            assert_eq!(runs.merged(OrderKey::MAX).is_some(), is_long);
        }
    }
}
