//! Pins of messages.

use super::{MessageId, UserId};
use crate::model::{ChangeId, OrderKey, Timestamp};

/// Last change of a message's pin. A register: of two changes, the one with the greater id stays.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pin {
    pub change: ChangeId,
    /// The user who pinned the message, or unpinned it.
    pub by: UserId,
    pub is_on: bool,
}

impl Pin {
    /// Pinned messages of a conversation.
    pub const COUNT_MAX: usize = 100;
    /// Pinned messages of a conversation, and those that were unpinned within
    /// [`Self::END_LIFETIME_MICROS`].
    pub const KEPT_MAX: usize = 5_000;
    /// Stores forget an unpinned message after this time.
    pub const END_LIFETIME_MICROS: i64 = 35 * 24 * 3_600 * 1_000_000;

    /// The pin of an import.
    pub fn imported(by: UserId, at: Timestamp) -> Self {
        Self {
            change: ChangeId::new(at, [0; 8]),
            by,
            is_on: true,
        }
    }

    /// Bytes of the register: the order key of the change, whether the pin is on, and the name. The
    /// greater bytes are the later change.
    pub fn to_bytes(&self) -> Vec<u8> {
        let key = self.change.order_key().0;
        [
            &key[..],
            &[u8::from(self.is_on)],
            self.by.as_str().as_bytes(),
        ]
        .concat()
    }

    /// `None` for bytes that [`Self::to_bytes`] does not produce.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (change, rest) = bytes.split_first_chunk::<16>()?;
        let (is_on, name) = match rest.split_first()? {
            (is_on @ (0 | 1), name) => (*is_on == 1, name),
            _ => return None,
        };
        Some(Self {
            change: ChangeId::from_order_key(OrderKey(*change))?,
            by: UserId::parse(std::str::from_utf8(name).ok()?).ok()?,
            is_on,
        })
    }
}

/// Key of a pinned message in the list of its conversation, the last pinned first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinKey {
    pub pinned: OrderKey,
    pub message: OrderKey,
}

impl PinKey {
    pub fn of(message: MessageId, pin: &Pin) -> Self {
        Self {
            pinned: pin.change.order_key(),
            message: message.order_key(),
        }
    }
}

impl Ord for PinKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.pinned, other.message).cmp(&(self.pinned, self.message))
    }
}

impl PartialOrd for PinKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(micros: i64, by: &str, is_on: bool) -> Pin {
        Pin {
            change: ChangeId::new(Timestamp::from_micros(micros), [3; 8]),
            by: UserId::parse(by).unwrap(),
            is_on,
        }
    }

    #[test]
    fn a_pin_survives_its_bytes() {
        for one in [pin(7, "ann", true), pin(8, "żółw", false)] {
            assert_eq!(Pin::from_bytes(&one.to_bytes()), Some(one));
        }
        let mut bytes = pin(7, "ann", true).to_bytes();
        bytes[16] = 2;
        assert_eq!(Pin::from_bytes(&bytes), None);
        assert_eq!(Pin::from_bytes(&bytes[..16]), None);
    }

    #[test]
    fn a_later_pin_has_greater_bytes_and_stands_before_an_earlier_one() {
        let (early, late) = (pin(7, "zoe", true), pin(300, "ann", false));
        assert!(early.to_bytes() < late.to_bytes());
        let message = MessageId::new(Timestamp::from_micros(1), [0; 8]);
        assert!(PinKey::of(message, &late) < PinKey::of(message, &early));
    }
}
