//! Verification of a conversation: the rules that compare its derived rows with its messages and participants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::finding;
use crate::model::{
    Ban, ConversationId, Membership, MembershipState, Mentions, Message, MessageId, Pin, Timestamp,
    UserId,
};
use crate::store::{DAMAGED_MESSAGE, StoredMessage, Verified};

/// The messages of a conversation.
#[derive(Default)]
pub(in crate::store) struct VerifiedHistory {
    pub(in crate::store) count: u64,
    pub(in crate::store) newest: Option<MessageId>,
    /// Pins of messages that are pinned.
    pub(in crate::store) pins: BTreeMap<MessageId, Pin>,
}

impl Verified {
    /// Adds a message to its history. Returns it if it has mentions, which are forgotten after a time.
    pub(in crate::store) fn add_message(
        &mut self,
        history: &mut VerifiedHistory,
        id: ConversationId,
        stored: StoredMessage,
        now: Timestamp,
    ) -> Option<Arc<Message>> {
        history.count += 1;
        history.newest = history.newest.max(Some(stored.id));
        let message = match stored.message {
            Ok(message) => message,
            Err(why) => {
                let example = format!("{}, conversation {id}: {why}", stored.id);
                self.found(DAMAGED_MESSAGE, example, false);
                return None;
            }
        };
        let pin = message.current_pin().cloned();
        history.pins.extend(pin.map(|pin| (message.id, pin)));
        let expires_at = message.id.moment().plus_micros(Mentions::LIFETIME_MICROS);
        (message.mentions().is_some() && expires_at > now).then_some(message)
    }

    /// Compares the list of pins with the messages, which decide. Returns the pins to put in the list, and ended ones
    /// to take out.
    pub(in crate::store) fn check_pins(
        &mut self,
        id: ConversationId,
        listed: Vec<(MessageId, Pin)>,
        mut expected: BTreeMap<MessageId, Pin>,
    ) -> Vec<(MessageId, Pin)> {
        let mut wrong = Vec::new();
        for (message, pin) in listed.into_iter().filter(|(_, pin)| pin.is_on) {
            match expected.get(&message) {
                Some(there) if *there == pin => drop(expected.remove(&message)),
                Some(_) => {}
                None => {
                    let example = format!("{message}, conversation {id}");
                    self.found(finding::PIN_STRAY, example, false);
                    let is_on = false;
                    wrong.push((message, Pin { is_on, ..pin }));
                }
            }
        }
        for (message, pin) in expected {
            let example = format!("{message}, conversation {id}");
            self.found(finding::PIN, example, false);
            wrong.push((message, pin));
        }
        wrong
    }

    /// The list of bans and the memberships agree on who is banned. Returns the users to take out of the list, which
    /// forgets an ended ban sooner or later.
    pub(in crate::store) fn check_bans(
        &mut self,
        id: ConversationId,
        mut listed: Vec<Ban>,
        memberships: &BTreeMap<UserId, Membership>,
        now: Timestamp,
    ) -> Vec<UserId> {
        let names: BTreeSet<_> = listed.iter().map(|ban| &ban.user).collect();
        let banned = memberships.iter().filter(|(_, one)| one.is_banned_at(now));
        let missing = banned
            .map(|(user, _)| user)
            .filter(|user| !names.contains(user));
        let missing: Vec<_> = missing.collect();
        listed.retain(|ban| {
            let membership = memberships.get(&ban.user);
            let banned = membership.filter(|one| one.state == MembershipState::Banned);
            banned.is_none_or(|one| ban.holds_at(now) && !one.is_banned_at(now))
        });
        for ban in &listed {
            let example = format!("that of {}, conversation {id}", ban.user);
            self.found(finding::BAN, example, false);
        }
        for user in missing {
            let example = format!("{user}, conversation {id}");
            self.found(finding::BAN_MISSING, example, false);
        }
        listed.into_iter().map(|ban| ban.user).collect()
    }
}
