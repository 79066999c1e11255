//! Verification of the embedded store: heads, counts, lists and pairs against messages and participants.
//!
//! It checks conversations first, each with its derived rows, then the lists, for dangling rows, restrictions and blocks. A piece is one
//! snapshot. Its repair is one write, on the condition that no head has changed since.

use std::sync::Arc;

use fjall::Slice;

use crate::model::{
    ConversationId, ConversationKind, Direction, MessageId, Profile, Restriction, Timestamp, UserId,
};
use crate::store::embedded::cache::state::{ConversationState, memberships};
use crate::store::embedded::engine::committer::{CommitOutcome, Op, Write};
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key::{self, Key, Listing, Span};
use crate::store::embedded::engine::record::{self, ConversationRecord, HeadRecord};
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::{Embedded, TRIES_MAX, contended, mention};
use crate::store::rules::finding;
use crate::store::{Error, Result, Verified, VerifyPosition};

/// Conversations of one piece. Each is checked whole.
const CONVERSATIONS_MAX: usize = 20;
const ROWS_MAX: usize = 5_000;

/// Check of one piece of a stage. Returns the last key if more may follow.
type EmbeddedStage = fn(&mut PieceCheck<'_>, Option<Vec<u8>>) -> Result<Option<Vec<u8>>>;

/// The stages in order: a position is the number of one and a key.
const STAGES: [EmbeddedStage; 10] = [
    |check, from| check.conversations(from),
    |check, from| check.listings(key::all_activities(), from),
    |check, from| check.listings(key::all_busy(), from),
    |check, from| check.listings(key::all_larges(), from),
    |check, from| check.pairs(from),
    |check, from| check.restrictions(from),
    |check, from| check.blocks(from),
    |check, from| check.stray_mentions(key::all_mentions(), key::mention_of, from),
    |check, from| check.stray_mentions(key::all_everyones(), key::everyone_of, from),
    |check, from| check.reports(from),
];

impl Embedded {
    pub(in crate::store::embedded) async fn verified(
        &self,
        after: Option<&VerifyPosition>,
        repair: bool,
    ) -> Result<Verified> {
        for _ in 0..TRIES_MAX {
            let position = after.cloned();
            let (mut verified, write) = self
                .inner
                .read(move |context| look(context, position.as_ref()))
                .await?;
            if !repair || write.ops.is_empty() {
                return Ok(verified);
            }
            if self.write(write).await? == CommitOutcome::Done {
                self.inner.context.mentions.on_import();
                verified.findings.iter_mut().for_each(|finding| {
                    finding.is_repaired = finding::is_repairable(finding.what);
                });
                return Ok(verified);
            }
        }
        Err(contended())
    }
}

fn look(context: &ReadContext, after: Option<&VerifyPosition>) -> Result<(Verified, Write)> {
    let (stage, from) = VerifyPosition::parts(after);
    let mut look = PieceCheck {
        view: context.view(),
        now: context.clock.now(),
        verified: Verified::default(),
        write: Write::default(),
        touched: Vec::new(),
    };
    let last = STAGES[usize::from(stage)](&mut look, from.map(<[u8]>::to_vec))?;
    look.verified.next = VerifyPosition::after(stage, STAGES.len(), last);
    let (states, touched) = (Arc::clone(&context.states), look.touched);
    look.write.applied = Some(Box::new(move || {
        touched.iter().for_each(|id| states.forget(id))
    }));
    Ok((look.verified, look.write))
}

/// Rows with their keys, and the key after which the next piece begins.
type PieceRows = (Vec<(Slice, Slice)>, Option<Vec<u8>>);

pub(super) struct PieceCheck<'a> {
    pub(super) view: View<'a>,
    pub(super) now: Timestamp,
    pub(super) verified: Verified,
    pub(super) write: Write,
    /// Conversations whose cached state may be wrong after a repair.
    pub(super) touched: Vec<ConversationId>,
}

