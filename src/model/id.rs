//! Ids and their order: conversation ids, timeuuids, and the order keys of messages and changes.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use super::{Timestamp, UserId};

/// Ticks of 100 ns from 1582-10-15, the epoch of timeuuids, to 1970-01-01.
const TICKS_BEFORE_1970: u64 = 0x01B2_1DD2_1381_4000;
const TICKS_PER_MICRO: u64 = 10;
const TICKS_MAX: u64 = (1 << 60) - 1;
/// Greatest second half of a timeuuid's order key.
const REST_MAX: u64 = u64::MAX >> 2;

/// Namespace of UUIDv5 ids. It must never change, as ids are permanent.
const NAMESPACE: Uuid = Uuid::from_u128(0x8f6c_2a1e_4b0d_5c3a_9e77_5d1f_60b2_c4e8);

/// Id of a conversation: the partition key of its messages.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct ConversationId(pub Uuid);

impl ConversationId {
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Id of a direct conversation from before [`DirectIds`]: the UUIDv5 of both usernames. Such
    /// ids stay valid.
    pub fn direct(one: &UserId, other: &UserId) -> Self {
        Self(Uuid::new_v5(
            &NAMESPACE,
            &[b"direct".as_slice(), &pair_key(one, other)].concat(),
        ))
    }

    /// Whether the id proves that this is the user's direct conversation with oneself. An import
    /// then expects no other participant.
    pub fn is_with_oneself(self, user: &UserId) -> bool {
        let (head, tail) = self
            .0
            .as_bytes()
            .split_first_chunk::<8>()
            .expect("sixteen bytes");
        self == Self::direct(user, user) || (head[6] >> 4 == 8 && tail == check_of(head, user))
    }

    /// The id that proves a conversation with oneself of another system: made of the first half of its own id there.
    pub fn with_oneself(self, user: &UserId) -> Self {
        let mut bytes = Builder::from_custom_bytes(self.0.into_bytes())
            .into_uuid()
            .into_bytes();
        let (head, tail) = bytes.split_first_chunk_mut::<8>().expect("sixteen bytes");
        tail.copy_from_slice(&check_of(head, user));
        Self(Uuid::from_bytes(bytes))
    }

    /// Id of the group that this viewer creates with this idempotency key: the same on every retry.
    pub fn group(viewer: &UserId, key: &str) -> Self {
        let mut name = b"group".to_vec();
        push_name(&mut name, viewer.as_str());
        push_name(&mut name, key);
        Self(Uuid::new_v5(&NAMESPACE, &name))
    }
}

/// Generator of the ids of direct conversations: UUIDv8 of an HMAC-SHA256 over both usernames,
/// keyed with a secret in the store. Every server of a deployment computes the same id for a pair
/// of users, in either order. Without the secret the id cannot be computed.
#[derive(Clone)]
pub struct DirectIds([u8; Self::SECRET_BYTES]);

impl DirectIds {
    pub const SECRET_BYTES: usize = 32;

    pub fn new(secret: [u8; Self::SECRET_BYTES]) -> Self {
        Self(secret)
    }

    pub fn random() -> Self {
        let mut secret = [0; Self::SECRET_BYTES];
        getrandom::fill(&mut secret).expect("the system gives random bytes");
        Self(secret)
    }

    /// Parses the text in a store. `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let mut secret = [0; Self::SECRET_BYTES];
        let digits = text.as_bytes().as_chunks::<2>().0;
        if text.len() != 2 * Self::SECRET_BYTES {
            return None;
        }
        for (byte, digits) in secret.iter_mut().zip(digits) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(secret))
    }

    /// Text for the store: hexadecimal digits.
    pub fn secret_text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Id of the direct conversation of two users, in either order.
    pub fn id(&self, one: &UserId, other: &UserId) -> ConversationId {
        let bytes = self.mac(&[b"direct", &pair_key(one, other)]);
        let id = ConversationId(Builder::from_custom_bytes(bytes).into_uuid());
        // The second half is a checksum of the first, so that an import under another secret recognizes the id.
        if one == other {
            id.with_oneself(one)
        } else {
            id
        }
    }

    /// The first half of an HMAC-SHA256 over these parts, keyed with the secret.
    pub(super) fn mac(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("an HMAC takes a key of any length");
        parts.iter().for_each(|part| mac.update(part));
        let bytes = mac.finalize().into_bytes();
        *bytes.first_chunk::<16>().expect("32 bytes")
    }
}

impl fmt::Debug for DirectIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DirectIds(secret)")
    }
}

/// Checksum in the id of a user's conversation with oneself: its second half, computed from the
/// first.
fn check_of(head: &[u8; 8], user: &UserId) -> [u8; 8] {
    let mut hash = Sha256::new();
    hash.update(NAMESPACE);
    hash.update(b"oneself");
    hash.update(head);
    hash.update(user.as_str());
    let mut check = *hash.finalize().first_chunk::<8>().expect("32 bytes");
    check[0] = check[0] & 0x3f | 0x80;
    check
}

