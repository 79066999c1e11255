//! Export: writes a whole store as lines. It is resumable, and holds a few pages in memory.
//!
//! Users come first. Each conversation follows with its participants, then its messages, the oldest
//! first, each followed by its pin and its reactions. So an import of the file postpones no line.
//! Reports come last. An unreadable message is reported and left out. Users and conversations are in
//! the order of the store, and the last line shows the position from which an export resumes.

mod conversation;
mod person;

use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt as _, BufWriter};
use tokio_util::sync::CancellationToken;

use super::line::{self, FORMAT, Line};
use super::progress::Position;
pub use super::progress::{Damaged, ExportCounts, LeftOut, Written};
use crate::clock::Clock;
use crate::model::{Direction, OrderKey, Timestamp, UserId};
use crate::store::{self, ImportRow, ReportQuery, StoreAdmin};

/// Rows of one read.
const PAGE: usize = 200;
const REACTIONS_PAGE: usize = 1_000;
const BUFFER_BYTES: usize = 256 * 1024;

pub struct Export {
    pub store: Arc<dyn StoreAdmin>,
    pub clock: Arc<dyn Clock>,
    /// Ends the export after the current page.
    pub stop: CancellationToken,
    /// The person whose data alone is written. `None`: the whole store.
    pub user: Option<UserId>,
}

