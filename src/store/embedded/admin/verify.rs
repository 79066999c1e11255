//! Verification of the embedded store: heads, counts, lists and pairs against messages and participants.
//!
//! It checks conversations first, each with its derived rows, then the lists, for dangling rows. A piece is one
//! snapshot. Its repair is one write, on the condition that no head has changed since.

use std::sync::Arc;

use crate::model::{
    Conversation, ConversationId, ConversationKind, Direction, Message, MessageId, Role, TimeUuid,
    UserId,
};
use crate::store::embedded::cache::state::{ConversationState, memberships};
use crate::store::embedded::conversation::listed;
use crate::store::embedded::engine::committer::{CommitOutcome, Condition, Op, Write};
use crate::store::embedded::engine::db::{MalformedKey, View, corrupt};
use crate::store::embedded::engine::key::{self, Key, Listing};
use crate::store::embedded::engine::record::{
    self, ConversationRecord, HeadRecord, MessageRecord, RosterRecord,
};
use crate::store::embedded::message::stored;
use crate::store::embedded::read_context::ReadContext;
use crate::store::embedded::{Embedded, TRIES_MAX, contended};
use crate::store::rules::import::activity;
use crate::store::rules::{finding, pair};
use crate::store::{
    DAMAGED_MESSAGE, Error, Finding, Result, StoredMessage, Verified, VerifyPosition,
};

/// Conversations of one piece. Each is checked whole.
const CONVERSATIONS_MAX: usize = 20;
const ROWS_MAX: usize = 5_000;

/// EmbeddedStage of a verification. Never renumber it: a saved position is a stage and a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EmbeddedStage {
    Conversations,
    Active,
    Busy,
    Large,
    Pairs,
}

impl EmbeddedStage {
    const ALL: [Self; 5] = [
        Self::Conversations,
        Self::Active,
        Self::Busy,
        Self::Large,
        Self::Pairs,
    ];
}

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
    let (stage, from) = match after.and_then(|position| position.0.split_first()) {
        Some((stage, from)) => (
            EmbeddedStage::ALL[usize::from(*stage).min(EmbeddedStage::ALL.len() - 1)],
            Some(from.to_vec()),
        ),
        None => (EmbeddedStage::Conversations, None),
    };
    let mut look = PieceCheck {
        view: context.view(),
        verified: Verified::default(),
        write: Write::default(),
        touched: Vec::new(),
    };
    let last = match stage {
        EmbeddedStage::Conversations => look.conversations(from)?,
        EmbeddedStage::Active | EmbeddedStage::Busy | EmbeddedStage::Large => {
            look.listings(stage, from)?
        }
        EmbeddedStage::Pairs => look.pairs(from)?,
    };
    // The next piece begins after the last row, or with the next stage.
    let number = stage as u8;
    look.verified.next = match last {
        Some(key) => Some(VerifyPosition([&[number], key.as_slice()].concat())),
        None if stage == EmbeddedStage::Pairs => None,
        None => Some(VerifyPosition(vec![number + 1])),
    };
    let (states, touched) = (Arc::clone(&context.states), look.touched);
    look.write.applied = Some(Box::new(move || {
        touched.into_iter().for_each(|id| states.forget(id))
    }));
    Ok((look.verified, look.write))
}

struct PieceCheck<'a> {
    view: View<'a>,
    verified: Verified,
    write: Write,
    /// Conversations whose cached state may be wrong after a repair.
    touched: Vec<ConversationId>,
}

/// Values derived from a conversation's rows.
#[derive(Default)]
struct Truth {
    last_message: Option<MessageId>,
    message_count: u64,
    newest_change: Option<TimeUuid>,
    joined: Vec<UserId>,
    everybody: Vec<UserId>,
    owner_count: u64,
    /// Messages that cannot be read, and why.
    damaged: Vec<String>,
}

/// The message of a reaction.
enum Reacted {
    There(Box<Message>),
    MissingRow,
    /// It was named before.
    Damaged,
}

