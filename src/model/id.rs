//! Identity and order: conversation ids, timeuuids, and the order keys by which everything sorts.

use std::fmt;

use uuid::Uuid;

use super::{Timestamp, UserId};

/// 100 ns ticks from 1582-10-15, where a timeuuid's time begins, to 1970-01-01.
const TICKS_BEFORE_1970: u64 = 0x01B2_1DD2_1381_4000;
const TICKS_PER_MICRO: u64 = 10;
const TICKS_MAX: u64 = (1 << 60) - 1;
/// The greatest second half of a timeuuid's order key.
const REST_MAX: u64 = u64::MAX >> 2;

/// The name space of the version 5 ids that are made from names. Never to be changed: ids are for ever.
const NAMESPACE: Uuid = Uuid::from_u128(0x8f6c_2a1e_4b0d_5c3a_9e77_5d1f_60b2_c4e8);

/// A conversation: the partition key of its messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct ConversationId(pub Uuid);

impl ConversationId {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// The direct conversation of two users: the same one whoever asks.
    pub fn direct(one: &UserId, other: &UserId) -> Self {
        Self(Uuid::new_v5(&NAMESPACE, &[b"direct".as_slice(), &pair_key(one, other)].concat()))
    }

    /// The group that this viewer makes with this idempotency key: the same one on each try.
    pub fn group(viewer: &UserId, key: &str) -> Self {
        let mut name = b"group".to_vec();
        push_name(&mut name, viewer.as_str());
        push_name(&mut name, key);
        Self(Uuid::new_v5(&NAMESPACE, &name))
    }
}

/// Two names in byte order, each behind its length: no two pairs share a key.
pub fn pair_key(one: &UserId, other: &UserId) -> Vec<u8> {
    let (first, second) = if one <= other { (one, other) } else { (other, one) };
    let mut key = Vec::with_capacity(first.as_str().len() + second.as_str().len() + 4);
    push_name(&mut key, first.as_str());
    push_name(&mut key, second.as_str());
    key
}

fn push_name(key: &mut Vec<u8>, name: &str) {
    let length = u16::try_from(name.len()).expect("names are bounded when parsed");
    key.extend_from_slice(&length.to_be_bytes());
    key.extend_from_slice(name.as_bytes());
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Sixteen bytes that sort as Cassandra sorts timeuuids: the time, then the other eight bytes as signed ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct OrderKey(pub [u8; 16]);

impl OrderKey {
    /// Before every message.
    pub const MIN: Self = Self([0; 16]);
    pub const MAX: Self = Self([0xff; 16]);

    /// The first of all order keys of this 100 ns tick or later ones. `from` in history is such a place.
    pub const fn first_at(moment: Timestamp) -> Self {
        let ticks = TICKS_BEFORE_1970 + moment.micros() as u64 * TICKS_PER_MICRO;
        let mut bytes = [0; 16];
        let time = ticks.to_be_bytes();
        let mut i = 0;
        while i < 8 {
            bytes[i] = time[i];
            i += 1;
        }
        Self(bytes)
    }

    /// The greatest order key that is smaller: the place just before a message.
    pub const fn before(self) -> Self {
        Self(u128::from_be_bytes(self.0).saturating_sub(1).to_be_bytes())
    }

    /// The time in it, cut to microseconds.
    pub fn moment(self) -> Timestamp {
        let (time, _) = self.0.split_first_chunk::<8>().expect("sixteen bytes");
        let ticks = u64::from_be_bytes(*time).saturating_sub(TICKS_BEFORE_1970);
        Timestamp::from_micros(i64::try_from(ticks / TICKS_PER_MICRO).unwrap_or(i64::MAX))
    }
}

impl fmt::Debug for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A UUID of version 1, ordered by its order key: the id of a message or of a change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct TimeUuid(OrderKey);

/// The clustering key of a message.
pub type MessageId = TimeUuid;
/// Whatever else alters a conversation or an inbox has an id of the same order.
pub type ChangeId = TimeUuid;

impl TimeUuid {
    /// Of a moment and the other eight bytes as they stand in the UUID; their variant bits are set here.
    pub fn new(moment: Timestamp, mut rest: [u8; 8]) -> Self {
        rest[0] = rest[0] & 0x3f | 0x80;
        let mut key = OrderKey::first_at(moment);
        for (to, from) in key.0[8..].iter_mut().zip(rest) {
            *to = from ^ 0x80;
        }
        Self(key)
    }

    /// `None` unless it is a UUID of version 1 and of the RFC's variant, at or after 1970.
    pub fn from_uuid(uuid: Uuid) -> Option<Self> {
        let bytes = uuid.as_bytes();
        if bytes[6] >> 4 != 1 || bytes[8] >> 6 != 0b10 {
            return None;
        }
        let [a, b, c, d, e, f, g, h, rest @ ..] = *bytes;
        let ticks = u64::from_be_bytes([g & 0x0f, h, e, f, a, b, c, d]);
        if ticks < TICKS_BEFORE_1970 {
            return None;
        }
        let mut key = [0; 16];
        key[..8].copy_from_slice(&ticks.to_be_bytes());
        for (to, from) in key[8..].iter_mut().zip(rest) {
            *to = from ^ 0x80;
        }
        Some(Self(OrderKey(key)))
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::from_uuid(Uuid::try_parse(text).ok()?)
    }

    /// `None` where these bytes are the order key of no timeuuid.
    pub fn from_order_key(key: OrderKey) -> Option<Self> {
        let candidate = Self(key);
        let (time, rest) = key.0.split_first_chunk::<8>().expect("sixteen bytes");
        let ticks = u64::from_be_bytes(*time);
        let is_one = (TICKS_BEFORE_1970..=TICKS_MAX).contains(&ticks) && (rest[0] ^ 0x80) >> 6 == 0b10;
        is_one.then_some(candidate)
    }

    /// The first of all that lie after a place. Behind the last one: that.
    pub fn first_after(place: OrderKey) -> Self {
        let next = u128::from_be_bytes(place.0).saturating_add(1);
        let (ticks, rest) = ((next >> 64) as u64, next as u64);
        // Of the other eight bytes the first two bits are those of the variant, and as they lie in an order key both are zero.
        let (ticks, rest) = if ticks < TICKS_BEFORE_1970 {
            (TICKS_BEFORE_1970, 0)
        } else if rest <= REST_MAX {
            (ticks, rest)
        } else {
            (ticks.saturating_add(1), 0)
        };
        let (ticks, rest) = if ticks > TICKS_MAX { (TICKS_MAX, REST_MAX) } else { (ticks, rest) };
        Self(OrderKey((u128::from(ticks) << 64 | u128::from(rest)).to_be_bytes()))
    }

    pub const fn order_key(self) -> OrderKey {
        self.0
    }

    pub fn uuid(self) -> Uuid {
        let [a, b, c, d, e, f, g, h, rest @ ..] = self.0.0;
        let mut bytes = [e, f, g, h, c, d, a & 0x0f | 0x10, b, 0, 0, 0, 0, 0, 0, 0, 0];
        for (to, from) in bytes[8..].iter_mut().zip(rest) {
            *to = from ^ 0x80;
        }
        Uuid::from_bytes(bytes)
    }

    /// The time in the id, cut to microseconds.
    pub fn moment(self) -> Timestamp {
        self.0.moment()
    }
}

impl fmt::Display for TimeUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uuid().fmt(f)
    }
}