/// Unique key of a pair of users: both names in byte order, each prefixed with its length.
pub fn pair_key(one: &UserId, other: &UserId) -> Vec<u8> {
    let (first, second) = if one <= other {
        (one, other)
    } else {
        (other, one)
    };
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

/// Sort key of a timeuuid: 16 bytes that sort bytewise like Cassandra's timeuuids, by time, then by
/// the other eight bytes as signed ones.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct OrderKey(pub [u8; 16]);

impl OrderKey {
    /// Position before every message.
    pub const MIN: Self = Self([0; 16]);
    pub const MAX: Self = Self([0xff; 16]);

    /// First order key of this 100 ns tick. The `from` of a history range is such a position.
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

    /// Greatest smaller order key: the position just before a message.
    pub const fn before(self) -> Self {
        Self(u128::from_be_bytes(self.0).saturating_sub(1).to_be_bytes())
    }

    /// Smallest greater order key.
    pub const fn next(self) -> Self {
        Self(u128::from_be_bytes(self.0).saturating_add(1).to_be_bytes())
    }

    /// Time of the key, truncated to microseconds.
    pub fn moment(self) -> Timestamp {
        let (time, _) = self.0.split_first_chunk::<8>().expect("sixteen bytes");
        let ticks = u64::from_be_bytes(*time).saturating_sub(TICKS_BEFORE_1970);
        Timestamp::from_micros(i64::try_from(ticks / TICKS_PER_MICRO).unwrap_or(i64::MAX))
    }
}

/// Hexadecimal text, in the same order as the key.
impl fmt::Display for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for OrderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// UUID of version 1, ordered by its order key: the id of a message or a change.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct TimeUuid(OrderKey);

/// Clustering key of a message.
pub type MessageId = TimeUuid;
/// Id of any other change of a conversation or an inbox, in the same order.
pub type ChangeId = TimeUuid;

impl TimeUuid {
    /// A timeuuid of a time and the other eight bytes in UUID form. Sets their variant bits.
    pub fn new(moment: Timestamp, mut rest: [u8; 8]) -> Self {
        rest[0] = rest[0] & 0x3f | 0x80;
        let mut key = OrderKey::first_at(moment);
        for (to, from) in key.0[8..].iter_mut().zip(rest) {
            *to = from ^ 0x80;
        }
        Self(key)
    }

    /// `None` unless it is a UUID of version 1 with the RFC variant, from 1970 on.
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

    /// `None` if no timeuuid has this order key.
    pub fn from_order_key(key: OrderKey) -> Option<Self> {
        let candidate = Self(key);
        let (time, rest) = key.0.split_first_chunk::<8>().expect("sixteen bytes");
        let ticks = u64::from_be_bytes(*time);
        let is_one =
            (TICKS_BEFORE_1970..=TICKS_MAX).contains(&ticks) && (rest[0] ^ 0x80) >> 6 == 0b10;
        is_one.then_some(candidate)
    }

    /// Smallest timeuuid after a position, or the greatest one if there is none.
    pub fn first_after(position: OrderKey) -> Self {
        let next = u128::from_be_bytes(position.0).saturating_add(1);
        let (ticks, rest) = ((next >> 64) as u64, next as u64);
        // The first two of the other eight bytes' bits are the variant, and are zero in an order
        // key.
        let (ticks, rest) = if ticks < TICKS_BEFORE_1970 {
            (TICKS_BEFORE_1970, 0)
        } else if rest <= REST_MAX {
            (ticks, rest)
        } else {
            (ticks.saturating_add(1), 0)
        };
        let (ticks, rest) = if ticks > TICKS_MAX {
            (TICKS_MAX, REST_MAX)
        } else {
            (ticks, rest)
        };
        Self(OrderKey(
            (u128::from(ticks) << 64 | u128::from(rest)).to_be_bytes(),
        ))
    }

    pub const fn order_key(self) -> OrderKey {
        self.0
    }

    /// Id of a further part of this message, which an import has split: behind it in its tick, in the order of the numbers. A hash
    /// spreads them, so that they meet no id that counts up from this one.
    pub fn part(self, number: u16) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0.0);
        hash.update(number.to_be_bytes());
        let [a, b, c, ..]: [u8; 32] = hash.finalize().into();
        let offset = u64::from(number) << 24 | u64::from(u32::from_be_bytes([0, a, b, c]));
        let (time, rest) = self.0.0.split_first_chunk::<8>().expect("sixteen bytes");
        let rest = rest.try_into().expect("the other eight bytes");
        let (ticks, rest) = match u64::from_be_bytes(rest) + offset {
            rest @ 0..=REST_MAX => (u64::from_be_bytes(*time), rest),
            _ => (u64::from_be_bytes(*time) + 1, offset),
        };
        Self(OrderKey(
            (u128::from(ticks) << 64 | u128::from(rest)).to_be_bytes(),
        ))
    }

    pub fn uuid(self) -> Uuid {
        let [a, b, c, d, e, f, g, h, rest @ ..] = self.0.0;
        let mut bytes = [e, f, g, h, c, d, a & 0x0f | 0x10, b, 0, 0, 0, 0, 0, 0, 0, 0];
        for (to, from) in bytes[8..].iter_mut().zip(rest) {
            *to = from ^ 0x80;
        }
        Uuid::from_bytes(bytes)
    }

    /// Time of the id, truncated to microseconds.
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
    fn a_timeuuid_contains_its_time() {
        let id = TimeUuid::parse("a3e39830-e29b-11ef-8001-000000000005").unwrap();
        assert_eq!(id.moment().to_string(), "2025-02-04T01:59:16.918481Z");
        assert_eq!(id.to_string(), "a3e39830-e29b-11ef-8001-000000000005");
    }

    #[test]
    fn other_versions_and_variants_are_refused() {
        assert_eq!(TimeUuid::from_uuid(Uuid::new_v4()), None);
        assert_eq!(
            TimeUuid::parse("a3e39830-e29b-11ef-c001-000000000005"),
            None
        );
        assert_eq!(
            TimeUuid::parse("00000000-0000-1000-8000-000000000000"),
            None,
            "1582 lies before 1970"
        );
        assert_eq!(TimeUuid::parse("nonsense"), None);
    }

    #[test]
    fn the_position_before_an_id_is_after_every_smaller_id() {
        let id = TimeUuid::parse("a3e39830-e29b-11ef-8001-000000000005").unwrap();
        let smaller = TimeUuid::parse("a3e39830-e29b-11ef-8001-000000000004").unwrap();
        assert!(smaller.order_key() <= id.order_key().before());
        assert!(id.order_key().before() < id.order_key());
        assert_eq!(OrderKey::MIN.before(), OrderKey::MIN);
    }

    #[test]
    fn first_after_returns_the_next_id() {
        let id = |text| TimeUuid::parse(text).unwrap();
        let at = id("a3e39830-e29b-11ef-8001-000000000005");
        assert_eq!(TimeUuid::first_after(at.order_key().before()), at);
        assert_eq!(
            TimeUuid::first_after(at.order_key()),
            id("a3e39830-e29b-11ef-8001-000000000006")
        );
        let (last_of_tick, next_tick) = (
            id("a3e39830-e29b-11ef-bf7f-7f7f7f7f7f7f"),
            id("a3e39831-e29b-11ef-8080-808080808080"),
        );
        assert_eq!(TimeUuid::first_after(last_of_tick.order_key()), next_tick);
        assert_eq!(
            TimeUuid::first_after(next_tick.order_key().before()),
            next_tick
        );
        let first = TimeUuid::first_after(OrderKey::MIN);
        assert_eq!(
            (TimeUuid::from_uuid(first.uuid()), first.moment()),
            (Some(first), Timestamp::ZERO)
        );
        let last = TimeUuid::first_after(OrderKey::MAX);
        assert_eq!(TimeUuid::from_uuid(last.uuid()), Some(last));
    }

    #[test]
    fn a_direct_conversation_has_one_id_from_both_sides() {
        let (a, b) = (UserId::parse("a").unwrap(), UserId::parse("b").unwrap());
        assert_eq!(
            ConversationId::direct(&a, &b),
            ConversationId::direct(&b, &a)
        );
        assert_ne!(
            ConversationId::direct(&a, &a),
            ConversationId::direct(&a, &b)
        );
    }

    #[test]
    fn ids_of_direct_conversations_follow_from_the_secret_and_both_names() {
        let (a, b) = (UserId::parse("a").unwrap(), UserId::parse("b").unwrap());
        let (ids, other) = (DirectIds::new([7; 32]), DirectIds::new([8; 32]));
        assert_eq!(ids.id(&a, &b), ids.id(&b, &a));
        assert_ne!(
            ids.id(&a, &b),
            other.id(&a, &b),
            "the id depends on the secret"
        );
        assert_ne!(ids.id(&a, &a), ids.id(&a, &b));
        for id in [ids.id(&a, &b), ids.id(&a, &a)] {
            assert_eq!(
                (id.0.get_version_num(), id.0.get_variant()),
                (8, uuid::Variant::RFC4122)
            );
        }
        let same = DirectIds::parse(&ids.secret_text()).unwrap();
        assert_eq!(same.id(&a, &b), ids.id(&a, &b));
        assert!(DirectIds::parse("00").is_none() && DirectIds::parse(&"x".repeat(64)).is_none());
    }

    #[test]
    fn the_id_of_a_conversation_with_oneself_is_recognized_under_every_secret() {
        let (a, b) = (UserId::parse("a").unwrap(), UserId::parse("b").unwrap());
        for ids in (0..50).map(|n| DirectIds::new([n; 32])) {
            assert!(ids.id(&a, &a).is_with_oneself(&a));
            assert!(!ids.id(&a, &a).is_with_oneself(&b) && !ids.id(&a, &b).is_with_oneself(&a));
        }
        assert!(ConversationId::direct(&a, &a).is_with_oneself(&a));
        assert!(
            !ConversationId::direct(&a, &b).is_with_oneself(&a)
                && !ConversationId::random().is_with_oneself(&a)
        );
    }
}
