//! A GraphQL document that is sent many times, each time with other variables.

use hyper::body::Bytes;
use serde::Serialize;

pub(super) struct Document {
    /// The request up to its variables.
    head: String,
}

impl Document {
    pub(super) fn new(text: &str) -> Self {
        Self { head: format!(r#"{{"query":{},"variables":"#, json(text)) }
    }

    /// The body of a request.
    pub(super) fn with(&self, variables: &impl Serialize) -> Bytes {
        self.text(variables).into()
    }

    pub(super) fn text(&self, variables: &impl Serialize) -> String {
        [&self.head, json(variables).as_str(), "}"].concat()
    }
}

fn json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("what is asked is a tree of text and numbers")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_request_is_json_around_its_variables() {
        let request = Document::new("query(\n$c: ID!) { x(a: \"b\") }").with(&json!({"c": "\"1\""}));
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(request, json!({"query": "query(\n$c: ID!) { x(a: \"b\") }", "variables": {"c": "\"1\""}}));
    }
}
