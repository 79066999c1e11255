//! Verification of the participants of a conversation: their roster, bans and lists, their entries, and the pair of a direct one.

use std::collections::BTreeMap;

use super::verify_conversation::{ConversationCheck, ExpectedHead};
use crate::model::id::pair_key;
use crate::model::{ConversationKind, Membership, MessageId, OrderKey, Timestamp, UserId};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{order_key, values};
use crate::store::cql::inbox::mention::Mentioned;
use crate::store::cql::inbox::writes::slot_of;
use crate::store::cql::message::bucket::last_message::LastMessage;
use crate::store::cql::message::membership::decode_membership;
use crate::store::cql::participant::present;
use crate::store::cql::participant::roster::{Roster, RosterSnapshot};
use crate::store::rules::{finding, pair};
use crate::store::{Finding, Result};

statements! {
    SELECT_ENTRY: Read "SELECT membership, last_message, last_activity, mentioned_up_to FROM inbox_by_user WHERE user_id = ? AND conversation_id = ?";
    SELECT_HINT: Read "SELECT last_activity FROM inbox_activity_by_user WHERE user_id = ? AND slot = ? AND conversation_id = ?";
}

/// The mentions that the maxima of entries have to cover.
pub(super) struct ExpectedMentions {
    pub(super) newest: BTreeMap<Mentioned, MessageId>,
    /// Maximum in the head of a large conversation, which stands for those of all entries.
    pub(super) everyone_up_to: Option<OrderKey>,
}

impl ExpectedMentions {
    /// The newest mention of a user that no maximum covers.
    fn uncovered(&self, user: &UserId, mentioned_up_to: Option<OrderKey>) -> Option<MessageId> {
        let named = self.newest.get(&Mentioned::User(user.clone()));
        let newest = *named.max(self.newest.get(&Mentioned::Everyone))?;
        (mentioned_up_to.max(self.everyone_up_to) < Some(newest.order_key())).then_some(newest)
    }
}

impl ConversationCheck<'_> {
    pub(super) async fn roster(
        &mut self,
        seen: &RosterSnapshot,
        memberships: &BTreeMap<UserId, Membership>,
    ) -> Result<()> {
        let stored = &seen.roster;
        let truth = Roster::of(self.conversation.kind, stored.version, memberships.iter());
        let names = seen.present.as_ref();
        let is_listed = names.is_none_or(|names| *names == present::joined(memberships));
        if is_listed && stored.participants == truth.participants {
            return Ok(());
        }
        self.found(finding::ROSTER);
        if let (true, Some(bytes)) = (self.repair, &seen.bytes) {
            let mut writes = Writes::of_one_partition();
            let mut roster = stored.clone();
            roster.participants = truth.participants;
            let roster = roster.encode();
            writes.swap_roster(self.id(), Some(bytes), roster);
            writes.void_present(self.id());
            self.admin
                .executor
                .write_all_if::<scylla::value::Row>(writes)
                .await?;
        }
        Ok(())
    }

    pub(super) async fn bans(&mut self, memberships: &BTreeMap<UserId, Membership>) -> Result<()> {
        let (id, now, bans) = (self.id(), self.admin.clock.now(), &self.admin.bans);
        let listed = bans.all(id).await?;
        for user in self.verified.check_bans(id, listed, memberships, now) {
            if self.repair {
                bans.remove(id, &user).await?;
            }
        }
        Ok(())
    }

    /// Whether the conversation is large, or must be.
    pub(super) async fn large(
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
                writes.put_large(user, self.id(), now);
                self.admin.executor.write_all(writes).await?;
            }
            let mut writes = Writes::logged();
            writes.put_is_large(self.id());
            self.admin.executor.write_all(writes).await?;
        }
        Ok(true)
    }

    pub(super) async fn entry(
        &self,
        user: &UserId,
        membership: &Membership,
        expected: &ExpectedHead,
        mentions: &ExpectedMentions,
        is_large: bool,
    ) -> Result<Vec<Finding>> {
        type Columns = (
            Option<Vec<u8>>,
            Option<Vec<u8>>,
            Option<i64>,
            Option<Vec<u8>>,
        );
        let id = self.id();
        let now = self.admin.clock.now();
        let mut found = Vec::new();
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
            found.push(Finding::of(finding::ENTRY, example(), false));
            writes.put_entry_membership(user, id, membership, now.micros());
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
            found.push(Finding::of(finding::BEHIND, example(), false));
            writes.put_entry(
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
            found.push(Finding::of(finding::MENTION_BEHIND, example(), false));
            writes.put_mentioned_up_to(user, id, mention);
        }
        let listed_at = activity
            .max(Some(expected.activity))
            .unwrap_or(expected.activity);
        if !self.is_listed(user, listed_at, is_large).await? {
            found.push(Finding::of(finding::HINT, example(), false));
            if is_large {
                writes.put_large(user, id, now.micros());
            } else {
                writes.put_hint_at(user, id, listed_at, now.micros());
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

    pub(super) async fn pair(&mut self, memberships: &BTreeMap<UserId, Membership>) -> Result<()> {
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
