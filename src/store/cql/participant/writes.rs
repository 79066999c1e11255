//! What joining and leaving write, and what a conversation's own row says: blind writes that several files share.

use crate::model::{ChangeId, ConversationId, GroupName, Membership, OrderKey, ReadMarker, Timestamp, UserId};
use crate::store::cql::Inner;
use crate::store::cql::driver::executor::Writes;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::value::cells;
use crate::store::cql::message::register::{LastMessage, REGISTER_TIMESTAMP, encode_membership};

statements! {
    /// The statements of this file.
    Statements {
        membership: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET membership = ? WHERE user_id = ? AND conversation_id = ?";
        marker: Write "UPDATE inbox_by_user USING TIMESTAMP ? SET read_up_to = ? WHERE user_id = ? AND conversation_id = ?";
        large: Write "INSERT INTO large_conversations_by_user (user_id, conversation_id) VALUES (?, ?) USING TIMESTAMP ?";
        not_large: Write "DELETE FROM large_conversations_by_user USING TIMESTAMP ? WHERE user_id = ? AND conversation_id = ?";
        participant: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET membership = ? WHERE conversation_id = ? AND user_id = ?";
        first_roster: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET members_version = ?, roster = ?, settled = ? WHERE conversation_id = ?";
        settled: Write "UPDATE participants_by_conversation USING TIMESTAMP ? SET settled = ? WHERE conversation_id = ?";
        head: Write "UPDATE conversations USING TIMESTAMP ? SET last_message = ?, newest_change = ?, last_activity = ? WHERE conversation_id = ?";
        flag: Write "UPDATE conversations USING TIMESTAMP ? SET is_large = ? WHERE conversation_id = ?";
        name: Write "UPDATE conversations USING TIMESTAMP ? SET name = ? WHERE conversation_id = ?";
    }
}

impl Inner {
    /// A user's entry is one of a conversation that they are in, or not any more.
    pub(crate) fn put_membership(&self, writes: &mut Writes, user: &UserId, id: ConversationId, membership: &Membership, at: i64) {
        writes.push(&self.statements.joining.membership, cells![at, encode_membership(membership), user, id]);
    }

    pub(crate) fn raise_marker(&self, writes: &mut Writes, user: &UserId, id: ConversationId, marker: ReadMarker) {
        writes.push(&self.statements.joining.marker, cells![REGISTER_TIMESTAMP, marker, user, id]);
    }

    pub(crate) fn put_large(&self, writes: &mut Writes, user: &UserId, id: ConversationId, at: i64) {
        writes.push(&self.statements.joining.large, cells![user, id, at]);
    }

    pub(crate) fn forget_large(&self, writes: &mut Writes, user: &UserId, id: ConversationId, at: i64) {
        writes.push(&self.statements.joining.not_large, cells![at, user, id]);
    }

    /// A participant who is there before every change of the membership.
    pub(crate) fn put_first_participant(&self, writes: &mut Writes, id: ConversationId, user: &UserId, membership: &Membership) {
        let values = cells![REGISTER_TIMESTAMP, encode_membership(membership), id, user];
        writes.push(&self.statements.joining.participant, values);
    }

    /// The roster before every change of the membership.
    pub(crate) fn put_first_roster(&self, writes: &mut Writes, id: ConversationId, version: Option<ChangeId>, roster: Vec<u8>) {
        let values = cells![REGISTER_TIMESTAMP, version, roster, version.map(ChangeId::order_key), id];
        writes.push(&self.statements.joining.first_roster, values);
    }

    /// All that follows from a change of the membership is written.
    pub(crate) fn raise_settled(&self, writes: &mut Writes, id: ConversationId, version: OrderKey) {
        writes.push(&self.statements.joining.settled, cells![REGISTER_TIMESTAMP, version, id]);
    }

    /// Where a conversation stands, unless it stands further.
    pub(crate) fn raise_head(
        &self,
        writes: &mut Writes,
        id: ConversationId,
        last: Option<&LastMessage>,
        newest_change: Option<ChangeId>,
        activity: Option<Timestamp>,
    ) {
        let newest_change = newest_change.map(ChangeId::order_key);
        let values = cells![REGISTER_TIMESTAMP, last.map(LastMessage::encode), newest_change, activity, id];
        writes.push(&self.statements.joining.head, values);
    }

    /// It is large, for good: the flag is never written otherwise.
    pub(crate) fn put_flag(&self, writes: &mut Writes, id: ConversationId) {
        writes.push(&self.statements.joining.flag, cells![REGISTER_TIMESTAMP, true, id]);
    }

    /// Of two names the later one stays: of the greater id, whatever the order of arrival.
    pub(crate) fn put_name(&self, writes: &mut Writes, id: ConversationId, name: &GroupName, at: Timestamp) {
        writes.push(&self.statements.joining.name, cells![at, name.as_str(), id]);
    }
}
