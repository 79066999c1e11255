//! Verification of one conversation: everything derived from its messages and participants.
//!
//! Registers are maxima: one that is behind is advanced; one that is ahead of the history cannot go back and is only reported.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join3;

use super::Admin;
use super::verify::skip_damaged;
use crate::model::id::pair_key;
use crate::model::{
    Conversation, ConversationId, ConversationKind, Membership, Mentions, MessageId, OrderKey,
    PageRequest, Pin, Timestamp, UserId,
};
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{order_key, values};
use crate::store::cql::driver::writes::Writes;
use crate::store::cql::inbox::mention::Mentioned;
use crate::store::cql::inbox::writes::slot_of;
use crate::store::cql::message::conversation::Head;
use crate::store::cql::message::register::{LastMessage, decode_membership};
use crate::store::cql::participant::roster::{Roster, RosterSnapshot};
use crate::store::rules::{finding, pair};
use crate::store::{DAMAGED_MESSAGE, Result, StoredMessage};

statements! {
    SELECT_ENTRY: Read "SELECT membership, last_message, last_activity, mentioned_up_to FROM inbox_by_user WHERE user_id = ? AND conversation_id = ?";
    SELECT_HINT: Read "SELECT last_activity FROM inbox_activity_by_user WHERE user_id = ? AND slot = ? AND conversation_id = ?";
}

/// Pins of one write.
const PINS_MAX: usize = 64;
/// Messages of one read, each with its content.
const MESSAGES_MAX: usize = 200;
const BANS_MAX: usize = 1_000;

/// Findings, each with its conversation or entry.
pub(super) type Findings = Vec<(&'static str, String)>;

/// The findings of one check, and the rows that it read.
pub(super) struct CheckedConversation {
    pub(super) findings: Findings,
    pub(super) rows: u64,
}

struct ConversationCheck<'a> {
    admin: &'a Admin,
    conversation: &'a Conversation,
    repair: bool,
    findings: Findings,
}

/// The messages of a conversation, read with their contents.
#[derive(Default)]
struct History {
    count: u64,
    newest: Option<MessageId>,
    /// Findings of messages and their mentions.
    damaged: Findings,
    /// The newest mention of each user who is named, and of everyone.
    mentions: BTreeMap<Mentioned, MessageId>,
    /// Pins of messages that are pinned.
    pins: BTreeMap<MessageId, Pin>,
}

/// The head that the history implies.
struct ExpectedHead {
    last: Option<LastMessage>,
    activity: Timestamp,
}

/// The mentions that the maxima of entries have to cover.
struct ExpectedMentions {
    newest: BTreeMap<Mentioned, MessageId>,
    /// Maximum in the head of a large conversation, which stands for those of all entries.
    everyone_up_to: Option<OrderKey>,
}

impl ExpectedMentions {
    /// The newest mention of a user that no maximum covers.
    fn uncovered(&self, user: &UserId, mentioned_up_to: Option<OrderKey>) -> Option<MessageId> {
        let named = self.newest.get(&Mentioned::User(user.clone()));
        let newest = *named.max(self.newest.get(&Mentioned::Everyone))?;
        (mentioned_up_to.max(self.everyone_up_to) < Some(newest.order_key())).then_some(newest)
    }
}

/// Checks everything derived from one conversation, and repairs it if asked to.
pub(super) async fn check(
    admin: &Admin,
    conversation: &Conversation,
    repair: bool,
) -> Result<CheckedConversation> {
    let id = conversation.id;
    let mut check = ConversationCheck {
        admin,
        conversation,
        repair,
        findings: Vec::new(),
    };
    let (head, seen, memberships) = try_join3(
        admin.messages.head(id),
        admin.participants.roster(id),
        admin.participants.memberships(id),
    )
    .await?;
    let History {
        count,
        newest,
        damaged,
        mentions,
        pins,
    } = check.history().await?;
    check.findings.extend(damaged);
    check.roster(&seen, &memberships).await?;
    let is_settled = seen.is_settled();
    if is_settled && admin.have_settings_diverged(id, repair).await? {
        check.found(finding::HISTORY);
    }
    check.bans(&memberships).await?;
    let is_large = check.large(head.is_large, &memberships).await?;
    let expected = check.head(&head, newest).await?;
    let mentions = ExpectedMentions {
        newest: mentions,
        everyone_up_to: match is_large {
            true => admin.inboxes.everyone_up_to(id).await?,
            false => None,
        },
    };
    let joined = memberships
        .iter()
        .filter(|(_, membership)| membership.is_joined());
    let entries = joined
        .map(|(user, membership)| check.entry(user, membership, &expected, &mentions, is_large));
    let found = concurrently(entries.collect()).await?;
    check.findings.extend(found.into_iter().flatten());
    check.count(count).await?;
    check.pair(&memberships).await?;
    check.pins(pins).await?;
    if repair && !check.findings.is_empty() {
        admin.sends.invalidate(id);
    }
    Ok(CheckedConversation {
        findings: check.findings,
        rows: 1 + count + memberships.len() as u64,
    })
}

