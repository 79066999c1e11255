//! Verification of one conversation: its head, counts, entries, pair, reaction marks and pins.

use std::collections::BTreeMap;

use super::verify::PieceCheck;
use crate::model::{
    AppKeyClaim, Conversation, ConversationId, ConversationKind, ConversationProfile, Direction,
    Membership, Message, MessageId, Pin, Role, TimeUuid, UserId,
};
use crate::store::embedded::ban;
use crate::store::embedded::engine::committer::{Condition, Op};
use crate::store::embedded::engine::db::InTable;
use crate::store::embedded::engine::key::{self, EntryCell, Key};
use crate::store::embedded::engine::record::{
    self, ConversationRecord, HeadRecord, MessageRecord, RosterRecord,
};
use crate::store::embedded::mention;
use crate::store::embedded::message::stored;
use crate::store::embedded::participant::listed;
use crate::store::embedded::write::pin::PinListChange;
use crate::store::embedded::write::removal;
use crate::store::rules::import::activity;
use crate::store::rules::verification::VerifiedHistory;
use crate::store::rules::{finding, pair};
use crate::store::{Error, Result};

/// The rows of a conversation from which others are derived.
struct Truth {
    history: VerifiedHistory,
    newest_change: Option<TimeUuid>,
    memberships: BTreeMap<UserId, Membership>,
}

impl Truth {
    fn joined(&self) -> impl Iterator<Item = (&UserId, &Membership)> {
        let all = self.memberships.iter();
        all.filter(|(_, membership)| membership.is_joined())
    }

    fn participant_count(&self) -> u64 {
        self.joined().count() as u64
    }
}

/// The message of a reaction.
enum Reacted {
    There(Box<Message>),
    MissingRow,
    /// It was named before.
    Damaged,
}

