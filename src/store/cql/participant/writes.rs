//! Writes to the rows of participants: first memberships and rosters, receipts, and completed changes.

use super::present;
use crate::model::{
    ActPosition, ChangeId, ConversationId, GroupName, HistorySettings, Membership, OrderKey,
    Timestamp, UserId,
};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::{REGISTER_TIMESTAMP, values};
use crate::store::cql::message::conversation::encode_history;
use crate::store::cql::message::membership::encode_membership;

statements! {
    UPDATE_MEMBERSHIP: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET membership = ? WHERE conversation_id = ? AND user_id = ?";
    UPDATE_RECEIPTS: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET read_up_to = ?, delivered_up_to = ? WHERE conversation_id = ? AND user_id = ?";
    UPDATE_FIRST_ROSTER: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET members_version = ?, roster = ?, settled = ? WHERE conversation_id = ?";
    UPDATE_NAME_CELL: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET name = ? WHERE conversation_id = ?";
    UPDATE_IS_LARGE_CELL: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET is_large = ? WHERE conversation_id = ?";
    UPDATE_SLOW_MODE_CELL: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET slow_mode_seconds = ? WHERE conversation_id = ?";
    UPDATE_HISTORY_CELL: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET history = ? WHERE conversation_id = ?";
    UPDATE_SETTLED: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET settled = ? WHERE conversation_id = ?";
    SWAP_MEMBERSHIP: Conditional "UPDATE participants_by_conversation SET membership = ? WHERE conversation_id = ? AND user_id = ?";
    VOID_PRESENT: Conditional "UPDATE participants_by_conversation SET present = ? WHERE conversation_id = ?";
    SWAP_ROSTER: Conditional "UPDATE participants_by_conversation SET roster = ? WHERE conversation_id = ? IF roster = ?";
    SWAP_FIRST_ROSTER: Conditional "UPDATE participants_by_conversation SET roster = ? WHERE conversation_id = ? IF roster = null";
}

impl Writes {
    /// Writes a membership with the lowest timestamp: every later change of it wins.
    pub(crate) fn put_first_membership(
        &mut self,
        id: ConversationId,
        user: &UserId,
        membership: &Membership,
    ) {
        self.push(
            &UPDATE_MEMBERSHIP,
            values![REGISTER_TIMESTAMP, encode_membership(membership), id, user],
        );
    }

    /// Writes a roster with the lowest timestamp: every later change of it wins.
    pub(crate) fn put_first_roster(
        &mut self,
        id: ConversationId,
        version: Option<ChangeId>,
        roster: Vec<u8>,
    ) {
        let values = values![
            REGISTER_TIMESTAMP,
            version,
            roster,
            version.map(ChangeId::order_key),
            id
        ];
        self.push(&UPDATE_FIRST_ROSTER, values);
    }

    /// Replaces the roster if it is still the given one: the condition of a batch to this partition.
    pub(crate) fn swap_roster(
        &mut self,
        id: ConversationId,
        seen: Option<&Vec<u8>>,
        roster: Vec<u8>,
    ) {
        match seen {
            Some(seen) => self.push(&SWAP_ROSTER, values![roster, id, seen.clone()]),
            None => self.push(&SWAP_FIRST_ROSTER, values![roster, id]),
        }
    }

    /// Voids the names of the participants, in a conditional batch.
    pub(crate) fn void_present(&mut self, id: ConversationId) {
        self.push(&VOID_PRESENT, values![present::VOID, id]);
    }

    /// Writes a membership in a conditional batch, with the timestamp of the cluster.
    pub(crate) fn swap_membership(
        &mut self,
        id: ConversationId,
        user: &UserId,
        membership: &Membership,
    ) {
        self.push(
            &SWAP_MEMBERSHIP,
            values![encode_membership(membership), id, user],
        );
    }

    /// Records that all writes of a change of membership are complete.
    pub(crate) fn put_settled(&mut self, id: ConversationId, version: OrderKey) {
        self.push(&UPDATE_SETTLED, values![REGISTER_TIMESTAMP, version, id]);
    }

    /// Names a conversation: in its row, and in the cell that readers of a membership read. Of two names the later one wins.
    pub(crate) fn put_name(&mut self, id: ConversationId, name: &GroupName, at: Timestamp) {
        self.put_name_row(id, name, at);
        self.push(&UPDATE_NAME_CELL, values![at, name.as_str(), id]);
    }

    /// Sets the slow mode of a conversation: in its row, and in the cell that readers of a membership read. Of two
    /// values the later one wins.
    pub(crate) fn put_slow_mode(&mut self, id: ConversationId, seconds: u32, at: i64) {
        let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
        self.put_slow_mode_row(id, seconds, at);
        self.push(&UPDATE_SLOW_MODE_CELL, values![at, seconds, id]);
    }

    /// Sets the settings of a history: in the row of the conversation, and in the cell that readers of a membership
    /// read. Of two values the later one wins.
    pub(crate) fn put_history(&mut self, id: ConversationId, settings: &HistorySettings, at: i64) {
        self.put_history_row(id, settings, at);
        let cell = encode_history(settings);
        self.push(&UPDATE_HISTORY_CELL, values![at, cell, id]);
    }

    /// Marks a conversation as large, for good: in its row, and in the cell that readers of a membership read.
    pub(crate) fn put_is_large(&mut self, id: ConversationId) {
        self.put_is_large_row(id);
        self.push(&UPDATE_IS_LARGE_CELL, values![REGISTER_TIMESTAMP, true, id]);
    }

    /// Advances the receipts of a participant. Both are maximum registers, which other participants see.
    pub(crate) fn put_receipts(
        &mut self,
        id: ConversationId,
        user: &UserId,
        read_up_to: Option<ActPosition>,
        delivered_up_to: Option<OrderKey>,
    ) {
        self.push(
            &UPDATE_RECEIPTS,
            values![REGISTER_TIMESTAMP, read_up_to, delivered_up_to, id, user],
        );
    }
}
