//! Prepared documents: parsed, guarded and validated; executable with the variables of each request.

use std::sync::Arc;

use async_graphql::parser::types::{
    DocumentOperations, ExecutableDocument, OperationDefinition, OperationType, SelectionSet,
};
use async_graphql::{Name, Positioned, Request, Value, Variables};

use super::cost::OperationCost;
use super::document_cache::DocumentCacheState;
use super::merged_operation::OperationMerger;
use super::omission::remove_omitted;
use super::request_error::RequestError;
use super::schema_types::{IntrospectionSizes, SchemaTypes, innermost};
use super::selections::each_field;

/// A chosen operation of an executable document.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub operation: OperationType,
    /// Name of the operation, if it has one.
    pub name: Option<Name>,
    /// Shared with the cache.
    pub(super) chosen: Arc<PreparedOperation>,
    /// Whether the cache knew the document.
    pub is_cached: bool,
    /// Key in the cache.
    pub(super) text: Arc<str>,
    pub(super) document: Arc<PreparedDocument>,
    pub(super) cache: Arc<DocumentCacheState>,
}

/// Valid operations of one document.
#[derive(Debug)]
pub(super) struct PreparedDocument {
    pub(super) operations: Vec<Arc<PreparedOperation>>,
}

/// Valid operation.
#[derive(Debug)]
pub(super) struct PreparedOperation {
    pub(super) name: Option<Name>,
    /// Merged, with every selection whose condition some variables meet.
    definition: OperationDefinition,
    /// The document as it was parsed, if the operation has conditions.
    conditional: Option<Arc<ExecutableDocument>>,
    /// Variables whose value must not be null although their type is nullable.
    never_null: Vec<Name>,
}

/// Values of an operation's variables, with the price of the operation for these values.
#[derive(Debug, Clone)]
pub struct CoercedVariables {
    pub variables: Variables,
    pub cost: OperationCost,
}

impl PreparedOperation {
    pub(super) fn of(
        types: &SchemaTypes,
        document: &Arc<ExecutableDocument>,
        (name, operation): (Option<&Name>, &OperationDefinition),
        never_null: Vec<Name>,
    ) -> Self {
        let merger = OperationMerger::new(types, document, None);
        let definition = merger.merge(operation);
        Self {
            name: name.cloned(),
            definition,
            conditional: merger.has_conditions().then(|| Arc::clone(document)),
            never_null,
        }
    }

    pub(super) fn ty(&self) -> OperationType {
        self.definition.ty
    }

    /// Number of fields, which says how much memory the operation takes.
    pub(super) fn fields(&self) -> usize {
        fn count(set: &SelectionSet) -> usize {
            let mut fields = 0;
            each_field(set, &mut |field| {
                fields += 1 + count(&field.selection_set.node)
            });
            fields
        }
        count(&self.definition.selection_set.node)
    }

    /// The operation to execute with these variables.
    fn executable(&self, types: &SchemaTypes, variables: &Variables) -> OperationDefinition {
        let source = self.conditional.as_ref().and_then(|document| {
            let mut operations = document.operations.iter();
            let (_, source) = operations.find(|(name, _)| *name == self.name.as_ref())?;
            Some((document, source))
        });
        match source {
            Some((document, source)) => {
                OperationMerger::new(types, document, Some(variables)).merge(&source.node)
            }
            None => self.definition.clone(),
        }
    }
}

impl Prepared {
    pub(in crate::graphql) fn definition(&self) -> &OperationDefinition {
        &self.chosen.definition
    }

    /// Name of the type of a field's values, without its lists.
    pub(in crate::graphql) fn type_of(&self, parent: &Name, field: &Name) -> Option<&Name> {
        let field = self.cache.types.field(parent, field)?;
        Some(innermost(&field.ty))
    }

    /// Values of the declared variables: those of the request, else the defaults. async-graphql
    /// would report some wrong variables only during execution, after earlier fields of a mutation
    /// were executed.
    pub fn coerce(&self, request: Variables) -> Result<CoercedVariables, RequestError> {
        let variables = self
            .cache
            .types
            .inputs
            .coerce(self.definition(), request)
            .map_err(RequestError::variables)?;
        let is_null = |name: &&Name| matches!(variables.get(*name), Some(Value::Null));
        if let Some(name) = self.chosen.never_null.iter().find(is_null) {
            return Err(RequestError::variables(format!(
                "The variable `${name}` must not be null where the operation uses it."
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
            OperationType::Subscription if self.is_outbox() => {
                ("The payload of an event", bounds.outbox_complexity)
            }
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

    /// Whether the root of a subscription is `outbox`, which services alone may read.
    fn is_outbox(&self) -> bool {
        let mut is_outbox = true;
        each_field(&self.definition().selection_set.node, &mut |root| {
            is_outbox &= root.name.node == "outbox";
        });
        is_outbox
    }

    /// Caches the document, which an authenticated viewer executes. Clients without a token cannot
    /// evict the documents of others.
    pub(in crate::graphql) fn cache(&self) {
        if !self.is_cached {
            self.cache.insert(&self.text, &self.document);
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
    pub fn request(&self, variables: Variables) -> Request {
        let mut operation = self.chosen.executable(&self.cache.types, &variables);
        remove_omitted(&mut operation, &variables);
        let mut request = Request::new("").variables(variables);
        request.set_parsed_query(ExecutableDocument {
            operations: DocumentOperations::Single(Positioned::new(operation, Default::default())),
            fragments: Default::default(),
        });
        request
    }
}