impl PieceCheck<'_> {
    pub(super) fn conversation(&mut self, conversation: Conversation) -> Result<()> {
        let id = conversation.id;
        let findings = self.verified.findings.len();
        let truth = self.truth(id)?;
        let is_large = conversation.is_large_with(truth.participant_count());
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
        for (user, _) in truth.joined().filter(|(user, _)| !user.is_agent()) {
            let row = key::listed(user, id, head.listing(is_large));
            if !self.view.has(&row)? {
                self.found(finding::ENTRY, format!("that of {user}, conversation {id}"));
                self.put(row, Vec::new());
            }
        }
        for agent in truth.memberships.keys().filter(|user| user.is_agent()) {
            self.entry_of_agent(id, agent)?;
        }
        let owners = truth.joined().filter(|(_, one)| one.role == Role::Owner);
        let owner_count = owners.count() as u64;
        let roster: RosterRecord = self.view.record(&key::roster(id))?.unwrap_or_default();
        if roster.owner_count != owner_count {
            self.found(
                finding::ROSTER,
                format!(
                    "{} owners and not {owner_count}, conversation {id}",
                    roster.owner_count
                ),
            );
            self.put(
                key::roster(id),
                record::encode(&RosterRecord {
                    owner_count,
                    ..roster
                }),
            );
        }
        if conversation.kind == ConversationKind::Direct {
            self.pair(id, &truth.memberships.keys().collect::<Vec<_>>())?;
        }
        self.app_key(&conversation)?;
        let listed = ban::stored(&self.view, id)?;
        let memberships = &truth.memberships;
        let strays = self.verified.check_bans(id, listed, memberships, self.now);
        let strays = strays.iter().map(|user| Op::Delete(key::ban(id, user)));
        self.write.ops.extend(strays);
        self.reactions(id)?;
        self.pins(id, truth.history.pins)?;
        if self.verified.findings.len() > findings {
            self.touched.push(id);
        }
        Ok(())
    }

    fn truth(&mut self, id: ConversationId) -> Result<Truth> {
        let people = listed(&self.view, id, key::participants(id), usize::MAX)?;
        let memberships = people.into_iter().map(|one| (one.user, one.membership));
        let memberships: BTreeMap<_, _> = memberships.collect();
        let (mut history, mut unlisted) = (VerifiedHistory::default(), Vec::new());
        for row in self.view.scan(key::messages(id), Direction::Forward) {
            let message = stored(id, &row?)?;
            let verified = &mut self.verified;
            if let Some(message) = verified.add_message(&mut history, id, message, self.now)
                && self.is_unlisted(&message, &memberships)?
            {
                unlisted.push(message);
            }
        }
        for message in unlisted {
            let message_id = message.id;
            self.found(finding::MENTION, format!("{message_id}, conversation {id}"));
            self.write.ops.extend(mention::listed(&message));
        }
        let log = key::changes_of_conversation_after(id, crate::model::OrderKey::MIN);
        let newest = self
            .view
            .scan(log, Direction::Backward)
            .next()
            .transpose()?;
        self.verified.looked_at += 1 + history.count + memberships.len() as u64;
        Ok(Truth {
            history,
            newest_change: newest.and_then(|(key, _)| key::change_id(&key)),
            memberships,
        })
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
        // A removal leaves the head as it is, but for the count.
        let removed = removal::removed_up_to(&self.view, id)?;
        let last = before.last_message;
        let last_message = last
            .filter(|last| last.order_key() <= removed)
            .max(truth.history.newest);
        let activity = activity(conversation.created_at, given, last_message);
        let head = HeadRecord {
            last_message,
            last_activity: activity,
            message_count: truth.history.count,
            participant_count: truth.participant_count(),
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
        let seen = bytes.map(|bytes| bytes.to_vec());
        let condition = Condition::unchanged(at.clone(), seen);
        self.write.conditions.push(condition);
        self.put(at, record::encode(&head));
        Ok(head)
    }

    fn pair(&mut self, id: ConversationId, people: &[&UserId]) -> Result<()> {
        let Some((one, other)) = pair::of_stored(id, people) else {
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

    /// The app key of a conversation is claimed for it. A claim of a conversation that does not exist is no fault: a
    /// server claims the key first.
    fn app_key(&mut self, conversation: &Conversation) -> Result<()> {
        let id = conversation.id;
        let profile = key::conversation_profile(id);
        let profile: ConversationProfile = self.view.record(&profile)?.unwrap_or_default();
        let Some(app_key) = profile.app_key else {
            return Ok(());
        };
        let row = key::app_key(&app_key);
        let example = format!("{}, conversation {id}", app_key.as_str());
        match self.view.record::<AppKeyClaim>(&row)? {
            Some(claim) if claim.conversation == id => {}
            Some(_) => self.found(finding::APP_KEY_OF_ANOTHER, example),
            None => {
                self.found(finding::APP_KEY, example);
                self.write.conditions.push(Condition::Absent(row.clone()));
                self.put(row, record::encode(&AppKeyClaim::of(conversation)));
            }
        }
        Ok(())
    }

    /// An agent has no entry. Versions before 0.3 knew no agents, and wrote one for a user of such a name.
    fn entry_of_agent(&mut self, id: ConversationId, agent: &UserId) -> Result<()> {
        let mut cells = EntryCell::ALL
            .map(|cell| key::entry(agent, id, cell))
            .to_vec();
        cells.push(key::notify_all(id, agent));
        for cell in cells {
            if self.view.has(&cell)? {
                let example = format!("that of {agent}, conversation {id}");
                self.found(finding::AGENT, example);
                self.write.ops.push(Op::Delete(cell));
            }
        }
        Ok(())
    }

    /// Whether a mention of a message is not listed. Mentions are forgotten with the erasure of the mentioned user.
    fn is_unlisted(
        &self,
        message: &Message,
        memberships: &BTreeMap<UserId, Membership>,
    ) -> Result<bool> {
        let (id, at) = (message.conversation, message.id.order_key());
        let (named, everyone) = message.counted_mentions();
        for user in named {
            let is_joined = memberships.get(user).is_some_and(Membership::is_joined);
            if is_joined && !self.view.has(&key::mention(user, id, at))? {
                return Ok(true);
            }
        }
        Ok(everyone && !self.view.has(&key::everyone(id, at))?)
    }

    fn pins(&mut self, id: ConversationId, expected: BTreeMap<MessageId, Pin>) -> Result<()> {
        let mut list = PinListChange::begin(&self.view, id)?;
        let listed = list.pins.clone().into_pins();
        let wrong = self.verified.check_pins(id, listed, expected);
        for (message, pin) in &wrong {
            list.pins.remove(*message);
            list.pins.set(*message, pin);
        }
        if !wrong.is_empty() {
            list.add_to(&mut self.write);
        }
        Ok(())
    }

    fn reactions(&mut self, id: ConversationId) -> Result<()> {
        let mut last: Option<(MessageId, Reacted)> = None;
        let mut wrong = Vec::new();
        for row in self.view.scan(key::reactions_in(id), Direction::Forward) {
            let (key, _) = row?;
            let message = key::reaction_to(&key).in_table("reactions_by_message")?;
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
                    self.write.ops.push(Op::Delete(Key::of_row(&row)));
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
}
