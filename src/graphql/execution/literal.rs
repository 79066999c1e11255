//! Literals of a document, checked against the schema: the types of its variables and the literals
//! of its arguments.
//!
//! async-graphql validates a literal only if all variables in it have values: the same document
//! would be valid for some variables and invalid for others. It also panics at a list of an unknown
//! type. This check runs once for each document, in time linear in it.

use std::collections::HashMap;
use std::convert::Infallible;

use async_graphql::parser::parse_schema;
use async_graphql::parser::types::{
    BaseType, Directive, ExecutableDocument, Field, FieldDefinition, OperationType, Selection,
    SelectionSet, Type, TypeDefinition, TypeKind, TypeSystemDefinition,
};
use async_graphql::{Name, Pos, Value};

use super::introspection::IntrospectionSizes;
use super::variable::{InputField, InputTypes, ValuePath};

/// Types of a schema, by name.
#[derive(Debug)]
pub(in crate::graphql) struct SchemaTypes {
    pub(in crate::graphql) inputs: InputTypes,
    pub(in crate::graphql) introspection: IntrospectionSizes,
    fields: HashMap<Name, HashMap<Name, OutputField>>,
    roots: Vec<(OperationType, Name)>,
}

#[derive(Debug)]
struct OutputField {
    arguments: Vec<InputField>,
    of: Name,
}

/// Mismatch between a document and the schema, with its position.
pub(in crate::graphql) struct LiteralError(
    pub(in crate::graphql) String,
    pub(in crate::graphql) Pos,
);

impl SchemaTypes {
    /// Types of the schema with this text.
    pub(in crate::graphql) fn of(sdl: &str) -> Self {
        let definitions = parse_schema(sdl)
            .map(|schema| schema.definitions)
            .unwrap_or_default();
        let mut roots = Vec::new();
        let mut types: Vec<&TypeDefinition> = Vec::new();
        for definition in &definitions {
            match definition {
                TypeSystemDefinition::Type(definition) => types.push(&definition.node),
                TypeSystemDefinition::Schema(schema) => {
                    let schema = &schema.node;
                    roots.extend(
                        schema
                            .query
                            .as_ref()
                            .map(|name| (OperationType::Query, name.node.clone())),
                    );
                    roots.extend(
                        schema
                            .mutation
                            .as_ref()
                            .map(|name| (OperationType::Mutation, name.node.clone())),
                    );
                    roots.extend(
                        schema
                            .subscription
                            .as_ref()
                            .map(|name| (OperationType::Subscription, name.node.clone())),
                    );
                }
                TypeSystemDefinition::Directive(_) => {}
            }
        }
        let fields = types.iter().filter_map(|definition| {
            let fields = match &definition.kind {
                TypeKind::Object(object) => &object.fields,
                TypeKind::Interface(interface) => &interface.fields,
                TypeKind::Scalar
                | TypeKind::Union(_)
                | TypeKind::Enum(_)
                | TypeKind::InputObject(_) => return None,
            };
            let fields = fields
                .iter()
                .map(|field| (field.node.name.node.clone(), OutputField::of(&field.node)))
                .collect();
            Some((definition.name.node.clone(), fields))
        });
        Self {
            fields: fields.collect(),
            inputs: InputTypes::of(types.iter().copied()),
            introspection: IntrospectionSizes::of(&definitions),
            roots,
        }
    }

    /// Refuses a document that no variables make valid. Validation reports unknown fields and
    /// arguments.
    pub(in crate::graphql) fn check(
        &self,
        document: &ExecutableDocument,
    ) -> Result<(), LiteralError> {
        for (_, operation) in document.operations.iter() {
            for definition in &operation.node.variable_definitions {
                let ty = &definition.node.var_type;
                if !self.inputs.has(&ty.node) {
                    return Err(LiteralError(
                        format!(
                            "The type `{}` of the variable `${}` is none of the schema's inputs.",
                            ty.node, definition.node.name.node
                        ),
                        ty.pos,
                    ));
                }
            }
            let root = self
                .roots
                .iter()
                .find(|(ty, _)| *ty == operation.node.ty)
                .map(|(_, name)| name);
            self.set(root, &operation.node.selection_set.node)?;
        }
        let mut fragments = document.fragments.values();
        fragments.try_for_each(|fragment| {
            self.set(
                Some(&fragment.node.type_condition.node.on.node),
                &fragment.node.selection_set.node,
            )
        })
    }

    /// Skips fragment spreads, as `check` visits each fragment once.
    fn set(&self, of: Option<&Name>, set: &SelectionSet) -> Result<(), LiteralError> {
        for selection in &set.items {
            match &selection.node {
                Selection::Field(field) => {
                    let known = of.and_then(|of| self.fields.get(of)?.get(&field.node.name.node));
                    if let Some(known) = known {
                        self.arguments(&known.arguments, &field.node)?;
                    }
                    self.set(known.map(|known| &known.of), &field.node.selection_set.node)?;
                }
                Selection::InlineFragment(inline) => {
                    let condition = inline
                        .node
                        .type_condition
                        .as_ref()
                        .map(|condition| &condition.node.on.node);
                    self.set(condition.or(of), &inline.node.selection_set.node)?;
                }
                Selection::FragmentSpread(_) => {}
            }
        }
        Ok(())
    }

