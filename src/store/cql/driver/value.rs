//! Values on their way into statements, and back out of rows.

use scylla::value::{CqlTimeuuid, CqlValue, MaybeUnset};
use uuid::Uuid;

use super::error::corrupt;
use crate::model::{ConversationId, OrderKey, ReadMarker, TimeUuid, Timestamp, UserId};
use crate::store::Result;

/// One value of a statement. What is not there is unset, never null: a null would be written as a tombstone.
pub(crate) type Cell = MaybeUnset<CqlValue>;
/// The values of one statement, in its order.
pub(crate) type Cells = Vec<Cell>;

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

pub(crate) trait IntoCell {
    fn into_cell(self) -> Cell;
}

impl<T: IntoCql> IntoCell for T {
    fn into_cell(self) -> Cell {
        MaybeUnset::Set(self.into_cql())
    }
}

impl<T: IntoCql> IntoCell for Option<T> {
    fn into_cell(self) -> Cell {
        self.map_or(MaybeUnset::Unset, |value| MaybeUnset::Set(value.into_cql()))
    }
}

/// For `IN ?`.
pub(crate) fn list<T: IntoCql>(values: impl IntoIterator<Item = T>) -> CqlValue {
    CqlValue::List(values.into_iter().map(IntoCql::into_cql).collect())
}

/// For `(a, b) IN ?`.
pub(crate) fn pair(one: impl IntoCql, other: impl IntoCql) -> CqlValue {
    CqlValue::Tuple(vec![Some(one.into_cql()), Some(other.into_cql())])
}

macro_rules! cells {
    ($($value:expr),* $(,)?) => {
        vec![$($crate::store::cql::driver::value::IntoCell::into_cell($value)),*]
    };
}
pub(crate) use cells;

pub(crate) fn time_uuid(table: &'static str, id: CqlTimeuuid) -> Result<TimeUuid> {
    TimeUuid::from_uuid(id.into()).ok_or_else(|| corrupt(table, "an id is no timeuuid after 1970"))
}

pub(crate) fn user(table: &'static str, name: &str) -> Result<UserId> {
    UserId::parse(name).map_err(|error| corrupt(table, error))
}

/// An order key in a maximum register.
pub(crate) fn place(table: &'static str, bytes: &[u8]) -> Result<OrderKey> {
    bytes.try_into().map(OrderKey).map_err(|_| corrupt(table, "an order key has 16 bytes"))
}

pub(crate) fn marker(table: &'static str, bytes: &[u8]) -> Result<ReadMarker> {
    bytes.try_into().map(ReadMarker::from_bytes).map_err(|_| corrupt(table, "a read marker has 24 bytes"))
}
