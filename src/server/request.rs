//! GraphQL requests as JSON: the body of a POST, the parameters of a GET, the payload of a `subscribe`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use async_graphql::Variables;
use axum::http::StatusCode;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::answer::{Code, Problem};
use super::trusted_documents::TrustedDocuments;
use crate::model::without_byte_order_mark;

/// One request, borrowed from its text. The server parses the variables only after it accepted the document.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a JSON object with `query`")]
pub(super) struct GraphqlRequest<'a> {
    #[serde(borrow, default)]
    query: Option<Cow<'a, str>>,
    /// Id of a trusted document. Relay's examples send it as `doc_id`.
    #[serde(borrow, default, alias = "doc_id")]
    document_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) operation_name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    variables: Option<&'a RawValue>,
    #[serde(default)]
    extensions: Option<Object<Extensions>>,
}

/// Extensions that the server reads.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a JSON object")]
struct Extensions {
    #[serde(default)]
    persisted_query: Option<Object<PersistedQuery>>,
}

/// JSON object and nothing else: a derived struct would also accept an array of its fields.
#[derive(Debug)]
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Entries<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_map(Entries(PhantomData))
    }
}

/// Name of a trusted document in the clients of Apollo and urql.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a JSON object")]
struct PersistedQuery {
    #[serde(default)]
    sha256_hash: Option<String>,
}

/// Body of a POST: one request or a batch.
#[derive(Debug)]
pub(super) enum ParsedBody<'a> {
    One(GraphqlRequest<'a>),
    Batch(Vec<GraphqlRequest<'a>>),
}

impl<'a> ParsedBody<'a> {
    /// Parses a body. `batch_max` of 0 refuses batches.
    pub(super) fn from_json(text: &'a [u8], batch_max: usize) -> Result<Self, Problem> {
        let text = readable(text)?;
        if !text.trim_ascii_start().starts_with('[') {
            return parse(text).map(Self::One);
        }
        let refused = |sentence: String| {
            Err(Problem::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                Code::BadUserInput,
                sentence,
            ))
        };
        if batch_max == 0 {
            return refused("Batches are not served: send one request at a time.".to_owned());
        }
        let requests: Vec<&RawValue> = parse(text)?;
        if requests.is_empty() || requests.len() > batch_max {
            return refused(format!("A batch has 1 to {batch_max} requests."));
        }
        // Each request separately, so that a batch cannot contain a batch.
        requests
            .into_iter()
            .map(|request| GraphqlRequest::from_json(request.get().as_bytes()))
            .collect::<Result<_, _>>()
            .map(Self::Batch)
    }
}

fn readable(text: &[u8]) -> Result<&str, Problem> {
    let text = std::str::from_utf8(text).map_err(|_| bad_json("the text is not UTF-8"))?;
    let text = without_byte_order_mark(text);
    if text.trim_ascii_start().is_empty() {
        return Err(bad_json("the body is empty"));
    }
    Ok(text)
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Problem> {
    serde_json::from_str(text).map_err(|error| match error.classify() {
        Category::Data => not_a_request(&error),
        Category::Syntax | Category::Eof | Category::Io => bad_json(&error),
    })
}

impl<'a> GraphqlRequest<'a> {
    /// Parses one request. Refuses an array, whose elements a derived struct would take for fields.
    pub(super) fn from_json(text: &'a [u8]) -> Result<Self, Problem> {
        match ParsedBody::from_json(text, 0)? {
            ParsedBody::One(request) => Ok(request),
            ParsedBody::Batch(_) => Err(not_a_request("it is a batch")),
        }
    }

    /// Builds a request from a query string, where `variables` and `extensions` are JSON text.
    pub(super) fn from_parameters(parameters: &'a Parameters) -> Result<Self, Problem> {
        let json = |name: &str, text: &'a Option<String>| match text.as_deref() {
            None | Some("") => Ok(None),
            Some(text) => serde_json::from_str::<&RawValue>(text)
                .map(Some)
                .map_err(|error| bad_json(format!("`{name}`: {error}"))),
        };
        let extensions = match json("extensions", &parameters.extensions)? {
            Some(raw) => serde_json::from_str(raw.get()).map_err(|error| not_a_request(&error))?,
            None => None,
        };
        Ok(Self {
            query: parameters.query.as_deref().map(Cow::Borrowed),
            document_id: parameters.document_id.as_deref().map(Cow::Borrowed),
            operation_name: parameters.operation_name.as_deref().map(Cow::Borrowed),
            variables: json("variables", &parameters.variables)?,
            extensions,
        })
    }

    /// Text of the document: the request's own, or one of the trusted list.
    pub(super) fn document<'r>(
        &'r self,
        trusted: Option<&'r TrustedDocuments>,
    ) -> Result<&'r str, Problem> {
        if let Some(query) = self.query.as_deref().filter(|query| !query.is_empty()) {
            if trusted.is_none_or(|trusted| trusted.holds(query)) {
                return Ok(query);
            }
            let sentence = "This server executes trusted documents only, and this document is not in its list.";
            return Err(Problem::new(
                StatusCode::FORBIDDEN,
                Code::Forbidden,
                sentence,
            ));
        }
        let persisted = self
            .extensions
            .as_ref()
            .and_then(|extensions| extensions.0.persisted_query.as_ref());
        let hash = persisted.and_then(|persisted| persisted.0.sha256_hash.as_deref());
        let id = self.document_id.as_deref().or(hash);
        if id.is_none() && persisted.is_none() {
            return Err(not_a_request("it has no `query`"));
        }
        // The messages are words of the protocol: urql and Apollo Kotlin compare them. After the first one a client sends the
        // text of each document, after the second one the text of this document.
        let (document, message) = match trusted {
            None => (None, "PersistedQueryNotSupported"),
            Some(trusted) => (
                id.and_then(|id| trusted.document(id)),
                "PersistedQueryNotFound",
            ),
        };
        document.ok_or_else(|| {
            let code = Code::PersistedQueryNotSupported;
            Problem::new(StatusCode::BAD_REQUEST, code, message)
        })
    }

    pub(super) fn variables(&self, bytes_max: usize) -> Result<Variables, Problem> {
        let Some(raw) = self.variables else {
            return Ok(Variables::default());
        };
        if raw.get().len() > bytes_max {
            let sentence = format!("The variables have more than {bytes_max} bytes.");
            return Err(Problem::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                Code::BadUserInput,
                sentence,
            ));
        }
        // The parser would make a double of it, whose digits are others.
        if has_wide_integer(raw.get()) {
            let why = "`variables`: an integer has at most 64 bits; send a longer one as text";
            return Err(not_a_request(why));
        }
        serde_json::from_str(raw.get())
            .map_err(|error| not_a_request(format!("`variables`: {error}")))
    }
}