    fn arguments(&self, known: &[InputField], field: &Field) -> Result<(), LiteralError> {
        for (name, value) in &field.arguments {
            let Some(argument) = known.iter().find(|known| known.name == name.node) else {
                continue;
            };
            // A variable becomes a placeholder that fits every type.
            let Ok(literal) = value
                .node
                .clone()
                .into_const_with(|_| Ok::<_, Infallible>(Value::Binary(Default::default())));
            self.inputs
                .value(&argument.ty, &literal, ValuePath::Argument(&name.node))
                .map_err(|why| LiteralError(why, value.pos))?;
        }
        Ok(())
    }
}

impl OutputField {
    fn of(definition: &FieldDefinition) -> Self {
        let arguments = definition
            .arguments
            .iter()
            .map(|argument| InputField::of(&argument.node))
            .collect();
        Self {
            arguments,
            of: innermost(&definition.ty.node).clone(),
        }
    }
}

fn innermost(ty: &Type) -> &Name {
    match &ty.base {
        BaseType::Named(name) => name,
        BaseType::List(of) => innermost(of),
    }
}

/// Variables in the conditions of `@include` and `@skip`.
pub(in crate::graphql) fn condition_variables(document: &ExecutableDocument) -> Vec<Name> {
    let mut found = Vec::new();
    let operations = document
        .operations
        .iter()
        .map(|(_, operation)| &operation.node.selection_set.node);
    let mut open: Vec<_> = operations
        .chain(
            document
                .fragments
                .values()
                .map(|fragment| &fragment.node.selection_set.node),
        )
        .collect();
    while let Some(set) = open.pop() {
        for selection in &set.items {
            selection
                .node
                .directives()
                .iter()
                .for_each(|directive| variables_of(&directive.node, &mut found));
            match &selection.node {
                Selection::Field(field) => open.push(&field.node.selection_set.node),
                Selection::InlineFragment(inline) => open.push(&inline.node.selection_set.node),
                Selection::FragmentSpread(_) => {}
            }
        }
    }
    found
}

fn variables_of(directive: &Directive, found: &mut Vec<Name>) {
    for (_, value) in &directive.arguments {
        let Ok(_) = value.node.clone().into_const_with(|name| {
            found.push(name);
            Ok::<_, Infallible>(Value::Null)
        });
    }
}

#[cfg(test)]
mod tests {
    use async_graphql::parser::parse_query;

    use super::*;

    const SDL: &str = "schema { query: Q } type Q { find(by: By!, n: [Int!]): Q node: N! } interface N { id(of: Role = A): ID! } \
                       enum Role { A B } input By { name: String!, role: Role, or: By }";

    fn check(text: &str) -> Result<(), String> {
        SchemaTypes::of(SDL)
            .check(&parse_query(text).unwrap())
            .map_err(|LiteralError(why, _)| why)
    }

    #[test]
    fn valid_literals_are_accepted() {
        for text in [
            "{ find(by: {name: \"x\", role: B, or: {name: \"y\"}}, n: 1) { node { id(of: A) } } unknown(x: 1) { y(z: 2) } }",
            "query($a: String!, $b: By!, $c: Role = A) { a: find(by: {name: $a, or: $b}, n: [1, 2]) { node { id(of: $c) } } b: find(by: $b) { node { id } } }",
            "{ ...F } fragment F on Q { find(by: {name: \"x\"}) { ... { node { ... on N { id(of: B) } } } } }",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn invalid_literals_are_named_even_beside_variables() {
        for (text, said) in [
            (
                "{ find(by: {name: 1}) { node { id } } }",
                "The argument `by.name` must be of the type `String`.",
            ),
            (
                "query($r: Role) { find(by: {role: $r}) { node { id } } }",
                "The argument `by.name` is missing; it is of the type `String!`.",
            ),
            (
                "query($a: String!) { find(by: {name: $a, nmae: 1}) { node { id } } }",
                "The argument `by` has a field `nmae` that `By` does not have.",
            ),
            (
                "{ node { id(of: C) } }",
                "The argument `of` must be one of A, B.",
            ),
            (
                "{ a { b } ...F } fragment F on Q { ... on Q { find(by: null) { node { id } } } }",
                "The argument `by` must not be null; it is of the type `By!`.",
            ),
            (
                "query($a: [Nowhere] = [1]) { node { id } }",
                "The type `[Nowhere]` of the variable `$a` is none of the schema's inputs.",
            ),
            (
                "query($a: Q) { node { id } }",
                "The type `Q` of the variable `$a` is none of the schema's inputs.",
            ),
        ] {
            assert_eq!(check(text).unwrap_err(), said, "{text}");
        }
    }
}