impl fmt::Debug for TimeUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.uuid().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeuuid_says_its_time() {
        let id = TimeUuid::parse("a3e39830-e29b-11ef-8001-000000000005").unwrap();
        assert_eq!(id.moment().to_string(), "2025-02-04T01:59:16.918481Z");
        assert_eq!(id.to_string(), "a3e39830-e29b-11ef-8001-000000000005");
    }

    #[test]
    fn other_versions_and_variants_are_no_timeuuids() {
        assert_eq!(TimeUuid::from_uuid(Uuid::new_v4()), None);
        assert_eq!(TimeUuid::parse("a3e39830-e29b-11ef-c001-000000000005"), None);
        assert_eq!(TimeUuid::parse("00000000-0000-1000-8000-000000000000"), None, "1582 lies before 1970");
        assert_eq!(TimeUuid::parse("nonsense"), None);
    }

    #[test]
    fn the_place_before_an_id_lies_after_every_smaller_one() {
        let id = TimeUuid::parse("a3e39830-e29b-11ef-8001-000000000005").unwrap();
        let smaller = TimeUuid::parse("a3e39830-e29b-11ef-8001-000000000004").unwrap();
        assert!(smaller.order_key() <= id.order_key().before());
        assert!(id.order_key().before() < id.order_key());
        assert_eq!(OrderKey::MIN.before(), OrderKey::MIN);
    }

    #[test]
    fn the_first_id_after_a_place_is_one_and_none_lies_between() {
        let id = |text| TimeUuid::parse(text).unwrap();
        let at = id("a3e39830-e29b-11ef-8001-000000000005");
        assert_eq!(TimeUuid::first_after(at.order_key().before()), at);
        assert_eq!(TimeUuid::first_after(at.order_key()), id("a3e39830-e29b-11ef-8001-000000000006"));
        let (last_of_tick, next_tick) = (id("a3e39830-e29b-11ef-bf7f-7f7f7f7f7f7f"), id("a3e39831-e29b-11ef-8080-808080808080"));
        assert_eq!(TimeUuid::first_after(last_of_tick.order_key()), next_tick);
        assert_eq!(TimeUuid::first_after(next_tick.order_key().before()), next_tick);
        let first = TimeUuid::first_after(OrderKey::MIN);
        assert_eq!((TimeUuid::from_uuid(first.uuid()), first.moment()), (Some(first), Timestamp::ZERO));
        let last = TimeUuid::first_after(OrderKey::MAX);
        assert_eq!(TimeUuid::from_uuid(last.uuid()), Some(last));
    }

    #[test]
    fn a_direct_conversation_has_one_id_from_both_sides() {
        let (a, b) = (UserId::parse("a").unwrap(), UserId::parse("b").unwrap());
        assert_eq!(ConversationId::direct(&a, &b), ConversationId::direct(&b, &a));
        assert_ne!(ConversationId::direct(&a, &a), ConversationId::direct(&a, &b));
    }
}