/// Whether a JSON text has an integer beyond 64 bits.
fn has_wide_integer(json: &str) -> bool {
    /// Digits that fit into 64 bits, whatever they are.
    const DIGITS_MIN: usize = 18;
    let mut rest = json;
    while let Some(at) = rest.find(['"', '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) {
        rest = &rest[at..];
        if let Some(text) = rest.strip_prefix('"') {
            rest = after_string(text);
            continue;
        }
        let is_number =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.');
        let length = rest.bytes().take_while(|byte| is_number(*byte)).count();
        let number = &rest[..length];
        let digits = number.strip_prefix('-').unwrap_or(number);
        if digits.len() > DIGITS_MIN
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && number.parse::<i64>().is_err()
            && number.parse::<u64>().is_err()
        {
            return true;
        }
        rest = &rest[length..];
    }
    false
}

/// Text after the end of a JSON string, whose opening quote is read.
fn after_string(mut text: &str) -> &str {
    while let Some(at) = text.find(['"', '\\']) {
        if text.as_bytes()[at] == b'"' {
            return &text[at + 1..];
        }
        text = text.get(at + 2..).unwrap_or_default();
    }
    ""
}

/// Parameters of a GET.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Parameters {
    query: Option<String>,
    document_id: Option<String>,
    operation_name: Option<String>,
    variables: Option<String>,
    extensions: Option<String>,
}

pub(super) fn bad_json(why: impl std::fmt::Display) -> Problem {
    Problem::new(
        StatusCode::BAD_REQUEST,
        Code::BadUserInput,
        format!("The request cannot be read as JSON: {why}."),
    )
}

pub(super) fn not_a_request(why: impl std::fmt::Display) -> Problem {
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        Code::BadUserInput,
        format!("This is not a GraphQL request: {why}."),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_beyond_64_bits_is_found_outside_of_texts_alone() {
        for json in [
            "18446744073709551616",
            r#"{"a":[-9223372036854775809]}"#,
            r#"{"a\\":123456789012345678901234567890}"#,
        ] {
            assert!(has_wide_integer(json), "{json}");
        }
        for json in [
            "18446744073709551615",
            "[-9223372036854775808, 1e400, 12345678901234567890.5]",
            r#"{"123456789012345678901234567890":"\"123456789012345678901234567890é"}"#,
            r#"{"a":"12345678901234567890123\\"}"#,
        ] {
            assert!(!has_wide_integer(json), "{json}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_body() {
        let body = "\u{feff}{\"query\":\"{ a }\"}";
        assert!(ParsedBody::from_json(body.as_bytes(), 0).is_ok());
    }
}
