//! Merged operations: fragments are inlined, and the fields of each response key are one field, as
//! the specification's `CollectFields` and `MergeSelectionSets` do during execution.
//!
//! async-graphql merges answers instead. It would execute a repeated field once for each of its
//! occurrences: a mutation twice, and a page at two moments.

use std::cell::Cell;

use async_graphql::indexmap::IndexMap;
use async_graphql::parser::types::{
    Directive, ExecutableDocument, Field, InlineFragment, OperationDefinition, Selection,
    SelectionSet, TypeCondition,
};
use async_graphql::{Name, Positioned, Value as ConstValue, Variables};
use async_graphql_value::Value;

use super::schema_types::{SchemaTypes, innermost};
use super::selections::Selected;

/// Merges the selections of a valid operation. Each `@skip` and `@include` is applied if there are
/// variables; without them every selection is included.
pub(super) struct OperationMerger<'a> {
    types: &'a SchemaTypes,
    document: &'a ExecutableDocument,
    variables: Option<&'a Variables>,
    has_conditions: Cell<bool>,
}

/// Selections on one object that become one.
#[derive(PartialEq, Eq, Hash)]
enum SelectionKey<'a> {
    Field(&'a Name),
    /// Fragment on a type that only some of the objects have.
    On(&'a Name),
}

enum MergedSelection<'a> {
    Field(&'a Positioned<Field>, Vec<&'a SelectionSet>),
    On(&'a Positioned<TypeCondition>, Vec<&'a SelectionSet>),
}

impl<'a> OperationMerger<'a> {
    pub(super) fn new(
        types: &'a SchemaTypes,
        document: &'a ExecutableDocument,
        variables: Option<&'a Variables>,
    ) -> Self {
        Self {
            types,
            document,
            variables,
            has_conditions: Cell::new(false),
        }
    }

    pub(super) fn merge(&self, operation: &'a OperationDefinition) -> OperationDefinition {
        let set = &operation.selection_set;
        let merged = match self.types.root(operation.ty) {
            Some(root) => self.set(root, &[&set.node]),
            None => SelectionSet::default(),
        };
        OperationDefinition {
            ty: operation.ty,
            variable_definitions: operation.variable_definitions.clone(),
            directives: Vec::new(),
            selection_set: Positioned::new(merged, set.pos),
        }
    }

    /// Whether a merged selection has a condition.
    pub(super) fn has_conditions(&self) -> bool {
        self.has_conditions.get()
    }

    fn set(&self, parent: &'a Name, sets: &[&'a SelectionSet]) -> SelectionSet {
        let mut parts = IndexMap::new();
        for set in sets {
            self.collect(parent, set, &mut parts);
        }
        let items = parts.into_values().map(|part| match part {
            MergedSelection::Field(field, sets) => {
                let merged = Positioned::new(self.field(parent, &field.node, &sets), field.pos);
                Positioned::new(Selection::Field(merged), field.pos)
            }
            MergedSelection::On(condition, sets) => {
                let pos = condition.pos;
                let merged = InlineFragment {
                    type_condition: Some(condition.clone()),
                    directives: Vec::new(),
                    selection_set: Positioned::new(self.set(&condition.node.on.node, &sets), pos),
                };
                Positioned::new(Selection::InlineFragment(Positioned::new(merged, pos)), pos)
            }
        });
        SelectionSet {
            items: items.collect(),
        }
    }

    fn field(&self, parent: &'a Name, field: &'a Field, sets: &[&'a SelectionSet]) -> Field {
        let merged = match self.types.field(parent, &field.name.node) {
            Some(known) if !field.selection_set.node.items.is_empty() => {
                self.set(innermost(&known.ty), sets)
            }
            _ => SelectionSet::default(),
        };
        Field {
            alias: field.alias.clone(),
            name: field.name.clone(),
            arguments: field.arguments.clone(),
            directives: Vec::new(),
            selection_set: Positioned::new(merged, field.selection_set.pos),
        }
    }

    fn collect(
        &self,
        parent: &'a Name,
        set: &'a SelectionSet,
        parts: &mut IndexMap<SelectionKey<'a>, MergedSelection<'a>>,
    ) {
        for item in &set.items {
            if !item
                .node
                .directives()
                .iter()
                .all(|directive| self.includes(&directive.node))
            {
                continue;
            }
            let (condition, set) = match Selected::of(self.document, &item.node) {
                Selected::Field(field) => {
                    let part = parts
                        .entry(SelectionKey::Field(&field.node.response_key().node))
                        .or_insert_with(|| MergedSelection::Field(field, Vec::new()));
                    part.push(&field.node.selection_set.node);
                    continue;
                }
                Selected::Fragment(condition, set) => (condition, set),
            };
            match condition.filter(|condition| !self.covers(&condition.node.on.node, parent)) {
                Some(condition) => parts
                    .entry(SelectionKey::On(&condition.node.on.node))
                    .or_insert_with(|| MergedSelection::On(condition, Vec::new()))
                    .push(set),
                None => self.collect(parent, set, parts),
            }
        }
    }

    /// Whether every object of the type `parent` is of the type `of`.
    fn covers(&self, of: &Name, parent: &Name) -> bool {
        let objects = |name| self.types.composites.get(name).map(|ty| &ty.objects);
        of == parent
            || matches!((objects(parent), objects(of)), (Some(parent), Some(of)) if parent.is_subset(of))
    }

    fn includes(&self, directive: &Directive) -> bool {
        self.has_conditions.set(true);
        let Some(variables) = self.variables else {
            return true;
        };
        let condition = match directive.get_argument("if").map(|value| &value.node) {
            Some(Value::Boolean(condition)) => *condition,
            Some(Value::Variable(name)) => variables.get(name) == Some(&ConstValue::Boolean(true)),
            _ => false,
        };
        condition == (directive.name.node == "include")
    }
}

