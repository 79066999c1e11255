//! Metadata of a message: JSON of the client, validated and then stored as text, so that it is
//! returned unchanged.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Reserved key. `serde_json` (feature `raw_value`) writes the value of an object with this key
/// alone as raw text. Metadata with this key is refused at any depth: a client's text must never be
/// written as JSON.
pub const RESERVED_KEY: &str = "$serde_json::private::RawValue";

/// JSON of a client as compact text: as it was sent, but without white space between tokens.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Metadata(String);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MetadataError {
    #[error("has {bytes} bytes as JSON, and {bytes_max} is the most")]
    TooLong { bytes: usize, bytes_max: usize },
    #[error("is nested deeper than {depth_max} levels")]
    TooDeep { depth_max: usize },
    #[error("has an object with a key that is reserved for the server")]
    ReservedKey,
    #[error("has an object with the same key twice")]
    DuplicateKey,
    #[error("is not JSON")]
    NotJson,
}

impl Metadata {
    pub const BYTES_MAX: usize = 2 * 1024;
    /// Bound of the server's metadata in a SYSTEM message, which may list the usernames of a whole
    /// call.
    pub const SYSTEM_BYTES_MAX: usize = 16 * 1024;
    /// Maximum nesting of arrays and objects.
    pub const DEPTH_MAX: usize = 64;

    pub fn new(value: &serde_json::Value, bytes_max: usize) -> Result<Self, MetadataError> {
        Self::parse(&value.to_string(), bytes_max)
    }

    /// Parses the text of a client.
    pub fn parse(text: &str, bytes_max: usize) -> Result<Self, MetadataError> {
        Self::checked(text, bytes_max, Self::DEPTH_MAX)
    }

    /// Parses the text of an import. Earlier versions accepted any depth that the JSON parser
    /// accepts.
    pub fn from_history(text: &str, bytes_max: usize) -> Result<Self, MetadataError> {
        Self::checked(text, bytes_max, usize::MAX)
    }

    fn checked(text: &str, bytes_max: usize, depth_max: usize) -> Result<Self, MetadataError> {
        let compacted = compact(text);
        if compacted.len() > bytes_max {
            return Err(MetadataError::TooLong {
                bytes: compacted.len(),
                bytes_max,
            });
        }
        // Checks the original text: without its white space, `1 2` would pass as `12`.
        check(text, depth_max)?;
        Ok(Self(compacted))
    }

    /// Text that a store holds. [`Self::json`] checks it before it becomes part of an answer.
    pub(crate) fn of_stored(text: String) -> Self {
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text as JSON. `Err` if the stored text is corrupt or has a reserved key; it must not
    /// become part of an answer.
    pub fn json(&self) -> Result<&RawValue, MetadataError> {
        check(&self.0, usize::MAX)?;
        serde_json::from_str(&self.0).map_err(|_| MetadataError::NotJson)
    }

    /// Canonical text of the value: keys sorted, numbers in their shortest form. Earlier versions
    /// stored this text, so that the hash of an input is the same in all versions.
    pub fn canonical(&self) -> Cow<'_, str> {
        match serde_json::from_str::<serde_json::Value>(&self.0) {
            Ok(value) if self.json().is_ok() => Cow::Owned(value.to_string()),
            Ok(_) | Err(_) => Cow::Borrowed(&self.0),
        }
    }
}

/// Removes white space between the tokens of a JSON text. Strings and malformed parts stay
/// unchanged.
fn compact(text: &str) -> String {
    let (mut is_in_string, mut is_escaped) = (false, false);
    let is_kept = |char: &char| {
        if is_in_string {
            let ends = *char == '"' && !is_escaped;
            is_escaped = *char == '\\' && !is_escaped;
            is_in_string = !ends;
            return true;
        }
        is_in_string = *char == '"';
        !matches!(char, ' ' | '\t' | '\n' | '\r')
    };
    text.chars().filter(is_kept).collect()
}

/// Checks that a text is one JSON value, within the depth and without reserved or duplicate keys.
fn check(text: &str, depth_max: usize) -> Result<(), MetadataError> {
    let mut refusal = None;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let checked = Checker {
        depth_left: depth_max,
        depth_max,
        refusal: &mut refusal,
    }
    .deserialize(&mut deserializer);
    let ended = checked.and_then(|()| deserializer.end());
    ended.map_err(|_| refusal.unwrap_or(MetadataError::NotJson))
}

/// Visitor that checks a JSON value without building it.
struct Checker<'a> {
    depth_left: usize,
    depth_max: usize,
    /// Typed reason of the refusal. A deserializer's error has only text.
    refusal: &'a mut Option<MetadataError>,
}

