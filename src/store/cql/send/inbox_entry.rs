//! Writes of a user to their own inbox entries: read markers, delivery receipts and flags.

use super::Sends;
use crate::model::{ActPosition, ConversationId, Flags, OrderKey, UserId};
use crate::store::cql::driver::executor::batch::Writes;
use crate::store::cql::inbox::writes::InboxChangeKind;
use crate::store::{Error, FlagsChange, MarkerMove, Result};

impl Sends {
    pub(crate) async fn move_read_marker(&self, user: &UserId, to: &MarkerMove) -> Result<()> {
        if user.is_agent() {
            return Ok(());
        }
        let mut writes = Writes::logged();
        writes.put_marker(user, to.conversation, to.marker);
        if let Some(up_to) = to.read_up_to {
            let act = ActPosition {
                up_to,
                is_by_service: to.is_by_service,
            };
            writes.put_receipts(to.conversation, user, Some(act), None);
        }
        writes.put_inbox_change(
            user,
            to.conversation,
            to.change,
            InboxChangeKind::MarkerMoved,
        );
        self.executor.write_all(writes).await
    }

    pub(crate) async fn mark_delivered(
        &self,
        user: &UserId,
        conversation: ConversationId,
        up_to: OrderKey,
    ) -> Result<()> {
        if user.is_agent() {
            return Ok(());
        }
        let mut writes = Writes::of_one_partition();
        writes.put_receipts(conversation, user, None, Some(up_to));
        self.executor.write_all(writes).await
    }

    pub(crate) async fn set_flags(&self, user: &UserId, to: &FlagsChange) -> Result<Option<Flags>> {
        if user.is_agent() {
            return Ok(None);
        }
        let Some(before) = self.inboxes.flags(user, to.conversation).await? else {
            return Ok(None);
        };
        if to.apply(before.flags) == before.flags {
            return Ok(None);
        }
        let mut writes = Writes::logged();
        writes.put_flags(user, to, &before);
        writes.put_inbox_change(user, to.conversation, to.change, InboxChangeKind::FlagsSet);
        self.executor.write_all(writes).await?;
        // Includes a flag that another device has set concurrently.
        let after = self
            .inboxes
            .flags(user, to.conversation)
            .await
            .map_err(Error::after_write)?;
        Ok(Some(after.map_or_else(
            || to.apply(before.flags),
            |after| after.flags,
        )))
    }
}
