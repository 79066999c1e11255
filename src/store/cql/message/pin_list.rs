//! List of a conversation's pins that are on: one cell, which changes by lightweight transactions (compare-and-set, retried).
//!
//! A table of living rows would hold a tombstone for each ended one. A pin is listed before its registers are written, and an
//! end of one is taken out after that: a server that ends in between leaves an entry whose message is not pinned, which
//! readers pass over.
//!
//! Version 0.2 knows no list. A conversation has one from the first change of a pin after `wideroom migrate --finish` on,
//! and until then its registers are read.

use scylla::value::Row;

use super::Messages;
use crate::model::{ConversationId, MessageId, Pin};
use crate::store::cql::driver::error::unavailable;
use crate::store::cql::driver::statement::statements;
use crate::store::cql::driver::upgrade::form_version;
use crate::store::cql::driver::value::values;
use crate::store::rules::pin_list::PinList;
use crate::store::{FormVersion, Result};

/// Attempts while other servers change the same list.
const TRIES_MAX: usize = 16;

statements! {
    SELECT_PIN_LIST: Read "SELECT pins FROM pinned_by_conversation WHERE conversation_id = ?";
    ADD_PIN_LIST: Conditional "INSERT INTO pinned_by_conversation (conversation_id, pins) VALUES (?, ?) IF NOT EXISTS";
    SWAP_PIN_LIST: Conditional "UPDATE pinned_by_conversation SET pins = ? WHERE conversation_id = ? IF pins = ?";
}

impl Messages {
    /// The pins of a conversation, and before it has a list some that have ended.
    pub(crate) async fn pins(&self, conversation: ConversationId) -> Result<Vec<(MessageId, Pin)>> {
        match self.pin_list_bytes(conversation).await? {
            Some(bytes) => Ok(PinList::decode(&bytes)?.into_pins()),
            None => self.pin_registers(conversation).await,
        }
    }

    /// Puts pins in the list of their conversation, or takes ended ones out.
    pub(crate) async fn list_pins(
        &self,
        conversation: ConversationId,
        pins: &[(MessageId, Pin)],
    ) -> Result<()> {
        let set = |list: &mut PinList| pins.iter().for_each(|(id, pin)| list.set(*id, pin));
        self.change_pin_list(conversation, set).await
    }

    /// Changes the list of a conversation. It begins with the registers, once every server knows lists.
    pub(crate) async fn change_pin_list(
        &self,
        conversation: ConversationId,
        change: impl Fn(&mut PinList),
    ) -> Result<()> {
        for _ in 0..TRIES_MAX {
            let seen = self.pin_list_bytes(conversation).await?;
            let before = match &seen {
                Some(bytes) => PinList::decode(bytes)?,
                None if form_version(&self.executor).await? < FormVersion::PIN_LISTS => {
                    return Ok(());
                }
                None => PinList::of(self.pin_registers(conversation).await?),
            };
            let mut list = before.clone();
            change(&mut list);
            let refused: Option<Row> = match seen {
                Some(_) if list == before => None,
                None if list == before && list.is_empty() => None,
                Some(seen) => {
                    let values = values![list.encode(), conversation, seen];
                    self.executor.write_if(&SWAP_PIN_LIST, values).await?
                }
                None => {
                    let values = values![conversation, list.encode()];
                    self.executor.write_if(&ADD_PIN_LIST, values).await?
                }
            };
            if refused.is_none() {
                return Ok(());
            }
        }
        Err(unavailable(
            "the pins of a conversation change all the time",
        ))
    }

    async fn pin_list_bytes(&self, conversation: ConversationId) -> Result<Option<Vec<u8>>> {
        let values = values![conversation];
        self.executor.read_cell(&SELECT_PIN_LIST, values).await
    }
}
