//! What a write leaves in inboxes: who was active where, and what changed there. Blind writes, for the batch of whatever caused them.

use crate::model::{ChangeId, ConversationId, OrderKey, Timestamp, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::cells;
use crate::store::cql::message::register::{LastMessage, REGISTER_TIMESTAMP};

/// A hint says that a conversation was active in this hour.
const SLOT_MICROS: i64 = 3_600 * 1_000_000;
/// A send within so long of the last hint in the same hour writes none: an entry stands so much later than its hint at most.
pub(crate) const HINT_LAG_MICROS: i64 = 2_000_000;
const DAY_MICROS: i64 = 24 * SLOT_MICROS;

statements! {
    /// The statements of this file.
    Statements {
        last_message: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET last_message = ?, last_activity = ? WHERE user_id = ? AND conversation_id = ?";
        sent: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET sent_up_to = ? WHERE user_id = ? AND conversation_id = ?";
        hint: Write "INSERT INTO inbox_activity_by_user (user_id, slot, conversation_id, last_activity) VALUES (?, ?, ?, ?) USING TIMESTAMP ?";
        forget_hint: Write "DELETE FROM inbox_activity_by_user USING TIMESTAMP ? WHERE user_id = ? AND slot = ? AND conversation_id = ?";
        change: Write "INSERT INTO changes_by_user (user_id, day, change_id, kind, conversation_id) VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?";
    }
}

/// What changed an inbox besides new messages. Never reordered: stores keep the place in this list.
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

/// The latest moment at which an entry with this hint may stand, unless it has another one.
pub(crate) fn latest_by_hint(slot: i32, activity: Timestamp) -> Timestamp {
    let end = (i64::from(slot) + 1) * SLOT_MICROS;
    activity.max(activity.plus_micros(HINT_LAG_MICROS).min(Timestamp::from_micros(end - 1)))
}

pub(crate) fn day_of(moment: Timestamp) -> i32 {
    i32::try_from(moment.micros() / DAY_MICROS).expect("the year 9999 has a day that fits")
}

impl Inner {
    /// A user's entry has this last message, unless it has a later one. The row is made where there is none.
    pub(crate) fn raise(
        &self,
        writes: &mut Writes,
        user: &UserId,
        conversation: ConversationId,
        last: Option<&LastMessage>,
        activity: Timestamp,
    ) {
        let values = cells![REGISTER_TIMESTAMP, last.map(LastMessage::encode), activity, user, conversation];
        writes.push(&self.statements.raise.last_message, values);
    }

    /// The user sent up to there.
    pub(crate) fn raise_sent(&self, writes: &mut Writes, sender: &UserId, conversation: ConversationId, up_to: OrderKey) {
        writes.push(&self.statements.raise.sent, cells![REGISTER_TIMESTAMP, up_to, sender, conversation]);
    }

    /// The conversation was active for this user in the hour of `activity`.
    pub(crate) fn hint(&self, writes: &mut Writes, user: &UserId, conversation: ConversationId, activity: Timestamp) {
        let values = cells![user, slot_of(activity), conversation, activity, activity];
        writes.push(&self.statements.raise.hint, values);
    }

    /// The same for one that is missing, whenever it was lost.
    pub(crate) fn hint_again(&self, writes: &mut Writes, user: &UserId, id: ConversationId, activity: Timestamp, now: Timestamp) {
        writes.push(&self.statements.raise.hint, cells![user, slot_of(activity), id, activity, now]);
    }

    /// The hint of an earlier hour is not wanted any more. `at` is the moment of the message that made it so: a hint that comes late and
    /// is older than that stays away.
    pub(crate) fn forget_hint(&self, writes: &mut Writes, user: &UserId, conversation: ConversationId, slot: i32, at: Timestamp) {
        writes.push(&self.statements.raise.forget_hint, cells![at, user, slot, conversation]);
    }

    pub(crate) fn log_inbox_change(
        &self,
        writes: &mut Writes,
        user: &UserId,
        conversation: ConversationId,
        id: ChangeId,
        kind: InboxChangeKind,
    ) {
        let values = cells![user, day_of(id.moment()), id, kind as i8, conversation, id.moment()];
        writes.push(&self.statements.raise.change, values);
    }
}