impl PieceCheck<'_> {
    pub(super) fn found(&mut self, what: &'static str, example: impl Into<String>) {
        self.verified.found(what, example, false);
    }

    pub(super) fn put(&mut self, key: Key, value: Vec<u8>) {
        self.write.ops.push(Op::Put(key, value));
    }

    /// Reads the rows of a piece of a range. Returns them with the last key if more may follow.
    pub(super) fn rows(
        &mut self,
        all: Span,
        from: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<PieceRows> {
        let span = key::behind(all, from);
        let rows = self.view.scan(span, Direction::Forward).take(limit);
        let rows: Vec<_> = rows.collect::<Result<_>>()?;
        self.verified.looked_at += rows.len() as u64;
        let last = rows.last().filter(|_| rows.len() == limit);
        let next = last.map(|(key, _)| key.to_vec());
        Ok((rows, next))
    }

    /// Verifies a batch of conversations. Returns the last key if more may follow.
    fn conversations(&mut self, from: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let span = key::behind(key::conversations_after(None), from);
        let rows: Vec<_> = self
            .view
            .scan(span, Direction::Forward)
            .take(CONVERSATIONS_MAX)
            .collect::<Result<_>>()?;
        for (key, value) in &rows {
            let id = key::conversation_of(key).in_table("conversations")?;
            let (ops, conditions) = (self.write.ops.len(), self.write.conditions.len());
            let looked = ConversationRecord::decode(value)
                .in_table("conversations")
                .and_then(|record| self.conversation(record.into_conversation(id)));
            match looked {
                Err(Error::Corrupt { table, cause }) => {
                    self.write.ops.truncate(ops);
                    self.write.conditions.truncate(conditions);
                    self.found(
                        finding::UNREADABLE,
                        format!("of {table}, of conversation {id}: {cause}"),
                    );
                }
                other => other?,
            }
        }
        Ok(rows
            .last()
            .filter(|_| rows.len() == CONVERSATIONS_MAX)
            .map(|(key, _)| key.to_vec()))
    }

    fn listings(&mut self, all: Span, from: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let table = all.table;
        let (rows, next) = self.rows(all, from, ROWS_MAX)?;
        for (bytes, _) in &rows {
            let row = Key {
                table,
                bytes: bytes.to_vec(),
            };
            let (user, id, _) = key::listing_of(&row).in_table("inbox")?;
            let listing = self.listing(&user, id)?;
            if listing.is_none_or(|listing| key::listed(&user, id, listing) != row) {
                let what = match user.is_agent() {
                    true => finding::AGENT,
                    false => finding::STRAY,
                };
                self.found(what, format!("in that of {user}, conversation {id}"));
                self.write.ops.push(Op::Delete(row));
                self.touched.push(id);
            }
        }
        Ok(next)
    }

    /// List that should hold the conversation in a user's inbox. `None` if the user is not in it, and for an agent.
    fn listing(&self, user: &UserId, id: ConversationId) -> Result<Option<Listing>> {
        let Some(record) = self
            .view
            .decoded(&key::conversation(id), ConversationRecord::decode)?
        else {
            return Ok(None);
        };
        let Some(head) = self.view.record::<HeadRecord>(&key::head(id))? else {
            return Ok(None);
        };
        let cell = key::participant(id, user, key::Cell::Membership);
        let membership = self.view.decoded(&cell, record::decode_membership)?;
        let is_joined = membership.is_some_and(|membership| membership.is_joined());
        let has_entry = is_joined && !user.is_agent();
        Ok(has_entry.then(|| head.listing(record.into_conversation(id).is_large)))
    }

    /// Each row of a mention belongs to a message that has it.
    fn stray_mentions(
        &mut self,
        all: Span,
        message_of: fn(&[u8]) -> Option<(ConversationId, MessageId)>,
        from: Option<Vec<u8>>,
    ) -> Result<Option<Vec<u8>>> {
        let (rows, next) = self.rows(all, from, ROWS_MAX)?;
        for (bytes, _) in &rows {
            let row = Key::of_row(bytes);
            let (id, message) = message_of(bytes).in_table(row.table_name())?;
            let has_row = match self.view.message(id, message) {
                Ok(found) => found.is_some_and(|message| mention::keys(&message).contains(&row)),
                // The check of its conversation reports it.
                Err(Error::Corrupt { .. }) => true,
                Err(error) => return Err(error),
            };
            if !has_row {
                self.found(
                    finding::MENTION_STRAY,
                    format!("{message}, conversation {id}"),
                );
                self.write.ops.push(Op::Delete(row));
            }
        }
        Ok(next)
    }

    /// A restricted user has a row of a user, by which exports find the restriction.
    fn restrictions(&mut self, from: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let (rows, next) = self.rows(key::restrictions(), from, ROWS_MAX)?;
        for (bytes, value) in &rows {
            let restricted = key::restricted_of(bytes).in_table("restrictions")?;
            let name = restricted.as_ref().map_or("everyone", UserId::as_str);
            if let Err(error) = record::decode::<Restriction>(value) {
                self.found(
                    finding::UNREADABLE,
                    format!("of restrictions, of {name}: {error}"),
                );
            }
            if let Some(user) = &restricted {
                self.user(user, finding::RESTRICTED)?;
            }
        }
        Ok(next)
    }

    fn user(&mut self, user: &UserId, what: &'static str) -> Result<()> {
        let row = key::user(user);
        if !self.view.has(&row)? {
            self.found(what, format!("the user {user}"));
            self.put(row, record::encode_profile(&Profile::default()));
        }
        Ok(())
    }

    /// A user with blocks has a row of a user, by which exports find them.
    fn blocks(&mut self, from: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let (rows, next) = self.rows(key::all_blocks(), from, ROWS_MAX)?;
        let mut last_user = None;
        for (bytes, value) in &rows {
            let user = key::blocker_of(bytes).zip(key::blocked_of(bytes));
            let (user, blocked) = user.in_table("blocks_by_user")?;
            if let Err(error) = record::decode_block(value) {
                let example = format!("of blocks_by_user, of {user} and {blocked}: {error}");
                self.found(finding::UNREADABLE, example);
            }
            let is_next = last_user.as_ref() != Some(&user);
            if is_next {
                self.user(&user, finding::BLOCKER)?;
            }
            last_user = Some(user);
        }
        Ok(next)
    }

    fn pairs(&mut self, from: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let (rows, next) = self.rows(key::all_pairs(), from, ROWS_MAX)?;
        for (bytes, value) in &rows {
            let row = Key::of_row(bytes);
            let id: ConversationId = record::decode(value).in_table("direct_by_pair")?;
            let people: Vec<_> = match ConversationState::load(&self.view, id) {
                Ok(Some(state)) if state.conversation.kind == ConversationKind::Direct => {
                    memberships(&self.view, id)?.into_keys().collect()
                }
                Ok(_) | Err(Error::Corrupt { .. }) => Vec::new(),
                Err(error) => return Err(error),
            };
            let is_theirs = match &people[..] {
                // An earlier version paired a lone participant with themselves, whatever the id.
                [one] => key::pair(one, one) == row,
                [one, other] => key::pair(one, other) == row,
                _ => false,
            };
            if !is_theirs {
                self.found(finding::PAIR_NOWHERE, format!("to {id}"));
                self.write.ops.push(Op::Delete(row));
            }
        }
        Ok(next)
    }
}

#[cfg(test)]
#[path = "verify_test.rs"]
mod tests;
