//! Writes to inboxes: entries, markers, activity hints and the change log. All are blind, for the batch of the event that causes them.
//!
//! An agent has no inbox: no function here adds a write under the name of one, whoever calls it. So no partition grows with the
//! conversations of an agent. Deletions of whole entries alone are written, by which a repair drops what earlier versions wrote.

use super::Inboxes;
use crate::model::{
    ActPosition, ChangeId, ConversationId, Membership, MembershipState, NotificationLevel,
    ReadMarker, Timestamp, UserId,
};
use crate::store::Result;
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, values};
use crate::store::cql::message::bucket::last_message::LastMessage;
use crate::store::cql::message::change_log::day_of;
use crate::store::cql::message::membership::encode_membership;

/// The span of an activity hint.
const SLOT_MICROS: i64 = 3_600 * 1_000_000;
/// Days for which the changes of an inbox are kept.
pub(super) const CHANGE_DAYS: i32 = 36;
/// A send within this time of the last hint in the same slot writes none: an entry is at most so much later than its hint.
pub(crate) const HINT_LAG_MICROS: i64 = 2_000_000;

statements! {
    UPDATE_ENTRY: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET last_message = ?, last_activity = ?, sent_up_to = ? WHERE user_id = ? AND conversation_id = ?";
    UPDATE_ENTRY_MEMBERSHIP: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET membership = ? WHERE user_id = ? AND conversation_id = ?";
    UPDATE_READ_MARKER: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET read_up_to = ? WHERE user_id = ? AND conversation_id = ?";
    INSERT_HINT: Write "INSERT INTO inbox_activity_by_user (user_id, slot, conversation_id, last_activity) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
    DELETE_HINT: Write "DELETE FROM inbox_activity_by_user USING TIMESTAMP ? WHERE user_id = ? AND slot = ? AND conversation_id = ?";
    DELETE_ENTRY: Write "DELETE FROM inbox_by_user USING TIMESTAMP ? WHERE user_id = ? AND conversation_id = ?";
    DELETE_HINTS: Write "DELETE FROM inbox_activity_by_user USING TIMESTAMP ? WHERE user_id = ?";
    DELETE_INBOX_CHANGES: Write "DELETE FROM changes_by_user USING TIMESTAMP ? WHERE user_id = ? AND day = ?";
    INSERT_INBOX_CHANGE: Write "INSERT INTO changes_by_user (user_id, day, change_id, kind, conversation_id) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
}

/// The kind of a change of an inbox besides new messages. The discriminants are stored, so the order never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InboxChangeKind {
    ConversationMade,
    MarkerMoved,
    MessageChanged,
    FlagsSet,
    MembershipChanged,
    MessageLate,
}

/// The hour of a moment, counted from 1970.
pub(crate) fn slot_of(moment: Timestamp) -> i32 {
    i32::try_from(moment.micros() / SLOT_MICROS).expect("the year 9999 has an hour that fits")
}

/// The latest moment at which an entry with this hint can be, unless it has another hint.
pub(crate) fn latest_by_hint(slot: i32, activity: Timestamp) -> Timestamp {
    let end = (i64::from(slot) + 1) * SLOT_MICROS;
    activity.max(
        activity
            .plus_micros(HINT_LAG_MICROS)
            .min(Timestamp::from_micros(end - 1)),
    )
}

/// The copy of a membership in an inbox entry. It says whether the user takes part: bans and silences are
/// decided on the membership itself.
pub(crate) fn encode_copy(membership: &Membership) -> Vec<u8> {
    let state = match membership.state {
        MembershipState::Joined => MembershipState::Joined,
        MembershipState::Left | MembershipState::Banned => MembershipState::Left,
    };
    encode_membership(&Membership {
        state,
        since: membership.since,
        ..Membership::joined(membership.role)
    })
}

impl Inboxes {
    /// Deletes the hints of a user, and the logged changes of the inbox.
    pub(crate) async fn erase(&self, user: &UserId, at: Timestamp) -> Result<()> {
        self.executor
            .write(&DELETE_HINTS, values![at, user])
            .await?;
        let today = day_of(at);
        for day in today - CHANGE_DAYS..=today + 1 {
            let values = values![at, user, day];
            self.executor.write(&DELETE_INBOX_CHANGES, values).await?;
        }
        Ok(())
    }
}