impl PieceCheck<'_> {
    fn found(&mut self, what: &'static str, example: impl Into<String>) {
        self.verified.findings.push(Finding {
            what,
            example: example.into(),
            is_repaired: false,
        });
    }

    fn put(&mut self, key: Key, value: Vec<u8>) {
        self.write.ops.push(Op::Put(key, value));
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
            let id =
                key::conversation_of(key).ok_or_else(|| corrupt("conversations", MalformedKey))?;
            let (ops, conditions) = (self.write.ops.len(), self.write.conditions.len());
            let looked = record::decode::<ConversationRecord>(value)
                .map_err(|error| corrupt("conversations", error))
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

    fn conversation(&mut self, conversation: Conversation) -> Result<()> {
        let id = conversation.id;
        let findings = self.verified.findings.len();
        let truth = self.truth(id)?;
        truth
            .damaged
            .iter()
            .for_each(|message| self.found(DAMAGED_MESSAGE, message));
        let is_large = conversation.is_large_with(truth.joined.len() as u64);
        if is_large != conversation.is_large {
            self.found(finding::LARGE, id.to_string());
            self.put(
                key::conversation(id),
                ConversationRecord::encode(&Conversation {
                    is_large,
                    ..conversation.clone()
                }),
            );
        }
        let head = self.head(&conversation, &truth)?;
        for user in &truth.joined {
            let row = key::listed(user, id, head.listing(is_large));
            if !self.view.has(&row)? {
                self.found(finding::ENTRY, format!("that of {user}, conversation {id}"));
                self.put(row, Vec::new());
            }
        }
        let roster: RosterRecord = self.view.record(&key::roster(id))?.unwrap_or_default();
        if roster.owner_count != truth.owner_count {
            self.found(
                finding::ROSTER,
                format!(
                    "{} owners and not {}, conversation {id}",
                    roster.owner_count, truth.owner_count
                ),
            );
            self.put(
                key::roster(id),
                record::encode(&RosterRecord {
                    owner_count: truth.owner_count,
                    ..roster
                }),
            );
        }
        if conversation.kind == ConversationKind::Direct {
            self.pair(id, &truth.everybody)?;
        }
        self.reactions(id)?;
        if self.verified.findings.len() > findings {
            self.touched.push(id);
        }
        Ok(())
    }

    fn truth(&mut self, id: ConversationId) -> Result<Truth> {
        let mut truth = Truth::default();
        for row in self.view.scan(key::messages(id), Direction::Forward) {
            let StoredMessage {
                id: message,
                message: read,
            } = stored(id, &row?)?;
            truth.message_count += 1;
            truth.last_message = truth.last_message.or(Some(message));
            if let Err(why) = read {
                truth
                    .damaged
                    .push(format!("{message}, conversation {id}: {why}"));
            }
        }
        let log = key::changes_of_conversation_after(id, crate::model::OrderKey::MIN);
        if let Some(row) = self.view.scan(log, Direction::Backward).next() {
            truth.newest_change = key::change_id(&row?.0);
        }
        for one in listed(
            &self.view,
            id,
            key::participants(id),
            Direction::Forward,
            usize::MAX,
            &|_| true,
        )? {
            if one.membership.is_joined() {
                truth.owner_count += u64::from(one.membership.role == Role::Owner);
                truth.joined.push(one.user.clone());
            }
            truth.everybody.push(one.user);
        }
        self.verified.looked_at += 1 + truth.message_count + truth.everybody.len() as u64;
        Ok(truth)
    }

    /// Derives the head.
    fn head(&mut self, conversation: &Conversation, truth: &Truth) -> Result<HeadRecord> {
        let id = conversation.id;
        let at = key::head(id);
        let bytes = self.view.get(&at)?;
        let found: Option<HeadRecord> = bytes
            .as_deref()
            .and_then(|bytes| record::decode(bytes).ok());
        let before = found.unwrap_or_else(|| HeadRecord::new(conversation.created_at, None));
        let given = before.given_activity;
        let activity = activity(conversation.created_at, given, truth.last_message);
        let head = HeadRecord {
            last_message: truth.last_message,
            last_activity: activity,
            message_count: truth.message_count,
            participant_count: truth.joined.len() as u64,
            newest_change: before.newest_change.max(truth.newest_change),
            ..before
        };
        if found == Some(head) {
            return Ok(head);
        }
        if before.message_count != head.message_count {
            self.found(
                finding::COUNT,
                format!(
                    "{} and not {}, conversation {id}",
                    before.message_count, head.message_count
                ),
            );
        }
        if before.participant_count != head.participant_count {
            self.found(
                finding::ROSTER,
                format!(
                    "{} and not {}, conversation {id}",
                    before.participant_count, head.participant_count
                ),
            );
        }
        let counted = HeadRecord {
            message_count: head.message_count,
            participant_count: head.participant_count,
            ..before
        };
        if found.is_none() || counted != head {
            self.found(finding::HEAD, id.to_string());
        }
        self.write.conditions.push(match bytes {
            Some(bytes) => Condition::Is(at.clone(), bytes.to_vec()),
            None => Condition::Absent(at.clone()),
        });
        self.put(at, record::encode(&head));
        Ok(head)
    }

    fn pair(&mut self, id: ConversationId, people: &[UserId]) -> Result<()> {
        let people: Vec<_> = people.iter().collect();
        let Some((one, other)) = pair::of_stored(id, &people) else {
            return Ok(());
        };
        let row = key::pair(one, other);
        match self.view.record::<ConversationId>(&row)? {
            Some(there) if there == id => {}
            Some(there) => self.found(finding::TWICE, format!("{there} and {id}")),
            None => {
                self.found(finding::PAIR, id.to_string());
                self.put(row, record::encode(&id));
            }
        }
        Ok(())
    }

    fn reactions(&mut self, id: ConversationId) -> Result<()> {
        let mut last: Option<(MessageId, Reacted)> = None;
        let mut wrong = Vec::new();
        for row in self.view.scan(key::reactions_in(id), Direction::Forward) {
            let (key, _) = row?;
            let message = key::reaction_to(&key)
                .ok_or_else(|| corrupt("reactions_by_message", MalformedKey))?;
            let is_next = last.as_ref().is_none_or(|(last, _)| *last != message);
            if is_next {
                last = Some((message, self.reacted(id, message)?));
            }
            match &last {
                Some((_, Reacted::MissingRow)) => wrong.push((message, None, key.to_vec())),
                Some((_, Reacted::There(there))) if is_next && !there.has_reactions => {
                    wrong.push((message, Some(Message::clone(there)), Vec::new()));
                }
                Some((_, Reacted::There(_) | Reacted::Damaged)) | None => {}
            }
        }
        for (message, there, row) in wrong {
            match there {
                Some(there) => {
                    self.found(
                        finding::REACTION_MARK,
                        format!("{message}, conversation {id}"),
                    );
                    let marked = Message {
                        has_reactions: true,
                        ..there
                    };
                    self.put(
                        key::message(id, message.order_key()),
                        MessageRecord::encode(&marked),
                    );
                }
                None => {
                    self.found(finding::ORPHAN, format!("{message}, conversation {id}"));
                    self.write.ops.push(Op::Delete(Key {
                        table: key::Table::Rows,
                        bytes: row,
                    }));
                }
            }
        }
        Ok(())
    }

    fn reacted(&self, id: ConversationId, message: MessageId) -> Result<Reacted> {
        match self.view.message(id, message) {
            Ok(Some(there)) => Ok(Reacted::There(Box::new(there))),
            Ok(None) => Ok(Reacted::MissingRow),
            Err(Error::Corrupt { .. }) => Ok(Reacted::Damaged),
            Err(error) => Err(error),
        }
    }

    fn listings(&mut self, stage: EmbeddedStage, from: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let all = match stage {
            EmbeddedStage::Busy => key::all_busy(),
            EmbeddedStage::Large => key::all_larges(),
            EmbeddedStage::Conversations | EmbeddedStage::Active | EmbeddedStage::Pairs => {
                key::all_activities()
            }
        };
        let table = all.table;
        let span = key::behind(all, from);
        let rows: Vec<_> = self
            .view
            .scan(span, Direction::Forward)
            .take(ROWS_MAX)
            .collect::<Result<_>>()?;
        self.verified.looked_at += rows.len() as u64;
        for (bytes, _) in &rows {
            let row = Key {
                table,
                bytes: bytes.to_vec(),
            };
            let (user, id) = key::listing_of(&row).ok_or_else(|| corrupt("inbox", MalformedKey))?;
            let listing = self.listing(&user, id)?;
            if listing.is_none_or(|listing| key::listed(&user, id, listing) != row) {
                self.found(
                    finding::STRAY,
                    format!("in that of {user}, conversation {id}"),
                );
                self.write.ops.push(Op::Delete(row));
                self.touched.push(id);
            }
        }
        Ok(rows
            .last()
            .filter(|_| rows.len() == ROWS_MAX)
            .map(|(key, _)| key.to_vec()))
    }

    /// List that should hold the conversation in a user's inbox. `None` if the user is not in it.
    fn listing(&self, user: &UserId, id: ConversationId) -> Result<Option<Listing>> {
        let Some(record) = self
            .view
            .record::<ConversationRecord>(&key::conversation(id))?
        else {
            return Ok(None);
        };
        let Some(head) = self.view.record::<HeadRecord>(&key::head(id))? else {
            return Ok(None);
        };
        let membership: Option<crate::model::Membership> =
            self.view
                .record(&key::participant(id, user, key::Cell::Membership))?;
        let is_joined = membership.is_some_and(|membership| membership.is_joined());
        Ok(is_joined.then(|| head.listing(record.into_conversation(id).is_large)))
    }

    fn pairs(&mut self, from: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let span = key::behind(key::all_pairs(), from);
        let rows: Vec<_> = self
            .view
            .scan(span, Direction::Forward)
            .take(ROWS_MAX)
            .collect::<Result<_>>()?;
        self.verified.looked_at += rows.len() as u64;
        for (bytes, value) in &rows {
            let row = Key {
                table: key::Table::Rows,
                bytes: bytes.to_vec(),
            };
            let id: ConversationId =
                record::decode(value).map_err(|error| corrupt("direct_by_pair", error))?;
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
        Ok(rows
            .last()
            .filter(|_| rows.len() == ROWS_MAX)
            .map(|(key, _)| key.to_vec()))
    }
}

#[cfg(test)]
#[path = "verify_test.rs"]
mod tests;
