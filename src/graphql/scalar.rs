//! The scalars of the contract.

use async_graphql::{InputValueError, InputValueResult, Scalar, ScalarType, Value};

use crate::model::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DateTime(pub(super) Timestamp);

impl serde::Serialize for DateTime {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// A moment in RFC 3339. Answers are in UTC with six digits of a second; inputs may have any offset, and what is finer than a
/// microsecond is cut off.
#[Scalar(name = "DateTime", specified_by_url = "https://scalars.graphql.org/andimarek/date-time")]
impl ScalarType for DateTime {
    fn parse(value: Value) -> InputValueResult<Self> {
        let Value::String(text) = &value else { return Err(InputValueError::expected_type(value)) };
        Timestamp::parse(text).map(Self).ok_or_else(|| "a DateTime looks like 2026-03-15T12:05:00Z, from 1970 to 9999".into())
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.to_string())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Uuid(pub(super) uuid::Uuid);

/// A UUID of RFC 4122 in its text form, in lower case.
#[Scalar(name = "UUID", specified_by_url = "https://www.rfc-editor.org/rfc/rfc4122")]
impl ScalarType for Uuid {
    fn parse(value: Value) -> InputValueResult<Self> {
        let Value::String(text) = &value else { return Err(InputValueError::expected_type(value)) };
        uuid::Uuid::try_parse(text).map(Self).map_err(|_| "not a UUID".into())
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.to_string())
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Json(pub(super) serde_json::Value);

/// Any JSON value.
#[Scalar(name = "JSON", specified_by_url = "https://www.rfc-editor.org/rfc/rfc8259")]
impl ScalarType for Json {
    fn parse(value: Value) -> InputValueResult<Self> {
        Ok(Self(value.into_json()?))
    }

    fn to_value(&self) -> Value {
        // JSON always has a GraphQL value; an object key that is no name stays as it is.
        Value::from_json(self.0.clone()).unwrap_or_default()
    }
}
