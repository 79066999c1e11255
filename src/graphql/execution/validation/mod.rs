//! Validation of documents, by the rules of the specification's section of this name. It depends on
//! no variables and runs once for each document; async-graphql then validates nothing.
//!
//! The guard runs first. It refuses cycles of fragments, and bounds each operation with its fragments
//! expanded: the time of every rule here is linear in that.

mod contents;
mod field_merging;
mod literal;
mod subscription_root;

use std::collections::{HashMap, HashSet};

use async_graphql::Name;
use async_graphql::parser::types::{ExecutableDocument, OperationDefinition, OperationType};

use super::request_error::RequestError;
use super::schema_types::SchemaTypes;
use contents::{Contents, ContentsReader};
use literal::{VariableUsage, fits};

/// Document whose fragments are valid.
pub(super) struct Validation<'a> {
    types: &'a SchemaTypes,
    document: &'a ExecutableDocument,
    fragments: HashMap<&'a Name, Contents<'a>>,
    /// Fragments that some valid operation reaches.
    used: HashSet<&'a Name>,
}

impl<'a> Validation<'a> {
    pub(super) fn of(
        types: &'a SchemaTypes,
        document: &'a ExecutableDocument,
    ) -> Result<Self, RequestError> {
        let fragments = document.fragments.iter().map(|(name, fragment)| {
            let mut reader = ContentsReader::new(types, document);
            reader.fragment(&fragment.node)?;
            Ok((name, reader.contents))
        });
        Ok(Self {
            types,
            document,
            fragments: fragments.collect::<Result<_, RequestError>>()?,
            used: HashSet::new(),
        })
    }

    /// Validates an operation. Returns those of its variables whose value must not be null although
    /// their type is nullable.
    pub(super) fn operation(
        &mut self,
        operation: &'a OperationDefinition,
    ) -> Result<Vec<Name>, RequestError> {
        let root = self
            .types
            .root(operation.ty)
            .ok_or_else(|| RequestError::invalid(format!("The schema has no {}.", operation.ty)))?;
        let mut reader = ContentsReader::new(self.types, self.document);
        reader.operation(root, operation)?;
        let contents = reader.contents;
        let reached = self.reach(&contents);
        let fragments = reached.iter().filter_map(|name| self.fragments.get(name));
        let usages = fragments.flat_map(|fragment| &fragment.usages);
        let never_null = check_variables(operation, contents.usages.iter().chain(usages))?;
        self.used.extend(reached);
        if operation.ty == OperationType::Subscription {
            subscription_root::check(self.document, operation)?;
        }
        field_merging::check(self.types, self.document, root, operation)?;
        Ok(never_null)
    }

    /// Validates that each fragment is used, after all operations.
    pub(super) fn finish(self) -> Result<(), RequestError> {
        let mut fragments = self.document.fragments.iter();
        match fragments.find(|(name, _)| !self.used.contains(name)) {
            Some((name, fragment)) => Err(RequestError::invalid_at(
                format!("No operation uses the fragment `{name}`."),
                fragment.pos,
            )),
            None => Ok(()),
        }
    }

    fn reach(&self, contents: &Contents<'a>) -> HashSet<&'a Name> {
        let mut reached = HashSet::new();
        let mut open = contents.spreads.clone();
        while let Some(name) = open.pop() {
            if reached.insert(name) {
                let fragment = self.fragments.get(name);
                open.extend(fragment.iter().flat_map(|fragment| &fragment.spreads));
            }
        }
        reached
    }
}

/// Checks that each variable has one definition and some use, and that it fits where it is used.
fn check_variables<'a>(
    operation: &OperationDefinition,
    usages: impl Iterator<Item = &'a VariableUsage<'a>>,
) -> Result<Vec<Name>, RequestError> {
    let mut unused = HashMap::new();
    for definition in &operation.variable_definitions {
        let name = &definition.node.name;
        if unused.insert(&name.node, definition).is_some() {
            return Err(RequestError::invalid_at(
                format!("The operation defines the variable `${}` twice.", name.node),
                name.pos,
            ));
        }
    }
    let definitions = unused.clone();
    let mut never_null = Vec::new();
    for usage in usages {
        let name = usage.name;
        let Some(definition) = definitions.get(name) else {
            return Err(RequestError::invalid_at(
                format!("The operation does not define the variable `${name}`."),
                usage.position,
            ));
        };
        unused.remove(name);
        let Some((expected, has_default)) = usage.expected else {
            continue;
        };
        let ty = &definition.node.var_type.node;
        let is_refused_null = ty.nullable && !expected.nullable;
        let default = definition.node.default_value.as_ref();
        let has_default =
            has_default || default.is_some_and(|value| value.node != async_graphql::Value::Null);
        if !fits(ty, expected) || (is_refused_null && !has_default) {
            return Err(RequestError::invalid_at(
                format!(
                    "The variable `${name}` is of the type `{ty}`, where `{expected}` is expected."
                ),
                usage.position,
            ));
        }
        if is_refused_null && !never_null.contains(name) {
            never_null.push(name.clone());
        }
    }
    match unused.values().next() {
        Some(definition) => Err(RequestError::invalid_at(
            format!(
                "The operation does not use the variable `${}`.",
                definition.node.name.node
            ),
            definition.pos,
        )),
        None => Ok(never_null),
    }
}

#[cfg(test)]
#[path = "validation_test.rs"]
mod tests;
