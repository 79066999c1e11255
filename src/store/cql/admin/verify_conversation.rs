//! Whether all that follows from one conversation's messages and people agrees with them.
//!
//! The registers are maxima: what is behind is raised, and what is ahead of history cannot be taken back, and is only told.

use std::collections::BTreeMap;

use futures_util::future::try_join3;

use super::verify::readable;
use crate::model::id::pair_key;
use crate::model::{Conversation, ConversationId, ConversationKind, Membership, MessageId, Timestamp, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::{Writes, at_once};
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{cells, list};
use crate::store::cql::inbox::writes::slot_of;
use crate::store::cql::message::count::{forget_counts, message_counts};
use crate::store::cql::message::register::{LastMessage, decode_membership};
use crate::store::cql::participant::roster::{Roster, Seen};
use crate::store::{DAMAGED_MESSAGE, Result, StoredMessage};

const HEAD: &str = "a conversation whose head is behind its history";
const AHEAD: &str = "a conversation whose head is ahead of its history";
const COUNT: &str = "a count of messages that is not how many there are";
const PEOPLE: &str = "a roster that does not agree with its participants";
const LARGE: &str = "a conversation with too many people for its inboxes to be written";
const ENTRY: &str = "an inbox that lacks a conversation";
const BEHIND: &str = "an entry that is behind its conversation";
const HINT: &str = "an entry that a page of its inbox does not find";
const PAIR: &str = "a direct conversation that its people do not find";
const TWICE: &str = "two direct conversations of the same people";

statements! {
    /// The statements of this file.
    Statements {
        entry: Read "SELECT membership, last_message, last_activity FROM inbox_by_user WHERE user_id = ? AND conversation_id = ?";
        hint: Read "SELECT last_activity FROM inbox_activity_by_user WHERE user_id = ? AND slot = ? AND conversation_id = ?";
        roster: Conditional "UPDATE participants_by_conversation SET roster = ? WHERE conversation_id = ? IF roster = ?";
    }
}

/// Messages of one read, each with its content.
const MESSAGES_MAX: usize = 200;

/// What was found, and where.
type Findings = Vec<(&'static str, String)>;

pub(crate) struct Looked {
    pub(crate) findings: Findings,
    pub(crate) rows: u64,
}

struct Look<'a> {
    inner: &'a Inner,
    conversation: &'a Conversation,
    repair: bool,
    findings: Findings,
}

/// Where the conversation stands by its history.
struct Stand {
    last: Option<LastMessage>,
    activity: Timestamp,
}

pub(crate) async fn look(inner: &Inner, conversation: &Conversation, repair: bool) -> Result<Looked> {
    let id = conversation.id;
    let mut look = Look { inner, conversation, repair, findings: Vec::new() };
    let (head, seen, people) = try_join3(inner.head(id), inner.roster(id), inner.memberships(id)).await?;
    let History { count, newest, damaged } = history(inner, id).await?;
    look.findings.extend(damaged);
    let head = head.unwrap_or(crate::store::cql::send::writer_cache::Head { is_large: false, last: None, last_activity: None });
    look.people(&seen, &people).await?;
    let is_large = look.large(head.is_large, &people).await?;
    let stand = look.head(&head, newest).await?;
    let joined = people.iter().filter(|(_, membership)| membership.is_joined());
    let entries = joined.map(|(user, membership)| look.entry(user, membership, &stand, is_large));
    let found = at_once(entries.collect()).await?;
    look.findings.extend(found.into_iter().flatten());
    look.count(count).await?;
    look.pair(&people).await?;
    if repair && !look.findings.is_empty() {
        inner.known.forget(id);
    }
    Ok(Looked { findings: look.findings, rows: 1 + count + people.len() as u64 })
}

/// What was found in a history.
#[derive(Default)]
struct History {
    count: u64,
    newest: Option<MessageId>,
    damaged: Findings,
}

/// All of it, with its contents.
async fn history(inner: &Inner, id: ConversationId) -> Result<History> {
    let mut history = History::default();
    loop {
        let page = super::export::messages(inner, id, history.newest, MESSAGES_MAX).await?;
        history.count += page.len() as u64;
        history.newest = page.last().map(|last| last.id).or(history.newest);
        let is_last = page.len() < MESSAGES_MAX;
        for StoredMessage { id: message, message: read } in page {
            if let Err(why) = read {
                history.damaged.push((DAMAGED_MESSAGE, format!("{message}, conversation {id}: {why}")));
            }
        }
        if is_last {
            return Ok(history);
        }
    }
}

impl Look<'_> {
    fn id(&self) -> ConversationId {
        self.conversation.id
    }

    fn found(&mut self, what: &'static str) {
        self.findings.push((what, self.id().to_string()));
    }

    async fn people(&mut self, seen: &Seen, people: &BTreeMap<UserId, Membership>) -> Result<()> {
        let there = &seen.roster;
        let truth = Roster::of(self.conversation.kind, there.version, people.iter());
        if (there.joined, there.owners, &there.heir) == (truth.joined, truth.owners, &truth.heir) {
            return Ok(());
        }
        self.found(PEOPLE);
        if let (true, Some(bytes)) = (self.repair, &seen.bytes) {
            let values = cells![there.clone().with_people_of(truth).encode(), self.id(), bytes.clone()];
            self.inner.cluster.write_if::<scylla::value::Row>(&self.inner.statements.verify_conversation.roster, values).await?;
        }
        Ok(())
    }

    /// Whether it is large, or is to be.
    async fn large(&mut self, is_large: bool, people: &BTreeMap<UserId, Membership>) -> Result<bool> {
        let joined = people.values().filter(|membership| membership.is_joined()).count();
        if is_large || joined <= Conversation::FAN_OUT_MAX {
            return Ok(is_large);
        }
        self.found(LARGE);
        if self.repair {
            // Its people know before the flag says it: their entries are looked at as those of a large one.
            let now = self.inner.clock.now().micros();
            for (user, _) in people.iter().filter(|(_, membership)| membership.is_joined()) {
                let mut writes = Writes::of_one_partition();
                self.inner.put_large(&mut writes, user, self.id(), now);
                self.inner.cluster.write_all(writes).await?;
            }
            let mut writes = Writes::of_one_partition();
            self.inner.put_flag(&mut writes, self.id());
            self.inner.cluster.write_all(writes).await?;
        }
        Ok(true)
    }

    async fn head(&mut self, head: &crate::store::cql::send::writer_cache::Head, newest: Option<MessageId>) -> Result<Stand> {
        let there = head.last.as_ref().map(|last| last.id);
        if there > newest {
            self.found(AHEAD);
        }
        let last = match newest.filter(|newest| there < Some(*newest)) {
            Some(newest) => {
                let found = readable(self.inner.seek_message(self.id(), newest, None).await)?;
                found.map(|(message, bucket)| LastMessage { id: message.id, bucket, sender: message.sender })
            }
            None => head.last.clone(),
        };
        let follows = last.as_ref().map(|last| last.id.moment());
        let activity = follows.max(head.last_activity).unwrap_or(self.conversation.created_at);
        if there < newest || head.last_activity < follows {
            self.found(HEAD);
            if self.repair {
                let mut writes = Writes::of_one_partition();
                self.inner.raise_head(&mut writes, self.id(), last.as_ref(), None, Some(activity));
                self.inner.cluster.write_all(writes).await?;
            }
        }
        Ok(Stand { last, activity })
    }

    async fn entry(&self, user: &UserId, membership: &Membership, stand: &Stand, is_large: bool) -> Result<Findings> {
        type Columns = (Option<Vec<u8>>, Option<Vec<u8>>, Option<i64>);
        let (inner, id) = (self.inner, self.id());
        let now = inner.clock.now();
        let mut found = Findings::new();
        let mut writes = Writes::logged();
        let row: Option<Columns> = inner.cluster.read_one(&inner.statements.verify_conversation.entry, cells![user, id]).await?;
        let (given, last, activity) = row.unwrap_or_default();
        let given = given.map(|bytes| decode_membership("inbox_by_user", &bytes)).transpose()?;
        let example = || format!("that of {user}, conversation {id}");
        // The role there counts for nothing.
        if !given.is_some_and(|given| given.is_joined()) {
            found.push((ENTRY, example()));
            inner.put_membership(&mut writes, user, id, membership, now.micros());
        }
        let last = last.map(|bytes| LastMessage::decode("inbox_by_user", &bytes)).transpose()?.map(|last| last.id);
        let activity = activity.map(Timestamp::from_micros);
        if !is_large && (last < stand.last.as_ref().map(|last| last.id) || activity < Some(stand.activity)) {
            found.push((BEHIND, example()));
            inner.raise(&mut writes, user, id, stand.last.as_ref(), stand.activity);
        }
        let is_listed = if is_large {
            let values = cells![user, list([id])];
            inner.cluster.read_one::<(uuid::Uuid,)>(&inner.statements.inbox.larges_among, values).await?.is_some()
        } else {
            let slot = slot_of(activity.max(Some(stand.activity)).unwrap_or(stand.activity));
            let values = cells![user, slot, id];
            inner.cluster.read_one::<(Option<i64>,)>(&inner.statements.verify_conversation.hint, values).await?.is_some()
        };
        if !is_listed {
            found.push((HINT, example()));
            if is_large {
                inner.put_large(&mut writes, user, id, now.micros());
            } else {
                inner.hint_again(&mut writes, user, id, activity.max(Some(stand.activity)).unwrap_or(stand.activity), now);
            }
        }
        if self.repair {
            inner.cluster.write_all(writes).await?;
        }
        Ok(found)
    }

    async fn count(&mut self, count: u64) -> Result<()> {
        let told = message_counts(self.inner, &[self.id()]).await?;
        if told != [count] {
            self.found(COUNT);
            if self.repair {
                forget_counts(self.inner, self.id()).await?;
            }
        }
        Ok(())
    }

    async fn pair(&mut self, people: &BTreeMap<UserId, Membership>) -> Result<()> {
        if self.conversation.kind != ConversationKind::Direct {
            return Ok(());
        }
        let people: Vec<_> = people.keys().collect();
        let pair = match people[..] {
            [one] if self.id().is_with_oneself(one) => pair_key(one, one),
            [one, other] => pair_key(one, other),
            _ => return Ok(()),
        };
        match self.inner.paired(&pair).await? {
            Some(there) if there == self.id() => {}
            Some(_) => self.found(TWICE),
            None => {
                self.found(PAIR);
                if self.repair {
                    self.inner.claim_pair(&pair, self.id()).await?;
                }
            }
        }
        Ok(())
    }
}
