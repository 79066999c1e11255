//! Document of a webhook: a subscription on `outbox`, executed once for each event, whose answer is the payload.

use std::sync::Arc;

use async_graphql::parser::types::OperationType;
use async_graphql::{Response, ServerError, Value, Variables};

use super::error::Code;
use super::execution::{DocumentBounds, DocumentCache, Prepared, each_field};
use super::schema::TYPES;
use crate::model::{UserId, Viewer};

/// Longest document in the operator's file.
const BYTES_MAX: usize = 32 * 1024;
/// Name of the service that a document is executed for. No token has it.
const VIEWER: &str = "wideroom:webhook";

/// Document of a webhook that names none.
const DEFAULT_DOCUMENT: &str = include_str!("outbox_document.graphql");

/// Checked document.
#[derive(Clone)]
pub struct OutboxDocument {
    prepared: Prepared,
    viewer: Viewer,
}

impl OutboxDocument {
    /// Parses and validates a document, or the default one. `Err` says in one sentence what is wrong.
    pub fn parse(text: Option<&str>) -> Result<Self, String> {
        let bounds = DocumentBounds {
            bytes: BYTES_MAX,
            ..DocumentBounds::default()
        };
        let documents = DocumentCache::new(bounds, Arc::clone(&TYPES));
        let prepared = documents
            .prepare(text.unwrap_or(DEFAULT_DOCUMENT), None)
            .map_err(|error| error.to_string())?;
        check_root(&prepared)?;
        prepared
            .coerce(Variables::default())
            .map_err(|error| error.to_string())?;
        Ok(Self {
            prepared,
            viewer: Viewer::service(UserId::parse(VIEWER).expect("it is a name")),
        })
    }

    pub(super) fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    pub(super) fn viewer(&self) -> &Viewer {
        &self.viewer
    }
}

/// Whether the document asks for `outbox` alone, as it is: the settings of the webhook choose the events.
fn check_root(prepared: &Prepared) -> Result<(), String> {
    let operation = prepared.definition();
    let mut is_plain = operation.variable_definitions.is_empty();
    each_field(&operation.selection_set.node, &mut |root| {
        is_plain &= root.name.node == "outbox" && root.arguments.is_empty();
    });
    if prepared.operation == OperationType::Subscription && is_plain {
        Ok(())
    } else {
        Err(
            "The document must be a subscription on `outbox` without arguments and variables."
                .to_owned(),
        )
    }
}

/// Answer of a document to one event.
#[derive(Debug)]
pub struct RenderedEvent {
    pub data: Value,
    pub errors: Vec<ServerError>,
}

impl RenderedEvent {
    /// Whether another execution may succeed: the store was not available, or a part of the server failed.
    pub fn is_transient(&self) -> bool {
        let code = |error: &ServerError| {
            let code = error.extensions.as_ref()?.get("code")?;
            Some(
                [Code::Unavailable, Code::Internal]
                    .iter()
                    .any(|one| *code == Value::from(one.as_str())),
            )
        };
        self.errors.iter().any(|error| code(error).unwrap_or(false))
    }
}

impl From<Response> for RenderedEvent {
    fn from(response: Response) -> Self {
        Self {
            data: response.data,
            errors: response.errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        OutboxDocument::parse(Some(text)).err().unwrap()
    }

    #[test]
    fn the_default_document_is_valid() {
        OutboxDocument::parse(None).map(drop).unwrap();
    }

    #[test]
    fn a_document_is_a_subscription_on_the_outbox_alone() {
        let own = "subscription { outbox { id event { __typename } } }";
        assert!(OutboxDocument::parse(Some(own)).is_ok());
        for text in [
            "{ viewer { username } }",
            "subscription { typingChanged(conversationId: \"a\") { isTyping } }",
            "subscription { outbox(types: [MESSAGE_ADDED]) { id } }",
            "subscription ($after: String) { outbox(after: $after) { id } }",
        ] {
            let why = refused(text);
            assert!(why.contains("without arguments"), "{text}: {why}");
        }
        assert!(refused("subscription { outbox {").contains("parsed"));
        assert!(refused("subscription { outbox { nothing } }").contains("nothing"));
        let large = "subscription { outbox { conversation { messages(first: 100) { edges { node { conversation { messages(first: 100) { edges { node { id body } } } } } } } } } }";
        assert!(refused(large).contains("at most 20000"));
    }
}
