//! Prepared documents: parsed, guarded and checked against the schema; executable with the
//! variables of each request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_graphql::parser::types::{ExecutableDocument, OperationDefinition, OperationType};
use async_graphql::{Name, Request, Value, Variables};

use super::cost::OperationCost;
use super::document_cache::DocumentCacheState;
use super::introspection::IntrospectionSizes;
use super::literal;
use super::request_error::RequestError;

/// An executable document and its chosen operation.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// Shared with the cache. `Request::set_parsed_query` takes a clone of the document itself.
    pub document: Arc<ExecutableDocument>,
    pub operation: OperationType,
    /// Name of the operation, if it has one.
    pub name: Option<Name>,
    /// Whether the document, apart from its variables, passed validation. Shared with the cache.
    pub(super) is_valid: Arc<AtomicBool>,
    /// Key in the cache.
    pub(super) text: Arc<str>,
    pub(super) cache: Arc<DocumentCacheState>,
}

/// Values of an operation's variables, with the price of the operation for these values.
#[derive(Debug, Clone)]
pub struct CoercedVariables {
    pub variables: Variables,
    pub cost: OperationCost,
}

impl Prepared {
    pub(in crate::graphql) fn definition(&self) -> Option<&OperationDefinition> {
        self.document
            .operations
            .iter()
            .find(|(name, _)| *name == self.name.as_ref())
            .map(|(_, operation)| &operation.node)
    }

    /// Values of the declared variables: those of the request, else the defaults. async-graphql
    /// would report some wrong variables only during execution, after earlier fields of a mutation
    /// were executed.
    pub fn coerce(&self, request: Variables) -> Result<CoercedVariables, RequestError> {
        let Some(operation) = self.definition() else {
            return Ok(CoercedVariables {
                variables: Variables::default(),
                cost: OperationCost::default(),
            });
        };
        let variables = self
            .cache
            .types
            .inputs
            .coerce(operation, request)
            .map_err(RequestError::variables)?;
        let is_null = |name: &Name| matches!(variables.get(name), Some(Value::Null));
        // async-graphql would read a null condition as false. The document is searched only if some
        // variable is null.
        if variables.values().any(|value| *value == Value::Null)
            && let Some(name) = literal::condition_variables(&self.document)
                .into_iter()
                .find(is_null)
        {
            return Err(RequestError::variables(format!(
                "The variable `${name}` must not be null: it decides what is answered."
            )));
        }
        let cost = self.cost(&variables);
        self.check_complexity(cost)?;
        Ok(CoercedVariables { variables, cost })
    }

    fn check_complexity(&self, cost: OperationCost) -> Result<(), RequestError> {
        let bounds = &self.cache.bounds;
        let (subject, most) = match self.operation {
            OperationType::Query => ("The answer", bounds.complexity),
            OperationType::Mutation => ("The payload of a mutation", bounds.payload_complexity),
            OperationType::Subscription => ("The payload of an event", bounds.payload_complexity),
        };
        if cost.fields > most {
            let fields = cost.fields;
            return Err(RequestError::invalid(format!(
                "{subject} may come to {fields} fields, pages counted in full; at most {most} are answered."
            )));
        }
        Ok(())
    }

    /// Whether an execution of this document passed validation. Validation does not depend on the
    /// variables, which `coerce` checks.
    pub(in crate::graphql) fn is_valid(&self) -> bool {
        self.is_valid.load(Ordering::Relaxed)
    }

    /// Marks the document as valid after an execution. It enters the cache if the viewer was
    /// authenticated.
    pub(in crate::graphql) fn set_valid(&self, is_authenticated: bool) {
        self.is_valid.store(true, Ordering::Relaxed);
        if is_authenticated {
            self.cache.insert(self);
        }
    }

    pub(super) fn introspection(&self) -> &IntrospectionSizes {
        &self.cache.types.introspection
    }

    /// The text. Documents prepared from one cached text share one allocation.
    pub(in crate::graphql) fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// A request for the schema. The caller adds the `ExecutionContext`.
    pub(in crate::graphql) fn request(&self, variables: Variables) -> Request {
        let mut request = Request::new("").variables(variables);
        request.operation_name = self.name.as_ref().map(ToString::to_string);
        request.set_parsed_query(self.document.as_ref().clone());
        request
    }
}
