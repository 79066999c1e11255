//! Values: how they are bound to statements, and decoded from rows.

use scylla::deserialize::row::DeserializeRow;
use scylla::response::query_result::QueryResult;
use scylla::value::{CqlTimeuuid, CqlValue, MaybeUnset};
use uuid::Uuid;

use super::error::corrupt;
use crate::model::{
    ActPosition, ConversationId, OrderKey, ReadMarker, TimeUuid, Timestamp, UserId,
};
use crate::store::{Cause, Result};

/// The write timestamp of every maximum register: of two cells with one timestamp, the one with the greater bytes wins.
pub(crate) const REGISTER_TIMESTAMP: i64 = 1;

/// One bound value of a statement. An absent one is unset, never null: a null would be written as a tombstone.
pub(crate) type Value = MaybeUnset<CqlValue>;
/// The bound values of one statement, in its order.
pub(crate) type Values = Vec<Value>;

pub(crate) trait IntoCql {
    fn into_cql(self) -> CqlValue;
}

macro_rules! into_cql {
    ($($type:ty: $value:ident => $cql:expr,)+) => {
        $(impl IntoCql for $type {
            fn into_cql(self) -> CqlValue {
                let $value = self;
                $cql
            }
        })+
    };
}

into_cql! {
    CqlValue: value => value,
    ConversationId: id => CqlValue::Uuid(id.0),
    Uuid: uuid => CqlValue::Uuid(uuid),
    TimeUuid: id => CqlValue::Timeuuid(id.uuid().into()),
    OrderKey: key => CqlValue::Blob(key.0.to_vec()),
    ActPosition: act => CqlValue::Blob(act.to_bytes()),
    ReadMarker: marker => CqlValue::Blob(marker.to_bytes().to_vec()),
    Timestamp: moment => CqlValue::BigInt(moment.micros()),
    &UserId: user => CqlValue::Text(user.as_str().to_owned()),
    &str: text => CqlValue::Text(text.to_owned()),
    String: text => CqlValue::Text(text),
    Vec<u8>: bytes => CqlValue::Blob(bytes),
    i64: number => CqlValue::BigInt(number),
    i32: number => CqlValue::Int(number),
    i8: number => CqlValue::TinyInt(number),
    bool: is_true => CqlValue::Boolean(is_true),
}

pub(crate) trait IntoValue {
    fn into_value(self) -> Value;
}

impl<T: IntoCql> IntoValue for T {
    fn into_value(self) -> Value {
        MaybeUnset::Set(self.into_cql())
    }
}

impl<T: IntoCql> IntoValue for Option<T> {
    fn into_value(self) -> Value {
        self.map_or(MaybeUnset::Unset, |value| MaybeUnset::Set(value.into_cql()))
    }
}

/// For `IN ?`.
pub(crate) fn list<T: IntoCql>(values: impl IntoIterator<Item = T>) -> CqlValue {
    CqlValue::List(values.into_iter().map(IntoCql::into_cql).collect())
}

/// For a column that is a set.
pub(crate) fn set<T: IntoCql>(values: impl IntoIterator<Item = T>) -> CqlValue {
    CqlValue::Set(values.into_iter().map(IntoCql::into_cql).collect())
}

/// For `(a, b) IN ?`.
pub(crate) fn pair(one: impl IntoCql, other: impl IntoCql) -> CqlValue {
    CqlValue::Tuple(vec![Some(one.into_cql()), Some(other.into_cql())])
}

/// A row that borrows nothing from the answer.
pub(crate) trait OwnedRow: for<'frame> DeserializeRow<'frame, 'frame> {}

impl<R: for<'frame> DeserializeRow<'frame, 'frame>> OwnedRow for R {}

/// The rows of an answer.
pub(crate) fn owned_rows<R: OwnedRow>(answer: QueryResult) -> std::result::Result<Vec<R>, Cause> {
    let rows = answer.into_rows_result()?;
    Ok(rows.rows::<R>()?.collect::<std::result::Result<_, _>>()?)
}

macro_rules! values {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::store::cql::driver::value::IntoValue::into_value($value)),*]
    };
}
pub(crate) use values;

pub(crate) fn time_uuid(table: &'static str, id: CqlTimeuuid) -> Result<TimeUuid> {
    TimeUuid::from_uuid(id.into()).ok_or_else(|| corrupt(table, "an id is no timeuuid after 1970"))
}

pub(crate) fn user(table: &'static str, name: &str) -> Result<UserId> {
    UserId::parse(name).map_err(|error| corrupt(table, error))
}

/// An order key in a maximum register.
pub(crate) fn order_key(table: &'static str, bytes: &[u8]) -> Result<OrderKey> {
    bytes
        .try_into()
        .map(OrderKey)
        .map_err(|_| corrupt(table, "an order key has 16 bytes"))
}

/// The position of an act in a maximum register.
pub(crate) fn act_position(table: &'static str, bytes: &[u8]) -> Result<ActPosition> {
    ActPosition::from_bytes(bytes)
        .ok_or_else(|| corrupt(table, "the value is not the position of an act"))
}

pub(crate) fn marker(table: &'static str, bytes: &[u8]) -> Result<ReadMarker> {
    bytes
        .try_into()
        .map(ReadMarker::from_bytes)
        .map_err(|_| corrupt(table, "a read marker has 24 bytes"))
}

/// Any order key as a bound of a timeuuid column, also one that no id has: CQL compares the time, then the other bytes.
pub(crate) fn time_uuid_bound(key: OrderKey) -> CqlValue {
    const TICKS_MAX: u64 = (1 << 60) - 1;
    let (ticks, rest) = key
        .0
        .split_first_chunk::<8>()
        .expect("an order key has sixteen bytes");
    let [a, b, c, d, e, f, g, h] = u64::from_be_bytes(*ticks).min(TICKS_MAX).to_be_bytes();
    let mut bytes = [e, f, g, h, c, d, a | 0x10, b, 0, 0, 0, 0, 0, 0, 0, 0];
    for (to, from) in bytes[8..].iter_mut().zip(rest) {
        *to = from ^ 0x80;
    }
    CqlValue::Timeuuid(CqlTimeuuid::from_bytes(bytes))
}

/// The bound value of a LIMIT.
pub(crate) fn row_limit(rows: usize) -> i32 {
    i32::try_from(rows).unwrap_or(i32::MAX)
}

/// The text of a column. An empty one stands for none.
pub(crate) fn non_empty(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}
