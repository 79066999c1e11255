//! Verification of one conversation: everything derived from its messages and participants.
//!
//! Registers are maxima: one that is behind is advanced; one that is ahead of the history cannot go back and is only reported.

use std::collections::BTreeMap;

use futures_util::future::try_join3;

use super::Admin;
use super::verify::skip_damaged;
use super::verify_participant::ExpectedMentions;
use crate::model::{
    AppKeyClaim, Conversation, ConversationId, Mentions, MessageId, Pin, Timestamp,
};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::inbox::mention::Mentioned;
use crate::store::cql::message::conversation::Head;
use crate::store::cql::message::register::LastMessage;
use crate::store::rules::finding;
use crate::store::rules::pin_list::PinList;
use crate::store::{DAMAGED_MESSAGE, Result, StoredMessage};

/// Pins of one write.
const PINS_MAX: usize = 64;
/// Messages of one read, each with its content.
const MESSAGES_MAX: usize = 200;

/// Findings, each with its conversation or entry.
pub(super) type Findings = Vec<(&'static str, String)>;

/// The findings of one check, and the rows that it read.
pub(super) struct CheckedConversation {
    pub(super) findings: Findings,
    pub(super) rows: u64,
}

pub(super) struct ConversationCheck<'a> {
    pub(super) admin: &'a Admin,
    pub(super) conversation: &'a Conversation,
    pub(super) repair: bool,
    pub(super) findings: Findings,
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
pub(super) struct ExpectedHead {
    pub(super) last: Option<LastMessage>,
    pub(super) activity: Timestamp,
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
        .filter(|(user, membership)| membership.is_joined() && !user.is_agent());
    let entries = joined
        .map(|(user, membership)| check.entry(user, membership, &expected, &mentions, is_large));
    let found = concurrently(entries.collect()).await?;
    check.findings.extend(found.into_iter().flatten());
    check.count(count).await?;
    check.pair(&memberships).await?;
    check.app_key().await?;
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

    pub(super) fn id(&self) -> ConversationId {
        self.conversation.id
    }

    pub(super) fn found(&mut self, what: &'static str) {
        self.findings.push((what, self.id().to_string()));
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

    /// The app key of a conversation is claimed for it. A claim of a conversation that does not exist is no fault: a
    /// server claims the key first.
    async fn app_key(&mut self) -> Result<()> {
        let (id, messages) = (self.id(), &self.admin.messages);
        let profiles = messages.conversation_profiles(&[id]).await?;
        let Some(key) = profiles.into_iter().find_map(|profile| profile.app_key) else {
            return Ok(());
        };
        let what = match messages.app_key_claim(&key).await? {
            Some(claim) if claim.conversation == id => return Ok(()),
            Some(_) => finding::APP_KEY_OF_ANOTHER,
            None => finding::APP_KEY,
        };
        let example = format!("{}, conversation {id}", key.as_str());
        self.findings.push((what, example));
        if self.repair && what == finding::APP_KEY {
            let claim = AppKeyClaim::of(self.conversation);
            messages.claim_app_key(&key, claim).await?;
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
                let repair = |list: &mut PinList| {
                    for (message, pin) in piece {
                        list.remove(*message);
                        list.set(*message, pin);
                    }
                };
                messages.change_pin_list(id, repair).await?;
            }
        }
        Ok(())
    }
}
