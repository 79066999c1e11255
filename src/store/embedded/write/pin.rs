//! Pins in the embedded store: one row with the list of a conversation, and the register in each message itself.
//!
//! Version 0.2 has a row for each pin. Ended ones were deleted, and a scan passes over them until a compaction. The first
//! change of a pin puts those that are on in the list.

use std::sync::Arc;

use super::compare_and_set::{Plan, state_write};
use super::revision;
use crate::model::{Change, ConversationId, Direction, Message, MessageId, Pin};
use crate::store::Result;
use crate::store::embedded::cache::state::ConversationState;
use crate::store::embedded::engine::committer::{Condition, Op, Rows, Write};
use crate::store::embedded::engine::db::{InTable, View};
use crate::store::embedded::engine::key::{self, Key};
use crate::store::embedded::engine::record;
use crate::store::embedded::message;
use crate::store::embedded::read_context::ReadContext;
use crate::store::rules::pin_list::PinList;

const TABLE: &str = "pins_by_conversation";

/// Plans a pin, on the condition that the head is that of `state`: no concurrent deletion slips in.
pub(crate) fn plan(
    context: &ReadContext,
    state: &ConversationState,
    id: ConversationId,
    is_on: bool,
    change: &Change,
) -> Result<Plan<Option<Arc<Message>>>> {
    let Some(present) = context.view().message(id, change.message)? else {
        return Ok((None, None));
    };
    if present.deleted_at.is_some() {
        return Ok((Some(Arc::new(present)), None));
    }
    let pin = Pin {
        change: change.id,
        by: change.user.clone(),
        is_on,
    };
    let mut list = PinListChange::begin(&context.view(), id)?;
    list.pins.set(change.message, &pin);
    let message = Message {
        pin: Some(Box::new(pin)),
        ..present
    };
    let mut ops = vec![message::put(&message)];
    ops.extend(revision::log(id, change));
    let changes = std::slice::from_ref(change);
    ops.extend(context.outbox.put_changes(id, changes));
    let mut write = state_write(context, state, state.changed(change.id), ops, change.id);
    list.add_to(&mut write);
    Ok((Some(Arc::new(message)), Some(write)))
}

/// The pins of a conversation that are on.
pub(crate) fn pins(
    context: &ReadContext,
    conversation: ConversationId,
) -> Result<Vec<(MessageId, Pin)>> {
    let list = PinListChange::begin(&context.view(), conversation)?.pins;
    Ok(list.into_pins())
}

/// Change of the list of a conversation, on the condition that it is as it was read.
pub(crate) struct PinListChange {
    pub(crate) key: Key,
    before: Option<Vec<u8>>,
    /// Rows of version 0.2, which go once the list has their pins.
    earlier: Vec<Key>,
    pub(crate) pins: PinList,
}

impl PinListChange {
    pub(crate) fn begin(view: &View<'_>, id: ConversationId) -> Result<Self> {
        let key = key::pin_list(id);
        if let Some(bytes) = view.get(&key)? {
            return Ok(Self {
                key,
                before: Some(bytes.to_vec()),
                earlier: Vec::new(),
                pins: PinList::decode(&bytes)?,
            });
        }
        let (mut earlier, mut pins) = (Vec::new(), PinList::default());
        for row in view.scan(key::pins(id), Direction::Forward) {
            let (bytes, value) = row?;
            let message = key::pinned_of(&bytes).in_table(TABLE)?;
            let pin: Pin = record::decode(&value).in_table(TABLE)?;
            pins.set(message, &pin);
            earlier.push(Key::of_row(&bytes));
        }
        Ok(Self {
            key,
            before: None,
            earlier,
            pins,
        })
    }

    pub(crate) fn add_to(self, write: &mut Write) {
        let key = self.key.clone();
        write
            .conditions
            .push(Condition::unchanged(key, self.before));
        write.ops.push(Op::Put(self.key, self.pins.encode()));
        write.ops.extend(self.earlier.into_iter().map(Op::Delete));
    }

    /// The rows to write and to delete, of an import, which has a condition of its own.
    pub(crate) fn into_rows(self) -> Rows {
        let earlier = self.earlier.into_iter().map(|key| (key, None));
        let list = (self.key, Some(self.pins.encode()));
        earlier.chain([list]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::model::{
        ChangeKind, Content, Conversation, ConversationKind, MessageKind, Role, TimeUuid,
        Timestamp, UserId,
    };
    use crate::store::embedded::{Embedded, Options};
    use crate::store::{NewConversation, NewMessage, Store as _};

    fn id(micros: i64) -> TimeUuid {
        let start = Timestamp::from_micros(1_767_225_600_000_000);
        TimeUuid::new(start.plus_micros(micros), [0; 8])
    }

    async fn with_messages(store: &Embedded, on: ConversationId, ann: &UserId) {
        let conversation = Conversation {
            id: on,
            kind: ConversationKind::Group,
            name: None,
            created_at: id(0).moment(),
            created_by: None,
            input_hash: None,
            slow_mode_seconds: 0,
            history: Default::default(),
            is_large: false,
        };
        let new = NewConversation {
            conversation,
            participants: vec![(ann.clone(), Role::Owner)],
            change: id(0),
            profile: Default::default(),
        };
        store.create_conversation(&new).await.unwrap();
        for micros in [1, 2] {
            let kind = MessageKind::Text;
            let message = Message::new(on, id(micros), ann.clone(), kind, Content::default());
            let new = NewMessage {
                message: Arc::new(message),
                input_hash: None,
                is_by_service: false,
            };
            store.append_messages(on, &[new]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn pins_of_an_earlier_version_are_read_and_move_into_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            free_bytes_min: 0,
            ..Options::new(folder.path())
        };
        let store = Embedded::open(options, Arc::new(SystemClock)).await;
        let store = store.unwrap();
        let (on, ann) = (ConversationId::random(), UserId::parse("ann").unwrap());
        with_messages(&store, on, &ann).await;
        let change = |micros: i64, message: i64| Change {
            id: id(micros),
            kind: ChangeKind::PinsChanged,
            message: id(message),
            user: ann.clone(),
        };
        store.pin_message(on, true, &change(5, 1)).await.unwrap();
        // As version 0.2 has it: a row, and no list.
        let mut bytes = key::pins(on).start;
        bytes.extend(id(1).order_key().0);
        let pins = store.pins(on).await.unwrap();
        let row = Op::Put(Key::of_row(&bytes), record::encode(&pins[0].1));
        let write = Write {
            ops: vec![row, Op::Delete(key::pin_list(on))],
            ..Write::default()
        };
        store.inner.committer.commit(write).await.unwrap();
        assert_eq!(store.pins(on).await.unwrap(), pins);

        store.pin_message(on, true, &change(6, 2)).await.unwrap();
        let listed = store.pins(on).await.unwrap();
        assert_eq!((listed.len(), &listed[0]), (2, &pins[0]));
        let view = store.inner.context.view();
        let earlier = view.scan(key::pins(on), Direction::Forward).count();
        assert_eq!(earlier, 0, "the list has them");
    }
}
