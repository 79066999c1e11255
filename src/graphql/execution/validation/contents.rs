//! Contents of operations and fragments: their selections against the types of the schema.

use std::collections::HashSet;

use async_graphql::parser::types::{
    Directive, ExecutableDocument, Field, FragmentDefinition, OperationDefinition, Selection,
    SelectionSet, TypeCondition, VariableDefinition,
};
use async_graphql::{Name, Pos, Positioned};
use async_graphql_value::Value;

use super::literal::{LiteralCheck, VariableUsage};
use crate::graphql::execution::RequestError;
use crate::graphql::execution::schema_types::{
    CompositeType, InputField, SchemaTypes, ValuePath, innermost,
};

type Checked<T = ()> = Result<T, RequestError>;

/// Fragments and variables that an operation or a fragment names.
#[derive(Default)]
pub(super) struct Contents<'a> {
    pub(super) spreads: Vec<&'a Name>,
    pub(super) usages: Vec<VariableUsage<'a>>,
}

/// Reads one operation or fragment, without the fragments that it spreads.
pub(super) struct ContentsReader<'a> {
    types: &'a SchemaTypes,
    document: &'a ExecutableDocument,
    pub(super) contents: Contents<'a>,
}

impl<'a> ContentsReader<'a> {
    pub(super) fn new(types: &'a SchemaTypes, document: &'a ExecutableDocument) -> Self {
        Self {
            types,
            document,
            contents: Contents::default(),
        }
    }

    pub(super) fn operation(
        &mut self,
        root: &'a Name,
        operation: &'a OperationDefinition,
    ) -> Checked {
        no_directives(&operation.directives)?;
        for definition in &operation.variable_definitions {
            self.variable_definition(&definition.node)?;
        }
        self.selection_set(root, &operation.selection_set.node)
    }

    pub(super) fn fragment(&mut self, fragment: &'a FragmentDefinition) -> Checked {
        no_directives(&fragment.directives)?;
        let of = &fragment.type_condition.node.on;
        self.composite(of)?;
        self.selection_set(&of.node, &fragment.selection_set.node)
    }

    fn variable_definition(&mut self, definition: &'a VariableDefinition) -> Checked {
        no_directives(&definition.directives)?;
        let (name, ty) = (&definition.name.node, &definition.var_type);
        if !self.types.inputs.has(&ty.node) {
            return Err(RequestError::invalid_at(
                format!(
                    "The type `{}` of the variable `${name}` is none of the schema's inputs.",
                    ty.node
                ),
                ty.pos,
            ));
        }
        let Some(default) = &definition.default_value else {
            return Ok(());
        };
        let value = default.node.clone().into_value();
        let mut check = LiteralCheck {
            inputs: &self.types.inputs,
            position: default.pos,
            usages: &mut Vec::new(),
        };
        check
            .value(&ty.node, false, &value, ValuePath::Variable(name))
            .map_err(|problem| RequestError::invalid_at(problem, default.pos))
    }

    fn selection_set(&mut self, parent: &'a Name, set: &'a SelectionSet) -> Checked {
        for item in &set.items {
            self.directives(item.node.directives())?;
            match &item.node {
                Selection::Field(field) => self.field(parent, field)?,
                Selection::InlineFragment(inline) => {
                    let condition = inline.node.type_condition.as_ref();
                    if let Some(condition) = condition {
                        self.spread(parent, &condition.node, item.pos)?;
                    }
                    let of = condition.map_or(parent, |condition| &condition.node.on.node);
                    self.selection_set(of, &inline.node.selection_set.node)?;
                }
                Selection::FragmentSpread(spread) => {
                    let name = &spread.node.fragment_name;
                    let fragment = self.document.fragments.get(&name.node).ok_or_else(|| {
                        RequestError::invalid_at(
                            format!("The document has no fragment `{}`.", name.node),
                            name.pos,
                        )
                    })?;
                    self.spread(parent, &fragment.node.type_condition.node, item.pos)?;
                    self.contents.spreads.push(&name.node);
                }
            }
        }
        Ok(())
    }

    /// Checks that some object is of the type around a fragment and of its own type.
    fn spread(&self, parent: &Name, condition: &'a TypeCondition, position: Pos) -> Checked {
        let of = self.composite(&condition.on)?;
        let parents = self
            .types
            .composites
            .get(parent)
            .map(|parent| &parent.objects);
        if parents.is_some_and(|parents| parents.is_disjoint(&of.objects)) {
            return Err(RequestError::invalid_at(
                format!("A `{parent}` is never a `{}`.", condition.on.node),
                position,
            ));
        }
        Ok(())
    }