impl Writes {
    /// Advances an entry: its last message, its activity, and up to where the user sent. Creates the row if there is none.
    pub(crate) fn put_entry(
        &mut self,
        user: &UserId,
        conversation: ConversationId,
        last: Option<&LastMessage>,
        activity: Option<Timestamp>,
        sent_up_to: Option<ActPosition>,
    ) {
        let at = REGISTER_TIMESTAMP;
        self.put_entry_at(user, conversation, last, activity, sent_up_to, at);
    }

    /// Writes an entry with a timestamp of its own: an import writes a fallback activity below any known one.
    pub(crate) fn put_entry_at(
        &mut self,
        user: &UserId,
        conversation: ConversationId,
        last: Option<&LastMessage>,
        activity: Option<Timestamp>,
        sent_up_to: Option<ActPosition>,
        at: i64,
    ) {
        if user.is_agent() {
            return;
        }
        let last = last.map(LastMessage::encode);
        let values = values![at, last, activity, sent_up_to, user, conversation];
        self.push(&UPDATE_ENTRY, values);
    }

    /// Advances a read marker, a maximum register.
    pub(crate) fn put_marker(&mut self, user: &UserId, id: ConversationId, marker: ReadMarker) {
        if user.is_agent() {
            return;
        }
        self.push(
            &UPDATE_READ_MARKER,
            values![REGISTER_TIMESTAMP, marker, user, id],
        );
    }

    /// Writes the hint that a conversation was active for a user in the hour of `activity`.
    pub(crate) fn put_hint(
        &mut self,
        user: &UserId,
        conversation: ConversationId,
        activity: Timestamp,
    ) {
        self.put_hint_at(user, conversation, activity, activity.micros());
    }

    /// Writes a hint with a timestamp of its own, for an import or a repair.
    pub(crate) fn put_hint_at(
        &mut self,
        user: &UserId,
        id: ConversationId,
        activity: Timestamp,
        at: i64,
    ) {
        if user.is_agent() {
            return;
        }
        self.push(
            &INSERT_HINT,
            values![user, slot_of(activity), id, activity, at],
        );
    }

    /// Deletes the hint of an earlier hour. `at` is the moment of the message that made it obsolete, so that the tombstone also covers an
    /// older hint that arrives late.
    pub(crate) fn delete_hint(
        &mut self,
        user: &UserId,
        conversation: ConversationId,
        slot: i32,
        at: Timestamp,
    ) {
        if user.is_agent() {
            return;
        }
        self.push(&DELETE_HINT, values![at, user, slot, conversation]);
    }

    /// Deletes an entry, with its notification level.
    pub(crate) fn delete_entry(&mut self, user: &UserId, id: ConversationId, at: Timestamp) {
        self.push(&DELETE_ENTRY, values![at, user, id]);
        self.delete_large(user, id, at.micros());
        let levels = (Some(NotificationLevel::All), None);
        self.put_notify_all(user, id, levels, at.micros());
    }

    /// Logs a change of an inbox, for streams that were disconnected.
    pub(crate) fn put_inbox_change(
        &mut self,
        user: &UserId,
        conversation: ConversationId,
        id: ChangeId,
        kind: InboxChangeKind,
    ) {
        if user.is_agent() {
            return;
        }
        let values = values![
            user,
            day_of(id.moment()),
            id,
            kind as i8,
            conversation,
            id.moment()
        ];
        self.push(&INSERT_INBOX_CHANGE, values);
    }

    /// Writes whether a user's entry is that of a conversation which the user is in.
    pub(crate) fn put_entry_membership(
        &mut self,
        user: &UserId,
        id: ConversationId,
        membership: &Membership,
        at: i64,
    ) {
        if user.is_agent() {
            return;
        }
        self.push(
            &UPDATE_ENTRY_MEMBERSHIP,
            values![at, encode_copy(membership), user, id],
        );
    }
}