impl Checker<'_> {
    fn refuse<E: serde::de::Error>(self, why: MetadataError) -> E {
        *self.refusal = Some(why);
        E::custom(why)
    }

    fn inner(&mut self) -> Checker<'_> {
        Checker {
            depth_left: self.depth_left - 1,
            depth_max: self.depth_max,
            refusal: &mut *self.refusal,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Checker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Checker<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        if self.depth_left == 0 {
            let depth_max = self.depth_max;
            return Err(self.refuse(MetadataError::TooDeep { depth_max }));
        }
        while items.next_element_seed(self.inner())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        if self.depth_left == 0 {
            let depth_max = self.depth_max;
            return Err(self.refuse(MetadataError::TooDeep { depth_max }));
        }
        let mut keys = HashSet::new();
        while let Some(key) = entries.next_key::<String>()? {
            if key == RESERVED_KEY {
                return Err(self.refuse(MetadataError::ReservedKey));
            }
            if !keys.insert(key) {
                return Err(self.refuse(MetadataError::DuplicateKey));
            }
            entries.next_value_seed(self.inner())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn parse(text: &str) -> Result<String, MetadataError> {
        Metadata::parse(text, Metadata::BYTES_MAX).map(|metadata| metadata.as_str().to_owned())
    }

    #[test]
    fn only_white_space_between_tokens_is_removed() {
        for text in [
            r#"{"z":1,"a":[1.0,1e2,0.10,-0,12345678901234567890123]}"#,
            r#""a \" b\\""#,
            "null",
            "7",
            "[]",
            r#"{"é\u00e9":"\ud83d\ude00"}"#,
        ] {
            assert_eq!(parse(text).unwrap(), text);
        }
        assert_eq!(
            parse(" { \"a b\" :\t[ 1 ,\r\n2 ] } ").unwrap(),
            r#"{"a b":[1,2]}"#
        );
        assert_eq!(parse(r#""\\" "#).unwrap(), r#""\\""#);
    }

    #[test]
    fn a_reserved_key_is_refused_at_any_depth_and_in_any_spelling() {
        for text in [
            r#"{"$serde_json::private::RawValue":"not json"}"#,
            r#"{"$serde_json::private::RawValue":"1"}"#,
            r#"[1,{"a":[{"b":1,"$serde_json::private::RawValue":{}}]}]"#,
            r#"{"\u0024serde_json::private::RawValue":"1"}"#,
        ] {
            assert_eq!(parse(text), Err(MetadataError::ReservedKey), "{text}");
        }
        assert!(
            parse(r#"{"a":"$serde_json::private::RawValue"}"#).is_ok(),
            "only the key is reserved"
        );
    }

    #[test]
    fn depth_length_and_keys_have_their_bounds() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(&nested(64)).is_ok());
        assert_eq!(
            parse(&nested(65)),
            Err(MetadataError::TooDeep { depth_max: 64 })
        );
        assert!(Metadata::from_history(&nested(100), 2_048).is_ok());
        assert_eq!(
            Metadata::from_history(&nested(200), 2_048),
            Err(MetadataError::NotJson)
        );
        assert_eq!(parse(r#"{"a":1,"a":2}"#), Err(MetadataError::DuplicateKey));
        assert_eq!(
            parse(&format!("\"{}\"", "x".repeat(2_047))),
            Err(MetadataError::TooLong {
                bytes: 2_049,
                bytes_max: 2_048
            })
        );
        for text in [
            "",
            "{",
            "nope",
            "1 2",
            "[1,]",
            "{1:2}",
            "1e999",
            "\"\u{1}\"",
        ] {
            assert_eq!(parse(text), Err(MetadataError::NotJson), "{text:?}");
        }
    }

    #[test]
    fn the_canonical_text_is_the_one_of_earlier_versions() {
        let metadata = Metadata::parse(r#"{"z":1,"a":[1.0,1e2,0.10]}"#, 2_048).unwrap();
        assert_eq!(metadata.canonical(), r#"{"a":[1.0,100.0,0.1],"z":1}"#);
        // The canonical form of a corrupt text is the text itself.
        assert_eq!(Metadata("no}".to_owned()).canonical(), "no}");
        assert!(Metadata("no}".to_owned()).json().is_err());
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>()
                .prop_filter("JSON has no others", |number| number.is_finite())
                .prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 32, 4, |inner| {
            let key = prop_oneof![6 => ".{0,4}", 1 => Just(RESERVED_KEY.to_owned())];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..4).prop_map(|map| json!(map)),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Any value without the reserved key is accepted, and both texts represent it.
        #[test]
        fn any_value_comes_back(value in any_json()) {
            let text = serde_json::to_string_pretty(&value).unwrap();
            match Metadata::from_history(&text, usize::MAX) {
                Ok(metadata) => {
                    prop_assert_eq!(metadata.as_str(), value.to_string());
                    prop_assert_eq!(metadata.canonical(), value.to_string());
                    prop_assert_eq!(metadata.json().unwrap().get(), metadata.as_str());
                }
                Err(error) => {
                    prop_assert_eq!(error, MetadataError::ReservedKey);
                    prop_assert!(text.contains(RESERVED_KEY));
                }
            }
        }

        /// Any accepted text is valid JSON for other parsers, and stays within its field of an
        /// answer.
        #[test]
        fn any_text_is_refused_or_stays_json(text in "[\\[\\]{}\",:0-9a\\\\ ]{0,24}") {
            if let Ok(metadata) = Metadata::parse(&text, 2_048) {
                let value: Value = serde_json::from_str(&text).unwrap();
                let answer = format!("{{\"metadata\":{},\"body\":\"b\"}}", metadata.json().unwrap());
                let read: Value = serde_json::from_str(&answer).unwrap();
                prop_assert_eq!(read, json!({ "metadata": value, "body": "b" }));
            }
        }
    }
}
