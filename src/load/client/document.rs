//! GraphQL request whose document is serialised once and sent with many sets of variables.

use hyper::body::Bytes;
use serde::Serialize;

pub struct Document {
    /// JSON of the request up to the value of `variables`.
    head: String,
}

impl Document {
    pub fn new(text: &str) -> Self {
        Self {
            head: format!(r#"{{"query":{},"variables":"#, json(text)),
        }
    }

    pub fn request_body(&self, variables: &impl Serialize) -> Bytes {
        self.request_text(variables).into()
    }

    pub(crate) fn request_text(&self, variables: &impl Serialize) -> String {
        [&self.head, json(variables).as_str(), "}"].concat()
    }
}

fn json(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).expect("a tree of text and numbers serialises")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_request_is_json_around_its_variables() {
        let request =
            Document::new("query(\n$c: ID!) { x(a: \"b\") }").request_body(&json!({"c": "\"1\""}));
        let request: Value = serde_json::from_slice(&request).unwrap();
        assert_eq!(
            request,
            json!({"query": "query(\n$c: ID!) { x(a: \"b\") }", "variables": {"c": "\"1\""}})
        );
    }
}
