//! Verification of one conversation: everything derived from its messages and participants.
//!
//! Registers are maxima: one that is behind is advanced; one that is ahead of the history cannot go back and is only reported.

use std::collections::BTreeMap;

use futures_util::future::try_join3;

use super::Admin;
use super::verify::skip_damaged;
use super::verify_participant::ExpectedMentions;
use crate::model::{AppKeyClaim, Conversation, ConversationId, MessageId, Pin, Timestamp};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::executor::concurrently;
use crate::store::cql::inbox::mention::Mentioned;
use crate::store::cql::message::bucket::last_message::LastMessage;
use crate::store::cql::message::conversation::Head;
use crate::store::rules::finding;
use crate::store::rules::pin_list::PinList;
use crate::store::rules::verification::VerifiedHistory;
use crate::store::{Result, Verified};

/// Pins of one write.
const PINS_MAX: usize = 64;
/// Messages of one read, each with its content.
const MESSAGES_MAX: usize = 200;

pub(super) struct ConversationCheck<'a> {
    pub(super) admin: &'a Admin,
    pub(super) conversation: &'a Conversation,
    pub(super) repair: bool,
    pub(super) verified: Verified,
}

/// The messages of a conversation, read with their contents.
#[derive(Default)]
struct History {
    verified: VerifiedHistory,
    /// The newest mention of each user who is named, and of everyone.
    mentions: BTreeMap<Mentioned, MessageId>,
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
) -> Result<Verified> {
    let id = conversation.id;
    let mut check = ConversationCheck {
        admin,
        conversation,
        repair,
        verified: Verified::default(),
    };
    let (head, seen, memberships) = try_join3(
        admin.messages.head(id),
        admin.participants.roster(id),
        admin.participants.memberships(id),
    )
    .await?;
    let History { verified, mentions } = check.history().await?;
    let VerifiedHistory {
        count,
        newest,
        pins,
    } = verified;
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
    let found = concurrently(entries).await?;
    let found = found.into_iter().flatten();
    check.verified.findings.extend(found);
    check.count(count).await?;
    check.pair(&memberships).await?;
    check.app_key().await?;
    check.pins(pins).await?;
    if repair && !check.verified.findings.is_empty() {
        admin.sends.invalidate(id);
    }
    check.verified.looked_at = 1 + count + memberships.len() as u64;
    Ok(check.verified)
}

impl ConversationCheck<'_> {
    async fn history(&mut self) -> Result<History> {
        let (admin, id, now) = (self.admin, self.id(), self.admin.clock.now());
        let mut history = History::default();
        loop {
            let after = history.verified.newest;
            let page = admin.all_messages(id, after, MESSAGES_MAX).await?;
            let is_last = page.len() < MESSAGES_MAX;
            let add = |message| {
                self.verified
                    .add_message(&mut history.verified, id, message, now)
            };
            let mentioning: Vec<_> = page.into_iter().filter_map(add).collect();
            for message in &mentioning {
                let named = Mentioned::of(message).into_iter();
                history.mentions.extend(named.map(|one| (one, message.id)));
            }
            let found = admin.check_mentions(&mentioning, self.repair).await?;
            self.verified.findings.extend(found);
            if is_last {
                return Ok(history);
            }
        }
    }

    pub(super) fn id(&self) -> ConversationId {
        self.conversation.id
    }

    pub(super) fn found(&mut self, what: &'static str) {
        self.verified.found(what, self.id().to_string(), false);
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
                writes.put_head(self.id(), last.as_ref(), None, Some(activity));
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
        self.verified.found(what, example, false);
        if self.repair && what == finding::APP_KEY {
            let claim = AppKeyClaim::of(self.conversation);
            messages.claim_app_key(&key, claim).await?;
        }
        Ok(())
    }

    async fn pins(&mut self, expected: BTreeMap<MessageId, Pin>) -> Result<()> {
        let (id, messages) = (self.id(), &self.admin.messages);
        let now = self.admin.clock.now().micros();
        let listed = messages.pins(id).await?;
        let wrong = self.verified.check_pins(id, listed, expected);
        if self.repair {
            for piece in wrong.chunks(PINS_MAX) {
                let mut batch = Writes::of_one_partition();
                for (message, pin) in piece {
                    batch.put_listed_pin((id, *message), pin, now);
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
