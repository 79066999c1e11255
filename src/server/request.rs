//! A GraphQL request as JSON: the body of a POST, the parameters of a GET, the payload of a `subscribe`.

use std::borrow::Cow;

use async_graphql::Variables;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;

use super::answer::{Code, Problem};

/// What one asks. Borrowed from the text it came in; its variables are read when the document is known to be good.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a JSON object with `query`")]
pub(super) struct GraphqlRequest<'a> {
    #[serde(borrow, default)]
    query: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) operation_name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    variables: Option<&'a RawValue>,
    #[serde(default)]
    extensions: Option<Extensions>,
}

/// The one extension that is known by name, to say that it is not served.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a JSON object")]
struct Extensions {
    #[serde(default)]
    persisted_query: Option<serde::de::IgnoredAny>,
}

impl<'a> GraphqlRequest<'a> {
    pub(super) fn from_json(text: &'a [u8]) -> Result<Self, Problem> {
        let text = std::str::from_utf8(text).map_err(|_| bad_json("the text is not UTF-8"))?;
        match text.trim_ascii_start().as_bytes().first() {
            None => return Err(bad_json("the body is empty")),
            Some(b'[') => {
                let sentence = "Batches are not served: send one request at a time.";
                return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, Code::BadUserInput, sentence));
            }
            Some(_) => {}
        }
        serde_json::from_str(text).map_err(|error| match error.classify() {
            Category::Data => not_a_request(&error),
            Category::Syntax | Category::Eof | Category::Io => bad_json(&error),
        })
    }

    /// From the parameters of a query string, where `variables` and `extensions` are JSON in text.
    pub(super) fn from_parameters(parameters: &'a Parameters) -> Result<Self, Problem> {
        let json = |name: &str, text: &'a Option<String>| match text.as_deref() {
            None | Some("") => Ok(None),
            Some(text) => serde_json::from_str::<&RawValue>(text).map(Some).map_err(|error| bad_json(format!("`{name}`: {error}"))),
        };
        let extensions = match json("extensions", &parameters.extensions)? {
            Some(raw) => serde_json::from_str(raw.get()).map_err(|error| not_a_request(&error))?,
            None => None,
        };
        Ok(Self {
            query: parameters.query.as_deref().map(Cow::Borrowed),
            operation_name: parameters.operation_name.as_deref().filter(|name| !name.is_empty()).map(Cow::Borrowed),
            variables: json("variables", &parameters.variables)?,
            extensions,
        })
    }

    pub(super) fn query(&self) -> Result<&str, Problem> {
        if let Some(query) = self.query.as_deref().filter(|query| !query.is_empty()) {
            return Ok(query);
        }
        if self.extensions.as_ref().is_some_and(|extensions| extensions.persisted_query.is_some()) {
            let sentence = "Persisted queries are not served: send the whole document in `query`.";
            return Err(Problem::new(StatusCode::BAD_REQUEST, Code::PersistedQueryNotSupported, sentence));
        }
        Err(not_a_request("it has no `query`"))
    }

    pub(super) fn variables(&self, bytes_max: usize) -> Result<Variables, Problem> {
        let Some(raw) = self.variables else { return Ok(Variables::default()) };
        if raw.get().len() > bytes_max {
            let sentence = format!("The variables have more than {bytes_max} bytes.");
            return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, Code::BadUserInput, sentence));
        }
        serde_json::from_str(raw.get()).map_err(|error| not_a_request(format!("`variables`: {error}")))
    }
}

/// The parameters of a GET.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Parameters {
    query: Option<String>,
    operation_name: Option<String>,
    variables: Option<String>,
    extensions: Option<String>,
}

pub(super) fn bad_json(why: impl std::fmt::Display) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, Code::BadUserInput, format!("The request cannot be read as JSON: {why}."))
}

pub(super) fn not_a_request(why: impl std::fmt::Display) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, Code::BadUserInput, format!("This is not a GraphQL request: {why}."))
}
