//! List of a conversation's pins, as one value: however many pins have ended, a reader meets none of them.
//!
//! The registers in the messages decide.

use std::collections::BTreeMap;

use crate::model::{MessageId, Pin, UserId};
use crate::store::{Error, Result};

const TABLE: &str = "pinned_by_conversation";
const VERSION: u8 = 1;

/// The pins of a conversation that are on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::store) struct PinList(BTreeMap<MessageId, Pin>);

impl PinList {
    pub(in crate::store) fn of(pins: impl IntoIterator<Item = (MessageId, Pin)>) -> Self {
        let mut list = Self::default();
        for (message, pin) in pins {
            list.set(message, &pin);
        }
        list
    }

    /// Sets the pin of a message, or removes it if it has ended. A register: of two changes, the later one stays.
    pub(in crate::store) fn set(&mut self, message: MessageId, pin: &Pin) {
        let present = self.0.get(&message);
        if present.is_some_and(|present| present.change > pin.change) {
            return;
        }
        if pin.is_on {
            self.0.insert(message, pin.clone());
        } else {
            self.0.remove(&message);
        }
    }

    pub(in crate::store) fn remove(&mut self, message: MessageId) {
        self.0.remove(&message);
    }

    /// Puts [`UserId::erased`] in the place of a user.
    pub(in crate::store) fn erase(&mut self, user: &UserId) {
        for pin in self.0.values_mut().filter(|pin| pin.by == *user) {
            pin.by = UserId::erased();
        }
    }

    pub(in crate::store) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::store) fn has_up_to(&self, message: MessageId) -> bool {
        self.0.range(..=message).next().is_some()
    }

    /// Removes the pins of the messages up to one.
    pub(in crate::store) fn remove_up_to(&mut self, message: MessageId) {
        self.0 = self.0.split_off(&message);
        self.0.remove(&message);
    }

    pub(in crate::store) fn into_pins(self) -> Vec<(MessageId, Pin)> {
        self.0.into_iter().collect()
    }

    pub(in crate::store) fn encode(&self) -> Vec<u8> {
        postcard::to_extend(&self.0, vec![VERSION]).expect("plain data serialises")
    }

    pub(in crate::store) fn decode(bytes: &[u8]) -> Result<Self> {
        let corrupt = |cause| Error::Corrupt {
            table: TABLE,
            cause,
        };
        let Some((&VERSION, body)) = bytes.split_first() else {
            return Err(corrupt("a list of pins begins with its version".into()));
        };
        let pins = postcard::from_bytes(body).map_err(|error| corrupt(Box::new(error)))?;
        Ok(Self(pins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ChangeId, Timestamp, UserId};

    fn pin(micros: i64, is_on: bool) -> Pin {
        Pin {
            change: ChangeId::new(Timestamp::from_micros(micros), [3; 8]),
            by: UserId::parse("ann").unwrap(),
            is_on,
        }
    }

    fn message(micros: i64) -> MessageId {
        MessageId::new(Timestamp::from_micros(micros), [0; 8])
    }

    #[test]
    fn of_two_changes_of_a_pin_the_later_one_stays_in_whatever_order_they_come() {
        let mut list = PinList::of([(message(1), pin(5, true)), (message(2), pin(6, true))]);
        list.set(message(1), &pin(4, false));
        list.set(message(2), &pin(7, false));
        list.set(message(3), &pin(8, false));
        assert_eq!(list, PinList::of([(message(1), pin(5, true))]));
        assert_eq!(PinList::decode(&list.encode()).unwrap(), list);
        list.remove_up_to(message(1));
        assert_eq!(list, PinList::default());
        assert!(PinList::decode(&[]).is_err() && PinList::decode(&[VERSION + 1, 0]).is_err());
    }
}