impl ConversationCheck<'_> {
    async fn history(&self) -> Result<History> {
        let (id, now) = (self.id(), self.admin.clock.now());
        let mut history = History::default();
        loop {
            let page = self
                .admin
                .all_messages(id, history.newest, MESSAGES_MAX)
                .await?;
            history.count += page.len() as u64;
            history.newest = page.last().map(|last| last.id).or(history.newest);
            let is_last = page.len() < MESSAGES_MAX;
            let mut mentioning = Vec::new();
            for StoredMessage {
                id: message,
                message: read,
            } in page
            {
                match read {
                    Ok(read) => {
                        let pin = read.current_pin().cloned();
                        history.pins.extend(pin.map(|pin| (message, pin)));
                        let since = read.id.moment().plus_micros(Mentions::LIFETIME_MICROS);
                        if read.mentions().is_some() && since > now {
                            let named = Mentioned::of(&read).into_iter();
                            history.mentions.extend(named.map(|one| (one, message)));
                            mentioning.push(read);
                        }
                    }
                    Err(why) => history.damaged.push((
                        DAMAGED_MESSAGE,
                        format!("{message}, conversation {id}: {why}"),
                    )),
                }
            }
            let found = self.admin.check_mentions(&mentioning, self.repair).await?;
            history.damaged.extend(found);
            if is_last {
                return Ok(history);
            }
        }
    }

    fn id(&self) -> ConversationId {
        self.conversation.id
    }

    fn found(&mut self, what: &'static str) {
        self.findings.push((what, self.id().to_string()));
    }

    async fn roster(
        &mut self,
        seen: &RosterSnapshot,
        memberships: &BTreeMap<UserId, Membership>,
    ) -> Result<()> {
        let stored = &seen.roster;
        let truth = Roster::of(self.conversation.kind, stored.version, memberships.iter());
        if stored.participants == truth.participants {
            return Ok(());
        }
        self.found(finding::ROSTER);
        if let (true, Some(bytes)) = (self.repair, &seen.bytes) {
            let mut writes = Writes::of_one_partition();
            let mut roster = stored.clone();
            roster.participants = truth.participants;
            let roster = roster.encode();
            self.admin
                .participants
                .swap_roster(&mut writes, self.id(), Some(bytes), roster);
            self.admin
                .executor
                .write_all_if::<scylla::value::Row>(writes)
                .await?;
        }
        Ok(())
    }

    /// The list of bans and the memberships agree on who is banned now.
    async fn bans(&mut self, memberships: &BTreeMap<UserId, Membership>) -> Result<()> {
        let (id, now) = (self.id(), self.admin.clock.now());
        let is_banned = |user: &UserId| {
            memberships
                .get(user)
                .is_some_and(|membership| membership.is_banned_at(now))
        };
        let mut listed = BTreeSet::new();
        let mut request = PageRequest::first(BANS_MAX);
        loop {
            let page = self.admin.bans.page(id, &request).await?;
            let last = page.items.last().map(|ban| ban.user.clone());
            for ban in page.items {
                if !is_banned(&ban.user) {
                    let example = format!("that of {}, conversation {id}", ban.user);
                    self.findings.push((finding::BAN, example));
                    if self.repair {
                        self.admin.bans.remove(id, &ban.user).await?;
                    }
                }
                listed.insert(ban.user);
            }
            match last.filter(|_| page.has_next) {
                Some(last) => request = PageRequest::first(BANS_MAX).after(last),
                None => break,
            }
        }
        let missing = memberships
            .iter()
            .filter(|(user, one)| one.is_banned_at(now) && !listed.contains(*user));
        let example = |user: &UserId| format!("{user}, conversation {id}");
        self.findings
            .extend(missing.map(|(user, _)| (finding::BAN_MISSING, example(user))));
        Ok(())
    }

    /// Whether the conversation is large, or must be.
    async fn large(
        &mut self,
        is_large: bool,
        memberships: &BTreeMap<UserId, Membership>,
    ) -> Result<bool> {
        let joined = memberships
            .values()
            .filter(|membership| membership.is_joined())
            .count();
        if is_large || !self.conversation.is_large_with(joined as u64) {
            return Ok(is_large);
        }
        self.found(finding::LARGE);
        if self.repair {
            // The lists of the participants come before the flag. Their entries are then checked as those of a large conversation.
            let now = self.admin.clock.now().micros();
            for (user, _) in memberships
                .iter()
                .filter(|(_, membership)| membership.is_joined())
            {
                let mut writes = Writes::of_one_partition();
                self.admin
                    .inboxes
                    .put_large(&mut writes, user, self.id(), now);
                self.admin.executor.write_all(writes).await?;
            }
            let mut writes = Writes::logged();
            self.admin.participants.put_is_large(&mut writes, self.id());
            self.admin.executor.write_all(writes).await?;
        }
        Ok(true)
    }

    async fn head(&mut self, head: &Head, newest: Option<MessageId>) -> Result<ExpectedHead> {
        let stored = head.last.as_ref().map(|last| last.id);
        // A removal leaves the head as it is.
        if stored > newest {
            let removed = self.admin.messages.removed_up_to(self.id()).await?;
            if stored.is_some_and(|stored| stored.order_key() > removed) {
                self.found(finding::AHEAD);
            }
        }
        let last = match newest.filter(|newest| stored < Some(*newest)) {
            Some(newest) => {
                let found = skip_damaged(
                    self.admin
                        .messages
                        .find_message(self.id(), newest, None)
                        .await,
                )?;
                found.map(|(message, bucket)| LastMessage {
                    id: message.id,
                    bucket,
                    sender: message.sender,
                })
            }
            None => head.last.clone(),
        };
        let follows = last.as_ref().map(|last| last.id.moment());
        let activity = follows
            .max(head.last_activity)
            .unwrap_or(self.conversation.created_at);
        if stored < newest || head.last_activity < follows {
            self.found(finding::HEAD);
            if self.repair {
                let mut writes = Writes::of_one_partition();
                self.admin.messages.put_head(
                    &mut writes,
                    self.id(),
                    last.as_ref(),
                    None,
                    Some(activity),
                );
                self.admin.executor.write_all(writes).await?;
            }
        }
        Ok(ExpectedHead { last, activity })
    }

    async fn entry(
        &self,
        user: &UserId,
        membership: &Membership,
        expected: &ExpectedHead,
        mentions: &ExpectedMentions,
        is_large: bool,
    ) -> Result<Findings> {
        type Columns = (
            Option<Vec<u8>>,
            Option<Vec<u8>>,
            Option<i64>,
            Option<Vec<u8>>,
        );
        let id = self.id();
        let now = self.admin.clock.now();
        let mut found = Findings::new();
        let mut writes = Writes::logged();
        let row: Option<Columns> = self
            .admin
            .executor
            .read_one(&SELECT_ENTRY, values![user, id])
            .await?;
        let (given, last, activity, mentioned_up_to) = row.unwrap_or_default();
        let given = given
            .map(|bytes| decode_membership("inbox_by_user", &bytes))
            .transpose()?;
        let example = || format!("that of {user}, conversation {id}");
        // The role in an entry is not used.
        if !given.is_some_and(|given| given.is_joined()) {
            found.push((finding::ENTRY, example()));
            self.admin
                .inboxes
                .put_membership(&mut writes, user, id, membership, now.micros());
        }
        let last = last
            .map(|bytes| LastMessage::decode("inbox_by_user", &bytes))
            .transpose()?
            .map(|last| last.id);
        let activity = activity.map(Timestamp::from_micros);
        if !is_large
            && (last < expected.last.as_ref().map(|last| last.id)
                || activity < Some(expected.activity))
        {
            found.push((finding::BEHIND, example()));
            self.admin.inboxes.put_entry(
                &mut writes,
                user,
                id,
                expected.last.as_ref(),
                Some(expected.activity),
                None,
            );
        }
        let mentioned_up_to = mentioned_up_to
            .map(|bytes| order_key("inbox_by_user", &bytes))
            .transpose()?;
        if let Some(mention) = mentions.uncovered(user, mentioned_up_to) {
            found.push((finding::MENTION_BEHIND, example()));
            let inboxes = &self.admin.inboxes;
            inboxes.put_mentioned_up_to(&mut writes, user, id, mention);
        }
        let listed_at = activity
            .max(Some(expected.activity))
            .unwrap_or(expected.activity);
        if !self.is_listed(user, listed_at, is_large).await? {
            found.push((finding::HINT, example()));
            let inboxes = &self.admin.inboxes;
            if is_large {
                inboxes.put_large(&mut writes, user, id, now.micros());
            } else {
                inboxes.put_hint_at(&mut writes, user, id, listed_at, now.micros());
            }
        }
        if self.repair {
            self.admin.executor.write_all(writes).await?;
        }
        Ok(found)
    }

    /// Whether a page of the user's inbox finds the conversation.
    async fn is_listed(&self, user: &UserId, at: Timestamp, is_large: bool) -> Result<bool> {
        let (admin, id) = (self.admin, self.id());
        if is_large {
            return Ok(!admin.inboxes.large_among(user, &[id]).await?.is_empty());
        }
        let values = values![user, slot_of(at), id];
        let hint = admin
            .executor
            .read_one::<(Option<i64>,)>(&SELECT_HINT, values);
        Ok(hint.await?.is_some())
    }

    async fn count(&mut self, count: u64) -> Result<()> {
        let counted = self.admin.messages.message_counts(&[self.id()]).await?;
        if counted != [count] {
            self.found(finding::COUNT);
            if self.repair {
                self.admin.messages.invalidate_counts(self.id()).await?;
            }
        }
        Ok(())
    }

    /// Compares the list of pins with the messages, which decide.
    async fn pins(&mut self, mut expected: BTreeMap<MessageId, Pin>) -> Result<()> {
        let (id, messages) = (self.id(), &self.admin.messages);
        let now = self.admin.clock.now().micros();
        let mut writes = Vec::new();
        for (message, pin) in messages.pins(id).await? {
            if !pin.is_on {
                continue;
            }
            match expected.get(&message) {
                Some(there) if *there == pin => {
                    expected.remove(&message);
                }
                Some(_) => {}
                None => {
                    let what = format!("{message}, conversation {id}");
                    self.findings.push((finding::PIN_STRAY, what));
                    let end = Pin {
                        is_on: false,
                        ..pin
                    };
                    writes.push((message, end));
                }
            }
        }
        for (message, pin) in expected {
            let what = format!("{message}, conversation {id}");
            self.findings.push((finding::PIN, what));
            writes.push((message, pin));
        }
        if self.repair {
            for piece in writes.chunks(PINS_MAX) {
                let mut batch = Writes::of_one_partition();
                for (message, pin) in piece {
                    messages.put_listed_pin(&mut batch, (id, *message), pin, now);
                }
                self.admin.executor.write_all(batch).await?;
            }
        }
        Ok(())
    }

    async fn pair(&mut self, memberships: &BTreeMap<UserId, Membership>) -> Result<()> {
        if self.conversation.kind != ConversationKind::Direct {
            return Ok(());
        }
        let users: Vec<_> = memberships.keys().collect();
        let Some((one, other)) = pair::of_stored(self.id(), &users) else {
            return Ok(());
        };
        let pair = pair_key(one, other);
        match self.admin.participants.conversation_of_pair(&pair).await? {
            Some(stored) if stored == self.id() => {}
            Some(_) => self.found(finding::TWICE),
            None => {
                self.found(finding::PAIR);
                if self.repair {
                    self.admin.participants.claim_pair(&pair, self.id()).await?;
                }
            }
        }
        Ok(())
    }
}