/// Progress of a running export.
pub enum ExportReport<'a> {
    Written(&'a ExportCounts),
    LeftOut(&'a Damaged),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOutcome {
    pub counts: ExportCounts,
    /// Damaged messages, those of earlier runs included.
    pub left_out: u64,
    /// Whether the export was stopped before its end.
    pub is_interrupted: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the file cannot be written: {0}")]
    Write(#[from] std::io::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

type Result<T, E = Error> = std::result::Result<T, E>;
type ExportReporter<'a> = dyn FnMut(ExportReport<'_>) + Send + 'a;

impl Export {
    /// Writes the lines that earlier runs have not written. Omitted messages are listed in `journal`,
    /// for a later run that resumes this one.
    pub async fn run(
        &self,
        output: impl AsyncWrite + Unpin + Send,
        journal: impl AsyncWrite + Unpin + Send,
        from: Written,
        tell: &mut ExportReporter<'_>,
    ) -> Result<ExportOutcome> {
        let Written {
            counts,
            left_out,
            position,
        } = from;
        let output = BufWriter::with_capacity(BUFFER_BYTES, output);
        let mut run = ExportRun {
            export: self,
            output,
            journal,
            counts,
            left_out,
            text: Vec::new(),
            tell,
        };
        let is_whole = run.go_on(position).await?;
        run.output.flush().await?;
        Ok(ExportOutcome {
            counts: run.counts,
            left_out: run.left_out.len() as u64,
            is_interrupted: !is_whole,
        })
    }
}

/// A running export. Its steps return whether they reached their end; false if the export was
/// stopped.
struct ExportRun<'a, W, J> {
    export: &'a Export,
    output: BufWriter<W>,
    journal: J,
    counts: ExportCounts,
    left_out: LeftOut,
    text: Vec<u8>,
    tell: &'a mut ExportReporter<'a>,
}

impl<W: AsyncWrite + Unpin + Send, J: AsyncWrite + Unpin + Send> ExportRun<'_, W, J> {
    async fn go_on(&mut self, position: Position) -> Result<bool> {
        if let Some(user) = &self.export.user {
            return self.person(user).await;
        }
        let (after_user, after_conversation) = match position {
            Position::End => return Ok(true),
            Position::Start => {
                let everyone = self.export.store.restrictions().await?;
                let everyone = everyone
                    .into_iter()
                    .find(|(restricted, _)| restricted.is_none());
                let tokens_from = everyone.and_then(|(_, restriction)| restriction.tokens_from);
                self.header(tokens_from).await?;
                (None, None)
            }
            Position::Header => (None, None),
            Position::User(user) => {
                self.blocks(&user, None).await?;
                (Some(user), None)
            }
            Position::Block(user, blocked) => {
                self.blocks(&user, Some(&blocked)).await?;
                (Some(user), None)
            }
            Position::Report(report) => {
                return self.reports_to_the_end(None, report.order_key()).await;
            }
            Position::Conversation(id, within) => {
                if !self.rest_of(id, within).await? {
                    return Ok(false);
                }
                (None, Some(id))
            }
        };
        let is_whole = (after_conversation.is_some() || self.users(after_user).await?)
            && self.conversations(after_conversation).await?;
        if !is_whole {
            return Ok(false);
        }
        self.reports_to_the_end(None, OrderKey::MIN).await
    }

    async fn header(&mut self, tokens_from: Option<Timestamp>) -> Result<()> {
        self.line(&Line::Header(line::Header {
            format: Some(FORMAT),
            exported_at: Some(self.export.clock.now().to_string()),
            tokens_from: tokens_from.map(|moment| moment.to_string()),
        }))
        .await
    }

    /// Writes the reports after a position, the oldest first, and the last line. With a user, only those by that user.
    async fn reports_to_the_end(
        &mut self,
        by: Option<&UserId>,
        mut after: OrderKey,
    ) -> Result<bool> {
        loop {
            let query = ReportQuery {
                older_than: OrderKey::MAX,
                newer_than: after,
                direction: Direction::Backward,
                limit: PAGE,
            };
            let page = self.export.store.reports(&query).await?;
            let next = next_after(&page, |report| report.id.order_key());
            for report in page {
                if by.is_none_or(|by| report.reporter == *by) {
                    self.row(&ImportRow::Report(Box::new(report))).await?;
                }
            }
            let Some(next) = next else { break };
            after = next;
            // Only here: an export that is asked to stop at its last row is whole.
            if !self.goes_on() {
                return Ok(false);
            }
        }
        let lines = self.counts.lines;
        self.line(&Line::End(line::End { lines })).await?;
        Ok(true)
    }

    async fn line(&mut self, line: &Line) -> Result<()> {
        self.text.clear();
        serde_json::to_writer(&mut self.text, line).map_err(std::io::Error::from)?;
        self.text.push(b'\n');
        self.output.write_all(&self.text).await?;
        self.counts.add(line);
        Ok(())
    }

    async fn row(&mut self, row: &ImportRow) -> Result<()> {
        let unreadable = |error| store::Error::Corrupt {
            table: "messages",
            cause: Box::new(error),
        };
        self.line(&Line::of(row).map_err(unreadable)?).await
    }

    /// Reports progress between two pages. Returns whether the export continues.
    fn goes_on(&mut self) -> bool {
        (self.tell)(ExportReport::Written(&self.counts));
        !self.export.stop.is_cancelled()
    }

    async fn users(&mut self, mut after: Option<UserId>) -> Result<bool> {
        while self.goes_on() {
            let page = self.export.store.all_users(after.as_ref(), PAGE).await?;
            let is_last = page.len() < PAGE;
            after = page.last().map(|(user, _)| user.clone());
            let users: Vec<_> = page.iter().map(|(user, _)| user.clone()).collect();
            let restrictions = self.export.store.restrictions_of(&users).await?;
            for ((user, profile), restriction) in page.into_iter().zip(restrictions) {
                let row = ImportRow::User {
                    user: user.clone(),
                    profile,
                    restriction,
                };
                self.row(&row).await?;
                self.blocks(&user, None).await?;
            }
            if is_last {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The users whom a user blocks, by name, after one of them.
    async fn blocks(&mut self, user: &UserId, after: Option<&UserId>) -> Result<()> {
        for block in self.export.store.blocks(user).await? {
            if block.is_on && Some(&block.blocked) > after {
                let row = ImportRow::Block {
                    user: user.clone(),
                    blocked: block.blocked,
                    since: block.change.moment(),
                };
                self.row(&row).await?;
            }
        }
        Ok(())
    }

    /// Lists an omitted message before any later line is written: a later run resumes after the last
    /// line and does not read the message again.
    async fn leave_out(&mut self, damaged: Damaged) -> Result<()> {
        (self.tell)(ExportReport::LeftOut(&damaged));
        let Damaged {
            conversation,
            message,
            why: _,
        } = damaged;
        if self.left_out.insert((conversation, message)) {
            self.journal
                .write_all(format!("{conversation} {message}\n").as_bytes())
                .await?;
            self.journal.flush().await?;
        }
        Ok(())
    }
}

/// The key after which the next page begins. `None` after the last page.
fn next_after<T, K>(page: &[T], key: impl Fn(&T) -> K) -> Option<K> {
    page.last().filter(|_| page.len() == PAGE).map(key)
}