    fn composite(&self, name: &'a Positioned<Name>) -> Checked<&'a CompositeType> {
        self.types.composites.get(&name.node).ok_or_else(|| {
            RequestError::invalid_at(
                format!(
                    "The schema has no object, interface or union `{}`.",
                    name.node
                ),
                name.pos,
            )
        })
    }

    fn field(&mut self, parent: &'a Name, field: &'a Positioned<Field>) -> Checked {
        let Positioned { node: field, pos } = field;
        let name = &field.name.node;
        let known = self.types.field(parent, name).ok_or_else(|| {
            RequestError::invalid_at(
                format!("The type `{parent}` has no field `{name}`."),
                field.name.pos,
            )
        })?;
        self.arguments(name, &known.arguments, &field.arguments, *pos)?;
        let of = innermost(&known.ty);
        let selected = &field.selection_set.node;
        match (
            self.types.composites.contains_key(of),
            selected.items.is_empty(),
        ) {
            (true, false) => self.selection_set(of, selected),
            (false, true) => Ok(()),
            (true, true) => Err(RequestError::invalid_at(
                format!(
                    "The field `{name}` of the type `{}` needs a selection of its fields.",
                    known.ty
                ),
                *pos,
            )),
            (false, false) => Err(RequestError::invalid_at(
                format!(
                    "The field `{name}` of the type `{}` has no fields to select.",
                    known.ty
                ),
                *pos,
            )),
        }
    }

    /// Checks the directives of a selection.
    fn directives(&mut self, directives: &'a [Positioned<Directive>]) -> Checked {
        for (index, directive) in directives.iter().enumerate() {
            let Positioned {
                node: directive,
                pos,
            } = directive;
            let name = &directive.name.node;
            if !matches!(name.as_str(), "skip" | "include") {
                return Err(RequestError::invalid_at(
                    format!("The directive `@{name}` does not belong here."),
                    *pos,
                ));
            }
            if directives[..index]
                .iter()
                .any(|other| other.node.name.node == *name)
            {
                return Err(RequestError::invalid_at(
                    format!("The directive `@{name}` stands here twice."),
                    *pos,
                ));
            }
            let known = std::slice::from_ref(&self.types.condition);
            self.arguments(name, known, &directive.arguments, *pos)?;
        }
        Ok(())
    }

    /// Checks the arguments of a field or directive.
    fn arguments(
        &mut self,
        of: &Name,
        known: &'a [InputField],
        given: &'a [(Positioned<Name>, Positioned<Value>)],
        position: Pos,
    ) -> Checked {
        let mut names = HashSet::with_capacity(given.len());
        for (Positioned { node: name, pos }, value) in given {
            let argument = known
                .iter()
                .find(|known| known.name == *name)
                .ok_or_else(|| {
                    RequestError::invalid_at(format!("`{of}` has no argument `{name}`."), *pos)
                })?;
            if !names.insert(name) {
                return Err(RequestError::invalid_at(
                    format!("The argument `{name}` stands here twice."),
                    *pos,
                ));
            }
            let mut check = LiteralCheck {
                inputs: &self.types.inputs,
                position: value.pos,
                usages: &mut self.contents.usages,
            };
            check
                .value(
                    &argument.ty,
                    argument.has_default,
                    &value.node,
                    ValuePath::Argument(name),
                )
                .map_err(|problem| RequestError::invalid_at(problem, value.pos))?;
        }
        let mut required = known.iter().filter(|known| known.is_required());
        match required.find(|known| !names.contains(&known.name)) {
            Some(missing) => Err(RequestError::invalid_at(
                ValuePath::Argument(&missing.name).is_missing(&missing.ty),
                position,
            )),
            None => Ok(()),
        }
    }
}

/// Refuses directives where the schema has none.
fn no_directives(directives: &[Positioned<Directive>]) -> Checked {
    match directives.first() {
        Some(directive) => Err(RequestError::invalid_at(
            format!(
                "The directive `@{}` does not belong here.",
                directive.node.name.node
            ),
            directive.pos,
        )),
        None => Ok(()),
    }
}