impl<'a> MergedSelection<'a> {
    fn push(&mut self, set: &'a SelectionSet) {
        match self {
            Self::Field(_, sets) | Self::On(_, sets) => sets.push(set),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::DocumentBounds;
    use super::super::syntax;
    use super::*;

    const SDL: &str = "schema { query: Q } type Q { a(x: Int): Q b: Q id: ID node: Node any: U } interface Node { id: ID }
        type One implements Node { id: ID one: Q } type Two implements Node { id: ID two: ID } union U = One | Two";

    fn merged(text: &str, variables: Option<Variables>) -> String {
        let types = SchemaTypes::of(SDL);
        let document = syntax::parse(text, &DocumentBounds::default()).unwrap();
        let merger = OperationMerger::new(&types, &document, variables.as_ref());
        let (_, operation) = document.operations.iter().next().unwrap();
        written(&merger.merge(&operation.node).selection_set.node)
    }

    fn written(set: &SelectionSet) -> String {
        let items = set.items.iter().map(|item| match &item.node {
            Selection::Field(field) => {
                let inner = written(&field.node.selection_set.node);
                format!("{}{inner}", field.node.response_key().node)
            }
            Selection::InlineFragment(inline) => {
                let on = &inline.node.type_condition.as_ref().unwrap().node.on.node;
                format!("...{on}{}", written(&inline.node.selection_set.node))
            }
            Selection::FragmentSpread(_) => panic!("every fragment is inlined"),
        });
        let items: Vec<_> = items.collect();
        if items.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", items.join(" "))
        }
    }

    #[test]
    fn a_field_that_is_selected_again_is_one_field() {
        for (text, expected) in [
            (
                "{ a { id } b { id } a { b { id } } }",
                "{a{id b{id}} b{id}}",
            ),
            (
                "{ a { id } ...F ... { a { id } } } fragment F on Q { c: id a { b { id } } }",
                "{a{id b{id}} c}",
            ),
            (
                "{ node { id ... on Node { id } ... on One { one { id } } ... on One { one { c: id } } } }",
                "{node{id ...One{one{id c}}}}",
            ),
            (
                "{ any { ... on Node { id ... on Two { two } } ... on Two { two } __typename } }",
                "{any{id ...Two{two} __typename}}",
            ),
            ("{ a { id @skip(if: true) b { id } } }", "{a{id b{id}}}"),
        ] {
            assert_eq!(merged(text, None), expected, "{text}");
        }
    }

    #[test]
    fn conditions_are_applied_before_fields_are_merged() {
        let text = "query($yes: Boolean!, $no: Boolean!) { a { id } a @include(if: $yes) { b { id } } a @include(if: $no) { c: id }
            ...F @skip(if: $no) ... @skip(if: $yes) { b { id } } b @include(if: false) { id } } fragment F on Q { d: id }";
        let variables = Variables::from_json(serde_json::json!({ "yes": true, "no": false }));
        assert_eq!(merged(text, Some(variables)), "{a{id b{id}} d}");
    }
}
