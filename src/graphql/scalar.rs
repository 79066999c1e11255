//! Custom scalars.

use async_graphql::indexmap::IndexMap;
use async_graphql::{InputValueError, InputValueResult, Name, Scalar, ScalarType, Value};
use serde::ser::{Serialize, SerializeStruct as _, Serializer};

use crate::model::Timestamp;
use crate::model::metadata::RESERVED_KEY;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DateTime(pub(super) Timestamp);

/// Time in RFC 3339, such as `2026-03-15T12:05:00.123456Z`. Outputs are UTC with microseconds.
/// Inputs may have any offset, from 1970 to 9999; digits below a microsecond are cut off.
#[Scalar(
    name = "DateTime",
    specified_by_url = "https://scalars.graphql.org/andimarek/date-time"
)]
impl ScalarType for DateTime {
    fn parse(value: Value) -> InputValueResult<Self> {
        let Value::String(text) = &value else {
            return Err(InputValueError::expected_type(value));
        };
        Timestamp::parse(text)
            .map(Self)
            .ok_or_else(|| "a DateTime looks like 2026-03-15T12:05:00Z, from 1970 to 9999".into())
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.to_string())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Uuid(pub(super) uuid::Uuid);

/// UUID (RFC 4122) in its text form, in lower case.
#[Scalar(
    name = "UUID",
    specified_by_url = "https://www.rfc-editor.org/rfc/rfc4122"
)]
impl ScalarType for Uuid {
    fn parse(value: Value) -> InputValueResult<Self> {
        let Value::String(text) = &value else {
            return Err(InputValueError::expected_type(value));
        };
        uuid::Uuid::try_parse(text)
            .map(Self)
            .map_err(|_| "not a UUID".into())
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.to_string())
    }
}

/// Wraps JSON text as a value: an object with the reserved key alone. [`AnswerJson`] writes the text
/// as it is, without a check: it must be valid JSON, also where a client sent it.
pub(super) fn verbatim(text: String) -> Value {
    Value::Object(IndexMap::from_iter([(
        Name::new(RESERVED_KEY),
        Value::String(text),
    )]))
}

/// Serializes a value of an answer. It writes the text of a `verbatim` value as it is;
/// async-graphql's own serializer would copy the text and parse it first.
pub struct AnswerJson<'a>(pub &'a Value);

impl Serialize for AnswerJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Value::Object(entries) = self.0
            && entries.len() == 1
            && let Some((key, Value::String(text))) = entries.first()
            && key == RESERVED_KEY
        {
            let mut raw = serializer.serialize_struct(RESERVED_KEY, 1)?;
            raw.serialize_field(RESERVED_KEY, text)?;
            return raw.end();
        }
        serialize(self.0, AnswerJson, serializer)
    }
}

/// JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Json(pub(super) String);

/// Any JSON value. An integer has at most 64 bits, and a fraction the precision of a double.
#[Scalar(
    name = "JSON",
    specified_by_url = "https://www.rfc-editor.org/rfc/rfc8259"
)]
impl ScalarType for Json {
    /// Keeps the order of keys. Numbers have the precision that async-graphql has parsed.
    fn parse(value: Value) -> InputValueResult<Self> {
        Ok(Self(serde_json::to_string(&PlainJson(&value))?))
    }

    fn to_value(&self) -> Value {
        verbatim(self.0.clone())
    }
}

/// Serializes a value of a client key by key: the reserved key means nothing in it.
struct PlainJson<'a>(&'a Value);

impl Serialize for PlainJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self.0, PlainJson, serializer)
    }
}

/// Serializes a value, and each value inside it through `inner`.
fn serialize<'a, S: Serializer, T: Serialize>(
    value: &'a Value,
    inner: fn(&'a Value) -> T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Value::Null => serializer.serialize_unit(),
        Value::Number(number) => number.serialize(serializer),
        Value::String(text) => serializer.serialize_str(text),
        Value::Boolean(is_true) => serializer.serialize_bool(*is_true),
        Value::Binary(bytes) => serializer.serialize_bytes(bytes),
        Value::Enum(name) => serializer.serialize_str(name),
        Value::List(items) => serializer.collect_seq(items.iter().map(inner)),
        Value::Object(entries) => serializer.collect_map(
            entries
                .iter()
                .map(|(key, value)| (key.as_str(), inner(value))),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> String {
        Json::parse(serde_json::from_str(json).unwrap()).unwrap().0
    }

    #[test]
    fn verbatim_text_goes_into_an_answer_as_it_is() {
        let rows = verbatim(r#"[{"a":"\u0001 é"}, 2]"#.to_owned());
        let object = IndexMap::from_iter([
            (Name::new("rows"), rows.clone()),
            (Name::new("n"), Value::from(1)),
            (Name::new("list"), Value::List(vec![rows, Value::Null])),
        ]);
        assert_eq!(
            serde_json::to_string(&AnswerJson(&Value::Object(object))).unwrap(),
            r#"{"rows":[{"a":"\u0001 é"}, 2],"n":1,"list":[[{"a":"\u0001 é"}, 2],null]}"#
        );
    }

    #[test]
    fn json_keeps_its_keys_in_order_and_its_numbers_as_they_are_read() {
        assert_eq!(
            text(r#"{"z":1,"a":[1.0,-7,18446744073709551615,null,true,"é"]}"#),
            r#"{"z":1,"a":[1.0,-7,18446744073709551615,null,true,"é"]}"#
        );
        // The parser normalizes numbers, and keeps the last value of a repeated key.
        assert_eq!(text(r#"{"a":1e2,"b":0.10,"a":2}"#), r#"{"a":2,"b":0.1}"#);
        let key = crate::model::metadata::RESERVED_KEY;
        assert_eq!(
            text(&format!(r#"{{"{key}":"not json"}}"#)),
            format!(r#"{{"{key}":"not json"}}"#)
        );
        assert_eq!(
            text(&format!(r#"[{{"{key}":"[1]"}}]"#)),
            format!(r#"[{{"{key}":"[1]"}}]"#),
            "a key of a client stands for nothing"
        );
    }
}
